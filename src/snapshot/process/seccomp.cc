#include "snapshot/process/seccomp.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "base/syscall.h"
#include "gpuckpt/wire.h"
#include "snapshot/control/state.h"
#include "snapshot/park/libc_doors.h"

namespace gpuckpt {
namespace {

bool was_deaf;

// Does every way through the filter end in one of the answers that a program survives? (What it
// returns from a register is not known.)
bool only_answers_errors(const sock_fprog* filter) {
  if (!filter || !filter->filter) return true;  // the kernel refuses it
  for (unsigned i = 0; i < filter->len; ++i) {
    const sock_filter& f = filter->filter[i];
    if (BPF_CLASS(f.code) != BPF_RET) continue;
    if (BPF_RVAL(f.code) != BPF_K) return false;
    const uint32_t answer = f.k & SECCOMP_RET_ACTION_FULL;
    if (answer != SECCOMP_RET_ALLOW && answer != SECCOMP_RET_ERRNO && answer != SECCOMP_RET_LOG)
      return false;
  }
  return true;
}

}  // namespace

void before_seccomp(bool strict, const void* program) {
  was_deaf = library.deaf;
  if (!library.ready || was_deaf) return;
  if (!strict && only_answers_errors(static_cast<const sock_fprog*>(program))) return;
  log_line(LogLevel::kInfo, "the program confines itself (seccomp): no snapshot from here on");
  library.deaf = true;
  // The command line sees that we listen no more. Where glibc has its own handler for the signal,
  // ours stays in front of it and passes on what is not meant for us.
  if (!glibc_uses_wake_signal()) {
    sys::Sigaction ignore{};
    ignore.handler = 1;  // SIG_IGN
    sys::sigaction(wire::kWakeSignal, &ignore, nullptr);
  }
}

void seccomp_failed() {
  if (library.deaf == was_deaf) return;
  library.deaf = false;
  install_wake_handler();
}

}  // namespace gpuckpt

using namespace gpuckpt;

extern "C" long gpuckpt_seccomp(long number, long operation, long flags, void* program) {
  const bool sets = operation == SECCOMP_SET_MODE_STRICT || operation == SECCOMP_SET_MODE_FILTER;
  if (sets) before_seccomp(operation == SECCOMP_SET_MODE_STRICT, program);
  const long r = gpuckpt_real_syscall(number, operation, flags, program, 0, 0, 0);
  if (sets && r != 0) seccomp_failed();
  return r;
}

extern "C" int gpuckpt_prctl_seccomp(int option, long mode, void* program, long c, long d) {
  before_seccomp(mode == SECCOMP_MODE_STRICT, program);
  const int r = gpuckpt_real_prctl(option, mode, program, c, d);
  if (r != 0) seccomp_failed();
  return r;
}
