// Pseudo terminals whose numbers need more than one byte, each with unread bytes. Lower numbers are free again: the kernel gives them
// first, and the terminals keep theirs.
#include <pty.h>
#include "feature.h"

enum { kTerminals = 260, kClosed = 100 };

int main(void) {
  int master[kTerminals], slave[kTerminals];
  for (int i = 0; i < kTerminals; ++i) {
    CHECK(openpty(&master[i], &slave[i], NULL, NULL, NULL) == 0);
    char line[16];
    int n = snprintf(line, sizeof(line), "line %d\n", i);
    CHECK(write(master[i], line, n) == n);
  }
  char before[kTerminals][32], after[32];
  for (int i = 0; i < kTerminals; ++i) {
    CHECK(ptsname_r(master[i], before[i], sizeof(before[i])) == 0);
    if (i < kClosed) CHECK(close(master[i]) == 0 && close(slave[i]) == 0);
  }
  ready_and_wait();
  int kept = 0;
  for (int i = kClosed; i < kTerminals; ++i) kept += ptsname_r(master[i], after, sizeof(after)) == 0 && strcmp(before[i], after) == 0;
  CHECK(kept > (kTerminals - kClosed) / 2);  // (Other programs may have taken some.)
  for (int i = kClosed; i < kTerminals; ++i) {
    char line[16], got[16];
    int n = snprintf(line, sizeof(line), "line %d\n", i);
    CHECK(read(slave[i], got, sizeof(got)) == n && memcmp(got, line, n) == 0);
    CHECK(write(slave[i], "x", 1) == 1);
  }
  return survived();
}
