// A child in a control group that its parent has left again, and a sister that never was there.
#include "../features/control_group.h"
#include "tree.h"
static char name[64];
static int still_there(void) { return in_control_group(name) ? 50 : 1; }
int main(void) {
  snprintf(name, sizeof(name), "gpuckpt-tree-%d", (int)getpid());
  const char* place = make_control_group(name);
  if (!place) absent("control groups that the user may make");
  const pid_t child = fork_waiting(still_there);
  CHECK(enter_folder(place) && !in_control_group(name));
  const pid_t other = fork_waiting(NULL);
  ready_and_wait();
  CHECK(!in_control_group(name));
  CHECK(wait_status(child) == 50 && wait_status(other) == 0);
  CHECK(enter_folder(place));
  leave_control_group(place, name);
  return survived();
}
