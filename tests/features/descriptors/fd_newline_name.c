// Files with a newline in their names, open and mapped, private, shared and unlinked; a name with a backslash and 012.
#include <sys/mman.h>
#include "feature.h"
static const char* const name[] = {"new\nline", "two\n\nlines\n", "back\\012slash", "gone\nline"};
int main(void) {
  char *shared[4], *private[4];
  int fd[4];
  for (int i = 0; i < 4; ++i) {
    fd[i] = open(name[i], O_RDWR | O_CREAT, 0600);
    CHECK(fd[i] >= 0 && write(fd[i], "0123456789", 10) == 10);
    shared[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd[i], 0);
    private[i] = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd[i], 0);
    CHECK(shared[i] != MAP_FAILED && private[i] != MAP_FAILED);
    if (i & 1) close(fd[i]);
  }
  CHECK(unlink(name[3]) == 0);
  ready_and_wait();
  for (int i = 0; i < 4; ++i) {
    char c = 0;
    shared[i][3] = (char)('a' + i);
    CHECK(private[i][3] == 'a' + i && memcmp(private[i], "012", 3) == 0);
    const int again = open(name[i], O_RDONLY);
    CHECK((again >= 0) == (i < 3));
    CHECK(again < 0 || (pread(again, &c, 1, 3) == 1 && c == 'a' + i));
  }
  return survived();
}
