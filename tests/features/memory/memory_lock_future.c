// mlockall(MCL_FUTURE): what is mapped after the restore is locked as well, with and without
// MCL_ONFAULT.
#include <sys/mman.h>
#include "feature.h"
enum { kBytes = 64 << 10 };
static long locked_kib(void) {
  FILE* status = fopen("/proc/self/status", "r");
  char line[256];
  long kib = -1;
  CHECK(status);
  while (fgets(line, sizeof(line), status)) sscanf(line, "VmLck: %ld", &kib);
  fclose(status);
  return kib;
}
static void check_new_mapping(int present) {
  const long before = locked_kib();
  char* p = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED && locked_kib() == before + (kBytes >> 10));
  unsigned char there[kBytes / 4096];
  CHECK(mincore(p, kBytes, there) == 0 && (there[1] & 1) == present);
  munmap(p, kBytes);
}
int main(void) {
  CHECK(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
  check_new_mapping(0);
  ready_and_wait();
  check_new_mapping(0);
  CHECK(mlockall(MCL_FUTURE) == 0);
  check_new_mapping(1);
  return survived();
}
