// Descriptors (O_PATH) of symbolic links themselves: one that leads somewhere, one that leads nowhere, one to a folder.
#include "feature.h"

static int of_link(const char* target, const char* name) {
  unlink(name);
  CHECK(symlink(target, name) == 0);
  const int fd = open(name, O_PATH | O_NOFOLLOW);
  CHECK(fd >= 0);
  return fd;
}

static void leads_to(int fd, const char* target) {
  char text[64];
  struct stat st;
  CHECK(fstat(fd, &st) == 0 && S_ISLNK(st.st_mode));
  CHECK(readlinkat(fd, "", text, sizeof(text)) == (ssize_t)strlen(target) && memcmp(text, target, strlen(target)) == 0);
  CHECK((fcntl(fd, F_GETFL) & (O_PATH | O_NOFOLLOW)) == (O_PATH | O_NOFOLLOW));
}

int main(void) {
  const int out = of_link("out", "to_out"), nowhere = of_link("not_there", "to_nowhere"), folder = of_link(".", "to_here");
  const int through = open("to_out", O_RDONLY), here = open("to_here", O_PATH);
  CHECK(through >= 0 && here >= 0);
  ready_and_wait();
  leads_to(out, "out");
  leads_to(nowhere, "not_there");
  leads_to(folder, ".");
  struct stat a, b;
  CHECK(fstat(through, &a) == 0 && stat("out", &b) == 0 && a.st_ino == b.st_ino);
  CHECK(fstat(here, &a) == 0 && stat(".", &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
  return survived();
}
