// A parent and a forked child, joined by a pipe in each direction and by shared memory.
#include <sys/mman.h>
#include "tree.h"
int main(void) {
  int down[2], up[2];
  CHECK(pipe(down) == 0 && pipe(up) == 0);
  int* shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    close(down[1]), close(up[0]);
    for (;;) {
      int n;
      if (read(down[0], &n, sizeof n) != sizeof n) _exit(getppid() == parent ? 7 : 8);
      shared[0] += n;
      CHECK(write(up[1], &shared[0], sizeof n) == sizeof n);
    }
  }
  close(down[0]), close(up[1]);
  int sum = 0, got;
  for (int n = 1; n <= 40; ++n) {
    CHECK(write(down[1], &n, sizeof n) == sizeof n);
    sum += n;
    if (n == 20) ready_and_wait();  // with a number on its way
    CHECK(read(up[0], &got, sizeof got) == sizeof got && got == sum && shared[0] == sum);
  }
  CHECK(getpid() == parent && kill(child, 0) == 0);
  close(down[1]);
  CHECK(wait_status(child) == 7);
  return survived();
}
