// A restore would put the program into the network of whoever restores it.
#include <sched.h>
#include "feature.h"
int main(void) {
  CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
  ready_and_wait();
  return survived();
}
