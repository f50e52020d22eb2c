// inotify: watches keep their numbers and masks, one that was asked for by syscall(3) among them.
#include <sys/inotify.h>
#include <sys/syscall.h>
#include "feature.h"
int main(void) {
  mkdir("watched", 0755), mkdir("watched2", 0755), mkdir("dropped", 0755);
  int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  int a = inotify_add_watch(fd, "watched", IN_CREATE | IN_DELETE);
  int d = inotify_add_watch(fd, "dropped", IN_CREATE);
  int b = (int)syscall(SYS_inotify_add_watch, fd, "watched2", IN_CREATE | IN_ONLYDIR);
  CHECK(a > 0 && b > 0 && inotify_rm_watch(fd, d) == 0);
  union { struct inotify_event e; char bytes[4096]; } u;
  CHECK(read(fd, &u, sizeof(u)) > 0);  // IN_IGNORED
  ready_and_wait();
  close(open("watched2/file", O_CREAT | O_WRONLY, 0600));
  CHECK(read(fd, &u, sizeof(u)) > 0 && u.e.wd == b && u.e.mask == IN_CREATE && strcmp(u.e.name, "file") == 0);
  close(open("watched/one", O_CREAT | O_WRONLY, 0600));
  CHECK(read(fd, &u, sizeof(u)) > 0 && u.e.wd == a && u.e.mask == IN_CREATE);
  CHECK(inotify_rm_watch(fd, a) == 0 && inotify_rm_watch(fd, b) == 0);
  CHECK(close(fd) == 0);  // with what it has to say of the removed watches
  unlink("watched2/file"), unlink("watched/one");
  return survived();
}
