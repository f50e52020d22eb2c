// Compiles modules, and assigns addresses and initial values to their variables.
#include <stdio.h>

#include "ptx/lower/lower.h"
#include "ptx/native/native.h"
#include "ptx/syntax/device_runtime.h"

namespace simgpu::ptx {

namespace base {
extern const Backend kBackend;
}
namespace avx2 {
extern const Backend kBackend;
}
namespace avx512 {
extern const Backend kBackend;
}

const Backend& backend() {
  static const Backend* chosen = nullptr;
  const Backend* b = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (b) return *b;
  __builtin_cpu_init();
#if defined(__clang__)  // clang 14 cannot ask for these two; what has AVX2 has them
  const bool rest = true;
#else
  const bool rest = __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt");
#endif
  const bool wide = rest && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("popcnt");
  const bool widest = wide && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq");
  const char* wanted = getenv("SIMGPU_CPU");
  if (!wanted) wanted = "";
  b = !wide || strcmp(wanted, "base") == 0     ? &base::kBackend
      : !widest || strcmp(wanted, "avx2") == 0 ? &avx2::kBackend
                                               : &avx512::kBackend;
  __atomic_store_n(&chosen, b, __ATOMIC_RELAXED);
  return *b;
}

Vectors backend_vectors() {
  return &backend() == &avx512::kBackend ? Vectors::kAvx512
         : &backend() == &avx2::kBackend ? Vectors::kAvx2
                                         : Vectors::kNone;
}

Module::~Module() {
  for (Function* f : functions)
    if (f) {
      drop_native(f);
      f->~Function();
    }
  free(constants);
}

namespace {

const char* text_of(Module* m, Text t) {
  char* p = m->syntax.arena.make<char>(t.size + 1);
  memcpy(p, t.data, t.size);
  return p;
}

uint64_t align_up(uint64_t v, uint64_t a) { return (v + a - 1) & ~(a - 1); }

// Shared memory: variables that device functions use are at the same offset in every kernel that
// may reach them; each kernel's own variables follow.
class SharedLayout {
 public:
  SharedLayout(Lowering* l) : l_(*l), m_(*l->module) {}

  void run() {
    for (Function* f : m_.functions)
      if (f && !f->syntax->entry)
        for (Symbol* v : f->shared_used) place_common(v);
    for (const SharedUse& use : l_.shared)
      if (!use.function->syntax->entry) fill(use, offset_[use.symbol->index]);
    for (Kernel* k : m_.kernels) kernel(k);
  }

 private:
  void place_common(Symbol* v) {
    if (v->index != 0) return;
    if (offset_.empty()) offset_.push(0);  // index 0: not placed
    common_ = align_up(common_, v->align);
    v->index = (uint32_t)offset_.size();
    offset_.push(common_);
    common_ += v->bytes;
  }
  void fill(const SharedUse& use, uint64_t offset) {
    l_.constants.fill(use.constant, offset + (uint64_t)use.addend, use.bytes);
  }

  void reach(Kernel* k, Vec<uint8_t>* seen, bool* shared, bool* dynamic) {
    Function* f = k->function;
    Vec<Function*> work;
    work.push(f);
    (*seen)[f->index] = 1;
    while (!work.empty()) {
      Function* g = work.back();
      work.pop();
      *shared |= !g->syntax->entry && !g->shared_used.empty();
      *dynamic |= g->uses_dynamic_shared;
      k->depends_on_order |= g->depends_on_order;
      k->uses_tensor_memory |= g->uses_tensor_memory;
      auto add = [&](Function* h) {
        if (!h || (*seen)[h->index]) return;
        (*seen)[h->index] = 1;
        work.push(h);
      };
      for (Function* h : g->callees) add(h);
      if (g->calls_indirectly)
        for (Function* h : m_.functions)
          if (h && !h->syntax->entry) add(h);
    }
  }

  void kernel(Kernel* k) {
    Function* f = k->function;
    Vec<uint8_t> seen;
    seen.resize(m_.functions.size());
    bool shared = false, dynamic = false;
    reach(k, &seen, &shared, &dynamic);
    for (Symbol* v : f->shared_used) shared |= v->index != 0;
    uint64_t at = shared ? common_ : 0;
    Vec<uint64_t> own;
    for (Symbol* v : f->shared_used) {
      if (v->index != 0) {
        own.push(offset_[v->index]);
        continue;
      }
      at = align_up(at, v->align);
      own.push(at);
      at += v->bytes;
    }
    k->static_shared = (uint32_t)(at > 1u << 30 ? 1u << 30 : at);
    uint64_t align = 16;
    for (const SharedUse& use : l_.shared)
      if (use.function == f && (use.symbol->unsized || use.symbol->external) &&
          use.symbol->align > align)
        align = use.symbol->align;
    if (dynamic)
      for (const SharedUse& use : l_.shared)
        if (use.symbol->unsized && use.symbol->align > align && !use.function->syntax->entry)
          align = use.symbol->align;
    k->dynamic_offset = (uint32_t)align_up(k->static_shared, align);
    for (const SharedUse& use : l_.shared) {
      if (use.function != f) continue;
      uint64_t offset = k->dynamic_offset;
      for (uint32_t s = 0; s < f->shared_used.size(); ++s)
        if (f->shared_used[s] == use.symbol) offset = own[s];
      fill(use, offset);
    }
  }

  Lowering& l_;
  Module& m_;
  Vec<uint64_t> offset_;
  uint64_t common_ = 0;
};

void describe_kernel(Module* m, Kernel* k) {
  const FunctionSyntax& s = *k->function->syntax;
  KernelInfo& info = k->info;
  info.name = k->function->name;
  info.param_count = (uint32_t)s.params.size();
  auto* params = m->syntax.arena.make<ParamInfo>(s.params.size() + 1);
  for (uint32_t i = 0; i < s.params.size(); ++i) {
    const Symbol& p = *s.params[i];
    params[i] = ParamInfo{p.offset, (uint32_t)p.bytes, p.align};
    info.param_bytes = p.offset + (uint32_t)p.bytes;
  }
  info.params = params;
  info.static_shared_bytes = k->static_shared;
  info.local_bytes = k->function->local_bytes;
  uint32_t registers = k->function->registers;
  info.registers = registers < 16 ? 16 : registers > 255 ? 255 : registers;
  if (s.max_registers != 0 && info.registers > s.max_registers) info.registers = s.max_registers;
  const uint32_t required = s.required[0] * s.required[1] * s.required[2];
  info.max_threads = s.max_threads != 0 ? s.max_threads : required != 0 ? required : 1024;
  if (info.max_threads > 1024) info.max_threads = 1024;
  memcpy(info.required_block, s.required, sizeof s.required);
  memcpy(k->cluster, s.cluster, sizeof s.cluster);
}

bool build(Module* m, const CompileOptions& options, Log* log) {
  ModuleSyntax& s = m->syntax;
  if (options.sm != 0 && s.target_sm > options.sm) {
    log->error(1, ".target sm_%u is newer than the device (sm_%u)", s.target_sm, options.sm);
    return false;
  }
  for (Symbol* v : s.variables) {
    VariableInfo info{};
    info.name = text_of(m, v->name);
    info.size = v->bytes;
    info.align = v->align;
    info.constant = v->space == Space::kConst;
    info.external = v->external;
    info.managed = v->managed;
    info.opaque = v->opaque;
    info.init = v->init;
    m->variables.push(info);
  }
  m->addresses.resize(s.variables.size());
  m->functions.resize(s.functions.size());
  for (uint32_t k = 0; k < s.functions.size(); ++k) {
    FunctionSyntax* fs = s.functions[k];
    fs->index = k;
    if (!fs->defined) continue;
    auto* f = new (s.arena.make<Function>()) Function();
    f->syntax = fs;
    f->index = k;
    f->name = text_of(m, fs->name);
    m->functions[k] = f;
  }
  Lowering l{};
  l.module = m;
  l.log = log;
  for (Function* f : m->functions) {
    if (!f) continue;
    lower_function(&l, f);
    if (log->errors() > 20) return false;
    if (!f->syntax->entry) continue;
    auto* kernel = new (s.arena.make<Kernel>()) Kernel();
    kernel->function = f;
    m->kernels.push(kernel);
  }
  if (log->errors() != 0) return false;
  SharedLayout(&l).run();
  for (Kernel* k : m->kernels) describe_kernel(m, k);
  m->constants_bytes = l.constants.bytes();
  m->constants = static_cast<uint8_t*>(aligned_alloc(128, align_up(m->constants_bytes + 1, 128)));
  if (!m->constants) {
    log->error(1, "no memory for constants");
    return false;
  }
  if (m->constants_bytes != 0) memcpy(m->constants, l.constants.data(), m->constants_bytes);
  return true;
}

Symbol* resolve_late(const Module* m, const InitPiece& p) {
  if (p.symbol) return p.symbol;
  if (p.late_name.empty()) return nullptr;
  return m->syntax.symbols.find(p.late_name);
}

uint64_t address_of(const Module* m, const Symbol* v) {
  if (v->kind == SymbolKind::kFunction) return code_address(*m, v->function->index);
  if (v->space == Space::kGlobal || v->space == Space::kConst) return m->addresses[v->index];
  return 0;
}

bool initialisers_resolve(Module* m, Log* log) {
  for (const Symbol* v : m->syntax.variables)
    for (uint32_t k = 0; k < v->piece_count; ++k) {
      const InitPiece& p = v->pieces[k];
      if (p.late_name.empty()) continue;
      const Symbol* s = resolve_late(m, p);
      if (!s || s->kind == SymbolKind::kRegisters || s->kind == SymbolKind::kPrototype ||
          (s->kind == SymbolKind::kVariable && s->space != Space::kGlobal &&
           s->space != Space::kConst)) {
        log->error(v->line, "the initialiser of '%.*s' names '%.*s', which has no address",
                   (int)v->name.size, v->name.data, (int)p.late_name.size, p.late_name.data);
        return false;
      }
    }
  return true;
}

}  // namespace

Module* compile(const char* text, size_t length, const CompileOptions& options, char* log,
                size_t log_bytes) {
  Log messages(log, log_bytes);
  void* memory = calloc(1, sizeof(Module));
  if (!memory) {
    messages.error(1, "no memory");
    return nullptr;
  }
  auto* m = new (memory) Module();
  if (length <= 1ull << 30 && parse(&m->syntax, text, length, &messages) &&
      add_device_runtime(&m->syntax, &messages) && build(m, options, &messages) &&
      initialisers_resolve(m, &messages))
    return m;
  if (messages.errors() == 0) messages.error(1, "the text is too long");
  destroy(m);
  return nullptr;
}

void destroy(Module* m) {
  if (!m) return;
  m->~Module();
  free(m);
}

uint32_t kernel_count(const Module* m) { return (uint32_t)m->kernels.size(); }
const KernelInfo* kernel(const Module* m, uint32_t index) {
  return index < m->kernels.size() ? &m->kernels[index]->info : nullptr;
}
uint32_t variable_count(const Module* m) { return (uint32_t)m->variables.size(); }
const VariableInfo* variable(const Module* m, uint32_t index) {
  return index < m->variables.size() ? &m->variables[index] : nullptr;
}
void bind(Module* m, uint32_t index, uint64_t device_address) {
  if (index < m->addresses.size()) m->addresses[index] = device_address;
}
uint64_t code_bytes(const Module* m) { return 16 * (m->functions.size() + 1); }

void finish(Module* m, uint64_t code_base, Memory& memory) {
  m->code_base = code_base;
  for (const Module::Relocation& r : m->relocations)
    fill_constant(m->constants + r.offset, address_of(m, r.symbol) + (uint64_t)r.addend, 8);
  for (const Symbol* v : m->syntax.variables) {
    if (v->external || v->bytes == 0) continue;
    const uint64_t at = m->addresses[v->index];
    Segment s{};
    if (!memory.find(at, &s) || at - s.begin >= s.end - s.begin || s.end - at < v->bytes) continue;
    uint8_t* host = s.host + (at - s.begin);
    memset(host, 0, v->bytes);
    for (uint32_t k = 0; k < v->piece_count; ++k) {
      const InitPiece& p = v->pieces[k];
      uint64_t value = p.value;
      if (const Symbol* target = resolve_late(m, p))
        value = (address_of(m, target) + p.value) >> p.shift;
      memcpy(host + p.offset, &value, p.bytes);
    }
  }
}

}  // namespace simgpu::ptx
