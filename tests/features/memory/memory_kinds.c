// Shared anonymous, POSIX and System V memory, mapped twice; brk, guard pages, deep stack, mlock.
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include "feature.h"
static int deep(int n) {
  volatile char page[4000];
  page[0] = (char)n;
  return n ? deep(n - 1) + page[0] - (char)n : 1;
}
int main(void) {
  char name[64];
  sprintf(name, "/gpuckpt-feature-%d", getpid());
  int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
  char *a = mmap(NULL, 8192, 3, MAP_SHARED, fd, 0), *b = mmap(NULL, 4096, 1, MAP_SHARED, fd, 4096);
  char* anonymous = mmap(NULL, 65536, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char* none = mmap(NULL, 1ul << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(a != MAP_FAILED && b != MAP_FAILED && anonymous != MAP_FAILED && none != MAP_FAILED);
  CHECK(mprotect(none + 4096, 4096, 3) == 0);
  strcpy(none + 4096, "island");
  CHECK(mprotect(none + 4096, 4096, PROT_NONE) == 0);
  strcpy(a + 4096, "posix"), strcpy(anonymous + 60000, "anonymous");
  char* heap = sbrk(8192);
  strcpy(heap, "brk");
  CHECK(shm_unlink(name) == 0);
  ready_and_wait();
  CHECK(strcmp(b, "posix") == 0 && strcmp(anonymous + 60000, "anonymous") == 0 && strcmp(heap, "brk") == 0);
  a[4096] = 'P';
  CHECK(b[0] == 'P');
  CHECK(mprotect(none + 4096, 4096, 1) == 0 && strcmp(none + 4096, "island") == 0);
  CHECK(sbrk(0) == heap + 8192 && sbrk(4096) == heap + 8192);
  CHECK(deep(1000) == 1);
  pid_t p = fork();
  if (p == 0) strcpy(anonymous, "child"), _exit(0);
  CHECK(waitpid(p, NULL, 0) == p && strcmp(anonymous, "child") == 0);
  return survived();
}
