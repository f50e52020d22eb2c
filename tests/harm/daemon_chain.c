// Daemons that start one another without end, each of which lives for a moment and has the other
// end of the program's pipe. They end when the program is told to.
#include "../features/feature.h"

static void link_of(int out) {
  for (;;) {
    const pid_t next = fork();
    if (next != 0) _exit(next < 0);
    char byte = 'd';
    if (access("go_on", F_OK) == 0 || write(out, &byte, 1) != 1) _exit(0);
  }
}

int main(void) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t first = fork();
  CHECK(first >= 0);
  if (!first) {
    close(ends[0]);
    setsid();
    link_of(ends[1]);
  }
  close(ends[1]);
  char bytes[4096];
  CHECK(read(ends[0], bytes, sizeof(bytes)) > 0);
  CHECK(write(1, "ready\n", 6) == 6);
  while (read(ends[0], bytes, sizeof(bytes)) > 0) continue;
  int status;
  CHECK(waitpid(first, &status, 0) == first);
  return survived();
}
