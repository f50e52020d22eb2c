// A program that has switched RDTSC off, as recorders do: neither it nor the writer may die of that.
#include <sys/prctl.h>
#include "feature.h"
int main(void) {
  if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0) absent("PR_SET_TSC");
  ready_and_wait();
  int state = 0;
  CHECK(prctl(PR_GET_TSC, &state) == 0 && state == PR_TSC_SIGSEGV);
  return survived();
}
