// The System V segment with the number 0, as the first one of a container has it: it is the segment
// afterwards, to be detached, attached again and removed. (Only root can ask for a number.)
#include <sys/ipc.h>
#include <sys/shm.h>
#include "feature.h"
static void ask_for_number_zero(void) {
  int fd = open("/proc/sys/kernel/shm_next_id", O_WRONLY);
  if (fd < 0) return;
  CHECK(write(fd, "0", 1) == 1 && close(fd) == 0);
}
int main(void) {
  ask_for_number_zero();
  const int id = shmget(IPC_PRIVATE, 8192, 0600);
  CHECK(id >= 0);
  char* a = shmat(id, NULL, 0);
  CHECK(a != (void*)-1);
  strcpy(a, "number zero");
  ready_and_wait();
  CHECK(strcmp(a, "number zero") == 0);
  struct shmid_ds now;
  CHECK(shmctl(id, IPC_STAT, &now) == 0 && now.shm_nattch == 1 && now.shm_segsz == 8192);
  CHECK(shmdt(a) == 0);
  char* again = shmat(id, NULL, 0);
  CHECK(again != (void*)-1 && strcmp(again, "number zero") == 0 && shmdt(again) == 0);
  CHECK(shmctl(id, IPC_RMID, NULL) == 0);
  return survived();
}
