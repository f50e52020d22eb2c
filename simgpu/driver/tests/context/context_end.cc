// Ending a context cancels the work that waits in it, and stops its threads.
#include <dirent.h>

#include "check.h"

static int threads() {
  DIR* d = opendir("/proc/self/task");
  int n = 0;
  while (dirent* e = readdir(d)) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

int main() {
  OK(cuInit(0));
  int before = threads();
  for (int round = 0; round < 5; ++round) {
    CUcontext c;
    OK(cuCtxCreate(&c, nullptr, 0, 0));
    uint32_t* flag;
    OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
    *flag = 0;
    CUstream s[3];
    for (CUstream& x : s) {
      OK(cuStreamCreate(&x, 0));
      OK(cuStreamWaitValue32(x, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
    }
    OK(cuStreamDestroy(s[0]));  // its work is still to be done
    double t = seconds();
    OK(cuCtxDestroy(c));
    CHECK(seconds() - t < 2);
  }
  rest(0.05);
  CHECK(threads() <= before + 1);
  return ok();
}
