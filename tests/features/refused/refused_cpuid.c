// A program that has switched CPUID off: an instruction of ours must not be its end.
#include <asm/prctl.h>
#include "feature.h"
int main(void) {
  if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) != 0) absent("a processor that lets CPUID fail");
  ready_and_wait();
  CHECK(syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0) == 0);
  return survived();
}
