// What nvcc's host code registers: fat binaries, their kernels and variables; and the launches it
// makes with them.
//
// A fat binary becomes a CUlibrary at the first use of anything in it; libraries and kernels belong
// to no context, so one load serves every device. Registration itself makes no driver call.
#include <pthread.h>
#include <stdlib.h>

#include <atomic>

#include "pointer_map.h"
#include "runtime.h"

namespace simgpu::runtime {
namespace {

struct Binary;

struct Kernel {
  Kernel* next;
  Binary* binary;
  const void* stub;
  const char* name;
  std::atomic<CUkernel> handle;
};

struct Variable {
  Variable* next;
  Binary* binary;
  const void* shadow;  // the host object standing for it
  const char* name;
  size_t bytes;
  void** managed;  // where host code keeps the address of a __managed__ variable, else null
};

struct Binary {
  const void* image;
  Kernel* kernels;
  Variable* variables;
  std::atomic<CUlibrary> library;
};

pthread_mutex_t g_map_mutex = PTHREAD_MUTEX_INITIALIZER;  // the maps; never held over a driver call
PointerMap<Kernel> g_kernels_by_stub;
PointerMap<Kernel> g_kernels;       // the records themselves, as handed out by __cudaGetKernel
PointerMap<void> g_driver_kernels;  // cudaKernel_t handed out
PointerMap<Variable> g_variables;
pthread_mutex_t g_load_mutex = PTHREAD_MUTEX_INITIALIZER;

template <typename T>
T* make() {
  return static_cast<T*>(calloc(1, sizeof(T)));
}

// Host code reads __managed__ variables through pointers that we fill when their binary is loaded.
cudaError_t fill_managed(Binary* binary, CUlibrary library) {
  for (Variable* v = binary->variables; v; v = v->next) {
    if (!v->managed) continue;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CUDART_TRY(from_driver(cu().cuLibraryGetManaged(&address, &bytes, library, v->name)));
    *v->managed = reinterpret_cast<void*>(address);
    Lock lock(&g_map_mutex);
    g_variables.put(*v->managed, v);
  }
  return cudaSuccess;
}

cudaError_t load(Binary* binary, CUlibrary* library) {
  *library = binary->library.load(std::memory_order_acquire);
  if (*library) return cudaSuccess;
  Lock lock(&g_load_mutex);
  *library = binary->library.load(std::memory_order_relaxed);
  if (*library) return cudaSuccess;
  CUDART_TRY(from_driver(
      cu().cuLibraryLoadData(library, binary->image, nullptr, nullptr, 0, nullptr, nullptr, 0)));
  if (cudaError_t error = fill_managed(binary, *library); error != cudaSuccess) {
    cu().cuLibraryUnload(*library);
    return error;
  }
  binary->library.store(*library, std::memory_order_release);
  return cudaSuccess;
}

cudaError_t load(Kernel* kernel, CUkernel* handle) {
  *handle = kernel->handle.load(std::memory_order_acquire);
  if (*handle) return cudaSuccess;
  CUlibrary library;
  CUDART_TRY(load(kernel->binary, &library));
  CUresult result = cu().cuLibraryGetKernel(handle, library, kernel->name);
  if (result == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
  CUDART_TRY(from_driver(result));
  kernel->handle.store(*handle, std::memory_order_release);
  return cudaSuccess;
}

// An INVALID_VALUE of a launch is the runtime's "invalid configuration" when the dimensions are to
// blame.
bool dimensions_allowed(dim3 grid, dim3 block) {
  CUdevice device = device_of(current_device());
  auto limit = [&](CUdevice_attribute attribute) -> uint64_t {
    int value = 0;
    cu().cuDeviceGetAttribute(&value, attribute, device);
    return static_cast<uint64_t>(value);
  };
  auto fits = [&](uint64_t dimension, CUdevice_attribute attribute) {
    return dimension > 0 && dimension <= limit(attribute);
  };
  return fits(grid.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) &&
         fits(grid.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) &&
         fits(grid.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) &&
         fits(block.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) &&
         fits(block.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) &&
         fits(block.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) &&
         fits(uint64_t{block.x} * block.y * block.z, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
}

cudaError_t launch_result(CUresult result, dim3 grid, dim3 block) {
  if (result == CUDA_ERROR_INVALID_VALUE && !dimensions_allowed(grid, block)) {
    return cudaErrorInvalidConfiguration;
  }
  return from_driver(result);
}

// The launch calls take kernels where they take functions.
CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

template <Flavour F>
cudaError_t launch(CUkernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                   cudaStream_t stream) {
  CUresult result =
      cu<F>().cuLaunchKernel(as_function(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             static_cast<unsigned>(shared_bytes), stream, arguments, nullptr);
  return launch_result(result, grid, block);
}

}  // namespace

cudaError_t find_kernel(const void* func, CUkernel* handle) {
  Kernel* kernel;
  {
    Lock lock(&g_map_mutex);
    kernel = g_kernels_by_stub.get(func);
    if (!kernel) kernel = g_kernels.get(func);
    if (!kernel && g_driver_kernels.get(func)) {
      *handle = reinterpret_cast<CUkernel>(const_cast<void*>(func));
      return cudaSuccess;
    }
  }
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  return load(kernel, handle);
}

void remember_kernel(CUkernel kernel) {
  Lock lock(&g_map_mutex);
  g_driver_kernels.put(kernel, kernel);
}

cudaError_t find_stub(CUfunction function, void** func) {
  struct Candidate {
    CUkernel handle;
    const void* func;
  };
  Candidate* candidates = nullptr;
  size_t count = 0, room = 0;
  // Only what is loaded can be meant. Copied, as the driver is not called under the lock.
  auto add = [&](CUkernel handle, const void* what) {
    if (!handle) return;
    if (count == room) {
      room = room == 0 ? 64 : 2 * room;
      void* more = realloc(candidates, room * sizeof(Candidate));
      if (!more) {
        room = count;
        return;
      }
      candidates = static_cast<Candidate*>(more);
    }
    candidates[count++] = {handle, what};
  };
  {
    Lock lock(&g_map_mutex);
    g_kernels_by_stub.each([&](const void* stub, Kernel* kernel) {
      add(kernel->handle.load(std::memory_order_acquire), stub);
    });
    g_driver_kernels.each(
        [&](const void* key, void* kernel) { add(static_cast<CUkernel>(kernel), key); });
  }
  *func = nullptr;
  for (size_t i = 0; i < count && !*func; ++i) {
    CUfunction own = nullptr;
    if (cu().cuKernelGetFunction(&own, candidates[i].handle) == CUDA_SUCCESS && own == function)
      *func = const_cast<void*>(candidates[i].func);
  }
  free(candidates);
  return *func ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t find_symbol(const void* symbol, CUdeviceptr* address, size_t* bytes) {
  Variable* variable;
  {
    Lock lock(&g_map_mutex);
    variable = g_variables.get(symbol);
  }
  if (!variable) return cudaErrorInvalidSymbol;
  CUlibrary library;
  CUDART_TRY(load(variable->binary, &library));
  CUresult result = variable->managed
                        ? cu().cuLibraryGetManaged(address, bytes, library, variable->name)
                        : cu().cuLibraryGetGlobal(address, bytes, library, variable->name);
  if (result == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidSymbol;
  return from_driver(result);
}

}  // namespace simgpu::runtime

using namespace simgpu::runtime;

// -------------------------------------------------------------------------------------
// registration

extern "C" void** __cudaRegisterFatBinary(void* image) {
  Binary* binary = make<Binary>();
  if (binary) binary->image = image;
  return reinterpret_cast<void**>(binary);
}

extern "C" void __cudaRegisterFatBinaryEnd(void**) {}

extern "C" void __cudaUnregisterFatBinary(void** handle) {
  auto* binary = reinterpret_cast<Binary*>(handle);
  if (!binary) return;
  {
    Lock lock(&g_map_mutex);
    for (Kernel *kernel = binary->kernels, *next; kernel; kernel = next) {
      next = kernel->next;
      g_kernels_by_stub.drop(kernel->stub, kernel);
      g_kernels.drop(kernel, kernel);
      free(kernel);
    }
    for (Variable *variable = binary->variables, *next; variable; variable = next) {
      next = variable->next;
      g_variables.drop(variable->shadow, variable);
      if (variable->managed) g_variables.drop(*variable->managed, variable);
      free(variable);
    }
  }
  CUlibrary library = binary->library.load();
  if (library) cu().cuLibraryUnload(library);
  free(binary);
}

extern "C" void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* name,
                                       int, uint3*, uint3*, dim3*, dim3*, int*) {
  auto* binary = reinterpret_cast<Binary*>(handle);
  Kernel* kernel = make<Kernel>();
  if (!binary || !kernel) return free(kernel);
  kernel->next = binary->kernels;
  kernel->binary = binary;
  kernel->stub = stub;
  kernel->name = name;
  binary->kernels = kernel;
  Lock lock(&g_map_mutex);
  g_kernels_by_stub.put(stub, kernel);
  g_kernels.put(kernel, kernel);
}

static void register_variable(void** handle, const void* shadow, const char* name, size_t bytes,
                              void** managed) {
  auto* binary = reinterpret_cast<Binary*>(handle);
  Variable* variable = make<Variable>();
  if (!binary || !variable) return free(variable);
  *variable = {binary->variables, binary, shadow, name, bytes, managed};
  binary->variables = variable;
  Lock lock(&g_map_mutex);
  g_variables.put(shadow, variable);
}

extern "C" void __cudaRegisterVar(void** handle, char* shadow, char*, const char* name, int,
                                  size_t bytes, int, int) {
  register_variable(handle, shadow, name, bytes, nullptr);
}

extern "C" void __cudaRegisterManagedVar(void** handle, void** pointer, char*, const char* name,
                                         int, size_t bytes, int, int) {
  register_variable(handle, pointer, name, bytes, pointer);
}

// Called by host code before it touches its first __managed__ variable; asked again while the
// answer is 0.
extern "C" char __cudaInitModule(void** handle) {
  auto* binary = reinterpret_cast<Binary*>(handle);
  CUlibrary library;
  cudaError_t error = ready();
  if (error == cudaSuccess && binary) error = load(binary, &library);
  return done(error) == cudaSuccess;
}

// ------------------------------------------------------------------------------------------
// launches

extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                cudaStream_t stream) {
  ThreadState* thread = thread_state();
  if (thread->pending_count == kMaxPendingLaunches) return 1;
  thread->pending[thread->pending_count++] = {grid, block, shared_bytes, stream};
  return 0;
}

extern "C" cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                                  void* stream) {
  ThreadState* thread = thread_state();
  if (thread->pending_count == 0) return done(cudaErrorMissingConfiguration);
  const LaunchConfiguration& top = thread->pending[--thread->pending_count];
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

// Host code asks once and keeps the answer for ever, so this needs no driver: the handle is our own
// record.
extern "C" cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* stub) {
  Lock lock(&g_map_mutex);
  Kernel* kernel = g_kernels_by_stub.get(stub);
  if (!kernel) return done(cudaErrorInvalidDeviceFunction);
  *handle = reinterpret_cast<cudaKernel_t>(kernel);
  return cudaSuccess;
}

CUDART_API_PTSZ(__cudaLaunchKernel,
                (cudaKernel_t handle, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                 cudaStream_t stream),
                (handle, grid, block, arguments, shared_bytes, stream)) {
  if (!handle) return cudaErrorInvalidDeviceFunction;
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(load(reinterpret_cast<Kernel*>(handle), &kernel));
  return launch<F>(kernel, grid, block, arguments, shared_bytes, stream);
}

CUDART_API_PTSZ(cudaLaunchKernel,
                (const void* func, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                 cudaStream_t stream),
                (func, grid, block, arguments, shared_bytes, stream)) {
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  return launch<F>(kernel, grid, block, arguments, shared_bytes, stream);
}

CUDART_API_PTSZ(cudaLaunchCooperativeKernel,
                (const void* func, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                 cudaStream_t stream),
                (func, grid, block, arguments, shared_bytes, stream)) {
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  CUresult result = cu<F>().cuLaunchCooperativeKernel(
      as_function(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
      static_cast<unsigned>(shared_bytes), stream, arguments);
  return launch_result(result, grid, block);
}

// The attribute structs of the two APIs are the same bytes under two names.
static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));

static CUlaunchConfig as_driver_config(const cudaLaunchConfig_t& config) {
  CUlaunchConfig out = {};
  out.gridDimX = config.gridDim.x;
  out.gridDimY = config.gridDim.y;
  out.gridDimZ = config.gridDim.z;
  out.blockDimX = config.blockDim.x;
  out.blockDimY = config.blockDim.y;
  out.blockDimZ = config.blockDim.z;
  out.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
  out.hStream = config.stream;
  out.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
  out.numAttrs = config.numAttrs;
  return out;
}

CUDART_API_PTSZ(cudaLaunchKernelExC,
                (const cudaLaunchConfig_t* config, const void* func, void** arguments),
                (config, func, arguments)) {
  if (!config) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  CUlaunchConfig driver_config = as_driver_config(*config);
  CUresult result =
      cu<F>().cuLaunchKernelEx(&driver_config, as_function(kernel), arguments, nullptr);
  return launch_result(result, config->gridDim, config->blockDim);
}

// ------------------------------------------------------------------------- kernels: names,
// attributes

CUDART_API(cudaGetKernel, (cudaKernel_t * out, const void* stub), (out, stub)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUDART_TRY(find_kernel(stub, out));
  remember_kernel(*out);
  return cudaSuccess;
}

CUDART_API(cudaGetFuncBySymbol, (cudaFunction_t * out, const void* stub), (out, stub)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(stub, &kernel));
  return from_driver(cu().cuKernelGetFunction(out, kernel));
}

CUDART_API(cudaFuncGetAttributes, (cudaFuncAttributes * out, const void* func), (out, func)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  CUdevice device = device_of(current_device());
  CUresult result = CUDA_SUCCESS;
  auto get = [&](CUfunction_attribute attribute) {
    int value = 0;
    if (result == CUDA_SUCCESS)
      result = cu().cuKernelGetAttribute(&value, attribute, kernel, device);
    return value;
  };
  *out = {};
  out->sharedSizeBytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  out->constSizeBytes = get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
  out->localSizeBytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  out->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  out->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
  out->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
  out->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
  out->cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
  out->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  out->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
  out->clusterDimMustBeSet = get(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
  out->requiredClusterWidth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
  out->requiredClusterHeight = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
  out->requiredClusterDepth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
  out->clusterSchedulingPolicyPreference =
      get(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
  out->nonPortableClusterSizeAllowed = get(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
  return from_driver(result);
}

static cudaError_t set_attribute(const void* func, cudaFuncAttribute attribute, int value,
                                 int device) {
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  return from_driver(cu().cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value,
                                               kernel, device_of(device)));
}

CUDART_API(cudaFuncSetAttribute, (const void* func, cudaFuncAttribute attribute, int value),
           (func, attribute, value)) {
  CUDART_TRY(ready());
  return set_attribute(func, attribute, value, current_device());
}

CUDART_API(cudaKernelSetAttributeForDevice,
           (cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int device),
           (kernel, attribute, value, device)) {
  CUDART_TRY(ready());
  if (!valid_device(device)) return cudaErrorInvalidDevice;
  return set_attribute(kernel, attribute, value, device);
}

CUDART_API(cudaFuncSetCacheConfig, (const void* func, cudaFuncCache config), (func, config)) {
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  return from_driver(cu().cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(config),
                                                 device_of(current_device())));
}

CUDART_API(cudaFuncGetName, (const char** name, const void* func), (name, func)) {
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  return from_driver(cu().cuKernelGetName(name, kernel));
}

CUDART_API(cudaFuncGetParamInfo, (const void* func, size_t index, size_t* offset, size_t* bytes),
           (func, index, offset, bytes)) {
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  return from_driver(cu().cuKernelGetParamInfo(kernel, index, offset, bytes));
}

// ----------------------------------------------------------------------------------------
// occupancy

static cudaError_t find_function(const void* func, CUfunction* function) {
  CUDART_TRY(ready());
  CUkernel kernel;
  CUDART_TRY(find_kernel(func, &kernel));
  return from_driver(cu().cuKernelGetFunction(function, kernel));
}

CUDART_API(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
           (int* blocks, const void* func, int block_size, size_t shared_bytes, unsigned flags),
           (blocks, func, block_size, shared_bytes, flags)) {
  CUfunction function;
  CUDART_TRY(find_function(func, &function));
  return from_driver(cu().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      blocks, function, block_size, shared_bytes, flags));
}

CUDART_API(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
           (int* blocks, const void* func, int block_size, size_t shared_bytes),
           (blocks, func, block_size, shared_bytes)) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_body(blocks, func, block_size,
                                                                     shared_bytes, 0);
}

CUDART_API(cudaOccupancyAvailableDynamicSMemPerBlock,
           (size_t * bytes, const void* func, int blocks, int block_size),
           (bytes, func, blocks, block_size)) {
  CUfunction function;
  CUDART_TRY(find_function(func, &function));
  return from_driver(
      cu().cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, block_size));
}

CUDART_API(cudaOccupancyMaxPotentialClusterSize,
           (int* size, const void* func, const cudaLaunchConfig_t* config), (size, func, config)) {
  if (!config) return cudaErrorInvalidValue;
  CUfunction function;
  CUDART_TRY(find_function(func, &function));
  CUlaunchConfig driver_config = as_driver_config(*config);
  return from_driver(cu().cuOccupancyMaxPotentialClusterSize(size, function, &driver_config));
}

CUDART_API(cudaOccupancyMaxActiveClusters,
           (int* clusters, const void* func, const cudaLaunchConfig_t* config),
           (clusters, func, config)) {
  if (!config) return cudaErrorInvalidValue;
  CUfunction function;
  CUDART_TRY(find_function(func, &function));
  CUlaunchConfig driver_config = as_driver_config(*config);
  return from_driver(cu().cuOccupancyMaxActiveClusters(clusters, function, &driver_config));
}

// ----------------------------------------------------------------------------------------
// variables

CUDART_API(cudaGetSymbolAddress, (void** address, const void* symbol), (address, symbol)) {
  if (!address) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUdeviceptr device_address;
  size_t bytes;
  CUDART_TRY(find_symbol(symbol, &device_address, &bytes));
  *address = reinterpret_cast<void*>(device_address);
  return cudaSuccess;
}

CUDART_API(cudaGetSymbolSize, (size_t * bytes, const void* symbol), (bytes, symbol)) {
  if (!bytes) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUdeviceptr address;
  return find_symbol(symbol, &address, bytes);
}

// ----------------------------------------------------------------------------------------
// libraries

CUDART_API(cudaLibraryLoadData,
           (cudaLibrary_t * library, const void* code, cudaJitOption* jit_options,
            void** jit_values, unsigned jit_count, cudaLibraryOption* options, void** values,
            unsigned count),
           (library, code, jit_options, jit_values, jit_count, options, values, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuLibraryLoadData(
      library, code, reinterpret_cast<CUjit_option*>(jit_options), jit_values, jit_count,
      reinterpret_cast<CUlibraryOption*>(options), values, count));
}

CUDART_API(cudaLibraryLoadFromFile,
           (cudaLibrary_t * library, const char* file, cudaJitOption* jit_options,
            void** jit_values, unsigned jit_count, cudaLibraryOption* options, void** values,
            unsigned count),
           (library, file, jit_options, jit_values, jit_count, options, values, count)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuLibraryLoadFromFile(
      library, file, reinterpret_cast<CUjit_option*>(jit_options), jit_values, jit_count,
      reinterpret_cast<CUlibraryOption*>(options), values, count));
}

CUDART_API(cudaLibraryUnload, (cudaLibrary_t library), (library)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuLibraryUnload(library));
}

CUDART_API(cudaLibraryGetKernel, (cudaKernel_t * kernel, cudaLibrary_t library, const char* name),
           (kernel, library, name)) {
  CUDART_TRY(ready());
  CUDART_TRY(from_driver(cu().cuLibraryGetKernel(kernel, library, name)));
  remember_kernel(*kernel);
  return cudaSuccess;
}

CUDART_API(cudaLibraryGetGlobal,
           (void** address, size_t* bytes, cudaLibrary_t library, const char* name),
           (address, bytes, library, name)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuLibraryGetGlobal(reinterpret_cast<CUdeviceptr*>(address), bytes, library, name));
}

CUDART_API(cudaLibraryGetManaged,
           (void** address, size_t* bytes, cudaLibrary_t library, const char* name),
           (address, bytes, library, name)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuLibraryGetManaged(reinterpret_cast<CUdeviceptr*>(address), bytes, library, name));
}

CUDART_API(cudaLibraryGetUnifiedFunction,
           (void** function, cudaLibrary_t library, const char* name), (function, library, name)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuLibraryGetUnifiedFunction(function, library, name));
}

CUDART_API(cudaLibraryGetKernelCount, (unsigned* count, cudaLibrary_t library), (count, library)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuLibraryGetKernelCount(count, library));
}

CUDART_API(cudaLibraryEnumerateKernels,
           (cudaKernel_t * kernels, unsigned count, cudaLibrary_t library),
           (kernels, count, library)) {
  CUDART_TRY(ready());
  unsigned available = 0;
  CUDART_TRY(from_driver(cu().cuLibraryGetKernelCount(&available, library)));
  CUDART_TRY(from_driver(cu().cuLibraryEnumerateKernels(kernels, count, library)));
  for (unsigned i = 0; i < count && i < available; ++i) remember_kernel(kernels[i]);
  return cudaSuccess;
}
