// A System V segment that was attached is the same memory afterwards, and can be detached.
#include <sys/ipc.h>
#include <sys/shm.h>
#include "feature.h"
int main(void) {
  int id = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600);
  CHECK(id >= 0);
  char *a = shmat(id, NULL, 0), *b = shmat(id, NULL, 0);
  CHECK(shmctl(id, IPC_RMID, NULL) == 0);
  strcpy(a, "system five");
  ready_and_wait();
  CHECK(strcmp(b, "system five") == 0);
  a[0] = 'S';
  CHECK(b[0] == 'S');
  return survived();
}
