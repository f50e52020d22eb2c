// Waits for and writes 32 and 64-bit values in memory, in stream order.
#include <string.h>

#include "driver/memory/memory.h"
#include "driver/stream/action.h"

namespace simgpu {
namespace {

using Place = AddressSpace::Place;

CUresult check(CUdeviceptr at, unsigned width) {
  if (at == 0 || at % width != 0) return CUDA_ERROR_INVALID_VALUE;
  Place p = place_of(at, width);
  return p == Place::kBad || p == Place::kPageable ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

template <class T>
bool load(Context& c, CUdeviceptr at, T* value, Piece* piece) {
  if (!state()->memory.pin(c, at, sizeof(T), false, piece) || piece->length < sizeof(T))
    return false;
  *value = __atomic_load_n(reinterpret_cast<T*>(piece->host), __ATOMIC_ACQUIRE);
  return true;
}

template <class T>
bool satisfied(T now, T wanted, unsigned flags) {
  switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(now - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & wanted) != 0;
    default:
      return static_cast<T>(~(now | wanted)) != 0;
  }
}

template <class T>
CUresult wait_value(Context& c, CUdeviceptr at, T wanted, unsigned flags) {
  for (uint64_t pause = 10000; !c.cancel.load() && c.error() == CUDA_SUCCESS;) {
    T now;
    Piece piece;
    if (!load(c, at, &now, &piece)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (satisfied<T>(now, wanted, flags)) return CUDA_SUCCESS;
    sleep_ns(pause);
    if (pause < 1000000) pause *= 2;
  }
  return CUDA_SUCCESS;
}

template <class T>
CUresult write_value(Context& c, CUdeviceptr at, T value) {
  MemoryUse use;
  Piece piece;
  if (!state()->memory.pin(c, at, sizeof(T), true, &piece) || piece.length < sizeof(T))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  __atomic_store_n(reinterpret_cast<T*>(piece.host), value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult check_op(const CUstreamBatchMemOpParams& p) {
  switch (static_cast<int>(p.operation)) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if ((p.waitValue.flags & ~(3u | CU_STREAM_WAIT_VALUE_FLUSH)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
      return check(p.waitValue.address, p.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? 4 : 8);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if ((p.writeValue.flags & ~static_cast<unsigned>(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) !=
          0)
        return CUDA_ERROR_INVALID_VALUE;
      return check(p.writeValue.address, p.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult perform(Context& c, const CUstreamBatchMemOpParams& p) {
  switch (static_cast<int>(p.operation)) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return wait_value<uint32_t>(c, p.waitValue.address, p.waitValue.value, p.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return wait_value<uint64_t>(c, p.waitValue.address, p.waitValue.value64, p.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return write_value<uint32_t>(c, p.writeValue.address, p.writeValue.value);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return write_value<uint64_t>(c, p.writeValue.address, p.writeValue.value64);
    default:
      return CUDA_SUCCESS;
  }
}

CUresult submit(CUstream stream, const CUstreamBatchMemOpParams* params, unsigned count,
                unsigned flags) {
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  Ref<BatchAction> a;
  if (CUresult r = make_batch(s->context, params, count, flags, &a); r != CUDA_SUCCESS) return r;
  return enqueue(*s, as_action(a));
}

CUresult wait_on(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr at, cuuint64_t value,
                 unsigned flags) {
  CUstreamBatchMemOpParams p = {};
  p.operation = type;
  p.waitValue.address = at;
  if (type == CU_STREAM_MEM_OP_WAIT_VALUE_64)
    p.waitValue.value64 = value;
  else
    p.waitValue.value = static_cast<cuuint32_t>(value);
  p.waitValue.flags = flags;
  return submit(stream, &p, 1, 0);
}

CUresult write_on(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr at, cuuint64_t value,
                  unsigned flags) {
  CUstreamBatchMemOpParams p = {};
  p.operation = type;
  p.writeValue.address = at;
  if (type == CU_STREAM_MEM_OP_WRITE_VALUE_64)
    p.writeValue.value64 = value;
  else
    p.writeValue.value = static_cast<cuuint32_t>(value);
  p.writeValue.flags = flags;
  return submit(stream, &p, 1, 0);
}

}  // namespace

CUresult BatchAction::execute(Context& c) {
  for (const CUstreamBatchMemOpParams& p : params)
    if (CUresult r = perform(c, p); r != CUDA_SUCCESS) return r;
  return CUDA_SUCCESS;
}

CUresult make_batch(Ref<Context> c, const CUstreamBatchMemOpParams* params, unsigned count,
                    unsigned flags, Ref<BatchAction>* out) {
  if (!params || count == 0 || count > 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i)
    if (CUresult r = check_op(params[i]); r != CUDA_SUCCESS) return r;
  *out = Ref<BatchAction>::adopt(new BatchAction(std::move(c), params, count));
  return CUDA_SUCCESS;
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuStreamWaitValue32_v2(CUstream s, CUdeviceptr at, cuuint32_t v, unsigned flags) {
  ENTER(cuStreamWaitValue32_v2);
  return wait_on(s, CU_STREAM_MEM_OP_WAIT_VALUE_32, at, v, flags);
}
SIMGPU_API cuStreamWaitValue64_v2(CUstream s, CUdeviceptr at, cuuint64_t v, unsigned flags) {
  ENTER(cuStreamWaitValue64_v2);
  return wait_on(s, CU_STREAM_MEM_OP_WAIT_VALUE_64, at, v, flags);
}
SIMGPU_API cuStreamWriteValue32_v2(CUstream s, CUdeviceptr at, cuuint32_t v, unsigned flags) {
  ENTER(cuStreamWriteValue32_v2);
  return write_on(s, CU_STREAM_MEM_OP_WRITE_VALUE_32, at, v, flags);
}
SIMGPU_API cuStreamWriteValue64_v2(CUstream s, CUdeviceptr at, cuuint64_t v, unsigned flags) {
  ENTER(cuStreamWriteValue64_v2);
  return write_on(s, CU_STREAM_MEM_OP_WRITE_VALUE_64, at, v, flags);
}
SIMGPU_API cuStreamWaitValue32(CUstream s, CUdeviceptr at, cuuint32_t v, unsigned flags) {
  return cuStreamWaitValue32_v2(s, at, v, flags);
}
SIMGPU_API cuStreamWaitValue64(CUstream s, CUdeviceptr at, cuuint64_t v, unsigned flags) {
  return cuStreamWaitValue64_v2(s, at, v, flags);
}
SIMGPU_API cuStreamWriteValue32(CUstream s, CUdeviceptr at, cuuint32_t v, unsigned flags) {
  return cuStreamWriteValue32_v2(s, at, v, flags);
}
SIMGPU_API cuStreamWriteValue64(CUstream s, CUdeviceptr at, cuuint64_t v, unsigned flags) {
  return cuStreamWriteValue64_v2(s, at, v, flags);
}

SIMGPU_API cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params,
                                 unsigned flags) {
  ENTER(cuStreamBatchMemOp_v2);
  return submit(stream, params, count, flags);
}

SIMGPU_API cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* params,
                              unsigned flags) {
  return cuStreamBatchMemOp_v2(stream, count, params, flags);
}
