// The driver API before CUDA 3.2 and 4.0, as far as a 64-bit program can use it: narrower sizes,
// counted contexts, launches whose shape and parameters are stored in the function. Calls that need
// a device address of 32 bits are not implemented.
#include <string.h>

#include "driver/base/state.h"
#include "driver/context/context.h"
#include "driver/module/module.h"

using namespace simgpu;

SIMGPU_API cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* d) {
  ENTER(cuArrayCreate);
  if (!d) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY_DESCRIPTOR wide = {d->Width, d->Height, d->Format, d->NumChannels};
  return cuArrayCreate_v2(out, &wide);
}

SIMGPU_API cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* d) {
  ENTER(cuArray3DCreate);
  if (!d) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR wide = {d->Width,  d->Height,      d->Depth,
                                  d->Format, d->NumChannels, d->Flags};
  return cuArray3DCreate_v2(out, &wide);
}

SIMGPU_API cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* out, CUarray array) {
  ENTER(cuArrayGetDescriptor);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY_DESCRIPTOR d;
  if (CUresult r = cuArrayGetDescriptor_v2(&d, array); r != CUDA_SUCCESS) return r;
  *out = {static_cast<unsigned>(d.Width), static_cast<unsigned>(d.Height), d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

SIMGPU_API cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* out, CUarray array) {
  ENTER(cuArray3DGetDescriptor);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR d;
  if (CUresult r = cuArray3DGetDescriptor_v2(&d, array); r != CUDA_SUCCESS) return r;
  *out = {static_cast<unsigned>(d.Width),
          static_cast<unsigned>(d.Height),
          static_cast<unsigned>(d.Depth),
          d.Format,
          d.NumChannels,
          d.Flags};
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemAllocHost(void** out, unsigned bytes) { return cuMemAllocHost_v2(out, bytes); }
SIMGPU_API cuMemHostRegister(void* p, size_t bytes, unsigned flags) {
  return cuMemHostRegister_v2(p, bytes, flags);
}

// The address, if 32 bits hold it.
SIMGPU_API cuModuleGetGlobal(CUdeviceptr_v1* address, unsigned* bytes, CUmodule module,
                             const char* name) {
  ENTER(cuModuleGetGlobal);
  CUdeviceptr place;
  size_t size;
  if (CUresult r = cuModuleGetGlobal_v2(&place, &size, module, name); r != CUDA_SUCCESS) return r;
  if (address && place >> 32 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (address) *address = static_cast<CUdeviceptr_v1>(place);
  if (bytes) *bytes = static_cast<unsigned>(size);
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxCreate(CUcontext* out, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(out, flags, device);
}

SIMGPU_API cuCtxAttach(CUcontext* out, unsigned flags) {
  ENTER(cuCtxAttach);
  if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  c->uses.fetch_add(1);
  *out = c->handle();
  return CUDA_SUCCESS;
}

SIMGPU_API cuCtxDetach(CUcontext handle) {
  ENTER(cuCtxDetach);
  CURRENT(c);
  if (c->handle() != handle) return CUDA_ERROR_INVALID_CONTEXT;
  if (c->uses.fetch_sub(1) > 1) return CUDA_SUCCESS;
  c = {};
  return cuCtxDestroy_v2(handle);
}

namespace {

template <class F>
CUresult with_function(CUfunction handle, F use) {
  Ref<Function> f = state()->handles.get<Function>(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  Lock lock(f->first_mutex);
  return use(*f);
}

CUresult set_parameter(CUfunction handle, int offset, const void* bytes, unsigned count) {
  if (offset < 0 || !bytes || count > 4096 || offset > 4096) return CUDA_ERROR_INVALID_VALUE;
  return with_function(handle, [&](Function& f) {
    std::vector<uint8_t>& all = f.first.parameters;
    if (all.size() < static_cast<size_t>(offset) + count)
      all.resize(static_cast<size_t>(offset) + count);
    memcpy(all.data() + offset, bytes, count);
    return CUDA_SUCCESS;
  });
}

CUresult launch(CUfunction handle, int width, int height, CUstream stream) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  FirstLaunch kept;
  CUresult r = with_function(handle, [&](Function& f) {
    kept.shared = f.first.shared;
    for (int i = 0; i < 3; ++i) kept.block[i] = f.first.block[i];
    kept.size = f.first.size;
    kept.parameters = f.first.parameters;
    return CUDA_SUCCESS;
  });
  if (r != CUDA_SUCCESS) return r;
  if (kept.parameters.size() < kept.size) return CUDA_ERROR_INVALID_VALUE;
  size_t size = kept.size;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kept.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(handle, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                        kept.block[0], kept.block[1], kept.block[2], kept.shared, stream, nullptr,
                        size != 0 ? extra : nullptr);
}

}  // namespace

SIMGPU_API cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  ENTER(cuFuncSetBlockShape);
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  return with_function(handle, [&](Function& f) {
    f.first.block[0] = static_cast<unsigned>(x);
    f.first.block[1] = static_cast<unsigned>(y);
    f.first.block[2] = static_cast<unsigned>(z);
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuFuncSetSharedSize(CUfunction handle, unsigned bytes) {
  ENTER(cuFuncSetSharedSize);
  return with_function(handle, [&](Function& f) {
    f.first.shared = bytes;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuParamSetSize(CUfunction handle, unsigned bytes) {
  ENTER(cuParamSetSize);
  return with_function(handle, [&](Function& f) {
    f.first.size = bytes;
    return CUDA_SUCCESS;
  });
}

SIMGPU_API cuParamSeti(CUfunction handle, int offset, unsigned value) {
  ENTER(cuParamSeti);
  return set_parameter(handle, offset, &value, sizeof value);
}

SIMGPU_API cuParamSetf(CUfunction handle, int offset, float value) {
  ENTER(cuParamSetf);
  return set_parameter(handle, offset, &value, sizeof value);
}

SIMGPU_API cuParamSetv(CUfunction handle, int offset, void* bytes, unsigned count) {
  ENTER(cuParamSetv);
  return set_parameter(handle, offset, bytes, count);
}

SIMGPU_API cuLaunch(CUfunction handle) {
  ENTER(cuLaunch);
  return launch(handle, 1, 1, nullptr);
}

SIMGPU_API cuLaunchGrid(CUfunction handle, int width, int height) {
  ENTER(cuLaunchGrid);
  return launch(handle, width, height, nullptr);
}

SIMGPU_API cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
  ENTER(cuLaunchGridAsync);
  return launch(handle, width, height, stream);
}
