// What another user prepared in a folder is not followed, opened or kept when a file is replaced.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

#include "base/files/new_file.h"

using namespace gpuckpt;

#define CHECK(x)                                                        \
  do                                                                    \
    if (!(x)) fprintf(stderr, "line %d: %s\n", __LINE__, #x), _exit(1); \
  while (0)

static unsigned mode_of(const char* path) {
  struct stat st;
  CHECK(lstat(path, &st) == 0);
  return st.st_mode;
}

static void put(const char* path, const char* text, mode_t mode) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  CHECK(fd >= 0 && write(fd, text, strlen(text)) == static_cast<ssize_t>(strlen(text)));
  CHECK(fchmod(fd, mode) == 0 && close(fd) == 0);
}

static void holds(const char* path, const char* text) {
  char buffer[64] = "";
  const int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && read(fd, buffer, sizeof(buffer) - 1) >= 0 && close(fd) == 0);
  CHECK(strcmp(buffer, text) == 0);
}

int main() {
  char folder[] = "/tmp/gpuckpt-new-file.XXXXXX";
  CHECK(mkdtemp(folder) && chdir(folder) == 0);
  umask(027);
  CHECK(replace_file("plain", "one", 3) == 0);
  holds("plain", "one");
  CHECK(mode_of("plain") == (S_IFREG | 0640));
  // The mode of the one that is replaced stays, and a process that has it open keeps the old
  // contents.
  CHECK(chmod("plain", 0604) == 0);
  const int old = open("plain", O_RDONLY);
  CHECK(replace_file("plain", "two", 3) == 0);
  holds("plain", "two");
  CHECK(mode_of("plain") == (S_IFREG | 0604));
  char byte = 0;
  CHECK(read(old, &byte, 1) == 1 && byte == 'o');
  // A link is replaced, and what it points to stays.
  put("victim", "precious", 0644);
  CHECK(symlink("victim", "link") == 0 && symlink("victim", "link.tmp") == 0);
  CHECK(replace_file("link", "text", 4) == 0);
  holds("victim", "precious");
  CHECK(S_ISREG(mode_of("link")));
  // What was prepared with a wide mode and kept open reads nothing of a private file.
  put("secret", "", 0666);
  const int spy = open("secret", O_RDONLY);
  {
    NewFile file;
    CHECK(file.create("secret", NewFile::kExactly, 0600, getuid(), getgid()) == 0);
    CHECK(file.write("key", 3) == 0 && file.publish() == 0);
  }
  CHECK(read(spy, &byte, 1) == 0);
  CHECK(mode_of("secret") == (S_IFREG | 0600));
  holds("secret", "key");
  // Devices are written, not replaced; a missing folder is an error; an unfinished file is gone.
  CHECK(symlink("/dev/null", "null") == 0 && replace_file("null", "x", 1) == 0);
  CHECK(S_ISLNK(mode_of("null")) && S_ISCHR(mode_of("/dev/null")));
  CHECK(replace_file("nothing/file", "x", 1) == -ENOENT && replace_file(".", "x", 1) == -EISDIR);
  umask(0777);
  CHECK(replace_file("hard", "x", 1) == 0);
  umask(022);
  {
    NewFile file;
    CHECK(file.create("unfinished", NewFile::kPrivate) == 0 && file.write("x", 1) == 0);
  }
  CHECK(access("unfinished", F_OK) != 0);
  for (const char* name : {"plain", "victim", "link", "link.tmp", "secret", "null", "hard"})
    CHECK(unlink(name) == 0);
  CHECK(chdir("/") == 0 && rmdir(folder) == 0);  // nothing else was left there
  puts("EXIT-SUCCESS");
}
