// Initialisation, contexts and errors: see runtime.h.
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>

#include <atomic>

namespace simgpu::runtime {
namespace {

struct Device {
  CUdevice device;
  CUcontext primary;
  bool retained;
  std::atomic<uint32_t> generation;  // +1 at every reset
};

pthread_mutex_t g_devices_mutex = PTHREAD_MUTEX_INITIALIZER;
std::atomic<bool> g_initialised;
bool g_driver_loaded;
int g_device_count;
Device g_devices[kMaxDevices];
std::atomic<uint32_t> g_resets;

pthread_once_t g_key_once = PTHREAD_ONCE_INIT;
pthread_key_t g_key;
ThreadState g_emergency_state;  // shared by threads for which there is no memory

void make_key() { pthread_key_create(&g_key, free); }

cudaError_t initialise() {
  Lock lock(&g_devices_mutex);
  if (g_initialised.load(std::memory_order_relaxed)) return cudaSuccess;
  if (!g_driver_loaded) {
    if (!load_driver_api()) return cudaErrorInsufficientDriver;
    g_driver_loaded = true;
  }
  int version = 0;
  CUDART_TRY(from_driver(cu().cuDriverGetVersion(&version)));
  if (version < kRuntimeVersion) return cudaErrorInsufficientDriver;
  CUDART_TRY(from_driver(cu().cuInit(0)));
  int count = 0;
  CUDART_TRY(from_driver(cu().cuDeviceGetCount(&count)));
  if (count == 0) return cudaErrorNoDevice;
  if (count > kMaxDevices) count = kMaxDevices;
  for (int i = 0; i < count; ++i) {
    CUDART_TRY(from_driver(cu().cuDeviceGet(&g_devices[i].device, i)));
  }
  g_device_count = count;
  g_initialised.store(true, std::memory_order_release);
  return cudaSuccess;
}

// Makes the primary context of the thread's device current.
cudaError_t bind(ThreadState* thread) {
  CUcontext context = nullptr;
  CUDART_TRY(primary_context(thread->device, &context));
  CUDART_TRY(from_driver(cu().cuCtxSetCurrent(context)));
  thread->bound = context;
  thread->bound_generation = g_devices[thread->device].generation.load();
  return cudaSuccess;
}

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

}  // namespace

ThreadState* thread_state() {
  pthread_once(&g_key_once, make_key);
  auto* state = static_cast<ThreadState*>(pthread_getspecific(g_key));
  if (state) return state;
  state = static_cast<ThreadState*>(calloc(1, sizeof(ThreadState)));
  if (!state) return &g_emergency_state;
  pthread_setspecific(g_key, state);
  return state;
}

cudaError_t from_driver(CUresult result) {
  switch (result) {
    case CUDA_ERROR_CONTEXT_ALREADY_CURRENT:
      return cudaErrorUnknown;
    case CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE:
      return cudaErrorSetOnActiveProcess;
    default:
      return static_cast<cudaError_t>(result);
  }
}

cudaError_t done(cudaError_t error) {
  if (error != cudaSuccess) {
    ThreadState* thread = thread_state();
    thread->last_error = error;
    thread->error_generation = g_resets.load();
  }
  return error;
}

cudaError_t driver_ready() {
  if (g_initialised.load(std::memory_order_acquire)) return cudaSuccess;
  return initialise();
}

cudaError_t ready() {
  CUDART_TRY(driver_ready());
  ThreadState* thread = thread_state();
  CUcontext current = nullptr;
  CUDART_TRY(from_driver(cu().cuCtxGetCurrent(&current)));
  if (!current) return bind(thread);
  // Another thread may have reset the device whose primary context we had bound here.
  if (current == thread->bound &&
      thread->bound_generation != g_devices[thread->device].generation.load()) {
    return bind(thread);
  }
  return cudaSuccess;
}

int device_count() { return g_device_count; }
bool valid_device(int ordinal) { return ordinal >= 0 && ordinal < g_device_count; }
CUdevice device_of(int ordinal) { return g_devices[ordinal].device; }

int current_device() {
  CUcontext current = nullptr;
  CUdevice device;
  if (cu().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
      cu().cuCtxGetDevice(&device) == CUDA_SUCCESS) {
    for (int i = 0; i < g_device_count; ++i) {
      if (g_devices[i].device == device) return i;
    }
  }
  return thread_state()->device;
}

cudaError_t primary_context(int ordinal, CUcontext* context) {
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  Lock lock(&g_devices_mutex);
  Device& device = g_devices[ordinal];
  if (!device.retained) {
    CUDART_TRY(from_driver(cu().cuDevicePrimaryCtxRetain(&device.primary, device.device)));
    device.retained = true;
  }
  *context = device.primary;
  return cudaSuccess;
}

}  // namespace simgpu::runtime

using namespace simgpu::runtime;

CUDART_API(cudaSetDevice, (int ordinal), (ordinal)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  ThreadState* thread = thread_state();
  thread->device = ordinal;
  return bind(thread);
}

CUDART_API(cudaInitDevice, (int ordinal, unsigned flags, unsigned device_flags_valid),
           (ordinal, flags, device_flags_valid)) {
  CUDART_TRY(driver_ready());
  if (!valid_device(ordinal)) return cudaErrorInvalidDevice;
  if (device_flags_valid & cudaInitDeviceFlagsAreValid) {
    CUDART_TRY(from_driver(
        cu().cuDevicePrimaryCtxSetFlags(device_of(ordinal), flags & ~unsigned{cudaDeviceMapHost})));
  }
  CUcontext context;
  return primary_context(ordinal, &context);
}

CUDART_API(cudaGetDevice, (int* ordinal), (ordinal)) {
  CUDART_TRY(driver_ready());
  if (!ordinal) return cudaErrorInvalidValue;
  *ordinal = current_device();
  return cudaSuccess;
}

CUDART_API(cudaGetDeviceCount, (int* count), (count)) {
  if (!count) return cudaErrorInvalidValue;
  *count = 0;
  CUDART_TRY(driver_ready());
  *count = device_count();
  return cudaSuccess;
}

// The driver keeps our reference to the primary context across a reset; we give it up, so that the
// next call on any thread starts with a new one.
CUDART_API(cudaDeviceReset, (), ()) {
  CUDART_TRY(driver_ready());
  int ordinal = current_device();
  Lock lock(&g_devices_mutex);
  Device& device = g_devices[ordinal];
  CUresult result = cu().cuDevicePrimaryCtxReset(device.device);
  if (device.retained) {
    CUcontext current = nullptr;
    cu().cuCtxGetCurrent(&current);
    if (current == device.primary) cu().cuCtxSetCurrent(nullptr);
    cu().cuDevicePrimaryCtxRelease(device.device);
    device.retained = false;
    device.generation.fetch_add(1);
  }
  ThreadState* thread = thread_state();
  thread->bound = nullptr;
  thread->last_error = cudaSuccess;
  g_resets.fetch_add(1);
  return from_driver(result);
}

CUDART_API(cudaSetDeviceFlags, (unsigned flags), (flags)) {
  CUDART_TRY(driver_ready());
  return from_driver(cu().cuDevicePrimaryCtxSetFlags(device_of(current_device()),
                                                     flags & ~unsigned{cudaDeviceMapHost}));
}

CUDART_API(cudaGetDeviceFlags, (unsigned* flags), (flags)) {
  CUDART_TRY(driver_ready());
  if (!flags) return cudaErrorInvalidValue;
  int active = 0;
  CUDART_TRY(
      from_driver(cu().cuDevicePrimaryCtxGetState(device_of(current_device()), flags, &active)));
  *flags |= cudaDeviceMapHost;  // always possible with unified addressing
  return cudaSuccess;
}

CUDART_API(cudaDeviceSynchronize, (), ()) {
  CUDART_TRY(ready());
  return from_driver(cu().cuCtxSynchronize());
}

CUDART_API(cudaDriverGetVersion, (int* version), (version)) {
  if (!version) return cudaErrorInvalidValue;
  *version = 0;
  cudaError_t error = driver_ready();
  if (error == cudaErrorInsufficientDriver && !g_driver_loaded) return cudaSuccess;
  return from_driver(cu().cuDriverGetVersion(version));
}

CUDART_API(cudaRuntimeGetVersion, (int* version), (version)) {
  if (!version) return cudaErrorInvalidValue;
  *version = kRuntimeVersion;
  return cudaSuccess;
}

// Errors that broke the context stay until the device is reset; others are handed out once.
extern "C" cudaError_t cudaGetLastError() {
  ThreadState* thread = thread_state();
  cudaError_t error = thread->last_error;
  if (!is_sticky(error) || thread->error_generation != g_resets.load()) {
    thread->last_error = cudaSuccess;
  }
  return error;
}

extern "C" cudaError_t cudaPeekAtLastError() { return thread_state()->last_error; }
