// A signal handler has interrupted a thread in semop with SEM_UNDO: whether the operation has happened
// stands in registers that the handler's return puts back. The snapshot tells.
#include <sys/ipc.h>
#include <sys/sem.h>
#include "feature.h"
static int sets;
static volatile sig_atomic_t in_handler, leave;
static void handle(int sig) {
  in_handler = sig;
  while (!leave) sleep_ms(1);
}
static void* take(void* unused) {
  struct sembuf b = {0, -1, SEM_UNDO};
  while (semop(sets, &b, 1) != 0) CHECK(errno == EINTR);
  return unused;
}
int main(void) {
  struct sigaction action = {.sa_handler = handle};
  CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && (sets = semget(IPC_PRIVATE, 1, 0600)) >= 0);
  pthread_t thread = start_thread(take, NULL);
  while (semctl(sets, 0, GETNCNT) != 1) sleep_ms(1);
  CHECK(pthread_kill(thread, SIGUSR2) == 0);
  while (!in_handler) sleep_ms(1);
  ready_and_wait();
  CHECK(semctl(sets, 0, GETVAL) == 0);
  leave = 1;
  struct sembuf give = {0, 1, 0};
  CHECK(semop(sets, &give, 1) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(semctl(sets, 0, GETVAL) == 0 && semctl(sets, 0, IPC_RMID) == 0);
  return survived();
}
