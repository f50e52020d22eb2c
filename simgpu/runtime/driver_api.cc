#include "driver_api.h"

#include <dlfcn.h>

namespace simgpu::runtime {

DriverApi g_driver[2];

namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);

// Replaces a function the driver lacks. Its callers pass what they pass; on this ABI they clean up
// themselves.
CUresult missing() { return CUDA_ERROR_NOT_SUPPORTED; }

void* find(GetProcAddress get, const char* name, int version, cuuint64_t flags) {
  void* function = nullptr;
  CUresult result = get(name, &function, version, flags, nullptr);
  if (result != CUDA_SUCCESS || !function) return reinterpret_cast<void*>(&missing);
  return function;
}

}  // namespace

bool load_driver_api() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return false;
  auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (!get) {
    dlclose(library);
    return false;
  }
#define SIMGPU_LOAD(name, version, per_thread_version)                                             \
  g_driver[kLegacy].name =                                                                         \
      reinterpret_cast<decltype(&::name)>(find(get, #name, version, CU_GET_PROC_ADDRESS_DEFAULT)); \
  g_driver[kPerThread].name =                                                                      \
      per_thread_version == 0                                                                      \
          ? g_driver[kLegacy].name                                                                 \
          : reinterpret_cast<decltype(&::name)>(find(                                              \
                get, #name, per_thread_version, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
  SIMGPU_RUNTIME_DRIVER_API(SIMGPU_LOAD)
#undef SIMGPU_LOAD
  return true;
}

}  // namespace simgpu::runtime
