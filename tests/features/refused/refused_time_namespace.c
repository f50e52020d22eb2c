// A time namespace for children that are not born yet (unshare, CLONE_NEWTIME).
#include <sched.h>
#include "feature.h"
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
int main(void) {
  if (unshare(CLONE_NEWTIME) != 0) absent("time namespaces");
  ready_and_wait();
  return survived();
}
