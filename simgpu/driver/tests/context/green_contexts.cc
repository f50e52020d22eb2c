// Green contexts: a device's multiprocessors are split as asked, a green context is in its primary
// context, its streams are its own, and what is stale or out of place is an error.
#include "kernels.h"

namespace {

CUdevResource whole_device() {
  CUdevResource whole;
  OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
  return whole;
}

void splits() {
  CUdevResource whole = whole_device(), parts[4], rest;
  const unsigned all = whole.sm.smCount, least = whole.sm.minSmPartitionSize;
  CHECK(all >= 2 * least);
  unsigned count = 0;
  OK(cuDevSmResourceSplitByCount(nullptr, &count, &whole, nullptr, 0, 1));
  CHECK(count == all / least);
  count = 2;
  OK(cuDevSmResourceSplitByCount(parts, &count, &whole, &rest, 0, 1));
  CHECK(count == 2 && parts[0].sm.smCount == least && parts[1].sm.smCount == least);
  CHECK(rest.sm.smCount == all - 2 * least);
  CHECK(memcmp(&parts[0], &parts[1], sizeof parts[0]) != 0);
  count = 1;
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
         cuDevSmResourceSplitByCount(parts, &count, &whole, nullptr, 0, all + 1));
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
         cuDevSmResourceSplitByCount(&rest, &count, &parts[0], nullptr, 0, 1));
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_TYPE,
         cuDeviceGetDevResource(0, &rest, CU_DEV_RESOURCE_TYPE_INVALID));
  CUdevResourceDesc desc;
  CUdevResource twice[2] = {parts[0], parts[0]}, mixed[2] = {parts[0], whole}, forged = parts[0];
  memset(forged._internal_padding, 7, sizeof forged._internal_padding);
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&desc, twice, 2));
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&desc, mixed, 2));
  EXPECT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevResourceGenerateDesc(&desc, &forged, 1));
  OK(cuDevResourceGenerateDesc(&desc, parts, 2));
}

CUgreenCtx make(unsigned wanted) {
  CUdevResource whole = whole_device(), part;
  unsigned count = 1;
  OK(cuDevSmResourceSplitByCount(&part, &count, &whole, nullptr, 0, wanted));
  CUdevResourceDesc desc;
  OK(cuDevResourceGenerateDesc(&desc, &part, 1));
  CUgreenCtx green;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, desc, 0, 0));
  OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

}  // namespace

int main() {
  OK(cuInit(0));
  splits();
  CUgreenCtx green = make(8), other = make(16), told;
  unsigned flags;
  int active;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK(active == 1);
  CUcontext primary, converted, current;
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  OK(cuCtxFromGreenCtx(&converted, green));
  CHECK(converted != primary);
  OK(cuCtxSetCurrent(converted));
  OK(cuCtxGetCurrent(&current));
  CHECK(current == converted);
  CUdevResource mine;
  OK(cuCtxGetDevResource(converted, &mine, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(mine.sm.smCount == 8);
  OK(cuGreenCtxGetDevResource(other, &mine, CU_DEV_RESOURCE_TYPE_SM));
  CHECK(mine.sm.smCount == 16);
  CUdevResource half[2];
  unsigned count = 2;
  OK(cuDevSmResourceSplitByCount(half, &count, &mine, nullptr, 0, 8));
  CHECK(count == 2);
  unsigned long long id, other_id;
  OK(cuGreenCtxGetId(nullptr, &id));
  OK(cuGreenCtxGetId(other, &other_id));
  CHECK(id != other_id);

  // Memory and code are the primary context's; streams know where they are.
  CUmodule module = load(kKernels);
  CUdeviceptr p;
  OK(cuMemAlloc(&p, 1024));
  CUstream a, b, plain;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&a, green, 0, 0));
  OK(cuGreenCtxStreamCreate(&a, green, CU_STREAM_NON_BLOCKING, 0));
  OK(cuGreenCtxStreamCreate(&b, other, CU_STREAM_NON_BLOCKING, 0));
  OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
  OK(cuStreamGetGreenCtx(a, &told));
  CHECK(told == green);
  OK(cuStreamGetGreenCtx(plain, &told));
  CHECK(told == green);
  OK(cuStreamGetGreenCtx(nullptr, &told));
  CHECK(told == green);
  OK(cuStreamGetCtx_v2(b, &current, &told));
  CHECK(current == primary && told == other);
  OK(cuStreamGetCtx(b, &current));
  CHECK(current != primary && current != converted);
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(CU_STREAM_PER_THREAD));
  OK(cuCtxSetCurrent(primary));
  OK(cuStreamGetGreenCtx(nullptr, &told));
  CHECK(told == nullptr);

  // An event of a green context is behind all its streams' work; waiting holds all of them.
  uint32_t* flag;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4, 0));
  *flag = 0;
  CUevent event, late;
  OK(cuEventCreate(&event, 0));
  OK(cuEventCreate(&late, 0));
  OK(launch1(function(module, "spin"), 1, 1, a, reinterpret_cast<CUdeviceptr>(flag)));
  OK(cuGreenCtxRecordEvent(green, event));
  OK(cuGreenCtxWaitEvent(other, event));
  CUstream after;
  OK(cuGreenCtxStreamCreate(&after, other, CU_STREAM_NON_BLOCKING, 0));
  OK(launch1(function(module, "fill"), 1, 32, b, p, 5, 32));
  OK(launch1(function(module, "fill"), 1, 32, after, p + 128, 6, 32));
  OK(cuEventRecord(late, after));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
  EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(late));
  __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
  OK(cuEventSynchronize(late));
  OK(cuStreamSynchronize(b));
  uint32_t got[64];
  OK(cuMemcpyDtoH(got, p, sizeof got));
  CHECK(got[0] == 5 && got[31] == 5 && got[32] == 6);

  // The end.
  OK(cuCtxSetCurrent(converted));
  OK(cuStreamDestroy(plain));
  OK(cuGreenCtxDestroy(green));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery(a));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy(a));
  EXPECT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 16));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(converted));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxFromGreenCtx(&converted, green));
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
  OK(cuCtxSetCurrent(primary));
  OK(cuGreenCtxDestroy(other));
  OK(cuDevicePrimaryCtxRelease(0));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  CHECK(active == 0);
  return ok();
}
