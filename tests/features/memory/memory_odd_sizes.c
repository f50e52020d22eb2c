// Shared objects of sizes that are no multiple of a page: the size is what it was, the bytes behind the
// end in the last page are there, and pages behind that are none (SIGBUS).
#include <setjmp.h>
#include <sys/mman.h>
#include "feature.h"
enum { kSize = 5000, kMapped = 16384, kObjects = 4 };
static sigjmp_buf back;
static void on_bus(int sig) { siglongjmp(back, sig); }

static int faults(volatile char* at) {
  if (sigsetjmp(back, 1)) return 1;
  (void)*at;
  return 0;
}

int main(void) {
  char name[64], removed[64];
  char* object[kObjects];
  int fd[kObjects];
  sprintf(name, "/gpuckpt-odd-%d", getpid()), sprintf(removed, "/gpuckpt-odd-removed-%d", getpid());
  fd[0] = memfd_create("open", 0), fd[1] = memfd_create("closed", 0);
  fd[2] = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  fd[3] = shm_open(removed, O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(signal(SIGBUS, on_bus) != SIG_ERR && shm_unlink(removed) == 0);
  for (int i = 0; i < kObjects; ++i) {
    CHECK(fd[i] >= 0 && ftruncate(fd[i], kSize) == 0);
    object[i] = mmap(NULL, kMapped, 3, MAP_SHARED, fd[i], 0);
    CHECK(object[i] != MAP_FAILED);
    strcpy(object[i], "start"), strcpy(object[i] + kSize - 3, "across the end"), strcpy(object[i] + 8000, "behind");
    CHECK(faults(object[i] + 8192));
  }
  CHECK(close(fd[1]) == 0);
  ready_and_wait();
  struct stat st;
  for (int i = 0; i < kObjects; ++i) {
    CHECK(strcmp(object[i], "start") == 0);
    CHECK(strcmp(object[i] + kSize - 3, "across the end") == 0 && strcmp(object[i] + 8000, "behind") == 0);
    // Only CAP_CHECKPOINT_RESTORE shows the size of memory that has neither name nor descriptor.
    CHECK(faults(object[i] + 8192) || (i == 1 && getuid() != 0));
    if (i != 1) CHECK(fstat(fd[i], &st) == 0 && st.st_size == kSize);
  }
  CHECK(shm_unlink(name) == 0);
  return survived();
}
