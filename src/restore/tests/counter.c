#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int c, char** v) {
  FILE* f = fopen(v[1], "w"); unsigned long x = 1; int n = c > 2 ? atoi(v[2]) : 50;
  for (int i = 0; i < n; i++) { x = x * 6364136223846793005ul + 1442695040888963407ul; fprintf(f, "%d %lx\n", i, x); fflush(f); usleep(100000); }
  fprintf(f, "done\n"); fclose(f); return 7;
}
