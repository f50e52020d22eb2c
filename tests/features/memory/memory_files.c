// Files mapped shared and written through the mapping: at a restore they are what they were, in what
// was written later, in zeros, in size; mappings that reach beyond the end, of files with and without
// a name.
#include <stdatomic.h>
#include <sys/mman.h>
#include "feature.h"
enum { kSlots = 20000 };
static atomic_int stop;
static char name[3][64];
static _Atomic uint32_t* ring;  // in the first file: slot n holds n + 1 once it is written
static atomic_uint next;

static void* map_file(int which, size_t bytes, size_t mapped, int keep) {
  sprintf(name[which], "mapped-%d-%d", which, getpid());
  int fd = open(name[which], O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
  void* p = mmap(NULL, mapped, 3, MAP_SHARED, fd, 0);
  CHECK(p != MAP_FAILED && close(fd) == 0);
  if (!keep) CHECK(unlink(name[which]) == 0);
  return p;
}

static void* work(void* unused) {
  for (; !stop && next < kSlots; sleep_ms(1)) {
    ring[next * 16] = next + 1;
    next = next + 1;
  }
  return unused;
}

static off_t size_of(int which) {
  struct stat st;
  CHECK(stat(name[which], &st) == 0);
  return st.st_size;
}

int main(void) {
  ring = map_file(0, kSlots * 64, kSlots * 64, 1);
  char *named = map_file(1, 5000, 16384, 1), *unnamed = map_file(2, 5000, 16384, 0);
  strcpy(named, "named"), strcpy(unnamed, "unnamed");
  named[4999] = 'n', unnamed[4999] = 'u';
  pthread_t t = start_thread(work, NULL);
  ready_and_wait();
  stop = 1;
  CHECK(pthread_join(t, NULL) == 0);
  CHECK(strcmp(named, "named") == 0 && strcmp(unnamed, "unnamed") == 0);
  CHECK(named[4999] == 'n' && unnamed[4999] == 'u' && size_of(1) == 5000 && size_of(0) == kSlots * 64);
  int fd = open(name[0], O_RDONLY);
  static uint32_t seen[kSlots * 16];
  CHECK(fd >= 0 && read(fd, seen, sizeof(seen)) == (ssize_t)sizeof(seen));
  CHECK(memcmp(seen, (void*)ring, sizeof(seen)) == 0);
  for (unsigned i = 0; i < kSlots; ++i) CHECK(seen[i * 16] == 0 || (i < next && seen[i * 16] == i + 1));
  CHECK(unlink(name[0]) == 0 && unlink(name[1]) == 0);
  return survived();
}
