// Events of inotify that nobody has read: a restore drops them, which the snapshot tells; the watch goes on.
#include <sys/inotify.h>
#include "feature.h"
int main(void) {
  CHECK(mkdir("watched", 0755) == 0);
  const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), watch = inotify_add_watch(fd, "watched", IN_CREATE);
  CHECK(fd >= 0 && watch > 0);
  CHECK(close(open("watched/before", O_CREAT | O_WRONLY, 0600)) == 0);
  ready_and_wait();
  union { struct inotify_event e; char bytes[4096]; } u;
  if (access("was_restored", F_OK) == 0)
    CHECK(read(fd, &u, sizeof(u)) == -1 && errno == EAGAIN);
  else
    CHECK(read(fd, &u, sizeof(u)) > 0 && u.e.wd == watch && strcmp(u.e.name, "before") == 0);
  CHECK(close(open("watched/after", O_CREAT | O_WRONLY, 0600)) == 0);
  CHECK(read(fd, &u, sizeof(u)) > 0 && u.e.wd == watch && strcmp(u.e.name, "after") == 0);
  return survived();
}
