// Syscall User Dispatch: while the selector says so, a system call of a signal handler of ours would
// run into the program's own handler. When it is switched off, snapshots are possible again; that is
// what the child is for.
#include <sys/prctl.h>
#include "feature.h"
enum { kSetDispatch = 59, kOff = 0, kOn = 1 };
static volatile char selector;
static volatile int caught;
static void on_call(int sig) {
  selector = 0;
  caught += sig == SIGSYS;
}
int main(void) {
  signal(SIGSYS, on_call);
  if (prctl(kSetDispatch, kOn, 0x1000, 0x1000, &selector) != 0) absent("Syscall User Dispatch");
  ready_and_wait();
  selector = 1;
  syscall(SYS_getppid);
  CHECK(caught == 1 && selector == 0);
  CHECK(prctl(kSetDispatch, kOff, 0, 0, 0) == 0);
  return survived();
}
