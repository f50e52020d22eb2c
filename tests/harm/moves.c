// Goes into a namespace of its own once it runs: -U (users), -C (control groups); -p: a
// pid namespace for its children.
#include <sched.h>
#include "../features/feature.h"

int main(int argc, char** argv) {
  CHECK(argc == 2);
  const int user = (int)getuid(), users = argv[1][1] == 'U';
  const int children = argv[1][1] == 'p';
  CHECK(unshare(users ? CLONE_NEWUSER : children ? CLONE_NEWPID : CLONE_NEWCGROUP) == 0);
  if (users) {
    const int fd = open("/proc/self/uid_map", O_WRONLY);
    char map[32];
    const int n = snprintf(map, sizeof(map), "%d %d 1", user, user);
    CHECK(fd >= 0 && write(fd, map, (size_t)n) == n && close(fd) == 0);
  }
  ready_and_wait();
  return survived();
}
