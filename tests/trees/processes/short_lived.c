// A program whose children come and go all the time.
#include "tree.h"
int main(int argc, char** argv) {
  if (argc > 1) return 3;
  for (int i = 0, said = 0; !said || access("go_on", F_OK) != 0; ++i) {
    pid_t child = fork();
    if (child == 0) {
      if (i & 1) _exit(3);
      execl("/proc/self/exe", argv[0], "end", (char*)NULL);
      _exit(127);
    }
    CHECK(wait_status(child) == 3);
    if (i == 5) said = 1, CHECK(write(1, "ready\n", 6) == 6);
  }
  return survived();
}
