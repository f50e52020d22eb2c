// eventfd: counter, semaphore mode, flags, a thread blocked in read, a full one.
#include <sys/eventfd.h>
#include "feature.h"
static int empty;
static void* reader(void* a) {
  uint64_t n;
  CHECK(read(empty, &n, 8) == 8 && n == 5);
  return a;
}
int main(void) {
  int count = eventfd(41, EFD_CLOEXEC), sem = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK), full = eventfd(0, EFD_NONBLOCK);
  uint64_t most = 0xfffffffffffffffe, n = 1;
  CHECK(write(full, &most, 8) == 8);
  empty = eventfd(0, 0);
  pthread_t t = start_thread(reader, NULL);
  ready_and_wait();
  CHECK(write(count, &n, 8) == 8 && read(count, &n, 8) == 8 && n == 42);
  for (int i = 0; i < 3; ++i) CHECK(read(sem, &n, 8) == 8 && n == 1);
  CHECK(read(sem, &n, 8) == -1 && errno == EAGAIN);
  n = 1;
  CHECK(write(full, &n, 8) == -1 && errno == EAGAIN && read(full, &n, 8) == 8 && n == most);
  n = 5;
  CHECK(write(empty, &n, 8) == 8);
  pthread_join(t, NULL);
  return survived();
}
