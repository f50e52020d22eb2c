/* first_calls CHILDREN: children are born one after the other, every second one by fork and exec;
 * each makes its first call of the driver at once, and prints what its device computed, in its
 * turn, when a file "go" is there. A snapshot of the job meets some of them in their first call. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static int child(int number, int turn_read, int turn_write) {
  CUdeviceptr memory;
  unsigned host[64], sum = 0;
  char baton;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a restore waits for children that outlive the first */
  start_driver();
  OK(DRIVER(cuMemAlloc_v2)(&memory, sizeof host));
  OK(DRIVER(cuMemsetD32_v2)(memory, (unsigned)number + 1, 64));
  if (read(turn_read, &baton, 1) != 1) return 1;
  OK(DRIVER(cuMemcpyDtoH_v2)(host, memory, sizeof host));
  for (int i = 0; i < 64; ++i) sum += host[i];
  printf("child %d: %u\n", number, sum);
  fflush(stdout);
  return write(turn_write, "b", 1) != 1;
}

int main(int argc, char** argv) {
  if (argc == 5 && strcmp(argv[1], "child") == 0)
    return child(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
  int children = atoi(argv[1]), failed = 0;
  int turn[children + 1][2];
  for (int i = 0; i <= children; ++i)
    if (pipe(turn[i])) return 1;
  puts("start");
  fflush(stdout);
  for (int i = 0; i < children; ++i) {
    pid_t pid = fork();
    if (pid < 0) return perror("fork"), 1;
    if (pid == 0 && i % 2) {
      char text[3][12];
      snprintf(text[0], 12, "%d", i);
      snprintf(text[1], 12, "%d", turn[i][0]);
      snprintf(text[2], 12, "%d", turn[i + 1][1]);
      execl("/proc/self/exe", argv[0], "child", text[0], text[1], text[2], (char*)NULL);
    }
    if (pid == 0) _exit(child(i, turn[i][0], turn[i + 1][1]));
    usleep(20000);
  }
  while (access("go", F_OK) != 0) usleep(2000);
  if (write(turn[0][1], "b", 1) != 1) return 1;
  for (int i = 0, status; i < children; ++i) {
    wait(&status);
    failed |= status;
  }
  printf("end %d\n", failed);
  return failed != 0;
}
