// Makes the Nth call that the device side makes of the driver fail, whatever call it is.
//
// Owner: process-wide, the test's. Threads: any; arm() before the calls. Errors: CUDA's, from the
// call that fails.
#pragma once

#include <atomic>

#include "intercept/generated/real_driver.h"

namespace faults {

// Calls counted since `arm`; the `at`th fails (0: none).
inline std::atomic<long> count, at;
inline std::atomic<const char*> failed;  // which

inline void arm(long n) {
  count = 0;
  failed = nullptr;
  at = n;
}

template <auto Slot, typename F>
struct Fault;
template <auto Slot, typename... A>
struct Fault<Slot, CUresult (*)(A...)> {
  static inline CUresult (*next)(A...);
  static inline const char* name;
  static CUresult call(A... arguments) {
    if (at && ++count == at) {
      failed = name;
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return next(arguments...);
  }
};

template <auto Slot>
void install(gpuckpt::RealDriver& driver, const char* name) {
  using F = Fault<Slot, std::remove_reference_t<decltype(driver.*Slot)>>;
  F::name = name;
  F::next = driver.*Slot;
  driver.*Slot = F::call;
}

// Every call that capture and restore make and that can fail of itself. (Not: destroying, popping
// what was pushed, asking for names of errors.)
inline void install_all() {
  auto& driver = const_cast<gpuckpt::RealDriver&>(gpuckpt::real());
#define FAULT(symbol) install<&gpuckpt::RealDriver::symbol>(driver, #symbol)
  FAULT(cuCheckpointProcessCheckpoint);
  FAULT(cuCheckpointProcessLock);
  FAULT(cuCheckpointProcessRestore);
  FAULT(cuCheckpointProcessUnlock);
  FAULT(cuCtxCreate_v2);
  FAULT(cuCtxEnablePeerAccess);
  FAULT(cuCtxGetCacheConfig);
  FAULT(cuCtxGetLimit);
  FAULT(cuCtxGetStreamPriorityRange);
  FAULT(cuCtxPushCurrent_v2);
  FAULT(cuCtxSetCacheConfig);
  FAULT(cuCtxSetLimit);
  FAULT(cuDeviceGetDefaultMemPool);
  FAULT(cuDevicePrimaryCtxGetState);
  FAULT(cuDevicePrimaryCtxRetain);
  FAULT(cuEventCreate);
  FAULT(cuEventElapsedTime);
  FAULT(cuEventQuery);
  FAULT(cuEventRecord);
  FAULT(cuEventSynchronize);
  FAULT(cuFuncSetAttribute);
  FAULT(cuInit);
  FAULT(cuKernelGetFunction);
  FAULT(cuKernelSetAttribute);
  FAULT(cuLaunchKernel);
  FAULT(cuLibraryGetGlobal);
  FAULT(cuLibraryGetKernel);
  FAULT(cuLibraryGetModule);
  FAULT(cuLibraryLoadData);
  FAULT(cuMemAddressReserve);
  FAULT(cuMemAlloc_v2);
  FAULT(cuMemCreate);
  FAULT(cuMemExportToShareableHandle);
  FAULT(cuMemGetInfo_v2);
  FAULT(cuMemHostGetDevicePointer_v2);
  FAULT(cuMemHostRegister_v2);
  FAULT(cuMemImportFromShareableHandle);
  FAULT(cuMemMap);
  FAULT(cuMemPoolCreate);
  FAULT(cuMemPoolSetAccess);
  FAULT(cuMemPoolSetAttribute);
  FAULT(cuMemRetainAllocationHandle);
  FAULT(cuMemSetAccess);
  FAULT(cuMemcpyDtoDAsync_v2);
  FAULT(cuMemcpyDtoHAsync_v2);
  FAULT(cuMemcpyHtoDAsync_v2);
  FAULT(cuMemcpyHtoD_v2);
  FAULT(cuMemsetD8_v2);
  FAULT(cuModuleGetFunction);
  FAULT(cuModuleGetGlobal_v2);
  FAULT(cuModuleLoadData);
  FAULT(cuModuleLoadDataEx);
  FAULT(cuStreamCreate);
  FAULT(cuStreamCreateWithPriority);
  FAULT(cuStreamQuery);
  FAULT(cuStreamSynchronize);
#undef FAULT
}

}  // namespace faults
