// Keys in the keyring of the process alone: a restored process would have none.
#include <linux/keyctl.h>
#include "feature.h"
int main(void) {
  const long key = syscall(SYS_add_key, "user", "gpuckpt-test", "secret", 6, KEY_SPEC_PROCESS_KEYRING);
  if (key < 0) absent("keyrings");
  ready_and_wait();
  char secret[6];
  CHECK(syscall(SYS_keyctl, KEYCTL_READ, key, secret, 6) == 6 && memcmp(secret, "secret", 6) == 0);
  return survived();
}
