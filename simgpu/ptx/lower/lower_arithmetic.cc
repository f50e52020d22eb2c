// Lowering of arithmetic, bit fields and comparisons.
#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

uint16_t Body::real_flags(const Key& k) {
  if (is_half(k.t))
    return (uint16_t)((k.ftz ? 1 : 0) | (k.sat ? 2 : 0) | (k.relu ? 4 : 0) | (k.nan ? 8 : 0) |
                      (k.xorsign ? 16 : 0));
  return (uint16_t)((unsigned)k.round | (k.ftz ? 8 : 0) | (k.sat ? 16 : 0));
}

// add, sub, mul, mad, fma, div, rem, min, max, abs, neg and the functions of one argument.
void Body::arithmetic(Parts& p) {
  Key k{op_};
  k.round = rounding(p);
  k.ftz = p.take("ftz");
  k.sat = p.take("sat");
  k.approx = p.take("approx") || p.take("full");
  k.relu = p.take("relu");
  k.nan = p.take("NaN");
  if (p.take("xorsign")) {
    k.xorsign = true;
    p.take("abs");
  }
  p.take("noftz");
  const bool wide = p.take("wide"), hi = p.take("hi");
  const bool lo = p.take("lo");
  (void)lo;
  const bool cc = p.take("cc");
  k.t = p.take_type();
  Ty narrow = k.t;  // of the factors, or of what is added to the last operand
  if (k.t == Ty::kF32 && (op_ == Op::kAdd || op_ == Op::kSub || op_ == Op::kFma))
    narrow = p.take("f16") ? Ty::kF16 : p.take("bf16") ? Ty::kBF16 : k.t;
  if (!finished(p)) return;
  if (k.t == Ty::kNone) return error("no type");
  if (narrow != k.t && k.ftz) return error("unknown modifier '.ftz'");
  if (op_ == Op::kMad && is_real(k.t)) k.op = Op::kFma;
  if (op_ == Op::kFma && !is_real(k.t)) return error("fma of integers");
  if (is_real(k.t) && (wide || hi || cc)) return error("integer modifier on a floating-point type");
  const bool logic =
      op_ == Op::kAnd || op_ == Op::kOr || op_ == Op::kXor || op_ == Op::kNot || op_ == Op::kCnot;
  if (!logic && (k.t == Ty::kPred || type_bytes(k.t) == 1 || type_bytes(k.t) > 8))
    return error("bad type");
  if (cc) return carry(k, hi, false, true);
  if (wide) k.op = op_ == Op::kMul ? Op::kMulWide : Op::kMadWide;
  if (hi)
    k.op = op_ == Op::kMul     ? Op::kMulHi
           : op_ == Op::kMad   ? Op::kMadHi
           : op_ == Op::kMul24 ? Op::kMul24Hi
                               : Op::kMad24Hi;
  if ((op_ == Op::kMin || op_ == Op::kMax) && in_->operand_count == 4)
    k.op = op_ == Op::kMin ? Op::kMin3 : Op::kMax3;
  const bool three = k.op == Op::kMad || k.op == Op::kMadHi || k.op == Op::kMadWide ||
                     k.op == Op::kFma || k.op == Op::kMad24 || k.op == Op::kMad24Hi ||
                     k.op == Op::kSad || k.op == Op::kMin3 || k.op == Op::kMax3;
  const bool one = op_ == Op::kAbs || op_ == Op::kNeg || op_ == Op::kNot || op_ == Op::kCnot ||
                   op_ == Op::kSqrt || op_ == Op::kRcp || op_ == Op::kRsqrt || op_ == Op::kSin ||
                   op_ == Op::kCos || op_ == Op::kLg2 || op_ == Op::kEx2 || op_ == Op::kTanh;
  const uint32_t sources = one ? 1 : three ? 3 : 2;
  if (!need(sources + 1, sources + 1)) return;
  if (op_ == Op::kRsqrt && k.t == Ty::kF64) k.ftz = k.ftz && k.approx;
  if (op_ == Op::kRcp && k.t == Ty::kF64) k.approx = k.approx && k.ftz;
  Ty result = k.t;
  if (wide) result = wider(k.t);
  Ins i = blank();
  i.sub = real_flags(k);
  i.a = widened(operand(1), narrow, k.t);
  if (sources > 1) i.b = widened(operand(2), sources > 2 ? narrow : k.t, k.t);
  if (sources > 2) i.c = source(3, wide ? result : k.t);
  i.d = destination(0u, result);
  emit(i, pick(k));
}

// A source of type `from`, converted to `to` when that is another type.
uint32_t Body::widened(const Operand& o, Ty from, Ty to) {
  if (from == to) return source(o, to);
  Key k{Op::kCvt};
  k.t = to;
  k.t2 = from;
  Ins i = blank();
  i.a = source(o, from);
  i.d = temporary(class_of(to));
  const uint32_t d = i.d;
  emit(i, b_.convert(k));
  return d;
}

Ty Body::wider(Ty t) {
  switch (t) {
    case Ty::kU16:
      return Ty::kU32;
    case Ty::kS16:
      return Ty::kS32;
    case Ty::kU32:
      return Ty::kU64;
    case Ty::kS32:
      return Ty::kS64;
    default:
      error("no wider type");
      return t;
  }
}

void Body::carry(Key k, bool hi, bool carry_in, bool carry_out) {
  k.carry_in = carry_in;
  k.carry_out = carry_out;
  k.hi = hi;
  k.op = op_ == Op::kAdd || op_ == Op::kAddCarry   ? Op::kAddCarry
         : op_ == Op::kSub || op_ == Op::kSubCarry ? Op::kSubCarry
                                                   : Op::kMadCarry;
  if (type_bytes(k.t) < 4) return error("bad type");
  const bool mad = k.op == Op::kMadCarry;
  if (!need(mad ? 4 : 3, mad ? 4 : 3)) return;
  Ins i = blank();
  i.a = source(1, k.t);
  i.b = source(2, k.t);
  if (mad) i.c = source(3, k.t);
  i.d = destination(0u, k.t);
  i.e = carry_register();
  i.flags |= kSetsManyRegisters;
  // Read and written at once counts as read: the flag stays alive in place.
  Roles r = Roles{};
  r.e_read = carry_in;
  emit(i, b_.integer(k), r);
}

void Body::carry_in(Parts& p) {  // addc, subc, madc
  Key k{op_};
  const bool hi = p.take("hi");
  p.take("lo");
  const bool cc = p.take("cc");
  k.t = p.take_type();
  if (!finished(p)) return;
  carry(k, hi, true, cc);
}

void Body::shift(Parts& p) {
  Key k{op_};
  k.t = p.take_type();
  if (!finished(p) || !need(3, 3)) return;
  if (type_bytes(k.t) < 2 || type_bytes(k.t) > 8) return error("bad type");
  Ins i = blank();
  i.a = source(1, k.t);
  i.b = source(2, Ty::kU32);
  i.d = destination(0u, k.t);
  emit(i, b_.integer(k));
}

void Body::funnel(Parts& p) {
  Key k{p.take("l") ? Op::kShfLeft : Op::kShfRight};
  p.take("r");
  k.clamp = p.take("clamp");
  p.take("wrap");
  k.t = p.take_type();
  if (!finished(p) || !need(4, 4)) return;
  three_words(k);
}

void Body::three_words(const Key& k) {
  Ins i = blank();
  i.a = source(1, Ty::kB32);
  i.b = source(2, Ty::kB32);
  i.c = source(3, Ty::kB32);
  i.d = destination(0u, Ty::kB32);
  emit(i, b_.integer(k));
}

void Body::permute(Parts& p) {
  static const char* const kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16", nullptr};
  Key k{Op::kPrmt};
  k.mode = (uint8_t)(p.take_one(kModes) + 1);
  k.t = p.take_type();
  if (!finished(p) || !need(4, 4)) return;
  three_words(k);
}

void Body::lop3(Parts& p) {
  static const char* const kCombine[] = {"and", "or", nullptr};
  Key k{Op::kLop3};
  const int combine = p.take_one(kCombine);  // the result's truth with a predicate
  const uint32_t n = combine < 0 ? 5 : 6;
  k.t = p.take_type();
  if (!finished(p) || !need(n, n)) return;
  if ((combine >= 0) != operand(0).pair) return error("wrong number of results");
  if (operand(4).kind != OperandKind::kInteger) return error("the table is not a number");
  Ins i = blank();
  i.a = source(1, Ty::kB32);
  i.b = source(2, Ty::kB32);
  i.c = source(3, Ty::kB32);
  i.d = destination(0u, Ty::kB32);
  i.imm = (int64_t)(operand(4).value & 255);
  const uint32_t result = i.d;
  emit(i, b_.integer(k));
  if (combine < 0) return;
  Key test{Op::kSetp};
  test.t = Ty::kB32;
  test.cmp = Cmp::kNe;
  test.bool_op = combine == 0 ? BoolOp::kAnd : BoolOp::kOr;
  Ins j = blank();
  j.a = result;
  j.b = constant(0, 4);
  j.c = source(5, Ty::kPred);
  j.d = destination(*operand(0).items, Ty::kPred);
  j.sub = (uint16_t)((operand(5).negated ? 1 : 0) | (unsigned)test.bool_op << 4);
  emit(j, b_.integer(test));
}

void Body::dot(Parts& p) {  // dp4a, dp2a
  Key k{op_};
  k.hi = p.take("hi");
  p.take("lo");
  k.t = p.take_type();
  k.t2 = p.take_type();
  if (!finished(p) || !need(4, 4)) return;
  three_words(k);
}

// popc, clz, bfind: a 32-bit result; brev: the type's own.
void Body::count_bits(Parts& p) {
  Key k{op_};
  k.shiftamt = p.take("shiftamt");
  k.t = p.take_type();
  if (!finished(p) || !need(2, 2)) return;
  if (type_bytes(k.t) < 4) return error("bad type");
  Ins i = blank();
  i.a = source(1, k.t);
  i.d = destination(0u, op_ == Op::kBrev ? k.t : Ty::kB32);
  emit(i, b_.integer(k));
}

void Body::field(Parts& p) {  // bfe, bfi
  Key k{op_};
  k.t = p.take_type();
  const bool insert = op_ == Op::kBfi;
  if (!finished(p) || !need(insert ? 5 : 4, insert ? 5 : 4)) return;
  if (type_bytes(k.t) < 4) return error("bad type");
  Ins i = blank();
  i.a = source(1, k.t);
  i.b = source(2, insert ? k.t : Ty::kU32);
  i.c = source(3, Ty::kU32);
  Roles r = Roles{};
  if (insert) {
    i.e = source(4, Ty::kU32);
    r.e_read = true;
  }
  i.d = destination(0u, k.t);
  emit(i, b_.integer(k), r);
}

void Body::mask_field(Parts& p) {  // bmsk, szext, fns
  Key k{op_};
  k.clamp = p.take("clamp");
  p.take("wrap");
  k.t = p.take_type();
  if (!finished(p)) return;
  if (op_ == Op::kFns) {
    if (need(4, 4)) three_words(k);
    return;
  }
  if (!need(3, 3)) return;
  Ins i = blank();
  i.a = source(1, Ty::kB32);
  i.b = source(2, Ty::kB32);
  i.d = destination(0u, Ty::kB32);
  emit(i, b_.integer(k));
}

bool Body::comparison(Parts& p, Key* k) {
  static const char* const kCmp[] = {"eq",  "ne",  "lt",  "le",  "gt",   "ge",  "lo",
                                     "ls",  "hi",  "hs",  "equ", "neu",  "ltu", "leu",
                                     "gtu", "geu", "num", "nan", nullptr};
  static const char* const kBool[] = {"and", "or", "xor", nullptr};
  int c = p.take_one(kCmp);
  if (c < 0) {
    error("no comparison");
    return false;
  }
  k->cmp = (Cmp)c;
  k->bool_op = (BoolOp)(p.take_one(kBool) + 1);
  k->ftz = p.take("ftz");
  return true;
}

void Body::setp(Parts& p) {
  Key k{Op::kSetp};
  if (!comparison(p, &k)) return;
  k.t = p.take_type();
  const uint32_t n = k.bool_op == BoolOp::kNo ? 3 : 4;
  if (!finished(p) || !need(n, n)) return;
  const Operand& d = operand(0);
  k.second = d.pair;
  Ins i = blank();
  i.a = source(1, k.t);
  i.b = source(2, k.t);
  if (n == 4) i.c = source(3, Ty::kPred);
  i.d = destination(d, Ty::kPred);
  if (d.pair) i.e = destination(*d.items, Ty::kPred);
  const bool negated = n == 4 && operand(3).negated;
  i.sub = (uint16_t)((negated ? 1 : 0) | (unsigned)k.bool_op << 4);
  i.flags |= d.pair ? kSetsManyRegisters : 0;
  if (is_half(k.t)) {
    i.imm = (int64_t)((unsigned)k.cmp | (unsigned)k.bool_op << 8 | (k.ftz ? 1u << 16 : 0) |
                      (negated ? 1u << 17 : 0));
    emit(i, b_.real(k));
  } else {
    emit(i, b_.integer(k));
  }
}

void Body::set(Parts& p) {
  Key k{Op::kSet};
  if (!comparison(p, &k)) return;
  Ty result = p.take_type();
  Ty t = p.take_type();
  const uint32_t n = k.bool_op == BoolOp::kNo ? 3 : 4;
  if (!finished(p) || !need(n, n)) return;
  if (class_of(result) != 0 || t == Ty::kNone) return error("bad type");
  Ins i = blank();
  i.a = source(1, t);
  i.b = source(2, t);
  i.d = destination(0u, result);
  if (is_half(t)) {
    if (n == 4) return error("a predicate operand is not supported");
    k.t = result;
    k.t2 = t;
    i.imm = (int64_t)((unsigned)k.cmp | (k.ftz ? 1u << 16 : 0));
    const bool two = t == Ty::kF16x2 || t == Ty::kBF16x2;
    i.sub = is_half(result) ? 0 : result == Ty::kF32 ? 3 : two || type_bytes(result) == 2 ? 1 : 2;
    emit(i, b_.real(k));
    return;
  }
  k.t = t;
  if (n == 4) i.c = source(3, Ty::kPred);
  i.sub = (uint16_t)((n == 4 && operand(3).negated ? 1 : 0) | (result == Ty::kF32 ? 2 : 0) |
                     (unsigned)k.bool_op << 4);
  emit(i, b_.integer(k));
}

void Body::select(Parts& p) {  // selp, slct
  Key k{op_};
  k.ftz = p.take("ftz");
  k.t = p.take_type();
  if (op_ == Op::kSlct) k.t2 = p.take_type();
  if (!finished(p) || !need(4, 4)) return;
  Ins i = blank();
  i.a = source(1, k.t);
  i.b = source(2, k.t);
  if (op_ == Op::kSelp && operand(3).negated) {
    uint32_t x = i.a;
    i.a = i.b;
    i.b = x;
  }
  i.c = source(3, op_ == Op::kSelp ? Ty::kPred : k.t2);
  i.d = destination(0u, k.t);
  emit(i, b_.integer(k));
}

}  // namespace simgpu::ptx
