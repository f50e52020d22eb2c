// A restore would put the program into the network of the process that restores it.
#include <sched.h>
#include "feature.h"

static void write_file(const char* path, const char* text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
}

int main(void) {
  char users[64], groups[64];
  snprintf(users, sizeof(users), "%u %u 1", getuid(), getuid());
  snprintf(groups, sizeof(groups), "%u %u 1", getgid(), getgid());
  // The user namespace has a map: one without is refused for that alone (harm.users).
  CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", users);
  write_file("/proc/self/gid_map", groups);
  ready_and_wait();
  return survived();
}
