// What mprotect may do with a shared mapping depends on how its file was opened: a mapping of a file
// that is open for writing may become writable, others may not. MAP_DROPPABLE stays what it is.
#include <sys/mman.h>
#include <sys/shm.h>
#include "feature.h"
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif
static char* map(int fd, int protection, int flags) {
  char* p = mmap(NULL, 4096, protection, flags, fd, 0);
  CHECK(p != MAP_FAILED);
  return p;
}
static int may_write(char* p) { return mprotect(p, 4096, PROT_READ | PROT_WRITE) == 0; }
int main(void) {
  char name[64], file[64];
  sprintf(name, "/gpuckpt-rights-%d", getpid()), sprintf(file, "rights-%d", getpid());
  int both = open(file, O_RDWR | O_CREAT | O_EXCL, 0600), reads = open(file, O_RDONLY);
  CHECK(both >= 0 && reads >= 0 && write(both, "file", 5) == 5);
  int memory = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600), memory_reads = shm_open(name, O_RDONLY, 0);
  CHECK(memory >= 0 && memory_reads >= 0 && ftruncate(memory, 4096) == 0);
  char *can[2] = {map(both, PROT_READ, MAP_SHARED), map(memory, PROT_READ, MAP_SHARED)};
  char *cannot[3] = {map(reads, PROT_READ, MAP_SHARED), map(memory_reads, PROT_READ, MAP_SHARED)};
  char* written = map(memory, 3, MAP_SHARED);
  strcpy(written, "memory");
  int id = shmget(IPC_PRIVATE, 4096, 0600);
  CHECK(id >= 0 && (cannot[2] = shmat(id, NULL, SHM_RDONLY)) != (void*)-1 && shmctl(id, IPC_RMID, NULL) == 0);
  CHECK(close(both) == 0 && close(reads) == 0 && close(memory) == 0 && close(memory_reads) == 0);
  char* droppable = mmap(NULL, 8192, 3, MAP_ANONYMOUS | MAP_DROPPABLE, -1, 0);
  if (droppable != MAP_FAILED) strcpy(droppable, "droppable");
  ready_and_wait();
  if (droppable != MAP_FAILED) {
    CHECK(strcmp(droppable, "droppable") == 0);
    CHECK(madvise(droppable, 8192, 19 /* MADV_KEEPONFORK */) != 0 && errno == EINVAL);
  }
  for (int i = 0; i < 2; ++i) CHECK(may_write(can[i]));
  for (int i = 0; i < 3; ++i) CHECK(!may_write(cannot[i]) && errno == EACCES);
  can[0][0] = 'F';
  CHECK(cannot[0][0] == 'F' && strcmp(can[1], "memory") == 0);
  CHECK(unlink(file) == 0 && shm_unlink(name) == 0);
  return survived();
}
