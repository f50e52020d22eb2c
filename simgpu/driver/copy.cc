// Copies and sets. All of them are one Box of rows; addresses are resolved again when the stream
// gets there.
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "work.h"

namespace simgpu {
namespace {

using Place = AddressSpace::Place;

struct Box {
  uint64_t to = 0, from = 0;
  uint64_t width = 0, height = 1, depth = 1;
  uint64_t to_pitch = 0, from_pitch = 0;  // between rows
  uint64_t to_slice = 0, from_slice = 0;  // between layers

  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  uint64_t to_span() const { return (depth - 1) * to_slice + (height - 1) * to_pitch + width; }
  uint64_t from_span() const {
    return (depth - 1) * from_slice + (height - 1) * from_pitch + width;
  }
};

// SIMGPU_SLOW_COPY: as if the bus were that slow.
void pay_for(uint64_t bytes, Context& c) {
  double rate = state()->options.slow_copy;
  if (rate <= 0) return;
  auto left = static_cast<uint64_t>(static_cast<double>(bytes) / rate);
  while (left > 0 && !c.cancel.load()) {
    uint64_t step = left < 50000000 ? left : 50000000;
    sleep_ns(step);
    left -= step;
  }
}

CUresult copy_row(Context& c, uint64_t to, uint64_t from, uint64_t n) {
  AddressSpace& space = state()->memory;
  while (n > 0) {
    Piece d, s;
    if (!space.pin(c, to, n, true, &d) || !space.pin(c, from, n, false, &s))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    uint64_t k = d.length < s.length ? d.length : s.length;
    memmove(d.host, s.host, k);
    if (d.on_device != s.on_device) pay_for(k, c);
    to += k;
    from += k;
    n -= k;
  }
  return CUDA_SUCCESS;
}

CUresult copy_box(Context& c, const Box& b) {
  for (uint64_t z = 0; z < b.depth; ++z) {
    uint64_t to = b.to + z * b.to_slice, from = b.from + z * b.from_slice;
    if (b.to_pitch == b.width && b.from_pitch == b.width) {
      if (CUresult r = copy_row(c, to, from, b.width * b.height); r != CUDA_SUCCESS) return r;
      continue;
    }
    for (uint64_t y = 0; y < b.height; ++y) {
      CUresult r = copy_row(c, to + y * b.to_pitch, from + y * b.from_pitch, b.width);
      if (r != CUDA_SUCCESS) return r;
    }
  }
  return CUDA_SUCCESS;
}

enum class End { kAny, kHost, kDevice };

bool acceptable(Place p, End e) {
  if (p == Place::kBad) return false;
  if (e == End::kHost) return p != Place::kDevice;
  if (e == End::kDevice) return p != Place::kPageable;
  return true;
}

constexpr uint64_t kStaged = 64 * kKiB;

// What cuMemcpy* does once its arguments are a box. `blocking`: the call without Async in its name.
CUresult copy(CUstream stream, const Box& b, End to, End from, bool blocking) {
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  if (blocking) {
    if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  }
  if (b.empty()) return CUDA_SUCCESS;
  AddressSpace& space = state()->memory;
  Place d = space.classify(b.to, b.to_span()), f = space.classify(b.from, b.from_span());
  if (!acceptable(d, to) || !acceptable(f, from)) return CUDA_ERROR_INVALID_VALUE;
  bool captured = false;
  if (CUresult r = route(*s, &captured); r != CUDA_SUCCESS || captured) return r;

  bool pageable = d == Place::kPageable || f == Place::kPageable;
  bool on_device_only = d == Place::kDevice && f == Place::kDevice;
  // A small pageable source is taken at once; a large one, and a pageable target, keep the caller.
  if (!blocking && f == Place::kPageable && d != Place::kPageable && b.height == 1 &&
      b.depth == 1 && b.width <= kStaged) {
    void* stage = malloc(b.width);
    if (stage == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(stage, reinterpret_cast<void*>(b.from), b.width);
    struct Staged : Work {
      Box box;
      void* bytes;
      ~Staged() override { free(bytes); }
      CUresult execute(Context& c) override { return copy_box(c, box); }
      const char* name() const override { return "copy"; }
    };
    auto* w = new Staged;
    w->box = b;
    w->box.from = reinterpret_cast<uint64_t>(stage);
    w->bytes = stage;
    s->submit(w);
    return CUDA_SUCCESS;
  }
  Work* w = new_work("copy", [b](Context& c) { return copy_box(c, b); });
  if (pageable || (blocking && !on_device_only)) return s->run(w);
  if (blocking) {
    s->submit_at_once(w);
  } else {
    s->submit(w);
  }
  return CUDA_SUCCESS;
}

CUresult copy1(CUstream stream, uint64_t to, uint64_t from, uint64_t n, End te, End fe,
               bool blocking) {
  Box b;
  b.to = to;
  b.from = from;
  b.width = b.to_pitch = b.from_pitch = n;
  return copy(stream, b, te, fe, blocking);
}

uint64_t host(const void* p) { return reinterpret_cast<uint64_t>(p); }

struct Side {
  uint64_t base;
  End end;
};

CUresult side(CUmemorytype type, const void* h, CUdeviceptr d, Side* out) {
  switch (static_cast<int>(type)) {
    case CU_MEMORYTYPE_HOST:
      *out = {host(h), End::kHost};
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      *out = {d, End::kDevice};
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      *out = {d, End::kAny};
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult copy2(CUstream stream, const CUDA_MEMCPY2D* p, bool blocking) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Side to, from;
  if (CUresult r = side(p->dstMemoryType, p->dstHost, p->dstDevice, &to); r != CUDA_SUCCESS)
    return r;
  if (CUresult r = side(p->srcMemoryType, p->srcHost, p->srcDevice, &from); r != CUDA_SUCCESS)
    return r;
  Box b;
  b.width = p->WidthInBytes;
  b.height = p->Height;
  if (b.height > 1 &&
      (p->dstPitch < p->dstXInBytes + b.width || p->srcPitch < p->srcXInBytes + b.width))
    return CUDA_ERROR_INVALID_VALUE;
  b.to_pitch = p->dstPitch != 0 ? p->dstPitch : b.width;
  b.from_pitch = p->srcPitch != 0 ? p->srcPitch : b.width;
  b.to = to.base + p->dstY * b.to_pitch + p->dstXInBytes;
  b.from = from.base + p->srcY * b.from_pitch + p->srcXInBytes;
  return copy(stream, b, to.end, from.end, blocking);
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER.
template <class T>
CUresult copy3(CUstream stream, const T* p, bool blocking) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Side to, from;
  if (CUresult r = side(p->dstMemoryType, p->dstHost, p->dstDevice, &to); r != CUDA_SUCCESS)
    return r;
  if (CUresult r = side(p->srcMemoryType, p->srcHost, p->srcDevice, &from); r != CUDA_SUCCESS)
    return r;
  if (p->srcLOD != 0 || p->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  Box b;
  b.width = p->WidthInBytes;
  b.height = p->Height;
  b.depth = p->Depth;
  b.to_pitch = p->dstPitch != 0 ? p->dstPitch : b.width + p->dstXInBytes;
  b.from_pitch = p->srcPitch != 0 ? p->srcPitch : b.width + p->srcXInBytes;
  if (b.to_pitch < p->dstXInBytes + b.width || b.from_pitch < p->srcXInBytes + b.width)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t to_rows = p->dstHeight != 0 ? p->dstHeight : b.height + p->dstY;
  uint64_t from_rows = p->srcHeight != 0 ? p->srcHeight : b.height + p->srcY;
  if (b.depth > 1 && (to_rows < p->dstY + b.height || from_rows < p->srcY + b.height))
    return CUDA_ERROR_INVALID_VALUE;
  b.to_slice = b.to_pitch * to_rows;
  b.from_slice = b.from_pitch * from_rows;
  b.to = to.base + p->dstZ * b.to_slice + p->dstY * b.to_pitch + p->dstXInBytes;
  b.from = from.base + p->srcZ * b.from_slice + p->srcY * b.from_pitch + p->srcXInBytes;
  return copy(stream, b, to.end, from.end, blocking);
}

// A peer copy without Async comes after and before all work of both contexts: it waits for it, and
// is waited for.
CUresult peers(CUcontext a, CUcontext b, bool wait) {
  Ref<Context> x = context_of(a), y = context_of(b);
  if (!x || !y || !x->active() || !y->active()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!wait) return CUDA_SUCCESS;
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  if (CUresult r = x->synchronize(); r != CUDA_SUCCESS) return r;
  return y->synchronize();
}

CUresult settle(CUresult r) {
  if (r != CUDA_SUCCESS) return r;
  CURRENT(c);
  return c->synchronize();
}

template <class T>
CUresult set_row(Context& c, uint64_t at, T value, uint64_t count) {
  uint64_t n = count * sizeof(T);
  while (n > 0) {
    Piece p;
    if (!state()->memory.pin(c, at, n, true, &p)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if constexpr (sizeof(T) == 1) {
      memset(p.host, value, p.length);
    } else {
      auto* out = reinterpret_cast<T*>(p.host);
      for (uint64_t i = 0; i < p.length / sizeof(T); ++i) out[i] = value;
    }
    at += p.length;
    n -= p.length;
  }
  return CUDA_SUCCESS;
}

// Sets return before they are done, also those without Async, unless they touch memory of the host.
template <class T>
CUresult set(CUstream stream, uint64_t at, uint64_t pitch, T value, uint64_t width, uint64_t height,
             bool blocking) {
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  if (blocking) {
    if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  }
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (at % sizeof(T) != 0 || (height > 1 && (pitch < width * sizeof(T) || pitch % sizeof(T) != 0)))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t bytes;
  if (__builtin_mul_overflow(width, sizeof(T), &bytes)) return CUDA_ERROR_INVALID_VALUE;
  Place p = state()->memory.classify(at, (height - 1) * pitch + bytes);
  if (!acceptable(p, End::kDevice)) return CUDA_ERROR_INVALID_VALUE;
  bool captured = false;
  if (CUresult r = route(*s, &captured); r != CUDA_SUCCESS || captured) return r;
  Work* w = new_work("set", [=](Context& c) {
    for (uint64_t y = 0; y < height; ++y) {
      CUresult r = set_row<T>(c, at + y * pitch, value, width);
      if (r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  });
  if (blocking && p != Place::kDevice) return s->run(w);
  if (blocking) {
    s->submit_at_once(w);
  } else {
    s->submit(w);
  }
  return CUDA_SUCCESS;
}

CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, size_t* failed,
                    CUstream stream) {
  if (to == nullptr || from == nullptr || sizes == nullptr || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    CUresult r = copy1(stream, to[i], from[i], sizes[i], End::kAny, End::kAny, false);
    if (r == CUDA_SUCCESS) continue;
    if (failed != nullptr) *failed = i;
    return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
  ENTER(cuMemcpy);
  return copy1(nullptr, to, from, n, End::kAny, End::kAny, true);
}
SIMGPU_API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
  ENTER(cuMemcpyAsync);
  return copy1(stream, to, from, n, End::kAny, End::kAny, false);
}
SIMGPU_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t n) {
  ENTER(cuMemcpyHtoD_v2);
  return copy1(nullptr, to, host(from), n, End::kDevice, End::kHost, true);
}
SIMGPU_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t n, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync_v2);
  return copy1(stream, to, host(from), n, End::kDevice, End::kHost, false);
}
SIMGPU_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) {
  ENTER(cuMemcpyDtoH_v2);
  return copy1(nullptr, host(to), from, n, End::kHost, End::kDevice, true);
}
SIMGPU_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t n, CUstream stream) {
  ENTER(cuMemcpyDtoHAsync_v2);
  return copy1(stream, host(to), from, n, End::kHost, End::kDevice, false);
}
SIMGPU_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) {
  ENTER(cuMemcpyDtoD_v2);
  return copy1(nullptr, to, from, n, End::kDevice, End::kDevice, true);
}
SIMGPU_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
  ENTER(cuMemcpyDtoDAsync_v2);
  return copy1(stream, to, from, n, End::kDevice, End::kDevice, false);
}

SIMGPU_API cuMemcpyPeer(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                        size_t n) {
  ENTER(cuMemcpyPeer);
  if (CUresult r = peers(to_ctx, from_ctx, true); r != CUDA_SUCCESS) return r;
  return settle(copy1(nullptr, to, from, n, End::kDevice, End::kDevice, true));
}
SIMGPU_API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                             size_t n, CUstream stream) {
  ENTER(cuMemcpyPeerAsync);
  if (CUresult r = peers(to_ctx, from_ctx, false); r != CUDA_SUCCESS) return r;
  return copy1(stream, to, from, n, End::kDevice, End::kDevice, false);
}

SIMGPU_API cuMemcpy2D_v2(const CUDA_MEMCPY2D* p) {
  ENTER(cuMemcpy2D_v2);
  return copy2(nullptr, p, true);
}
SIMGPU_API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* p) {
  ENTER(cuMemcpy2DUnaligned_v2);
  return copy2(nullptr, p, true);
}
SIMGPU_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* p, CUstream stream) {
  ENTER(cuMemcpy2DAsync_v2);
  return copy2(stream, p, false);
}
SIMGPU_API cuMemcpy3D_v2(const CUDA_MEMCPY3D* p) {
  ENTER(cuMemcpy3D_v2);
  return copy3(nullptr, p, true);
}
SIMGPU_API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* p, CUstream stream) {
  ENTER(cuMemcpy3DAsync_v2);
  return copy3(stream, p, false);
}
SIMGPU_API cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* p) {
  ENTER(cuMemcpy3DPeer);
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (p->dstContext != nullptr && p->srcContext != nullptr) {
    if (CUresult r = peers(p->dstContext, p->srcContext, true); r != CUDA_SUCCESS) return r;
  }
  return settle(copy3(nullptr, p, true));
}
SIMGPU_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* p, CUstream stream) {
  ENTER(cuMemcpy3DPeerAsync);
  return copy3(stream, p, false);
}

SIMGPU_API cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                              CUmemcpyAttributes*, size_t*, size_t, size_t* failed,
                              CUstream stream) {
  ENTER(cuMemcpyBatchAsync);
  return copy_batch(to, from, sizes, count, failed, stream);
}
SIMGPU_API cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                 CUmemcpyAttributes*, size_t*, size_t, CUstream stream) {
  ENTER(cuMemcpyBatchAsync_v2);
  return copy_batch(to, from, sizes, count, nullptr, stream);
}

SIMGPU_API cuMemsetD8_v2(CUdeviceptr at, unsigned char v, size_t n) {
  ENTER(cuMemsetD8_v2);
  return set(nullptr, at, 0, v, n, 1, true);
}
SIMGPU_API cuMemsetD16_v2(CUdeviceptr at, unsigned short v, size_t n) {
  ENTER(cuMemsetD16_v2);
  return set(nullptr, at, 0, v, n, 1, true);
}
SIMGPU_API cuMemsetD32_v2(CUdeviceptr at, unsigned v, size_t n) {
  ENTER(cuMemsetD32_v2);
  return set(nullptr, at, 0, v, n, 1, true);
}
SIMGPU_API cuMemsetD2D8_v2(CUdeviceptr at, size_t pitch, unsigned char v, size_t w, size_t h) {
  ENTER(cuMemsetD2D8_v2);
  return set(nullptr, at, pitch, v, w, h, true);
}
SIMGPU_API cuMemsetD2D16_v2(CUdeviceptr at, size_t pitch, unsigned short v, size_t w, size_t h) {
  ENTER(cuMemsetD2D16_v2);
  return set(nullptr, at, pitch, v, w, h, true);
}
SIMGPU_API cuMemsetD2D32_v2(CUdeviceptr at, size_t pitch, unsigned v, size_t w, size_t h) {
  ENTER(cuMemsetD2D32_v2);
  return set(nullptr, at, pitch, v, w, h, true);
}
SIMGPU_API cuMemsetD8Async(CUdeviceptr at, unsigned char v, size_t n, CUstream s) {
  ENTER(cuMemsetD8Async);
  return set(s, at, 0, v, n, 1, false);
}
SIMGPU_API cuMemsetD16Async(CUdeviceptr at, unsigned short v, size_t n, CUstream s) {
  ENTER(cuMemsetD16Async);
  return set(s, at, 0, v, n, 1, false);
}
SIMGPU_API cuMemsetD32Async(CUdeviceptr at, unsigned v, size_t n, CUstream s) {
  ENTER(cuMemsetD32Async);
  return set(s, at, 0, v, n, 1, false);
}
SIMGPU_API cuMemsetD2D8Async(CUdeviceptr at, size_t pitch, unsigned char v, size_t w, size_t h,
                             CUstream s) {
  ENTER(cuMemsetD2D8Async);
  return set(s, at, pitch, v, w, h, false);
}
SIMGPU_API cuMemsetD2D16Async(CUdeviceptr at, size_t pitch, unsigned short v, size_t w, size_t h,
                              CUstream s) {
  ENTER(cuMemsetD2D16Async);
  return set(s, at, pitch, v, w, h, false);
}
SIMGPU_API cuMemsetD2D32Async(CUdeviceptr at, size_t pitch, unsigned v, size_t w, size_t h,
                              CUstream s) {
  ENTER(cuMemsetD2D32Async);
  return set(s, at, pitch, v, w, h, false);
}
