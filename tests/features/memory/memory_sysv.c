// System V segments: one that is removed already and goes with its last user, one that stays, attached
// twice, once for reading. They are the same memory afterwards, and can be detached and removed.
#include <sys/ipc.h>
#include <sys/shm.h>
#include "feature.h"
static char* attach(int id, int flags) {
  char* at = shmat(id, NULL, flags);
  CHECK(at != (void*)-1);
  return at;
}
int main(void) {
  int lost = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600), kept = shmget(IPC_PRIVATE, 5000, 0600);
  CHECK(lost >= 0 && kept >= 0);
  char *a = attach(lost, 0), *b = attach(lost, 0);
  CHECK(shmctl(lost, IPC_RMID, NULL) == 0);
  char *c = attach(kept, 0), *d = attach(kept, SHM_RDONLY);
  strcpy(a, "system five"), strcpy(c + 4096, "stays");
  ready_and_wait();
  CHECK(strcmp(b, "system five") == 0 && strcmp(d + 4096, "stays") == 0 && c[0] == 0);
  a[0] = 'S', c[0] = 'K';
  CHECK(b[0] == 'S' && d[0] == 'K');
  // No other attaches it than we.
  struct shmid_ds now;
  CHECK(shmctl(kept, IPC_STAT, &now) == 0 && now.shm_nattch == 2 && now.shm_segsz == 5000);
  char* again = attach(kept, 0);
  CHECK(again[0] == 'K' && shmdt(again) == 0);
  CHECK(shmdt(a) == 0 && b[0] == 'S' && shmdt(b) == 0 && shmdt(d) == 0);
  CHECK(shmctl(kept, IPC_RMID, NULL) == 0 && shmdt(c) == 0);
  return survived();
}
