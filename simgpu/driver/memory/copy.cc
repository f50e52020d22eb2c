// Copies and sets. All of them are one Box of rows; addresses are resolved again when the stream
// gets there.
#include "driver/memory/copy.h"

#include <emmintrin.h>
#include <stdlib.h>
#include <string.h>

#include "driver/memory/memory.h"
#include "driver/stream/action.h"
#include "driver/stream/work.h"

namespace simgpu {
namespace {

using Place = AddressSpace::Place;

// SIMGPU_SLOW_COPY: waits as long as a bus of that rate would take.
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

// `at` of an array is an offset in its texels.
bool piece_of(Context& c, Array* array, uint64_t at, uint64_t n, bool write, Piece* out) {
  if (!array) return state()->memory.pin(c, at, n, write, out);
  if (at > array->bytes() || n > array->bytes() - at) return false;
  out->host = array->host() + at;
  out->length = n;
  out->on_device = true;
  return true;
}

// A copy engine writes past the processor's caches, however long its copies are. (The C library
// does so from about a megabyte on; a copy of less then throws out of the caches what its page
// faults need, and takes 1.3 times as long.)
void engine_copy(uint8_t* to, const uint8_t* from, uint64_t n) {
  constexpr uint64_t kLine = 64, kWorthIt = 64 * kKiB;
  const bool apart = to + n <= from || from + n <= to;
  if (n < kWorthIt || !apart) {
    memmove(to, from, n);
    return;
  }
  const uint64_t head = -reinterpret_cast<uint64_t>(to) % kLine;
  memcpy(to, from, head);
  uint64_t at = head;
  for (; at + kLine <= n; at += kLine)
    for (uint64_t i = 0; i < kLine; i += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + i)));
  _mm_sfence();
  memcpy(to + at, from + at, n - at);
}

CUresult copy_row(Context& c, const Box& b, uint64_t to, uint64_t from, uint64_t n) {
  while (n > 0) {
    Piece d, s;
    if (!piece_of(c, b.to_array.get(), to, n, true, &d) ||
        !piece_of(c, b.from_array.get(), from, n, false, &s))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    uint64_t k = d.length < s.length ? d.length : s.length;
    if (d.on_device)
      engine_copy(d.host, s.host, k);
    else
      memmove(d.host, s.host, k);
    if (d.on_device != s.on_device) pay_for(k, c);
    to += k;
    from += k;
    n -= k;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_box(Context& c, const Box& b) {
  MemoryUse use;
  for (uint64_t z = 0; z < b.depth; ++z) {
    uint64_t to = b.to + z * b.to_slice, from = b.from + z * b.from_slice;
    if (b.to_pitch == b.width && b.from_pitch == b.width) {
      if (CUresult r = copy_row(c, b, to, from, b.width * b.height); r != CUDA_SUCCESS) return r;
      continue;
    }
    for (uint64_t y = 0; y < b.height; ++y) {
      CUresult r = copy_row(c, b, to + y * b.to_pitch, from + y * b.from_pitch, b.width);
      if (r != CUDA_SUCCESS) return r;
    }
  }
  return CUDA_SUCCESS;
}

namespace {

enum class End { kAny, kHost, kDevice };

bool acceptable(Place p, End e) {
  if (p == Place::kBad) return false;
  if (e == End::kHost) return p != Place::kDevice;
  if (e == End::kDevice) return p != Place::kPageable;
  return true;
}

constexpr uint64_t kStaged = 64 * kKiB;

// Both ends, checked.
struct Ends {
  Place to, from;
};
CUresult check(const Box& b, End to, End from, Ends* out) {
  out->to = b.to_array ? Place::kDevice : place_of(b.to, b.to_span());
  out->from = b.from_array ? Place::kDevice : place_of(b.from, b.from_span());
  return acceptable(out->to, to) && acceptable(out->from, from) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

CUmemorytype memory_type(const Ref<Array>& array, Place p) {
  return array                                        ? CU_MEMORYTYPE_ARRAY
         : p == Place::kPageable || p == Place::kHost ? CU_MEMORYTYPE_HOST
                                                      : CU_MEMORYTYPE_DEVICE;
}

// The box as the structure that describes a copy node.
CUDA_MEMCPY3D describe(const Box& b, const Ends& ends) {
  CUDA_MEMCPY3D p = {};
  p.WidthInBytes = b.width;
  p.Height = b.height;
  p.Depth = b.depth;
  p.dstMemoryType = memory_type(b.to_array, ends.to);
  p.srcMemoryType = memory_type(b.from_array, ends.from);
  p.dstPitch = b.to_pitch;
  p.srcPitch = b.from_pitch;
  p.dstHeight = b.to_pitch != 0 && b.to_slice != 0 ? b.to_slice / b.to_pitch : b.height;
  p.srcHeight = b.from_pitch != 0 && b.from_slice != 0 ? b.from_slice / b.from_pitch : b.height;
  if (b.to_array) {
    p.dstArray = reinterpret_cast<CUarray>(b.to_array.get());
    p.dstZ = b.to / b.to_slice;
    p.dstY = b.to % b.to_slice / b.to_pitch;
    p.dstXInBytes = b.to % b.to_pitch;
    p.dstPitch = p.dstHeight = 0;
  } else if (p.dstMemoryType == CU_MEMORYTYPE_HOST) {
    p.dstHost = reinterpret_cast<void*>(b.to);
  } else {
    p.dstDevice = b.to;
  }
  if (b.from_array) {
    p.srcArray = reinterpret_cast<CUarray>(b.from_array.get());
    p.srcZ = b.from / b.from_slice;
    p.srcY = b.from % b.from_slice / b.from_pitch;
    p.srcXInBytes = b.from % b.from_pitch;
    p.srcPitch = p.srcHeight = 0;
  } else if (p.srcMemoryType == CU_MEMORYTYPE_HOST) {
    p.srcHost = reinterpret_cast<const void*>(b.from);
  } else {
    p.srcDevice = b.from;
  }
  return p;
}

// What cuMemcpy* does once its arguments are a box. `blocking`: the call without Async in its name.
// `at_call`: the source may be freed or overwritten as soon as the call returns.
CUresult copy(CUstream stream, const Box& b, End to, End from, bool blocking,
              bool at_call = false) {
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  if (blocking) {
    if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  }
  if (b.empty()) return CUDA_SUCCESS;
  Ends ends;
  if (CUresult r = check(b, to, from, &ends); r != CUDA_SUCCESS) return r;
  auto action = Ref<CopyAction>::adopt(new CopyAction(s->context, b));
  action->params = describe(b, ends);
  bool captured = false;
  if (CUresult r = route(*s, as_action(action), &captured); r != CUDA_SUCCESS || captured) return r;

  bool pageable = ends.to == Place::kPageable || ends.from == Place::kPageable;
  bool on_device_only = ends.to == Place::kDevice && ends.from == Place::kDevice;
  // A small pageable source is copied at once; a large one, and a pageable target, make the caller
  // wait.
  if (!blocking && ends.from == Place::kPageable && ends.to != Place::kPageable && b.height == 1 &&
      b.depth == 1 && b.width <= kStaged) {
    void* stage = malloc(b.width);
    if (!stage) return CUDA_ERROR_OUT_OF_MEMORY;
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
  Work* w = new ActionWork(as_action(action));
  if (pageable || at_call || (blocking && !on_device_only)) return s->run(w);
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
  uint64_t base = 0;
  End end = End::kAny;
  Ref<Array> array;
};

CUresult side(CUmemorytype type, const void* h, CUdeviceptr d, CUarray array, Side* out) {
  switch (static_cast<int>(type)) {
    case CU_MEMORYTYPE_HOST:
      out->base = host(h);
      out->end = End::kHost;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      out->base = d;
      out->end = End::kDevice;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      out->base = d;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
      out->array = state()->handles.get<Array>(array);
      return out->array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// One end of a box: where it starts, and the way from row to row and from layer to layer.
struct Corner {
  uint64_t x, y, z, pitch, rows;
};
CUresult place(const Side& s, Corner at, uint64_t width, uint64_t height, uint64_t depth,
               uint64_t* start, uint64_t* pitch, uint64_t* slice) {
  if (s.array) {
    const Array& a = *s.array;
    if (at.x + width > a.row_bytes() || at.y + height > a.rows || at.z + depth > a.slices ||
        at.x % a.texel_bytes() != 0 || width % a.texel_bytes() != 0)
      return CUDA_ERROR_INVALID_VALUE;
    *pitch = a.row_bytes();
    *slice = a.slice_bytes();
    *start = at.z * *slice + at.y * *pitch + at.x;
    return CUDA_SUCCESS;
  }
  *pitch = at.pitch != 0 ? at.pitch : width + at.x;
  if ((height > 1 || depth > 1) && *pitch < at.x + width) return CUDA_ERROR_INVALID_VALUE;
  uint64_t rows = at.rows != 0 ? at.rows : height + at.y;
  if (depth > 1 && rows < at.y + height) return CUDA_ERROR_INVALID_VALUE;
  *slice = *pitch * rows;
  *start = s.base + at.z * *slice + at.y * *pitch + at.x;
  return CUDA_SUCCESS;
}

CUresult make_box(const Side& to, const Corner& to_at, const Side& from, const Corner& from_at,
                  uint64_t width, uint64_t height, uint64_t depth, Box* b) {
  b->width = width;
  b->height = height;
  b->depth = depth;
  b->to_array = to.array;
  b->from_array = from.array;
  if (b->empty()) return CUDA_SUCCESS;
  if (CUresult r = place(to, to_at, width, height, depth, &b->to, &b->to_pitch, &b->to_slice);
      r != CUDA_SUCCESS)
    return r;
  return place(from, from_at, width, height, depth, &b->from, &b->from_pitch, &b->from_slice);
}

CUresult copy2(CUstream stream, const CUDA_MEMCPY2D* p, bool blocking) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Side to, from;
  if (CUresult r = side(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, &to);
      r != CUDA_SUCCESS)
    return r;
  if (CUresult r = side(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, &from);
      r != CUDA_SUCCESS)
    return r;
  Box b;
  if (CUresult r =
          make_box(to, {p->dstXInBytes, p->dstY, 0, p->dstPitch, 0}, from,
                   {p->srcXInBytes, p->srcY, 0, p->srcPitch, 0}, p->WidthInBytes, p->Height, 1, &b);
      r != CUDA_SUCCESS)
    return r;
  return copy(stream, b, to.end, from.end, blocking);
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER.
template <class T>
CUresult box_of(const T& p, Box* b, Side* to, Side* from) {
  if (CUresult r = side(p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray, to); r != CUDA_SUCCESS)
    return r;
  if (CUresult r = side(p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray, from);
      r != CUDA_SUCCESS)
    return r;
  if (p.srcLOD != 0 || p.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  return make_box(*to, {p.dstXInBytes, p.dstY, p.dstZ, p.dstPitch, p.dstHeight}, *from,
                  {p.srcXInBytes, p.srcY, p.srcZ, p.srcPitch, p.srcHeight}, p.WidthInBytes,
                  p.Height, p.Depth, b);
}

template <class T>
CUresult copy3(CUstream stream, const T* p, bool blocking) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Side to, from;
  Box b;
  if (CUresult r = box_of(*p, &b, &to, &from); r != CUDA_SUCCESS) return r;
  return copy(stream, b, to.end, from.end, blocking);
}

// Between an array's first row (cuMemcpyHtoA and its like address bytes along it) and an address.
CUresult copy_array(CUstream stream, CUarray to_array, uint64_t to, CUarray from_array,
                    uint64_t from, uint64_t n, End to_end, End from_end, bool blocking) {
  if (!to_array && !from_array) return CUDA_ERROR_INVALID_HANDLE;
  Side t, f;
  CUmemorytype array = CU_MEMORYTYPE_ARRAY, any = CU_MEMORYTYPE_UNIFIED;
  if (CUresult r = side(to_array ? array : any, nullptr, to, to_array, &t); r != CUDA_SUCCESS)
    return r;
  if (CUresult r = side(from_array ? array : any, nullptr, from, from_array, &f); r != CUDA_SUCCESS)
    return r;
  Box b;
  if (CUresult r = make_box(t, {t.array ? to : 0, 0, 0, 0, 0}, f, {f.array ? from : 0, 0, 0, 0, 0},
                            n, 1, 1, &b);
      r != CUDA_SUCCESS)
    return r;
  return copy(stream, b, to_end, from_end, blocking);
}

// A peer copy without Async is ordered before and after all work of both contexts: it waits for it,
// and later work waits for the copy.
CUresult peers(CUcontext a, CUcontext b, bool wait) {
  Ref<Context> x = context_of(a), y = context_of(b);
  if (!x || !y || !x->active() || !y->active()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!wait) return CUDA_SUCCESS;
  if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  if (CUresult r = x->synchronize(); r != CUDA_SUCCESS) return r;
  return y->synchronize();
}

CUresult and_wait(CUresult r) {
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

CUresult check_set(const CUDA_MEMSET_NODE_PARAMS_v1& p, Place* place) {
  unsigned e = p.elementSize;
  if (e != 1 && e != 2 && e != 4) return CUDA_ERROR_INVALID_VALUE;
  uint64_t bytes;
  if (__builtin_mul_overflow(p.width, e, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (p.dst % e != 0 || (p.height > 1 && (p.pitch < bytes || p.pitch % e != 0)))
    return CUDA_ERROR_INVALID_VALUE;
  *place = place_of(p.dst, (p.height - 1) * p.pitch + bytes);
  return acceptable(*place, End::kDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Sets return before they are done, also those without Async, unless they touch memory of the host.
CUresult set(CUstream stream, uint64_t at, uint64_t pitch, unsigned value, unsigned element,
             uint64_t width, uint64_t height, bool blocking) {
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  if (blocking) {
    if (CUresult r = forbid_unsafe(); r != CUDA_SUCCESS) return r;
  }
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  CUDA_MEMSET_NODE_PARAMS_v1 params = {at, height > 1 ? pitch : 0, value, element, width, height};
  Place p;
  if (CUresult r = check_set(params, &p); r != CUDA_SUCCESS) return r;
  auto action = Ref<Action>::adopt(new SetAction(s->context, params));
  bool captured = false;
  if (CUresult r = route(*s, action, &captured); r != CUDA_SUCCESS || captured) return r;
  Work* w = new ActionWork(action);
  if (blocking && p != Place::kDevice) return s->run(w);
  if (blocking) {
    s->submit_at_once(w);
  } else {
    s->submit(w);
  }
  return CUDA_SUCCESS;
}

bool own_stream(CUstream stream) { return stream && stream != CU_STREAM_LEGACY; }

CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, size_t* failed,
                    CUstream stream) {
  if (!to || !from || !sizes || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!own_stream(stream)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    CUresult r = copy1(stream, to[i], from[i], sizes[i], End::kAny, End::kAny, false);
    if (r == CUDA_SUCCESS) continue;
    if (failed) *failed = i;
    return r;
  }
  return CUDA_SUCCESS;
}

// An end of a copy in a batch. Lengths are in elements: of an array, or bytes.
CUresult operand(const CUmemcpy3DOperand& o, Side* s) {
  switch (static_cast<int>(o.type)) {
    case CU_MEMCPY_OPERAND_TYPE_POINTER:
      s->base = o.op.ptr.ptr;
      return CUDA_SUCCESS;
    case CU_MEMCPY_OPERAND_TYPE_ARRAY:
      return side(CU_MEMORYTYPE_ARRAY, nullptr, 0, o.op.array.array, s);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
CUresult corner(const CUmemcpy3DOperand& o, const CUextent3D& extent, uint64_t element,
                Corner* out) {
  if (o.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const CUoffset3D& at = o.op.array.offset;
    *out = {at.x * element, at.y, at.z, 0, 0};
    return CUDA_SUCCESS;
  }
  const auto& p = o.op.ptr;
  if ((p.rowLength != 0 && p.rowLength < extent.width) ||
      (p.layerHeight != 0 && p.layerHeight < extent.height))
    return CUDA_ERROR_INVALID_VALUE;
  *out = {0, 0, 0, p.rowLength * element, p.layerHeight};
  return CUDA_SUCCESS;
}

CUresult copy_op(CUstream stream, const CUDA_MEMCPY3D_BATCH_OP& op) {
  if (op.srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
      op.srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
    return CUDA_ERROR_INVALID_VALUE;
  const CUextent3D& n = op.extent;
  if (n.width == 0 || n.height == 0 || n.depth == 0) return CUDA_ERROR_INVALID_VALUE;
  Side to, from;
  if (CUresult r = operand(op.dst, &to); r != CUDA_SUCCESS) return r;
  if (CUresult r = operand(op.src, &from); r != CUDA_SUCCESS) return r;
  if (to.array && from.array && to.array->texel_bytes() != from.array->texel_bytes())
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t element = to.array     ? to.array->texel_bytes()
                           : from.array ? from.array->texel_bytes()
                                        : 1;
  Corner to_at, from_at;
  if (CUresult r = corner(op.dst, n, element, &to_at); r != CUDA_SUCCESS) return r;
  if (CUresult r = corner(op.src, n, element, &from_at); r != CUDA_SUCCESS) return r;
  Box b;
  CUresult r = make_box(to, to_at, from, from_at, n.width * element, n.height, n.depth, &b);
  if (r != CUDA_SUCCESS) return r;
  return copy(stream, b, End::kAny, End::kAny, false,
              op.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
}

CUresult copy_ops(size_t count, const CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed,
                  unsigned long long flags, CUstream stream) {
  if (!ops || count == 0 || flags != 0 || !own_stream(stream)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    CUresult r = copy_op(stream, ops[i]);
    if (r == CUDA_SUCCESS) continue;
    if (failed) *failed = i;
    return r;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult SetAction::execute(Context& c) {
  MemoryUse use;
  for (uint64_t y = 0; y < params.height; ++y) {
    uint64_t at = params.dst + y * params.pitch;
    CUresult r = params.elementSize == 1
                     ? set_row<uint8_t>(c, at, static_cast<uint8_t>(params.value), params.width)
                 : params.elementSize == 2
                     ? set_row<uint16_t>(c, at, static_cast<uint16_t>(params.value), params.width)
                     : set_row<uint32_t>(c, at, params.value, params.width);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult make_set(Ref<Context> c, const CUDA_MEMSET_NODE_PARAMS_v1& p, Ref<SetAction>* out) {
  if (p.width == 0 || p.height == 0) return CUDA_ERROR_INVALID_VALUE;
  Place place;
  if (CUresult r = check_set(p, &place); r != CUDA_SUCCESS) return r;
  *out = Ref<SetAction>::adopt(new SetAction(std::move(c), p));
  return CUDA_SUCCESS;
}

CUresult make_copy(Ref<Context> c, const CUDA_MEMCPY3D& p, Ref<CopyAction>* out) {
  Side to, from;
  Box b;
  if (CUresult r = box_of(p, &b, &to, &from); r != CUDA_SUCCESS) return r;
  if (b.empty()) return CUDA_ERROR_INVALID_VALUE;
  Ends ends;
  if (CUresult r = check(b, to.end, from.end, &ends); r != CUDA_SUCCESS) return r;
  auto action = Ref<CopyAction>::adopt(new CopyAction(std::move(c), b));
  action->params = p;
  *out = std::move(action);
  return CUDA_SUCCESS;
}

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
  return and_wait(copy1(nullptr, to, from, n, End::kDevice, End::kDevice, true));
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
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (p->dstContext && p->srcContext) {
    if (CUresult r = peers(p->dstContext, p->srcContext, true); r != CUDA_SUCCESS) return r;
  }
  return and_wait(copy3(nullptr, p, true));
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

SIMGPU_API cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed,
                                unsigned long long flags, CUstream stream) {
  ENTER(cuMemcpy3DBatchAsync);
  return copy_ops(count, ops, failed, flags, stream);
}
SIMGPU_API cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* ops,
                                   unsigned long long flags, CUstream stream) {
  ENTER(cuMemcpy3DBatchAsync_v2);
  return copy_ops(count, ops, nullptr, flags, stream);
}

SIMGPU_API cuMemsetD8_v2(CUdeviceptr at, unsigned char v, size_t n) {
  ENTER(cuMemsetD8_v2);
  return set(nullptr, at, 0, v, 1, n, 1, true);
}
SIMGPU_API cuMemsetD16_v2(CUdeviceptr at, unsigned short v, size_t n) {
  ENTER(cuMemsetD16_v2);
  return set(nullptr, at, 0, v, 2, n, 1, true);
}
SIMGPU_API cuMemsetD32_v2(CUdeviceptr at, unsigned v, size_t n) {
  ENTER(cuMemsetD32_v2);
  return set(nullptr, at, 0, v, 4, n, 1, true);
}
SIMGPU_API cuMemsetD2D8_v2(CUdeviceptr at, size_t pitch, unsigned char v, size_t w, size_t h) {
  ENTER(cuMemsetD2D8_v2);
  return set(nullptr, at, pitch, v, 1, w, h, true);
}
SIMGPU_API cuMemsetD2D16_v2(CUdeviceptr at, size_t pitch, unsigned short v, size_t w, size_t h) {
  ENTER(cuMemsetD2D16_v2);
  return set(nullptr, at, pitch, v, 2, w, h, true);
}
SIMGPU_API cuMemsetD2D32_v2(CUdeviceptr at, size_t pitch, unsigned v, size_t w, size_t h) {
  ENTER(cuMemsetD2D32_v2);
  return set(nullptr, at, pitch, v, 4, w, h, true);
}
SIMGPU_API cuMemsetD8Async(CUdeviceptr at, unsigned char v, size_t n, CUstream s) {
  ENTER(cuMemsetD8Async);
  return set(s, at, 0, v, 1, n, 1, false);
}
SIMGPU_API cuMemsetD16Async(CUdeviceptr at, unsigned short v, size_t n, CUstream s) {
  ENTER(cuMemsetD16Async);
  return set(s, at, 0, v, 2, n, 1, false);
}
SIMGPU_API cuMemsetD32Async(CUdeviceptr at, unsigned v, size_t n, CUstream s) {
  ENTER(cuMemsetD32Async);
  return set(s, at, 0, v, 4, n, 1, false);
}
SIMGPU_API cuMemsetD2D8Async(CUdeviceptr at, size_t pitch, unsigned char v, size_t w, size_t h,
                             CUstream s) {
  ENTER(cuMemsetD2D8Async);
  return set(s, at, pitch, v, 1, w, h, false);
}
SIMGPU_API cuMemsetD2D16Async(CUdeviceptr at, size_t pitch, unsigned short v, size_t w, size_t h,
                              CUstream s) {
  ENTER(cuMemsetD2D16Async);
  return set(s, at, pitch, v, 2, w, h, false);
}
SIMGPU_API cuMemsetD2D32Async(CUdeviceptr at, size_t pitch, unsigned v, size_t w, size_t h,
                              CUstream s) {
  ENTER(cuMemsetD2D32Async);
  return set(s, at, pitch, v, 4, w, h, false);
}

SIMGPU_API cuMemcpyDtoA_v2(CUarray to, size_t at, CUdeviceptr from, size_t n) {
  ENTER(cuMemcpyDtoA_v2);
  return copy_array(nullptr, to, at, nullptr, from, n, End::kAny, End::kDevice, true);
}
SIMGPU_API cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t at, size_t n) {
  ENTER(cuMemcpyAtoD_v2);
  return copy_array(nullptr, nullptr, to, from, at, n, End::kDevice, End::kAny, true);
}
SIMGPU_API cuMemcpyHtoA_v2(CUarray to, size_t at, const void* from, size_t n) {
  ENTER(cuMemcpyHtoA_v2);
  return copy_array(nullptr, to, at, nullptr, host(from), n, End::kAny, End::kHost, true);
}
SIMGPU_API cuMemcpyAtoH_v2(void* to, CUarray from, size_t at, size_t n) {
  ENTER(cuMemcpyAtoH_v2);
  return copy_array(nullptr, nullptr, host(to), from, at, n, End::kHost, End::kAny, true);
}
SIMGPU_API cuMemcpyAtoA_v2(CUarray to, size_t to_at, CUarray from, size_t from_at, size_t n) {
  ENTER(cuMemcpyAtoA_v2);
  if (!to || !from) return CUDA_ERROR_INVALID_HANDLE;
  return copy_array(nullptr, to, to_at, from, from_at, n, End::kAny, End::kAny, true);
}
SIMGPU_API cuMemcpyHtoAAsync_v2(CUarray to, size_t at, const void* from, size_t n, CUstream s) {
  ENTER(cuMemcpyHtoAAsync_v2);
  return copy_array(s, to, at, nullptr, host(from), n, End::kAny, End::kHost, false);
}
SIMGPU_API cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t at, size_t n, CUstream s) {
  ENTER(cuMemcpyAtoHAsync_v2);
  return copy_array(s, nullptr, host(to), from, at, n, End::kHost, End::kAny, false);
}
