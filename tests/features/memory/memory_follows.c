// A private mapping shows what is written to its file until the program writes to the page itself: of a
// memfd, of a file that lost its name, and of memory that is mapped shared as well.
#include <sys/mman.h>
#include "feature.h"
enum { kPages = 4, kPage = 4096, kObjects = 3 };
int main(void) {
  char name[64];
  sprintf(name, "follows-%d", getpid());
  int fd[kObjects] = {memfd_create("follows", 0), open(name, O_RDWR | O_CREAT | O_EXCL, 0600), memfd_create("both", 0)};
  char *view[kObjects], *none[kObjects], *shared;
  CHECK(fd[1] >= 0 && unlink(name) == 0);
  for (int i = 0; i < kObjects; ++i) {
    CHECK(fd[i] >= 0 && ftruncate(fd[i], kPages * kPage) == 0);
    CHECK(pwrite(fd[i], "one", 4, 0) == 4 && pwrite(fd[i], "two", 4, kPage) == 4);
    view[i] = mmap(NULL, kPages * kPage, 3, MAP_PRIVATE, fd[i], 0);
    none[i] = mmap(NULL, kPages * kPage, PROT_NONE, MAP_PRIVATE, fd[i], 0);
    CHECK(view[i] != MAP_FAILED && none[i] != MAP_FAILED);
    strcpy(view[i] + kPage, "own");
  }
  shared = mmap(NULL, kPages * kPage, 3, MAP_SHARED, fd[2], 0);
  CHECK(shared != MAP_FAILED && close(fd[2]) == 0);
  ready_and_wait();
  for (int i = 0; i < kObjects; ++i) {
    CHECK(strcmp(view[i], "one") == 0 && strcmp(view[i] + kPage, "own") == 0);
    CHECK(mprotect(none[i], kPages * kPage, 1) == 0 && strcmp(none[i] + kPage, "two") == 0);
  }
  for (int i = 0; i < 2; ++i) CHECK(pwrite(fd[i], "new", 4, 0) == 4 && pwrite(fd[i], "new", 4, kPage) == 4);
  strcpy(shared, "new"), strcpy(shared + kPage, "new");
  for (int i = 0; i < kObjects; ++i) {
    CHECK(strcmp(view[i], "new") == 0 && strcmp(view[i] + kPage, "own") == 0);
    CHECK(strcmp(none[i], "new") == 0 && strcmp(none[i] + kPage, "new") == 0);
    strcpy(view[i] + 2 * kPage, "mine");
    CHECK(none[i][2 * kPage] == 0);
  }
  return survived();
}
