// Folders that were removed, with the folder they were in: opened twice, one inside of another, as the working
// directory, watched by inotify; a named pipe and a file in them that were removed as well.
#include <sys/inotify.h>
#include "feature.h"

static int same(int a, int b) {
  struct stat x, y;
  CHECK(fstat(a, &x) == 0 && fstat(b, &y) == 0);
  return x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

int main(void) {
  char start[4096], link[64], path[4200];
  CHECK(getcwd(start, sizeof(start)) && mkdir("p", 0700) == 0 && mkdir("p/a", 0700) == 0 && mkdir("p/a/b", 0750) == 0);
  CHECK(mkfifo("p/a/pipe", 0600) == 0);
  const int parent = open("p/a", O_RDONLY | O_DIRECTORY), child = open("p/a/b", O_RDONLY | O_DIRECTORY);
  const int again = open("p/a/b", O_RDONLY | O_DIRECTORY | O_CLOEXEC), named = open("p/a/b", O_PATH);
  const int file = open("p/a/file", O_RDWR | O_CREAT, 0600), pipe = open("p/a/pipe", O_RDWR | O_NONBLOCK);
  const int watch = inotify_init1(IN_NONBLOCK);
  CHECK(parent >= 0 && child >= 0 && again >= 0 && named >= 0 && file >= 0 && pipe >= 0 && watch >= 0);
  const int of_folder = inotify_add_watch(watch, "p/a/b", IN_ATTRIB), of_file = inotify_add_watch(watch, "p/a/file", IN_MODIFY);
  CHECK(of_folder >= 0 && of_file >= 0 && write(file, "file", 4) == 4 && write(pipe, "pipe", 4) == 4);
  CHECK(chdir("p/a/b") == 0);
  CHECK(unlinkat(parent, "file", 0) == 0 && unlinkat(parent, "pipe", 0) == 0 && unlinkat(parent, "b", AT_REMOVEDIR) == 0);
  snprintf(path, sizeof(path), "%s/p/a", start);
  CHECK(rmdir(path) == 0);
  snprintf(path, sizeof(path), "%s/p", start);
  CHECK(rmdir(path) == 0);
  char events[4096];
  while (read(watch, events, sizeof(events)) > 0) {
  }
  CHECK(write(1, "ready\n", 6) == 6);
  snprintf(path, sizeof(path), "%s/go_on", start);
  while (access(path, F_OK) != 0) sleep_ms(5);

  const int here = open(".", O_PATH);
  CHECK(here >= 0 && same(here, child) && same(again, child) && same(named, child) && !same(parent, child));
  struct stat st;
  CHECK(fstat(child, &st) == 0 && st.st_nlink == 0 && (st.st_mode & 07777) == 0750);
  CHECK(fstat(parent, &st) == 0 && st.st_nlink == 0);
  CHECK(mkdirat(child, "x", 0700) == -1 && errno == ENOENT);
  snprintf(path, sizeof(path), "%s/p", start);
  CHECK(access(path, F_OK) != 0);
  snprintf(link, sizeof(link), "/proc/self/fd/%d", child);
  const ssize_t n = readlink(link, path, sizeof(path) - 1);
  CHECK(n > 0);
  path[n] = 0;
  CHECK(strstr(path, "/p/a/b (deleted)"));
  CHECK(pread(file, path, 4, 0) == 4 && memcmp(path, "file", 4) == 0 && read(pipe, path, 4) == 4);
  CHECK(read(watch, events, sizeof(events)) == -1 && errno == EAGAIN);
  CHECK(fchmod(child, 0700) == 0 && pwrite(file, "x", 1, 0) == 1);
  const struct inotify_event* e = (const struct inotify_event*)events;
  CHECK(read(watch, events, sizeof(events)) >= (ssize_t)(2 * sizeof(*e)) && e->wd == of_folder && e->mask & IN_ATTRIB);
  CHECK(inotify_rm_watch(watch, of_file) == 0);
  return survived();
}
