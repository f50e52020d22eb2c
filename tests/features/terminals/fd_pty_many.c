// Pseudo terminals whose numbers need more than one byte, each with unread bytes.
#include <pty.h>
#include "feature.h"

enum { kTerminals = 260 };

int main(void) {
  int master[kTerminals], slave[kTerminals];
  for (int i = 0; i < kTerminals; ++i) {
    CHECK(openpty(&master[i], &slave[i], NULL, NULL, NULL) == 0);
    char line[16];
    int n = snprintf(line, sizeof(line), "line %d\n", i);
    CHECK(write(master[i], line, n) == n);
  }
  ready_and_wait();
  for (int i = 0; i < kTerminals; ++i) {
    char line[16], got[16];
    int n = snprintf(line, sizeof(line), "line %d\n", i);
    CHECK(read(slave[i], got, sizeof(got)) == n && memcmp(got, line, n) == 0);
    CHECK(write(slave[i], "x", 1) == 1);
  }
  return survived();
}
