// Translates the instructions of a run other than memory accesses.
#include <initializer_list>

#include "ptx/native/native_code.h"

namespace simgpu::ptx {

using namespace x86;

namespace {
constexpr Code kMoveVector = {k0F, k66, 1, 0x6f};
constexpr Code kAdd32 = {k0F, k66, 0, 0xfe};
constexpr Code kAdd64 = {k0F, k66, 1, 0xd4};
constexpr Code kXor = {k0F, k66, 0, 0xef};
constexpr Code kAnd = {k0F, k66, 0, 0xdb};
constexpr Code kLogic3 = {k0F3A, k66, 0, 0x25};
constexpr Code kBroadcast32 = {k0F38, k66, 0, 0x58};
constexpr Code kSignExtend = {k0F38, k66, 0, 0x25};
constexpr Code kZeroExtend = {k0F38, k66, 0, 0x35};
constexpr Code kUpperHalf = {k0F3A, k66, 1, 0x3b};
constexpr Code kInsertHalf = {k0F3A, k66, 1, 0x3a};
constexpr Code kNarrow = {k0F38, kF3, 0, 0x35};  // vpmovqd
constexpr Code kFirst32 = {k0F, k66, 0, 0x6e};
constexpr Code kInsert32 = {k0F3A, k66, 0, 0x22};
constexpr Code kOut32 = {k0F, k66, 0, 0x7e};  // vmovd to a scalar register
constexpr Code kExtract32 = {k0F3A, k66, 0, 0x16};
constexpr Code kShuffle = {k0F, k66, 0, 0x70};
constexpr uint32_t kMostDistance = 31;
}  // namespace

bool Translator::compacts(int a, int b) const {
  auto small = [&](int n) {
    return values_[n].form == Form::kCompact || values_[n].form == Form::kConstant;
  };
  return small(a) && small(b);
}

bool Translator::one_number(int n) const {
  const Value& v = values_[n];
  return v.form == Form::kConstant ||
         (v.form == Form::kCompact && v.stride == 0 && (line() || v.alike));
}

int Translator::new_vector(bool wide) {
  const int v = make(Form::kFrame, wide);
  uint8_t reg[4];
  for (unsigned k = 0; k < (wide ? 4u : 2u); ++k) reg[k] = (uint8_t)take();
  memcpy(values_[v].reg, reg, sizeof reg);
  values_[v].form = Form::kVector;
  return v;
}

// d = a op b in an xmm register; constants come from the table.
void Translator::compact_binary(Code c, unsigned d, int a, int b) {
  bool temporary = false;
  const unsigned x = compact(a, &temporary);
  const Value& y = values_[b];
  if (y.form == Form::kConstant)
    a_.vector(c, d, x, x86::at(kRcx, y.operand), 0, 0, false, -1, true);
  else
    a_.vector(c, d, x, y.reg[0], 0);
  if (temporary) give(x);
}

int Translator::binary(const Known& k, int a, int b, bool exact) {
  const int v = new_vector(k.wide);
  const Parts x = parts(a, exact);
  // A constant needs no register.
  const bool table = values_[b].form == Form::kConstant;
  const Parts y = table ? Parts{} : parts(b, exact);
  for (unsigned n = 0; n < parts_of(values_[v]); ++n) {
    if (table)
      a_.vector(k.code, values_[v].reg[n], x.reg[n], x86::at(kRcx, values_[b].operand), 2, 0, false,
                -1, true);
    else
      a_.vector(k.code, values_[v].reg[n], x.reg[n], y.reg[n], 2);
  }
  give(x);
  give(y);
  return v;
}

int Translator::compact_result(const Known& k, const Ins&, const Fact& f) {
  const unsigned r = take();
  const int v = make(Form::kCompact, k.wide);
  Value& x = values_[v];
  x.reg[0] = (uint8_t)r;
  x.stride = f.stride;
  x.alike = f.alike;
  x.root = f.root;
  return v;
}

// Jumps to the interpreter unless first + stride * lane stays within 32 bits in every lane. False:
// no such check is made.
bool Translator::inside(int n, uint32_t index, bool sign) {
  const Value v = values_[n];
  if (v.stride < 0 || v.stride > 1 << 16) return false;
  const int64_t reach = (int64_t)v.stride * kMostDistance;
  const int64_t most = (sign ? (int64_t)INT32_MAX : (int64_t)UINT32_MAX) - reach;
  const Label out = deopt(index);
  for (unsigned half = 0; half < (line() ? 1u : 2u); ++half) {
    if (half == 0)
      a_.vector(kOut32, v.reg[0], 0, kRax, 0);
    else
      a_.vector(kExtract32, v.reg[0], 0, kRax, 0, 0, false, 1);
    a_.group1(7, kRax, (int32_t)(uint32_t)most, false);
    a_.jump_if(sign ? 15 : 7, out);
  }
  return true;
}

// A compact value becomes its 32 numbers.
void Translator::spread(int n) {
  const Parts p = parts(n);
  Value& v = values_[n];
  give(v.reg[0]);
  memcpy(v.reg, p.reg, sizeof p.reg);
  v.form = Form::kVector;
  v.stride = 0;
}

int Translator::extend(int a, bool sign) {
  if (values_[a].form == Form::kFrame) give(parts(a));
  if (values_[a].form == Form::kPredicate) return -1;
  if (values_[a].form == Form::kVector) {
    canonical(a);
    const int v = make(Form::kLazy, true);
    values_[v].sign = sign;
    values_[v].index = a;
    hold(a);
    return v;
  }
  Fact f = fact_of(a);
  const unsigned r = take();
  bool temporary;
  const unsigned x = compact(a, &temporary);
  canonical(a);
  a_.vector(sign ? kSignExtend : kZeroExtend, r, 0, x, 0);
  if (temporary) give(x);
  const int v = make(Form::kCompact, true);
  values_[v].reg[0] = (uint8_t)r;
  values_[v].stride = f.stride;
  values_[v].alike = f.alike || f.constant;
  return v;
}

int Translator::multiply_wide(const Known& k, int a, int b) {
  const bool sign = k.detail;
  if (values_[a].form == Form::kConstant && values_[b].form != Form::kConstant) {
    const int t = a;
    a = b;
    b = t;
  }
  const Value y = values_[b];
  if (y.form == Form::kConstant && values_[a].form != Form::kConstant) {
    const auto by = (uint32_t)y.value;
    if (values_[a].form == Form::kFrame) give(parts(a));
    if (values_[a].form == Form::kVector && by != 0 && (by & (by - 1)) == 0 && by <= 8) {
      const int v = extend(a, sign);
      if (v >= 0) values_[v].scale = (uint8_t)__builtin_ctz(by);
      return v;
    }
    if (values_[a].form == Form::kCompact && by < 1 << 16 && (!sign || (int32_t)by > 0)) {
      const int e = extend(a, sign);  // the caller has made sure that it does not wrap
      if (e < 0) return -1;
      // Of compact numbers the low 32 bits are multiplied, so that the copy of the constant in the
      // other half does no harm.
      Value& v = values_[e];
      a_.vector(k.code, v.reg[0], v.reg[0], x86::at(kRcx, y.operand), 0, 0, false, -1, true);
      v.stride = (int32_t)(v.stride * (int64_t)by);
      return e;
    }
  }
  auto plain = [&](int n) {
    return (values_[n].form == Form::kCompact && values_[n].stride == 0) ||
           values_[n].form == Form::kConstant;
  };
  if (plain(a) && plain(b)) {
    const int x = extend(a, sign), z = extend(b, sign);
    hold(x);
    hold(z);
    const unsigned r = take();
    a_.vector(k.code, r, values_[x].reg[0], values_[z].reg[0], 0);
    const int v = make(Form::kCompact, true);
    values_[v].reg[0] = (uint8_t)r;
    values_[v].alike = values_[x].alike && values_[z].alike;
    drop(x);
    drop(z);
    return v;
  }
  // Vectors: the low 32 bits of 64-bit places are what the machine multiplies.
  const int v = new_vector(true);
  const Parts p = parts(a), q = parts(b);
  for (unsigned n = 0; n < 4; ++n) {
    const unsigned d = values_[v].reg[n];
    auto widen = [&](unsigned from, unsigned to) {
      if (n & 1) {
        a_.vector(kUpperHalf, from, 0, to, 2, 0, false, 1);
        a_.vector(kZeroExtend, to, 0, to, 2);
      } else {
        a_.vector(kZeroExtend, to, 0, from, 2);
      }
    };
    widen(p.reg[n / 2], kScratch);
    widen(q.reg[n / 2], kScratch + 1);
    a_.vector(k.code, d, kScratch, kScratch + 1, 2);
  }
  give(p);
  give(q);
  return v;
}

void Translator::wide(const Known& k, const Ins& i) {
  int a = operand(i.a, false), b = operand(i.b, false);
  for (int n : {a, b})
    if (values_[n].form == Form::kCompact && values_[n].stride != 0 &&
        (!compacts(a, b) || !inside(n, now_, k.detail)))
      spread(n);
  int v = multiply_wide(k, a, b);
  if (v < 0) {
    failed_ = true;
    return;
  }
  if (k.what == Do::kMadWide) {
    const int c = operand(i.c, true);
    hold(v);
    Known add = k;
    add.wide = 1;
    add.code = kAdd64;
    const Fact s[2] = {fact_of(v), fact_of(c)};
    add.what = Do::kAdd;
    const Fact f = facts_.result(i, add, s);
    int sum;
    if (f.compact) {
      sum = compact_result(add, i, f);
      compact_binary(kAdd64, values_[sum].reg[0], v, c);
    } else if (values_[v].form == Form::kLazy && values_[v].base < 0 &&
               values_[c].form == Form::kCompact && values_[c].stride == 0 &&
               (line() || values_[c].alike)) {
      sum = make(Form::kLazy, true);
      values_[sum].sign = values_[v].sign;
      values_[sum].scale = values_[v].scale;
      values_[sum].index = values_[v].index;
      values_[sum].base = c;
      values_[sum].root = values_[c].root;
      hold(c);
      hold(values_[sum].index);
    } else {
      sum = binary(add, v, c, true);
    }
    drop(v);
    v = sum;
  }
  set(i.d, v);
}

void Translator::multiply_add(const Known& k, const Ins& i) {
  const int a = operand(i.a, k.wide), b = operand(i.b, k.wide), c = operand(i.c, k.wide);
  const Code add = k.wide ? kAdd64 : kAdd32;
  const Fact s[3] = {fact_of(a), fact_of(b), fact_of(c)};
  const Fact f = facts_.result(i, k, s);
  if (f.compact) {
    const int v = compact_result(k, i, f);
    compact_binary(k.code, values_[v].reg[0], a, b);
    const Value& z = values_[c];
    if (z.form == Form::kConstant)
      a_.vector(add, values_[v].reg[0], values_[v].reg[0], x86::at(kRcx, z.operand), 0, 0, false,
                -1, true);
    else
      a_.vector(add, values_[v].reg[0], values_[v].reg[0], z.reg[0], 0);
    return set(i.d, v);
  }
  const int v = binary(k, a, b, true);
  const Parts z = parts(c);
  for (unsigned n = 0; n < parts_of(values_[v]); ++n)
    a_.vector(add, values_[v].reg[n], values_[v].reg[n], z.reg[n], 2);
  give(z);
  set(i.d, v);
}

void Translator::shift(const Known& k, const Ins& i) {
  const int a = operand(i.a, k.wide), b = operand(i.b, false);
  const unsigned width = k.wide ? 64 : 32;
  if (values_[b].form == Form::kConstant) {
    const auto count = (uint32_t)values_[b].value;
    const unsigned by = count < width ? count : k.detail == 2 ? width - 1 : width;
    // 72: words, and right with sign of both widths; 73: double words.
    const Code c = {k0F, k66, k.wide, (uint8_t)(k.wide && k.detail != 2 ? 0x73 : 0x72)};
    const unsigned which = k.detail == 0 ? 6 : k.detail == 1 ? 2 : 4;
    if (k.detail == 0 && values_[a].form == Form::kLazy && values_[a].scale + by <= 3 &&
        (values_[a].base < 0 || values_[values_[a].base].form == Form::kCompact)) {
      const Value x = values_[a];
      int base = -1;
      if (x.base >= 0) {
        const unsigned r = take();
        a_.vector(c, 6, r, values_[x.base].reg[0], 0, 0, false, (int)by);
        base = make(Form::kCompact, true);
        values_[base].reg[0] = (uint8_t)r;
        values_[base].alike = values_[x.base].alike;
        hold(base);
      }
      const int v = make(Form::kLazy, true);
      values_[v].sign = x.sign;
      values_[v].scale = (uint8_t)(x.scale + by);
      values_[v].index = x.index;
      values_[v].base = base;
      hold(x.index);
      return set(i.d, v);
    }
    const Fact s[3] = {fact_of(a), fact_of(b), Fact()};
    const Fact f = facts_.result(i, k, s);
    if (f.compact) {
      const int v = compact_result(k, i, f);
      bool temporary;
      canonical(a);
      const unsigned x = compact(a, &temporary);
      a_.vector(c, which, values_[v].reg[0], x, 0, 0, false, (int)by);
      if (temporary) give(x);
      return set(i.d, v);
    }
    const int v = new_vector(k.wide);
    const Parts x = parts(a);
    for (unsigned n = 0; n < parts_of(values_[v]); ++n)
      a_.vector(c, which, values_[v].reg[n], x.reg[n], 2, 0, false, (int)by);
    give(x);
    return set(i.d, v);
  }
  const int v = new_vector(k.wide);
  const Parts x = parts(a), y = parts(b);
  for (unsigned n = 0; n < parts_of(values_[v]); ++n) {
    unsigned count = y.reg[n];
    if (k.wide) {
      count = kScratch;
      if (n & 1) {
        a_.vector(kUpperHalf, y.reg[n / 2], 0, count, 2, 0, false, 1);
        a_.vector(kZeroExtend, count, 0, count, 2);
      } else {
        a_.vector(kZeroExtend, count, 0, y.reg[n / 2], 2);
      }
    }
    a_.vector(k.code, values_[v].reg[n], x.reg[n], count, 2);
  }
  give(x);
  give(y);
  set(i.d, v);
}

// Floating-point instructions. The bits of NaNs are made canonical later, where an instruction uses
// them.
void Translator::real(const Known& k, const Ins& i) {
  const int a = operand(i.a, k.wide);
  if (k.what == Do::kFma) {
    const int b = operand(i.b, k.wide), c = operand(i.c, k.wide);
    const int v = new_vector(k.wide);
    const Parts x = parts(a, false), y = parts(b, false), z = parts(c, false);
    for (unsigned n = 0; n < parts_of(values_[v]); ++n) {
      a_.vector(kMoveVector, values_[v].reg[n], 0, z.reg[n], 2);
      a_.vector(k.code, values_[v].reg[n], x.reg[n], y.reg[n], 2);
    }
    give(x);
    give(y);
    give(z);
    values_[v].nan = true;
    return set(i.d, v);
  }
  if (k.what == Do::kReal) {
    const int b = operand(i.b, k.wide);
    const Fact s[3] = {fact_of(a), fact_of(b), Fact()};
    const Fact f = facts_.result(i, k, s);
    int v;
    if (f.compact) {
      v = compact_result(k, i, f);
      compact_binary(k.code, values_[v].reg[0], a, b);
    } else {
      v = binary(k, a, b, false);
    }
    values_[v].nan = true;
    return set(i.d, v);
  }
  if (k.what == Do::kFromInt || k.what == Do::kRoot) {
    const int v = new_vector(k.wide);
    const Parts x = parts(a, k.what == Do::kFromInt);
    for (unsigned n = 0; n < parts_of(values_[v]); ++n)
      a_.vector(k.code, values_[v].reg[n], 0, x.reg[n], 2);
    give(x);
    values_[v].nan = k.what == Do::kRoot;
    return set(i.d, v);
  }
  if (k.what == Do::kReciprocal) {
    const int v = new_vector(k.wide);
    const Parts x = parts(a, false);
    a_.vector(kMoveVector, kScratch, 0, all(k.wide ? 0x3ff0000000000000ull : 0x3f800000u, k.wide),
              2);
    for (unsigned n = 0; n < parts_of(values_[v]); ++n)
      a_.vector(k.code, values_[v].reg[n], kScratch, x.reg[n], 2);
    give(x);
    values_[v].nan = true;
    return set(i.d, v);
  }
  // The sign is one bit, of NaNs, too.
  const int v = new_vector(k.wide);
  const Parts x = parts(a);
  const uint64_t top = k.wide ? 1ull << 63 : 1ull << 31;
  const Mem m = k.detail == 0 ? all(top, k.wide) : all(k.wide ? ~top : 0x7fffffffu, k.wide);
  for (unsigned n = 0; n < parts_of(values_[v]); ++n)
    a_.vector(k.detail == 0 ? kXor : kAnd, values_[v].reg[n], x.reg[n], m, 2);
  give(x);
  set(i.d, v);
}

// Two numbers, each the same in all lanes. False: they are not, or AVX-512 compares lanes as fast.
bool Translator::compare_numbers(const Known& k, const Ins& i, int a, int b) {
  if (!a_.short_ways()) return false;
  for (int n : {a, b}) {
    if (!one_number(n) || (values_[n].nan && k.code.opcode != 0xc2)) return false;
  }
  const Value x = values_[a], y = values_[b];
  auto in = [](const Value& v) {
    return v.form == Form::kConstant ? Assembler::kNone : (unsigned)v.reg[0];
  };
  const unsigned d = take_mask();
  a_.compare_one(k.code, d, in(x), x86::at(kRcx, x.operand), in(y), x86::at(kRcx, y.operand),
                 k.detail);
  const int v = make(Form::kPredicate, false);
  values_[v].reg[0] = (uint8_t)d;
  set(i.d, v);
  return true;
}

void Translator::compare(const Known& k, const Ins& i) {
  const int a = operand(i.a, k.wide), b = operand(i.b, k.wide);
  const bool real = k.code.opcode == 0xc2;
  if (compare_numbers(k, i, a, b)) return;
  const Parts x = parts(a, !real);
  const bool table = values_[b].form == Form::kConstant;
  const Parts y = table ? Parts{} : parts(b, !real);
  const int v = make(Form::kFrame, false);
  const unsigned d = take_mask();
  values_[v].form = Form::kPredicate;
  values_[v].reg[0] = (uint8_t)d;
  if (a_.compare_lanes(k.code, d, Lanes{x.reg, k.wide != 0, 0, 0}, table ? nullptr : y.reg,
                       x86::at(kRcx, values_[b].operand), k.detail)) {
    give(x);
    give(y);
    return set(i.d, v);
  }
  auto part = [&](unsigned n, unsigned to) {
    if (table)
      a_.vector(k.code, to, x.reg[n], x86::at(kRcx, values_[b].operand), 2, 0, false, k.detail,
                true);
    else
      a_.vector(k.code, to, x.reg[n], y.reg[n], 2, 0, false, k.detail);
  };
  if (!k.wide) {
    const bool same = x.reg[0] == x.reg[1] && (table || y.reg[0] == y.reg[1]);
    part(0, d);
    if (!same) part(1, kTestMask);
    a_.mask_unpack(d, same ? d : kTestMask, d);
  } else {
    auto join = [&](unsigned to, unsigned high) {  // kunpckbw: 8 bits each
      a_.mask_unpack_bytes(to, high, to);
    };
    part(0, d);
    part(1, kTestMask);
    join(d, kTestMask);
    part(2, kSpareMask);
    part(3, kTestMask);
    join(kSpareMask, kTestMask);
    a_.mask_unpack(d, kSpareMask, d);
  }
  give(x);
  give(y);
  set(i.d, v);
}

void Translator::select(const Ins& i, bool wide) {
  constexpr Code kBlend32 = {k0F38, k66, 0, 0x64}, kBlend64 = {k0F38, k66, 1, 0x64};
  const int a = operand(i.a, wide), b = operand(i.b, wide), c = operand(i.c, false);
  const int v = new_vector(wide);
  const Parts x = parts(a), y = parts(b);
  const unsigned p = predicate(c);
  for (unsigned n = 0; n < parts_of(values_[v]); ++n) {
    unsigned m = p;
    const unsigned first = wide ? n * 8 : n * 16;
    if (first != 0) {
      m = kTestMask;
      a_.mask_shift_right(m, p, first);
    }
    a_.vector(wide ? kBlend64 : kBlend32, values_[v].reg[n], y.reg[n], x.reg[n], 2, m);
  }
  give(x);
  give(y);
  set(i.d, v);
}

void Translator::special(const Ins& i) {
  const auto reg = (uint8_t)i.imm;
  if (reg <= kTidZ && shape_ == WarpShape::kOther) {
    const int v = new_vector(false);
    a_.load64(kRax, kRdi, offsetof(Ctx, warp));
    for (unsigned n = 0; n < 2; ++n)
      a_.vector(Code{k0F, kF3, 0, 0x6f}, values_[v].reg[n], 0,
                x86::at(kRax, (uint32_t)offsetof(Warp, tid) + (reg - kTidX) * kLanes * 4 + 64 * n),
                2);
    return set(i.d, v);
  }
  const unsigned r = take();
  const int v = make(Form::kCompact, false);
  const Known k{nullptr, Do::kSpecial, 0, 0, {}};
  const Fact f = facts_.result(i, k, nullptr);
  values_[v].reg[0] = (uint8_t)r;
  values_[v].stride = f.stride;
  values_[v].alike = f.alike;
  if (reg == kLaneid) {
    uint32_t words[16] = {0, 16};
    a_.vector(kMoveVector, r, 0, pool(a_.literal(words)), 0);
  } else if (reg <= kTidZ) {
    const uint32_t at = (uint32_t)offsetof(Warp, tid) + (reg - kTidX) * kLanes * 4;
    a_.load64(kRax, kRdi, offsetof(Ctx, warp));
    a_.vector(kFirst32, r, 0, x86::at(kRax, at), 0);
    if (!line()) a_.vector(kInsert32, r, r, x86::at(kRax, at + 64), 0, 0, false, 1);
  } else if (reg >= kCtaidX && reg <= kCtaidZ) {
    a_.load64(kRax, kRdi, offsetof(Ctx, block));
    a_.vector(kBroadcast32, r, 0,
              x86::at(kRax, (uint32_t)offsetof(Block, ctaid) + (reg - kCtaidX) * 4u), 0);
  } else {
    a_.load64(kRax, kRdi, offsetof(Ctx, grid));
    a_.load64(kRax, kRax, offsetof(Grid, launch));
    const uint32_t at = reg <= kNtidZ ? (uint32_t)offsetof(Launch, block) + (reg - kNtidX) * 4u
                                      : (uint32_t)offsetof(Launch, grid) + (reg - kNctaidX) * 4u;
    a_.vector(kBroadcast32, r, 0, x86::at(kRax, at), 0);
  }
  set(i.d, v);
}

// Predicates are words for and, or, xor, not and mov; those that are mask registers stay so.
bool Translator::logic_of_predicates(const Known& k, const Ins& i) {
  if (k.wide) return false;
  const int a = operand(i.a, false), b = k.what == Do::kBits ? operand(i.b, false) : a;
  if (values_[a].form != Form::kPredicate && values_[b].form != Form::kPredicate) return false;
  const unsigned x = predicate(a), y = predicate(b), d = take_mask();
  if (k.what == Do::kBits)
    a_.mask3(k.detail, d, x, y);
  else if (k.what == Do::kNot)
    a_.mask_not(d, x);
  else
    a_.mask_move(d, x);
  const int v = make(Form::kPredicate, false);
  values_[v].reg[0] = (uint8_t)d;
  set(i.d, v);
  return true;
}

// The result of two operands, as one number for all lanes where that is known.
void Translator::two_operands(const Known& k, const Ins& i) {
  const int a = operand(i.a, k.wide), b = operand(i.b, k.wide);
  const Fact s[3] = {fact_of(a), fact_of(b), Fact()};
  const Fact f = facts_.result(i, k, s);
  int v;
  if (f.compact) {
    canonical(a);
    canonical(b);
    v = compact_result(k, i, f);
    compact_binary(k.code, values_[v].reg[0], a, b);
  } else {
    v = binary(k, a, b, true);
    if (k.what == Do::kAdd && (one_number(a) || one_number(b))) {
      const int base = like(one_number(a) ? b : a);
      if (base != Value::kNothing) values_[v].like = base;
    }
  }
  set(i.d, v);
}

// A sum of index * scale and a number stays in two parts. False: it is not such a sum.
bool Translator::add_lazily(const Ins& i) {
  int a = operand(i.a, true), b = operand(i.b, true);
  if (values_[b].form == Form::kLazy) {
    const int t = a;
    a = b;
    b = t;
  }
  const Value y = values_[b];
  if (values_[a].form != Form::kLazy || !one_number(b)) return false;
  const Value x = values_[a];
  const int v = make(Form::kLazy, true);
  int base = b;
  if (x.base >= 0 || y.form == Form::kConstant) {
    const unsigned r = take();
    if (x.base >= 0) {
      compact_binary(kAdd64, r, x.base, b);
    } else {
      bool temporary;
      const unsigned from = compact(b, &temporary);
      a_.vector(kMoveVector, r, 0, from, 0);
      if (temporary) give(from);
    }
    base = make(Form::kCompact, true);
    values_[base].reg[0] = (uint8_t)r;
    values_[base].alike = true;
  }
  Value& z = values_[v];
  z.sign = x.sign;
  z.scale = x.scale;
  z.index = x.index;
  z.base = base;
  z.root = x.root != 0 ? x.root : y.root;
  hold(base);
  hold(x.index);
  set(i.d, v);
  return true;
}

void Translator::logical_not(const Known& k, const Ins& i) {
  const int a = operand(i.a, k.wide);
  const int v = new_vector(k.wide);
  const Parts x = parts(a);
  const Mem ones = all(~0ull, true);
  for (unsigned n = 0; n < parts_of(values_[v]); ++n)
    a_.vector(kXor, values_[v].reg[n], x.reg[n], ones, 2);
  give(x);
  set(i.d, v);
}

void Translator::move(const Known& k, const Ins& i) {
  const int a = operand(i.a, k.wide);
  const Fact s[3] = {fact_of(a), Fact(), Fact()};
  const Fact f = facts_.result(i, k, s);
  if (f.compact) {
    canonical(a);
    const int v = compact_result(k, i, f);
    bool temporary;
    const unsigned x = compact(a, &temporary);
    a_.vector(kMoveVector, values_[v].reg[0], 0, x, 0);
    if (temporary) give(x);
    values_[v].alike = f.alike || s[0].constant;
    set(i.d, v);
    return;
  }
  const int v = new_vector(k.wide);
  const Parts x = parts(a);
  for (unsigned n = 0; n < parts_of(values_[v]); ++n)
    a_.vector(kMoveVector, values_[v].reg[n], 0, x.reg[n], 2);
  give(x);
  set(i.d, v);
}

void Translator::negate(const Known& k, const Ins& i) {
  const int a = operand(i.a, k.wide);
  canonical(a);
  const Fact s[3] = {fact_of(a), Fact(), Fact()};
  const Fact f = facts_.result(i, k, s);
  if (f.compact && !s[0].constant) {
    const int v = compact_result(k, i, f);
    a_.vector(kXor, kScratch, kScratch, kScratch, 2);
    a_.vector(k.code, values_[v].reg[0], kScratch, values_[a].reg[0], 0);
    set(i.d, v);
    return;
  }
  const int v = new_vector(k.wide);
  const Parts x = parts(a);
  a_.vector(kXor, kScratch, kScratch, kScratch, 2);
  for (unsigned n = 0; n < parts_of(values_[v]); ++n)
    a_.vector(k.code, values_[v].reg[n], kScratch, x.reg[n], 2);
  give(x);
  set(i.d, v);
}

bool Translator::widen(const Known& k, const Ins& i, uint32_t index) {
  const int a = operand(i.a, false);
  if (values_[a].form == Form::kCompact && values_[a].stride != 0 && !inside(a, index, k.detail))
    spread(a);
  const int v = extend(a, k.detail);
  if (v < 0) return false;
  set(i.d, v);
  return true;
}

void Translator::truncate(const Known& k, const Ins& i) {
  const int a = operand(i.a, true);
  const Fact s[3] = {fact_of(a), Fact(), Fact()};
  const Fact f = facts_.result(i, k, s);
  canonical(a);
  if (f.compact) {
    const int v = compact_result(k, i, f);
    bool temporary;
    const unsigned x = compact(a, &temporary);
    a_.vector(kShuffle, values_[v].reg[0], 0, x, 0, 0, false, 0x88);
    if (temporary) give(x);
    set(i.d, v);
    return;
  }
  const int v = new_vector(false);
  const Parts x = parts(a);
  for (unsigned n = 0; n < 2; ++n) {
    const unsigned d = values_[v].reg[n];
    a_.vector(kNarrow, x.reg[2 * n], 0, kScratch, 2);
    a_.vector(kNarrow, x.reg[2 * n + 1], 0, kScratch + 1, 2);
    a_.vector(kInsertHalf, d, kScratch, kScratch + 1, 2, 0, false, 1);
  }
  give(x);
  set(i.d, v);
}

void Translator::logic3(const Ins& i) {
  const int a = operand(i.a, false), b = operand(i.b, false), c = operand(i.c, false);
  const int v = new_vector(false);
  const Parts x = parts(a), y = parts(b), z = parts(c);
  for (unsigned n = 0; n < 2; ++n) {
    a_.vector(kMoveVector, values_[v].reg[n], 0, x.reg[n], 2);
    a_.vector(kLogic3, values_[v].reg[n], y.reg[n], z.reg[n], 2, 0, false, (int)(i.imm & 255));
  }
  give(x);
  give(y);
  give(z);
  set(i.d, v);
}

void Translator::parameter(const Known& k, const Ins& i) {
  const Fact f = facts_.result(i, k, nullptr);
  const int v = compact_result(k, i, f);
  a_.load64(kRax, kRdi, offsetof(Ctx, params));
  a_.vector(k.wide ? Code{k0F38, k66, 1, 0x59} : kBroadcast32, values_[v].reg[0], 0,
            x86::at(kRax, (uint32_t)i.imm), 0);
  set(i.d, v);
}

bool Translator::instruction(uint32_t index) {
  const Ins& i = f_.code[index];
  const Known& k = *known(handlers_[index], i);
  now_ = index;
  ++stamp_;
  switch (k.what) {
    case Do::kAdd:
      if (!k.wide || !add_lazily(i)) two_operands(k, i);
      break;
    case Do::kSub:
    case Do::kMul:
    case Do::kPlain:
      two_operands(k, i);
      break;
    case Do::kBits:
      if (!logic_of_predicates(k, i)) two_operands(k, i);
      break;
    case Do::kMad:
      multiply_add(k, i);
      break;
    case Do::kNot:
      if (!logic_of_predicates(k, i)) logical_not(k, i);
      break;
    case Do::kMove:
      if (!logic_of_predicates(k, i)) move(k, i);
      break;
    case Do::kNegate:
      negate(k, i);
      break;
    case Do::kShift:
      shift(k, i);
      break;
    case Do::kWide:
    case Do::kMadWide:
      wide(k, i);
      break;
    case Do::kExtend:
      return widen(k, i, index);
    case Do::kTruncate:
      truncate(k, i);
      break;
    case Do::kReal:
    case Do::kFma:
    case Do::kRoot:
    case Do::kReciprocal:
    case Do::kSign:
    case Do::kFromInt:
      real(k, i);
      break;
    case Do::kCompare:
      compare(k, i);
      break;
    case Do::kSelect:
      select(i, k.wide);
      break;
    case Do::kLogic3:
      logic3(i);
      break;
    case Do::kSpecial:
      special(i);
      break;
    case Do::kParam:
      parameter(k, i);
      break;
    case Do::kLoad:
      return load(i, index, k.wide);
    case Do::kStore:
      return store(i, index, k.wide);
    case Do::kLoadShared:
      return shared(i, index, k.wide, false);
    case Do::kStoreShared:
      return shared(i, index, k.wide, true);
    default:
      return false;
  }
  return true;
}

// ---- ends ----

void Translator::flush(uint32_t index) {
  const uint64_t* live = live_.data() + (size_t)(index + 1 - begin_) * live_words_;
  for (uint32_t u = 0; u < units_; ++u) {
    if (map_[u] == 0 || !(live[u / 64] >> (u % 64) & 1)) continue;
    Value& v = values_[map_[u] - 1];
    if (!v.dirty) continue;
    store_value(v, v.base >= 0 ? &values_[v.base] : nullptr,
                v.index >= 0 ? &values_[v.index] : nullptr, u * 128);
    v.dirty = false;
  }
  a_.all_dead();
}

void Translator::leave(uint32_t target) {
  if (target < entries_->size() && (*entries_)[target] != ~0u) {
    a_.cmp8m(kRdi, offsetof(Ctx, chain), 0);
    a_.jump_if(5, (*entries_)[target]);
  }
  a_.move_immediate(kRax, (uint64_t)(uintptr_t)&f_.code[target]);
  a_.vzeroupper();
  a_.ret();
}

void Translator::to_handler(uint32_t index) {
  a_.move_immediate(kRsi, (uint64_t)(uintptr_t)&f_.code[index]);
  a_.move_immediate(kRax, (uint64_t)(uintptr_t)handlers_[index]);
  a_.vzeroupper();
  a_.jump_to(kRax);
}

void Translator::leave_backward(uint32_t index, uint32_t target) {
  const auto distance = (int32_t)(index - target + 1);
  const Label slow = a_.label();
  a_.cmp64mi(kRdi, offsetof(Ctx, budget), distance);
  a_.jump_if(14, slow);
  a_.sub64mi(kRdi, offsetof(Ctx, budget), distance);
  leave(target);
  a_.place(slow);
}

void Translator::branch(uint32_t index) {
  const Ins& i = f_.code[index];
  const auto target = (uint32_t)(i.target - f_.code);
  ++stamp_;
  now_ = index;
  const bool backward = target <= index;
  if (handlers_[index] == op_jump) {
    flush(index);
    if (backward) {
      leave_backward(index, target);
      to_handler(index);
    } else {
      leave(target);
    }
    return;
  }
  const int p = operand(i.g, false);
  const unsigned k = predicate(p);
  flush(index);
  branch_taken(index, k, values_[p]);
}

// With everything but the predicate in the frame: goes to where the branch leads.
void Translator::branch_taken(uint32_t index, unsigned mask, const Value& predicate) {
  const Ins& i = f_.code[index];
  const auto target = (uint32_t)(i.target - f_.code);
  a_.mask_to_gpr(kRax, mask);
  if (i.flags & kGuardNegated) a_.not_(kRax, false);
  const Label taken = a_.label(), apart = a_.label();
  if (masked()) {
    a_.load32(kR11, kRdi, offsetof(Ctx, mask));
    a_.and_(kRax, kR11, false);
    a_.cmp(kRax, kR11, false);
  } else {
    a_.group1(7, kRax, -1, false);
  }
  a_.jump_if(4, taken);
  a_.test(kRax, kRax, false);
  a_.jump_if(5, apart);
  leave(index + 1);
  a_.place(taken);
  if (target <= index)
    leave_backward(index, target);
  else
    leave(target);
  a_.place(apart);
  if (predicate.dirty) store_value(predicate, nullptr, nullptr, i.g);
  to_handler(index);
}

// The run goes on behind the branch with its values if no lane takes it and no other lanes wait.
void Translator::branch_in_run(uint32_t index, const uint64_t* live_out) {
  const Ins& i = f_.code[index];
  ++stamp_;
  now_ = index;
  const int p = operand(i.g, false);
  Side s;
  s.mask = predicate(p);
  s.label = a_.label();
  a_.rare(s.label);
  s.index = index;
  s.predicate = values_[p];
  // A jump may follow in the block.
  Vec<uint64_t> both;
  both.resize(live_words_);
  const uint64_t* next = live_.data() + (size_t)(index + 1 - begin_) * live_words_;
  for (size_t k = 0; k < live_words_; ++k) both[k] = live_out[k] | next[k];
  s.from = (uint32_t)saved_.size();
  s.count = save(both.data());
  sides_.push(s);
  a_.mask_to_gpr(kRax, s.mask);
  if (i.flags & kGuardNegated) a_.not_(kRax, false);
  if (masked()) {
    a_.load32(kR11, kRdi, offsetof(Ctx, mask));
    a_.test(kRax, kR11, false);
  } else {
    a_.test(kRax, kRax, false);
  }
  a_.jump_if(5, s.label);
  a_.cmp8m(kRdi, offsetof(Ctx, chain), 0);
  a_.jump_if(4, s.label);
}

// Keeps where the values of live registers are that the frame does not have.
uint32_t Translator::save(const uint64_t* live) {
  const size_t from = saved_.size();
  for (uint32_t u = 0; u < units_; ++u) {
    if (map_[u] == 0 || !(live[u / 64] >> (u % 64) & 1)) continue;
    const Value& v = values_[map_[u] - 1];
    if (!v.dirty) continue;
    Saved s;
    s.value = v;
    if (v.base >= 0) s.base = values_[v.base];
    if (v.index >= 0) s.index = values_[v.index];
    s.home = u * 128;
    saved_.push(s);
  }
  return (uint32_t)(saved_.size() - from);
}

void Translator::store_saved(uint32_t from, uint32_t count) {
  for (uint32_t k = from; k < from + count; ++k) {
    const Saved& s = saved_[k];
    store_value(s.value, s.value.base >= 0 ? &s.base : nullptr,
                s.value.index >= 0 ? &s.index : nullptr, s.home);
  }
}

Label Translator::deopt(uint32_t index, int site) {
  Deopt d;
  d.label = a_.label();
  a_.rare(d.label);
  d.index = index;
  d.site = site;
  d.from = (uint32_t)saved_.size();
  d.count = save(live_.data() + (size_t)(index - begin_) * live_words_);
  deopts_.push(d);
  return d.label;
}

static const Ins* native_miss(Ctx& c, const Ins* i) {
  if (c.miss_site != kSharedSite)
    if (const Segment* s = find_segment(c, c.miss_address)) c.sites[c.miss_site] = *s;
  return c.miss_handler(c, i);
}

void Translator::deopts() {
  for (const Deopt& d : deopts_) {
    a_.place(d.label);
    store_saved(d.from, d.count);
    a_.all_dead();
    if (d.site >= 0) {
      a_.store64(kRdi, offsetof(Ctx, miss_address), kRax);
      a_.store32i(kRdi, offsetof(Ctx, miss_site), (uint32_t)d.site);
      a_.move_immediate(kR11, (uint64_t)(uintptr_t)handlers_[d.index]);
      a_.store64(kRdi, offsetof(Ctx, miss_handler), kR11);
      a_.move_immediate(kRsi, (uint64_t)(uintptr_t)&f_.code[d.index]);
      a_.move_immediate(kRax, (uint64_t)(uintptr_t)native_miss);
      a_.vzeroupper();
      a_.jump_to(kRax);
    } else {
      to_handler(d.index);
    }
  }
  for (const Side& s : sides_) {
    a_.place(s.label);
    store_saved(s.from, s.count);
    a_.all_dead();
    branch_taken(s.index, s.mask, s.predicate);
  }
  a_.end_run();
}

// Which registers are read later, before each instruction of the run and behind the last:
// backwards from the end of each block.
void Translator::find_live(uint32_t end) {
  live_words_ = (units_ + 63) / 64;
  live_.clear();
  live_.resize(live_words_ * (end - begin_ + 1));
  Vec<uint64_t> now;
  now.resize(live_words_ + 1);
  for (uint32_t b = block_; b < f_.flow_count && f_.flow[b].begin < end; ++b) {
    const FlowBlock& block = f_.flow[b];
    memcpy(now.data(), block.live_out, live_words_ * 8);
    const uint32_t first = block.begin > begin_ ? block.begin : begin_;
    for (uint32_t i = block.end;; --i) {
      if (i < block.end ? i <= end : i == end)
        memcpy(live_.data() + (size_t)(i - begin_) * live_words_, now.data(), live_words_ * 8);
      if (i == first) break;
      const bool partly = f_.code[i - 1].inner != nullptr;
      each_register(f_, i - 1, [&](uint32_t o, bool written) {
        if (written && !partly) now[o / 128 / 64] &= ~(1ull << (o / 128 % 64));
      });
      each_register(f_, i - 1, [&](uint32_t o, bool written) {
        if (!written) now[o / 128 / 64] |= 1ull << (o / 128 % 64);
      });
    }
  }
}

bool Translator::run(uint32_t b, uint32_t begin, uint32_t end, const Vec<Label>& entries,
                     bool memory) {
  block_ = b;
  begin_ = begin;
  a_.begin_run();
  entries_ = &entries;
  find_live(end);
  a_.place(entries[begin]);
  a_.load64(kRdx, kRdi, offsetof(Ctx, base));
  a_.load64(kRcx, kRdi, offsetof(Ctx, base) + 8);
  if (masked()) {
    a_.load32(kRax, kRdi, offsetof(Ctx, mask));
    a_.gpr_to_mask(kLow, kRax);
    a_.mask_shift_right(kHigh, kLow, 16);
  }
  if (memory) {
    const Label fresh = a_.label();
    a_.load64(kRax, kRdi, offsetof(Ctx, epoch_now));
    a_.load64(kRax, kRax, 0);
    a_.cmp64m(kRax, kRdi, offsetof(Ctx, epoch));
    a_.jump_if(4, fresh);
    to_handler(begin);
    a_.place(fresh);
  }
  for (uint32_t i = begin; i < end; ++i) {
    const Do what = known(handlers_[i], f_.code[i])->what;
    while (i >= f_.flow[b].end) ++b;
    if (what == Do::kBranch && i + 1 < end && a_.short_ways()) {
      branch_in_run(i, f_.flow[b].live_out);
    } else if (what == Do::kBranch || what == Do::kJump) {
      branch(i);
      deopts();
      return !failed_ && !a_.failed;
    } else if (!instruction(i)) {
      return false;
    }
    if (failed_ || a_.failed) return false;
    if (temporary_ >= 0) free_registers(values_[temporary_]);
    temporary_ = -1;
    // A value that no later instruction reads releases its registers.
    const uint64_t* live = live_.data() + (size_t)(i + 1 - begin) * live_words_;
    for (uint32_t u = 0; u < units_; ++u)
      if (map_[u] != 0 && !(live[u / 64] >> (u % 64) & 1)) forget(u);
  }
  flush(end - 1);
  leave(end);
  deopts();
  return !failed_ && !a_.failed;
}

}  // namespace simgpu::ptx
