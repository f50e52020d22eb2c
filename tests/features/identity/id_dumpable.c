// A process that protects itself from being looked at (root can snapshot it all the same).
#include <sys/prctl.h>
#include "feature.h"
int main(void) {
  CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
  ready_and_wait();
  CHECK(prctl(PR_GET_DUMPABLE) == 0);
  CHECK(prctl(PR_SET_DUMPABLE, 1) == 0 && prctl(PR_GET_DUMPABLE) == 1);
  return survived();
}
