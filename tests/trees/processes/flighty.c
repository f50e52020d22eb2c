// Children that end in the moment they run again after a stop: what was taken of them belongs to
// the snapshot all the same.
#include <time.h>

#include "tree.h"

static long now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int main(int argc, char** argv) {
  (void)argv;
  if (argc > 1) return 3;
  for (int said = 0; !said || access("go_on", F_OK) != 0;) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      long last = now_us();
      for (long now = last; now - last < 2000 && access("go_on", F_OK) != 0; now = now_us())
        last = now;
      _exit(3);
    }
    if (!said) said = 1, CHECK(write(1, "ready\n", 6) == 6);
    CHECK(wait_status(child) == 3);
  }
  return survived();
}
