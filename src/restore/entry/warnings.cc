#include "restore/entry/warnings.h"

#include <sys/socket.h>

#include <cstdarg>

#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "restore/protocol/plan.h"

namespace gpuckpt {
namespace {
int report_socket = -1;
}

void warn_through(int report_fd) { report_socket = report_fd; }

void warn(const char* pattern, ...) {
  restore::Report r;
  __builtin_memset(&r, 0, sizeof(r));
  r.type = restore::kReportWarning;
  va_list args;
  va_start(args, pattern);
  vformat(r.text, sizeof(r.text), pattern, args);
  va_end(args);
  if (report_socket < 0)
    log_line(LogLevel::kWarn, "%s", r.text);
  else
    sys::call(SYS_sendto, report_socket, sys::ptr(&r), sizeof(r), MSG_NOSIGNAL, 0, 0);
}

}  // namespace gpuckpt
