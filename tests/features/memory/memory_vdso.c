// A program that changed the kernel's code page, as one does that puts a breakpoint there: its rights, and a few bytes.
#include <sys/mman.h>
#include "feature.h"
int main(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  unsigned long start = 0, end = 0;
  while (maps && !end && fgets(line, sizeof(line), maps))
    if (strstr(line, "[vdso]")) CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
  CHECK(maps && fclose(maps) == 0);
  char* vdso = (char*)start;
  if (vdso) CHECK(mprotect(vdso, end - start, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
  if (vdso) vdso[9] = 'g', vdso[10] = 'x';  // padding of the ELF header
  ready_and_wait();
  struct timespec t;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0 && t.tv_sec > 0);
  if (vdso) {
    CHECK(memcmp(vdso, "\177ELF", 4) == 0 && vdso[9] == 'g' && vdso[10] == 'x');
    vdso[9] = 0;  // still the program's to write
    CHECK(mprotect(vdso, end - start, PROT_READ | PROT_EXEC) == 0);
  }
  return survived();
}
