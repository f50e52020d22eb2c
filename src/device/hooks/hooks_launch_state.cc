// Launches as before CUDA 4: shape and parameters are kept in the function until the next launch.
#include "device/base/registry.h"
#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

// Follows what the driver did, in the function's record.
template <typename F>
CUresult noted(CUresult result, CUfunction function, F change) {
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(registry().lock);
  auto* f =
      registry().find<FunctionObject>(ObjectType::kFunction, name_from(Kind::kFunction, function));
  if (f && !f->launch) f->launch = make<LaunchState>();
  if (f && f->launch)
    change(f->launch);
  else
    registry().refuse("cuParamSet*: parameters of a function that is not known");
  return result;
}

void keep_parameter(LaunchState* s, int offset, const void* bytes, unsigned count) {
  while (s->parameters.size() < static_cast<unsigned>(offset) + count)
    if (!s->parameters.push(0)) return registry().refuse("no memory for a kernel's parameters");
  __builtin_memcpy(s->parameters.data() + offset, bytes, count);
}

CUresult set_parameter(CUresult result, CUfunction function, int offset, const void* bytes,
                       unsigned count) {
  return noted(result, function, [&](LaunchState* s) { keep_parameter(s, offset, bytes, count); });
}

}  // namespace

CUresult replay_launch_state(CUfunction now, const LaunchState& s) {
  CUresult result = CUDA_SUCCESS;
  if (s.block[0]) result = real().cuFuncSetBlockShape(now, s.block[0], s.block[1], s.block[2]);
  if (result == CUDA_SUCCESS && s.shared_set) result = real().cuFuncSetSharedSize(now, s.shared);
  if (result == CUDA_SUCCESS && !s.parameters.empty())
    result = real().cuParamSetv(now, 0, const_cast<uint8_t*>(s.parameters.data()),
                                static_cast<unsigned>(s.parameters.size()));
  if (result == CUDA_SUCCESS && s.size_set) result = real().cuParamSetSize(now, s.size);
  return result;
}

}  // namespace device

using namespace device;

CUresult hook_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return noted(real().cuFuncSetBlockShape(hfunc, x, y, z), hfunc, [&](LaunchState* s) {
    s->block[0] = x;
    s->block[1] = y;
    s->block[2] = z;
  });
}
CUresult hook_cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return noted(real().cuFuncSetSharedSize(hfunc, bytes), hfunc, [&](LaunchState* s) {
    s->shared = bytes;
    s->shared_set = true;
  });
}
CUresult hook_cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return noted(real().cuParamSetSize(hfunc, numbytes), hfunc, [&](LaunchState* s) {
    s->size = numbytes;
    s->size_set = true;
  });
}
CUresult hook_cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_parameter(real().cuParamSeti(hfunc, offset, value), hfunc, offset, &value,
                       sizeof value);
}
CUresult hook_cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_parameter(real().cuParamSetf(hfunc, offset, value), hfunc, offset, &value,
                       sizeof value);
}
CUresult hook_cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set_parameter(real().cuParamSetv(hfunc, offset, ptr, numbytes), hfunc, offset, ptr,
                       numbytes);
}

}  // namespace gpuckpt
