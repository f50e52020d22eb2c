// Green contexts over several generations: the device is split as it was, streams are where they
// were, resources and descriptors that the program kept as bytes still mean the same; a split that
// would come out otherwise is refused.
#include "device/tests/life.h"

#include <initializer_list>

#include "intercept/generated/real_driver.h"

namespace {

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry spin_then_set(.param .u64 flag, .param .u64 out, .param .u32 value) {
  .reg .b32 %r<3>; .reg .b64 %d<3>; .reg .pred %p;
  ld.param.u64 %d1, [flag]; ld.param.u64 %d2, [out]; ld.param.u32 %r2, [value];
again: ld.volatile.global.u32 %r1, [%d1]; setp.eq.u32 %p, %r1, 0; @%p bra again;
  st.global.u32 [%d2], %r2; ret;
}
)";

CUdevResource whole, parts[2], rest, inner[2];
CUdevResourceDesc desc, spare;
CUgreenCtx green, nested;
CUcontext converted;
CUstream own, plain, deep;
CUmodule module;
CUfunction set;
CUdeviceptr memory;
uint32_t* flag;
uint32_t value = 10;

void make() {
  OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
  unsigned count = 1;
  OK(cuDevSmResourceSplitByCount(parts, &count, &whole, &rest, 0, 16));
  CHECK(count == 1 && parts[0].sm.smCount == 16 && rest.sm.smCount == 8);
  OK(cuDevResourceGenerateDesc(&desc, parts, 1));
  OK(cuDevResourceGenerateDesc(&spare, &rest, 1));
  OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuCtxFromGreenCtx(&converted, green));
  OK(cuCtxSetCurrent(converted));
  // A part of a part.
  CUdevResource mine;
  OK(cuGreenCtxGetDevResource(green, &mine, CU_DEV_RESOURCE_TYPE_SM));
  count = 2;
  OK(cuDevSmResourceSplitByCount(inner, &count, &mine, nullptr, 0, 8));
  CHECK(count == 2);
  CUdevResourceDesc half;
  OK(cuDevResourceGenerateDesc(&half, inner + 1, 1));
  OK(cuGreenCtxCreate(&nested, half, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuGreenCtxStreamCreate(&own, green, CU_STREAM_NON_BLOCKING, -2));
  OK(cuGreenCtxStreamCreate(&deep, nested, CU_STREAM_NON_BLOCKING, 0));
  OK(cuStreamCreate(&plain, 0));
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&set, module, "spin_then_set"));
  OK(cuMemAlloc_v2(&memory, 4096));
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4, 0));
  *flag = 1;
}

void launch(CUstream stream, CUdeviceptr out) {
  auto at = reinterpret_cast<CUdeviceptr>(flag);
  ++value;
  void* arguments[] = {&at, &out, &value};
  OK(cuLaunchKernel(set, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
}
uint32_t word(CUdeviceptr at) {
  uint32_t v;
  OK(cuMemcpyDtoH_v2(&v, at, 4));
  return v;
}

void check() {
  CUcontext current;
  CUgreenCtx told;
  OK(cuCtxGetCurrent(&current));
  CHECK(current == converted);
  OK(cuCtxFromGreenCtx(&current, green));
  CHECK(current == converted);
  for (CUstream s : {own, plain, static_cast<CUstream>(nullptr)}) {
    OK(cuStreamGetGreenCtx(s, &told));
    CHECK(told == green);
  }
  OK(cuStreamGetGreenCtx(deep, &told));
  CHECK(told == nested);
  int priority;
  unsigned flags;
  OK(cuStreamGetPriority(own, &priority));
  CHECK(priority == -2);
  OK(cuStreamGetFlags(plain, &flags));
  CHECK(flags == 0);
  CUdevResource mine;
  OK(cuGreenCtxGetDevResource(nested, &mine, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(mine.sm.smCount == 8);
  for (CUstream s : {own, plain, deep, static_cast<CUstream>(nullptr)}) {
    launch(s, memory);
    OK(cuStreamSynchronize(s));
    CHECK(word(memory) == value);
  }
  // What the program kept as bytes, or as a descriptor, can be used still.
  unsigned count = 1;
  CUdevResource again;
  OK(cuDevSmResourceSplitByCount(&again, &count, &whole, nullptr, 0, 8));
  CUdevResourceDesc late;
  OK(cuDevResourceGenerateDesc(&late, &rest, 1));
  CUgreenCtx brief[2];
  OK(cuGreenCtxCreate(&brief[0], late, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuGreenCtxCreate(&brief[1], spare, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuGreenCtxGetDevResource(brief[1], &mine, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(mine.sm.smCount == 8);
  for (CUgreenCtx g : brief) OK(cuGreenCtxDestroy(g));
  CUevent event;
  OK(cuEventCreate(&event, 0));
  OK(cuGreenCtxRecordEvent(green, event));
  OK(cuGreenCtxWaitEvent(nested, event));
  OK(cuEventSynchronize(event));
  OK(cuEventDestroy_v2(event));
}

// A green context's default stream is busy: a snapshot waits, and gives up in the end.
void busy_default_stream() {
  *flag = 0;
  launch(nullptr, memory);
  gpuckpt::DeviceReport report = {};
  bool ok = true;
  std::thread([&] { ok = gpuckpt::device_plugin->freeze(100, now_ms() + 300, &report); }).join();
  CHECK(!ok && report.code == gpuckpt::kExitTimeout);
  __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
  OK(cuStreamSynchronize(nullptr));
}

}  // namespace

int main() {
  alarm(100);
  OK(cuInit(0));
  make();
  check();
  busy_default_stream();
  for (unsigned generation = 1; generation <= 3; ++generation) {
    next_generation();
    CHECK(gpuckpt::generation() == generation);
    check();
  }
  setenv("SIMGPU_PART", "12", 1);
  next_generation("cuDevSmResourceSplitByCount");
  unsetenv("SIMGPU_PART");
  // What has ended stays so, and is not missed.
  OK(cuStreamDestroy_v2(deep));
  OK(cuGreenCtxDestroy(nested));
  OK(cuCtxSetCurrent(nullptr));
  OK(cuStreamDestroy_v2(own));
  OK(cuStreamDestroy_v2(plain));
  OK(cuGreenCtxDestroy(green));
  next_generation();
  unsigned flags;
  int active;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK(active == 0);
  CHECK(cuGreenCtxDestroy(green) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxSetCurrent(converted) == CUDA_ERROR_INVALID_CONTEXT);
  // A part that outlives the whole it came from cannot be made again.
  make();
  OK(cuGreenCtxDestroy(green));
  refused(gpuckpt::kExitRefused, "outlives");
  fprintf(stderr, "generation %u PASS\n", gpuckpt::generation());
  _exit(0);
}
