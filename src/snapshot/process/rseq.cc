#include "snapshot/process/rseq.h"

#include <linux/sched.h>
#include <sys/prctl.h>

#include "base/syscall.h"
#include "snapshot/control/state.h"
#include "snapshot/park/raw_thread.h"

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

namespace gpuckpt {
namespace {

constexpr long kBusy = -16, kInvalid = -22;
constexpr long kUnregister = 1;
constexpr long kSeize = 0x4206, kInterrupt = 0x4207, kDetach = 17, kGetRseq = 0x420f;
constexpr long kWaitAll = 0x40000000;

long register_rseq(uint64_t address, uint32_t bytes, long flags) {
  return sys::call(SYS_rseq, static_cast<long>(address), bytes, flags, kLibcRseqSignature);
}

struct Request {
  RseqArea* areas;
  size_t count;
};

bool ask(RseqArea* a) {
  struct {
    uint64_t address;
    uint32_t bytes, signature, flags, pad;
  } configuration{};
  if (sys::failed(sys::call(SYS_ptrace, kSeize, a->tid, 0, 0))) return false;
  int status = 0;
  const bool stopped = !sys::failed(sys::call(SYS_ptrace, kInterrupt, a->tid, 0, 0)) &&
                       sys::call(SYS_wait4, a->tid, sys::ptr(&status), kWaitAll, 0) == a->tid;
  const long got = stopped ? sys::call(SYS_ptrace, kGetRseq, a->tid, sizeof(configuration),
                                       sys::ptr(&configuration))
                           : -1;
  sys::call(SYS_ptrace, kDetach, a->tid, 0, 0);
  if (sys::failed(got)) return false;
  a->address = configuration.address;
  a->bytes = configuration.bytes, a->signature = configuration.signature;
  return true;
}

// In a process of its own that shares our memory: threads of one process cannot trace each other.
void ask_for_all(void* argument) {
  const Request* r = static_cast<Request*>(argument);
  for (size_t i = 0; i < r->count; ++i) r->areas[i].known = ask(&r->areas[i]);
  sys::exit_group(0);
}

alignas(64) char helper_stack[16 * 1024];

}  // namespace

uint32_t libc_rseq_bytes() { return library.rseq_size < 32 ? 32 : library.rseq_size; }

// An area that cannot be anybody's tells whether there is a registration at all.
RseqOwner own_rseq(uint64_t fs) {
  alignas(32) volatile char nobodys[32] = {};
  const uint64_t at = reinterpret_cast<uint64_t>(&nobodys);
  const long r = register_rseq(at, sizeof(nobodys), 0);
  if (!r) register_rseq(at, sizeof(nobodys), kUnregister);
  if (r != kInvalid) return RseqOwner::kNone;  // (or the kernel has none, or a filter forbids it)
  const uint64_t libcs = fs + static_cast<uint64_t>(library.rseq_offset);
  return library.rseq_size && register_rseq(libcs, libc_rseq_bytes(), 0) == kBusy
             ? RseqOwner::kLibc
             : RseqOwner::kProgram;
}

void ask_for_rseq(RseqArea* areas, size_t count) {
  Request request{areas, count};
  const long pid =
      clone_raw(CLONE_VM, reinterpret_cast<uint64_t>(helper_stack + sizeof(helper_stack)),
                ask_for_all, &request, nullptr, nullptr, nullptr);
  if (!sys::failed(pid)) sys::call(SYS_wait4, pid, 0, kWaitAll, 0);
}

}  // namespace gpuckpt
