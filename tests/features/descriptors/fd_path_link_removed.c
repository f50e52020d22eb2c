// Symbolic links that are held open themselves (O_PATH) and have been removed: with their targets, owners and times; two
// descriptors of one link, one of another whose name leads to something else by now, and one whose folder is gone.
#include "feature.h"

static const struct timespec times[2] = {{1000000000, 5}, {1100000000, 7}};

static int of_link(const char* target, const char* name) {
  CHECK(symlink(target, name) == 0);
  CHECK(utimensat(AT_FDCWD, name, times, AT_SYMLINK_NOFOLLOW) == 0);
  const int fd = open(name, O_PATH | O_NOFOLLOW);
  CHECK(fd >= 0);
  return fd;
}

static void leads_to(int fd, const char* target) {
  char text[64];
  struct stat st;
  CHECK(fstat(fd, &st) == 0 && S_ISLNK(st.st_mode) && st.st_nlink == 0);
  CHECK(st.st_uid == getuid() && st.st_mtim.tv_sec == times[1].tv_sec && st.st_mtim.tv_nsec == times[1].tv_nsec);
  CHECK(readlinkat(fd, "", text, sizeof(text)) == (ssize_t)strlen(target) && memcmp(text, target, strlen(target)) == 0);
  CHECK((fcntl(fd, F_GETFL) & (O_PATH | O_NOFOLLOW)) == (O_PATH | O_NOFOLLOW));
}

int main(void) {
  CHECK(mkdir("gone", 0700) == 0);
  const int first = of_link("anywhere", "link"), second = open("link", O_PATH | O_NOFOLLOW);
  const int replaced = of_link("a long way/../to go", "replaced"), below = of_link("up", "gone/link");
  CHECK(second >= 0 && unlink("link") == 0 && unlink("replaced") == 0 && mkdir("replaced", 0700) == 0);
  CHECK(unlink("gone/link") == 0 && rmdir("gone") == 0);
  ready_and_wait();
  leads_to(first, "anywhere");
  leads_to(second, "anywhere");
  leads_to(replaced, "a long way/../to go");
  leads_to(below, "up");
  struct stat a, b;
  CHECK(fstat(first, &a) == 0 && fstat(second, &b) == 0 && a.st_ino == b.st_ino);
  CHECK(lstat("link", &a) != 0 && lstat("gone", &a) != 0);
  CHECK(lstat("replaced", &a) == 0 && S_ISDIR(a.st_mode) && rmdir("replaced") == 0);
  return survived();
}
