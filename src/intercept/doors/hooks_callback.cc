// cuStreamAddCallback tells the callback its stream: it must be the name the application knows.
#include "base/heap.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"
#include "intercept/translate/translate.h"

namespace gpuckpt {
namespace {

struct Callback {
  CUstreamCallback function;
  void* data;
};

void CUDA_CB call_back(CUstream stream, CUresult status, void* data) {
  Callback c = *static_cast<Callback*>(data);
  heap_free(data);
  c.function(out(Kind::kStream, stream), status, c.data);
}

using AddCallback = CUresult (*)(CUstream, CUstreamCallback, void*, unsigned int);
CUresult add(AddCallback down, CUstream stream, CUstreamCallback function, void* data,
             unsigned int flags) {
  if (!translating() || !function) return down(stream, function, data, flags);
  auto* c = static_cast<Callback*>(heap_alloc(sizeof(Callback)));
  if (!c) return CUDA_ERROR_OUT_OF_MEMORY;
  *c = {function, data};
  CUresult result = down(stream, call_back, c, flags);
  if (result != CUDA_SUCCESS) heap_free(c);
  return result;
}

}  // namespace

CUresult hook_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                  unsigned int flags) {
  return add(real().cuStreamAddCallback, hStream, callback, userData, flags);
}
CUresult hook_cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void* userData,
                                       unsigned int flags) {
  return add(real().cuStreamAddCallback_ptsz, hStream, callback, userData, flags);
}

}  // namespace gpuckpt
