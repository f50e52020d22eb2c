// Programs that gave the kernel's pages up (as user-mode kernels and sandboxes do): no time without a system call.
#include <sys/mman.h>
#include "feature.h"
int main(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  unsigned long start, end, starts[8], ends[8];
  int count = 0;
  while (maps && fgets(line, sizeof(line), maps))
    if ((strstr(line, "[vdso]") || strstr(line, "[vvar")) && count < 8 && sscanf(line, "%lx-%lx", &start, &end) == 2)
      starts[count] = start, ends[count++] = end;
  CHECK(maps && fclose(maps) == 0 && count > 0);
  char* taken = NULL;
  for (int i = 0; i < count; ++i) CHECK(munmap((void*)starts[i], ends[i] - starts[i]) == 0);
  taken = mmap((void*)starts[0], 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(taken == (void*)starts[0]);
  strcpy(taken, "mine");
  CHECK(write(1, "ready\n", 6) == 6);
  while (access("go_on", F_OK) != 0) sleep_ms(5);
  CHECK(strcmp(taken, "mine") == 0);
  CHECK((maps = fopen("/proc/self/maps", "r")) != NULL);
  while (fgets(line, sizeof(line), maps)) CHECK(!strstr(line, "[vdso]") && !strstr(line, "[vvar"));
  return survived();
}
