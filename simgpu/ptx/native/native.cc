#include "ptx/native/native.h"

#include <pthread.h>
#include <sys/mman.h>

#include "ptx/native/native_code.h"
#include "ptx/native/x86_avx2.h"
#include "ptx/native/x86_avx512.h"

namespace simgpu::ptx {

using namespace x86;

struct Native {
  uint32_t shapes = 0;  // done, one bit for each
  Vec<Fn> handlers;     // the interpreter's
  struct Run {
    uint32_t block, begin, end;
    bool memory;
  };
  Vec<Run> runs;
  Fn* table = nullptr;  // kVariants for each run
  Translator::Sites sites;
  struct Area {
    void* at;
    size_t bytes;
  };
  Vec<Area> areas;
};

namespace {

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
constexpr uint32_t kLongestRun = 200;
constexpr uint32_t kMostInstructions = 40000;

// AVX2 or AVX-512, and the user did not ask for the interpreter alone.
bool enabled() {
  const char* engine = getenv("SIMGPU_ENGINE");
  return backend_vectors() != Vectors::kNone && (!engine || strcmp(engine, "interpreter") != 0);
}

// Behind a branch that goes forward, what follows is mostly run next.
bool goes_on(const Function& f, const Native& n, uint32_t b) {
  if (b + 1 >= f.flow_count || f.flow[b].begin == f.flow[b].end) return false;
  const uint32_t last = f.flow[b].end - 1;
  return n.handlers[last] == op_branch && f.flow[b + 1].begin == last + 1 &&
         f.code[last].target > &f.code[last];
}

void find_runs(const Function& f, Native* n) {
  // Several blocks are worth it where reading and writing registers costs most.
  const uint32_t most_blocks = backend_vectors() == Vectors::kAvx2 ? 4 : 1;
  for (uint32_t b = 0; b < f.flow_count; ++b) {
    const FlowBlock& block = f.flow[b];
    for (uint32_t i = block.begin; i < block.end;) {
      Native::Run run{b, i, i, false};
      uint32_t last = b;  // the block that the run reaches
      for (; run.end - i < kLongestRun; ++run.end) {
        if (run.end == f.flow[last].end) {
          if (last + 1 - b == most_blocks || !goes_on(f, *n, last)) break;
          ++last;
        }
        if (f.flow[last].begin == f.flow[last].end) break;
        const Ins& ins = f.code[run.end];
        const Known* k = ins.inner ? nullptr : known(n->handlers[run.end], ins);
        if (!k) break;
        run.memory |= k->what == Do::kLoad || k->what == Do::kStore;
      }
      if (run.end - i >= 2) n->runs.push(run);
      i = run.end == i ? i + 1 : run.end;
    }
  }
}

// Makes memory with the given bytes executable and read-only.
void* executable(Native* n, const Vec<uint8_t>& bytes) {
  const size_t size = (bytes.size() + 4095) & ~(size_t)4095;
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  memcpy(p, bytes.data(), bytes.size());
  if (mprotect(p, size, PROT_READ | PROT_EXEC) != 0) {
    munmap(p, size);
    return nullptr;
  }
  n->areas.push(Native::Area{p, size});
  return p;
}

// The replacement of a run's first handler: chooses the code that fits the active lanes.
size_t entry_stub(Assembler& a, const Fn* table) {
  const size_t at = a.here();
  a.load32(kRax, kRdi, offsetof(Ctx, variant));
  a.move_immediate(kR10, (uint64_t)(uintptr_t)table);
  a.jump_table(kR10, kRax);
  return at;
}

void translate_shape(const Module& m, Function* f, Native* n, WarpShape shape) {
  Facts facts(m, *f, n->handlers.data(), shape);
  facts.find();
  Vec<size_t> entries;  // of the code for each run, for each set of lanes
  Avx512Assembler avx512;
  Avx2Assembler avx2;
  Assembler& a = backend_vectors() == Vectors::kAvx512 ? (Assembler&)avx512 : avx2;
  for (unsigned lanes = 0; lanes < 3; ++lanes) {
    Vec<Label> labels;
    labels.resize(f->code_count + 1);
    for (Label& l : labels) l = ~0u;
    for (const Native::Run& r : n->runs) labels[r.begin] = a.label();
    for (const Native::Run& r : n->runs) {
      Translator t(m, *f, n->handlers.data(), shape, (LaneSet)lanes, facts, a);
      t.sites = &n->sites;
      const bool good = t.run(r.block, r.begin, r.end, labels, r.memory);
      if (!good) t.refuse(r.begin, labels[r.begin]);
      entries.push(good ? a.where(labels[r.begin]) : ~(size_t)0);
    }
  }
  a.finish();
  auto* code = static_cast<uint8_t*>(executable(n, a.bytes));
  if (!code) return;
  for (unsigned lanes = 0; lanes < 3; ++lanes)
    for (size_t r = 0; r < n->runs.size(); ++r) {
      const size_t at = entries[lanes * n->runs.size() + r];
      if (at == ~(size_t)0) continue;
      __atomic_store_n(&n->table[r * kVariants + (unsigned)shape * 3 + lanes],
                       reinterpret_cast<Fn>(code + at), __ATOMIC_RELEASE);
    }
}

Native* begin(Function* f) {
  void* memory = calloc(1, sizeof(Native));
  if (!memory) return nullptr;
  auto* n = new (memory) Native();
  n->handlers.resize(f->code_count);
  for (uint32_t i = 0; i < f->code_count; ++i) n->handlers[i] = f->code[i].fn;
  find_runs(*f, n);
  n->table = static_cast<Fn*>(calloc(n->runs.size() * kVariants + 1, sizeof(Fn)));
  if (!n->table || n->runs.empty()) return n;
  Avx512Assembler a;  // no vectors
  Vec<size_t> stubs;
  for (size_t r = 0; r < n->runs.size(); ++r) {
    for (unsigned v = 0; v < kVariants; ++v)
      n->table[r * kVariants + v] = n->handlers[n->runs[r].begin];
    stubs.push(entry_stub(a, n->table + r * kVariants));
  }
  a.finish();
  auto* code = static_cast<uint8_t*>(executable(n, a.bytes));
  if (!code) {
    n->runs.clear();
    return n;
  }
  // Other threads may run the function meanwhile: either handler does the same.
  for (size_t r = 0; r < n->runs.size(); ++r)
    __atomic_store_n(&f->code[n->runs[r].begin].fn, reinterpret_cast<Fn>(code + stubs[r]),
                     __ATOMIC_RELEASE);
  return n;
}

void translate_function(const Module& m, Function* f, WarpShape shape) {
  if (!f || f->code_count == 0 || f->code_count > kMostInstructions) return;
  if (!f->native) f->native = begin(f);
  Native* n = f->native;
  const uint32_t bit = 1u << (unsigned)shape;
  if (!n || (n->shapes & bit)) return;
  n->shapes |= bit;
  if (!n->runs.empty()) translate_shape(m, f, n, shape);
  for (Function* callee : f->callees) translate_function(m, callee, shape);
  if (f->calls_indirectly)
    for (Function* other : m.functions)
      if (other && !other->syntax->entry) translate_function(m, other, shape);
}

}  // namespace

WarpShape warp_shape(const Launch& l) {
  if (l.block[0] % kLanes == 0 || (l.block[1] == 1 && l.block[2] == 1)) return WarpShape::kLine;
  return l.block[0] % (kLanes / 2) == 0 ? WarpShape::kHalves : WarpShape::kOther;
}

void translate(const Module& m, const Kernel& k, WarpShape shape) {
  const uint32_t bit = 1u << (unsigned)shape;
  if (__atomic_load_n(&k.translated, __ATOMIC_ACQUIRE) & bit) return;
  pthread_mutex_lock(&mutex);
  if (enabled()) translate_function(m, k.function, shape);
  __atomic_or_fetch(&k.translated, bit, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
}

void drop_native(Function* f) {
  Native* n = f->native;
  if (!n) return;
  for (const Native::Area& a : n->areas) munmap(a.at, a.bytes);
  free(n->table);
  n->~Native();
  free(n);
  f->native = nullptr;
}

}  // namespace simgpu::ptx
