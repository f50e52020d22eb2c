// Two processes with thousands of sockets in common: each lists all of them, and the other end of
// each is found.
#include <sys/resource.h>
#include <sys/socket.h>
#include "tree.h"
enum { kPairs = 4200 };  // 16,800 listed ends
static int pair[kPairs][2];
static void expect(int fd, int number) {
  int got = -1;
  CHECK(recv(fd, &got, sizeof got, MSG_DONTWAIT) == sizeof got && got == number);
}
int main(void) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_max < 2 * kPairs + 100) absent("enough descriptors");
  for (int i = 0; i < kPairs; ++i) CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair[i]) == 0);
  for (int i = 0; i < kPairs; i += 100) CHECK(write(pair[i][0], &i, sizeof i) == sizeof i);
  const pid_t child = fork();
  if (child == 0) {
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    for (int i = 0; i < kPairs; i += 100) expect(pair[i][1], i);
    for (int i = 0; i < kPairs; ++i) CHECK(write(pair[i][1], &i, sizeof i) == sizeof i);
    _exit(50);
  }
  ready_and_wait();
  CHECK(wait_status(child) == 50);
  for (int i = 0; i < kPairs; ++i) expect(pair[i][0], i);
  return survived();
}
