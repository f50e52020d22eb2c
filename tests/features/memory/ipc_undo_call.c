// A thread waits in semop with SEM_UNDO: the snapshot cannot know whether that has just happened, and
// tells. It goes on to wait.
#include <sys/ipc.h>
#include <sys/sem.h>
#include "feature.h"
static int sets;
static void* take(void* unused) {
  struct sembuf b = {0, -1, SEM_UNDO};
  while (semop(sets, &b, 1) != 0) CHECK(errno == EINTR);
  return unused;
}
int main(void) {
  CHECK((sets = semget(IPC_PRIVATE, 1, 0600)) >= 0);
  pthread_t thread = start_thread(take, NULL);
  while (semctl(sets, 0, GETNCNT) != 1) sleep_ms(1);
  ready_and_wait();
  CHECK(semctl(sets, 0, SETVAL, 1) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(semctl(sets, 0, GETVAL) == 0 && semctl(sets, 0, IPC_RMID) == 0);
  return survived();
}
