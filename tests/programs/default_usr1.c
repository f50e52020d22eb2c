// Pinned to say so: under gpuckpt SIGUSR1 makes a snapshot; with `--signal none` it ends the
// program as ever.
#include <signal.h>
#include <stdio.h>

int main() {
  puts("before");
  fflush(stdout);
  raise(SIGUSR1);
  puts("after");
}
