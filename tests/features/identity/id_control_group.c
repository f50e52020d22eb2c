// A control group that the program has moved to.
#include "control_group.h"
int main(void) {
  char name[64];
  snprintf(name, sizeof(name), "gpuckpt-feature-%d", (int)getpid());
  const char* place = make_control_group(name);
  if (!place) absent("control groups that the user may make");
  CHECK(in_control_group(name));
  ready_and_wait();
  CHECK(in_control_group(name));
  leave_control_group(place, name);
  return survived();
}
