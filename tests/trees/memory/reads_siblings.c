// Siblings that read each other's memory all the time (process_vm_readv, as MPI does between ranks): none may ever find that
// another is not yet, or no longer, open to it. What one may read depends on the credentials of both.
#include <sys/mman.h>
#include <sys/uio.h>

#include "tree.h"

enum { kSiblings = 8 };
struct Shared {
  pid_t pid[kSiblings];
  _Atomic int end, failed;
};
static struct Shared* shared;
static long value = 4711;  // at the same address in each

static int sibling(int own) {
  for (unsigned n = 0; !shared->end; ++n) {
    const int other = (int)((n + (unsigned)own) % kSiblings);
    long there = 0;
    struct iovec to = {&there, sizeof there}, from = {&value, sizeof value};
    if (process_vm_readv(shared->pid[other], &to, 1, &from, 1, 0) != sizeof there) {
      shared->failed = errno;
      if (errno != ESRCH) dprintf(1, "sibling %d cannot read from %d: %s\n", own, other, strerror(errno));
      return 100;
    }
    if (there != 4711) return 101;
    if (n % 16 == 15) sleep_ms(1);
  }
  return 50;
}

int main(void) {
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  int start[2];
  CHECK(pipe(start) == 0);
  for (int i = 0; i < kSiblings; ++i) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child) {
      shared->pid[i] = child;
      continue;
    }
    char byte;
    close(start[1]);
    while (read(start[0], &byte, 1) < 0) CHECK(errno == EINTR);
    close(start[0]);
    _exit(sibling(i));
  }
  close(start[0]);
  close(start[1]);  // all are there
  sleep_ms(20);
  ready_and_wait();
  shared->end = 1;
  for (int i = 0; i < kSiblings; ++i) CHECK(wait_status(shared->pid[i]) == 50);
  CHECK(!shared->failed);
  return survived();
}
