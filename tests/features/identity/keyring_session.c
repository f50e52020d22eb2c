// A session keyring of the program's own: its keys are gone after a restore, as the snapshot tells.
#include <linux/keyctl.h>
#include "feature.h"
int main(void) {
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0) < 0) absent("keyrings");
  CHECK(syscall(SYS_add_key, "user", "gpuckpt-test", "secret", 6, KEY_SPEC_SESSION_KEYRING) > 0);
  ready_and_wait();
  return survived();
}
