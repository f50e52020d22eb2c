// Values of a run: their forms, and the registers that hold them.
#include "ptx/native/native_code.h"

namespace simgpu::ptx {

using namespace x86;

namespace {
constexpr Code kMoveVector = {k0F, k66, 1, 0x6f};    // vmovdqa64
constexpr Code kMove32 = {k0F, k66, 0, 0x6f};        // vmovdqa32, for merging
constexpr Code kLoadVector = {k0F, kF3, 0, 0x6f};    // vmovdqu32
constexpr Code kStoreVector = {k0F, kF3, 0, 0x7f};   // vmovdqu32, reversed
constexpr Code kLoadVector64 = {k0F, kF3, 1, 0x6f};  // vmovdqu64
constexpr Code kStoreVector64 = {k0F, kF3, 1, 0x7f};
constexpr Code kBroadcast32 = {k0F38, k66, 0, 0x58};
constexpr Code kBroadcast64 = {k0F38, k66, 1, 0x59};
constexpr Code kAdd32 = {k0F, k66, 0, 0xfe};
constexpr Code kAdd64 = {k0F, k66, 1, 0xd4};
constexpr Code kShuffle = {k0F, k66, 0, 0x70};        // vpshufd
constexpr Code kMaskToWords = {k0F38, kF3, 0, 0x38};  // vpmovm2d
constexpr Code kWordsToMask = {k0F38, kF3, 0, 0x39};  // vpmovd2m
constexpr Code kUpperHalf = {k0F3A, k66, 1, 0x3b};    // vextracti64x4
constexpr Code kSignExtend = {k0F38, k66, 0, 0x25};   // vpmovsxdq
constexpr Code kZeroExtend = {k0F38, k66, 0, 0x35};   // vpmovzxdq
constexpr Code kShift64 = {k0F, k66, 1, 0x73};        // vpsllq by an immediate, /6
constexpr Code kFirst32 = {k0F, k66, 0, 0x6e};        // vmovd
constexpr Code kFirst64 = {k0F, k66, 1, 0x6e};        // vmovq
constexpr Code kInsert32 = {k0F3A, k66, 0, 0x22};
constexpr Code kInsert64 = {k0F3A, k66, 1, 0x22};
constexpr Code kUnordered32 = {k0F, kPlain, 0, 0xc2};
constexpr Code kUnordered64 = {k0F, k66, 1, 0xc2};
}  // namespace

int Translator::make(Form form, bool wide) {
  Value v;
  v.form = form;
  v.wide = wide;
  v.used = stamp_;
  values_.push(v);
  return (int)values_.size() - 1;
}

void Translator::free_registers(Value& v) {
  if (v.form == Form::kCompact) give(v.reg[0]);
  if (v.form == Form::kVector)
    for (unsigned k = 0; k < parts_of(v); ++k) give(v.reg[k]);
  if (v.form == Form::kPredicate) masks_ &= ~(1u << v.reg[0]);
}

void Translator::drop(int v) {
  Value& x = values_[v];
  if (--x.references != 0) return;
  free_registers(x);
  if (x.form == Form::kLazy) {
    const int base = x.base, index = x.index;
    if (base >= 0) drop(base);
    drop(index);
  }
}

void Translator::forget(uint32_t unit) {
  const int v = map_[unit] - 1;
  if (v < 0) return;
  map_[unit] = 0;
  values_[v].home = kNone;
  drop(v);
}

void Translator::set(uint32_t o, int v) {
  hold(v);
  forget(o / 128);
  map_[o / 128] = v + 1;
  values_[v].home = o;
  values_[v].dirty = true;
}

Fact Translator::fact_of(int v) const {
  const Value& x = values_[v];
  Fact f;
  f.compact = x.form == Form::kCompact || x.form == Form::kConstant;
  f.constant = x.form == Form::kConstant;
  f.alike = x.alike;
  f.stride = x.stride;
  f.root = x.root;
  f.value = x.value;
  return f;
}

int Translator::operand(uint32_t o, bool wide) {
  if (o >> 31) {
    const int v = make(Form::kConstant, wide);
    const Fact f = facts_.constant(o, wide);
    values_[v].alike = true;
    values_[v].value = f.value;
    values_[v].operand = o & 0x7fffffffu;
    return v;
  }
  const uint32_t unit = o / 128;
  if (map_[unit] != 0) {
    const int v = map_[unit] - 1;
    values_[v].used = stamp_;
    return v;
  }
  const int v = make(Form::kFrame, wide);
  hold(v);
  map_[unit] = v + 1;
  values_[v].home = o;
  if (lanes_ == LaneSet::kSome) return v;
  // No instruction of this run has written the register. What is known at the beginning of the
  // block holds for it unless an instruction of the block before the run has written it.
  bool written = false;
  for (uint32_t i = f_.flow[block_].begin; i < begin_ && !written; ++i)
    each_register(f_, i, [&](uint32_t r, bool w) { written |= w && r == o; });
  if (written) return v;
  const Fact f = facts_.at_begin(block_, o);
  if (!f.compact) return v;
  const unsigned r = take();
  Value& x = values_[v];
  x.form = Form::kCompact;
  x.reg[0] = (uint8_t)r;
  x.stride = f.stride;
  x.alike = f.alike;
  x.root = f.root;
  if (wide)
    a_.vector(kFirst64, r, 0, x86::at(kRdx, o), 0);
  else
    a_.vector(kFirst32, r, 0, x86::at(kRdx, o), 0);
  if (line()) return v;
  if (wide)
    a_.vector(kInsert64, r, r, x86::at(kRdx, o + 128), 0, 0, false, 1);
  else
    a_.vector(kInsert32, r, r, x86::at(kRdx, o + 64), 0, 0, false, 1);
  return v;
}

// ---- registers ----

unsigned Translator::take() {
  for (;;) {
    const uint32_t free = ~busy_ & ((1u << kScratch) - 1);
    if (free != 0) {
      const auto r = (unsigned)__builtin_ctz(free);
      busy_ |= 1u << r;
      return r;
    }
    if (!spill()) {
      failed_ = true;
      return 0;
    }
  }
}

// Writes the value that was used longest ago to its place in the frame.
bool Translator::spill() {
  Value* oldest = nullptr;
  for (uint32_t u = 0; u < units_; ++u) {
    if (map_[u] == 0) continue;
    Value& v = values_[map_[u] - 1];
    if ((v.form != Form::kVector && v.form != Form::kCompact) || v.references != 1 ||
        v.used == stamp_)
      continue;
    if (!oldest || v.used < oldest->used) oldest = &v;
  }
  if (!oldest) return false;
  if (oldest->dirty) store_value(*oldest, nullptr, nullptr, oldest->home);
  free_registers(*oldest);
  oldest->dirty = oldest->nan = false;
  oldest->form = Form::kFrame;
  oldest->stride = 0;
  oldest->alike = false;
  // The lanes that are not active have an older value there.
  if (masked()) oldest->like = Value::kNothing;
  return true;
}

unsigned Translator::take_mask() {
  for (;;) {
    for (unsigned k = kFirstPredicate; k < kFirstPredicate + kPredicates; ++k)
      if (!(masks_ >> k & 1)) {
        masks_ |= 1u << k;
        return k;
      }
    Value* oldest = nullptr;
    for (uint32_t u = 0; u < units_; ++u) {
      if (map_[u] == 0) continue;
      Value& v = values_[map_[u] - 1];
      if (v.form != Form::kPredicate || v.used == stamp_) continue;
      if (!oldest || v.used < oldest->used) oldest = &v;
    }
    if (!oldest) {
      failed_ = true;
      return kFirstPredicate;
    }
    if (oldest->dirty) store_value(*oldest, nullptr, nullptr, oldest->home);
    free_registers(*oldest);
    oldest->dirty = false;
    oldest->form = Form::kFrame;
  }
}

// ---- forms ----

Mem Translator::all(uint64_t value, bool wide) {
  uint64_t words[8];
  if (!wide) value = (uint32_t)value | value << 32;
  for (uint64_t& w : words) w = value;
  return pool(a_.literal(words));
}

// stride * (first, first + 1, ...)
Mem Translator::counting(int32_t stride, bool wide, unsigned first) {
  uint64_t words[8];
  auto* half = reinterpret_cast<uint32_t*>(words);
  for (unsigned k = 0; k < 16; ++k) {
    const int64_t v = (int64_t)stride * (first + k);
    if (!wide) half[k] = (uint32_t)v;
    if (wide && k < 8) words[k] = (uint64_t)v;
  }
  return pool(a_.literal(words));
}

void Translator::broadcast(unsigned to, const Value& v, unsigned half) {
  const Code c = v.wide ? kBroadcast64 : kBroadcast32;
  if (v.form == Form::kConstant) {
    a_.vector(c, to, 0, x86::at(kRcx, v.operand), 2);
    return;
  }
  if (half == 0 || line() || (v.alike && v.stride == 0)) {
    a_.vector(c, to, 0, v.reg[0], 2);
    return;
  }
  a_.vector(kShuffle, to, 0, v.reg[0], 0, 0, false, v.wide ? 0xee : 0x55);
  a_.vector(c, to, 0, to, 2);
}

void Translator::expand_part(const Value& v, const Value* base, const Value* index, unsigned part,
                             unsigned to) {
  const unsigned half = v.wide ? part / 2 : part;
  switch (v.form) {
    case Form::kConstant:
    case Form::kCompact: {
      broadcast(to, v, half);
      if (v.stride == 0) return;
      const unsigned per = v.wide ? 8 : 16;
      const unsigned first = line() ? part * per : v.wide ? (part & 1) * 8 : 0;
      if (first == 0 && v.stride == 0) return;
      a_.vector(v.wide ? kAdd64 : kAdd32, to, to, counting(v.stride, v.wide, first), 2);
      return;
    }
    case Form::kLazy: {
      const Code extend = v.sign ? kSignExtend : kZeroExtend;
      if (part & 1) {
        a_.vector(kUpperHalf, index->reg[half], 0, to, 2, 0, false, 1);
        a_.vector(extend, to, 0, to, 2);
      } else {
        a_.vector(extend, to, 0, index->reg[half], 2);
      }
      if (v.scale != 0) a_.vector(kShift64, 6, to, to, 2, 0, false, v.scale);
      if (!base) return;
      broadcast(to + 1, *base, 0);
      a_.vector(kAdd64, to, to, to + 1, 2);
      return;
    }
    case Form::kPredicate:
      if (part == 0) {
        a_.vector(kMaskToWords, to, 0, v.reg[0], 2);
      } else {
        a_.mask_shift_right(kTestMask, v.reg[0], 16);
        a_.vector(kMaskToWords, to, 0, kTestMask, 2);
      }
      return;
    default:
      return;
  }
}

void Translator::store_value(const Value& v, const Value* base, const Value* index, uint32_t home) {
  const bool one = (v.form == Form::kCompact || v.form == Form::kConstant) && v.stride == 0 &&
                   (line() || v.alike);
  for (unsigned k = 0; k < parts_of(v); ++k) {
    unsigned r = v.form == Form::kVector ? v.reg[k] : kScratch;
    if (v.form != Form::kVector && !(one && k != 0)) expand_part(v, base, index, k, kScratch);
    if (v.nan && !(one && k != 0)) {
      if (r != kScratch) a_.vector(kMoveVector, kScratch, 0, r, 2);
      r = kScratch;
      replace_nans(r, v.wide, 2);
    }
    const unsigned mask = lane_mask(k, v.wide);
    a_.vector(v.wide ? kStoreVector64 : kStoreVector, r, 0, x86::at(kRdx, home + 64 * k), 2, mask);
  }
}

unsigned Translator::lane_mask(unsigned part, bool wide) {
  if (!masked()) return 0;
  if (!wide) return part == 0 ? kLow : kHigh;
  const unsigned half = part < 2 ? kLow : kHigh;
  if ((part & 1) == 0) return half;
  a_.mask_shift_right(kSpareMask, half, 8);
  return kSpareMask;
}

void Translator::canonical(int n) {
  Value& v = values_[n];
  if (!v.nan) return;
  v.nan = false;
  const bool small = v.form == Form::kCompact;
  for (unsigned k = 0; k < (small ? 1 : parts_of(v)); ++k) {
    replace_nans(v.reg[k], v.wide, small ? 0 : 2);
  }
}

void Translator::replace_nans(unsigned r, bool wide, unsigned length) {
  const Mem canonical = all(wide ? 0xfff8000000000000ull : 0x7fffffffu, wide);
  if (a_.replace_nans(r, wide, length, canonical)) return;
  a_.vector(wide ? kUnordered64 : kUnordered32, kTestMask, r, r, length, 0, false, 3);
  a_.vector(wide ? kMoveVector : kMove32, r, 0, canonical, length, kTestMask);
}

Parts Translator::parts(int n, bool exact) {
  if (exact) canonical(n);
  Parts p;
  const unsigned count = parts_of(values_[n]);
  auto own = [&](unsigned k) {
    const unsigned r = take();
    p.reg[k] = (uint8_t)r;
    p.owned |= 1u << r;
    return r;
  };
  switch (values_[n].form) {
    case Form::kFrame:
      for (unsigned k = 0; k < count; ++k) {
        const unsigned r = take();
        p.reg[k] = values_[n].reg[k] = (uint8_t)r;
        a_.vector(values_[n].wide ? kLoadVector64 : kLoadVector, r, 0,
                  x86::at(kRdx, values_[n].home + 64 * k), 2);
      }
      values_[n].form = Form::kVector;
      return p;
    case Form::kLazy:
      become_vector(n);
      [[fallthrough]];
    case Form::kVector:
      memcpy(p.reg, values_[n].reg, sizeof p.reg);
      return p;
    case Form::kConstant:
    case Form::kCompact: {
      const Value v = values_[n];
      if (v.stride == 0) {
        const bool one = v.form == Form::kConstant || line() || v.alike;
        broadcast(own(0), v, 0);
        if (!one) broadcast(own(count / 2), v, 1);
        for (unsigned k = 1; k < count; ++k)
          if (one || k != count / 2) p.reg[k] = p.reg[one || k < count / 2 ? 0 : count / 2];
        return p;
      }
      for (unsigned k = 0; k < count; ++k) expand_part(v, nullptr, nullptr, k, own(k));
      return p;
    }
    case Form::kPredicate: {
      const Value v = values_[n];
      for (unsigned k = 0; k < 2; ++k) expand_part(v, nullptr, nullptr, k, own(k));
      return p;
    }
  }
  return p;
}

void Translator::become_vector(int n) {
  const Value v = values_[n];
  uint8_t reg[4];
  for (unsigned k = 0; k < 4; ++k) {
    const unsigned r = take();
    expand_part(v, v.base >= 0 ? &values_[v.base] : nullptr, &values_[v.index], k, kScratch);
    a_.vector(kMoveVector, r, 0, kScratch, 2);
    reg[k] = (uint8_t)r;
  }
  Value& x = values_[n];
  x.form = Form::kVector;
  memcpy(x.reg, reg, sizeof reg);
  x.base = x.index = -1;
  if (v.base >= 0) drop(v.base);
  drop(v.index);
}

// The xmm register with a compact value's numbers; a constant gets one for the moment.
unsigned Translator::compact(int n, bool* temporary) {
  *temporary = values_[n].form == Form::kConstant;
  if (!*temporary) return values_[n].reg[0];
  const unsigned r = take();
  a_.vector(values_[n].wide ? kBroadcast64 : kBroadcast32, r, 0, x86::at(kRcx, values_[n].operand),
            0);
  return r;
}

// The mask register of a predicate.
unsigned Translator::predicate(int n) {
  if (values_[n].form == Form::kPredicate) return values_[n].reg[0];
  const Parts p = parts(n);
  const unsigned k = take_mask();
  a_.vector(kWordsToMask, k, 0, p.reg[0], 2);
  a_.vector(kWordsToMask, kTestMask, 0, p.reg[1], 2);
  a_.mask_unpack(k, kTestMask, k);
  give(p);
  Value& v = values_[n];
  if (v.form == Form::kConstant) return k;  // used once: the mask stays taken until the run ends
  free_registers(v);
  v.form = Form::kPredicate;
  v.reg[0] = (uint8_t)k;
  return k;
}

}  // namespace simgpu::ptx
