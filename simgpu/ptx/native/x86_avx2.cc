#include "ptx/native/x86_avx2.h"

#include <stddef.h>

#include "ptx/run/ir.h"

namespace simgpu::ptx::x86 {

namespace {

constexpr uint32_t id(Code c) {
  return (uint32_t)c.map << 12 | (uint32_t)c.prefix << 9 | (uint32_t)c.wide << 8 | c.opcode;
}

constexpr Code kCopy = {k0F, k66, 0, 0x6f};
constexpr Code kLoad = {k0F, kF3, 0, 0x6f}, kStore = {k0F, kF3, 0, 0x7f};
constexpr Code kAnd = {k0F, k66, 0, 0xdb}, kAndNot = {k0F, k66, 0, 0xdf};
constexpr Code kOr = {k0F, k66, 0, 0xeb}, kXor = {k0F, k66, 0, 0xef};
constexpr Code kAdd32 = {k0F, k66, 0, 0xfe}, kAdd64 = {k0F, k66, 0, 0xd4};
constexpr Code kEqual32 = {k0F, k66, 0, 0x76}, kEqual64 = {k0F38, k66, 0, 0x29};
constexpr Code kGreater32 = {k0F, k66, 0, 0x66}, kGreater64 = {k0F38, k66, 0, 0x37};
constexpr Code kLeastU32 = {k0F38, k66, 0, 0x3b}, kMostU32 = {k0F38, k66, 0, 0x3f};
constexpr Code kMultiply32 = {k0F38, k66, 0, 0x40}, kMultiplyLow = {k0F, k66, 0, 0xf4};
constexpr Code kShiftWords64 = {k0F, k66, 0, 0x73};  // by an immediate: /2 right, /6 left
constexpr Code kShiftRight64 = {k0F38, k66, 1, 0x45};
constexpr Code kShuffle = {k0F, k66, 0, 0x70}, kShuffleReal = {k0F, kPlain, 0, 0xc6};
constexpr Code kPermute64 = {k0F3A, k66, 1, 0x00};
constexpr Code kBroadcast32 = {k0F38, k66, 0, 0x58}, kBroadcast64 = {k0F38, k66, 0, 0x59};
constexpr Code kUpperLane = {k0F3A, k66, 0, 0x39}, kInsertLane = {k0F3A, k66, 0, 0x38};
constexpr Code kBlend = {k0F3A, k66, 0, 0x4a};  // vblendvps
constexpr Code kMaskedLoad = {k0F38, k66, 0, 0x8c}, kMaskedStore = {k0F38, k66, 0, 0x8e};
constexpr Code kTest = {k0F38, k66, 0, 0x17}, kSub64 = {k0F, k66, 0, 0xfb};
constexpr Code kUnordered32 = {k0F, kPlain, 0, 0xc2}, kUnordered64 = {k0F, k66, 0, 0xc2};
constexpr Code kSignExtend = {k0F38, k66, 0, 0x25};
constexpr Code kOut64 = {k0F, k66, 1, 0x7e}, kExtract64 = {k0F3A, k66, 1, 0x16};
constexpr Code kToFirst = {k0F, k66, 0, 0x6e}, kInsert = {k0F3A, k66, 0, 0x22};
constexpr Code kFirst32 = {k0F, k66, 0, 0x7e};  // to a scalar register
constexpr Code kSigns32 = {k0F, kPlain, 0, 0x50}, kSigns64 = {k0F, k66, 0, 0x50};

Code with_width(Code c, unsigned wide) {
  c.wide = (uint8_t)wide;
  return c;
}

}  // namespace

// ---- the halves in registers ----

uint32_t Avx2Assembler::mask_at(unsigned mask) {
  return (uint32_t)(offsetof(Ctx, masks) + mask * sizeof(uint32_t));
}

uint32_t Avx2Assembler::vector_at(unsigned reg, unsigned half) {
  return (uint32_t)(offsetof(Ctx, vectors) + reg * 64 + half * 32);
}

void Avx2Assembler::write(unsigned k, Cached& c) {
  if (c.half < 0 || !c.dirty) return;
  vex(kStore, c.small, k, 0, at(kRdi, vector_at((unsigned)c.half / 2, (unsigned)c.half % 2)));
  c.dirty = false;
}

void Avx2Assembler::write_all() {
  for (unsigned k = 0; k < kCached; ++k) write(k, cached_[k]);
  ++version_;
}

void Avx2Assembler::place(Label l) {
  write_all();
  Assembler::place(l);
  for (Cached& c : cached_) c = Cached();
  ones_ = 0;
}

void Avx2Assembler::jump(Label to) {
  write_all();
  Assembler::jump(to);
}

// Moves of vectors leave the flags alone.
void Avx2Assembler::jump_if(unsigned condition, Label to) {
  bool dirty = false;
  for (const Cached& c : cached_) dirty |= c.half >= 0 && c.dirty;
  if (!dirty) return Assembler::jump_if(condition, to);
  if (to >= rare_.size() || !rare_[to]) {
    write_all();
    return Assembler::jump_if(condition, to);
  }
  const size_t last = detours_.size();
  if (last == 0 || detours_[last - 1].to != to || detours_[last - 1].version != version_) {
    Detour d;
    d.label = label();
    d.to = to;
    d.version = version_;
    memcpy(d.cached, cached_, sizeof cached_);
    detours_.push(d);
  }
  Assembler::jump_if(condition, detours_[detours_.size() - 1].label);
}

void Avx2Assembler::dead(unsigned reg) {
  ++version_;
  for (Cached& c : cached_)
    if (c.half >= 0 && (unsigned)c.half / 2 == reg) c = Cached();
}

void Avx2Assembler::all_dead() {
  ++version_;
  for (Cached& c : cached_) c = Cached();
}

void Avx2Assembler::rare(Label l) {
  while (rare_.size() <= l) rare_.push(0);
  rare_[l] = 1;
}

void Avx2Assembler::begin_run() {
  failed = false;
  detours_.clear();  // of a run that has no translation
  all_dead();
}

void Avx2Assembler::end_run() {
  for (Detour& d : detours_) {
    Assembler::place(d.label);
    for (unsigned k = 0; k < kCached; ++k) write(k, d.cached[k]);
    Assembler::jump(d.to);
  }
  detours_.clear();
  all_dead();
}

// A free register, or the one that was used longest ago.
unsigned Avx2Assembler::oldest() {
  unsigned best = 0;
  for (unsigned k = 0; k < kCached; ++k) {
    if (cached_[k].half < 0) return k;
    if (cached_[k].used < cached_[best].used) best = k;
  }
  write(best, cached_[best]);
  cached_[best] = Cached();
  ++version_;
  return best;
}

// The ymm register with a half of a zmm register; of that its first 16 bytes where `small`.
unsigned Avx2Assembler::use(unsigned reg, unsigned half, bool small) {
  const int wanted = (int)(reg * 2 + half);
  for (unsigned k = 0; k < kCached; ++k) {
    Cached& c = cached_[k];
    if (c.half != wanted) continue;
    if (!small && c.small) {
      write(k, c);
      c = Cached();
      break;
    }
    c.used = ++clock_;
    return k;
  }
  const unsigned k = oldest();
  ++version_;
  cached_[k].half = wanted;
  cached_[k].small = small;
  cached_[k].used = ++clock_;
  vex(kLoad, small, k, 0, at(kRdi, vector_at(reg, half)));
  return k;
}

// A ymm register for a result. What was used by this request is not overwritten, unless it is the
// old value of the same half: an instruction that writes the result must be the last one.
unsigned Avx2Assembler::define(unsigned reg, unsigned half) {
  const int wanted = (int)(reg * 2 + half);
  for (unsigned k = 0; k < kCached; ++k)
    if (cached_[k].half == wanted) return k;
  return oldest();
}

void Avx2Assembler::keep(unsigned k, unsigned reg, unsigned half, bool small) {
  ++version_;
  cached_[k].half = (int)(reg * 2 + half);
  cached_[k].small = small;
  cached_[k].dirty = true;
  cached_[k].used = ++clock_;
}

Mem Avx2Assembler::half_of(const Rm& rm, unsigned half) const {
  Mem m = rm.m;
  m.displacement += (int32_t)(32 * half);
  return m;
}

// The register with a half of the last operand: `temp` if it is memory.
unsigned Avx2Assembler::source(const Request& r, unsigned half, unsigned temp) {
  if (!r.rm.memory) return use(r.rm.reg, half, r.small);
  if (r.rm.broadcast)
    vex(r.c.wide ? kBroadcast64 : kBroadcast32, r.small, temp, 0, r.rm.m);
  else
    vex(kLoad, r.small, temp, 0, half_of(r.rm, half));
  return temp;
}

// ---- VEX ----

void Avx2Assembler::vex_head(Code c, bool small, unsigned reg, unsigned second, bool b) {
  byte(0xc4);
  byte((uint32_t) !(reg >> 3 & 1) << 7 | 1u << 6 | (uint32_t)!b << 5 | c.map);
  byte((uint32_t)c.wide << 7 | (~second & 15) << 3 | (uint32_t)!small << 2 | c.prefix);
  byte(c.opcode);
}

void Avx2Assembler::vex(Code c, bool small, unsigned reg, unsigned second, unsigned rm,
                        int immediate) {
  vex_head(c, small, reg, second, rm >> 3 & 1);
  byte(0xc0 | (reg & 7) << 3 | (rm & 7));
  if (immediate >= 0) byte((uint32_t)immediate);
}

void Avx2Assembler::vex(Code c, bool small, unsigned reg, unsigned second, Mem m, int immediate) {
  vex_head(c, small, reg, second, m.literal < 0 && m.base >= 8);
  operand(reg, m, immediate >= 0 ? 1 : 0);
  if (immediate >= 0) byte((uint32_t)immediate);
}

// ---- requests ----

void Avx2Assembler::vector(Code c, unsigned reg, unsigned second, unsigned rm, unsigned length,
                           unsigned mask, bool zero, int immediate) {
  request(Request{c, reg, second, Rm{false, rm, {}, false}, length == 0, mask, zero, immediate});
}

void Avx2Assembler::vector(Code c, unsigned reg, unsigned second, Mem m, unsigned length,
                           unsigned mask, bool zero, int immediate, bool broadcast) {
  request(Request{c, reg, second, Rm{true, 0, m, broadcast}, length == 0, mask, zero, immediate});
}

void Avx2Assembler::request(const Request& r) {
  const Code c = r.c;
  switch (id(c)) {
    case id({k0F, k66, 0, 0x6f}):
    case id({k0F, k66, 1, 0x6f}):
    case id({k0F, kF3, 0, 0x6f}):
    case id({k0F, kF3, 1, 0x6f}):
      return move(r);
    case id({k0F, kF3, 0, 0x7f}):
    case id({k0F, kF3, 1, 0x7f}):
      return store(r);
    case id({k0F38, k66, 0, 0x58}):
    case id({k0F38, k66, 1, 0x59}):
      return broadcast(r);
    case id({k0F38, k66, 0, 0x7c}):
    case id({k0F38, k66, 1, 0x7c}):
      return spread(r);
    case id({k0F, k66, 0, 0x6e}):  // numbers of xmm registers from memory
    case id({k0F, k66, 1, 0x6e}):
    case id({k0F3A, k66, 0, 0x22}):
    case id({k0F3A, k66, 1, 0x22}): {
      const unsigned second = c.opcode == 0x22 ? use(r.second, 0, true) : 0;
      const unsigned d = define(r.reg, 0);
      vex(c, true, d, second, r.rm.m, r.immediate);
      return keep(d, r.reg, 0, true);
    }
    case id({k0F, k66, 0, 0x7e}):  // and to scalar registers
    case id({k0F, k66, 1, 0x7e}):
    case id({k0F3A, k66, 0, 0x16}):
    case id({k0F3A, k66, 1, 0x16}):
      return vex(c, true, use(r.reg, 0, true), 0, r.rm.reg, r.immediate);
    case id({k0F3A, k66, 1, 0x3b}): {  // the upper half
      const unsigned from = use(r.reg, 1, false), d = define(r.rm.reg, 0);
      vex(kCopy, false, d, 0, from);
      return keep(d, r.rm.reg, 0, false);
    }
    case id({k0F3A, k66, 1, 0x3a}):
      return insert_half(r);
    case id({k0F38, k66, 0, 0x25}):
    case id({k0F38, k66, 0, 0x35}):
      return extend(r);
    case id({k0F38, kF3, 0, 0x35}):
      return narrow(r);
    case id({k0F38, k66, 1, 0x40}):
      return multiply64(r);
    case id({k0F38, k66, 1, 0x39}):
    case id({k0F38, k66, 1, 0x3b}):
    case id({k0F38, k66, 1, 0x3d}):
    case id({k0F38, k66, 1, 0x3f}):
      return choose64(r, c.opcode == 0x39 || c.opcode == 0x3d, c.opcode >= 0x3d);
    case id({k0F, k66, 0, 0x72}):
    case id({k0F, k66, 0, 0x73}):
    case id({k0F, k66, 1, 0x72}):
    case id({k0F, k66, 1, 0x73}):
      return shift_immediate(r);
    case id({k0F38, k66, 1, 0x46}):
      for (unsigned h = 0; h < r.halves(); ++h) shift_sign64(r, h, -1);
      return;
    case id({k0F38, k66, 0, 0xb8}):
    case id({k0F38, k66, 1, 0xb8}):
      return fuse(r);
    case id({k0F3A, k66, 0, 0x25}):
      return logic3(r);
    case id({k0F38, k66, 0, 0x64}):
    case id({k0F38, k66, 1, 0x64}):
      return blend(r);
    case id({k0F, kPlain, 0, 0xc2}):
    case id({k0F, k66, 1, 0xc2}):
    case id({k0F3A, k66, 0, 0x1e}):
    case id({k0F3A, k66, 1, 0x1e}):
    case id({k0F3A, k66, 0, 0x1f}):
    case id({k0F3A, k66, 1, 0x1f}):
    case id({k0F38, k66, 0, 0x27}):
    case id({k0F38, k66, 1, 0x27}):
    case id({k0F38, kF3, 0, 0x39}):
      return compare(r);
    case id({k0F38, kF3, 0, 0x38}):
      for (unsigned h = 0; h < 2; ++h) {
        const unsigned d = define(r.reg, h);
        expand_mask(r.rm.reg, false, h, false, d);
        keep(d, r.reg, h, false);
      }
      return;
    case id({k0F, k66, 1, 0xd4}):  // one instruction of AVX2 for each half
    case id({k0F, k66, 0, 0xfe}):
    case id({k0F, k66, 1, 0xfb}):
    case id({k0F, k66, 0, 0xfa}):
    case id({k0F, k66, 0, 0xdb}):
    case id({k0F, k66, 1, 0xdb}):
    case id({k0F, k66, 0, 0xeb}):
    case id({k0F, k66, 1, 0xeb}):
    case id({k0F, k66, 0, 0xef}):
    case id({k0F, k66, 1, 0xef}):
    case id({k0F, k66, 1, 0xf4}):
    case id({k0F38, k66, 1, 0x28}):
    case id({k0F38, k66, 0, 0x40}):
    case id({k0F38, k66, 0, 0x39}):
    case id({k0F38, k66, 0, 0x3b}):
    case id({k0F38, k66, 0, 0x3d}):
    case id({k0F38, k66, 0, 0x3f}):
    case id({k0F38, k66, 0, 0x45}):
    case id({k0F38, k66, 1, 0x45}):
    case id({k0F38, k66, 0, 0x46}):
    case id({k0F38, k66, 0, 0x47}):
    case id({k0F38, k66, 1, 0x47}):
    case id({k0F, k66, 0, 0x70}):
    case id({k0F, kPlain, 0, 0x58}):
    case id({k0F, k66, 1, 0x58}):
    case id({k0F, kPlain, 0, 0x5c}):
    case id({k0F, k66, 1, 0x5c}):
    case id({k0F, kPlain, 0, 0x59}):
    case id({k0F, k66, 1, 0x59}):
    case id({k0F, kPlain, 0, 0x5e}):
    case id({k0F, k66, 1, 0x5e}):
    case id({k0F, kPlain, 0, 0x51}):
    case id({k0F, k66, 1, 0x51}):
    case id({k0F, kPlain, 0, 0x5b}):
      return plain(r);
    default:
      failed = true;
  }
}

// Square roots, conversions and shuffles have one source.
void Avx2Assembler::plain(const Request& r) {
  const bool one =
      r.c.map == k0F && (r.c.opcode == 0x51 || r.c.opcode == 0x5b || r.c.opcode == 0x70);
  for (unsigned h = 0; h < r.halves(); ++h) {
    const unsigned x = one ? 0 : use(r.second, h, r.small);
    // A number of the table of constants is there for each lane.
    if (r.rm.memory && (!r.rm.broadcast || r.rm.m.base == kRcx)) {
      const unsigned d = define(r.reg, h);
      vex(r.c, r.small, d, x, r.rm.broadcast ? r.rm.m : half_of(r.rm, h), r.immediate);
      keep(d, r.reg, h, r.small);
      continue;
    }
    const unsigned y = source(r, h, kTemp), d = define(r.reg, h);
    vex(r.c, r.small, d, x, y, r.immediate);
    keep(d, r.reg, h, r.small);
  }
}

// The register field says which shift it is, the second operand is the result.
void Avx2Assembler::shift_immediate(const Request& r) {
  for (unsigned h = 0; h < r.halves(); ++h) {
    if (r.c.wide && r.c.opcode == 0x72) {
      shift_sign64(r, h, r.immediate);
      continue;
    }
    const unsigned x = source(r, h, kTemp), d = define(r.second, h);
    vex(r.c, r.small, r.reg, d, x, r.immediate);
    keep(d, r.second, h, r.small);
  }
}

// Right with sign, by an immediate or by the last operand: what is negative is inverted before and
// after.
void Avx2Assembler::shift_sign64(const Request& r, unsigned half, int immediate) {
  const bool by = immediate >= 0;
  const unsigned to = by ? r.second : r.reg;
  const unsigned x = by ? source(r, half, kTemp) : use(r.second, half, r.small);
  const unsigned y = by ? 0 : source(r, half, kTemp + 3);
  vex(kXor, r.small, kTemp + 1, kTemp + 1, kTemp + 1);
  vex(kGreater64, r.small, kTemp + 1, kTemp + 1, x);
  vex(kXor, r.small, kTemp + 2, kTemp + 1, x);
  if (by)
    vex(kShiftWords64, r.small, 2, kTemp + 2, kTemp + 2, immediate);
  else
    vex(kShiftRight64, r.small, kTemp + 2, kTemp + 2, y);
  const unsigned d = define(to, half);
  vex(kXor, r.small, d, kTemp + 1, kTemp + 2);
  keep(d, to, half, r.small);
}

void Avx2Assembler::move(const Request& r) {
  for (unsigned h = 0; h < r.halves(); ++h) {
    if (r.mask == 0) {
      const unsigned x = r.rm.memory ? 0 : use(r.rm.reg, h, r.small);
      const unsigned d = define(r.reg, h);
      if (r.rm.memory)
        vex(kLoad, r.small, d, 0, half_of(r.rm, h));
      else
        vex(kCopy, r.small, d, 0, x);
      keep(d, r.reg, h, r.small);
      continue;
    }
    const unsigned m = lanes_of(r.mask, r.c.wide, h, r.small, kTemp);
    if (r.zero) {
      const unsigned d = define(r.reg, h);
      vex(with_width(kMaskedLoad, r.c.wide), r.small, d, m, half_of(r.rm, h));
      keep(d, r.reg, h, r.small);
      continue;
    }
    const unsigned old = use(r.reg, h, r.small), x = source(r, h, kTemp + 1);
    const unsigned d = define(r.reg, h);
    vex(kBlend, r.small, d, old, x, (int)(m << 4));
    keep(d, r.reg, h, r.small);
  }
}

void Avx2Assembler::store(const Request& r) {
  for (unsigned h = 0; h < r.halves(); ++h) {
    const unsigned x = use(r.reg, h, r.small);
    const Mem m = half_of(r.rm, h);
    if (r.mask == 0) {
      vex(kStore, r.small, x, 0, m);
      continue;
    }
    const unsigned lanes = lanes_of(r.mask, r.c.wide, h, r.small, kTemp);
    if (r.rm.m.base == kRdx) {  // the frame, which no other thread writes
      vex(kLoad, r.small, kTemp + 1, 0, m);
      vex(kBlend, r.small, kTemp + 1, kTemp + 1, x, (int)(lanes << 4));
      vex(kStore, r.small, kTemp + 1, 0, m);
    } else {
      vex(with_width(kMaskedStore, r.c.wide), r.small, x, lanes, m);
    }
  }
}

void Avx2Assembler::broadcast(const Request& r) {
  const Code c = r.c.wide ? kBroadcast64 : kBroadcast32;
  const unsigned x = r.rm.memory ? 0 : use(r.rm.reg, 0, true);
  unsigned first = define(r.reg, 0);
  if (r.rm.memory)
    vex(c, r.small, first, 0, r.rm.m);
  else
    vex(c, r.small, first, 0, x);
  keep(first, r.reg, 0, r.small);
  if (r.small) return;
  const unsigned d = define(r.reg, 1);
  vex(kCopy, false, d, 0, first);
  keep(d, r.reg, 1, false);
}

// A scalar register in all lanes.
void Avx2Assembler::spread(const Request& r) {
  vex(Code{k0F, k66, r.c.wide, 0x6e}, true, kTemp, 0, r.rm.reg);
  for (unsigned h = 0; h < r.halves(); ++h) {
    const unsigned d = define(r.reg, h);
    vex(r.c.wide ? kBroadcast64 : kBroadcast32, r.small, d, 0, kTemp);
    keep(d, r.reg, h, r.small);
  }
}

// 32 to 64 bits: both halves of the result come from the first half of the source, which may be
// the same register.
void Avx2Assembler::extend(const Request& r) {
  const unsigned x = use(r.rm.reg, 0, r.small);
  if (!r.small) vex(kUpperLane, false, x, 0, kTemp, 1);
  unsigned d = define(r.reg, 0);
  vex(r.c, r.small, d, 0, x);
  keep(d, r.reg, 0, r.small);
  if (r.small) return;
  d = define(r.reg, 1);
  vex(r.c, false, d, 0, kTemp);
  keep(d, r.reg, 1, false);
}

// 64 to 32 bits: from the register field to the last operand.
void Avx2Assembler::narrow(const Request& r) {
  const unsigned x = use(r.reg, 0, false), y = use(r.reg, 1, false);
  vex(kShuffleReal, false, kTemp, x, y, 0x88);
  const unsigned d = define(r.rm.reg, 0);
  vex(kPermute64, false, d, 0, kTemp, 0xd8);
  keep(d, r.rm.reg, 0, false);
}

void Avx2Assembler::insert_half(const Request& r) {
  vex(kCopy, false, kTemp, 0, use(r.rm.reg, 0, false));
  if (r.reg != r.second) {
    const unsigned x = use(r.second, 0, false), d = define(r.reg, 0);
    vex(kCopy, false, d, 0, x);
    keep(d, r.reg, 0, false);
  }
  const unsigned d = define(r.reg, 1);
  vex(kCopy, false, d, 0, kTemp);
  keep(d, r.reg, 1, false);
}

void Avx2Assembler::blend(const Request& r) {
  for (unsigned h = 0; h < r.halves(); ++h) {
    expand_mask(r.mask, r.c.wide, h, r.small, kTemp);
    const unsigned x = use(r.second, h, r.small), y = source(r, h, kTemp + 1);
    const unsigned d = define(r.reg, h);
    vex(kBlend, r.small, d, x, y, kTemp << 4);
    keep(d, r.reg, h, r.small);
  }
}

// low * low + ((low * high + high * low) << 32)
void Avx2Assembler::multiply64(const Request& r) {
  constexpr unsigned t = kTemp;
  for (unsigned h = 0; h < r.halves(); ++h) {
    const unsigned x = use(r.second, h, r.small), y = source(r, h, t);
    vex(kShuffle, r.small, t + 1, 0, y, 0xb1);
    vex(kMultiply32, r.small, t + 1, t + 1, x);
    vex(kShiftWords64, r.small, 2, t + 2, t + 1, 32);
    vex(kAdd32, r.small, t + 1, t + 1, t + 2);
    vex(kShiftWords64, r.small, 6, t + 1, t + 1, 32);
    vex(kMultiplyLow, r.small, t + 2, x, y);
    const unsigned d = define(r.reg, h);
    vex(kAdd64, r.small, d, t + 1, t + 2);
    keep(d, r.reg, h, r.small);
  }
}

// Least or most of two, 64 bits.
void Avx2Assembler::choose64(const Request& r, bool sign, bool most) {
  constexpr unsigned t = kTemp;
  for (unsigned h = 0; h < r.halves(); ++h) {
    const unsigned x = use(r.second, h, r.small), y = source(r, h, t);
    unsigned a = x, b = y;
    if (!sign) {
      vex(kXor, r.small, a = t + 1, x, sign64());
      vex(kXor, r.small, b = t + 2, y, sign64());
    }
    vex(kGreater64, r.small, t + 3, a, b);
    const unsigned d = define(r.reg, h);
    vex(kBlend, r.small, d, most ? y : x, most ? x : y, (t + 3) << 4);
    keep(d, r.reg, h, r.small);
  }
}

// result += second * last
void Avx2Assembler::fuse(const Request& r) {
  for (unsigned h = 0; h < r.halves(); ++h) {
    const unsigned x = use(r.second, h, r.small), y = source(r, h, kTemp);
    const unsigned d = use(r.reg, h, r.small);
    vex(r.c, r.small, d, x, y);
    keep(d, r.reg, h, r.small);
  }
}

// Two functions of the last two operands, one for each value of the first: f0 ^ (a & (f0 ^ f1)).
void Avx2Assembler::logic3(const Request& r) {
  constexpr unsigned t = kTemp;
  for (unsigned h = 0; h < r.halves(); ++h) {
    const unsigned a = use(r.reg, h, r.small), b = use(r.second, h, r.small);
    const unsigned c = source(r, h, t);
    const auto table = (unsigned)r.immediate;
    logic2(table & 15, r.small, t + 1, b, c);
    logic2(table >> 4 & 15, r.small, t + 2, b, c);
    vex(kXor, r.small, t + 2, t + 2, t + 1);
    vex(kAnd, r.small, t + 2, t + 2, a);
    const unsigned d = define(r.reg, h);
    vex(kXor, r.small, d, t + 1, t + 2);
    keep(d, r.reg, h, r.small);
  }
}

// Bit 2 * b + c of the table is the result for b and c.
void Avx2Assembler::logic2(unsigned table, bool small, unsigned to, unsigned b, unsigned c) {
  const bool inverted = table & 1;
  switch (inverted ? table ^ 15 : table) {
    case 0:
      vex(kXor, small, to, to, to);
      break;
    case 2:
      vex(kAndNot, small, to, b, c);
      break;
    case 4:
      vex(kAndNot, small, to, c, b);
      break;
    case 6:
      vex(kXor, small, to, b, c);
      break;
    case 8:
      vex(kAnd, small, to, b, c);
      break;
    case 10:
      vex(kCopy, small, to, 0, c);
      break;
    case 12:
      vex(kCopy, small, to, 0, b);
      break;
    default:
      vex(kOr, small, to, b, c);
  }
  if (inverted) vex(kXor, small, to, to, all_ones());
}

// ---- comparisons: to bits of a mask ----

// A register whose lanes' top bits are the result.
unsigned Avx2Assembler::compare_half(const Request& r, unsigned half, bool* inverted) {
  const bool small = r.small;
  *inverted = false;
  if (r.c.opcode == 0x39) return use(r.rm.reg, half, small);
  return compare_halves(use(r.second, half, small), r, half, inverted);
}

unsigned Avx2Assembler::compare_halves(unsigned x, const Request& r, unsigned half,
                                       bool* inverted) {
  constexpr unsigned t = kTemp;
  const bool wide = r.c.wide, small = r.small;
  if (r.c.opcode == 0xc2) {
    const bool direct = r.rm.memory && (!r.rm.broadcast || r.rm.m.base == kRcx);
    if (direct)
      vex(r.c, small, t, x, r.rm.broadcast ? r.rm.m : half_of(r.rm, half), r.immediate);
    else
      vex(r.c, small, t, x, source(r, half, t + 1), r.immediate);
    return t;
  }
  const unsigned y = source(r, half, t + 1);
  const Code equal = wide ? kEqual64 : kEqual32, greater = wide ? kGreater64 : kGreater32;
  if (r.c.opcode == 0x27) {
    vex(kAnd, small, t, x, y);
    vex(kXor, small, t + 2, t + 2, t + 2);
    vex(equal, small, t, t, t + 2);
    *inverted = true;
    return t;
  }
  // 0 equal, 1 less, 2 less or equal, 4 to 6 the opposites.
  const unsigned which = (unsigned)r.immediate & 3;
  *inverted = (r.immediate & 4) != 0;
  unsigned a = x, b = y;
  if (which == 0) {
    vex(equal, small, t, a, b);
    return t;
  }
  if (r.c.opcode == 0x1e && !wide) {  // a <= b where the least is a; a < b unless the most is a
    vex(which == 2 ? kLeastU32 : kMostU32, small, t, a, b);
    vex(kEqual32, small, t, t, a);
    if (which == 1) *inverted = !*inverted;
    return t;
  }
  if (r.c.opcode == 0x1e) {
    vex(kXor, small, a = t + 2, x, sign64());
    vex(kXor, small, b = t + 3, y, sign64());
  }
  if (which == 1) {
    vex(greater, small, t, b, a);
  } else {
    vex(greater, small, t, a, b);
    *inverted = !*inverted;
  }
  return t;
}

void Avx2Assembler::compare(const Request& r) {
  const bool wide = r.c.wide;
  const unsigned lanes = (wide ? 4u : 8u) / (r.small ? 2u : 1u);
  bool inverted = false;
  for (unsigned h = 0; h < r.halves(); ++h) {
    const unsigned x = compare_half(r, h, &inverted);
    vex(wide ? kSigns64 : kSigns32, r.small, h == 0 ? kR8 : kR9, 0, x);
    if (h == 0) continue;
    shift(4, kR9, lanes, false);
    or_(kR8, kR9, false);
  }
  if (inverted) group1(6, kR8, (int32_t)((1u << lanes * r.halves()) - 1), false);
  if (r.mask != 0) and32m(kR8, kRdi, mask_at(r.mask));
  store_mask(r.reg, kR8);
}

// Bits from `first` on, one for each lane.
Mem Avx2Assembler::lane_bits(bool wide, unsigned half, unsigned first) {
  uint32_t words[16];
  for (unsigned k = 0; k < 16; ++k) words[k] = 1u << (first + (wide ? k / 2 : k));
  Mem m = pool(literal(words));
  m.displacement = (int32_t)(32 * half);
  return m;
}

Mem Avx2Assembler::all_ones() {
  uint64_t words[8];
  for (uint64_t& w : words) w = ~0ull;
  return pool(literal(words));
}

Mem Avx2Assembler::sign64() {
  uint64_t words[8];
  for (uint64_t& w : words) w = 1ull << 63;
  return pool(literal(words));
}

// The lanes of one half as words or double words of 0 or ~0; the mask's bits begin with `first`.
void Avx2Assembler::expand_mask(unsigned mask, bool wide, unsigned half, bool small, unsigned to,
                                unsigned first) {
  if (ones_ >> mask & 1) {
    vex(kEqual32, small, to, to, to);
    return;
  }
  vex(kBroadcast32, small, to, 0, at(kRdi, mask_at(mask)));
  vex(kAnd, small, to, to, lane_bits(wide, half, first));
  vex(kEqual32, small, to, to, lane_bits(wide, half, first));
}

// The same in a register that keeps it for the next request, for the masks of active lanes.
unsigned Avx2Assembler::lanes_of(unsigned mask, bool wide, unsigned half, bool small, unsigned temp,
                                 unsigned first) {
  if (mask > kActive || small) {
    expand_mask(mask, wide, half, small, temp, first);
    return temp;
  }
  const int wanted = kMasks + (int)(mask * 8 + (wide ? 4 : 0) + (first != 0 ? 2 : 0) + half);
  for (unsigned k = 0; k < kCached; ++k)
    if (cached_[k].half == wanted) {
      cached_[k].used = ++clock_;
      return k;
    }
  const unsigned k = oldest();
  expand_mask(mask, wide, half, false, k, first);
  cached_[k] = Cached();
  cached_[k].half = wanted;
  cached_[k].used = ++clock_;
  ++version_;
  return k;
}

// ---- shorter ways ----

bool Avx2Assembler::replace_nans(unsigned reg, bool wide, unsigned length, Mem nan) {
  const bool small = length == 0;
  for (unsigned h = 0; h < (small ? 1u : 2u); ++h) {
    const unsigned x = use(reg, h, small);
    vex(wide ? kUnordered64 : kUnordered32, small, kTemp, x, x, 3);
    const unsigned d = define(reg, h);
    vex(kBlend, small, d, x, nan, (int)(kTemp << 4));
    keep(d, reg, h, small);
  }
  return true;
}

// Zero where a lane is not active: x itself where all are.
unsigned Avx2Assembler::active(const Lanes& l, unsigned part, unsigned half, unsigned x,
                               unsigned to, unsigned mask) {
  if (l.low == 0) return x;
  const unsigned of = part < l.count() / 2 ? l.low : l.high;
  const unsigned m = lanes_of(of, l.wide, half, false, mask, l.wide && (part & 1) ? 8 : 0);
  vex(kAnd, false, to, x, m);
  return to;
}

bool Avx2Assembler::lanes_differ(const Lanes& l, unsigned first, const Mem* steps) {
  constexpr unsigned kAny = kTemp, t = kTemp + 1, kMask = kTemp + 2;
  for (unsigned n = 0; n < l.count(); ++n)
    for (unsigned h = 0; h < 2; ++h) {
      unsigned want = use(first, h, false);
      const unsigned x = use(l.reg[n], h, false);
      const bool begin = n == 0 && h == 0;
      if (steps) {
        Mem m = steps[n];
        m.displacement += (int32_t)(32 * h);
        vex(l.wide ? kAdd64 : kAdd32, false, t, want, m);
        want = t;
      }
      vex(kXor, false, t, want, x);
      const unsigned apart = active(l, n, h, t, t, kMask);
      if (begin)
        vex(kCopy, false, kAny, 0, apart);
      else
        vex(kOr, false, kAny, kAny, apart);
    }
  vex(kTest, false, kAny, 0, kAny);
  return true;
}

void Avx2Assembler::jump_if_signs(unsigned at, bool wide, Label to) {
  vex(wide ? kSigns64 : kSigns32, false, kR8, 0, at);
  test(kR8, kR8, false);
  jump_if(5, to);
}

bool Avx2Assembler::lanes_inside(const Lanes& l, unsigned least, unsigned most, Mem bits,
                                 Label miss) {
  constexpr unsigned kOut = kTemp, kBits = kTemp + 1, t = kTemp + 2, kOne = kTemp + 3,
                     kMask = kTemp + 4;
  const bool aligned = bits.literal >= 0;
  vex(kXor, false, kOut, kOut, kOut);
  if (aligned) vex(kXor, false, kBits, kBits, kBits);
  for (unsigned n = 0; n < l.count(); ++n)
    for (unsigned h = 0; h < 2; ++h) {
      const unsigned x = active(l, n, h, use(l.reg[n], h, false), kOne, kMask);
      vex(kGreater32, false, t, x, use(most, h, false));
      vex(kOr, false, kOut, kOut, t);
      if (least == kNoLeast) {
        vex(kOr, false, kOut, kOut, x);
      } else {
        vex(kGreater32, false, t, use(least, h, false), x);
        vex(kOr, false, kOut, kOut, t);
      }
      if (aligned) vex(kOr, false, kBits, kBits, x);
    }
  jump_if_signs(kOut, false, miss);
  if (!aligned) return true;
  vex(kTest, false, kBits, 0, bits);
  jump_if(5, miss);
  return true;
}

// Beyond `most`, an offset or its distance from there is negative.
bool Avx2Assembler::offsets_inside(const Lanes& l, const uint8_t* to, unsigned begin, unsigned most,
                                   Mem bits, Label miss) {
  constexpr unsigned kOut = kTemp, kBits = kTemp + 1, t = kTemp + 2, kOne = kTemp + 3,
                     kMask = kTemp + 4;
  vex(kXor, false, kOut, kOut, kOut);
  vex(kXor, false, kBits, kBits, kBits);
  for (unsigned n = 0; n < l.count(); ++n)
    for (unsigned h = 0; h < 2; ++h) {
      const unsigned x = use(l.reg[n], h, false), from = use(begin, h, false);
      const unsigned d = define(to[n], h);
      vex(kSub64, false, d, x, from);
      keep(d, to[n], h, false);
      const unsigned offset = active(l, n, h, d, kOne, kMask);
      vex(kSub64, false, t, use(most, h, false), offset);
      vex(kOr, false, kOut, kOut, t);
      vex(kOr, false, kBits, kBits, offset);
    }
  vex(kOr, false, kOut, kOut, kBits);
  jump_if_signs(kOut, true, miss);
  vex(kTest, false, kBits, 0, bits);
  jump_if(5, miss);
  return true;
}

void Avx2Assembler::first_active(const uint8_t* reg) {
  for (unsigned n = 0; n < 8; ++n)
    vex(kStore, false, use(reg[n / 2], n % 2, false), 0,
        at(kRdi, (uint32_t)offsetof(Ctx, scratch) + 32 * n));
  first_bit(kR9, kRdi, offsetof(Ctx, mask));
  load_indexed(kRax, kRdi, kR9, 3, offsetof(Ctx, scratch));
}

void Avx2Assembler::compare_one(Code c, unsigned d, unsigned x, Mem x_number, unsigned y,
                                Mem y_number, int predicate) {
  unsigned first = kTemp + 4;
  if (x == kNone)
    vex(kLoad, true, first, 0, x_number);
  else
    first = use(x, 0, true);
  const Request r{c, 0, 0, Rm{y == kNone, y, y_number, false}, true, 0, false, predicate};
  bool inverted = false;
  const unsigned at = compare_halves(first, r, 0, &inverted);
  vex(kFirst32, true, at, 0, kR8);
  shift(7, kR8, 31, false);
  if (inverted) not_(kR8, false);
  store_mask(d, kR8);
}

bool Avx2Assembler::compare_lanes(Code c, unsigned d, const Lanes& l, const uint8_t* with,
                                  Mem number, int predicate) {
  bool inverted = false, same = true;  // all parts are the same registers
  for (unsigned n = 1; n < l.count(); ++n)
    same &= l.reg[n] == l.reg[0] && (!with || with[n] == with[0]);
  const unsigned lanes = l.wide ? 4 : 8;
  const unsigned parts = same ? 1 : l.count();
  for (unsigned n = 0; n < parts; ++n)
    for (unsigned h = 0; h < (same ? 1u : 2u); ++h) {
      Request r{c,     0, l.reg[n], Rm{!with, with ? with[n] : 0u, number, true},
                false, 0, false,    predicate};
      const unsigned x = compare_half(r, h, &inverted), first = lanes * (n * 2 + h);
      vex(l.wide ? kSigns64 : kSigns32, false, first == 0 ? kR8 : kR9, 0, x);
      if (first == 0) continue;
      shift(4, kR9, first, false);
      or_(kR8, kR9, false);
    }
  if (same) {  // one lane is as good as all
    group1(4, kR8, 1, false);
    negate(kR8);
  }
  if (inverted) not_(kR8, false);
  store_mask(d, kR8);
  return true;
}

// ---- masks ----

void Avx2Assembler::store_mask(unsigned mask, Gpr from) {
  ones_ &= ~(1u << mask);
  for (Cached& c : cached_)
    if (c.half >= kMasks && (unsigned)(c.half - kMasks) / 8 == mask) c = Cached();
  store32(kRdi, mask_at(mask), from);
}

void Avx2Assembler::mask3(unsigned opcode, unsigned d, unsigned a, unsigned b) {
  if (opcode == 0x46 && a == b) {
    store32i(kRdi, mask_at(d), ~0u);
    ones_ |= 1u << d;
    return;
  }
  load_mask(kR8, a);
  if (opcode == 0x41)
    and32m(kR8, kRdi, mask_at(b));
  else if (opcode == 0x45)
    or32m(kR8, kRdi, mask_at(b));
  else if (opcode == 0x47)
    xor32m(kR8, kRdi, mask_at(b));
  else
    failed = true;
  store_mask(d, kR8);
}

void Avx2Assembler::mask_unpack(unsigned d, unsigned high, unsigned low) {
  load_mask(kR8, high);
  shift(4, kR8, 16, false);
  load16(kR9, kRdi, mask_at(low));
  or_(kR8, kR9, false);
  store_mask(d, kR8);
}

void Avx2Assembler::mask_unpack_bytes(unsigned d, unsigned high, unsigned low) {
  load8(kR8, kRdi, mask_at(high));
  shift(4, kR8, 8, false);
  load8(kR9, kRdi, mask_at(low));
  or_(kR8, kR9, false);
  store_mask(d, kR8);
}

void Avx2Assembler::mask_not(unsigned d, unsigned a) {
  load_mask(kR8, a);
  not_(kR8, false);
  store_mask(d, kR8);
}

void Avx2Assembler::mask_move(unsigned d, unsigned a) {
  load_mask(kR8, a);
  store_mask(d, kR8);
}

void Avx2Assembler::mask_shift_right(unsigned d, unsigned a, unsigned count) {
  load_mask(kR8, a);
  shift(5, kR8, count, false);
  store_mask(d, kR8);
}

void Avx2Assembler::mask_to_gpr(Gpr d, unsigned a) { load_mask(d, a); }

void Avx2Assembler::gpr_to_mask(unsigned d, Gpr a) { store_mask(d, a); }

void Avx2Assembler::mask_test(unsigned a, unsigned b) {
  load_mask(kR8, a);
  or32m(kR8, kRdi, mask_at(b));
}

// ---- lanes that lie apart ----

void Avx2Assembler::indexed(Code c, unsigned reg, Gpr base, unsigned index, unsigned scale, int32_t,
                            unsigned, unsigned mask) {
  if (c.opcode >= 0xa0)
    scatter(c, reg, base, index, scale, mask);
  else
    gather(c, reg, base, index, scale, mask);
}

// An instruction of xmm registers with the operand [base + index * 2^scale]; base is not rbp.
void Avx2Assembler::vex_indexed(Code c, unsigned reg, unsigned second, Gpr base, Gpr index,
                                unsigned scale, int immediate) {
  byte(0xc4);
  byte((uint32_t) !(reg >> 3 & 1) << 7 | (uint32_t) !(index >> 3 & 1) << 6 |
       (uint32_t) !(base >> 3 & 1) << 5 | c.map);
  byte((uint32_t)c.wide << 7 | (~second & 15u) << 3 | c.prefix);
  byte(c.opcode);
  byte((reg & 7) << 3 | 4);
  byte(scale << 6 | (index & 7u) << 3 | (base & 7u));
  if (immediate >= 0) byte((uint32_t)immediate);
}

// to = the four numbers at base + index * 2^scale: in its first 16 bytes, or in all where `wide`.
// `index` has 64 bits each, and may be `to`.
void Avx2Assembler::gather_four(bool wide, unsigned to, Gpr base, unsigned index, unsigned scale) {
  constexpr unsigned kUpper = kTemp, kOther = kTemp + 1;
  const Code first = with_width(kToFirst, wide), insert = with_width(kInsert, wide);
  auto two = [&](unsigned from) {
    vex(kOut64, true, from, 0, kR8);
    vex(kExtract64, true, from, 0, kR9, 1);
  };
  two(index);
  vex(kUpperLane, false, index, 0, kUpper, 1);
  vex_indexed(first, to, 0, base, kR8, scale);
  vex_indexed(insert, to, to, base, kR9, scale, 1);
  two(kUpper);
  if (wide) {
    vex_indexed(first, kOther, 0, base, kR8, scale);
    vex_indexed(insert, kOther, kOther, base, kR9, scale, 1);
    vex(kInsertLane, false, to, to, kOther, 1);
  } else {
    vex_indexed(insert, to, to, base, kR8, scale, 2);
    vex_indexed(insert, to, to, base, kR9, scale, 3);
  }
}

// 90: 32-bit indices, 91: 64-bit indices. AMD's gathers take two to three times as long as loads of
// one number each (EPYC of 2021: 1.5 ns a number instead of 0.5). What is not active reads at the
// base, which is a valid address if any lane is active.
void Avx2Assembler::gather(Code c, unsigned reg, Gpr base, unsigned index, unsigned scale,
                           unsigned mask) {
  constexpr unsigned t = kTemp, kIndex = kTemp + 2, kResult = kTemp + 3;  // and the next one
  const bool far = c.opcode == 0x91, wide = c.wide, all = ones_ >> mask & 1;
  const unsigned low = use(index, 0, false), high = !far && wide ? low : use(index, 1, false);
  const Label none = all ? 0 : label();
  if (!all) {
    for (unsigned h = 0; h < 2; ++h) vex(kXor, true, kResult + h, kResult + h, kResult + h);
    load_mask(kR8, mask);
    test(kR8, kR8, false);
    Assembler::jump_if(4, none);
  }
  for (unsigned h = 0; h < 2; ++h) {
    const unsigned to = kResult + h;
    unsigned from = h == 0 ? low : high;
    if (!far && wide) {
      if (h == 1) vex(kUpperLane, false, from, 0, kIndex, 1);
      vex(kSignExtend, false, kIndex, 0, h == 0 ? from : kIndex);
      from = kIndex;
    }
    if (!all) {
      expand_mask(mask, far || wide, h, false, t);
      vex(kAnd, false, kIndex, from, t);
      from = kIndex;
    }
    if (far || wide) {
      gather_four(wide, to, base, from, scale);
      continue;
    }
    vex(kSignExtend, false, to, 0, from);
    vex(kUpperLane, false, from, 0, kIndex, 1);
    gather_four(false, to, base, to, scale);
    vex(kSignExtend, false, kIndex, 0, kIndex);
    gather_four(false, kIndex, base, kIndex, scale);
    vex(kInsertLane, false, to, to, kIndex, 1);
  }
  if (!all) Assembler::place(none);  // the vectors in registers are as before
  if (far && !wide) {
    const unsigned d = define(reg, 0);
    vex(kInsertLane, false, d, kResult, kResult + 1, 1);
    return keep(d, reg, 0, false);
  }
  for (unsigned h = 0; h < 2; ++h) {
    const unsigned d = define(reg, h);
    vex(kCopy, false, d, 0, kResult + h);
    keep(d, reg, h, false);
  }
}

// One lane after the other.
void Avx2Assembler::scatter(Code c, unsigned reg, Gpr base, unsigned index, unsigned scale,
                            unsigned mask) {
  const bool far = c.opcode == 0xa1, all = ones_ >> mask & 1;
  write_all();
  if (!all) load_mask(kR11, mask);
  for (unsigned lane = 0; lane < (far || c.wide ? 8u : 16u); ++lane) {
    const Label next = label();
    if (!all) {
      test_immediate(kR11, 1u << lane);
      Assembler::jump_if(4, next);
    }
    if (far)
      load64(kR8, kRdi, vector_at(index, 0) + lane * 8);
    else
      load_sign(kR8, kRdi, vector_at(index, 0) + lane * 4);
    if (c.wide)
      load64(kR9, kRdi, vector_at(reg, 0) + lane * 8);
    else
      load32(kR9, kRdi, vector_at(reg, 0) + lane * 4);
    store_indexed(base, kR8, scale, kR9, c.wide);
    Assembler::place(next);  // the vectors in registers are as before
  }
}

}  // namespace simgpu::ptx::x86
