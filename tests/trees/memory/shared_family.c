// Memory without a name that a whole family maps: anonymous, a memfd of an odd size, and POSIX shared
// memory whose name is gone. Each process writes its own pages of it, and one of them has less of it
// mapped than the others, so that only one that has more can give what it does not see.
#include <sys/mman.h>
#include "tree.h"
enum { kChildren = 4, kPages = 1024, kPage = 4096, kOdd = kPages * kPage - 100 };
static unsigned char* memory[3];
static unsigned char value(int who, int which, int page) {
  return (unsigned char)(1 + who * 41 + which * 13 + page * 7);
}
static void write_own(int who) {
  for (int k = 0; k < 3; ++k)
    for (int i = who; i < kPages; i += kChildren)
      memset(memory[k] + i * kPage, value(who, k, i), kPage);
}
static int all_right(int pages) {
  for (int k = 0; k < 3; ++k)
    for (int i = 0; i < pages; ++i)
      for (int b = 0; b < kPage; ++b)
        if (memory[k][i * kPage + b] != value(i % kChildren, k, i)) return 0;
  return 1;
}
static void* map(int fd) {
  void* m = mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
  CHECK(m != MAP_FAILED);
  return m;
}
int main(void) {
  char name[64];
  snprintf(name, sizeof name, "/gpuckpt-family-%d", getpid());
  const int odd = memfd_create("family", 0), gone = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(odd >= 0 && ftruncate(odd, kOdd) == 0);
  CHECK(gone >= 0 && shm_unlink(name) == 0 && ftruncate(gone, kPages * kPage) == 0);
  memory[0] = map(-1), memory[1] = map(odd), memory[2] = map(gone);
  close(odd), close(gone);
  int up[2];
  CHECK(pipe(up) == 0);
  pid_t child[kChildren];
  for (int who = 0; who < kChildren; ++who) {
    if ((child[who] = fork())) continue;
    write_own(who);
    const int pages = who == 1 ? kPages / 2 : kPages;
    for (int k = 0; pages < kPages && k < 3; ++k)
      CHECK(munmap(memory[k] + pages * kPage, (kPages - pages) * kPage) == 0);
    CHECK(write(up[1], "w", 1) == 1);
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    _exit(all_right(pages) ? 50 : 51);
  }
  char c;
  for (int i = 0; i < kChildren; ++i) CHECK(read(up[0], &c, 1) == 1);
  ready_and_wait();
  for (int i = 0; i < kChildren; ++i) CHECK(wait_status(child[i]) == 50);
  CHECK(all_right(kPages));
  memory[0][5] = 1;  // shared still: a new child sees it
  const pid_t late = fork();
  if (late == 0) _exit(memory[0][5] == 1 ? 50 : 51);
  CHECK(wait_status(late) == 50);
  return survived();
}
