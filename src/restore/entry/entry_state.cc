#include "restore/entry/entry_state.h"

#include <sys/socket.h>

#include <cstdarg>

#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt::entry {

State state;

void die(int code, const char* pattern, ...) {
  restore::Report r;
  __builtin_memset(&r, 0, sizeof(r));
  r.type = restore::kReportFailed;
  r.code = code;
  va_list args;
  va_start(args, pattern);
  vformat(r.text, sizeof(r.text), pattern, args);
  va_end(args);
  sys::call(SYS_sendto, state.plan->report_fd, sys::ptr(&r), sizeof(r), MSG_NOSIGNAL, 0, 0);
  sys::exit_group(125);
}

void begin_step(const char* name, int seconds) {
  restore::Report r;
  __builtin_memset(&r, 0, sizeof(r));
  r.type = restore::kReportStep;
  r.code = seconds;
  copy(r.text, sizeof(r.text), name);
  sys::call(SYS_sendto, state.plan->report_fd, sys::ptr(&r), sizeof(r), MSG_NOSIGNAL, 0, 0);
}

}  // namespace gpuckpt::entry
