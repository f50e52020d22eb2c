#include "snapshot/threads/rseq.h"

#include "base/syscall.h"
#include "snapshot/control/state.h"
#include "snapshot/threads/tracer.h"

namespace gpuckpt {
namespace {

constexpr long kBusy = -16, kInvalid = -22;
constexpr long kUnregister = 1;
constexpr long kGetRseq = 0x420f;  // PTRACE_*

long register_rseq(uint64_t address, uint32_t bytes, long flags) {
  return sys::call(SYS_rseq, static_cast<long>(address), bytes, flags, kLibcRseqSignature);
}

struct Request {
  RseqArea* areas;
  size_t count;
};

long ask(int tid, void* area) {
  RseqArea* a = static_cast<RseqArea*>(area);
  struct {
    uint64_t address;
    uint32_t bytes, signature, flags, pad;
  } configuration{};
  const long got =
      sys::call(SYS_ptrace, kGetRseq, tid, sizeof(configuration), sys::ptr(&configuration));
  if (sys::failed(got)) return got;
  a->address = configuration.address;
  a->bytes = configuration.bytes, a->signature = configuration.signature;
  return 0;
}

void ask_for_all(void* argument) {
  const Request* r = static_cast<Request*>(argument);
  for (size_t i = 0; i < r->count; ++i)
    r->areas[i].known = !sys::failed(trace_thread(r->areas[i].tid, ask, &r->areas[i]));
}

}  // namespace

uint32_t libc_rseq_bytes() { return library.rseq_size < 32 ? 32 : library.rseq_size; }

// An area that no thread can have tells whether there is a registration at all.
RseqOwner own_rseq(uint64_t fs) {
  alignas(32) volatile char unused[32] = {};
  const uint64_t at = reinterpret_cast<uint64_t>(&unused);
  const long r = register_rseq(at, sizeof(unused), 0);
  if (!r) register_rseq(at, sizeof(unused), kUnregister);
  if (r != kInvalid) return RseqOwner::kNone;  // (or the kernel has none, or a filter forbids it)
  const uint64_t libcs = fs + static_cast<uint64_t>(library.rseq_offset);
  return library.rseq_size && register_rseq(libcs, libc_rseq_bytes(), 0) == kBusy
             ? RseqOwner::kLibc
             : RseqOwner::kProgram;
}

void ask_for_rseq(RseqArea* areas, size_t count) {
  Request request{areas, count};
  run_as_tracer(ask_for_all, &request);
}

}  // namespace gpuckpt
