// The inside of our libcudart.so.13: per-thread and per-device state, and how an entry point is
// written.
//
// Everything here is plain process memory that a snapshot saves with the process. What it keeps of
// the driver is what an application could keep: function pointers, contexts, libraries, kernels.
//
// Threads: every entry point may be called from any thread. Locks: registry and devices have one
// mutex each; the driver is called under them only while something is created the first time.
#pragma once

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "driver_api.h"

namespace simgpu::runtime {

inline constexpr int kRuntimeVersion = 13000;
inline constexpr int kMaxDevices = 64;
inline constexpr int kMaxPendingLaunches = 8;

class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Lock() { pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// One per thread, made at its first runtime call, freed when it ends.
struct ThreadState {
  int device;                 // chosen by cudaSetDevice, used when no context is current
  CUcontext bound;            // the primary context we made current on this thread, or null
  uint32_t bound_generation;  // and the generation of its device at that time
  cudaError_t last_error;
  uint32_t
      error_generation;  // of all devices, when last_error was set: a reset ends a sticky error
  int pending_count;     // between <<< >>> and the launch it belongs to
  LaunchConfiguration pending[kMaxPendingLaunches];
};
ThreadState* thread_state();

// CUresult and cudaError_t share their numbers since CUDA 10.1, but for a few driver-only values.
cudaError_t from_driver(CUresult result);
// Remembers a failure for cudaGetLastError and returns it. Every entry point ends with this.
cudaError_t done(cudaError_t error);

// The driver is loaded and initialised (35 without one, 100 without a device).
cudaError_t driver_ready();
// driver_ready(), and a context is current on this thread: the application's own or the device's
// primary one.
cudaError_t ready();

int device_count();
bool valid_device(int ordinal);
CUdevice device_of(int ordinal);
// The device of the current context, else the one this thread chose.
int current_device();
// The primary context of a device, retained once for the whole process.
cudaError_t primary_context(int ordinal, CUcontext* context);

// Finds the driver's kernel for a `func` argument: a host stub, a handle of __cudaGetKernel, or a
// cudaKernel_t. Loads the fat binary it lives in at first use.
cudaError_t find_kernel(const void* func, CUkernel* kernel);
// A cudaKernel_t that the application got from us may be passed back wherever a host stub may.
void remember_kernel(CUkernel kernel);
// The other way: the host stub of a function of the driver, or the cudaKernel_t for one that has no
// stub; cudaErrorInvalidDeviceFunction for a function that did not come from here.
cudaError_t find_stub(CUfunction function, void** func);
// The address and size of a __device__, __constant__ or __managed__ variable in the current
// context.
cudaError_t find_symbol(const void* symbol, CUdeviceptr* address, size_t* bytes);

// Size of an array's element; untouched for no array.
cudaError_t texel_bytes(cudaArray_t array, size_t* bytes);
// cudaMemcpy3D's parameters as the driver wants them.
cudaError_t describe_3d(const cudaMemcpy3DParms* parameters, CUDA_MEMCPY3D* copy);

inline CUdeviceptr device_ptr(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

// CUDART_API(cudaFoo, (int a, int b), (a, b)) { ...; return error; }   an entry point
// CUDART_API_PTSZ / _PTDS: the same with a per-thread default stream twin; the body says cu<F>().
#define CUDART_API(name, parameters, arguments)            \
  static cudaError_t name##_body parameters;               \
  extern "C" cudaError_t name parameters {                 \
    return ::simgpu::runtime::done(name##_body arguments); \
  }                                                        \
  static cudaError_t name##_body parameters
#define CUDART_API_PAIR(name, suffix, parameters, arguments)                              \
  template <::simgpu::runtime::Flavour F>                                                 \
  static cudaError_t name##_body parameters;                                              \
  extern "C" cudaError_t name parameters {                                                \
    return ::simgpu::runtime::done(name##_body<::simgpu::runtime::kLegacy> arguments);    \
  }                                                                                       \
  extern "C" cudaError_t name##suffix parameters {                                        \
    return ::simgpu::runtime::done(name##_body<::simgpu::runtime::kPerThread> arguments); \
  }                                                                                       \
  template <::simgpu::runtime::Flavour F>                                                 \
  static cudaError_t name##_body parameters
#define CUDART_API_PTSZ(name, parameters, arguments) \
  CUDART_API_PAIR(name, _ptsz, parameters, arguments)
#define CUDART_API_PTDS(name, parameters, arguments) \
  CUDART_API_PAIR(name, _ptds, parameters, arguments)

// Leaves the calling entry point with the error, if there is one.
#define CUDART_TRY(expression)                                                   \
  do {                                                                           \
    if (cudaError_t error_ = (expression); error_ != cudaSuccess) return error_; \
  } while (0)

}  // namespace simgpu::runtime
