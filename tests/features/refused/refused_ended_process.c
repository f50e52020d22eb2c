// The list of descriptors of a process that has ended: its contents cannot be read.
#include "feature.h"
int main(void) {
  int gate[2];
  CHECK(pipe(gate) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    char byte;
    close(gate[1]);
    _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
  }
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd", child);
  const int folder = open(path, O_RDONLY | O_DIRECTORY);
  CHECK(folder >= 0);
  close(gate[1]), close(gate[0]);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  ready_and_wait();
  CHECK(fcntl(folder, F_GETFD) == 0);
  return survived();
}
