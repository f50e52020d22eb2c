// A child that runs another program, which answers over its standard input and output.
#include "tree.h"
int main(int argc, char** argv) {
  if (argc > 1) {
    char line[64];
    while (fgets(line, sizeof line, stdin)) printf("%d %s", getppid(), line), fflush(stdout);
    return 9;
  }
  int down[2], up[2];
  CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(down[0], 0), dup2(up[1], 1);
    execl("/proc/self/exe", argv[0], "echo", (char*)NULL);
    _exit(127);
  }
  close(down[0]), close(up[1]);
  FILE *to = fdopen(down[1], "w"), *from = fdopen(up[0], "r");
  char line[64], expected[64];
  for (int i = 0; i < 10; ++i) {
    fprintf(to, "line %d\n", i), fflush(to);
    if (i == 5) ready_and_wait();
    snprintf(expected, sizeof expected, "%d line %d\n", getpid(), i);
    CHECK(fgets(line, sizeof line, from) && !strcmp(line, expected));
  }
  fclose(to);
  CHECK(wait_status(child) == 9);
  return survived();
}
