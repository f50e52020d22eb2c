// Copies and sets. The driver knows no "kind": it has one call per direction, and cuMemcpy finds
// out by the addresses.
#include "runtime.h"

using namespace simgpu::runtime;

namespace {

bool valid_kind(cudaMemcpyKind kind) {
  return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

template <Flavour F>
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return from_driver(cu<F>().cuMemcpyHtoD(device_ptr(to), from, bytes));
    case cudaMemcpyDeviceToHost:
      return from_driver(cu<F>().cuMemcpyDtoH(to, device_ptr(from), bytes));
    case cudaMemcpyDeviceToDevice:
      return from_driver(cu<F>().cuMemcpyDtoD(device_ptr(to), device_ptr(from), bytes));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return from_driver(cu<F>().cuMemcpy(device_ptr(to), device_ptr(from), bytes));
  }
  return cudaErrorInvalidMemcpyDirection;
}

template <Flavour F>
cudaError_t copy_async(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return from_driver(cu<F>().cuMemcpyHtoDAsync(device_ptr(to), from, bytes, stream));
    case cudaMemcpyDeviceToHost:
      return from_driver(cu<F>().cuMemcpyDtoHAsync(to, device_ptr(from), bytes, stream));
    case cudaMemcpyDeviceToDevice:
      return from_driver(
          cu<F>().cuMemcpyDtoDAsync(device_ptr(to), device_ptr(from), bytes, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return from_driver(cu<F>().cuMemcpyAsync(device_ptr(to), device_ptr(from), bytes, stream));
  }
  return cudaErrorInvalidMemcpyDirection;
}

bool from_host(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
}
bool to_host(cudaMemcpyKind kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
}

// Fills one side of a CUDA_MEMCPY2D, CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER.
template <typename Copy>
void set_source(Copy* copy, const void* address, bool host, bool unified) {
  copy->srcMemoryType = unified ? CU_MEMORYTYPE_UNIFIED
                        : host  ? CU_MEMORYTYPE_HOST
                                : CU_MEMORYTYPE_DEVICE;
  if (host && !unified) {
    copy->srcHost = address;
  } else {
    copy->srcDevice = device_ptr(address);
  }
}
template <typename Copy>
void set_destination(Copy* copy, void* address, bool host, bool unified) {
  copy->dstMemoryType = unified ? CU_MEMORYTYPE_UNIFIED
                        : host  ? CU_MEMORYTYPE_HOST
                                : CU_MEMORYTYPE_DEVICE;
  if (host && !unified) {
    copy->dstHost = address;
  } else {
    copy->dstDevice = device_ptr(address);
  }
}

cudaError_t describe2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                       size_t height, cudaMemcpyKind kind, CUDA_MEMCPY2D* out) {
  if (!valid_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  *out = {};
  bool unified = kind == cudaMemcpyDefault;
  set_source(out, from, from_host(kind), unified);
  set_destination(out, to, to_host(kind), unified);
  out->srcPitch = from_pitch;
  out->dstPitch = to_pitch;
  out->WidthInBytes = width;
  out->Height = height;
  return cudaSuccess;
}

// Both kinds of 3D parameters have these fields in common; positions and extents count bytes, as no
// array is involved.
template <typename Parameters, typename Copy>
void describe_box(const Parameters& p, Copy* out) {
  out->srcXInBytes = p.srcPos.x;
  out->srcY = p.srcPos.y;
  out->srcZ = p.srcPos.z;
  out->srcPitch = p.srcPtr.pitch;
  out->srcHeight = p.srcPtr.ysize;
  out->dstXInBytes = p.dstPos.x;
  out->dstY = p.dstPos.y;
  out->dstZ = p.dstPos.z;
  out->dstPitch = p.dstPtr.pitch;
  out->dstHeight = p.dstPtr.ysize;
  out->WidthInBytes = p.extent.width;
  out->Height = p.extent.height;
  out->Depth = p.extent.depth;
}

// With an array, positions in it and the extent count its elements.
template <typename Copy>
cudaError_t describe_arrays(cudaArray_t from, cudaArray_t to, Copy* out) {
  size_t from_texel = 0, to_texel = 0;
  CUDART_TRY(texel_bytes(from, &from_texel));
  CUDART_TRY(texel_bytes(to, &to_texel));
  if (from) {
    out->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    out->srcArray = reinterpret_cast<CUarray>(from);
    out->srcXInBytes *= from_texel;
  }
  if (to) {
    out->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    out->dstArray = reinterpret_cast<CUarray>(to);
    out->dstXInBytes *= to_texel;
  }
  if (from || to) out->WidthInBytes *= from ? from_texel : to_texel;
  return cudaSuccess;
}

cudaError_t describe3DPeer(const cudaMemcpy3DPeerParms* p, CUDA_MEMCPY3D_PEER* out) {
  if (!p) return cudaErrorInvalidValue;
  *out = {};
  set_source(out, p->srcPtr.ptr, false, false);
  set_destination(out, p->dstPtr.ptr, false, false);
  describe_box(*p, out);
  CUDART_TRY(describe_arrays(p->srcArray, p->dstArray, out));
  CUDART_TRY(primary_context(p->srcDevice, &out->srcContext));
  return primary_context(p->dstDevice, &out->dstContext);
}

// Where `bytes` at `offset` of a variable are.
cudaError_t inside_symbol(const void* symbol, size_t bytes, size_t offset, void** address) {
  CUdeviceptr start;
  size_t size;
  CUDART_TRY(find_symbol(symbol, &start, &size));
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  *address = reinterpret_cast<void*>(start + offset);
  return cudaSuccess;
}

bool into_symbol(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
         kind == cudaMemcpyDefault;
}
bool out_of_symbol(cudaMemcpyKind kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
         kind == cudaMemcpyDefault;
}

unsigned char byte_of(int value) { return static_cast<unsigned char>(value); }

// Calls set(address, pitch, width, height) for the box: once when its slices are contiguous, else
// slice by slice.
template <typename Set>
cudaError_t set_box(const cudaPitchedPtr& box, const cudaExtent& extent, Set set) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return cudaSuccess;
  CUdeviceptr start = device_ptr(box.ptr);
  if (extent.depth == 1 || box.ysize == extent.height) {
    return from_driver(set(start, extent.height * extent.depth));
  }
  for (size_t z = 0; z < extent.depth; ++z) {
    CUDART_TRY(from_driver(set(start + z * box.pitch * box.ysize, extent.height)));
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t simgpu::runtime::texel_bytes(cudaArray_t array, size_t* bytes) {
  if (!array) return cudaSuccess;
  CUDA_ARRAY3D_DESCRIPTOR d;
  CUDART_TRY(from_driver(cu().cuArray3DGetDescriptor(&d, reinterpret_cast<CUarray>(array))));
  size_t channel = d.Format == CU_AD_FORMAT_UNSIGNED_INT8 || d.Format == CU_AD_FORMAT_SIGNED_INT8
                       ? 1
                   : d.Format == CU_AD_FORMAT_UNSIGNED_INT16 ||
                           d.Format == CU_AD_FORMAT_SIGNED_INT16 || d.Format == CU_AD_FORMAT_HALF
                       ? 2
                       : 4;
  *bytes = channel * d.NumChannels;
  return cudaSuccess;
}

cudaError_t simgpu::runtime::describe_3d(const cudaMemcpy3DParms* p, CUDA_MEMCPY3D* out) {
  if (!p) return cudaErrorInvalidValue;
  if (!valid_kind(p->kind)) return cudaErrorInvalidMemcpyDirection;
  *out = {};
  bool unified = p->kind == cudaMemcpyDefault;
  set_source(out, p->srcPtr.ptr, from_host(p->kind), unified);
  set_destination(out, p->dstPtr.ptr, to_host(p->kind), unified);
  describe_box(*p, out);
  return describe_arrays(p->srcArray, p->dstArray, out);
}

// ---------------------------------------------------------------------------------------------
// copies

CUDART_API_PTDS(cudaMemcpy, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind),
                (to, from, bytes, kind)) {
  if (!valid_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  CUDART_TRY(ready());
  return copy<F>(to, from, bytes, kind);
}

CUDART_API_PTSZ(cudaMemcpyAsync,
                (void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream),
                (to, from, bytes, kind, stream)) {
  if (!valid_kind(kind)) return cudaErrorInvalidMemcpyDirection;
  CUDART_TRY(ready());
  return copy_async<F>(to, from, bytes, kind, stream);
}

CUDART_API_PTDS(cudaMemcpy2D,
                (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                 size_t height, cudaMemcpyKind kind),
                (to, to_pitch, from, from_pitch, width, height, kind)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY2D copy;
  CUDART_TRY(describe2D(to, to_pitch, from, from_pitch, width, height, kind, &copy));
  if (width == 0 || height == 0) return cudaSuccess;
  return from_driver(cu<F>().cuMemcpy2DUnaligned(&copy));
}

CUDART_API_PTSZ(cudaMemcpy2DAsync,
                (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                 size_t height, cudaMemcpyKind kind, cudaStream_t stream),
                (to, to_pitch, from, from_pitch, width, height, kind, stream)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY2D copy;
  CUDART_TRY(describe2D(to, to_pitch, from, from_pitch, width, height, kind, &copy));
  if (width == 0 || height == 0) return cudaSuccess;
  return from_driver(cu<F>().cuMemcpy2DAsync(&copy, stream));
}

CUDART_API_PTDS(cudaMemcpy3D, (const cudaMemcpy3DParms* parameters), (parameters)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D copy;
  CUDART_TRY(describe_3d(parameters, &copy));
  return from_driver(cu<F>().cuMemcpy3D(&copy));
}

CUDART_API_PTSZ(cudaMemcpy3DAsync, (const cudaMemcpy3DParms* parameters, cudaStream_t stream),
                (parameters, stream)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D copy;
  CUDART_TRY(describe_3d(parameters, &copy));
  return from_driver(cu<F>().cuMemcpy3DAsync(&copy, stream));
}

CUDART_API_PTDS(cudaMemcpy3DPeer, (const cudaMemcpy3DPeerParms* parameters), (parameters)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D_PEER copy;
  CUDART_TRY(describe3DPeer(parameters, &copy));
  return from_driver(cu<F>().cuMemcpy3DPeer(&copy));
}

CUDART_API_PTSZ(cudaMemcpy3DPeerAsync,
                (const cudaMemcpy3DPeerParms* parameters, cudaStream_t stream),
                (parameters, stream)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY3D_PEER copy;
  CUDART_TRY(describe3DPeer(parameters, &copy));
  return from_driver(cu<F>().cuMemcpy3DPeerAsync(&copy, stream));
}

CUDART_API(cudaMemcpyPeer,
           (void* to, int to_device, const void* from, int from_device, size_t bytes),
           (to, to_device, from, from_device, bytes)) {
  CUDART_TRY(ready());
  CUcontext to_context, from_context;
  CUDART_TRY(primary_context(to_device, &to_context));
  CUDART_TRY(primary_context(from_device, &from_context));
  if (bytes == 0) return cudaSuccess;
  return from_driver(
      cu().cuMemcpyPeer(device_ptr(to), to_context, device_ptr(from), from_context, bytes));
}

CUDART_API(cudaMemcpyPeerAsync,
           (void* to, int to_device, const void* from, int from_device, size_t bytes,
            cudaStream_t stream),
           (to, to_device, from, from_device, bytes, stream)) {
  CUDART_TRY(ready());
  CUcontext to_context, from_context;
  CUDART_TRY(primary_context(to_device, &to_context));
  CUDART_TRY(primary_context(from_device, &from_context));
  if (bytes == 0) return cudaSuccess;
  return from_driver(cu().cuMemcpyPeerAsync(device_ptr(to), to_context, device_ptr(from),
                                            from_context, bytes, stream));
}

// The driver takes the same arrays with its own names for the element types.
static_assert(sizeof(cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes));

CUDART_API_PTSZ(cudaMemcpyBatchAsync,
                (void* const* to, const void* const* from, const size_t* bytes, size_t count,
                 cudaMemcpyAttributes* attributes, size_t* first_copies, size_t attribute_count,
                 cudaStream_t stream),
                (to, from, bytes, count, attributes, first_copies, attribute_count, stream)) {
  CUDART_TRY(ready());
  auto addresses = [](const void* list) {
    return static_cast<CUdeviceptr*>(const_cast<void*>(list));
  };
  return from_driver(cu<F>().cuMemcpyBatchAsync(
      addresses(to), addresses(from), const_cast<size_t*>(bytes), count,
      reinterpret_cast<CUmemcpyAttributes*>(attributes), first_copies, attribute_count, stream));
}

static_assert(sizeof(cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP));

CUDART_API_PTSZ(cudaMemcpy3DBatchAsync,
                (size_t count, cudaMemcpy3DBatchOp* list, unsigned long long flags,
                 cudaStream_t stream),
                (count, list, flags, stream)) {
  CUDART_TRY(ready());
  return from_driver(cu<F>().cuMemcpy3DBatchAsync(
      count, reinterpret_cast<CUDA_MEMCPY3D_BATCH_OP*>(list), flags, stream));
}

CUDART_API_PTDS(cudaMemcpyToSymbol,
                (const void* symbol, const void* from, size_t bytes, size_t offset,
                 cudaMemcpyKind kind),
                (symbol, from, bytes, offset, kind)) {
  if (!into_symbol(kind)) return cudaErrorInvalidMemcpyDirection;
  CUDART_TRY(ready());
  void* to;
  CUDART_TRY(inside_symbol(symbol, bytes, offset, &to));
  return copy<F>(to, from, bytes, kind);
}

CUDART_API_PTSZ(cudaMemcpyToSymbolAsync,
                (const void* symbol, const void* from, size_t bytes, size_t offset,
                 cudaMemcpyKind kind, cudaStream_t stream),
                (symbol, from, bytes, offset, kind, stream)) {
  if (!into_symbol(kind)) return cudaErrorInvalidMemcpyDirection;
  CUDART_TRY(ready());
  void* to;
  CUDART_TRY(inside_symbol(symbol, bytes, offset, &to));
  return copy_async<F>(to, from, bytes, kind, stream);
}

CUDART_API_PTDS(cudaMemcpyFromSymbol,
                (void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind),
                (to, symbol, bytes, offset, kind)) {
  if (!out_of_symbol(kind)) return cudaErrorInvalidMemcpyDirection;
  CUDART_TRY(ready());
  void* from;
  CUDART_TRY(inside_symbol(symbol, bytes, offset, &from));
  return copy<F>(to, from, bytes, kind);
}

CUDART_API_PTSZ(cudaMemcpyFromSymbolAsync,
                (void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                 cudaStream_t stream),
                (to, symbol, bytes, offset, kind, stream)) {
  if (!out_of_symbol(kind)) return cudaErrorInvalidMemcpyDirection;
  CUDART_TRY(ready());
  void* from;
  CUDART_TRY(inside_symbol(symbol, bytes, offset, &from));
  return copy_async<F>(to, from, bytes, kind, stream);
}

// -----------------------------------------------------------------------------------------------
// sets

CUDART_API_PTDS(cudaMemset, (void* address, int value, size_t bytes), (address, value, bytes)) {
  CUDART_TRY(ready());
  if (bytes == 0) return cudaSuccess;
  return from_driver(cu<F>().cuMemsetD8(device_ptr(address), byte_of(value), bytes));
}

CUDART_API_PTSZ(cudaMemsetAsync, (void* address, int value, size_t bytes, cudaStream_t stream),
                (address, value, bytes, stream)) {
  CUDART_TRY(ready());
  if (bytes == 0) return cudaSuccess;
  return from_driver(cu<F>().cuMemsetD8Async(device_ptr(address), byte_of(value), bytes, stream));
}

CUDART_API_PTDS(cudaMemset2D, (void* address, size_t pitch, int value, size_t width, size_t height),
                (address, pitch, value, width, height)) {
  CUDART_TRY(ready());
  if (width == 0 || height == 0) return cudaSuccess;
  return from_driver(
      cu<F>().cuMemsetD2D8(device_ptr(address), pitch, byte_of(value), width, height));
}

CUDART_API_PTSZ(cudaMemset2DAsync,
                (void* address, size_t pitch, int value, size_t width, size_t height,
                 cudaStream_t stream),
                (address, pitch, value, width, height, stream)) {
  CUDART_TRY(ready());
  if (width == 0 || height == 0) return cudaSuccess;
  return from_driver(
      cu<F>().cuMemsetD2D8Async(device_ptr(address), pitch, byte_of(value), width, height, stream));
}

CUDART_API_PTDS(cudaMemset3D, (cudaPitchedPtr box, int value, cudaExtent extent),
                (box, value, extent)) {
  CUDART_TRY(ready());
  return set_box(box, extent, [&](CUdeviceptr start, size_t rows) {
    return cu<F>().cuMemsetD2D8(start, box.pitch, byte_of(value), extent.width, rows);
  });
}

CUDART_API_PTSZ(cudaMemset3DAsync,
                (cudaPitchedPtr box, int value, cudaExtent extent, cudaStream_t stream),
                (box, value, extent, stream)) {
  CUDART_TRY(ready());
  return set_box(box, extent, [&](CUdeviceptr start, size_t rows) {
    return cu<F>().cuMemsetD2D8Async(start, box.pitch, byte_of(value), extent.width, rows, stream);
  });
}
