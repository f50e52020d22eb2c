// Mappings of /dev/zero: private, shared for writing, and shared for reading only, which stay zeros and cannot be made writable.
#include <sys/mman.h>
#include "feature.h"
int main(void) {
  const int both = open("/dev/zero", O_RDWR), reads = open("/dev/zero", O_RDONLY);
  CHECK(both >= 0 && reads >= 0);
  char* own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, reads, 0);
  char* shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, both, 0);
  char* zeros = mmap(NULL, 8192, PROT_READ, MAP_SHARED, reads, 0);
  CHECK(own != MAP_FAILED && shared != MAP_FAILED && zeros != MAP_FAILED && close(both) == 0 && close(reads) == 0);
  strcpy(own, "own"), strcpy(shared, "shared");
  ready_and_wait();
  CHECK(strcmp(own, "own") == 0 && strcmp(shared, "shared") == 0 && zeros[0] == 0 && zeros[8191] == 0);
  CHECK(own[4096] == 0 && shared[8191] == 0);
  CHECK(mprotect(zeros, 8192, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
  own[8191] = 1, shared[4096] = 2;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    own[8191] = 3, shared[4096] = 4;
    _exit(0);
  }
  CHECK(waitpid(child, NULL, 0) == child && own[8191] == 1 && shared[4096] == 4);
  return survived();
}
