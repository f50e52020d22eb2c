// Lowering of moves, packing and conversions.
#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

void Body::move(Parts& p) {
  Key k{Op::kMov};
  p.take("volatile");
  k.t = p.take_type();
  if (!finished(p) || !need(2, 2)) return;
  if (k.t == Ty::kNone) return error("no type");
  if (operand(1).kind == OperandKind::kList) return pack(k.t);
  if (operand(0).kind == OperandKind::kList) return unpack(k.t);
  Ins i = blank();
  if (operand(1).kind == OperandKind::kSpecial) {
    i.d = destination(0u, k.t);
    i.n = k.t == Ty::kPred ? 1 : type_bytes(k.t) == 8 ? 8 : 4;
    i.imm = operand(1).special;
    emit(i, op_special);
    return;
  }
  i.a = source(1, k.t);
  i.d = destination(0u, k.t);
  if (k.t == Ty::kPred && operand(1).negated) k.op = Op::kNot;
  emit(i, b_.integer(k));
}

Ty Body::part_type(Ty whole, uint32_t count) {
  unsigned each = count == 0 ? 0 : type_bytes(whole) / count;
  if (each * count != type_bytes(whole)) each = 0;
  switch (each) {
    case 1:
      return Ty::kB8;
    case 2:
      return Ty::kB16;
    case 4:
      return Ty::kB32;
    case 8:
      return Ty::kB64;
    default:
      error("the list does not fit the type");
      return Ty::kB32;
  }
}

uint32_t* Body::list(const Operand& o) { return m_.syntax.arena.make<uint32_t>(o.count + 1); }

void Body::pack(Ty t) {
  const Operand& o = operand(1);
  Ty part = part_type(t, o.count);
  if (failed_) return;
  Key k{Op::kPack};
  k.t = t;
  Ins i = blank();
  if (o.count == 2 && type_bytes(part) == 2) k.mode = 1;
  if (o.count == 2 && type_bytes(part) == 4) k.mode = 2;
  Roles r = Roles{};
  if (k.mode != 0) {
    i.a = source(o.items[0], part);
    i.b = source(o.items[1], part);
  } else {
    i.list = list(o);
    for (uint32_t x = 0; x < o.count; ++x) i.list[x] = source(o.items[x], part);
    r.list_count = (uint8_t)o.count;
    i.n = (uint8_t)o.count;
    i.sub = (uint16_t)(type_bytes(part) * 8);
    i.flags |= kSetsManyRegisters;
  }
  i.d = destination(0u, t);
  emit(i, b_.integer(k), r);
}

void Body::unpack(Ty t) {
  const Operand& o = operand(0);
  Ty part = part_type(t, o.count);
  if (failed_) return;
  Key k{Op::kUnpack};
  k.t = t;
  Ins i = blank();
  i.a = source(1, t);
  i.list = list(o);
  for (uint32_t x = 0; x < o.count; ++x)
    i.list[x] = o.items[x].kind == OperandKind::kSink ? kNone : destination(o.items[x], part);
  i.n = (uint8_t)o.count;
  i.sub = (uint16_t)(type_bytes(part) * 8);
  i.flags |= kSetsManyRegisters;
  if (o.count == 2 && type_bytes(part) == 4) k.mode = 2;
  Roles r = Roles{};
  r.list_count = r.list_written = (uint8_t)o.count;
  emit(i, b_.integer(k), r);
}

void Body::convert(Parts& p) {
  if (p.take("pack")) return convert_pack(p);
  Key k{Op::kCvt};
  k.round = rounding(p);
  k.integral = integral_;
  k.ftz = p.take("ftz");
  k.sat = p.take("sat");
  k.relu = p.take("relu");
  const bool finite = p.take("satfinite");
  k.oob = finite;
  k.t = p.take_type();
  k.t2 = p.take_type();
  if (!finished(p)) return;
  if (k.t == Ty::kNone || k.t2 == Ty::kNone) return error("a conversion needs two types");
  Ins i = blank();
  const unsigned flags = (k.ftz ? 1u : 0) | (k.sat ? 2u : 0) | (k.relu ? 4u : 0) |
                         (k.integral && is_real(k.t) && is_real(k.t2) ? 8u : 0) |
                         (finite ? 16u : 0);
  i.imm = (int64_t)((uint64_t)k.t2 | (uint64_t)k.t << 8 | (uint64_t)k.round << 16 |
                    (uint64_t)flags << 24);
  const bool small = k.t == Ty::kE4M3x2 || k.t == Ty::kE5M2x2 || k.t == Ty::kUE8M0x2 ||
                     k.t == Ty::kE2M1x2 || k.t == Ty::kE2M3x2 || k.t == Ty::kE3M2x2;
  const bool pair = k.t == Ty::kF16x2 || k.t == Ty::kBF16x2 || small;
  if (pair) {
    const bool two = k.t2 == Ty::kF32;
    if (!need(two ? 3 : 2, two ? 3 : 2)) return;
    i.sub = k.t == Ty::kE4M3x2 || k.t2 == Ty::kE4M3x2;
    i.a = source(1, k.t2);
    if (two) i.b = source(2, k.t2);
    i.d = destination(0u, k.t);
    emit(i, b_.convert(k));
    return;
  }
  if (!need(2, 2)) return;
  if (k.t == Ty::kPred || k.t2 == Ty::kPred || type_bytes(k.t) > 8 || type_bytes(k.t2) > 8)
    return error("bad type");
  i.a = narrow_source(operand(1), k.t2);
  const Operand& d = operand(0);
  if (d.kind != OperandKind::kRegister) return error("the destination is no register");
  const unsigned have = register_class(d);
  const Ty declared = s_.registers[d.reg].type;
  if (have == class_of(k.t) &&
      !(type_bytes(k.t) < 4 && type_bytes(declared) == 4 && is_signed(k.t))) {
    i.d = kVirtual | d.reg;
    emit(i, b_.convert(k));
    return;
  }
  if (have < class_of(k.t) || have > 1) return error("the destination is too narrow");
  // A wider register: extend what the conversion gives.
  i.d = temporary(0);
  Ins extend = blank();
  extend.a = i.d;
  extend.d = kVirtual | d.reg;
  Key x{Op::kCvt};
  x.t2 = k.t;
  x.t = have == 1 ? (is_signed(k.t) ? Ty::kS64 : Ty::kU64) : is_signed(k.t) ? Ty::kS32 : Ty::kU32;
  emit(i, b_.convert(k));
  emit(extend, b_.convert(x));
}

void Body::convert_pack(Parts& p) {
  Key k{Op::kCvtPack};
  p.take("sat");
  unsigned width = 0;
  bool is_s = false;
  static const char* const kTypes[] = {"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2", nullptr};
  int t = p.take_one(kTypes);
  if (t < 0) return error("bad type");
  width = t < 2 ? 16 : t < 4 ? 8 : t < 6 ? 4 : 2;
  is_s = t & 1;
  p.take("s32");
  p.take("b32");
  if (!finished(p) || !need(3, 4)) return;
  Ins i = blank();
  i.a = source(1, Ty::kS32);
  i.b = source(2, Ty::kS32);
  if (in_->operand_count == 4) i.c = source(3, Ty::kB32);
  i.d = destination(0u, Ty::kB32);
  i.sub = (uint16_t)(width | (is_s ? 64 : 0));
  emit(i, b_.convert(k));
}

void Body::copysign(Parts& p) {
  Key k{Op::kCopysign};
  k.t = p.take_type();
  if (!finished(p) || !need(3, 3)) return;
  Ins i = blank();
  i.a = source(1, k.t);
  i.b = source(2, k.t);
  i.d = destination(0u, k.t);
  emit(i, b_.real(k));
}

void Body::testp(Parts& p) {
  static const char* const kClasses[] = {"finite", "infinite",  "number", "notanumber",
                                         "normal", "subnormal", nullptr};
  Key k{Op::kTestp};
  int which = p.take_one(kClasses);
  k.t = p.take_type();
  if (!finished(p) || !need(2, 2)) return;
  if (which < 0) return error("no class");
  Ins i = blank();
  i.sub = (uint16_t)which;
  i.a = source(1, k.t);
  i.d = destination(0u, Ty::kPred);
  emit(i, b_.real(k));
}

}  // namespace simgpu::ptx
