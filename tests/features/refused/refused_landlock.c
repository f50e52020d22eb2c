// A program that has restricted itself with Landlock: a restored one would be free of it.
#include <sys/prctl.h>
#include "feature.h"
enum { kCreateRuleset = 444, kRestrictSelf = 446 };
int main(void) {
  const struct {
    uint64_t file_rights;
  } truncate = {1 << 14};  // nothing that the test itself needs
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const int rules = (int)syscall(kCreateRuleset, &truncate, sizeof(truncate), 0);
  if (rules < 0) absent("Landlock");
  CHECK(syscall(kRestrictSelf, rules, 0) == 0);
  close(rules);
  ready_and_wait();
  return survived();
}
