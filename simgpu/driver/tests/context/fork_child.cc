// A forked child has no driver, its calls fail, and it ends without harm; the parent continues.
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

int main() {
  start();
  CUstream s;
  CUdeviceptr d;
  OK(cuStreamCreate(&s, 0));
  OK(cuMemAlloc(&d, 4096));
  OK(cuMemsetD8Async(d, 1, 4096, s));
  OK(cuStreamSynchronize(s));
  for (int round = 0; round < 3; ++round) {
    pid_t child = fork();
    if (child == 0) {
      EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&d, 64));
      EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuStreamSynchronize(s));
      EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
      exit(7);  // with exit handlers
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  }
  unsigned char v;
  OK(cuMemcpyDtoH(&v, d + 9, 1));
  CHECK(v == 1);
  return ok();
}
