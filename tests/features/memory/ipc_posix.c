// POSIX semaphores: one with a name, one without in shared memory, one in the program's own; and a
// shared memory object by its name. Values and waiters as they were.
#include <semaphore.h>
#include <sys/mman.h>
#include "feature.h"
static sem_t own;
static void* waiter(void* semaphore) {
  CHECK(sem_wait(semaphore) == 0);
  return semaphore;
}
int main(void) {
  char name[64], memory[64];
  sprintf(name, "/gpuckpt-sem-%d", getpid()), sprintf(memory, "/gpuckpt-shm-%d", getpid());
  sem_t* named = sem_open(name, O_CREAT | O_EXCL, 0600, 3);
  sem_t* shared = mmap(NULL, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int fd = shm_open(memory, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(named != SEM_FAILED && shared != MAP_FAILED && fd >= 0 && ftruncate(fd, 100) == 0);
  CHECK(write(fd, "by its name", 12) == 12);
  CHECK(sem_init(shared, 1, 2) == 0 && sem_init(&own, 0, 0) == 0);
  pthread_t t = start_thread(waiter, &own);
  CHECK(sem_wait(named) == 0);
  ready_and_wait();
  int value;
  CHECK(sem_getvalue(named, &value) == 0 && value == 2);
  CHECK(sem_getvalue(shared, &value) == 0 && value == 2);
  sem_t* again = sem_open(name, 0);
  CHECK(again != SEM_FAILED && sem_post(again) == 0 && sem_getvalue(named, &value) == 0 && value == 3);
  CHECK(sem_post(&own) == 0 && pthread_join(t, NULL) == 0);
  pid_t child = fork();
  if (child == 0) _exit(sem_wait(shared) != 0);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(sem_getvalue(shared, &value) == 0 && value == 1);
  char text[16] = "";
  int other = shm_open(memory, O_RDONLY, 0);
  CHECK(other >= 0 && read(other, text, 12) == 12 && strcmp(text, "by its name") == 0);
  CHECK(lseek(fd, 0, SEEK_CUR) == 12 && sem_unlink(name) == 0 && shm_unlink(memory) == 0);
  return survived();
}
