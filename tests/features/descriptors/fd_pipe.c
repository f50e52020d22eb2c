// Pipes: contents, capacity, flags, a reader blocked on an empty one, packets, end of file.
#include "feature.h"
static int empty[2];
static char got;
static void* reader(void* a) {
  CHECK(read(empty[0], &got, 1) == 1);
  return a;
}
int main(void) {
  int full[2], sized[2], packets[2], ended[2], broken[2];
  CHECK(pipe(empty) == 0 && pipe2(full, O_NONBLOCK | O_CLOEXEC) == 0 && pipe(sized) == 0);
  CHECK(pipe2(packets, O_DIRECT) == 0 && pipe(ended) == 0 && pipe(broken) == 0);
  int capacity = fcntl(sized[1], F_SETPIPE_SZ, 1 << 18);
  CHECK(capacity >= 1 << 18);
  static char block[200000], back[200000];
  for (size_t i = 0; i < sizeof(block); ++i) block[i] = (char)(i * 7 + i / 251);
  CHECK(write(sized[1], block, sizeof(block)) == sizeof(block));
  int n = 0;
  while (write(full[1], block, 1000) == 1000) n += 1000;
  CHECK(errno == EAGAIN);
  CHECK(write(packets[1], "abc", 3) == 3 && write(packets[1], "de", 2) == 2);
  CHECK(write(ended[1], "last", 4) == 4);
  close(ended[1]), close(broken[0]);
  signal(SIGPIPE, SIG_IGN);
  pthread_t t = start_thread(reader, NULL);
  ready_and_wait();
  CHECK(fcntl(sized[0], F_GETPIPE_SZ) == capacity);
  CHECK(read(sized[0], back, sizeof(back)) == sizeof(back) && memcmp(block, back, sizeof(back)) == 0);
  CHECK(fcntl(full[0], F_GETFL) & O_NONBLOCK);
  int m = 0;
  for (long r; (r = read(full[0], back, 1000)) > 0; m += (int)r) CHECK(memcmp(back, block, (size_t)r) == 0);
  CHECK(errno == EAGAIN && m == n);
  CHECK(read(packets[0], back, 100) == 3 && read(packets[0], back, 100) == 2);
  CHECK(read(ended[0], back, 100) == 4 && read(ended[0], back, 100) == 0);
  CHECK(write(broken[1], "x", 1) == -1 && errno == EPIPE);
  CHECK(write(empty[1], "z", 1) == 1);
  pthread_join(t, NULL);
  CHECK(got == 'z');
  return survived();
}
