#include "snapshot/process/seccomp.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstdint>

#include "snapshot/park/eintr.h"
#include "snapshot/park/libc_wrappers.h"
#include "snapshot/process/confinement.h"

namespace gpuckpt {
namespace {

bool became_deaf;  // for the filter that is being installed

bool may_read(const void* at, size_t bytes) {
  const uint64_t first = reinterpret_cast<uint64_t>(at), last = first + bytes - 8;
  return is_readable(first) && is_readable(last);
}

// Does every way through the filter end in one of the answers that a program survives? (What it
// returns from a register is not known.) What the program may not read itself the kernel refuses.
bool only_answers_errors(const sock_fprog* filter) {
  if (!may_read(filter, sizeof(*filter)) || filter->len > BPF_MAXINSNS) return true;
  for (unsigned i = 0; i < filter->len; ++i) {
    const sock_filter& f = filter->filter[i];
    if (!may_read(&f, sizeof(f))) return true;
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
  became_deaf = false;
  if (!strict && only_answers_errors(static_cast<const sock_fprog*>(program))) return;
  became_deaf = become_deaf("confines itself (seccomp)");
  if (!became_deaf) stay_deaf();
}

void seccomp_failed() {
  if (became_deaf) listen_again();
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
