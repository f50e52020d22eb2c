// A semaphore is set by a call that the library does not see, as by another process, after an operation
// with SEM_UNDO: the kernel would undo nothing any more, and tells no one. The snapshot does.
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include "feature.h"
int main(void) {
  const int sets = semget(IPC_PRIVATE, 1, 0600);
  struct sembuf give = {0, 1, SEM_UNDO};
  CHECK(sets >= 0 && semop(sets, &give, 1) == 0);
  sleep_ms(1100);  // the kernel counts in seconds when a set has been changed
  long result;
  __asm__ volatile("mov %5, %%r10; syscall"
                   : "=a"(result)
                   : "a"(SYS_semctl), "D"(sets), "S"(0), "d"(SETVAL), "r"(5l)
                   : "rcx", "r11", "r10", "memory");
  CHECK(result == 0);
  ready_and_wait();
  CHECK(semctl(sets, 0, GETVAL) == 5 && semctl(sets, 0, IPC_RMID) == 0);
  return survived();
}
