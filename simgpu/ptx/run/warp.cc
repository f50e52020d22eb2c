// One warp: groups of lanes, divergence and reconvergence, calls, barriers, and operations across
// lanes.
//
// A warp is a set of groups, each a mask of lanes at one instruction of one frame. Code is laid out
// in an order in which every reconvergence point comes after the paths that lead to it, loops
// before their exits (see lower.cc), so running the deepest frame first and in it the lowest
// instruction first makes lanes meet again. When others have waited for a slice, the group that
// waited longest has the next one to itself: lanes may wait for one another, in loops that call.
#include <emmintrin.h>
#include <stdarg.h>
#include <stdio.h>

#include "ptx/handlers/device_launch.h"
#include "ptx/handlers/matrix.h"
#include "ptx/native/native.h"
#include "ptx/run/control.h"

namespace simgpu::ptx {

uint32_t predicate_mask(const void* words) {
  const auto* p = static_cast<const __m128i*>(words);
  uint32_t mask = 0;
  for (int k = 0; k < 2; ++k, p += 4) {
    __m128i low = _mm_packs_epi32(_mm_load_si128(p), _mm_load_si128(p + 1));
    __m128i high = _mm_packs_epi32(_mm_load_si128(p + 2), _mm_load_si128(p + 3));
    mask |= (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)) << (16 * k);
  }
  return mask;
}

void expand_mask(uint32_t mask, int32_t* words) {
  const __m128i bit = _mm_set_epi32(8, 4, 2, 1);
  for (unsigned l = 0; l < kLanes; l += 4) {
    const __m128i m = _mm_set1_epi32((int)(mask >> l & 15));
    _mm_store_si128((__m128i*)(words + l), _mm_cmpeq_epi32(_mm_and_si128(m, bit), bit));
  }
}

const Ins* fault(Ctx& c, const Ins* i, Outcome outcome, uint64_t address, const char* format, ...) {
  Result* r = c.error;
  r->outcome = outcome;
  r->address = address;
  r->line = i->line;
  int n = snprintf(r->text, sizeof r->text, "%s: ", c.grid->kernel->info.name);
  if (n < 0 || (size_t)n >= sizeof r->text) n = 0;
  va_list args;
  va_start(args, format);
  vsnprintf(r->text + n, sizeof r->text - (size_t)n, format, args);
  va_end(args);
  size_t used = strlen(r->text);
  snprintf(r->text + used, sizeof r->text - used, " (PTX line %u, block %u,%u,%u, warp %u)",
           i->line, c.block->ctaid[0], c.block->ctaid[1], c.block->ctaid[2], c.warp->id);
  c.event = Event::kError;
  return nullptr;
}

// ---- memory, one lane at a time ----

const Segment* find_segment_slow(Ctx& c, uint64_t address) {
  uint64_t epoch = c.grid->memory->epoch.load(std::memory_order_acquire);
  if (epoch != c.epoch) {
    for (Segment& s : c.cache) s = Segment{0, 0, nullptr, false};
    for (uint32_t k = 0; k < kSharedSite; ++k) c.sites[k] = Segment{0, 0, nullptr, false};
    c.epoch = epoch;
  }
  for (const Segment& s : c.cache)
    if (address - s.begin < s.end - s.begin) return &s;
  Segment found{};
  if (!c.grid->memory->find(address, &found) || address - found.begin >= found.end - found.begin)
    return nullptr;
  Segment& place = c.cache[c.cache_next++ & 3];
  place = found;
  return &place;
}

uint8_t* resolve(Ctx& c, uint64_t address, uint32_t bytes, bool write, bool* local) {
  *local = false;
  switch (address >> 48) {
    case 0: {
      const Segment* s = find_segment(c, address);
      if (!s || s->end - address < bytes || (write && !s->writable)) return nullptr;
      return s->host + (address - s->begin);
    }
    case kSharedWindow >> 48: {
      auto a = (uint32_t)address;
      if (address >> 32 & 0xffff) return nullptr;
      Block* b = c.block;
      if (a >> 24) {
        if ((a >> 24) - 1 >= b->unit->block_count) return nullptr;
        b = &b->unit->blocks[(a >> 24) - 1];
      }
      a &= 0xffffff;
      if (a > b->shared_bytes || b->shared_bytes - a < bytes) return nullptr;
      return b->shared + a;
    }
    case kLocalWindow >> 48:
      *local = (address >> 32 & 0xffff) == 0 &&
               (uint64_t)(uint32_t)address + bytes <= c.warp->local_bytes;
      return nullptr;
    case kParamWindow >> 48: {
      uint64_t a = address & 0xffffffffffffull;
      if (write || a + bytes > c.grid->kernel->info.param_bytes) return nullptr;
      return const_cast<uint8_t*>(c.grid->params) + a;
    }
    case kGridWindow >> 48: {
      uint64_t a = address & 0xffffffffffffull;
      if (a + bytes > kGridBytes) return nullptr;
      return c.grid->workspace + a;
    }
    case kLaunchWindow >> 48:
      return c.grid->launches->resolve(address, bytes);
    default:
      return nullptr;
  }
}

static uint8_t* local_byte(Warp& w, uint32_t lane, uint32_t a) {
  return w.local + (size_t)(a >> 2) * (kLanes * 4) + lane * 4 + (a & 3);
}
bool read_bytes(Ctx& c, uint32_t lane, uint64_t address, void* to, uint32_t bytes) {
  bool local;
  const uint8_t* p = resolve(c, address, bytes, false, &local);
  if (p) {
    memcpy(to, p, bytes);
    return true;
  }
  if (!local) return false;
  for (uint32_t k = 0; k < bytes; ++k)
    static_cast<uint8_t*>(to)[k] = *local_byte(*c.warp, lane, (uint32_t)address + k);
  return true;
}
bool write_bytes(Ctx& c, uint32_t lane, uint64_t address, const void* from, uint32_t bytes) {
  bool local;
  uint8_t* p = resolve(c, address, bytes, true, &local);
  if (p) {
    memcpy(p, from, bytes);
    return true;
  }
  if (!local) return false;
  for (uint32_t k = 0; k < bytes; ++k)
    *local_byte(*c.warp, lane, (uint32_t)address + k) = static_cast<const uint8_t*>(from)[k];
  return true;
}

bool reserve_local(Warp& w, uint32_t bytes) {
  if (bytes <= w.local_bytes) return true;
  if (bytes > kLocalLimit) return false;
  uint32_t room = w.local_bytes * 2 < bytes ? (bytes + 255) & ~255u : w.local_bytes * 2;
  if (room > kLocalLimit) room = kLocalLimit;
  auto* grown = static_cast<uint8_t*>(aligned_alloc(64, (size_t)room * kLanes));
  if (!grown) return false;
  if (w.local) memcpy(grown, w.local, (size_t)w.local_bytes * kLanes);
  memset(grown + (size_t)w.local_bytes * kLanes, 0, (size_t)(room - w.local_bytes) * kLanes);
  free(w.local);
  w.local = grown;
  w.local_bytes = room;
  return true;
}

// The same instruction has read the same value from the same address repeatedly: another thread
// must run first.
bool spins(Ctx& c, const Ins* i, uint64_t address, uint64_t value) {
  Warp& w = *c.warp;
  uint64_t key = ((uintptr_t)i * 0x9e3779b97f4a7c15ull) ^ (address * 0xc2b2ae3d27d4eb4full) ^
                 (value + 0x165667b19e3779f9ull) * 0x27d4eb2f165667c5ull;
  uint64_t& slot = w.spin[((uintptr_t)i / sizeof(Ins)) & 3];
  if (slot != key) {
    slot = key;
    w.spins = 0;
    return false;
  }
  if (++w.spins < 12) return false;
  w.spins = 0;
  c.event = Event::kSpin;
  return true;
}

// ---- groups ----

static void set_mask(Ctx& c, uint32_t mask) {
  c.mask = mask;
  c.full = mask == c.warp->live;
  c.variant = c.shape * 3 + (uint32_t)lane_set(mask);
  c.high = 32 - (uint32_t)__builtin_clz(mask | 1);
  if (mask != c.stored) expand_mask(mask, c.lane_store);
  c.stored = mask;
  c.lanes = c.lane_store;
}
static void enter_frame(Ctx& c, Frame* f) {
  c.frame = f;
  c.base[0] = f->regs;
}
static Group* add_group(Ctx& c, uint32_t mask, const Ins* pc, Frame* f) {
  Warp& w = *c.warp;
  Group* g = &w.groups[w.group_count++];
  *g = Group{mask, GroupState::kReady, 0, ++w.ages, pc, f};
  return g;
}
static const Ins* reschedule(Ctx& c) {
  c.event = Event::kReschedule;
  return nullptr;
}

static const Ins* jump(Ctx& c, const Ins* i, const Ins* target) {
  if (target <= i) {
    c.budget -= i - target + 1;
    if (c.budget <= 0) {
      c.group->pc = target;
      if (c.event != Event::kSpin) c.event = Event::kYield;
      return nullptr;
    }
  }
  return target;
}

const Ins* op_nop(Ctx&, const Ins* i) { return i + 1; }

const Ins* op_guarded(Ctx& c, const Ins* i) {
  uint32_t p = predicate_mask(at(c, i->g));
  if (i->flags & kGuardNegated) p = ~p;
  const uint32_t all = c.mask, some = p & all;
  if (some == 0) return i + 1;
  if (some == all) return i->inner(c, i);
  const bool full = c.full;
  const int32_t* lanes = c.lanes;
  expand_mask(some, c.guard_store);
  c.mask = some;
  c.full = false;
  c.lanes = c.guard_store;
  const Ins* next = i->inner(c, i);
  c.mask = all;
  c.full = full;
  c.lanes = lanes;
  return next;
}

const Ins* op_jump(Ctx& c, const Ins* i) { return jump(c, i, i->target); }

const Ins* op_branch(Ctx& c, const Ins* i) {
  uint32_t p = predicate_mask(at(c, i->g));
  if (i->flags & kGuardNegated) p = ~p;
  const uint32_t taken = p & c.mask;
  if (taken == c.mask) return jump(c, i, i->target);
  if (taken == 0) return i + 1;
  const Ins* low = i + 1;
  const Ins* high = i->target;
  uint32_t low_mask = c.mask & ~taken, high_mask = taken;
  c.group->mask = low_mask;
  c.group->pc = low;
  if (high <= i) c.budget -= i - high + 1;
  add_group(c, high_mask, high, c.frame);
  return reschedule(c);
}

const Ins* op_brx(Ctx& c, const Ins* i) {
  const uint32_t* index = reg32(c, i->a);
  uint32_t left = c.mask;
  bool first = true;
  const Ins* single = nullptr;
  while (left != 0) {
    uint32_t lane = (uint32_t)__builtin_ctz(left), which = index[lane], same = 0;
    for (uint32_t l = lane; l < kLanes; ++l)
      if (left >> l & 1 && index[l] == which) same |= 1u << l;
    left &= ~same;
    if (which >= (uint64_t)i->imm)
      return fault(c, i, Outcome::kInvalidPc, which, "branch index %u of %u", which,
                   (unsigned)i->imm);
    const Ins* to = i->table[which];
    if (first && left == 0) {
      single = to;
      break;
    }
    if (first) {
      c.group->mask = same;
      c.group->pc = to;
      first = false;
    } else {
      add_group(c, same, to, c.frame);
    }
  }
  if (single) return jump(c, i, single);
  c.budget -= 8;
  return reschedule(c);
}

// ---- frames ----

static Frame* push_frame(Ctx& c, Function* f) {
  Warp& w = *c.warp;
  uint32_t base = (c.frame->local_top + 63) & ~63u;
  if (!reserve_local(w, base + f->local_bytes + 16)) return nullptr;
  const size_t head = (sizeof(Frame) + 63) & ~(size_t)63;
  auto* memory = static_cast<uint8_t*>(aligned_alloc(64, head + ((f->reg_bytes + 63) & ~63u)));
  if (!memory) return nullptr;
  auto* n = reinterpret_cast<Frame*>(memory);
  n->parent = c.frame;
  n->function = f;
  n->regs = memory + head;
  n->lanes = c.mask;
  n->depth = c.frame->depth + 1;
  n->local_base = base;
  n->local_top = base + f->local_bytes;
  n->next = w.frames;
  n->link = &w.frames;
  if (w.frames) w.frames->link = &n->next;
  w.frames = n;
  if (f->zero_registers) memset(n->regs, 0, f->reg_bytes);
  return n;
}
static void drop_frame(Frame* f) {
  if (!f->parent) return;
  *f->link = f->next;
  if (f->next) f->next->link = f->link;
  free(f);
}

// Moves parameters between local frames, for the active lanes only: other lanes may use the same
// addresses.
static void copy_local(Ctx& c, uint32_t from, uint32_t to, uint32_t bytes) {
  uint8_t* base = c.warp->local;
  const uint32_t words = (bytes + 3) / 4;
  const auto* s = reinterpret_cast<const uint32_t*>(base + (size_t)(from >> 2) * (kLanes * 4));
  auto* d = reinterpret_cast<uint32_t*>(base + (size_t)(to >> 2) * (kLanes * 4));
  if (c.full) {
    memcpy(d, s, (size_t)words * kLanes * 4);
    return;
  }
  for (uint32_t k = 0; k < words; ++k, s += kLanes, d += kLanes)
    for (unsigned l = 0; l < kLanes; ++l) d[l] = c.lanes[l] ? s[l] : d[l];
}

const Ins* op_call(Ctx& c, const Ins* i) {
  const CallSite& site = *i->call;
  if (site.builtin != Builtin::kNo) return call_builtin(c, i) ? i + 1 : nullptr;
  Function* f = site.callee;
  if (!f) {
    const uint64_t* to = reg64(c, i->a);
    const uint32_t lane = (uint32_t)__builtin_ctz(c.mask);
    const uint64_t address = to[lane], off = address - c.module->code_base;
    const uint64_t index = off / 16 - 1;
    if (off % 16 != 0 || off == 0 || index >= c.module->functions.size() ||
        !c.module->functions[index] || c.module->functions[index]->syntax->entry)
      return fault(c, i, Outcome::kInvalidPc, address,
                   "call of 0x%llx, which is no device function", (unsigned long long)address);
    f = c.module->functions[index];
    if (f->param_count != site.param_count)
      return fault(c, i, Outcome::kInvalidPc, address,
                   "call of %s with %u parameters instead of %u", f->name, site.param_count,
                   f->param_count);
    uint32_t same = 0;
    for (uint32_t l = 0; l < kLanes; ++l)
      if (c.mask >> l & 1 && to[l] == address) same |= 1u << l;
    if (same != c.mask) {  // lanes that call something else do so after
      add_group(c, c.mask & ~same, i, c.frame);
      c.group->mask = same;
      set_mask(c, same);
    }
  }
  Frame* n = push_frame(c, f);
  if (!n)
    return fault(c, i, Outcome::kTrap, 0,
                 "the stack of local memory is exhausted (%u KiB per thread) calling %s",
                 kLocalLimit >> 10, f->name);
  n->return_to = i + 1;
  n->site = &site;
  for (uint32_t k = 0; k < site.param_count; ++k) {
    uint32_t bytes =
        site.params[k].bytes < f->params[k].bytes ? site.params[k].bytes : f->params[k].bytes;
    copy_local(c, c.frame->local_base + site.params[k].offset, n->local_base + f->params[k].offset,
               bytes);
  }
  c.budget -= 16;
  c.group->frame = n;
  c.group->pc = f->code;
  if (c.warp->group_count > 1) return reschedule(c);
  enter_frame(c, n);
  return f->code;
}

const Ins* op_ret(Ctx& c, const Ins* i) {
  Frame* f = c.frame;
  if (!f->parent) return op_exit(c, i);
  const CallSite& site = *f->site;
  const Function& callee = *f->function;
  for (uint32_t k = 0; k < site.result_count && k < callee.result_count; ++k) {
    uint32_t bytes = site.results[k].bytes < callee.results[k].bytes ? site.results[k].bytes
                                                                     : callee.results[k].bytes;
    copy_local(c, f->local_base + callee.results[k].offset,
               f->parent->local_base + site.results[k].offset, bytes);
  }
  c.group->frame = f->parent;
  c.group->pc = f->return_to;
  const Ins* next = f->return_to;
  enter_frame(c, f->parent);
  f->lanes &= ~c.mask;
  if (f->lanes == 0) drop_frame(f);
  return c.warp->group_count > 1 ? reschedule(c) : next;
}

// ---- barriers ----

static bool barrier_complete(const Block& b, const Barrier& bar) {
  uint32_t sum = 0;
  bool everyone = true, anyone = false;
  for (uint32_t w = 0; w < b.warp_count; ++w) {
    uint32_t live = b.warps[w].live, in = bar.arrived[w];
    anyone |= in != 0;
    everyone &= (live & ~in) == 0;
    sum += in == 0 ? 0 : (live & ~in) == 0 ? kLanes : (uint32_t)__builtin_popcount(in);
  }
  if (!anyone) return false;
  if (bar.expected == 0 || bar.expected >= b.threads) return everyone;
  return sum >= bar.expected;
}

static void write_lanes(Frame* f, uint32_t operand, uint32_t mask, uint32_t value) {
  auto* d = reinterpret_cast<uint32_t*>(f->regs + operand);
  for (unsigned l = 0; l < kLanes; ++l)
    if (mask >> l & 1) d[l] = value;
}

enum BarKind : int64_t { kBarSync, kBarArrive, kBarPopc, kBarAnd, kBarOr };

static void barrier_release(Block& b, uint32_t index) {
  Barrier& bar = b.barriers[index];
  for (uint32_t w = 0; w < b.warp_count; ++w) {
    Warp& warp = b.warps[w];
    for (uint32_t k = 0; k < warp.group_count; ++k) {
      Group& g = warp.groups[k];
      if (g.state != GroupState::kBarrier || g.barrier != index) continue;
      const Ins* i = g.pc;
      if (i->imm == kBarPopc) write_lanes(g.frame, i->d, g.mask, bar.count);
      if (i->imm == kBarAnd) write_lanes(g.frame, i->d, g.mask, bar.all ? ~0u : 0);
      if (i->imm == kBarOr) write_lanes(g.frame, i->d, g.mask, bar.any ? ~0u : 0);
      g.state = GroupState::kReady;
      g.pc = i + 1;
    }
  }
  bar = Barrier();
}

const Ins* op_bar(Ctx& c, const Ins* i) {
  Block& b = *c.block;
  const uint32_t first = (uint32_t)__builtin_ctz(c.mask);
  const uint32_t index = reg32(c, i->a)[first];
  if (index > 15) return fault(c, i, Outcome::kIllegalInstruction, 0, "barrier %u of 16", index);
  Barrier& bar = b.barriers[index];
  b.barriers_used |= 1u << index;
  if (i->b != kNone) {
    uint32_t expected = reg32(c, i->b)[first];
    if (expected == 0 || expected % kLanes != 0)
      return fault(c, i, Outcome::kIllegalInstruction, 0,
                   "barrier %u for %u threads, not a multiple of 32", index, expected);
    bar.expected = expected;
  }
  if (i->imm >= kBarPopc) {
    uint32_t p = predicate_mask(at(c, i->c));
    if (i->sub & 1) p = ~p;
    bar.any |= (p & c.mask) != 0;
    bar.all &= (~p & c.mask) == 0;
    bar.count += (uint32_t)__builtin_popcount(p & c.mask);
  }
  bar.arrived[c.warp->id] |= c.mask;
  if (i->imm == kBarArrive) {
    if (barrier_complete(b, bar)) barrier_release(b, index);
    return i + 1;
  }
  c.group->state = GroupState::kBarrier;
  c.group->barrier = (uint8_t)index;
  c.group->pc = i;
  if (barrier_complete(b, bar)) barrier_release(b, index);
  return reschedule(c);
}

// barrier.cluster: imm 0 arrive, 1 wait.
static void cluster_check(Unit& u) {
  if (u.cluster_arrived < u.live_threads || u.cluster_arrived == 0) return;
  u.cluster_arrived = 0;
  ++u.cluster_phase;
  for (uint32_t k = 0; k < u.block_count; ++k)
    for (uint32_t w = 0; w < u.blocks[k].warp_count; ++w)
      for (uint32_t g = 0; g < u.blocks[k].warps[w].group_count; ++g) {
        Group& group = u.blocks[k].warps[w].groups[g];
        if (group.state == GroupState::kCluster) group.state = GroupState::kReady;
      }
}
const Ins* op_cluster(Ctx& c, const Ins* i) {
  Unit& u = *c.block->unit;
  if (i->imm == 0) {
    c.warp->cluster_phase = u.cluster_phase;
    u.cluster_arrived += (uint32_t)__builtin_popcount(c.mask);
    cluster_check(u);
    return i + 1;
  }
  if (u.cluster_phase != c.warp->cluster_phase) return i + 1;
  c.group->state = GroupState::kCluster;
  c.group->pc = i;
  return reschedule(c);
}

const Ins* op_exit(Ctx& c, const Ins*) {
  Warp& w = *c.warp;
  for (Frame* f = c.frame; f;) {
    Frame* parent = f->parent;
    f->lanes &= ~c.mask;
    if (f->lanes == 0) drop_frame(f);
    f = parent;
  }
  w.live &= ~c.mask;
  Unit& u = *c.block->unit;
  u.live_threads -= (uint32_t)__builtin_popcount(c.mask);
  *c.group = w.groups[--w.group_count];
  // Lanes that wait may have waited for these lanes only.
  for (uint32_t k = 0; k < w.group_count; ++k)
    if (w.groups[k].state == GroupState::kCollective) w.groups[k].state = GroupState::kReady;
  for (uint32_t left = c.block->barriers_used; left != 0; left &= left - 1) {
    const auto k = (uint32_t)__builtin_ctz(left);
    if (barrier_complete(*c.block, c.block->barriers[k])) barrier_release(*c.block, k);
  }
  cluster_check(u);
  return reschedule(c);
}

const Ins* op_trap(Ctx& c, const Ins* i) {
  return fault(c, i, i->imm ? Outcome::kIllegalInstruction : Outcome::kTrap, 0,
               i->imm ? "brkpt" : "trap");
}
const Ins* op_fence(Ctx&, const Ins* i) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return i + 1;
}
const Ins* op_sleep(Ctx& c, const Ins* i) {
  c.budget -= 64;
  if (c.budget > 0 && c.warp->group_count > 1) c.budget = 0;
  return i + 1;
}

// ---- addresses that a function asks for, and its stack ----

// d = v in each active lane; n: 8 for 64 bits.
void set_result(Ctx& c, const Ins* i, uint64_t v) {
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    if (i->n == 8)
      reg64(c, i->d)[l] = v;
    else
      reg32(c, i->d)[l] = (uint32_t)v;
  }
}

// d = imm + where dynamic shared memory starts for this kernel; for functions, which several
// kernels share.
const Ins* op_dynamic_shared(Ctx& c, const Ins* i) {
  uint64_t v = c.grid->kernel->dynamic_offset + (uint64_t)i->imm;
  set_result(c, i, v);
  return i + 1;
}
const Ins* op_is_constant(Ctx& c, const Ins* i) {
  const Module& m = *c.module;
  const uint64_t* a = reg64(c, i->a);
  uint32_t* d = reg32(c, i->d);
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!c.lanes[l]) continue;
    d[l] = 0;
    for (size_t k = 0; k < m.variables.size(); ++k)
      if (m.variables[k].constant && a[l] - m.addresses[k] < m.variables[k].size) d[l] = ~0u;
  }
  return i + 1;
}

// d = address of a local variable of the frame.
const Ins* op_local_address(Ctx& c, const Ins* i) {
  uint64_t v = c.frame->local_base + (uint64_t)i->imm + (i->sub ? kLocalWindow : 0);
  set_result(c, i, v);
  return i + 1;
}

// alloca d, size a, alignment imm: the largest request of the active lanes, at one address for all.
const Ins* op_alloca(Ctx& c, const Ins* i) {
  uint64_t most = 0;
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) {
      uint64_t v = i->n == 8 ? reg64(c, i->a)[l] : reg32(c, i->a)[l];
      if (v > most) most = v;
    }
  Frame& f = *c.frame;
  uint64_t align = i->imm < 16 ? 16 : (uint64_t)i->imm;
  uint64_t base = (f.local_top + align - 1) & ~(align - 1);
  if (most > kLocalLimit || !reserve_local(*c.warp, (uint32_t)(base + most + 16)))
    return fault(c, i, Outcome::kTrap, 0, "alloca of %llu bytes exhausts local memory",
                 (unsigned long long)most);
  f.local_top = (uint32_t)(base + most);
  set_result(c, i, base);
  return i + 1;
}
const Ins* op_stacksave(Ctx& c, const Ins* i) {
  set_result(c, i, c.frame->local_top);
  return i + 1;
}
const Ins* op_stackrestore(Ctx& c, const Ins* i) {
  if (!c.full) return i + 1;  // other lanes may still use what is above
  const uint32_t lane = (uint32_t)__builtin_ctz(c.mask);
  uint64_t v = i->n == 8 ? reg64(c, i->a)[lane] : reg32(c, i->a)[lane];
  Frame& f = *c.frame;
  if (v >= f.local_base + f.function->local_bytes && v <= f.local_top) f.local_top = (uint32_t)v;
  return i + 1;
}

// ---- operations across lanes ----

const Ins* op_activemask(Ctx& c, const Ins* i) {
  uint32_t* d = reg32(c, i->d);
  for (unsigned l = 0; l < kLanes; ++l)
    if (c.lanes[l]) d[l] = c.mask;
  return i + 1;
}

struct Meeting {
  uint64_t value[kLanes];
  uint32_t b[kLanes], c[kLanes];
  uint64_t result[kLanes];
  bool flag[kLanes];
};

static void gather(Meeting& m, const Ctx& c, const Ins* i, Frame* f, uint32_t mask) {
  const uint8_t* base[2] = {f->regs, c.base[1]};
  auto word = [&](uint32_t o) {
    return reinterpret_cast<const uint32_t*>(base[o >> 31] + (o & 0x7fffffffu));
  };
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    if (i->a != kNone)
      m.value[l] = i->n == 8 ? reinterpret_cast<const uint64_t*>(word(i->a))[l] : word(i->a)[l];
    m.b[l] = i->b != kNone ? word(i->b)[l] : 0;
    m.c[l] = i->c != kNone ? word(i->c)[l] : 0;
    if (i->imm & 1) m.value[l] = ~m.value[l];  // a negated predicate
  }
}
static void scatter(const Meeting& m, const Ins* i, Frame* f, uint32_t mask) {
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    if (i->d != kNone) reinterpret_cast<uint32_t*>(f->regs + i->d)[l] = (uint32_t)m.result[l];
    if (i->e != kNone) reinterpret_cast<uint32_t*>(f->regs + i->e)[l] = m.flag[l] ? ~0u : 0;
  }
}

static void shuffle(Meeting& m, Collective kind, uint32_t lanes) {
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!(lanes >> l & 1)) continue;
    const uint32_t b = m.b[l] & 31, clamp = m.c[l] & 31, segment = m.c[l] >> 8 & 31;
    const uint32_t top = (l & segment) | (clamp & ~segment), bottom = l & segment;
    int j;
    bool in;
    switch (kind) {
      case Collective::kShflUp:
        j = (int)l - (int)b;
        in = j >= (int)top;
        break;
      case Collective::kShflDown:
        j = (int)(l + b);
        in = j <= (int)top;
        break;
      case Collective::kShflBfly:
        j = (int)(l ^ b);
        in = j <= (int)top;
        break;
      default:
        j = (int)(bottom | (b & ~segment));
        in = j <= (int)top;
        break;
    }
    if (!in) j = (int)l;
    // Reading a lane that takes no part is undefined. Reductions of fewer lanes than a warp has
    // rely on a zero (NVIDIA's own samples do).
    m.result[l] = lanes >> (j & 31) & 1 ? m.value[j & 31] : 0;
    m.flag[l] = in;
  }
}

static uint64_t vote(const Meeting& m, Collective kind, uint32_t lanes) {
  uint32_t ballot = 0;
  for (unsigned l = 0; l < kLanes; ++l)
    if (lanes >> l & 1 && (uint32_t)m.value[l]) ballot |= 1u << l;
  switch (kind) {
    case Collective::kVoteAll:
      return ballot == lanes ? ~0u : 0;
    case Collective::kVoteAny:
      return ballot != 0 ? ~0u : 0;
    case Collective::kVoteUni:
      return ballot == 0 || ballot == lanes ? ~0u : 0;
    default:
      return ballot;
  }
}

static void match_any(Meeting& m, uint32_t lanes) {
  for (unsigned l = 0; l < kLanes; ++l) {
    if (!(lanes >> l & 1)) continue;
    uint32_t same = 0;
    for (unsigned k = 0; k < kLanes; ++k)
      if (lanes >> k & 1 && m.value[k] == m.value[l]) same |= 1u << k;
    m.result[l] = same;
  }
}

static bool all_match(const Meeting& m, uint32_t lanes) {
  const uint32_t leader = (uint32_t)__builtin_ctz(lanes);
  for (unsigned l = leader + 1; l < kLanes; ++l)
    if (lanes >> l & 1 && m.value[l] != m.value[leader]) return false;
  return true;
}

// The lesser or the greater of two floats, of which -0 is the lesser zero; the other one of a NaN.
static uint64_t least_or_most(uint64_t x, uint64_t y, bool most) {
  const float p = __builtin_bit_cast(float, (uint32_t)x),
              q = __builtin_bit_cast(float, (uint32_t)y);
  if (p != p) return y;
  if (q != q) return x;
  if (p == q) return __builtin_signbit(p) != most ? x : y;
  return (p > q) == most ? x : y;
}

static uint64_t reduce(const Meeting& m, Collective kind, uint32_t lanes) {
  const uint32_t leader = (uint32_t)__builtin_ctz(lanes);
  auto all = [&](auto f) {
    uint64_t r = m.value[leader];
    for (unsigned l = leader + 1; l < kLanes; ++l)
      if (lanes >> l & 1) r = f(r, m.value[l]);
    return r;
  };
  switch (kind) {
    case Collective::kReduxAdd:
      return all([](uint64_t x, uint64_t y) { return x + y; });
    case Collective::kReduxMin:
      return all([](uint64_t x, uint64_t y) { return x < y ? x : y; });
    case Collective::kReduxMax:
      return all([](uint64_t x, uint64_t y) { return x > y ? x : y; });
    case Collective::kReduxMinS:
      return all([](uint64_t x, uint64_t y) { return (int32_t)x < (int32_t)y ? x : y; });
    case Collective::kReduxMaxS:
      return all([](uint64_t x, uint64_t y) { return (int32_t)x > (int32_t)y ? x : y; });
    case Collective::kReduxAnd:
      return all([](uint64_t x, uint64_t y) { return x & y; });
    case Collective::kReduxOr:
      return all([](uint64_t x, uint64_t y) { return x | y; });
    case Collective::kReduxXor:
      return all([](uint64_t x, uint64_t y) { return x ^ y; });
    default:  // kReduxMinF, kReduxMaxF
      return all([&](uint64_t x, uint64_t y) {
        return least_or_most(x, y, kind == Collective::kReduxMaxF);
      });
  }
}

static void meet(Meeting& m, Collective kind, uint32_t lanes) {
  uint64_t r = 0;
  bool flag = false;
  switch (kind) {
    case Collective::kShflUp:
    case Collective::kShflDown:
    case Collective::kShflBfly:
    case Collective::kShflIdx:
      return shuffle(m, kind, lanes);
    case Collective::kVoteAll:
    case Collective::kVoteAny:
    case Collective::kVoteUni:
    case Collective::kVoteBallot:
      r = vote(m, kind, lanes);
      break;
    case Collective::kMatchAny:
      return match_any(m, lanes);
    case Collective::kMatchAll:
      flag = all_match(m, lanes);
      r = flag ? lanes : 0;
      break;
    case Collective::kReduxAdd:
    case Collective::kReduxMin:
    case Collective::kReduxMax:
    case Collective::kReduxMinS:
    case Collective::kReduxMaxS:
    case Collective::kReduxAnd:
    case Collective::kReduxOr:
    case Collective::kReduxXor:
    case Collective::kReduxMinF:
    case Collective::kReduxMaxF:
      r = reduce(m, kind, lanes);
      break;
    case Collective::kElect:
      for (unsigned l = 0; l < kLanes; ++l) {
        m.result[l] = (uint32_t)__builtin_ctz(lanes);
        m.flag[l] = l == m.result[l];
      }
      return;
    case Collective::kSyncwarp:
      return;
  }
  for (unsigned l = 0; l < kLanes; ++l) {
    m.result[l] = r;
    m.flag[l] = flag;
  }
}

// The usual case: the lanes that are here are all that the members' mask, the same for all of them,
// names.
static bool all_members_here(Ctx& c, const Ins* i) {
  if (i->g == kNone) return true;
  const uint32_t* masks = reg32(c, i->g);
  const uint32_t members = masks[__builtin_ctz(c.mask)];
  if ((members & c.warp->live & ~c.mask) != 0) return false;
  if (i->g >> 31) return true;  // a constant
  uint32_t differ = 0;
  for (unsigned l = 0; l < kLanes; ++l) differ |= (masks[l] ^ members) & (uint32_t)c.lanes[l];
  return differ == 0;
}

// A shuffle of 32 bits by all lanes of the warp.
template <class Source>
static void shuffle_all(Ctx& c, const Ins* i, Source source) {
  uint32_t value[kLanes], in[kLanes];
  memcpy(value, at(c, i->a), sizeof value);
  const uint32_t *b = reg32(c, i->b), *limits = reg32(c, i->c);
  uint32_t result[kLanes];
  for (unsigned l = 0; l < kLanes; ++l) {
    const uint32_t clamp = limits[l] & 31, segment = limits[l] >> 8 & 31;
    const bool inside = source((int)l, b[l] & 31, clamp, segment, &result[l]);
    in[l] = inside ? ~0u : 0;
    result[l] = value[inside ? result[l] & 31 : l];
  }
  if (i->d != kNone) memcpy(at(c, i->d), result, sizeof result);
  if (i->e != kNone) memcpy(at(c, i->e), in, sizeof in);
}
static bool shuffles_all(Ctx& c, const Ins* i, Collective kind) {
  if (c.mask != ~0u || i->n == 8 || i->a == kNone || i->b == kNone || i->c == kNone) return false;
  auto top = [](int l, uint32_t clamp, uint32_t segment) {
    return (int)(((uint32_t)l & segment) | (clamp & ~segment));
  };
  switch (kind) {
    case Collective::kShflUp:
      shuffle_all(c, i, [&](int l, uint32_t b, uint32_t clamp, uint32_t segment, uint32_t* j) {
        *j = (uint32_t)(l - (int)b);
        return l - (int)b >= top(l, clamp, segment);
      });
      return true;
    case Collective::kShflDown:
      shuffle_all(c, i, [&](int l, uint32_t b, uint32_t clamp, uint32_t segment, uint32_t* j) {
        *j = (uint32_t)l + b;
        return l + (int)b <= top(l, clamp, segment);
      });
      return true;
    case Collective::kShflBfly:
      shuffle_all(c, i, [&](int l, uint32_t b, uint32_t clamp, uint32_t segment, uint32_t* j) {
        *j = (uint32_t)l ^ b;
        return (int)*j <= top(l, clamp, segment);
      });
      return true;
    case Collective::kShflIdx:
      shuffle_all(c, i, [&](int l, uint32_t b, uint32_t clamp, uint32_t segment, uint32_t* j) {
        *j = ((uint32_t)l & segment) | (b & ~segment);
        return (int)*j <= top(l, clamp, segment);
      });
      return true;
    default:
      return false;
  }
}

// g holds the member mask, which may differ from lane to lane; kNone: the lanes that are here.
const Ins* op_collective(Ctx& c, const Ins* i) {
  Warp& w = *c.warp;
  auto kind = (Collective)i->sub;
  if ((kind == Collective::kSyncwarp || kind <= Collective::kShflIdx) && all_members_here(c, i) &&
      (kind == Collective::kSyncwarp || shuffles_all(c, i, kind)))
    return i + 1;
  uint32_t left = c.mask, waiting = 0;
  while (left != 0) {
    const uint32_t first = (uint32_t)__builtin_ctz(left);
    uint32_t same = left, members = c.mask;
    if (i->g != kNone) {
      const uint32_t* masks = reg32(c, i->g);
      members = masks[first];
      same = 0;
      for (unsigned l = first; l < kLanes; ++l)
        if (left >> l & 1 && masks[l] == members) same |= 1u << l;
    }
    left &= ~same;
    const uint32_t need = members & w.live & ~same;
    Meeting m;
    if (need == 0) {
      gather(m, c, i, c.frame, same);
      meet(m, kind, same);
      scatter(m, i, c.frame, same);
      continue;
    }
    // Lanes are missing: perhaps they wait elsewhere in the same kind of instruction, with the same
    // mask.
    uint32_t there = 0;
    for (uint32_t k = 0; k < w.group_count; ++k) {
      Group& g = w.groups[k];
      if (&g == c.group || g.state != GroupState::kCollective || g.pc->sub != i->sub ||
          g.pc->g == kNone)
        continue;
      const uint8_t* base[2] = {g.frame->regs, c.base[1]};
      const auto* masks =
          reinterpret_cast<const uint32_t*>(base[g.pc->g >> 31] + (g.pc->g & 0x7fffffffu));
      for (unsigned l = 0; l < kLanes; ++l)
        if (g.mask >> l & 1 && masks[l] == members) there |= 1u << l;
    }
    if ((need & ~there) != 0) {
      waiting |= same;
      continue;
    }
    gather(m, c, i, c.frame, same);
    for (uint32_t k = 0; k < w.group_count; ++k)
      if (&w.groups[k] != c.group && w.groups[k].state == GroupState::kCollective &&
          (w.groups[k].mask & there))
        gather(m, c, w.groups[k].pc, w.groups[k].frame, w.groups[k].mask & there);
    meet(m, kind, same | there);
    scatter(m, i, c.frame, same);
    for (uint32_t k = 0, n = w.group_count; k < n; ++k) {
      Group& g = w.groups[k];
      if (&g == c.group || g.state != GroupState::kCollective || !(g.mask & there)) continue;
      uint32_t done = g.mask & there, rest = g.mask & ~there;
      scatter(m, g.pc, g.frame, done);
      if (rest != 0) {
        Group* stay = add_group(c, rest, g.pc, g.frame);
        stay->state = GroupState::kCollective;
      }
      g.mask = done;
      g.state = GroupState::kReady;
      g.pc = g.pc + 1;
    }
  }
  if (waiting == 0) return i + 1;
  const uint32_t go = c.mask & ~waiting;
  c.group->mask = waiting;
  c.group->pc = i;
  c.group->state = GroupState::kCollective;
  if (go != 0) add_group(c, go, i + 1, c.frame);
  return reschedule(c);
}

bool whole_warp(Ctx& c, const Ins* i, const Ins** wait) {
  Warp& w = *c.warp;
  if (w.live != ~0u) {
    *wait = fault(c, i, Outcome::kIllegalInstruction, 0,
                  "a warp of which lanes %08x alone are left multiplies matrices", w.live);
    return false;
  }
  if (c.full) return true;
  uint32_t here = c.mask;
  auto waits = [&](const Group& g) {
    return g.state == GroupState::kCollective && g.pc == i && g.frame == c.frame;
  };
  for (uint32_t k = 0; k < w.group_count; ++k)
    if (&w.groups[k] != c.group && waits(w.groups[k])) here |= w.groups[k].mask;
  c.group->pc = i;
  if (here == w.live) {  // together, from here again
    for (uint32_t k = 0; k < w.group_count; ++k)
      if (waits(w.groups[k])) w.groups[k].state = GroupState::kReady;
  } else {
    c.group->state = GroupState::kCollective;
  }
  *wait = reschedule(c);
  return false;
}

// ---- scheduling of groups ----

static void merge_groups(Warp& w) {
  for (uint32_t a = 0; a < w.group_count; ++a)
    for (uint32_t b = a + 1; b < w.group_count;) {
      Group &x = w.groups[a], &y = w.groups[b];
      if (x.pc == y.pc && x.frame == y.frame && x.state == GroupState::kReady &&
          y.state == GroupState::kReady) {
        x.mask |= y.mask;
        if (y.age < x.age) x.age = y.age;
        y = w.groups[--w.group_count];
      } else {
        ++b;
      }
    }
}

// The group to run next, null when none can; *ready: how many can.
static Group* choose_group(Warp& w, uint32_t* ready) {
  Group* best = nullptr;
  bool favour = false;
  *ready = 0;
  for (uint32_t k = 0; k < w.group_count; ++k) {
    Group& g = w.groups[k];
    if (g.state != GroupState::kReady) continue;
    ++*ready;
    const bool favoured = (g.mask & w.favoured) != 0;
    bool better = !best                                  ? true
                  : favoured != favour                   ? favoured
                  : g.frame->depth != best->frame->depth ? g.frame->depth > best->frame->depth
                                                         : g.pc < best->pc;
    if (!better) continue;
    best = &g;
    favour = favoured;
  }
  if (!favour) w.favoured = 0;
  return best;
}

// The group has run for a slice: the lanes that waited longest run in the next one. Then the usual
// order applies again, in which lanes meet.
static void pass_on(Warp& w, Group& g) {
  g.age = ++w.ages;
  w.waited = 0;
  const uint32_t favoured = w.favoured;
  w.favoured = 0;
  if (favoured != 0) return;
  const Group* oldest = &g;
  for (uint32_t k = 0; k < w.group_count; ++k) {
    const Group& o = w.groups[k];
    if (o.state == GroupState::kReady && o.age < oldest->age) oldest = &o;
  }
  w.favoured = oldest->mask;
}

// No group can run. Lanes that wait for lanes of their own warp wait for ever when no other warp
// can free those.
static WarpState stuck(Ctx& c, Warp& w) {
  const Group* waits = nullptr;
  for (uint32_t k = 0; k < w.group_count; ++k) {
    if (w.groups[k].state != GroupState::kCollective) return WarpState::kBlocked;
    waits = &w.groups[k];
  }
  fault(c, waits->pc, Outcome::kTrap, 0, "deadlock: lanes %08x wait here for lanes that never come",
        waits->mask);
  return WarpState::kError;
}

WarpState run_warp(Ctx& c, Warp& w, int64_t budget) {
  constexpr int64_t kGroupSlice = 4000;
  constexpr int64_t kSwitch = 20;  // instructions that a change of groups counts for
  c.warp = &w;
  uint32_t spinning = 0;
  while (budget > 0) {
    uintptr_t stop = UINTPTR_MAX;
    Group* g;
    uint32_t ready = 1;
    if (w.group_count == 1) {
      g = &w.groups[0];
      if (g->state != GroupState::kReady) return stuck(c, w);
    } else {
      merge_groups(w);
      g = choose_group(w, &ready);
      if (!g) {
        return w.group_count == 0 ? WarpState::kDone : stuck(c, w);
      }
      if (ready > 1 && w.waited >= kGroupSlice) {
        pass_on(w, *g);
        g = choose_group(w, &ready);
      }
      for (uint32_t k = 0; k < w.group_count; ++k) {
        const Group& o = w.groups[k];
        if (o.state == GroupState::kReady && o.frame == g->frame && o.pc > g->pc &&
            (uintptr_t)o.pc < stop)
          stop = (uintptr_t)o.pc;
      }
    }
    c.group = g;
    c.chain = stop == UINTPTR_MAX;
    set_mask(c, g->mask);
    enter_frame(c, g->frame);
    c.event = Event::kNone;
    const int64_t left = kGroupSlice - w.waited;
    const int64_t slice = ready > 1 && budget > left ? left : budget;
    c.budget = slice;
    const Ins* i = g->pc;
    do {
      i = i->fn(c, i);
    } while ((uintptr_t)i - 1 < stop - 1);
    int64_t used = slice - c.budget;
    if (used < 1) used = 1;
    budget -= used;
    w.waited = ready > 1 ? w.waited + used + kSwitch : 0;
    if (i) {
      g->pc = i;
      continue;
    }
    if (c.event == Event::kError) return WarpState::kError;
    if (c.event == Event::kSpin) {
      if (ready == 1 || ++spinning >= 4 * ready) {
        g->age = ++w.ages;
        return WarpState::kSpin;
      }
      w.waited = kGroupSlice;
    }
  }
  return WarpState::kYield;
}

}  // namespace simgpu::ptx
