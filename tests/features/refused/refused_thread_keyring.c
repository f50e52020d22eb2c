// Keys in the keyring of one thread.
#include <linux/keyctl.h>
#include "feature.h"
static volatile int made, go_on;
static void* with_key(void* unused) {
  const long key = syscall(SYS_add_key, "user", "gpuckpt-test", "secret", 6, KEY_SPEC_THREAD_KEYRING);
  if (key < 0) absent("keyrings");
  made = 1;
  while (!go_on) sleep_ms(2);
  CHECK(syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_THREAD_KEYRING, "user", "gpuckpt-test", 0) == key);
  return unused;
}
int main(void) {
  pthread_t thread = start_thread(with_key, NULL);
  while (!made) sleep_ms(1);
  ready_and_wait();
  go_on = 1;
  CHECK(pthread_join(thread, NULL) == 0);
  return survived();
}
