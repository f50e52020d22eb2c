// A program of one thread that changes its execution domain (personality) all the time: a snapshot
// is not refused because of that, and what it has is what it set last.
#include <sys/personality.h>
#include "feature.h"
int main(void) {
  CHECK(write(1, "ready\n", 6) == 6);
  for (int i = 0; access("go_on", F_OK) != 0; ++i) {
    const unsigned long domain = i % 2 ? PER_LINUX | ADDR_NO_RANDOMIZE : PER_LINUX | UNAME26;
    CHECK(personality(domain) != -1);
    for (int k = 0; k < 2000; ++k) CHECK((unsigned)personality(0xffffffff) == domain);
  }
  return survived();
}
