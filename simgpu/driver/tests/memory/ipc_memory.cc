// Memory of one process in another (cuIpc*), in small and large allocations: both processes see
// what either writes; memory that was opened twice is closed twice; a process cannot open its own
// memory; memory that cannot be shared is refused.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

struct Offer {
  CUipcMemHandle small, large;
  CUipcEventHandle written, answered;
};

static uint32_t word(CUdeviceptr at) {
  uint32_t v = 0;
  OK(cuMemcpyDtoH_v2(&v, at, sizeof v));
  return v;
}
static void put(CUdeviceptr at, uint32_t v) { OK(cuMemsetD32_v2(at, v, 1)); }
static void begin_on_device(int ordinal) {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, ordinal));
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

constexpr char kKernel[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry copy(.param .u64 to, .param .u64 from) {
  .reg .u32 %r<2>; .reg .u64 %d<3>;
  ld.param.u64 %d1, [to]; ld.param.u64 %d2, [from];
  ld.global.u32 %r1, [%d2]; st.global.u32 [%d1], %r1;
  ret;
}
)";

// A kernel reads and writes memory of the other process.
static void copy_by_kernel(CUdeviceptr to, CUdeviceptr from) {
  CUmodule module;
  CUfunction function;
  void* arguments[] = {&to, &from};
  OK(cuModuleLoadData(&module, kKernel));
  OK(cuModuleGetFunction(&function, module, "copy"));
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  OK(cuCtxSynchronize());
  OK(cuModuleUnload(module));
}

static void other_side(int in, int out) {
  // The last one: with several devices the memory lies on another than the one it is opened on.
  int devices;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&devices));
  begin_on_device(devices - 1);
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
  CUevent written, answered;
  OK(cuIpcOpenEventHandle(&written, offer.written));
  OK(cuIpcOpenEventHandle(&answered, offer.answered));
  OK(cuStreamWaitEvent(nullptr, written, 0));  // the host does not wait for the other one's set
  copy_by_kernel(small + 8, large + 8);
  put(small + 4, 44);
  put(large, 55);
  OK(cuEventRecord(answered, nullptr));
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
  begin_on_device(0);
  CUdeviceptr before, small, large;
  OK(cuMemAlloc_v2(&before, 1000));
  OK(cuMemAlloc_v2(&small, 1000));
  OK(cuMemAlloc_v2(&large, kLarge));
  put(small, 11);
  put(small + 4, 22);
  put(large + kLarge - 4, 33);
  Offer offer;
  CUevent written, answered, plain, mine_again;
  OK(cuEventCreate(&written, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&answered, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventCreate(&mine_again, CU_EVENT_INTERPROCESS) == CUDA_ERROR_INVALID_VALUE);
  OK(cuEventQuery(written));
  OK(cuIpcGetEventHandle(&offer.written, written));
  OK(cuIpcGetEventHandle(&offer.answered, answered));
  CUipcEventHandle no_event;
  CHECK(cuIpcGetEventHandle(&no_event, plain) != CUDA_SUCCESS);
  CHECK(cuIpcOpenEventHandle(&mine_again, offer.written) == CUDA_ERROR_INVALID_CONTEXT);
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
  // Not done when the other side goes on.
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  put(small + 16, 0);
  put(large + 8, 0);
  OK(cuCtxSynchronize());
  OK(cuStreamWaitValue32_v2(stream, small + 16, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemsetD32Async(large + 8, 77, 1, stream));
  OK(cuEventRecord(written, stream));
  CHECK(cuEventQuery(written) == CUDA_ERROR_NOT_READY);
  send(there[1], &offer, sizeof offer);
  usleep(50000);
  CUstream other;
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuStreamWriteValue32_v2(other, small + 16, 1, 0));
  OK(cuEventSynchronize(written));
  char done;
  receive(back[0], &done, 1);
  OK(cuEventSynchronize(answered));
  CHECK(word(small + 4) == 44 && word(large) == 55 && word(small + 8) == 77);
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
