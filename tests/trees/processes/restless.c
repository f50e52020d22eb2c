// Children that stop themselves all the time, each as soon as its parent has let it go on: wherever
// a snapshot finds them, the parent hears of each stop once, and of no other.
#include <sys/mman.h>
#include "tree.h"
enum { kChildren = 4 };
static int stop_again_and_again(volatile int* stops, int pause) {
  while (access("go_on", F_OK) != 0) {
    ++*stops;
    raise(SIGSTOP);
    for (int i = 0; i < pause; ++i) sleep_ms(1);
  }
  return 50;
}
int main(void) {
  volatile int* stops =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(stops != MAP_FAILED);
  pid_t child[kChildren];
  int seen[kChildren] = {0}, left = kChildren, ready = 0;
  for (int i = 0; i < kChildren; ++i)
    if ((child[i] = fork()) == 0) _exit(stop_again_and_again(&stops[i], i * i));
  while (left) {
    siginfo_t info;
    CHECK(waitid(P_ALL, 0, &info, WSTOPPED | WEXITED) == 0);
    int i = 0;
    while (i < kChildren && child[i] != info.si_pid) ++i;
    CHECK(i < kChildren);
    if (info.si_code != CLD_STOPPED) {
      CHECK(info.si_code == CLD_EXITED && info.si_status == 50 && seen[i] == stops[i]);
      --left;
      continue;
    }
    CHECK(info.si_status == SIGSTOP && ++seen[i] == stops[i]);
    if (seen[i] == 3 && ++ready == kChildren) CHECK(write(1, "ready\n", 6) == 6);
    CHECK(kill(info.si_pid, SIGCONT) == 0);
  }
  return survived();
}
