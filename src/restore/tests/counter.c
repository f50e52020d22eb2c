// Prints a counter, one line every 100 ms. Argument: lines.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char** argv) {
  unsigned long x = 1;
  int n = argc > 1 ? atoi(argv[1]) : 50;
  for (int i = 0; i < n; i++) {
    x = x * 6364136223846793005ul + 1442695040888963407ul;
    printf("%d %lx\n", i, x);
    fflush(stdout);
    usleep(100000);
  }
  puts("done");
  return 7;
}
