// Threads that take and give a semaphore with SEM_UNDO all the time, and one that waits for another:
// a thread is often parked just as such a call returns. What the kernel is to undo shows at the end
// of the process: a child does all this, and its parent kills it.
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include "tree.h"
enum { kBusy = 0, kWaited = 1, kThreads = 3 };
static int sets;
static void operate(unsigned short number, short change) {
  struct sembuf b = {number, change, SEM_UNDO};
  const struct timespec second = {1, 0};
  while ((change < 0 ? semop(sets, &b, 1) : semtimedop(sets, &b, 1, &second)) != 0) CHECK(errno == EINTR);
}
static void* take_and_give(void* unused) {
  for (;;) operate(kBusy, -1), operate(kBusy, 1);
  return unused;
}
static void* wait_for_it(void* unused) {
  operate(kWaited, -1);
  return unused;
}
int main(void) {
  CHECK((sets = semget(IPC_PRIVATE, 2, 0600)) >= 0 && semctl(sets, kBusy, SETVAL, 2) == 0);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    for (int i = 0; i < kThreads; ++i) start_thread(take_and_give, NULL);
    CHECK(pthread_join(start_thread(wait_for_it, NULL), NULL) == 0);
    for (;;) pause();
  }
  while (semctl(sets, kWaited, GETNCNT) != 1) sleep_ms(1);
  ready_and_wait();
  CHECK(semctl(sets, kWaited, GETVAL) == 0);
  while (semctl(sets, kWaited, GETNCNT) != 1) sleep_ms(1);
  struct sembuf give = {kWaited, 1, 0};
  CHECK(semop(sets, &give, 1) == 0);
  while (semctl(sets, kWaited, GETNCNT) != 0) sleep_ms(1);
  sleep_ms(50);
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  CHECK(semctl(sets, kBusy, GETVAL) == 2 && semctl(sets, kWaited, GETVAL) == 1);
  CHECK(semctl(sets, 0, IPC_RMID) == 0);
  return survived();
}
