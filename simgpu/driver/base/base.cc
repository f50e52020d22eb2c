#include "driver/base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

namespace simgpu {

Cond::Cond() {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&c_, &attr);
  pthread_condattr_destroy(&attr);
}

void Cond::wait_for(Mutex& m, uint64_t nanoseconds) {
  uint64_t at = now_ns() + nanoseconds;
  timespec t{static_cast<time_t>(at / 1000000000), static_cast<long>(at % 1000000000)};
  pthread_cond_timedwait(&c_, m.raw(), &t);
}

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

void sleep_ns(uint64_t ns) {
  timespec t{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  nanosleep(&t, nullptr);
}

void say(const char* format, ...) {
  char line[1024] = "simgpu: ";
  size_t at = strlen(line);
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line + at, sizeof line - at - 1, format, args);
  va_end(args);
  if (n < 0) return;
  at += static_cast<size_t>(n);
  if (at > sizeof line - 2) at = sizeof line - 2;
  line[at++] = '\n';
  if (write(2, line, at) < 0) return;
}

int device_ioctl() {
  const int before = errno;
  const int rc = ioctl(-1, 0, nullptr);
  errno = before;
  return rc;
}

}  // namespace simgpu
