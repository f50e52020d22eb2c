// nvrtcGetCUBIN and nvrtcGetCUBINSize: a program that was compiled to the simulated device's
// machine code is available as PTX as well, and these functions return the PTX.
#include <stdlib.h>
#include <string.h>

#include "compilers/compilers.h"

namespace simgpu::compilers {
namespace {

using Program = void*;
using Size = int(Program, size_t*);
using Get = int(Program, char*);

constexpr int kInternalError = 11, kOutOfMemory = 1;  // nvrtcResult

// The program's PTX, malloc'ed; null: there is no machine code, or it would not run on the device,
// so NVRTC's own answer is returned.
int image_of(int library, Program program, char** text, size_t* size) {
  *text = nullptr;
  auto* cubin_size = real<Size>(library, "nvrtcGetCUBINSize");
  auto* ptx_size = real<Size>(library, "nvrtcGetPTXSize");
  auto* get_ptx = real<Get>(library, "nvrtcGetPTX");
  if (!cubin_size || !ptx_size || !get_ptx) return kInternalError;
  size_t code = 0;
  if (int r = cubin_size(program, &code); r != 0 || code == 0) return r;
  if (int r = ptx_size(program, size); r != 0) return r;
  auto* out = static_cast<char*>(calloc(1, *size + 1));
  if (!out) return kOutOfMemory;
  const int r = get_ptx(program, out);
  if (r != 0 || !code_runs(target_of(out))) {
    free(out);
    return r;
  }
  *text = out;
  return 0;
}

int cubin_size(int library, Program program, size_t* size) {
  auto* own = real<Size>(library, "nvrtcGetCUBINSize");
  if (!own) return kInternalError;
  char* text = nullptr;
  size_t bytes = 0;
  if (size && image_of(library, program, &text, &bytes) == 0 && text) {
    free(text);
    *size = bytes;
    return 0;
  }
  return own(program, size);
}

int cubin(int library, Program program, char* out) {
  auto* own = real<Get>(library, "nvrtcGetCUBIN");
  if (!own) return kInternalError;
  char* text = nullptr;
  size_t bytes = 0;
  if (out && image_of(library, program, &text, &bytes) == 0 && text) {
    memcpy(out, text, bytes);
    free(text);
    return 0;
  }
  return own(program, out);
}

template <int kLibrary>
int cubin_size_of(Program program, size_t* size) {
  return cubin_size(kLibrary, program, size);
}
template <int kLibrary>
int cubin_of(Program program, char* out) {
  return cubin(kLibrary, program, out);
}

Size* const kSize[kLibraries] = {cubin_size_of<0>, cubin_size_of<1>, cubin_size_of<2>,
                                 cubin_size_of<3>};
Get* const kGet[kLibraries] = {cubin_of<0>, cubin_of<1>, cubin_of<2>, cubin_of<3>};

}  // namespace

void* nvrtc_function(const char* name, int library) {
  if (strcmp(name, "nvrtcGetCUBINSize") == 0) return reinterpret_cast<void*>(kSize[library]);
  if (strcmp(name, "nvrtcGetCUBIN") == 0) return reinterpret_cast<void*>(kGet[library]);
  return nullptr;
}

}  // namespace simgpu::compilers

using namespace simgpu::compilers;

// For code that is linked with NVRTC.
#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default"), noinline))
#define SIMGPU_LINKED(name) \
  linked_library(#name, reinterpret_cast<void*>(&name), __builtin_return_address(0))

SIMGPU_EXPORT int nvrtcGetCUBINSize(void* program, size_t* size) {
  return cubin_size(SIMGPU_LINKED(nvrtcGetCUBINSize), program, size);
}
SIMGPU_EXPORT int nvrtcGetCUBIN(void* program, char* out) {
  return cubin(SIMGPU_LINKED(nvrtcGetCUBIN), program, out);
}
