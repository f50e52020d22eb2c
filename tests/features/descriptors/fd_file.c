// Regular files: offset, flags, O_APPEND, dup'ed and shared descriptions, O_PATH, directories.
#include <dirent.h>
#include "feature.h"
int main(void) {
  int rw = open("data", O_RDWR | O_CREAT | O_TRUNC, 0640);
  CHECK(rw >= 0 && write(rw, "0123456789", 10) == 10);
  int copy = dup(rw), other = open("data", O_RDONLY | O_CLOEXEC);
  int append = open("log", O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK, 0600);
  CHECK(append >= 0 && write(append, "one\n", 4) == 4);
  int path = open("data", O_PATH), high = fcntl(rw, F_DUPFD, 300);
  mkdir("folder", 0755);
  int folder = open("folder", O_RDONLY | O_DIRECTORY), here = open(".", O_PATH | O_DIRECTORY);
  CHECK(path >= 0 && high >= 300 && folder >= 0 && here >= 0);
  CHECK(lseek(rw, 4, SEEK_SET) == 4 && lseek(other, 7, SEEK_SET) == 7);
  ready_and_wait();
  char c;
  CHECK(read(copy, &c, 1) == 1 && c == '4');
  CHECK(read(rw, &c, 1) == 1 && c == '5');
  CHECK(read(high, &c, 1) == 1 && c == '6');
  CHECK(read(other, &c, 1) == 1 && c == '7');
  CHECK((fcntl(other, F_GETFD) & FD_CLOEXEC) && !(fcntl(rw, F_GETFD) & FD_CLOEXEC));
  CHECK((fcntl(rw, F_GETFL) & O_ACCMODE) == O_RDWR);
  CHECK((fcntl(append, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK)) == (O_WRONLY | O_APPEND | O_NONBLOCK));
  CHECK(lseek(append, 0, SEEK_SET) == 0 && write(append, "two\n", 4) == 4);
  char text[16] = "";
  int log = open("log", O_RDONLY);
  CHECK(read(log, text, 16) == 8 && strcmp(text, "one\ntwo\n") == 0);
  CHECK(read(path, &c, 1) == -1 && errno == EBADF && (fcntl(path, F_GETFL) & O_PATH));
  struct stat a, b;
  CHECK(fstat(path, &a) == 0 && fstat(rw, &b) == 0 && a.st_ino == b.st_ino);
  CHECK(faccessat(here, "folder", F_OK, 0) == 0);
  CHECK(close(openat(folder, "x", O_CREAT | O_WRONLY, 0600)) == 0 && access("folder/x", F_OK) == 0);
  unlink("folder/x");
  return survived();
}
