// Unread events of inotify: a restore drops them, which the snapshot tells; the watch goes on.
#include <sys/inotify.h>
#include "feature.h"
int main(void) {
  CHECK(mkdir("watched", 0755) == 0);
  const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC), watch = inotify_add_watch(fd, "watched", IN_CREATE);
  CHECK(fd >= 0 && watch > 0);
  CHECK(close(open("watched/before", O_CREAT | O_WRONLY, 0600)) == 0);
  const int before = was_restored();
  ready_and_wait();
  union { struct inotify_event e; char bytes[4096]; } u;
  const int killed = was_restored();
  const ssize_t n = read(fd, &u, sizeof(u));
  if (n > 0)
    CHECK(killed == before && u.e.wd == watch && strcmp(u.e.name, "before") == 0);
  else
    CHECK(errno == EAGAIN && was_restored());
  for (int i = 0;; ++i) {  // (a snapshot may come between an event and the look at it)
    char name[32];
    snprintf(name, sizeof(name), "watched/after%d", i);
    CHECK(close(open(name, O_CREAT | O_WRONLY, 0600)) == 0);
    if (read(fd, &u, sizeof(u)) > 0) break;
    CHECK(errno == EAGAIN && i < 3 && was_restored());
  }
  CHECK(u.e.wd == watch && strncmp(u.e.name, "after", 5) == 0);
  return survived();
}
