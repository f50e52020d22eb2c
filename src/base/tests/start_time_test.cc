// A process is the same for a reader in another time namespace.
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/procfs/namespaces.h"
#include "base/procfs/proc.h"

using namespace gpuckpt;

#define CHECK(x)                                                        \
  do                                                                    \
    if (!(x)) fprintf(stderr, "line %d: %s\n", __LINE__, #x), _exit(1); \
  while (0)

constexpr int kSkipped = 77;

static uint64_t as_told(int pid) {
  ProcStat stat;
  CHECK(read_stat_of(pid, &stat));
  return stat.field[ProcStat::kStartTime];
}

// In the children of a process with clocks of their own, `monotonic` and `boottime` ahead.
template <typename Look>
static int in_another(const char* monotonic, const char* boottime, Look look) {
  const pid_t maker = fork();
  if (maker == 0) {
    const uint64_t before = start_time_of(getppid());
    keep_clock_offsets();
    if (unshare(CLONE_NEWUSER | 0x80 /* CLONE_NEWTIME */) != 0) _exit(kSkipped);
    const int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    char text[128];
    const int n = snprintf(text, sizeof(text), "monotonic %s\nboottime %s\n", monotonic, boottime);
    CHECK(fd >= 0 && write(fd, text, static_cast<size_t>(n)) == n);
    CHECK(start_time_of(getppid()) == before);  // whose own clocks have not changed
    const pid_t child = fork();
    if (child == 0) {
      look();
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status;
  CHECK(waitpid(maker, &status, 0) == maker && WIFEXITED(status));
  return WEXITSTATUS(status);
}

int main() {
  const int self = getpid();
  const uint64_t told = as_told(self), started = start_time_of(self);
  CHECK(clock_offsets().boottime != 0 || told == started);
  const int ahead = in_another("500 0", "1000 30000000", [&] {
    CHECK(clock_offsets().monotonic == 500'000'000'000);
    CHECK(clock_offsets().boottime == 1000'030'000'000);
    CHECK(as_told(self) == told + 100'003 || told != started);
    CHECK(start_time_of(self) == started);
  });
  if (ahead == kSkipped) {
    puts("skipped: no time namespaces here");
    return kSkipped;
  }
  CHECK(ahead == 0);
  // Behind: as the kernel tells it, seconds count down and nanoseconds up.
  CHECK(in_another("-2 0", "-2 990000000", [&] {
          CHECK(clock_offsets().boottime == -1'010'000'000);
          CHECK(start_time_of(self) == started);
        }) == 0);
  puts("passed");
  return 0;
}
