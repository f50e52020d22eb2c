// Host functions run in stream order on another thread, where driver calls are not permitted.
#include <pthread.h>

#include "check.h"

static pthread_t main_thread;
static int order[3], next;
static CUresult inside = CUDA_SUCCESS;

static void CUDA_CB first(void* p) {
  CHECK(!pthread_equal(main_thread, pthread_self()));
  CUdeviceptr d;
  inside = cuMemAlloc(&d, 64);
  rest(0.05);
  order[next++] = *static_cast<int*>(p);
}
static void CUDA_CB then(CUstream, CUresult r, void* p) {
  CHECK(r == CUDA_SUCCESS);
  order[next++] = *static_cast<int*>(p);
}

int main() {
  start();
  main_thread = pthread_self();
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  int one = 1, two = 2;
  double t = seconds();
  OK(cuLaunchHostFunc(s, first, &one));
  OK(cuStreamAddCallback(s, then, &two, 0));
  CHECK(seconds() - t < 0.04);
  OK(cuStreamSynchronize(s));
  CHECK(next == 2 && order[0] == 1 && order[1] == 2);
  CHECK(inside == CUDA_ERROR_NOT_PERMITTED);
  return ok();
}
