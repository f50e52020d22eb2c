// Loads, stores and atomics. The common case, in which all lanes access one segment of memory, is
// checked and executed in vector loops; everything else (mixed windows, other blocks' shared
// memory, faults) is executed lane by lane.
#include "ptx/lanes/real.h"

namespace simgpu::ptx::SIMGPU_ARCH {

namespace {

enum AccessFlag : uint16_t {
  kAddress32 = 1,      // the address register has 32 bits
  kFrameRelative = 2,  // local, counted from the frame's start
};

// Fills scratch with each lane's address.
inline const uint64_t* addresses(Ctx& c, const Ins* i) {
  uint64_t* out = c.scratch;
  const auto offset = (uint64_t)i->imm;
  if (i->a == kNone) {
    uint64_t v = offset + (i->sub & kFrameRelative ? c.frame->local_base : 0);
    SIMGPU_LANES out[l] = v;
  } else if (i->sub & kAddress32) {
    const uint32_t* a = reg32(c, i->a);
    SIMGPU_LANES out[l] = (uint32_t)(a[l] + (uint32_t)offset);
  } else {
    const uint64_t* a = reg64(c, i->a);
    SIMGPU_LANES out[l] = a[l] + offset;
  }
  return out;
}

inline uint64_t to_generic(Space space, uint64_t a) {
  if (space == Space::kShared) return a >> 48 ? a : kSharedWindow | (uint32_t)a;
  if (space == Space::kLocal) return a >> 48 ? a : kLocalWindow | (uint32_t)a;
  if (space == Space::kParam) return a >> 48 ? a : kParamWindow | (uint32_t)a;
  return a;
}

const Ins* bad_access(Ctx& c, const Ins* i, uint64_t a, unsigned bytes, const char* what) {
  if (a & (bytes - 1))
    return fault(c, i, Outcome::kMisaligned, a, "%s of %u bytes at 0x%llx is misaligned", what,
                 bytes, (unsigned long long)a);
  return fault(c, i, Outcome::kIllegalAddress, a,
               "%s of %u bytes at 0x%llx is outside every allocation", what, bytes,
               (unsigned long long)a);
}

// Where the active lanes' data are, when that is one segment.
struct Run {
  uint8_t* host;
  bool contiguous;  // lane l at host + offset[0] + l * step, all 32 lanes active
};

// True when every active lane is inside [base, base+room] and aligned; offsets replace the
// addresses in scratch.
inline bool all_inside(Ctx& c, uint64_t base, uint64_t room, unsigned bytes, unsigned step,
                       bool* contiguous) {
  uint64_t* a = c.scratch;
  const int32_t* on = c.lanes;
  uint64_t bad = 0, gap = 0;
  const uint64_t low = bytes - 1, first = a[0];
  SIMGPU_LANES {
    uint64_t v = a[l], off = v - base;
    uint64_t wrong = (off > room ? ~0ull : 0ull) | (v & low);
    bad |= on[l] ? wrong : 0ull;
    gap |= v - (first + (uint64_t)l * step);
  }
  *contiguous = gap == 0 && c.mask == ~0u;
  return bad == 0;
}

// Decides whether the fast path for global, constant and shared accesses applies. Null host: it
// does not.
inline Run locate(Ctx& c, Space space, unsigned bytes, unsigned step, bool write, uint64_t* base) {
  Run run{nullptr, false};
  const unsigned first = (unsigned)__builtin_ctz(c.mask);
  if (space == Space::kShared) {
    if (c.block->shared_bytes < bytes) return run;
    *base = 0;
    if (all_inside(c, 0, c.block->shared_bytes - bytes, bytes, step, &run.contiguous))
      run.host = c.block->shared;
    return run;
  }
  uint64_t a = c.scratch[first];
  if (space == Space::kGeneric && a >> 48) {
    if (a >> 48 != kSharedWindow >> 48 || c.block->shared_bytes < bytes) return run;
    *base = kSharedWindow;
    if (all_inside(c, kSharedWindow, c.block->shared_bytes - bytes, bytes, step, &run.contiguous))
      run.host = c.block->shared;
    return run;
  }
  const Segment* s = find_segment(c, a);
  if (!s || s->end - s->begin < bytes || (write && !s->writable)) return run;
  *base = s->begin;
  if (all_inside(c, s->begin, s->end - s->begin - bytes, bytes, step, &run.contiguous))
    run.host = s->host;
  return run;
}

// How a value of memory type M is stored in a register.
template <class M, bool Wide>
struct Cell {
  using S = uint32_t;
  static S in(M v) { return put(v); }
};
template <class M>
struct Cell<M, true> {
  using S = uint64_t;
  static S in(M v) { return (uint64_t)(int64_t)v; }
};
template <>
struct Cell<int8_t, false> {
  using S = uint32_t;
  static S in(int8_t v) { return (uint32_t)(int32_t)v; }
};
template <>
struct Cell<int16_t, false> {
  using S = uint32_t;
  static S in(int16_t v) { return (uint32_t)(int32_t)v; }
};

template <class M, bool Wide>
inline typename Cell<M, Wide>::S* cell(Ctx& c, uint32_t o) {
  return reinterpret_cast<typename Cell<M, Wide>::S*>(at(c, o));
}

template <class M>
inline M load_one(const uint8_t* p) {
  M v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class M>
inline void store_one(uint8_t* p, M v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// Lane by lane, for any window and any vector width.
template <class M, bool Wide>
const Ins* load_slow(Ctx& c, const Ins* i, Space space) {
  using S = typename Cell<M, Wide>::S;
  const unsigned n = i->n, bytes = n * sizeof(M);
  M values[8];
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t a = to_generic(space, c.scratch[l]);
    if (a & (bytes - 1) || !read_bytes(c, l, a, values, bytes))
      return bad_access(c, i, a, bytes, "load");
    for (unsigned k = 0; k < n; ++k) {
      uint32_t o = n == 1 ? i->d : i->list[k];
      if (o == kNone) continue;
      S* d = cell<M, Wide>(c, o);
      d[l] = Cell<M, Wide>::in(values[k]);
    }
  }
  return i + 1;
}
template <class M, bool Wide>
const Ins* store_slow(Ctx& c, const Ins* i, Space space) {
  const unsigned n = i->n, bytes = n * sizeof(M);
  M values[8];
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t a = to_generic(space, c.scratch[l]);
    for (unsigned k = 0; k < n; ++k) values[k] = (M)cell<M, Wide>(c, n == 1 ? i->d : i->list[k])[l];
    if (a & (bytes - 1) || !write_bytes(c, l, a, values, bytes))
      return bad_access(c, i, a, bytes, "store");
  }
  return i + 1;
}

// Shared memory through 32-bit addresses, the usual case, checked in 32-bit arithmetic. Offsets go
// to `at`.
enum class Pattern { kBad, kContiguous, kSame, kScattered };
template <unsigned bytes>
__attribute__((always_inline)) inline Pattern shared_offsets(Ctx& c, const Ins* i, uint32_t* at) {
  const uint32_t size = c.block->shared_bytes;
  if (size < bytes) return Pattern::kBad;
  const uint32_t* a = reg32(c, i->a);
  const auto offset = (uint32_t)i->imm;
  const uint32_t room = size - bytes, low = bytes - 1;
  const uint32_t first = a[__builtin_ctz(c.mask)] + offset;
  const auto* on = reinterpret_cast<const uint32_t*>(c.lanes);
  uint32_t bad = 0, gap = 0, differ = 0;
  for (unsigned l = 0; l < kLanes; ++l) {
    uint32_t v = a[l] + offset;
    bad |= ((v > room ? ~0u : 0u) | (v & low)) & on[l];
    gap |= v - (first + l * bytes);
    differ |= (v ^ first) & on[l];
    at[l] = v;
  }
  if (bad != 0) return Pattern::kBad;
  if (differ == 0) return Pattern::kSame;
  return gap == 0 && c.mask == ~0u ? Pattern::kContiguous : Pattern::kScattered;
}

template <class M, bool Wide>
inline void copy_in(typename Cell<M, Wide>::S* d, const uint8_t* p) {
  if constexpr (sizeof(M) >= 4 && sizeof(*d) == sizeof(M)) {
    __builtin_memcpy(d, p, kLanes * sizeof(M));
  } else {
    M values[kLanes];
    __builtin_memcpy(values, p, sizeof values);
    SIMGPU_LANES d[l] = Cell<M, Wide>::in(values[l]);
  }
}
template <class M, bool Wide>
inline void copy_out(uint8_t* p, const typename Cell<M, Wide>::S* d) {
  if constexpr (sizeof(M) >= 4 && sizeof(*d) == sizeof(M)) {
    __builtin_memcpy(p, d, kLanes * sizeof(M));
  } else {
    M values[kLanes];
    SIMGPU_LANES values[l] = (M)d[l];
    __builtin_memcpy(p, values, sizeof values);
  }
}

// The active lanes' values at host + at[l]. Where many lanes are active all 32 are read without
// branches, the inactive ones where the first active one is.
template <class M, bool Wide, class Offset>
inline void load_lanes(Ctx& c, typename Cell<M, Wide>::S* d, const uint8_t* host,
                       const Offset* at) {
  using S = typename Cell<M, Wide>::S;
  if (c.mask == ~0u) {
    for (unsigned l = 0; l < kLanes; ++l) d[l] = Cell<M, Wide>::in(load_one<M>(host + at[l]));
    return;
  }
  const Offset safe = at[__builtin_ctz(c.mask)];
  const int32_t* on = c.lanes;
  Offset where[kLanes];
  S got[kLanes];
  SIMGPU_LANES where[l] = on[l] ? at[l] : safe;
  for (unsigned l = 0; l < kLanes; ++l) got[l] = Cell<M, Wide>::in(load_one<M>(host + where[l]));
  SIMGPU_LANES d[l] = on[l] ? got[l] : d[l];
}
template <class M, class S, class Offset>
inline void store_lanes(Ctx& c, const S* d, uint8_t* host, const Offset* at) {
  if (c.mask == ~0u) {
    for (unsigned l = 0; l < kLanes; ++l) store_one<M>(host + at[l], (M)d[l]);
    return;
  }
  for (uint32_t left = c.mask; left != 0; left &= left - 1) {
    const auto l = (unsigned)__builtin_ctz(left);
    store_one<M>(host + at[l], (M)d[l]);
  }
}

template <class M, bool Wide>
inline const Ins* load_shared32(Ctx& c, const Ins* i) {
  using S = typename Cell<M, Wide>::S;
  alignas(64) uint32_t offset[kLanes];
  S* d = cell<M, Wide>(c, i->d);
  const uint8_t* shared = c.block->shared;
  switch (shared_offsets<sizeof(M)>(c, i, offset)) {
    case Pattern::kBad:
      addresses(c, i);
      return load_slow<M, Wide>(c, i, Space::kShared);
    case Pattern::kContiguous:
      copy_in<M, Wide>(d, shared + offset[0]);
      break;
    case Pattern::kSame: {
      const S v = Cell<M, Wide>::in(load_one<M>(shared + offset[__builtin_ctz(c.mask)]));
      const int32_t* on = c.lanes;
      SIMGPU_LANES d[l] = on[l] ? v : d[l];
      break;
    }
    case Pattern::kScattered:
      load_lanes<M, Wide>(c, d, shared, offset);
      break;
  }
  return i + 1;
}
template <class M, bool Wide>
inline const Ins* store_shared32(Ctx& c, const Ins* i) {
  alignas(64) uint32_t offset[kLanes];
  const auto* d = cell<M, Wide>(c, i->d);
  uint8_t* shared = c.block->shared;
  switch (shared_offsets<sizeof(M)>(c, i, offset)) {
    case Pattern::kBad:
      addresses(c, i);
      return store_slow<M, Wide>(c, i, Space::kShared);
    case Pattern::kContiguous:
      copy_out<M, Wide>(shared + offset[0], d);
      break;
    default:
      store_lanes<M>(c, d, shared, offset);
      break;
  }
  return i + 1;
}

// The usual case of global memory: all lanes are active and access consecutive addresses. Returns
// where lane 0's bytes are in this process; null: the general path must be taken.
template <Space Sp, unsigned Bytes, bool Write>
__attribute__((always_inline)) inline uint8_t* side_by_side(Ctx& c, const Ins* i) {
  if (c.mask != ~0u || i->a == kNone || (i->sub & kAddress32)) return nullptr;
  const uint64_t* a = reg64(c, i->a);
  const uint64_t first = a[0];
  uint64_t gap = 0;
  SIMGPU_LANES gap |= a[l] - (first + (uint64_t)l * Bytes);
  const uint64_t address = first + (uint64_t)i->imm;
  if (gap != 0 || address & (Bytes - 1)) return nullptr;
  // Windows of other spaces are in no segment.
  const Segment* s = find_segment(c, address);
  if (!s || s->end - address < kLanes * Bytes || (Write && !s->writable)) return nullptr;
  return s->host + (address - s->begin);
}

// Likewise where some lanes are inactive, and the bytes that they would access are there, too.
template <unsigned Bytes>
__attribute__((always_inline)) inline const uint8_t* some_side_by_side(Ctx& c, const Ins* i) {
  if (c.mask == ~0u || i->a == kNone || (i->sub & kAddress32)) return nullptr;
  const uint64_t* a = reg64(c, i->a);
  const int32_t* on = c.lanes;
  const auto lane = (unsigned)__builtin_ctz(c.mask);
  const uint64_t first = a[lane] - lane * Bytes;
  uint64_t gap = 0;
  SIMGPU_LANES gap |= on[l] ? a[l] - (first + (uint64_t)l * Bytes) : 0;
  const uint64_t address = first + (uint64_t)i->imm;
  if (gap != 0 || address & (Bytes - 1)) return nullptr;
  const Segment* s = find_segment(c, address + lane * Bytes);
  if (!s || address < s->begin || s->end - address < kLanes * Bytes) return nullptr;
  return s->host + (address - s->begin);
}

template <Space Sp, class M, bool Wide>
const Ins* load(Ctx& c, const Ins* i) {
  using S = typename Cell<M, Wide>::S;
  if constexpr (Sp == Space::kGlobal) {
    if (const uint8_t* p = side_by_side<Sp, sizeof(M), false>(c, i)) {
      copy_in<M, Wide>(cell<M, Wide>(c, i->d), p);
      return i + 1;
    }
    if (const uint8_t* p = some_side_by_side<sizeof(M)>(c, i)) {
      S got[kLanes];
      copy_in<M, Wide>(got, p);
      S* d = cell<M, Wide>(c, i->d);
      const int32_t* on = c.lanes;
      SIMGPU_LANES d[l] = on[l] ? got[l] : d[l];
      return i + 1;
    }
  }
  if constexpr (Sp == Space::kShared)
    if (i->sub & kAddress32) return load_shared32<M, Wide>(c, i);
  uint64_t base = 0;
  const uint64_t* a = addresses(c, i);
  Run run = locate(c, Sp, sizeof(M), sizeof(M), false, &base);
  if (!run.host) return load_slow<M, Wide>(c, i, Sp);
  S* d = cell<M, Wide>(c, i->d);
  const uint8_t* host = run.host - base;
  if (run.contiguous)
    copy_in<M, Wide>(d, host + a[0]);
  else
    load_lanes<M, Wide>(c, d, host, a);
  return i + 1;
}

template <Space Sp, class M, bool Wide, unsigned N>
const Ins* load_vector(Ctx& c, const Ins* i) {
  using S = typename Cell<M, Wide>::S;
  if constexpr (Sp == Space::kGlobal && sizeof(M) >= 4)
    if (const uint8_t* p = side_by_side<Sp, N * sizeof(M), false>(c, i)) {
      M values[kLanes * N];
      __builtin_memcpy(values, p, sizeof values);
      for (unsigned k = 0; k < N; ++k) {
        if (i->list[k] == kNone) continue;
        S* d = cell<M, Wide>(c, i->list[k]);
        SIMGPU_LANES d[l] = Cell<M, Wide>::in(values[l * N + k]);
      }
      return i + 1;
    }
  uint64_t base = 0;
  const uint64_t* a = addresses(c, i);
  Run run = locate(c, Sp, N * sizeof(M), N * sizeof(M), false, &base);
  if (!run.host) return load_slow<M, Wide>(c, i, Sp);
  const uint8_t* host = run.host - base;
  S* d[N];
  S sink[kLanes];
  for (unsigned k = 0; k < N; ++k) d[k] = i->list[k] == kNone ? sink : cell<M, Wide>(c, i->list[k]);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    M values[N];
    __builtin_memcpy(values, host + a[l], sizeof values);
    for (unsigned k = 0; k < N; ++k) d[k][l] = Cell<M, Wide>::in(values[k]);
  }
  return i + 1;
}

template <Space Sp, class M, bool Wide>
const Ins* store(Ctx& c, const Ins* i) {
  if constexpr (Sp == Space::kShared)
    if (i->sub & kAddress32) return store_shared32<M, Wide>(c, i);
  if constexpr (Sp == Space::kGlobal)
    if (uint8_t* p = side_by_side<Sp, sizeof(M), true>(c, i)) {
      copy_out<M, Wide>(p, cell<M, Wide>(c, i->d));
      return i + 1;
    }
  uint64_t base = 0;
  const uint64_t* a = addresses(c, i);
  Run run = locate(c, Sp, sizeof(M), sizeof(M), true, &base);
  if (!run.host) return store_slow<M, Wide>(c, i, Sp);
  const auto* d = cell<M, Wide>(c, i->d);
  uint8_t* host = run.host - base;
  if (run.contiguous) {
    copy_out<M, Wide>(host + a[0], d);
    return i + 1;
  }
  store_lanes<M>(c, d, host, a);
  return i + 1;
}

template <Space Sp, class M, bool Wide, unsigned N>
const Ins* store_vector(Ctx& c, const Ins* i) {
  using S = typename Cell<M, Wide>::S;
  if constexpr (Sp == Space::kGlobal && sizeof(M) >= 4)
    if (uint8_t* p = side_by_side<Sp, N * sizeof(M), true>(c, i)) {
      M values[kLanes * N];
      for (unsigned k = 0; k < N; ++k) {
        const S* d = cell<M, Wide>(c, i->list[k]);
        SIMGPU_LANES values[l * N + k] = (M)d[l];
      }
      __builtin_memcpy(p, values, sizeof values);
      return i + 1;
    }
  uint64_t base = 0;
  const uint64_t* a = addresses(c, i);
  Run run = locate(c, Sp, N * sizeof(M), N * sizeof(M), true, &base);
  if (!run.host) return store_slow<M, Wide>(c, i, Sp);
  uint8_t* host = run.host - base;
  const S* d[N];
  for (unsigned k = 0; k < N; ++k) d[k] = cell<M, Wide>(c, i->list[k]);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    M values[N];
    for (unsigned k = 0; k < N; ++k) values[k] = (M)d[k][l];
    __builtin_memcpy(host + a[l], values, sizeof values);
  }
  return i + 1;
}

// ---- ordered accesses: volatile, relaxed, acquire, release. Machine words, one lane at a time.
// ----

template <Space Sp, class M, bool Wide>
const Ins* load_ordered(Ctx& c, const Ins* i) {
  uint64_t base = 0;
  const uint64_t* a = addresses(c, i);
  const uint64_t where = a[__builtin_ctz(c.mask)];
  Run run = locate(c, Sp, sizeof(M), sizeof(M), false, &base);
  const Ins* next = i + 1;
  auto* d = cell<M, Wide>(c, i->d);
  if (!run.host) {
    next = load_slow<M, Wide>(c, i, Sp);
    if (!next) return next;
  } else {
    const uint8_t* host = run.host - base;
    for (unsigned l = 0; l < kLanes; ++l)
      if (c.lanes[l])
        d[l] = Cell<M, Wide>::in(__atomic_load_n((const M*)(host + a[l]), __ATOMIC_ACQUIRE));
  }
  if (spins(c, i, where, d[__builtin_ctz(c.mask)])) c.budget = 0;
  return next;
}
template <Space Sp, class M, bool Wide>
const Ins* store_ordered(Ctx& c, const Ins* i) {
  uint64_t base = 0;
  const uint64_t* a = addresses(c, i);
  Run run = locate(c, Sp, sizeof(M), sizeof(M), true, &base);
  if (!run.host) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return store_slow<M, Wide>(c, i, Sp);
  }
  const auto* d = cell<M, Wide>(c, i->d);
  uint8_t* host = run.host - base;
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) __atomic_store_n((M*)(host + a[l]), (M)d[l], __ATOMIC_RELEASE);
  return i + 1;
}

// ---- local memory and parameters of functions: word-interleaved ----

// Moves from one value of type M to the next: to the next row of words, or within a word.
template <class M, class Byte>
inline void next_value(Byte** row, unsigned* shift) {
  if constexpr (sizeof(M) >= 4) {
    *row += sizeof(M) * kLanes;
  } else {
    *shift += sizeof(M) * 8;
    if (*shift == 32) {
      *shift = 0;
      *row += 4 * kLanes;
    }
  }
}

template <class M, bool Wide>
const Ins* load_local(Ctx& c, const Ins* i) {
  using S = typename Cell<M, Wide>::S;
  const uint64_t* a = addresses(c, i);
  const uint64_t where = a[__builtin_ctz(c.mask)];
  uint64_t apart = 0;
  const int32_t* on = c.lanes;
  SIMGPU_LANES apart |= on[l] ? a[l] ^ where : 0;
  const unsigned bytes = i->n * sizeof(M);
  if (apart != 0 || where & (bytes - 1) || where + bytes > c.warp->local_bytes)
    return load_slow<M, Wide>(c, i, Space::kLocal);
  const uint8_t* row = c.warp->local + (where >> 2) * (kLanes * 4);
  unsigned shift = (where & 3) * 8;
  for (unsigned k = 0; k < i->n; ++k) {
    uint32_t o = i->n == 1 ? i->d : i->list[k];
    const auto* w = reinterpret_cast<const uint32_t*>(row);
    if (o != kNone) {
      S* d = cell<M, Wide>(c, o);
      if constexpr (sizeof(M) == 8) {
        const uint32_t* v = w + kLanes;
        SIMGPU_LANES {
          S r = (S)((uint64_t)v[l] << 32 | w[l]);
          d[l] = on[l] ? r : d[l];
        }
      } else {
        SIMGPU_LANES {
          S r = Cell<M, Wide>::in((M)(w[l] >> shift));
          d[l] = on[l] ? r : d[l];
        }
      }
    }
    next_value<M>(&row, &shift);
  }
  return i + 1;
}
template <class M, bool Wide>
const Ins* store_local(Ctx& c, const Ins* i) {
  using S = typename Cell<M, Wide>::S;
  const uint64_t* a = addresses(c, i);
  const uint64_t where = a[__builtin_ctz(c.mask)];
  uint64_t apart = 0;
  const int32_t* on = c.lanes;
  SIMGPU_LANES apart |= on[l] ? a[l] ^ where : 0;
  const unsigned bytes = i->n * sizeof(M);
  if (apart != 0 || where & (bytes - 1) || where + bytes > c.warp->local_bytes)
    return store_slow<M, Wide>(c, i, Space::kLocal);
  uint8_t* row = c.warp->local + (where >> 2) * (kLanes * 4);
  unsigned shift = (where & 3) * 8;
  for (unsigned k = 0; k < i->n; ++k) {
    auto* w = reinterpret_cast<uint32_t*>(row);
    const S* d = cell<M, Wide>(c, i->n == 1 ? i->d : i->list[k]);
    if constexpr (sizeof(M) == 8) {
      uint32_t* v = w + kLanes;
      SIMGPU_LANES {
        w[l] = on[l] ? (uint32_t)d[l] : w[l];
        v[l] = on[l] ? (uint32_t)((uint64_t)d[l] >> 32) : v[l];
      }
    } else if constexpr (sizeof(M) == 4) {
      SIMGPU_LANES w[l] = on[l] ? (uint32_t)d[l] : w[l];
    } else {
      const uint32_t mask = ((1u << (sizeof(M) * 8)) - 1) << shift;
      SIMGPU_LANES {
        uint32_t r = (w[l] & ~mask) | ((uint32_t)d[l] << shift & mask);
        w[l] = on[l] ? r : w[l];
      }
    }
    next_value<M>(&row, &shift);
  }
  return i + 1;
}

// ---- kernel parameters: the same for every lane ----

template <class M, bool Wide>
const Ins* load_param(Ctx& c, const Ins* i) {
  using S = typename Cell<M, Wide>::S;
  if (i->a != kNone) {
    addresses(c, i);
    return load_slow<M, Wide>(c, i, Space::kParam);
  }
  const uint8_t* p = c.grid->params + i->imm;
  const int32_t* on = c.lanes;
  for (unsigned k = 0; k < i->n; ++k, p += sizeof(M)) {
    uint32_t o = i->n == 1 ? i->d : i->list[k];
    if (o == kNone) continue;
    S* d = cell<M, Wide>(c, o);
    const S v = Cell<M, Wide>::in(load_one<M>(p));
    SIMGPU_LANES d[l] = on[l] ? v : d[l];
  }
  return i + 1;
}

// 128-bit registers: 32 low halves, then 32 high halves.
template <bool Store>
const Ins* access128(Ctx& c, const Ins* i) {
  auto space = (Space)(i->sub >> 8);
  addresses(c, i);
  uint64_t* d = reg64(c, i->d);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t a = to_generic(space, c.scratch[l]), v[2] = {d[l], d[l + kLanes]};
    bool good = (a & 15) == 0 && (Store ? write_bytes(c, l, a, v, 16) : read_bytes(c, l, a, v, 16));
    if (!good) return bad_access(c, i, a, 16, Store ? "store" : "load");
    if (!Store) {
      d[l] = v[0];
      d[l + kLanes] = v[1];
    }
  }
  return i + 1;
}

template <class M, bool Wide>
Fn load_pick(const Key& k) {
  const bool generic = k.space == Space::kGeneric, shared = k.space == Space::kShared;
  if (k.space == Space::kLocal) return load_local<M, Wide>;
  if (k.space == Space::kParam) return load_param<M, Wide>;
  if (k.n == 1) {
    if (k.ordered)
      return generic  ? load_ordered<Space::kGeneric, M, Wide>
             : shared ? load_ordered<Space::kShared, M, Wide>
                      : load_ordered<Space::kGlobal, M, Wide>;
    return generic  ? load<Space::kGeneric, M, Wide>
           : shared ? load<Space::kShared, M, Wide>
                    : load<Space::kGlobal, M, Wide>;
  }
#define SIMGPU_VECTOR(F, N)                  \
  (generic  ? F<Space::kGeneric, M, Wide, N> \
   : shared ? F<Space::kShared, M, Wide, N>  \
            : F<Space::kGlobal, M, Wide, N>)
  switch (k.n) {
    case 2:
      return SIMGPU_VECTOR(load_vector, 2);
    case 4:
      return SIMGPU_VECTOR(load_vector, 4);
    case 8:
      if constexpr (sizeof(M) <= 4) return SIMGPU_VECTOR(load_vector, 8);
      return nullptr;
    default:
      return nullptr;
  }
}
template <class M, bool Wide>
Fn store_pick(const Key& k) {
  const bool generic = k.space == Space::kGeneric, shared = k.space == Space::kShared;
  if (k.space == Space::kLocal) return store_local<M, Wide>;
  if (k.space == Space::kParam || k.space == Space::kConst) return nullptr;
  if (k.n == 1) {
    if (k.ordered)
      return generic  ? store_ordered<Space::kGeneric, M, Wide>
             : shared ? store_ordered<Space::kShared, M, Wide>
                      : store_ordered<Space::kGlobal, M, Wide>;
    return generic  ? store<Space::kGeneric, M, Wide>
           : shared ? store<Space::kShared, M, Wide>
                    : store<Space::kGlobal, M, Wide>;
  }
  switch (k.n) {
    case 2:
      return SIMGPU_VECTOR(store_vector, 2);
    case 4:
      return SIMGPU_VECTOR(store_vector, 4);
    case 8:
      if constexpr (sizeof(M) <= 4) return SIMGPU_VECTOR(store_vector, 8);
      return nullptr;
    default:
      return nullptr;
  }
}
template <bool Load, class M, bool Wide>
Fn access_pick(const Key& k) {
  if constexpr (Load)
    return load_pick<M, Wide>(k);
  else
    return store_pick<M, Wide>(k);
}
template <bool Load>
Fn access_type(const Key& k) {
  switch (k.t) {
    case Ty::kB8:
    case Ty::kU8:
      return k.wide_reg ? access_pick<Load, uint8_t, true>(k)
                        : access_pick<Load, uint8_t, false>(k);
    case Ty::kS8:
      return k.wide_reg ? access_pick<Load, int8_t, true>(k) : access_pick<Load, int8_t, false>(k);
    case Ty::kF16:
    case Ty::kBF16:
    case Ty::kB16:
    case Ty::kU16:
      return k.wide_reg ? access_pick<Load, uint16_t, true>(k)
                        : access_pick<Load, uint16_t, false>(k);
    case Ty::kS16:
      return k.wide_reg ? access_pick<Load, int16_t, true>(k)
                        : access_pick<Load, int16_t, false>(k);
    case Ty::kF32:
    case Ty::kF16x2:
    case Ty::kBF16x2:
    case Ty::kB32:
    case Ty::kU32:
      return k.wide_reg ? access_pick<Load, uint32_t, true>(k)
                        : access_pick<Load, uint32_t, false>(k);
    case Ty::kS32:
      return k.wide_reg ? access_pick<Load, int32_t, true>(k)
                        : access_pick<Load, int32_t, false>(k);
    case Ty::kF64:
    case Ty::kB64:
    case Ty::kU64:
    case Ty::kF32x2:
    case Ty::kS64:
      return access_pick<Load, uint64_t, true>(k);
    case Ty::kB128:
      return k.n == 1 ? access128<!Load> : nullptr;
    default:
      return nullptr;
  }
}

// ---- atomics ----

// T is the arithmetic type, W the machine word it lives in.
template <class T>
struct AtomType {
  using W = T;
  static T in(W w) { return w; }
  static W out(T t) { return t; }
};
template <>
struct AtomType<int32_t> {
  using W = uint32_t;
  static int32_t in(W w) { return (int32_t)w; }
  static W out(int32_t t) { return (W)t; }
};
template <>
struct AtomType<int64_t> {
  using W = uint64_t;
  static int64_t in(W w) { return (int64_t)w; }
  static W out(int64_t t) { return (W)t; }
};
template <>
struct AtomType<float> {
  using W = uint32_t;
  static float in(W w) { return bits<float>(w); }
  static W out(float t) { return bits<W>(t); }
};
template <>
struct AtomType<double> {
  using W = uint64_t;
  static double in(W w) { return bits<double>(w); }
  static W out(double t) { return bits<W>(t); }
};
template <class H>
uint16_t half_sum(uint16_t a, uint16_t b) {
  return H::narrow_odd((double)H::widen(a) + (double)H::widen(b));
}
template <class H, bool Max>
uint16_t half_choose(uint16_t a, uint16_t b) {
  float x = H::widen(a), y = H::widen(b);
  if (x != x) return y != y ? 0x7fff : b;
  if (y != y) return a;
  if (x == y) return Max ? (a >> 15 ? b : a) : (a >> 15 ? a : b);
  return (x > y) == Max ? a : b;
}

template <class T, AtomOp O>
inline T combine(T old, T b, T c, bool ftz) {
  (void)c;
  (void)ftz;
  if constexpr (O == kAtomAdd) {
    if constexpr (__is_same(T, float)) {
      if (ftz) return nan_to_canonical(flush(flush(old) + flush(b)));
      return nan_to_canonical(old + b);
    }
    return (T)(old + b);
  }
  if constexpr (O == kAtomMin) return b < old ? b : old;
  if constexpr (O == kAtomMax) return b > old ? b : old;
  if constexpr (O == kAtomExch) return b;
  if constexpr (O == kAtomCas) return old == b ? c : old;
  if constexpr (O == kAtomInc) return old >= b ? 0 : old + 1;
  if constexpr (O == kAtomDec) return old == 0 || old > b ? b : old - 1;
  if constexpr (!__is_same(T, float) && !__is_same(T, double)) {
    if constexpr (O == kAtomAnd) return old & b;
    if constexpr (O == kAtomOr) return old | b;
    if constexpr (O == kAtomXor) return old ^ b;
  }
  return old;
}

// Halves: a word of one or two, combined piecewise.
template <class H, bool Two, AtomOp O>
struct HalfAtom {
  using W = typename SlotOf<4>::S;
  static uint16_t one(uint16_t a, uint16_t b) {
    if constexpr (O == kAtomAdd) return half_sum<H>(a, b);
    if constexpr (O == kAtomMin) return half_choose<H, false>(a, b);
    return half_choose<H, true>(a, b);
  }
  static uint32_t f(uint32_t old, uint32_t b) {
    uint32_t r = one((uint16_t)old, (uint16_t)b);
    if (Two) r |= (uint32_t)one((uint16_t)(old >> 16), (uint16_t)(b >> 16)) << 16;
    return r;
  }
};

template <class W, class F>
inline W replace(W* p, bool plain, F f) {
  W old = __atomic_load_n(p, __ATOMIC_RELAXED);
  if (plain) {
    *p = f(old);
    return old;
  }
  while (!__atomic_compare_exchange_n(p, &old, f(old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}

// The usual case of shared memory: addresses of 32 bits, which lead into the block's own part, and
// no other block of a cluster. Only this thread touches it.
template <class W, class F>
bool atom_shared(Ctx& c, const Ins* i, F f, uint64_t* where, uint64_t* seen) {
  alignas(64) uint32_t offset[kLanes];
  if (c.grid->cluster_size != 1 || i->a == kNone || (i->sub & kAddress32) == 0 ||
      shared_offsets<sizeof(W)>(c, i, offset) == Pattern::kBad)
    return false;
  using S = std::conditional_t<sizeof(W) == 8, uint64_t, uint32_t>;
  uint8_t* shared = c.block->shared;
  S sink[kLanes];
  S* d = i->d == kNone ? sink : reinterpret_cast<S*>(at(c, i->d));
  auto one = [&](unsigned l) {
    auto* p = reinterpret_cast<W*>(shared + offset[l]);
    const W old = *p;
    *p = f(old, l, 0);
    d[l] = old;
    return old;
  };
  const auto first = (unsigned)__builtin_ctz(c.mask);
  *where = offset[first];
  *seen = one(first);
  if (c.mask == ~0u) {
    for (unsigned l = 1; l < kLanes; ++l) one(l);
  } else {
    for (uint32_t left = c.mask & (c.mask - 1); left != 0; left &= left - 1)
      one((unsigned)__builtin_ctz(left));
  }
  return true;
}

// One access of W per lane; f(old, lane) gives the new value. Element k of a vector lies k words
// further.
template <class W, class F>
const Ins* atom_run(Ctx& c, const Ins* i, unsigned n, F f) {
  auto space = (Space)(i->sub >> 8);
  if (space == Space::kShared && n == 1) {
    uint64_t where, seen;
    if (atom_shared<W>(c, i, f, &where, &seen)) {
      if (i->d != kNone && spins(c, i, where, seen)) c.budget = 0;
      return i + 1;
    }
  }
  const uint64_t* a = addresses(c, i);
  const unsigned first = (unsigned)__builtin_ctz(c.mask);
  const uint64_t where = a[first];
  const unsigned bytes = n * sizeof(W);
  uint64_t seen = 0;
  auto finish = [&]() {
    if (i->d != kNone && n == 1 && spins(c, i, where, seen)) c.budget = 0;
    return i + 1;
  };
  auto give = [&](unsigned l, unsigned k, W old) {
    const uint32_t d = n == 1 ? i->d : i->list[k];
    if (d != kNone) {
      if constexpr (sizeof(W) == 8)
        reg64(c, d)[l] = old;
      else
        reg32(c, d)[l] = old;
    }
    if (l == first) seen = old;
  };
  // The usual case: every lane in one run of memory.
  uint64_t base = 0;
  const Run run = locate(c, space, bytes, bytes, true, &base);
  if (run.host) {
    const bool own = run.host == c.block->shared && c.grid->cluster_size == 1;
    for (unsigned l = first; l < kLanes; ++l) {
      if (!c.lanes[l]) continue;
      auto* p = reinterpret_cast<W*>(run.host + (a[l] - base));
      for (unsigned k = 0; k < n; ++k)
        give(l, k, replace(p + k, own, [&](W o) { return f(o, l, k); }));
    }
    return finish();
  }
  for (unsigned l = first; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t v = to_generic(space, a[l]);
    if (v & (bytes - 1)) return bad_access(c, i, v, bytes, "atomic");
    bool local = false;
    uint8_t* p = resolve(c, v, bytes, true, &local);
    if (local) {
      W w[8];
      if (!read_bytes(c, l, v, w, bytes)) return bad_access(c, i, v, bytes, "atomic");
      for (unsigned k = 0; k < n; ++k) w[k] = f(w[k], l, k);
      write_bytes(c, l, v, w, bytes);
      continue;
    }
    if (!p) return bad_access(c, i, v, bytes, "atomic");
    const bool plain = v >> 48 == kSharedWindow >> 48 && c.grid->cluster_size == 1;
    for (unsigned k = 0; k < n; ++k)
      give(l, k, replace((W*)p + k, plain, [&](W o) { return f(o, l, k); }));
  }
  return finish();
}

template <class T, AtomOp O>
const Ins* atom(Ctx& c, const Ins* i) {
  using X = AtomType<T>;
  using W = typename X::W;
  using S = std::conditional_t<sizeof(W) == 8, uint64_t, uint32_t>;
  const bool ftz = (Space)(i->sub >> 8) != Space::kShared;
  const unsigned n = i->n;
  if (n == 1) {
    // The operands may share a register with the result, but each lane reads its own first.
    const auto* b = reinterpret_cast<const S*>(at(c, i->b));
    const auto* e = reinterpret_cast<const S*>(at(c, O == kAtomCas ? i->c : i->b));
    return atom_run<W>(c, i, 1, [&](W old, unsigned l, unsigned) {
      return X::out(combine<T, O>(X::in(old), X::in((W)b[l]), X::in((W)e[l]), ftz));
    });
  }
  W b[8][kLanes];
  for (unsigned k = 0; k < n; ++k) {
    const auto* from = reinterpret_cast<const S*>(at(c, i->list[n + k]));
    for (unsigned l = 0; l < kLanes; ++l) b[k][l] = (W)from[l];
  }
  return atom_run<W>(c, i, n, [&](W old, unsigned l, unsigned k) {
    return X::out(combine<T, O>(X::in(old), X::in(b[k][l]), X::in(0), ftz));
  });
}
template <class H, bool Two, AtomOp O>
const Ins* atom_half(Ctx& c, const Ins* i) {
  using W = std::conditional_t<Two, uint32_t, uint16_t>;
  W b[8][kLanes];
  const unsigned n = i->n;
  for (unsigned k = 0; k < n; ++k) {
    const uint32_t* from = reg32(c, n == 1 ? i->b : i->list[n + k]);
    for (unsigned l = 0; l < kLanes; ++l) b[k][l] = (W)from[l];
  }
  return atom_run<W>(c, i, n, [&](W old, unsigned l, unsigned k) {
    return (W)HalfAtom<H, Two, O>::f(old, b[k][l]);
  });
}

// 128 bits: compare-and-swap or exchange with the machine's own instruction.
const Ins* atom128(Ctx& c, const Ins* i) {
  auto space = (Space)(i->sub >> 8);
  const bool cas = i->sub & 4;
  const uint64_t* a = addresses(c, i);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t v = to_generic(space, a[l]);
    bool local = false;
    uint8_t* p = v & 15 ? nullptr : resolve(c, v, 16, true, &local);
    if (!p) return bad_access(c, i, v, 16, "atomic");
    uint32_t new_operand = cas ? i->c : i->b;
    uint64_t low = reg64(c, new_operand)[l], high = reg64(c, new_operand)[l + kLanes];
    uint64_t old_low = 0, old_high = 0;
    if (cas) {
      old_low = reg64(c, i->b)[l];
      old_high = reg64(c, i->b)[l + kLanes];
    }
    bool done;
    do {
      asm volatile("lock cmpxchg16b %1"
                   : "=@ccz"(done), "+m"(*(__int128*)p), "+a"(old_low), "+d"(old_high)
                   : "b"(low), "c"(high)
                   : "memory");
    } while (!done && !cas);
    if (i->d != kNone) {
      reg64(c, i->d)[l] = old_low;
      reg64(c, i->d)[l + kLanes] = old_high;
    }
  }
  return i + 1;
}

template <class T>
Fn atom_integer(AtomOp o) {
  switch (o) {
    case kAtomAdd:
      return atom<T, kAtomAdd>;
    case kAtomMin:
      return atom<T, kAtomMin>;
    case kAtomMax:
      return atom<T, kAtomMax>;
    case kAtomAnd:
      return atom<T, kAtomAnd>;
    case kAtomOr:
      return atom<T, kAtomOr>;
    case kAtomXor:
      return atom<T, kAtomXor>;
    case kAtomExch:
      return atom<T, kAtomExch>;
    case kAtomCas:
      return atom<T, kAtomCas>;
    case kAtomInc:
      return atom<T, kAtomInc>;
    case kAtomDec:
      return atom<T, kAtomDec>;
  }
  return nullptr;
}
template <class H, bool Two>
Fn atom_half_pick(AtomOp o) {
  switch (o) {
    case kAtomAdd:
      return atom_half<H, Two, kAtomAdd>;
    case kAtomMin:
      return atom_half<H, Two, kAtomMin>;
    case kAtomMax:
      return atom_half<H, Two, kAtomMax>;
    default:
      return nullptr;
  }
}
Fn atom_pick(const Key& k) {
  auto o = (AtomOp)k.mode;
  switch (k.t) {
    case Ty::kB16:
      return o == kAtomCas    ? atom<uint16_t, kAtomCas>
             : o == kAtomExch ? atom<uint16_t, kAtomExch>
                              : nullptr;
    case Ty::kU32:
    case Ty::kB32:
      return atom_integer<uint32_t>(o);
    case Ty::kS32:
      return atom_integer<int32_t>(o);
    case Ty::kU64:
    case Ty::kB64:
      return atom_integer<uint64_t>(o);
    case Ty::kS64:
      return atom_integer<int64_t>(o);
    case Ty::kF32:
      return o == kAtomAdd ? atom<float, kAtomAdd> : nullptr;
    case Ty::kF64:
      return o == kAtomAdd ? atom<double, kAtomAdd> : nullptr;
    case Ty::kF16:
      return atom_half_pick<Half, false>(o);
    case Ty::kF16x2:
      return atom_half_pick<Half, true>(o);
    case Ty::kBF16:
      return atom_half_pick<Bfloat, false>(o);
    case Ty::kBF16x2:
      return atom_half_pick<Bfloat, true>(o);
    case Ty::kB128:
      return o == kAtomCas || o == kAtomExch ? atom128 : nullptr;
    default:
      return nullptr;
  }
}

// cp.async [a], [b], imm bytes; c: bytes really read, the rest zero (kNone: all). Done at once.
const Ins* copy_async(Ctx& c, const Ins* i) {
  const auto bytes = (unsigned)i->imm;
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint64_t to =
        to_generic(Space::kShared, i->sub & kAddress32 ? reg32(c, i->a)[l] : reg64(c, i->a)[l]);
    uint64_t from = reg64(c, i->b)[l];
    uint8_t data[16] = {};
    uint32_t take = i->c == kNone ? bytes : reg32(c, i->c)[l];
    if (take > bytes) take = bytes;
    if (from & (bytes - 1) || (take != 0 && !read_bytes(c, l, from, data, take)))
      return bad_access(c, i, from, bytes, "asynchronous copy from");
    if (to & (bytes - 1) || !write_bytes(c, l, to, data, bytes))
      return bad_access(c, i, to, bytes, "asynchronous copy to");
  }
  return i + 1;
}

// The address of one's variable in the shared memory of another block of the cluster. sub 1:
// generic addresses.
const Ins* mapa(Ctx& c, const Ins* i) {
  const uint32_t* rank = reg32(c, i->b);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    if (i->n == 8) {
      uint64_t a = reg64(c, i->a)[l];
      reg64(c, i->d)[l] = (a & ~0xff000000ull) | (uint64_t)(rank[l] + 1) << 24;
    } else {
      uint32_t a = reg32(c, i->a)[l];
      reg32(c, i->d)[l] = (a & 0xffffffu) | (rank[l] + 1) << 24;
    }
  }
  return i + 1;
}
const Ins* getctarank(Ctx& c, const Ins* i) {
  uint32_t* d = reg32(c, i->d);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    uint32_t a = i->n == 8 ? (uint32_t)reg64(c, i->a)[l] : reg32(c, i->a)[l];
    d[l] = a >> 24 ? (a >> 24) - 1 : c.block->rank;
  }
  return i + 1;
}

}  // namespace

Fn pick_memory(const Key& k) {
  switch (k.op) {
    case Op::kLd:
      return access_type<true>(k);
    case Op::kSt:
      return access_type<false>(k);
    case Op::kAtom:
      return atom_pick(k);
    case Op::kCpAsync:
      return copy_async;
    case Op::kMapa:
      return mapa;
    case Op::kGetctarank:
      return getctarank;
    default:
      return nullptr;
  }
}

extern const Backend kBackend;
Fn pick_integer(const Key&);
Fn pick_real(const Key&);
Fn pick_convert(const Key&);
extern const ProductOps kProducts;
const Backend kBackend = {pick_integer, pick_real, pick_convert, pick_memory, &kProducts};

}  // namespace simgpu::ptx::SIMGPU_ARCH
