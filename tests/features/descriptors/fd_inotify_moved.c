// inotify: a folder and a file that were moved to other folders, which no descriptor has open.
#include <sys/inotify.h>
#include "feature.h"

static void expect(int notify, int watch, uint32_t mask) {
  char text[4096] __attribute__((aligned(8)));
  const ssize_t n = read(notify, text, sizeof(text));
  const struct inotify_event* e = (const void*)text;
  CHECK(n >= (ssize_t)sizeof(*e) && e->wd == watch && e->mask & mask);
}

int main(void) {
  CHECK(mkdir("here", 0700) == 0 && mkdir("there", 0700) == 0 && mkdir("here/folder", 0700) == 0);
  CHECK(close(open("here/file", O_WRONLY | O_CREAT, 0600)) == 0);
  const int notify = inotify_init1(IN_NONBLOCK);
  const int folder = inotify_add_watch(notify, "here/folder", IN_CREATE);
  const int file = inotify_add_watch(notify, "here/file", IN_ATTRIB);
  CHECK(folder > 0 && file > 0);
  CHECK(rename("here/folder", "there/folder") == 0 && rename("here/file", "there/other") == 0);
  ready_and_wait();
  CHECK(close(open("there/folder/new", O_WRONLY | O_CREAT, 0600)) == 0);
  expect(notify, folder, IN_CREATE);
  CHECK(chmod("there/other", 0400) == 0);
  expect(notify, file, IN_ATTRIB);
  return survived();
}
