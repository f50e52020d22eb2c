// What mlock locked is locked afterwards, and nothing else.
#include <sys/mman.h>
#include "feature.h"
static long locked_kb(void) {
  char line[256];
  long kb = -1;
  FILE* f = fopen("/proc/self/status", "r");
  CHECK(f);
  while (fgets(line, sizeof(line), f)) sscanf(line, "VmLck: %ld", &kb);
  fclose(f);
  return kb;
}
int main(void) {
  char* a = mmap(NULL, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(a != MAP_FAILED);
  strcpy(a, "in memory");
  CHECK(mlock(a, 32768) == 0 && locked_kb() == 32);
  ready_and_wait();
  CHECK(locked_kb() == 32 && strcmp(a, "in memory") == 0);
  CHECK(munlock(a, 65536) == 0 && locked_kb() == 0);
  return survived();
}
