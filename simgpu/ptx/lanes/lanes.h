// Templates that turn a function of one lane into a handler for 32. This header and the *_ops.cc
// files are compiled once per instruction set, each time in its own namespace (SIMGPU_ARCH), so
// that nothing is merged by the linker.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx::SIMGPU_ARCH {

#define SIMGPU_LANES _Pragma("GCC ivdep") for (unsigned l = 0; l < kLanes; ++l)

template <class T, class U>
inline T bits(U u) {
  static_assert(sizeof(T) == sizeof(U));
  return __builtin_bit_cast(T, u);
}

template <unsigned Bytes>
struct SlotOf {
  using S = uint32_t;
};
template <>
struct SlotOf<8> {
  using S = uint64_t;
};
template <class T>
using Slot = typename SlotOf<sizeof(T)>::S;

// A predicate is a type of its own, so that a bool becomes 0 / ~0.
struct Pred {
  uint32_t words;
};

template <class T>
inline T get(Slot<T> s) {
  return (T)s;
}
template <>
inline float get<float>(uint32_t s) {
  return bits<float>(s);
}
template <>
inline double get<double>(uint64_t s) {
  return bits<double>(s);
}
inline uint32_t put(uint8_t v) { return v; }
inline uint32_t put(uint16_t v) { return v; }
inline uint32_t put(uint32_t v) { return v; }
inline uint32_t put(int8_t v) { return (uint16_t)v; }
inline uint32_t put(int16_t v) { return (uint16_t)v; }
inline uint32_t put(int32_t v) { return (uint32_t)v; }
inline uint64_t put(uint64_t v) { return v; }
inline uint64_t put(int64_t v) { return (uint64_t)v; }
inline uint32_t put(float v) { return bits<uint32_t>(v); }
inline uint64_t put(double v) { return bits<uint64_t>(v); }
inline uint32_t put(bool v) { return v ? ~0u : 0u; }

template <class T>
inline Slot<T>* slot(Ctx& c, uint32_t o) {
  return reinterpret_cast<Slot<T>*>(at(c, o));
}

// The comparison of two numbers, for a NaN as PTX defines it. Inlined, so that a constant `cmp`
// costs nothing at run time.
template <class T>
[[gnu::always_inline]] inline bool compare(T a, T b, Cmp cmp) {
  bool unordered = !(a == a) || !(b == b);
  switch (cmp) {
    case Cmp::kEq:
      return a == b;
    case Cmp::kNe:
      return !unordered && a != b;
    case Cmp::kLt:
    case Cmp::kLo:
      return a < b;
    case Cmp::kLe:
    case Cmp::kLs:
      return a <= b;
    case Cmp::kGt:
    case Cmp::kHi:
      return a > b;
    case Cmp::kGe:
    case Cmp::kHs:
      return a >= b;
    case Cmp::kEqu:
      return unordered || a == b;
    case Cmp::kNeu:
      return !(a == b);
    case Cmp::kLtu:
      return !(a >= b);
    case Cmp::kLeu:
      return !(a > b);
    case Cmp::kGtu:
      return !(a <= b);
    case Cmp::kGeu:
      return !(a < b);
    case Cmp::kNum:
      return !unordered;
    case Cmp::kNan:
      return unordered;
  }
  return false;
}

// O has types R (result), A and so on, and a static function f.
template <class O>
const Ins* op1(Ctx& c, const Ins* i) {
  using R = typename O::R;
  using A = typename O::A;
  auto* d = slot<R>(c, i->d);
  const auto* a = slot<A>(c, i->a);
  if (c.full) {
    SIMGPU_LANES d[l] = put((R)O::f(get<A>(a[l])));
  } else {
    const int32_t* m = c.lanes;
    SIMGPU_LANES {
      Slot<R> r = put((R)O::f(get<A>(a[l])));
      d[l] = m[l] ? r : d[l];
    }
  }
  return i + 1;
}

template <class O>
const Ins* op2(Ctx& c, const Ins* i) {
  using R = typename O::R;
  using A = typename O::A;
  using B = typename O::B;
  auto* d = slot<R>(c, i->d);
  const auto* a = slot<A>(c, i->a);
  const auto* b = slot<B>(c, i->b);
  if (c.full) {
    SIMGPU_LANES d[l] = put((R)O::f(get<A>(a[l]), get<B>(b[l])));
  } else {
    const int32_t* m = c.lanes;
    SIMGPU_LANES {
      Slot<R> r = put((R)O::f(get<A>(a[l]), get<B>(b[l])));
      d[l] = m[l] ? r : d[l];
    }
  }
  return i + 1;
}

template <class O>
const Ins* op3(Ctx& c, const Ins* i) {
  using R = typename O::R;
  using A = typename O::A;
  using B = typename O::B;
  using C = typename O::C;
  auto* d = slot<R>(c, i->d);
  const auto* a = slot<A>(c, i->a);
  const auto* b = slot<B>(c, i->b);
  const auto* e = slot<C>(c, i->c);
  if (c.full) {
    SIMGPU_LANES d[l] = put((R)O::f(get<A>(a[l]), get<B>(b[l]), get<C>(e[l])));
  } else {
    const int32_t* m = c.lanes;
    SIMGPU_LANES {
      Slot<R> r = put((R)O::f(get<A>(a[l]), get<B>(b[l]), get<C>(e[l])));
      d[l] = m[l] ? r : d[l];
    }
  }
  return i + 1;
}

// With a number from the instruction as the last argument, for variants that are too rare for
// handlers of their own.
template <class O>
const Ins* op1i(Ctx& c, const Ins* i) {
  using R = typename O::R;
  using A = typename O::A;
  auto* d = slot<R>(c, i->d);
  const auto* a = slot<A>(c, i->a);
  const uint32_t s = i->sub;
  const int32_t* m = c.lanes;
  for (unsigned l = 0; l < kLanes; ++l)
    if (m[l]) d[l] = put((R)O::f(get<A>(a[l]), s));
  return i + 1;
}
}  // namespace simgpu::ptx::SIMGPU_ARCH
