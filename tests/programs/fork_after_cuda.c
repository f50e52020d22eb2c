// fork after CUDA was used: the child touches pinned and ordinary memory, and ends; the parent's
// GPU work goes on.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "pause.h"

int main(int argc, char** argv) {
  start_driver();
  char *pinned, back[4096];
  CUdeviceptr memory;
  OK(DRIVER(cuMemAllocHost_v2)((void**)&pinned, sizeof back));
  OK(DRIVER(cuMemAlloc_v2)(&memory, sizeof back));
  memset(pinned, 7, sizeof back);
  OK(DRIVER(cuMemcpyHtoD_v2)(memory, pinned, sizeof back));
  fflush(stdout);
  wait_for_snapshot(argc, argv);
  pid_t child = fork();
  if (child == 0) {
    int sum = 0;
    for (unsigned i = 0; i < sizeof back; ++i) sum += pinned[i];
    memset(pinned, 9, sizeof back);
    printf("child: %d\n", sum);
    fflush(stdout);
    _exit(5);
  }
  int status;
  waitpid(child, &status, 0);
  OK(DRIVER(cuMemcpyDtoH_v2)(back, memory, sizeof back));
  printf("parent: status %d, pinned %d, device %d\n", WEXITSTATUS(status), pinned[100], back[100]);
}
