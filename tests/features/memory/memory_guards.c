// Guard pages (MADV_GUARD_INSTALL) are a fault before and after, and their neighbours keep their
// bytes; so do guards in memory that was tracked, in shared memory and in mapped files, where what is
// behind them stays.
#include <setjmp.h>
#include <sys/mman.h>
#include "feature.h"
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
static sigjmp_buf back;
static void fault(int sig) {
  (void)sig;
  siglongjmp(back, 1);
}
static int faults(char* at) {
  if (sigsetjmp(back, 1)) return 1;
  *(volatile char*)at;
  return 0;
}
int main(void) {
  enum { kSmall = 8 * 4096, kLarge = 32 << 20 };
  signal(SIGSEGV, fault);
  char* small = mmap(NULL, kSmall, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* large = mmap(NULL, kLarge, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(small != MAP_FAILED && large != MAP_FAILED);
  memset(small, 1, kSmall), memset(large, 2, kLarge);
  int guards = madvise(small + 4096, 8192, MADV_GUARD_INSTALL) == 0;
  CHECK(guards || errno == EINVAL);  // before Linux 6.13
  if (guards) CHECK(madvise(large + (1 << 20), 4096, MADV_GUARD_INSTALL) == 0);
  if (guards) CHECK(faults(small + 4096) && faults(small + 8192) && faults(large + (1 << 20)));
  char *shared = mmap(NULL, kSmall, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *file[2];
  const int number = open("mapped", O_CREAT | O_RDWR, 0600);
  CHECK(shared != MAP_FAILED && number >= 0 && ftruncate(number, kSmall) == 0 && pwrite(number, "file", 5, 8192) == 5);
  for (int i = 0; i < 2; ++i)
    CHECK((file[i] = mmap(NULL, kSmall, 3, i ? MAP_PRIVATE : MAP_SHARED, number, 0)) != MAP_FAILED);
  strcpy(shared + 4096, "behind a guard"), strcpy(shared + 8192, "beside it");
  const int all = guards && madvise(shared + 4096, 4096, MADV_GUARD_INSTALL) == 0;  // Linux 6.14
  for (int i = 0; all && i < 2; ++i) CHECK(madvise(file[i] + 8192, 4096, MADV_GUARD_INSTALL) == 0);
  ready_and_wait();
  if (all) {
    CHECK(faults(shared + 4096) && faults(file[0] + 8192) && faults(file[1] + 8192));
    CHECK(madvise(shared + 4096, 4096, MADV_GUARD_REMOVE) == 0);
    for (int i = 0; i < 2; ++i) {
      CHECK(!faults(file[i] + 4096) && madvise(file[i] + 8192, 4096, MADV_GUARD_REMOVE) == 0);
      CHECK(strcmp(file[i] + 8192, "file") == 0);
    }
  }
  CHECK(strcmp(shared + 4096, "behind a guard") == 0 && strcmp(shared + 8192, "beside it") == 0);
  if (guards) CHECK(faults(small + 4096) && faults(small + 8192) && faults(large + (1 << 20)));
  CHECK(small[4095] == 1 && small[3 * 4096] == 1 && !faults(small + 3 * 4096));
  CHECK(large[(1 << 20) - 1] == 2 && large[(1 << 20) + 4096] == 2);
  if (guards) CHECK(madvise(small + 4096, 8192, MADV_GUARD_REMOVE) == 0 && small[4096] == 0);
  return survived();
}
