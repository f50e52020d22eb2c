// libc makes a named semaphore in a file of another name, which it then gives up: a process that opens it by
// its own name later finds the same one.
#include <semaphore.h>
#include <sys/mman.h>
#include "feature.h"
int main(void) {
  char name[64], path[96];
  snprintf(name, sizeof name, "/gpuckpt-%d-%lld", getpid(), (long long)now_ms(CLOCK_REALTIME));
  snprintf(path, sizeof path, "/dev/shm/sem.%s", name + 1);
  sem_t* mine = sem_open(name, O_CREAT | O_EXCL, 0600, 7);
  CHECK(mine != SEM_FAILED);
  ready_and_wait();
  const int fd = open(path, O_RDWR);
  CHECK(fd >= 0);
  sem_t* again = mmap(NULL, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  int value;
  CHECK(again != MAP_FAILED && again != mine);
  CHECK(sem_trywait(mine) == 0 && sem_getvalue(again, &value) == 0 && value == 6);
  CHECK(sem_post(again) == 0 && sem_getvalue(mine, &value) == 0 && value == 7);
  CHECK(sem_unlink(name) == 0);
  return survived();
}
