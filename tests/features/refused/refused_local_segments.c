// A segment in the local descriptor table, as Wine makes them.
#include <asm/ldt.h>
#include <sys/mman.h>
#include "feature.h"
int main(void) {
  char* low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  CHECK(low != MAP_FAILED);
  struct user_desc segment = {.entry_number = 2, .base_addr = (unsigned)(uintptr_t)low, .limit = 1,
                              .seg_32bit = 1, .limit_in_pages = 1, .useable = 1};
  if (syscall(SYS_modify_ldt, 1, &segment, sizeof(segment)) != 0) absent("modify_ldt");
  low[0] = 77;
  ready_and_wait();
  int value;
  __asm__ volatile("mov %1, %%gs\n movzbl %%gs:0, %0" : "=r"(value) : "r"(2 << 3 | 7));
  CHECK(value == 77);
  return survived();
}
