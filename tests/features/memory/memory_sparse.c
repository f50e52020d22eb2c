// Shared memory with few pages in a large object: a snapshot makes none of the others exist, neither in
// the program that goes on nor in the restored one, and pages that only a child has written are there.
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include "feature.h"
enum { kPage = 4096, kObjects = 7, kAll = 256 << 20 };
static const char* const kind[kObjects] = {"anonymous",    "memfd",    "closed memfd", "POSIX",
                                           "removed POSIX", "System V", "private memfd"};
static char* object[kObjects];
static size_t first[kObjects];  // pages that exist before the snapshot

static size_t pages(const char* at) {
  static unsigned char there[kAll / kPage];
  size_t n = 0;
  CHECK(mincore((void*)at, kAll, there) == 0);
  for (size_t i = 0; i < kAll / kPage; ++i) n += there[i] & 1;
  return n;
}

static char* map(int fd, int flags) {
  char* p = mmap(NULL, kAll, 3, flags, fd, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

static int sized(int fd) {
  CHECK(fd >= 0 && ftruncate(fd, kAll) == 0);
  return fd;
}

int main(void) {
  char name[64], removed[64];
  sprintf(name, "/gpuckpt-sparse-%d", getpid()), sprintf(removed, "/gpuckpt-removed-%d", getpid());
  object[0] = map(-1, MAP_SHARED | MAP_ANONYMOUS);
  object[1] = map(sized(memfd_create("kept", 0)), MAP_SHARED);
  int fd = sized(memfd_create("closed", 0));
  object[2] = map(fd, MAP_SHARED);
  CHECK(close(fd) == 0);
  fd = sized(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
  object[3] = map(fd, MAP_SHARED);
  CHECK(close(fd) == 0);
  fd = sized(shm_open(removed, O_RDWR | O_CREAT | O_EXCL, 0600));
  object[4] = map(fd, MAP_SHARED);
  CHECK(close(fd) == 0 && shm_unlink(removed) == 0);
  int id = shmget(IPC_PRIVATE, kAll, 0600 | SHM_NORESERVE);
  CHECK(id >= 0 && (object[5] = shmat(id, NULL, 0)) != (void*)-1 && shmctl(id, IPC_RMID, NULL) == 0);
  fd = sized(memfd_create("private", 0));
  CHECK(pwrite(fd, "q", 1, kAll / 2) == 1);
  object[6] = map(fd, MAP_PRIVATE);
  CHECK(close(fd) == 0);
  // One page by ourselves and one that is in none of our page tables.
  for (int i = 0; i < 6; ++i) object[i][kAll / 2] = 'p';
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 6; ++i) strcpy(object[i] + kAll / 4 * 3 + kPage, kind[i]);
    _exit(0);
  }
  CHECK(waitpid(child, NULL, 0) == child);
  for (int i = 0; i < kObjects; ++i) first[i] = pages(object[i]);
  ready_and_wait();
  for (int i = 0; i < kObjects; ++i)
    if (pages(object[i]) != first[i]) {
      dprintf(1, "%s memory had %zu pages and has %zu\n", kind[i], first[i], pages(object[i]));
      CHECK(!"as many pages as before");
    }
  for (int i = 0; i < 6; ++i) {
    CHECK(object[i][kAll / 2] == 'p' && strcmp(object[i] + kAll / 4 * 3 + kPage, kind[i]) == 0);
    CHECK(object[i][0] == 0 && object[i][kAll - 1] == 0);
  }
  CHECK(object[6][kAll / 2] == 'q' && object[6][kAll - 1] == 0);
  CHECK(shm_unlink(name) == 0);
  return survived();
}
