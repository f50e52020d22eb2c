// Reductions of memory by bulk copies: element by element, each atomic.
#define SIMGPU_ARCH scalar
#include "ptx/handlers/async.h"
#include "ptx/lanes/real.h"

namespace simgpu::ptx {

namespace {

template <class T>
T integer_result(ReduceOp op, T old, T v) {
  switch (op) {
    case ReduceOp::kAdd:
      return (T)(old + v);
    case ReduceOp::kMin:
      return v < old ? v : old;
    case ReduceOp::kMax:
      return v > old ? v : old;
    case ReduceOp::kInc:
      return old >= v ? (T)0 : (T)(old + 1);
    case ReduceOp::kDec:
      return old == 0 || old > v ? v : (T)(old - 1);
    case ReduceOp::kAnd:
      return old & v;
    case ReduceOp::kOr:
      return old | v;
    default:
      return old ^ v;
  }
}

// Of two numbers one of which may be NaN: the other.
double real_result(ReduceOp op, double old, double v) {
  if (op == ReduceOp::kAdd) return old + v;
  if (!(old == old)) return v;
  if (!(v == v)) return old;
  return (op == ReduceOp::kMin ? v < old : v > old) ? v : old;
}

template <class T, class F>
void update(uint8_t* at, F f) {
  auto* cell = reinterpret_cast<T*>(at);
  T old = __atomic_load_n(cell, __ATOMIC_RELAXED), now;
  do now = f(old);
  while (!__atomic_compare_exchange_n(cell, &old, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

template <class T>
void reduce_integer(uint8_t* at, const uint8_t* from, ReduceOp op) {
  T v;
  memcpy(&v, from, sizeof v);
  update<T>(at, [&](T old) { return integer_result(op, old, v); });
}

template <class H>
void reduce_half(uint8_t* at, const uint8_t* from, ReduceOp op) {
  uint16_t v;
  memcpy(&v, from, sizeof v);
  update<uint16_t>(at, [&](uint16_t old) {
    return H::narrow_odd(real_result(op, (double)H::widen(old), (double)H::widen(v)));
  });
}

void reduce_one(uint8_t* at, const uint8_t* from, ReduceOp op, Ty type) {
  using scalar::bits;
  switch (type) {
    case Ty::kS32:
      return reduce_integer<int32_t>(at, from, op);
    case Ty::kS64:
      return reduce_integer<int64_t>(at, from, op);
    case Ty::kU64:
    case Ty::kB64:
      return reduce_integer<uint64_t>(at, from, op);
    case Ty::kF16:
      return reduce_half<scalar::Half>(at, from, op);
    case Ty::kBF16:
      return reduce_half<scalar::Bfloat>(at, from, op);
    case Ty::kF32: {
      uint32_t v;
      memcpy(&v, from, 4);
      return update<uint32_t>(at, [&](uint32_t old) {
        if (op == ReduceOp::kAdd) return bits<uint32_t>(bits<float>(old) + bits<float>(v));
        return bits<uint32_t>(
            (float)real_result(op, (double)bits<float>(old), (double)bits<float>(v)));
      });
    }
    case Ty::kF64: {
      uint64_t v;
      memcpy(&v, from, 8);
      return update<uint64_t>(at, [&](uint64_t old) {
        return bits<uint64_t>(real_result(op, bits<double>(old), bits<double>(v)));
      });
    }
    default:
      return reduce_integer<uint32_t>(at, from, op);
  }
}

}  // namespace

bool reduction_exists(ReduceOp op, Ty type) {
  const bool real = type == Ty::kF16 || type == Ty::kBF16 || type == Ty::kF32 || type == Ty::kF64;
  const bool bits = type == Ty::kB32 || type == Ty::kB64;
  const bool integer = type == Ty::kU32 || type == Ty::kS32 || type == Ty::kU64 || type == Ty::kS64;
  switch (op) {
    case ReduceOp::kAdd:
      return real || integer;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return integer || type == Ty::kF16 || type == Ty::kBF16;
    case ReduceOp::kInc:
    case ReduceOp::kDec:
      return type == Ty::kU32;
    default:
      return bits || integer;
  }
}

bool reduce_bytes(Ctx& c, uint64_t to, const uint8_t* from, uint32_t bytes, Reduction by) {
  const uint32_t each = type_bytes(by.type);
  for (uint32_t k = 0; k + each <= bytes; k += each) {
    bool local = false;
    uint8_t* at = resolve(c, to + k, each, true, &local);
    if (!at) return false;
    reduce_one(at, from + k, by.op, by.type);
  }
  return true;
}

}  // namespace simgpu::ptx
