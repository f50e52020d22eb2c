// inotify: folders that have another name by now, one of them beside a new one that has the old
// name; named through a symbolic link that leads elsewhere since, and through a descriptor.
#include <sys/inotify.h>
#include "feature.h"
static int notify;
static void expect(int watch, const char* name) {
  char text[4096];
  const ssize_t n = read(notify, text, sizeof text);
  const struct inotify_event* e = (const void*)text;
  CHECK(n > 0 && e->wd == watch && strcmp(e->name, name) == 0);
  CHECK(n == (ssize_t)(sizeof *e + e->len));
}
static void make(const char* path) { CHECK(close(open(path, O_WRONLY | O_CREAT, 0600)) == 0); }
int main(void) {
  const char* folders[] = {"moved", "again", "linked", "other", "by number"};
  for (int i = 0; i < 5; ++i) CHECK(mkdir(folders[i], 0700) == 0);
  CHECK(symlink("linked", "link") == 0);
  notify = inotify_init1(IN_NONBLOCK);
  const int moved = inotify_add_watch(notify, "moved", IN_CREATE);
  const int again = inotify_add_watch(notify, "again", IN_CREATE);
  const int linked = inotify_add_watch(notify, "link", IN_CREATE);
  const int folder = open("by number", O_RDONLY);
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
  const int number = inotify_add_watch(notify, path, IN_CREATE);
  CHECK(moved > 0 && again > 0 && linked > 0 && number > 0 && close(folder) == 0);
  CHECK(rename("moved", "moved on") == 0 && rename("again", "first") == 0 && mkdir("again", 0700) == 0);
  CHECK(unlink("link") == 0 && symlink("other", "link") == 0);
  ready_and_wait();
  make("again/wrong"), make("other/wrong");
  make("moved on/a"), expect(moved, "a");
  make("first/b"), expect(again, "b");
  make("linked/c"), expect(linked, "c");
  make("by number/d"), expect(number, "d");
  return survived();
}
