// SIGUSR1 that the program sends itself ends it, under gpuckpt as without it: only one from another
// job makes a snapshot.
#include <signal.h>
#include <stdio.h>

int main() {
  puts("before");
  fflush(stdout);
  raise(SIGUSR1);
  puts("after");
}
