// Supplementary groups that the program set itself, the user being who it was.
#include <grp.h>
#include "feature.h"
int main(void) {
  const gid_t wanted[] = {7, 4321, 100000};
  gid_t before[64], now[64];
  (void)!setgroups(3, wanted);  // (for root alone: others have what they were started with)
  const int n = getgroups(64, before);
  CHECK(n >= 0);
  ready_and_wait();
  CHECK(getgroups(64, now) == n && memcmp(before, now, sizeof(gid_t) * (size_t)n) == 0);
  return survived();
}
