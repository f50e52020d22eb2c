#include "base/text/log.h"

#include <poll.h>
#include <sys/stat.h>

#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {
LogLevel level_now = LogLevel::kWarn;
uint64_t stderr_dev, stderr_ino;
bool stderr_known;

bool identify(uint64_t* dev, uint64_t* ino) {
  struct stat st;
  if (sys::failed(sys::call(SYS_fstat, 2, sys::ptr(&st)))) return false;
  *dev = st.st_dev;
  *ino = st.st_ino;
  return true;
}
}  // namespace

void log_adopt_stderr() { stderr_known = identify(&stderr_dev, &stderr_ino); }

void log_start(const char* value) {
  log_adopt_stderr();
  if (!value) return;
  static const char* const names[] = {"off", "error", "warn", "info", "debug"};
  for (int i = 0; i < 5; ++i)
    if (equal(value, names[i])) level_now = static_cast<LogLevel>(i);
}

bool log_stderr_is_ours() {
  uint64_t dev, ino;
  return stderr_known && identify(&dev, &ino) && dev == stderr_dev && ino == stderr_ino;
}

void log_line(LogLevel level, const char* pattern, ...) {
  if (level > level_now || !log_stderr_is_ours()) return;
  char line[1200];
  size_t n = format(line, sizeof(line), "gpuckpt[%d]: %s", sys::getpid(),
                    level == LogLevel::kError  ? "error: "
                    : level == LogLevel::kWarn ? "warning: "
                                               : "");
  va_list args;
  va_start(args, pattern);
  n += vformat(line + n, sizeof(line) - n - 1, pattern, args);
  va_end(args);
  // Names of files and processes are in it: nothing in them commands a terminal.
  for (size_t i = 0; i < n; ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    const bool c1 = c >= 0x80 && c <= 0x9f && i && static_cast<unsigned char>(line[i - 1]) == 0xc2;
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || c1) line[i] = '?';
  }
  line[n++] = '\n';
  // The reader of a pipe may be slow, or have ended: no thread waits for it, or gets SIGPIPE.
  pollfd to{2, POLLOUT, 0};
  if (sys::call(SYS_poll, sys::ptr(&to), 1, 0) != 1 || to.revents != POLLOUT) return;
  sys::write(2, line, n);
}

}  // namespace gpuckpt
