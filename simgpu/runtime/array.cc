// Arrays, mipmaps, texture and surface objects: the runtime's descriptions turned into the
// driver's.
#include <string.h>

#include "runtime.h"

using namespace simgpu::runtime;

namespace {

// A channel description: equal widths, 1, 2 or 4 channels.
cudaError_t format_of(const cudaChannelFormatDesc& d, CUarray_format* format, unsigned* channels) {
  int widths[4] = {d.x, d.y, d.z, d.w};
  unsigned n = 0;
  while (n < 4 && widths[n] != 0) ++n;
  for (unsigned i = 0; i < 4; ++i)
    if (widths[i] != (i < n ? d.x : 0)) return cudaErrorInvalidChannelDescriptor;
  if (n != 1 && n != 2 && n != 4) return cudaErrorInvalidChannelDescriptor;
  *channels = n;
  int bits = d.x;
  switch (d.f) {
    case cudaChannelFormatKindUnsigned:
      *format = bits == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
                : bits == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
                             : CU_AD_FORMAT_UNSIGNED_INT32;
      return bits == 8 || bits == 16 || bits == 32 ? cudaSuccess
                                                   : cudaErrorInvalidChannelDescriptor;
    case cudaChannelFormatKindSigned:
      *format = bits == 8    ? CU_AD_FORMAT_SIGNED_INT8
                : bits == 16 ? CU_AD_FORMAT_SIGNED_INT16
                             : CU_AD_FORMAT_SIGNED_INT32;
      return bits == 8 || bits == 16 || bits == 32 ? cudaSuccess
                                                   : cudaErrorInvalidChannelDescriptor;
    case cudaChannelFormatKindFloat:
      *format = bits == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
      return bits == 16 || bits == 32 ? cudaSuccess : cudaErrorInvalidChannelDescriptor;
    default:
      return cudaErrorNotSupported;
  }
}

cudaChannelFormatDesc channel_of(CUarray_format format, unsigned channels) {
  int bits;
  cudaChannelFormatKind kind = cudaChannelFormatKindUnsigned;
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32:
      kind = cudaChannelFormatKindSigned;
      bits = format == CU_AD_FORMAT_SIGNED_INT8 ? 8 : format == CU_AD_FORMAT_SIGNED_INT16 ? 16 : 32;
      break;
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_FLOAT:
      kind = cudaChannelFormatKindFloat;
      bits = format == CU_AD_FORMAT_HALF ? 16 : 32;
      break;
    default:
      bits = format == CU_AD_FORMAT_UNSIGNED_INT8    ? 8
             : format == CU_AD_FORMAT_UNSIGNED_INT16 ? 16
                                                     : 32;
  }
  return {bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 2 ? bits : 0, kind};
}

cudaError_t describe_array(const cudaChannelFormatDesc* channel, cudaExtent extent, unsigned flags,
                           CUDA_ARRAY3D_DESCRIPTOR* out) {
  if (!channel) return cudaErrorInvalidValue;
  *out = {};
  CUDART_TRY(format_of(*channel, &out->Format, &out->NumChannels));
  out->Width = extent.width;
  out->Height = extent.height;
  out->Depth = extent.depth;
  out->Flags = flags;  // the same numbers
  return cudaSuccess;
}

cudaError_t describe_resource(const cudaResourceDesc* d, CUDA_RESOURCE_DESC* out) {
  if (!d) return cudaErrorInvalidValue;
  *out = {};
  out->flags = d->flags;
  switch (d->resType) {
    case cudaResourceTypeArray:
      out->resType = CU_RESOURCE_TYPE_ARRAY;
      out->res.array.hArray = reinterpret_cast<CUarray>(d->res.array.array);
      return cudaSuccess;
    case cudaResourceTypeMipmappedArray:
      out->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
      out->res.mipmap.hMipmappedArray = reinterpret_cast<CUmipmappedArray>(d->res.mipmap.mipmap);
      return cudaSuccess;
    case cudaResourceTypeLinear:
      out->resType = CU_RESOURCE_TYPE_LINEAR;
      out->res.linear.devPtr = device_ptr(d->res.linear.devPtr);
      out->res.linear.sizeInBytes = d->res.linear.sizeInBytes;
      return format_of(d->res.linear.desc, &out->res.linear.format, &out->res.linear.numChannels);
    case cudaResourceTypePitch2D:
      out->resType = CU_RESOURCE_TYPE_PITCH2D;
      out->res.pitch2D.devPtr = device_ptr(d->res.pitch2D.devPtr);
      out->res.pitch2D.width = d->res.pitch2D.width;
      out->res.pitch2D.height = d->res.pitch2D.height;
      out->res.pitch2D.pitchInBytes = d->res.pitch2D.pitchInBytes;
      return format_of(d->res.pitch2D.desc, &out->res.pitch2D.format,
                       &out->res.pitch2D.numChannels);
  }
  return cudaErrorInvalidValue;
}

void tell_resource(const CUDA_RESOURCE_DESC& d, cudaResourceDesc* out) {
  *out = {};
  switch (d.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      out->resType = cudaResourceTypeArray;
      out->res.array.array = reinterpret_cast<cudaArray_t>(d.res.array.hArray);
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      out->resType = cudaResourceTypeMipmappedArray;
      out->res.mipmap.mipmap = reinterpret_cast<cudaMipmappedArray_t>(d.res.mipmap.hMipmappedArray);
      break;
    case CU_RESOURCE_TYPE_LINEAR:
      out->resType = cudaResourceTypeLinear;
      out->res.linear.devPtr = reinterpret_cast<void*>(d.res.linear.devPtr);
      out->res.linear.desc = channel_of(d.res.linear.format, d.res.linear.numChannels);
      out->res.linear.sizeInBytes = d.res.linear.sizeInBytes;
      break;
    default:
      out->resType = cudaResourceTypePitch2D;
      out->res.pitch2D.devPtr = reinterpret_cast<void*>(d.res.pitch2D.devPtr);
      out->res.pitch2D.desc = channel_of(d.res.pitch2D.format, d.res.pitch2D.numChannels);
      out->res.pitch2D.width = d.res.pitch2D.width;
      out->res.pitch2D.height = d.res.pitch2D.height;
      out->res.pitch2D.pitchInBytes = d.res.pitch2D.pitchInBytes;
  }
}

CUDA_TEXTURE_DESC describe_texture(const cudaTextureDesc& d) {
  CUDA_TEXTURE_DESC out = {};
  for (int i = 0; i < 3; ++i) out.addressMode[i] = static_cast<CUaddress_mode>(d.addressMode[i]);
  out.filterMode = static_cast<CUfilter_mode>(d.filterMode);
  out.mipmapFilterMode = static_cast<CUfilter_mode>(d.mipmapFilterMode);
  out.flags = (d.readMode == cudaReadModeElementType ? CU_TRSF_READ_AS_INTEGER : 0u) |
              (d.normalizedCoords != 0 ? CU_TRSF_NORMALIZED_COORDINATES : 0u) |
              (d.sRGB != 0 ? CU_TRSF_SRGB : 0u) |
              (d.disableTrilinearOptimization != 0 ? CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION : 0u) |
              (d.seamlessCubemap != 0 ? CU_TRSF_SEAMLESS_CUBEMAP : 0u);
  out.maxAnisotropy = d.maxAnisotropy;
  out.mipmapLevelBias = d.mipmapLevelBias;
  out.minMipmapLevelClamp = d.minMipmapLevelClamp;
  out.maxMipmapLevelClamp = d.maxMipmapLevelClamp;
  memcpy(out.borderColor, d.borderColor, sizeof out.borderColor);
  return out;
}

void tell_texture(const CUDA_TEXTURE_DESC& d, cudaTextureDesc* out) {
  *out = {};
  for (int i = 0; i < 3; ++i)
    out->addressMode[i] = static_cast<cudaTextureAddressMode>(d.addressMode[i]);
  out->filterMode = static_cast<cudaTextureFilterMode>(d.filterMode);
  out->mipmapFilterMode = static_cast<cudaTextureFilterMode>(d.mipmapFilterMode);
  out->readMode = (d.flags & CU_TRSF_READ_AS_INTEGER) != 0 ? cudaReadModeElementType
                                                           : cudaReadModeNormalizedFloat;
  out->normalizedCoords = (d.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  out->sRGB = (d.flags & CU_TRSF_SRGB) != 0;
  out->disableTrilinearOptimization = (d.flags & CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION) != 0;
  out->seamlessCubemap = (d.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
  out->maxAnisotropy = d.maxAnisotropy;
  out->mipmapLevelBias = d.mipmapLevelBias;
  out->minMipmapLevelClamp = d.minMipmapLevelClamp;
  out->maxMipmapLevelClamp = d.maxMipmapLevelClamp;
  memcpy(out->borderColor, d.borderColor, sizeof d.borderColor);
}

static_assert(sizeof(cudaResourceViewDesc) == sizeof(CUDA_RESOURCE_VIEW_DESC));

// A rectangle of an array, x in bytes and y in rows; the other side is memory.
struct Rectangle {
  size_t x, y, width, height;
};
bool from_host(cudaMemcpyKind k) {
  return k == cudaMemcpyHostToDevice || k == cudaMemcpyHostToHost;
}
bool to_host(cudaMemcpyKind k) { return k == cudaMemcpyDeviceToHost || k == cudaMemcpyHostToHost; }

CUDA_MEMCPY2D to_array(cudaArray_t to, Rectangle r, const void* from, size_t pitch,
                       cudaMemcpyKind kind) {
  CUDA_MEMCPY2D c = {};
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = reinterpret_cast<CUarray>(to);
  c.dstXInBytes = r.x;
  c.dstY = r.y;
  c.srcMemoryType = kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
                    : from_host(kind)         ? CU_MEMORYTYPE_HOST
                                              : CU_MEMORYTYPE_DEVICE;
  c.srcHost = from;
  c.srcDevice = device_ptr(from);
  c.srcPitch = pitch;
  c.WidthInBytes = r.width;
  c.Height = r.height;
  return c;
}
CUDA_MEMCPY2D from_array(void* to, size_t pitch, cudaArray_const_t from, Rectangle r,
                         cudaMemcpyKind kind) {
  CUDA_MEMCPY2D c = {};
  c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  c.srcArray = reinterpret_cast<CUarray>(const_cast<cudaArray_t>(from));
  c.srcXInBytes = r.x;
  c.srcY = r.y;
  c.dstMemoryType = kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
                    : to_host(kind)           ? CU_MEMORYTYPE_HOST
                                              : CU_MEMORYTYPE_DEVICE;
  c.dstHost = to;
  c.dstDevice = device_ptr(to);
  c.dstPitch = pitch;
  c.WidthInBytes = r.width;
  c.Height = r.height;
  return c;
}

// A run of bytes from (x, y) on goes over the ends of rows, as the calls of old programs count:
// copy(rectangle, bytes before it) for the rest of the first row, the whole rows, and what is left.
template <typename Copy>
cudaError_t over_rows(cudaArray_t array, size_t x, size_t y, size_t bytes, Copy copy) {
  CUDA_ARRAY3D_DESCRIPTOR d;
  CUDART_TRY(from_driver(cu().cuArray3DGetDescriptor(&d, reinterpret_cast<CUarray>(array))));
  size_t texel;
  CUDART_TRY(texel_bytes(array, &texel));
  const size_t row = d.Width * texel, rows = d.Height == 0 ? 1 : d.Height;
  if (x >= row || y >= rows || bytes > (rows - y) * row - x) return cudaErrorInvalidValue;
  size_t did = 0;
  while (did < bytes) {
    Rectangle r = {x, y, row - x, 1};
    if (r.width > bytes - did) r.width = bytes - did;
    if (x == 0 && bytes - did >= row) r.height = (bytes - did) / row;
    CUDART_TRY(copy(r, did));
    did += r.width * r.height;
    x = 0;
    y += r.height;
  }
  return cudaSuccess;
}

}  // namespace

CUDART_API(cudaMalloc3DArray,
           (cudaArray_t * array, const cudaChannelFormatDesc* channel, cudaExtent extent,
            unsigned flags),
           (array, channel, extent, flags)) {
  CUDART_TRY(ready());
  CUDA_ARRAY3D_DESCRIPTOR d;
  CUDART_TRY(describe_array(channel, extent, flags, &d));
  return from_driver(cu().cuArray3DCreate(reinterpret_cast<CUarray*>(array), &d));
}
CUDART_API(cudaMallocArray,
           (cudaArray_t * array, const cudaChannelFormatDesc* channel, size_t width, size_t height,
            unsigned flags),
           (array, channel, width, height, flags)) {
  return cudaMalloc3DArray_body(array, channel, cudaExtent{width, height, 0}, flags);
}
CUDART_API(cudaFreeArray, (cudaArray_t array), (array)) {
  CUDART_TRY(ready());
  if (!array) return cudaSuccess;
  return from_driver(cu().cuArrayDestroy(reinterpret_cast<CUarray>(array)));
}
CUDART_API(cudaArrayGetInfo,
           (cudaChannelFormatDesc * channel, cudaExtent* extent, unsigned* flags,
            cudaArray_t array),
           (channel, extent, flags, array)) {
  CUDART_TRY(ready());
  CUDA_ARRAY3D_DESCRIPTOR d;
  CUDART_TRY(from_driver(cu().cuArray3DGetDescriptor(&d, reinterpret_cast<CUarray>(array))));
  if (channel) *channel = channel_of(d.Format, d.NumChannels);
  if (extent) *extent = cudaExtent{d.Width, d.Height, d.Depth};
  if (flags) *flags = d.Flags;
  return cudaSuccess;
}
CUDART_API(cudaGetChannelDesc, (cudaChannelFormatDesc * channel, cudaArray_const_t array),
           (channel, array)) {
  return cudaArrayGetInfo_body(channel, nullptr, nullptr, const_cast<cudaArray_t>(array));
}
CUDART_API(cudaMallocMipmappedArray,
           (cudaMipmappedArray_t * mipmap, const cudaChannelFormatDesc* channel, cudaExtent extent,
            unsigned levels, unsigned flags),
           (mipmap, channel, extent, levels, flags)) {
  CUDART_TRY(ready());
  CUDA_ARRAY3D_DESCRIPTOR d;
  CUDART_TRY(describe_array(channel, extent, flags, &d));
  return from_driver(
      cu().cuMipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(mipmap), &d, levels));
}
CUDART_API(cudaGetMipmappedArrayLevel,
           (cudaArray_t * array, cudaMipmappedArray_const_t mipmap, unsigned level),
           (array, mipmap, level)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuMipmappedArrayGetLevel(
      reinterpret_cast<CUarray*>(array),
      reinterpret_cast<CUmipmappedArray>(const_cast<cudaMipmappedArray_t>(mipmap)), level));
}
CUDART_API(cudaFreeMipmappedArray, (cudaMipmappedArray_t mipmap), (mipmap)) {
  CUDART_TRY(ready());
  if (!mipmap) return cudaSuccess;
  return from_driver(cu().cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(mipmap)));
}

CUDART_API(cudaCreateTextureObject,
           (cudaTextureObject_t * out, const cudaResourceDesc* resource,
            const cudaTextureDesc* texture, const cudaResourceViewDesc* view),
           (out, resource, texture, view)) {
  if (!texture) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUDA_RESOURCE_DESC r;
  CUDART_TRY(describe_resource(resource, &r));
  CUDA_TEXTURE_DESC t = describe_texture(*texture);
  CUtexObject object = 0;
  CUDART_TRY(from_driver(cu().cuTexObjectCreate(
      &object, &r, &t, reinterpret_cast<const CUDA_RESOURCE_VIEW_DESC*>(view))));
  *out = object;
  return cudaSuccess;
}
CUDART_API(cudaDestroyTextureObject, (cudaTextureObject_t object), (object)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuTexObjectDestroy(object));
}
CUDART_API(cudaGetTextureObjectResourceDesc, (cudaResourceDesc * out, cudaTextureObject_t object),
           (out, object)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUDA_RESOURCE_DESC d;
  CUDART_TRY(from_driver(cu().cuTexObjectGetResourceDesc(&d, object)));
  tell_resource(d, out);
  return cudaSuccess;
}
CUDART_API(cudaGetTextureObjectTextureDesc, (cudaTextureDesc * out, cudaTextureObject_t object),
           (out, object)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUDA_TEXTURE_DESC d;
  CUDART_TRY(from_driver(cu().cuTexObjectGetTextureDesc(&d, object)));
  tell_texture(d, out);
  return cudaSuccess;
}
CUDART_API(cudaGetTextureObjectResourceViewDesc,
           (cudaResourceViewDesc * out, cudaTextureObject_t object), (out, object)) {
  CUDART_TRY(ready());
  return from_driver(
      cu().cuTexObjectGetResourceViewDesc(reinterpret_cast<CUDA_RESOURCE_VIEW_DESC*>(out), object));
}
CUDART_API(cudaCreateSurfaceObject, (cudaSurfaceObject_t * out, const cudaResourceDesc* resource),
           (out, resource)) {
  CUDART_TRY(ready());
  CUDA_RESOURCE_DESC r;
  CUDART_TRY(describe_resource(resource, &r));
  CUsurfObject object = 0;
  CUDART_TRY(from_driver(cu().cuSurfObjectCreate(&object, &r)));
  *out = object;
  return cudaSuccess;
}
CUDART_API(cudaDestroySurfaceObject, (cudaSurfaceObject_t object), (object)) {
  CUDART_TRY(ready());
  return from_driver(cu().cuSurfObjectDestroy(object));
}
CUDART_API(cudaGetSurfaceObjectResourceDesc, (cudaResourceDesc * out, cudaSurfaceObject_t object),
           (out, object)) {
  if (!out) return cudaErrorInvalidValue;
  CUDART_TRY(ready());
  CUDA_RESOURCE_DESC d;
  CUDART_TRY(from_driver(cu().cuSurfObjectGetResourceDesc(&d, object)));
  tell_resource(d, out);
  return cudaSuccess;
}

CUDART_API_PTDS(cudaMemcpy2DToArray,
                (cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                 size_t height, cudaMemcpyKind kind),
                (to, x, y, from, pitch, width, height, kind)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY2D c = to_array(to, {x, y, width, height}, from, pitch, kind);
  return from_driver(cu<F>().cuMemcpy2DUnaligned(&c));
}
CUDART_API_PTSZ(cudaMemcpy2DToArrayAsync,
                (cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width,
                 size_t height, cudaMemcpyKind kind, cudaStream_t stream),
                (to, x, y, from, pitch, width, height, kind, stream)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY2D c = to_array(to, {x, y, width, height}, from, pitch, kind);
  return from_driver(cu<F>().cuMemcpy2DAsync(&c, stream));
}
CUDART_API_PTDS(cudaMemcpy2DFromArray,
                (void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                 size_t height, cudaMemcpyKind kind),
                (to, pitch, from, x, y, width, height, kind)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY2D c = from_array(to, pitch, from, {x, y, width, height}, kind);
  return from_driver(cu<F>().cuMemcpy2DUnaligned(&c));
}
CUDART_API_PTSZ(cudaMemcpy2DFromArrayAsync,
                (void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                 size_t height, cudaMemcpyKind kind, cudaStream_t stream),
                (to, pitch, from, x, y, width, height, kind, stream)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY2D c = from_array(to, pitch, from, {x, y, width, height}, kind);
  return from_driver(cu<F>().cuMemcpy2DAsync(&c, stream));
}
CUDART_API_PTDS(cudaMemcpyToArray,
                (cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes,
                 cudaMemcpyKind kind),
                (to, x, y, from, bytes, kind)) {
  CUDART_TRY(ready());
  return over_rows(to, x, y, bytes, [&](Rectangle r, size_t at) {
    CUDA_MEMCPY2D c = to_array(to, r, static_cast<const char*>(from) + at, r.width, kind);
    return from_driver(cu<F>().cuMemcpy2DUnaligned(&c));
  });
}
CUDART_API_PTSZ(cudaMemcpyToArrayAsync,
                (cudaArray_t to, size_t x, size_t y, const void* from, size_t bytes,
                 cudaMemcpyKind kind, cudaStream_t stream),
                (to, x, y, from, bytes, kind, stream)) {
  CUDART_TRY(ready());
  return over_rows(to, x, y, bytes, [&](Rectangle r, size_t at) {
    CUDA_MEMCPY2D c = to_array(to, r, static_cast<const char*>(from) + at, r.width, kind);
    return from_driver(cu<F>().cuMemcpy2DAsync(&c, stream));
  });
}
CUDART_API_PTDS(cudaMemcpyFromArray,
                (void* to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                 cudaMemcpyKind kind),
                (to, from, x, y, bytes, kind)) {
  CUDART_TRY(ready());
  return over_rows(const_cast<cudaArray_t>(from), x, y, bytes, [&](Rectangle r, size_t at) {
    CUDA_MEMCPY2D c = from_array(static_cast<char*>(to) + at, r.width, from, r, kind);
    return from_driver(cu<F>().cuMemcpy2DUnaligned(&c));
  });
}
CUDART_API_PTSZ(cudaMemcpyFromArrayAsync,
                (void* to, cudaArray_const_t from, size_t x, size_t y, size_t bytes,
                 cudaMemcpyKind kind, cudaStream_t stream),
                (to, from, x, y, bytes, kind, stream)) {
  CUDART_TRY(ready());
  return over_rows(const_cast<cudaArray_t>(from), x, y, bytes, [&](Rectangle r, size_t at) {
    CUDA_MEMCPY2D c = from_array(static_cast<char*>(to) + at, r.width, from, r, kind);
    return from_driver(cu<F>().cuMemcpy2DAsync(&c, stream));
  });
}
CUDART_API_PTDS(cudaMemcpy2DArrayToArray,
                (cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t from_x,
                 size_t from_y, size_t width, size_t height, cudaMemcpyKind kind),
                (to, to_x, to_y, from, from_x, from_y, width, height, kind)) {
  CUDART_TRY(ready());
  CUDA_MEMCPY2D c = from_array(nullptr, 0, from, {from_x, from_y, width, height}, kind);
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = reinterpret_cast<CUarray>(to);
  c.dstXInBytes = to_x;
  c.dstY = to_y;
  return from_driver(cu<F>().cuMemcpy2DUnaligned(&c));
}
// As far as the rows of both go: a piece of one at a time.
CUDART_API_PTDS(cudaMemcpyArrayToArray,
                (cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t from_x,
                 size_t from_y, size_t bytes, cudaMemcpyKind kind),
                (to, to_x, to_y, from, from_x, from_y, bytes, kind)) {
  CUDART_TRY(ready());
  auto source = const_cast<cudaArray_t>(from);
  CUDA_ARRAY3D_DESCRIPTOR d;
  size_t texel;
  CUDART_TRY(from_driver(cu().cuArray3DGetDescriptor(&d, reinterpret_cast<CUarray>(source))));
  CUDART_TRY(texel_bytes(source, &texel));
  const size_t row = d.Width * texel;
  auto nothing = [](Rectangle, size_t) { return cudaSuccess; };
  CUDART_TRY(over_rows(source, from_x, from_y, bytes, nothing));  // in range
  return over_rows(to, to_x, to_y, bytes, [&](Rectangle r, size_t before) {
    for (size_t did = 0, all = r.width * r.height; did < all;) {
      const size_t at = from_x + before + did, left = row - at % row;
      size_t n = r.width - did % r.width;
      if (n > left) n = left;
      CUDA_MEMCPY2D c = from_array(nullptr, 0, from, {at % row, from_y + at / row, n, 1}, kind);
      c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
      c.dstArray = reinterpret_cast<CUarray>(to);
      c.dstXInBytes = r.x + did % r.width;
      c.dstY = r.y + did / r.width;
      CUDART_TRY(from_driver(cu<F>().cuMemcpy2DUnaligned(&c)));
      did += n;
    }
    return cudaSuccess;
  });
}
