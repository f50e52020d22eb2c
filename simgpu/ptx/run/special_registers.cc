// The special registers of PTX: where a thread is in its grid, times, and what belongs to a launch.
#include <emmintrin.h>
#include <time.h>
#include <x86intrin.h>

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// For the active lanes; four at a time on every machine.
static inline void fill_lanes(const Ctx& c, uint32_t* d, uint32_t value) {
  const __m128i v = _mm_set1_epi32((int)value);
  if (c.full) {
    for (unsigned l = 0; l < kLanes; l += 4) _mm_store_si128((__m128i*)(d + l), v);
    return;
  }
  const int32_t* on = c.lanes;
  for (unsigned l = 0; l < kLanes; l += 4) {
    const __m128i m = _mm_load_si128((const __m128i*)(on + l));
    auto* to = (__m128i*)(d + l);
    _mm_store_si128(to, _mm_or_si128(_mm_and_si128(m, v), _mm_andnot_si128(m, _mm_load_si128(to))));
  }
}
static inline void copy_lanes(const Ctx& c, uint32_t* d, const uint32_t* from) {
  if (c.full) {
    memcpy(d, from, kLanes * sizeof *d);
    return;
  }
  const int32_t* on = c.lanes;
  for (unsigned l = 0; l < kLanes; l += 4) {
    const __m128i m = _mm_load_si128((const __m128i*)(on + l)),
                  v = _mm_load_si128((const __m128i*)(from + l));
    auto* to = (__m128i*)(d + l);
    _mm_store_si128(to, _mm_or_si128(_mm_and_si128(m, v), _mm_andnot_si128(m, _mm_load_si128(to))));
  }
}

// Registers that all lanes of an instruction read at the same moment.
static bool is_time(uint8_t reg) { return reg >= kClock && reg <= kGlobaltimerHi; }

static uint64_t now() {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

// A GPU runs the warps of a launch at the same time, here they take turns. So the clock of a warp
// begins when the launch did and catches up with the processor's while it is read: warps that wait
// for a number of cycles wait together.
static uint64_t read_clock(Ctx& c) {
  Warp& w = *c.warp;
  const uint64_t now = __rdtsc();
  w.clock = w.clock == 0 ? c.grid->clock_start : w.clock + (now - w.clock_read);
  w.clock_read = now;
  const uint64_t late = now > w.clock ? now - w.clock : 0;
  const uint64_t step = late / 32 + 64;
  w.clock += step < late ? step : late;
  return w.clock;
}

// The values of the triples x, y, z. False: the register is none of them.
static bool triple_value(Ctx& c, uint8_t reg, uint32_t lane, uint64_t* value) {
  const Launch& launch = *c.grid->launch;
  const uint32_t* ctaid = c.block->ctaid;
  const uint32_t* cluster = c.grid->cluster;
  auto within = [&](SpecialReg first) { return reg >= first && reg < first + 3; };
  if (within(kTidX))
    *value = c.warp->tid[reg - kTidX][lane];
  else if (within(kNtidX))
    *value = launch.block[reg - kNtidX];
  else if (within(kCtaidX))
    *value = ctaid[reg - kCtaidX];
  else if (within(kNctaidX))
    *value = launch.grid[reg - kNctaidX];
  else if (within(kClusteridX))
    *value = ctaid[reg - kClusteridX] / cluster[reg - kClusteridX];
  else if (within(kNclusteridX))
    *value = launch.grid[reg - kNclusteridX] / cluster[reg - kNclusteridX];
  else if (within(kClusterCtaidX))
    *value = ctaid[reg - kClusterCtaidX] % cluster[reg - kClusterCtaidX];
  else if (within(kClusterNctaidX))
    *value = cluster[reg - kClusterNctaidX];
  else
    return false;
  return true;
}

// The masks of the lanes that are equal to, less than, ... `lane`.
static uint64_t lane_mask(uint8_t reg, uint32_t lane) {
  const uint32_t below = (1u << lane) - 1, up_to = (2u << lane) - 1;
  switch (reg) {
    case kLaneEq:
      return 1u << lane;
    case kLaneLt:
      return below;
    case kLaneLe:
      return up_to;
    case kLaneGt:
      return ~up_to;
    default:
      return ~below;
  }
}

static uint64_t time_value(Ctx& c, uint8_t reg) {
  switch (reg) {
    case kClock:
      return (uint32_t)read_clock(c);
    case kClockHi:
      return read_clock(c) >> 32;
    case kClock64:
      return read_clock(c);
    case kGlobaltimer:
      return now();
    case kGlobaltimerLo:
      return (uint32_t)now();
    default:
      return now() >> 32;
  }
}

static uint64_t special_value(Ctx& c, uint8_t reg, uint32_t lane) {
  if (uint64_t value; triple_value(c, reg, lane, &value)) return value;
  if (reg >= kLaneEq && reg <= kLaneGe) return lane_mask(reg, lane);
  if (is_time(reg)) return time_value(c, reg);
  const Launch& launch = *c.grid->launch;
  switch (reg) {
    case kLaneid:
      return lane;
    case kWarpid:
      return c.warp->id;
    case kNwarpid:
      return 64;
    case kSmid:
      return c.block->slot % 132;
    case kNsmid:
      return 132;
    case kGridid:
      return launch.grid_id;
    case kDynamicShared:
      return launch.dynamic_shared_bytes;
    case kTotalShared:
    case kAggrShared:
      return c.grid->shared_bytes;
    case kClusterCtarank:
      return c.block->rank;
    case kClusterNctarank:
      return c.grid->cluster_size;
    case kIsExplicitCluster:
      return c.grid->cluster_size > 1;
    case kWarpSize:
      return kLanes;
    // Cooperative groups find the grid's barrier at envreg1:envreg2; zero means no cooperative
    // launch.
    case kEnvreg0 + 1:
      return launch.cooperative ? (uint32_t)(kGridWindow >> 32) : 0;
    case kEnvreg0 + 2:
      return launch.cooperative ? 16 : 0;
    default:
      return 0;
  }
}

// Registers that are equal in all lanes of a warp and do not change.
static bool same_for_all(uint8_t reg) { return reg == kWarpid || reg == kWarpSize; }
// A warp that reads the global timer many times within 33 microseconds waits for a moment, and
// yields to others as one that polls memory does. The timer is the same for all warps, so unlike
// the clock it cannot begin later for one that began later.
static void yield_slice(Ctx& c, const Ins* i, uint8_t reg, uint64_t time) {
  const bool waits = reg >= kGlobaltimer && reg <= kGlobaltimerHi && spins(c, i, reg, time >> 15);
  if (waits) c.budget = 0;
}

[[gnu::noinline]] static const Ins* other_special(Ctx& c, const Ins* i) {
  auto reg = (uint8_t)i->imm;
  if (i->n == 8) {
    uint64_t* d = reg64(c, i->d);
    const uint64_t time = is_time(reg) ? special_value(c, reg, 0) : 0;
    for (unsigned l = 0; l < kLanes; ++l)
      if (c.lanes[l]) d[l] = is_time(reg) ? time : special_value(c, reg, l);
    yield_slice(c, i, reg, time);
    return i + 1;
  }
  uint32_t* d = reg32(c, i->d);
  if (i->n != 1 && (same_for_all(reg) || is_time(reg))) {
    const auto value = (uint32_t)special_value(c, reg, 0);
    fill_lanes(c, d, value);
    yield_slice(c, i, reg, value);
    return i + 1;
  }
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) {
      auto v = (uint32_t)special_value(c, reg, l);
      d[l] = i->n == 1 ? (v ? ~0u : 0) : v;
    }
  return i + 1;
}

// d = special register imm. n: 8 for 64-bit, 1 for a predicate. Most kernels begin with some of
// %tid, %ntid, %ctaid and %nctaid.
const Ins* op_special(Ctx& c, const Ins* i) {
  auto reg = (uint8_t)i->imm;
  if (i->n == 8 || i->n == 1 || reg > kNctaidZ) return other_special(c, i);
  uint32_t* d = reg32(c, i->d);
  const Launch& launch = *c.grid->launch;
  if (reg <= kTidZ)
    copy_lanes(c, d, c.warp->tid[reg - kTidX]);
  else if (reg <= kNtidZ)
    fill_lanes(c, d, launch.block[reg - kNtidX]);
  else if (reg <= kCtaidZ)
    fill_lanes(c, d, c.block->ctaid[reg - kCtaidX]);
  else
    fill_lanes(c, d, launch.grid[reg - kNctaidX]);
  return i + 1;
}

}  // namespace simgpu::ptx
