// Memory of one process in another (cuIpc*): small and large allocations, both sides see what
// either writes; opened twice, closed as often; not in the process that has it; not what cannot be
// shared.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct Offer {
  CUipcMemHandle small, large;
};

static uint32_t word(CUdeviceptr at) {
  uint32_t v = 0;
  OK(cuMemcpyDtoH_v2(&v, at, sizeof v));
  return v;
}
static void put(CUdeviceptr at, uint32_t v) { OK(cuMemsetD32_v2(at, v, 1)); }
static void begin_on_device() {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
}
static void send(int fd, const void* p, size_t n) {
  CHECK(write(fd, p, n) == static_cast<ssize_t>(n));
}
static void receive(int fd, void* p, size_t n) {
  pollfd wait = {fd, POLLIN, 0};
  CHECK(poll(&wait, 1, 20000) == 1 && read(fd, p, n) == static_cast<ssize_t>(n));
}

constexpr size_t kLarge = 5 << 20;

static void other_side(int in, int out) {
  begin_on_device();
  Offer offer;
  receive(in, &offer, sizeof offer);
  CUdeviceptr small, large, again, base;
  size_t size;
  OK(cuIpcOpenMemHandle_v2(&small, offer.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  OK(cuIpcOpenMemHandle_v2(&large, offer.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK(word(small) == 11 && word(small + 4) == 22 && word(large + kLarge - 4) == 33);
  OK(cuMemGetAddressRange_v2(&base, &size, large + 8));
  CHECK(base == large && size >= kLarge);
  CHECK(cuMemFree_v2(large) == CUDA_ERROR_INVALID_VALUE);
  put(small + 4, 44);
  put(large, 55);
  OK(cuCtxSynchronize());
  OK(cuIpcOpenMemHandle_v2(&again, offer.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK(again == large);
  OK(cuIpcCloseMemHandle(large));
  send(out, "1", 1);
  char go;
  receive(in, &go, 1);
  CHECK(word(large + 4) == 66);
  OK(cuIpcCloseMemHandle(large));
  CHECK(cuIpcCloseMemHandle(large) == CUDA_ERROR_INVALID_VALUE);
  OK(cuIpcCloseMemHandle(small));
  send(out, "2", 1);
  _exit(0);
}

int main() {
  alarm(60);
  int there[2], back[2];
  CHECK(pipe(there) == 0 && pipe(back) == 0);
  pid_t child = fork();
  if (child == 0) other_side(there[0], back[1]);
  begin_on_device();
  CUdeviceptr before, small, large;
  OK(cuMemAlloc_v2(&before, 1000));
  OK(cuMemAlloc_v2(&small, 1000));
  OK(cuMemAlloc_v2(&large, kLarge));
  put(small, 11);
  put(small + 4, 22);
  put(large + kLarge - 4, 33);
  Offer offer;
  OK(cuIpcGetMemHandle(&offer.small, small));
  OK(cuIpcGetMemHandle(&offer.large, large + 100));
  CUdeviceptr mine;
  CHECK(cuIpcOpenMemHandle_v2(&mine, offer.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
        CUDA_ERROR_INVALID_CONTEXT);
  CUipcMemHandle none;
  CHECK(cuIpcGetMemHandle(&none, 4096) == CUDA_ERROR_INVALID_VALUE);
  void* pinned;
  OK(cuMemHostAlloc(&pinned, 4096, 0));
  CHECK(cuIpcGetMemHandle(&none, reinterpret_cast<CUdeviceptr>(pinned)) != CUDA_SUCCESS);
  send(there[1], &offer, sizeof offer);
  char done;
  receive(back[0], &done, 1);
  CHECK(word(small + 4) == 44 && word(large) == 55);
  put(large + 4, 66);
  OK(cuCtxSynchronize());
  send(there[1], "g", 1);
  receive(back[0], &done, 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  OK(cuMemFree_v2(large));
  OK(cuMemFree_v2(small));
  puts("ok");
  return 0;
}
