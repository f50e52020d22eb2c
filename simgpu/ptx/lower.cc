// One PTX instruction at a time to handlers and operands. What is not known is an error with its
// name and line.
#include "lower.h"

#include "async.h"
#include "control.h"
#include "images.h"

#include <stdarg.h>
#include <stdio.h>

namespace simgpu::ptx {

void fill_constant(uint8_t* at, uint64_t value, unsigned bytes) {
  for (unsigned l = 0; l < kLanes; ++l) {
    if (bytes == 8)
      memcpy(at + l * 8, &value, 8);
    else
      memcpy(at + l * 4, &value, 4);
  }
}

uint32_t Constants::place(unsigned bytes) {
  auto offset = (uint32_t)(data_.size() * 8);
  data_.resize(data_.size() + bytes * kLanes / 8);
  return offset;
}
void Constants::fill(uint32_t offset, uint64_t value, unsigned bytes) {
  fill_constant(reinterpret_cast<uint8_t*>(data_.data()) + offset, value, bytes);
}
uint32_t Constants::number(uint64_t value, unsigned bytes) {
  if (bytes == 4) value &= 0xffffffffu;
  if (slots_.size() < (used_ + 1) * 2) {
    Vec<Slot> old;
    for (const Slot& s : slots_)
      if (s.bytes != 0) old.push(s);
    size_t room = slots_.size() * 2 < 256 ? 256 : slots_.size() * 2;
    slots_.clear();
    slots_.resize(room);
    for (const Slot& s : old) {
      size_t i = (s.value * 0x9e3779b97f4a7c15ull >> 20) + s.bytes;
      while (slots_[i & (room - 1)].bytes != 0) ++i;
      slots_[i & (room - 1)] = s;
    }
  }
  size_t mask = slots_.size() - 1;
  for (size_t i = (value * 0x9e3779b97f4a7c15ull >> 20) + bytes;; ++i) {
    Slot& s = slots_[i & mask];
    if (s.bytes == bytes && s.value == value) return s.offset;
    if (s.bytes != 0) continue;
    s = Slot{value, place(bytes), bytes};
    fill(s.offset, value, bytes);
    ++used_;
    return s.offset;
  }
}

namespace {

constexpr uint32_t kConstant = 0x80000000u;

bool is_half(Ty t) {
  return t == Ty::kF16 || t == Ty::kF16x2 || t == Ty::kBF16 || t == Ty::kBF16x2;
}
bool is_real(Ty t) { return is_half(t) || t == Ty::kF32 || t == Ty::kF64 || t == Ty::kF32x2; }
bool is_signed(Ty t) { return t == Ty::kS8 || t == Ty::kS16 || t == Ty::kS32 || t == Ty::kS64; }
unsigned class_of(Ty t) {
  unsigned n = type_bytes(t);
  return n <= 4 ? 0 : n == 8 ? 1 : 2;
}

// An opcode split at its dots. Each part must be taken by somebody; one left over is an unknown
// modifier.
class Parts {
 public:
  explicit Parts(Text opcode) {
    uint32_t begin = 0;
    for (uint32_t i = 0; i <= opcode.size; ++i)
      if (i == opcode.size || opcode[i] == '.') {
        if (count_ < kMost) parts_[count_++] = Text(opcode.data + begin, i - begin);
        begin = i + 1;
      }
    used_[0] = true;
  }
  Text base() const { return parts_[0]; }
  bool take(Text name) {
    for (unsigned i = 1; i < count_; ++i)
      if (!used_[i] && parts_[i] == name) {
        used_[i] = true;
        return true;
      }
    return false;
  }
  bool has(Text name) const {
    for (unsigned i = 1; i < count_; ++i)
      if (parts_[i] == name) return true;
    return false;
  }
  // The first of `names` (ended by null) that is there; -1 if none.
  int take_one(const char* const* names) {
    for (int k = 0; names[k] != nullptr; ++k)
      if (take(names[k])) return k;
    return -1;
  }
  // Which of `names` stands first in the opcode; -1 if none does.
  int first_of(const char* const* names) const {
    for (unsigned i = 1; i < count_; ++i)
      for (int k = 0; names[k] != nullptr; ++k)
        if (parts_[i] == names[k]) return k;
    return -1;
  }
  void take_prefix(Text prefix) {
    for (unsigned i = 1; i < count_; ++i)
      if (parts_[i].starts(prefix)) used_[i] = true;
  }
  Ty take_type() {
    for (unsigned i = 1; i < count_; ++i) {
      Ty t;
      if (!used_[i] && type_from(parts_[i], &t)) {
        used_[i] = true;
        return t;
      }
    }
    return Ty::kNone;
  }
  const Text* left() const {
    for (unsigned i = 1; i < count_; ++i)
      if (!used_[i]) return &parts_[i];
    return nullptr;
  }

 private:
  static constexpr unsigned kMost = 20;
  Text parts_[kMost];
  bool used_[kMost] = {};
  unsigned count_ = 0;
};

class Body {
 public:
  Body(Lowering* l, Function* f) : l_(*l), m_(*l->module), f_(f), s_(*f->syntax), b_(backend()) {}

  bool run() {
    for (const RegisterSyntax& r : s_.registers) d_.classes.push((uint8_t)class_of(r.type));
    frame();
    for (uint32_t k = 0; k < s_.labels.size(); ++k) d_.labels.push(0);
    uint32_t label = 0;
    uint32_t before = l_.log->errors();
    static const InstructionSyntax kBegin{};
    in_ = &kBegin;
    if (!s_.entry)
      for (Symbol* v : s_.params)
        if (v->count != 0) frame_access(v->type, v->offset, kVirtual | v->first, true);
    for (uint32_t k = 0; k < s_.body.size(); ++k) {
      for (; label < s_.labels.size() && s_.labels[label]->at <= k; ++label)
        d_.labels[label] = (uint32_t)d_.code.size();
      in_ = &s_.body[k];
      instruction();
      if (l_.log->errors() > before + 20) return false;
    }
    for (; label < s_.labels.size(); ++label) d_.labels[label] = (uint32_t)d_.code.size();
    in_ = &kBegin;
    give_results();
    control(op_ret, kEndsBlock | kNoFallThrough);
    if (l_.log->errors() != before) return false;
    return finish_function(&l_, f_, &d_);
  }

 private:
  // ---- errors ----
  __attribute__((format(printf, 2, 3))) void error(const char* format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    Text o = in_->opcode;
    l_.log->error(in_->line, "%s in '%.*s'", text, (int)(o.size > 100 ? 100 : o.size), o.data);
    failed_ = true;
  }
  void operands_missing() { error("wrong number of operands"); }
  bool need(uint32_t least, uint32_t most) {
    if (in_->operand_count >= least && in_->operand_count <= most) return true;
    operands_missing();
    return false;
  }

  // ---- frame ----
  void frame() {
    Arena& arena = m_.syntax.arena;
    uint32_t at = 0;
    auto place = [&](Symbol* v) {
      uint32_t align = v->align < 8 ? 8 : v->align > 128 ? 128 : v->align;
      at = (at + align - 1) & ~(align - 1);
      v->offset = at;
      at += (uint32_t)((v->bytes + 7) & ~7ull);
    };
    for (Symbol* v : s_.variables)
      if ((v->space == Space::kLocal || v->space == Space::kParam) && at < kLocalLimit &&
          v->bytes < kLocalLimit)
        place(v);
      else if (v->space == Space::kLocal || v->space == Space::kParam)
        at = kLocalLimit;
    if (!s_.entry) {
      for (Symbol* v : s_.params) place(v);
      for (Symbol* v : s_.results) place(v);
    }
    if (at >= kLocalLimit) {
      l_.log->error(s_.line, "function '%.*s' needs more than %u KiB of local memory",
                    (int)s_.name.size, s_.name.data, kLocalLimit >> 10);
      at = 0;
    }
    f_->local_bytes = (at + 15) & ~15u;
    if (s_.entry) return;
    auto slots = [&](const Vec<Symbol*>& from, CallSlot** out, uint32_t* count) {
      *count = (uint32_t)from.size();
      *out = arena.make<CallSlot>(from.size() + 1);
      for (uint32_t k = 0; k < from.size(); ++k)
        (*out)[k] = CallSlot{from[k]->offset, (uint32_t)from[k]->bytes};
    };
    slots(s_.params, &f_->params, &f_->param_count);
    slots(s_.results, &f_->results, &f_->result_count);
  }

  // ---- emitting ----
  static Ins blank() {
    Ins i{};
    i.d = i.a = i.b = i.c = i.e = i.g = kNone;
    i.n = 1;
    return i;
  }
  uint32_t temporary(unsigned cls) {
    d_.classes.push((uint8_t)cls);
    return kVirtual | (uint32_t)(d_.classes.size() - 1);
  }
  // A data instruction: runs under the guard, if any.
  void emit(Ins i, Fn fn, Roles roles = {}) {
    if (failed_) return;
    if (fn == nullptr) return error("this combination of types and modifiers is not supported");
    i.line = in_->line;
    i.fn = fn;
    if (in_->guarded) {
      if (i.g != kNone) return error("internal: guard and member mask");
      i.fn = op_guarded;
      i.inner = fn;
      i.g = kVirtual | in_->guard;
      if (in_->guard_negated) i.flags |= kGuardNegated;
    }
    d_.code.push(i);
    d_.roles.push(roles);
  }
  // An instruction that changes where lanes are: a guard becomes a branch around it.
  void control(Ins i, Fn fn, uint8_t flags, Roles roles = {}) {
    if (failed_) return;
    uint32_t skip = kNone;
    if (in_->guarded) {
      skip = new_label();
      Ins jump = blank();
      jump.line = in_->line;
      jump.fn = op_branch;
      jump.g = kVirtual | in_->guard;
      jump.flags = (uint8_t)(kEndsBlock | kConditional | (in_->guard_negated ? 0 : kGuardNegated));
      jump.imm = skip;
      d_.code.push(jump);
      d_.roles.push(Roles{});
    }
    i.line = in_->line;
    i.fn = fn;
    i.flags |= flags;
    d_.code.push(i);
    d_.roles.push(roles);
    if (skip != kNone) d_.labels[skip] = (uint32_t)d_.code.size();
  }
  void control(Fn fn, uint8_t flags) { control(blank(), fn, flags); }
  uint32_t new_label() {
    d_.labels.push((uint32_t)d_.code.size());
    return (uint32_t)d_.labels.size() - 1;
  }

  // ---- operands ----
  const Operand& operand(uint32_t k) {
    static const Operand kMissing{};
    return k < in_->operand_count ? in_->operands[k] : kMissing;
  }
  unsigned register_class(const Operand& o) const { return d_.classes[o.reg]; }
  bool is_predicate(const Operand& o) const {
    return o.kind == OperandKind::kRegister && s_.registers[o.reg].type == Ty::kPred;
  }

  uint64_t number_as(const Operand& o, Ty t) {
    uint64_t v = o.value;
    double d;
    float f;
    if (t == Ty::kF64) {
      if (o.kind == OperandKind::kFloat64) return v;
      if (o.kind == OperandKind::kFloat32) {
        uint32_t w = (uint32_t)v;
        memcpy(&f, &w, 4);
        d = f;
      } else {
        d = (double)(int64_t)v;
      }
      memcpy(&v, &d, 8);
      return v;
    }
    if (t == Ty::kF32) {
      uint32_t w = (uint32_t)v;
      if (o.kind == OperandKind::kFloat32) return w;
      if (o.kind == OperandKind::kFloat64) {
        memcpy(&d, &v, 8);
        f = (float)d;
      } else {
        f = (float)(int64_t)v;
      }
      memcpy(&w, &f, 4);
      return w;
    }
    if (t == Ty::kPred) return v != 0 ? ~0u : 0u;
    unsigned n = type_bytes(t);
    if (n < 4) v &= (1ull << (8 * n)) - 1;
    return v;
  }

  uint32_t constant(uint64_t v, unsigned bytes) {
    return kConstant | l_.constants.number(v, bytes);
  }

  // The address of a symbol as a value of 4 or 8 bytes.
  uint32_t symbol_value(Symbol* v, uint64_t addend, unsigned bytes) {
    if (v->kind == SymbolKind::kFunction ||
        (v->kind == SymbolKind::kVariable &&
         (v->space == Space::kGlobal || v->space == Space::kConst))) {
      if (bytes != 8) {
        error("the address of '%.*s' needs 64 bits", (int)v->name.size, v->name.data);
        return 0;
      }
      uint32_t at = l_.constants.place(8);
      m_.relocations.push({at, v, (int64_t)addend});
      return kConstant | at;
    }
    if (v->kind != SymbolKind::kVariable) {
      error("'%.*s' has no address", (int)v->name.size, v->name.data);
      return 0;
    }
    if (v->space == Space::kShared) return shared_value(v, addend, bytes);
    // Local variables and parameters.
    if (v->entry_param) return constant(kParamWindow | (v->offset + addend), bytes);
    if (v->owner != &s_) {
      error("'%.*s' belongs to another function", (int)v->name.size, v->name.data);
      return 0;
    }
    Ins i = blank();
    i.d = temporary(bytes == 8 ? 1 : 0);
    i.n = (uint8_t)bytes;
    i.imm = (int64_t)(v->offset + addend);
    i.sub = v->space == Space::kParam;
    uint32_t d = i.d;
    emit(i, op_local_address);
    return d;
  }

  uint32_t shared_value(Symbol* v, uint64_t addend, unsigned bytes) {
    if (v->unsized || v->external) {
      f_->uses_dynamic_shared = true;
      if (!s_.entry) {
        Ins i = blank();
        i.d = temporary(bytes == 8 ? 1 : 0);
        i.n = (uint8_t)bytes;
        i.imm = (int64_t)addend;
        uint32_t d = i.d;
        emit(i, op_dynamic_shared);
        return d;
      }
    } else {
      bool known = false;
      for (Symbol* x : f_->shared_used) known |= x == v;
      if (!known) f_->shared_used.push(v);
    }
    uint32_t at = l_.constants.place(bytes);
    l_.shared.push({at, bytes, v, (int64_t)addend, f_});
    return kConstant | at;
  }

  // A source of type t.
  uint32_t source(const Operand& o, Ty t) {
    const unsigned bytes = class_of(t) == 0 ? 4 : type_bytes(t);
    switch (o.kind) {
      case OperandKind::kRegister:
        if (d_.classes[o.reg] != class_of(t) ||
            (s_.registers[o.reg].type == Ty::kPred) != (t == Ty::kPred)) {
          error("operand '%.*s' does not fit the type", (int)o.name.size, o.name.data);
          return 0;
        }
        if (o.negated && t != Ty::kPred) error("'!' on a register that is no predicate");
        return kVirtual | o.reg;
      case OperandKind::kInteger:
      case OperandKind::kFloat32:
      case OperandKind::kFloat64:
        if (bytes > 8) {
          error("128-bit constants are not supported");
          return 0;
        }
        return constant(number_as(o, t), bytes);
      case OperandKind::kSpecial: {
        Ins i = blank();
        i.d = temporary(bytes == 8 ? 1 : 0);
        i.n = t == Ty::kPred ? 1 : (uint8_t)bytes;
        i.imm = o.special;
        uint32_t d = i.d;
        emit(i, op_special);
        return d;
      }
      case OperandKind::kSymbol:
        return symbol_value(o.symbol, o.value, bytes);
      case OperandKind::kName:
        if (Symbol* v = m_.syntax.symbols.find(o.name)) return symbol_value(v, o.value, bytes);
        error("undefined name '%.*s'", (int)o.name.size, o.name.data);
        return 0;
      default:
        error("bad operand");
        return 0;
    }
  }
  uint32_t source(uint32_t k, Ty t) {
    if (k >= in_->operand_count) {
      operands_missing();
      return 0;
    }
    return source(in_->operands[k], t);
  }
  // A source whose register may be wider than the type: the low part counts.
  uint32_t narrow_source(const Operand& o, Ty t) {
    if (o.kind != OperandKind::kRegister || class_of(t) != 0 || register_class(o) != 1)
      return source(o, t);
    Ins i = blank();
    i.a = kVirtual | o.reg;
    i.d = temporary(0);
    Key key{Op::kCvt};
    key.t = Ty::kU32;
    key.t2 = Ty::kU64;
    uint32_t d = i.d;
    emit(i, b_.convert(key));
    return d;
  }
  uint32_t destination(const Operand& o, Ty t) {
    if (o.kind == OperandKind::kSink) return temporary(class_of(t));
    if (o.kind != OperandKind::kRegister) {
      error("the destination is no register");
      return 0;
    }
    if (d_.classes[o.reg] != class_of(t) ||
        (s_.registers[o.reg].type == Ty::kPred) != (t == Ty::kPred)) {
      error("destination '%.*s' does not fit the type", (int)o.name.size, o.name.data);
      return 0;
    }
    return kVirtual | o.reg;
  }
  uint32_t destination(uint32_t k, Ty t) {
    if (k >= in_->operand_count) {
      operands_missing();
      return 0;
    }
    return destination(in_->operands[k], t);
  }
  // The flag that add.cc and friends pass on.
  uint32_t carry_register() {
    if (carry_ == kNone) carry_ = temporary(0);
    return carry_;
  }

  Fn pick(const Key& k) {
    Fn fn = nullptr;
    if (is_real(k.t) || (k.op == Op::kSet && is_half(k.t2))) fn = b_.real(k);
    if (fn == nullptr) fn = b_.integer(k);
    return fn;
  }

  // ---- modifiers ----
  Round rounding(Parts& p) {
    static const char* const kNames[] = {"rn",  "rz",  "rm",  "rp",  "rna",
                                         "rni", "rzi", "rmi", "rpi", nullptr};
    switch (p.take_one(kNames)) {
      case 0:
        return Round::kNearest;
      case 1:
        return Round::kZero;
      case 2:
        return Round::kDown;
      case 3:
        return Round::kUp;
      case 4:
        return Round::kNearestAway;
      case 5:
        integral_ = true;
        return Round::kNearest;
      case 6:
        integral_ = true;
        return Round::kZero;
      case 7:
        integral_ = true;
        return Round::kDown;
      case 8:
        integral_ = true;
        return Round::kUp;
      default:
        return Round::kNone;
    }
  }

  bool finished(Parts& p) {
    if (failed_) return false;
    const Text* t = p.left();
    if (t == nullptr) return true;
    error("unknown modifier '.%.*s'", (int)t->size, t->data);
    return false;
  }

  // ---- instructions ----
  using Method = void (Body::*)(Parts&);
  struct Row {
    const char* name;
    Method method;
    Op op;
  };
  static const Row kRows[];
  static const Row* find_row(Text base);

  void instruction() {
    failed_ = false;
    integral_ = false;
    Parts p(in_->opcode);
    const Row* row = find_row(p.base());
    if (row == nullptr) return refuse(p.base());
    op_ = row->op;
    (this->*row->method)(p);
  }

  void refuse(Text base) {
    static const char* const kTensor[] = {"mma",      "wmma",      "wgmma",   "ldmatrix",
                                          "stmatrix", "movmatrix", "tcgen05", "tensormap",
                                          "multimem", "st.bulk",   nullptr};
    for (int k = 0; kTensor[k] != nullptr; ++k)
      if (base == kTensor[k])
        return error("tensor-core and bulk-copy instructions are not supported:");
    error("unknown instruction");
  }

  uint16_t real_flags(const Key& k) {
    if (is_half(k.t))
      return (uint16_t)((k.ftz ? 1 : 0) | (k.sat ? 2 : 0) | (k.relu ? 4 : 0) | (k.nan ? 8 : 0) |
                        (k.xorsign ? 16 : 0));
    return (uint16_t)((unsigned)k.round | (k.ftz ? 8 : 0) | (k.sat ? 16 : 0));
  }

  // add, sub, mul, mad, fma, div, rem, min, max, abs, neg and the functions of one argument.
  void arithmetic(Parts& p) {
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
    if (!finished(p)) return;
    if (k.t == Ty::kNone) return error("no type");
    if (op_ == Op::kMad && is_real(k.t)) k.op = Op::kFma;
    if (op_ == Op::kFma && !is_real(k.t)) return error("fma of integers");
    if (is_real(k.t) && (wide || hi || cc))
      return error("integer modifier on a floating-point type");
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
    i.a = source(1, k.t);
    if (sources > 1) i.b = source(2, k.t);
    if (sources > 2) i.c = source(3, wide ? result : k.t);
    i.d = destination(0u, result);
    emit(i, pick(k));
  }
  Ty wider(Ty t) {
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

  void carry(Key k, bool hi, bool carry_in, bool carry_out) {
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
  void carry_in(Parts& p) {  // addc, subc, madc
    Key k{op_};
    const bool hi = p.take("hi");
    p.take("lo");
    const bool cc = p.take("cc");
    k.t = p.take_type();
    if (!finished(p)) return;
    carry(k, hi, true, cc);
  }

  void shift(Parts& p) {
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
  void funnel(Parts& p) {
    Key k{p.take("l") ? Op::kShfLeft : Op::kShfRight};
    p.take("r");
    k.clamp = p.take("clamp");
    p.take("wrap");
    k.t = p.take_type();
    if (!finished(p) || !need(4, 4)) return;
    three_words(k);
  }
  void three_words(const Key& k) {
    Ins i = blank();
    i.a = source(1, Ty::kB32);
    i.b = source(2, Ty::kB32);
    i.c = source(3, Ty::kB32);
    i.d = destination(0u, Ty::kB32);
    emit(i, b_.integer(k));
  }
  void permute(Parts& p) {
    static const char* const kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16", nullptr};
    Key k{Op::kPrmt};
    k.mode = (uint8_t)(p.take_one(kModes) + 1);
    k.t = p.take_type();
    if (!finished(p) || !need(4, 4)) return;
    three_words(k);
  }
  void lop3(Parts& p) {
    Key k{Op::kLop3};
    k.t = p.take_type();
    if (!finished(p) || !need(5, 5)) return;
    if (operand(4).kind != OperandKind::kInteger) return error("the table is not a number");
    Ins i = blank();
    i.a = source(1, Ty::kB32);
    i.b = source(2, Ty::kB32);
    i.c = source(3, Ty::kB32);
    i.d = destination(0u, Ty::kB32);
    i.imm = (int64_t)(operand(4).value & 255);
    emit(i, b_.integer(k));
  }
  void dot(Parts& p) {  // dp4a, dp2a
    Key k{op_};
    k.hi = p.take("hi");
    p.take("lo");
    k.t = p.take_type();
    k.t2 = p.take_type();
    if (!finished(p) || !need(4, 4)) return;
    three_words(k);
  }
  // popc, clz, bfind: a 32-bit result; brev: the type's own.
  void count_bits(Parts& p) {
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
  void field(Parts& p) {  // bfe, bfi
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
  void mask_field(Parts& p) {  // bmsk, szext, fns
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

  bool comparison(Parts& p, Key* k) {
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
  void setp(Parts& p) {
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
  void set(Parts& p) {
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
  void select(Parts& p) {  // selp, slct
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

  // ---- moves ----
  void move(Parts& p) {
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
  Ty part_type(Ty whole, uint32_t count) {
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
  uint32_t* list(const Operand& o) {
    (void)o;
    return m_.syntax.arena.make<uint32_t>(o.count + 1);
  }
  void pack(Ty t) {
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
  void unpack(Ty t) {
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

  // ---- conversions ----
  void convert(Parts& p) {
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
    const bool small = k.t == Ty::kE4M3x2 || k.t == Ty::kE5M2x2;
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
  void convert_pack(Parts& p) {
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
  // vadd2, vabsdiff4 and so on: two or four parts of a word.
  void video(Parts& p) {
    static const char* const kOps[] = {"vadd", "vsub", "vavrg", "vabsdiff",
                                       "vmin", "vmax", nullptr};
    const Text base = p.base();
    unsigned op = 0;
    while (kOps[op] != nullptr && Text(base.data, base.size - 1) != kOps[op]) ++op;
    const Ty d = p.take_type(), a = p.take_type(), b = p.take_type();
    const bool sat = p.take("sat"), add = p.take("add");
    if (!finished(p) || !need(4, 4)) return;
    Ins i = blank();
    i.a = source(1, a);
    i.b = source(2, b);
    i.c = source(3, Ty::kB32);
    i.d = destination(0u, d);
    i.sub =
        (uint16_t)(op | (is_signed(a) ? 8 : 0) | (is_signed(b) ? 16 : 0) | (is_signed(d) ? 32 : 0) |
                   (sat ? 64 : 0) | (add ? 128 : 0) | (base[base.size - 1] == '4' ? 256 : 0));
    emit(i, b_.integer(Key{Op::kVideo}));
  }
  void copysign(Parts& p) {
    Key k{Op::kCopysign};
    k.t = p.take_type();
    if (!finished(p) || !need(3, 3)) return;
    Ins i = blank();
    i.a = source(1, k.t);
    i.b = source(2, k.t);
    i.d = destination(0u, k.t);
    emit(i, b_.real(k));
  }
  void testp(Parts& p) {
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

  // ---- memory ----
  Space space(Parts& p) {
    if (p.take("global")) return Space::kGlobal;
    if (p.take("const")) return Space::kConst;
    if (p.take("shared") || p.take("shared::cta") || p.take("shared::cluster"))
      return Space::kShared;
    if (p.take("local")) return Space::kLocal;
    if (p.take("param") || p.take("param::entry") || p.take("param::func")) return Space::kParam;
    return Space::kGeneric;
  }
  // Ordering, scope and cache words. True when the access is ordered or volatile.
  bool access_words(Parts& p) {
    static const char* const kOrder[] = {"relaxed", "acquire", "release", "acq_rel", "volatile",
                                         "mmio",    "cv",      "wt",      nullptr};
    static const char* const kOther[] = {"weak", "cta", "cluster", "gpu", "sys",     "ca",   "cg",
                                         "cs",   "lu",  "wb",      "nc",  "unified", nullptr};
    bool ordered = false;
    while (p.take_one(kOrder) >= 0) ordered = true;
    while (p.take_one(kOther) >= 0) {
    }
    p.take_prefix("L1::");
    p.take_prefix("L2::");
    p.take_prefix("level::");
    return ordered;
  }
  unsigned vector(Parts& p) { return p.take("v2") ? 2 : p.take("v4") ? 4 : p.take("v8") ? 8 : 1; }

  // Fills a, imm and sub of an access; may change the space to the symbol's.
  void address(const Operand& o, Space* space, Ins* i) {
    if (o.kind != OperandKind::kAddress) return error("expected an address");
    const Operand& base = *o.items;
    i->imm = (int64_t)o.value;
    switch (base.kind) {
      case OperandKind::kRegister:
        if (register_class(base) > 1 || is_predicate(base)) return error("bad address register");
        i->a = kVirtual | base.reg;
        if (register_class(base) == 0) i->sub |= 1;
        return;
      case OperandKind::kInteger:
        return;
      case OperandKind::kSymbol:
        return symbol_address(base.symbol, space, i);
      case OperandKind::kName:
        if (Symbol* v = m_.syntax.symbols.find(base.name)) return symbol_address(v, space, i);
        return error("undefined name '%.*s'", (int)base.name.size, base.name.data);
      default:
        return error("bad address");
    }
  }
  void symbol_address(Symbol* v, Space* space, Ins* i) {
    if (v->kind != SymbolKind::kVariable)
      return error("'%.*s' is no variable", (int)v->name.size, v->name.data);
    if (*space == Space::kGeneric) *space = v->space;
    if (*space != v->space)
      return error("'%.*s' lies in another space", (int)v->name.size, v->name.data);
    if (v->space == Space::kGlobal || v->space == Space::kConst || v->space == Space::kShared) {
      i->a = symbol_value(v, 0, 8);
      return;
    }
    if (v->entry_param) {
      i->imm += v->offset;
      return;
    }
    if (v->owner != &s_)
      return error("'%.*s' belongs to another function", (int)v->name.size, v->name.data);
    i->imm += v->offset;
    i->sub |= 2;
    *space = Space::kLocal;
  }

  void load(Parts& p) {
    Key k{Op::kLd};
    if (p.base() == "ldu") k.ordered = false;
    k.space = space(p);
    k.ordered = access_words(p);
    k.n = (uint8_t)vector(p);
    k.t = p.take_type();
    if (!finished(p) || !need(2, 3)) return;
    access(k, operand(0), operand(1), true);
  }
  void store(Parts& p) {
    Key k{Op::kSt};
    k.space = space(p);
    k.ordered = access_words(p);
    k.n = (uint8_t)vector(p);
    k.t = p.take_type();
    if (!finished(p) || !need(2, 3)) return;
    access(k, operand(1), operand(0), false);
  }
  void access(Key k, const Operand& value, const Operand& where, bool load) {
    if (k.t == Ty::kNone || k.t == Ty::kPred) return error("bad type");
    Ins i = blank();
    address(where, &k.space, &i);
    if (failed_) return;
    const bool bounds = k.space == Space::kParam && i.a == kNone;
    if (bounds && !s_.entry) return error("parameter of no kernel");
    const unsigned total = type_bytes(k.t) * k.n;
    if (bounds && (i.imm < 0 || (uint64_t)i.imm + total > entry_param_bytes()))
      return error("outside the parameters");
    const Operand* items = &value;
    uint32_t count = 1;
    if (value.kind == OperandKind::kList) {
      items = value.items;
      count = value.count;
    }
    if (count != k.n) return error("the vector has %u elements instead of %u", count, k.n);
    for (uint32_t x = 0; x < count; ++x)
      if (items[x].kind == OperandKind::kRegister) k.wide_reg = register_class(items[x]) == 1;
    if (type_bytes(k.t) == 8) k.wide_reg = true;
    const Ty slot = type_bytes(k.t) == 16  ? Ty::kB128
                    : k.wide_reg           ? Ty::kB64
                    : type_bytes(k.t) == 4 ? k.t
                                           : Ty::kB32;
    Roles r = Roles{};
    auto one = [&](const Operand& o) {
      if (load)
        return o.kind == OperandKind::kSink ? temporary(class_of(slot)) : destination(o, slot);
      if (o.kind == OperandKind::kRegister) return source(o, slot);
      if (k.wide_reg && o.kind == OperandKind::kInteger) return constant(o.value, 8);
      return source(o, k.t);
    };
    i.n = k.n;
    if (k.n == 1) {
      i.d = one(items[0]);
      r.d_read = !load;
    } else {
      i.list = m_.syntax.arena.make<uint32_t>(count);
      for (uint32_t x = 0; x < count; ++x) i.list[x] = one(items[x]);
      r.list_count = (uint8_t)count;
      r.list_written = load ? (uint8_t)count : 0;
    }
    if (type_bytes(k.t) == 16) i.sub |= (uint16_t)((unsigned)k.space << 8);
    // Slow paths write while they still read addresses, so results never share with them.
    i.flags |= kSetsManyRegisters;
    emit(i, b_.memory(k), r);
  }
  uint32_t entry_param_bytes() {
    uint32_t end = 0;
    for (Symbol* v : s_.params)
      end = v->offset + (uint32_t)v->bytes > end ? v->offset + (uint32_t)v->bytes : end;
    return end;
  }

  void atomic(Parts& p) {
    static const char* const kOps[] = {"add",  "min", "max", "and", "or",   "xor",
                                       "exch", "cas", "inc", "dec", nullptr};
    Key k{Op::kAtom};
    const bool red = op_ == Op::kRed;
    k.space = space(p);
    access_words(p);
    int op = p.take_one(kOps);
    k.n = (uint8_t)vector(p);
    p.take("noftz");
    k.t = p.take_type();
    if (!finished(p)) return;
    if (op < 0) return error("no operation");
    if (k.space != Space::kGeneric && k.space != Space::kGlobal && k.space != Space::kShared)
      return error("bad state space");
    k.mode = (uint8_t)op;
    const bool cas = op == kAtomCas;
    const uint32_t first = red ? 0 : 1, n = first + 2 + (cas ? 1 : 0);
    if (!need(n, n + 1)) return;
    Ins i = blank();
    address(operand(first), &k.space, &i);
    if (failed_) return;
    Roles r = Roles{};
    i.n = k.n;
    if (k.n == 1) {
      i.b = source(first + 1, k.t);
      if (cas) i.c = source(first + 2, k.t);
      if (!red && operand(0).kind != OperandKind::kSink) i.d = destination(0u, k.t);
    } else {
      const Operand& b = operand(first + 1);
      if (b.kind != OperandKind::kList || b.count != k.n) return error("bad vector");
      if (!red && (operand(0).kind != OperandKind::kList || operand(0).count != k.n))
        return error("bad vector");
      i.list = m_.syntax.arena.make<uint32_t>(2 * k.n);
      for (uint32_t x = 0; x < k.n; ++x) {
        i.list[x] = red || operand(0).items[x].kind == OperandKind::kSink
                        ? kNone
                        : destination(operand(0).items[x], k.t);
        i.list[k.n + x] = source(b.items[x], k.t);
      }
      r.list_count = (uint8_t)(2 * k.n);
      r.list_written = k.n;
    }
    i.sub |= (uint16_t)((unsigned)k.space << 8 | (cas ? 4 : 0));
    i.flags |= kSetsManyRegisters;
    emit(i, b_.memory(k), r);
  }

  void copy_async(Parts& p) {
    if (p.has("tensor") || p.has("reduce"))
      return error("tensor maps and reducing copies are not supported:");
    p.take("async");
    if (p.take("bulk")) return bulk_copy(p);
    if (p.take("commit_group") || p.take("wait_group") || p.take("wait_all")) {
      if (finished(p)) emit(blank(), op_nop);
      return;
    }
    if (p.has("mbarrier")) return mbarrier_arrive_copy(p);
    Key k{Op::kCpAsync};
    access_words(p);
    p.take("shared");
    p.take("shared::cta");
    p.take("shared::cluster");
    p.take("global");
    if (!finished(p) || !need(3, 5)) return;
    Ins i = blank();
    i.a = plain_address(operand(0), Space::kShared, &i.sub);
    uint16_t ignore = 0;
    i.b = plain_address(operand(1), Space::kGlobal, &ignore);
    if (failed_) return;
    if (ignore) return error("bad address register");
    if (operand(2).kind != OperandKind::kInteger) return error("the size is not a number");
    i.imm = (int64_t)operand(2).value;
    if (i.imm != 4 && i.imm != 8 && i.imm != 16) return error("bad size");
    if (in_->operand_count > 3 && operand(3).kind == OperandKind::kRegister &&
        !is_predicate(operand(3)) && register_class(operand(3)) == 0)
      i.c = source(3, Ty::kB32);
    else if (in_->operand_count > 3 && operand(3).kind == OperandKind::kInteger)
      i.c = source(3, Ty::kB32);
    else if (in_->operand_count > 3 && is_predicate(operand(3)))
      return error("an ignore-src predicate is not supported");
    emit(i, b_.memory(k));
  }
  // An address as a register, its offset added.
  uint32_t plain_address(const Operand& o, Space space, uint16_t* sub) {
    Ins i = blank();
    Space s = space;
    address(o, &s, &i);
    *sub = i.sub;
    if (failed_ || i.a == kNone) {
      if (!failed_) error("bad address");
      return 0;
    }
    if (i.imm == 0) return i.a;
    const bool narrow = i.sub & 1;
    Ins add = blank();
    add.a = i.a;
    add.b = constant((uint64_t)i.imm, narrow ? 4 : 8);
    add.d = temporary(narrow ? 0 : 1);
    Key k{Op::kAdd};
    k.t = narrow ? Ty::kU32 : Ty::kU64;
    uint32_t d = add.d;
    emit(add, b_.integer(k));
    return d;
  }

  void bulk_copy(Parts& p) {
    if (p.take("commit_group") || p.take("wait_group") || p.take("prefetch")) {
      p.take("read");
      p.take_prefix("L2");
      p.take("global");
      if (finished(p)) emit(blank(), op_nop);
      return;
    }
    static const char* const kSpaces[] = {"shared::cta", "shared::cluster", "global", nullptr};
    // The destination's space is named first.
    const bool to_shared = p.first_of(kSpaces) < 2;
    const int first = p.take_one(kSpaces), second = p.take_one(kSpaces);
    const bool told = p.take("mbarrier::complete_tx::bytes");
    p.take("bulk_group");
    p.take_prefix("L2");
    if (!finished(p) || !need(told ? 4 : 3, 5)) return;
    if (first < 0 || second < 0) return error("copies need two state spaces");
    const bool from_shared = first < 2 && second < 2 ? true : !to_shared;
    Ins i = blank();
    uint16_t narrow[3] = {};
    i.a = plain_address(operand(0), to_shared ? Space::kShared : Space::kGlobal, &narrow[0]);
    i.b = plain_address(operand(1), from_shared ? Space::kShared : Space::kGlobal, &narrow[1]);
    i.c = source(2, Ty::kU32);
    Roles r = Roles{};
    r.e_read = true;
    if (told) i.e = plain_address(operand(3), Space::kShared, &narrow[2]);
    i.sub = (uint16_t)((narrow[0] & 1 ? kBulkTo32 : 0) | (narrow[1] & 1 ? kBulkFrom32 : 0) |
                       (narrow[2] & 1 ? kBulkBarrier32 : 0) | (to_shared ? kBulkToShared : 0) |
                       (from_shared ? kBulkFromShared : 0));
    emit(i, op_bulk_copy, r);
  }

  // cp.async.mbarrier.arrive: copies are done at once, so it is an arrival or, where PTX adds one
  // to what is pending first, nothing.
  void mbarrier_arrive_copy(Parts& p) {
    p.take("mbarrier");
    p.take("arrive");
    const bool counts = p.take("noinc");
    const Space where = space(p);
    p.take_type();
    if (!finished(p) || !need(1, 1)) return;
    Ins i = blank();
    i.imm = (int64_t)MbarrierOp::kArrive;
    i.a = plain_address(operand(0), where, &i.sub);
    i.sub = (uint16_t)((i.sub & 1) | (where == Space::kShared ? 2 : 0));
    if (failed_) return;
    if (counts)
      emit(i, op_mbarrier);
    else
      emit(blank(), op_nop);
  }

  void mbarrier(Parts& p) {
    static const char* const kOps[] = {"init",        "inval",     "arrive",   "arrive_drop",
                                       "complete_tx", "test_wait", "try_wait", "pending_count",
                                       "expect_tx",   nullptr};
    static const char* const kIgnored[] = {"acquire", "release", "relaxed", "cta",
                                           "cluster", "b64",     nullptr};
    const int op = p.take_one(kOps);
    const bool expects = op != 8 && p.take("expect_tx"), parity = p.take("parity");
    p.take("noComplete");
    const Space where = space(p);
    while (p.take_one(kIgnored) >= 0) {
    }
    if (!finished(p)) return;
    const uint32_t n = in_->operand_count;
    Ins i = blank();
    Roles r = Roles{};
    i.flags |= kSetsManyRegisters;
    auto at = [&](uint32_t k) {
      i.a = plain_address(operand(k), where, &i.sub);
      i.sub = (uint16_t)((i.sub & 1) | (where == Space::kShared ? 2 : 0));
    };
    switch (op) {
      case 0:
        if (!need(2, 2)) return;
        at(0);
        i.imm = (int64_t)MbarrierOp::kInit;
        i.b = source(1, Ty::kU32);
        break;
      case 1:
        if (!need(1, 1)) return;
        at(0);
        i.imm = (int64_t)MbarrierOp::kInval;
        break;
      case 2:
      case 3: {
        // A token is given unless the barrier may be another block's.
        const bool token = operand(0).kind != OperandKind::kAddress;
        const uint32_t first = token ? 1 : 0;
        if (!need(first + 1, first + 2)) return;
        at(first);
        i.imm = (int64_t)(op == 2 ? MbarrierOp::kArrive : MbarrierOp::kArriveDrop);
        if (token && operand(0).kind != OperandKind::kSink) i.d = destination(0u, Ty::kB64);
        if (n == first + 2) (expects ? i.c : i.b) = source(first + 1, Ty::kU32);
        if (expects && n != first + 2) return operands_missing();
        break;
      }
      case 4:
      case 8:
        if (!need(2, 2)) return;
        at(0);
        i.imm = (int64_t)(op == 4 ? MbarrierOp::kComplete : MbarrierOp::kExpect);
        i.c = source(1, Ty::kU32);
        break;
      case 5:
      case 6:
        if (!need(3, 4)) return;
        at(1);
        i.imm = (int64_t)(parity ? MbarrierOp::kTestParity : MbarrierOp::kTestState);
        i.b = source(2, parity ? Ty::kU32 : Ty::kB64);
        i.d = destination(0u, Ty::kPred);
        break;
      case 7:
        if (!need(2, 2)) return;
        i.imm = (int64_t)MbarrierOp::kPending;
        i.b = source(1, Ty::kB64);
        i.d = destination(0u, Ty::kU32);
        break;
      default:
        return error("no operation");
    }
    emit(i, op_mbarrier, r);
  }

  // ---- textures and surfaces ----
  bool geometry(Parts& p, Geometry* out) {
    static const char* const kNames[] = {"1d", "2d", "3d", "a1d", "a2d", "cube", "acube", nullptr};
    const int k = p.take_one(kNames);
    if (k < 0) error("this geometry is not supported");
    *out = (Geometry)k;
    return k >= 0;
  }
  static unsigned coordinates(Geometry g) {
    static const uint8_t kCount[] = {1, 2, 3, 2, 3, 3, 4};  // layer included
    return kCount[(unsigned)g];
  }
  static bool has_layer(Geometry g) {
    return g == Geometry::k1DLayered || g == Geometry::k2DLayered || g == Geometry::kCubeLayered;
  }
  // The handle and coordinates of [object, {x, y}].
  bool image_address(const Operand& o, Geometry g, Ty type, uint32_t* handle, uint32_t* out) {
    if (o.kind != OperandKind::kAddress || o.count != 2) {
      error("expected [object, coordinates]");
      return false;
    }
    *handle = source(o.items[0], Ty::kB64);
    const unsigned n = coordinates(g);
    const Operand& list = o.items[1];
    const bool single = list.kind != OperandKind::kList;
    if (single ? n != 1 : list.count < n) {
      error("too few coordinates");
      return false;
    }
    for (unsigned k = 0; k < n; ++k)
      out[k] = source(single ? list : list.items[k], k == 0 && has_layer(g) ? Ty::kB32 : type);
    return !failed_;
  }
  void vector_of(const Operand& o, unsigned most, Ty type, uint32_t* out) {
    if (o.kind != OperandKind::kList) {
      out[0] = source(o, type);
      return;
    }
    for (unsigned k = 0; k < o.count && k < most; ++k) out[k] = source(o.items[k], type);
  }
  uint32_t* image_list(unsigned count) {
    auto* list = m_.syntax.arena.make<uint32_t>(count);
    for (unsigned k = 0; k < count; ++k) list[k] = kNone;
    return list;
  }

  void texture(Parts& p) {
    static const char* const kComponents[] = {"r", "g", "b", "a", nullptr};
    TextureShape shape{};
    shape.mode = p.take("level")  ? TextureMode::kLevel
                 : p.take("grad") ? TextureMode::kGradient
                                  : TextureMode::kBase;
    p.take("base");
    if (p.base() == "tld4") {
      shape.mode = TextureMode::kGather;
      const int component = p.take_one(kComponents);
      if (component < 0) return error("no component");
      shape.component = (uint8_t)component;
    }
    if (!geometry(p, &shape.geometry)) return;
    const unsigned results = p.take("v2") ? 2 : 4;
    p.take("v4");
    shape.result = p.take_type();
    const Ty type = p.take_type();
    if (!finished(p)) return;
    shape.integer = type == Ty::kS32;
    if (!(shape.result == Ty::kF32 || shape.result == Ty::kS32 || shape.result == Ty::kU32) &&
        !(shape.result == Ty::kF16x2 && results == 2))
      return error("this type of result is not supported");
    const Operand& d = operand(0);
    if (d.kind != OperandKind::kList || d.count != results) return error("bad destination");
    Ins i = blank();
    i.list = image_list(kTexCount);
    if (!image_address(operand(1), shape.geometry, type, &i.a, i.list + kTexCoordinate)) return;
    uint32_t next = 2;
    if (shape.mode == TextureMode::kLevel) i.list[kTexLevel] = source(next++, type);
    if (shape.mode == TextureMode::kGradient) {
      if (in_->operand_count < 4) return operands_missing();
      vector_of(operand(next++), 3, Ty::kF32, i.list + kTexDx);
      vector_of(operand(next++), 3, Ty::kF32, i.list + kTexDy);
    }
    if (next < in_->operand_count &&
        (operand(next).kind == OperandKind::kList || coordinates(shape.geometry) == 1)) {
      shape.offset = true;
      vector_of(operand(next++), 3, Ty::kS32, i.list + kTexOffset);
    }
    if (next != in_->operand_count) return error("depth comparison is not supported");
    for (unsigned k = 0; k < results; ++k)
      if (d.items[k].kind != OperandKind::kSink)
        i.list[kTexResult + k] = destination(d.items[k], Ty::kB32);
    if (d.pair && d.second->kind != OperandKind::kSink) i.e = destination(*d.second, Ty::kPred);
    i.imm = shape.pack();
    i.flags |= kSetsManyRegisters;
    Roles r = Roles{};
    r.list_count = kTexCount;
    r.list_written = 4;
    emit(i, op_texture, r);
  }

  void surface(Parts& p) {
    static const char* const kOutside[] = {"trap", "clamp", "zero", nullptr};
    static const char* const kOps[] = {"add", "min", "max", "and", "or", nullptr};
    const bool load = p.base() == "suld", reduce = p.base() == "sured";
    if (!p.take("b")) return error("formatted accesses are not supported");
    SurfaceShape shape{};
    shape.access = load ? SurfaceAccess::kLoad : SurfaceAccess::kStore;
    if (reduce) {
      const int op = p.take_one(kOps);
      if (op < 0) return error("no operation");
      shape.access = (SurfaceAccess)((int)SurfaceAccess::kAdd + op);
    }
    if (!geometry(p, &shape.geometry)) return;
    access_words(p);
    const unsigned n = vector(p);
    shape.type = p.take_type();
    const int outside = p.take_one(kOutside);
    if (!finished(p) || !need(2, 2)) return;
    if (outside < 0) return error("no clamp mode");
    if (shape.type == Ty::kNone || type_bytes(shape.type) > 8 || type_bytes(shape.type) * n > 16 ||
        (reduce && type_bytes(shape.type) < 4))
      return error("bad type");
    shape.outside = (Outside)outside;
    shape.wide = type_bytes(shape.type) == 8;
    Ins i = blank();
    i.n = (uint8_t)n;
    i.list = image_list(kSurfCount);
    if (!image_address(operand(load ? 1u : 0u), shape.geometry, Ty::kS32, &i.a,
                       i.list + kSurfCoordinate))
      return;
    const Operand& value = operand(load ? 0u : 1u);
    const bool list = value.kind == OperandKind::kList;
    if (list ? value.count != n : n != 1) return error("bad vector");
    const Ty slot = shape.wide ? Ty::kB64 : Ty::kB32;
    for (unsigned k = 0; k < n; ++k) {
      const Operand& o = list ? value.items[k] : value;
      if (!load)
        i.list[kSurfValue + k] = source(o, slot);
      else if (o.kind != OperandKind::kSink)
        i.list[kSurfValue + k] = destination(o, slot);
    }
    i.imm = shape.pack();
    i.flags |= kSetsManyRegisters;
    Roles r = Roles{};
    r.list_count = kSurfCount;
    r.list_written = load ? kSurfCoordinate : 0;
    emit(i, op_surface, r);
  }

  void image_query(Parts& p) {
    static const char* const kQueries[] = {"width",         "height",
                                           "depth",         "channel_data_type",
                                           "channel_order", "normalized_coords",
                                           "array_size",    "num_mipmap_levels",
                                           "num_samples",   "force_unnormalized_coords",
                                           "filter_mode",   "addr_mode_0",
                                           "addr_mode_1",   "addr_mode_2",
                                           "memory_layout", nullptr};
    const bool level = p.take("level");
    const int query = p.take_one(kQueries);
    p.take_type();
    if (!finished(p) || !need(level ? 3 : 2, level ? 3 : 2)) return;
    if (query < 0) return error("unknown query");
    if (query == (int)ImageQuery::kChannelType || query == (int)ImageQuery::kChannelOrder ||
        query == (int)ImageQuery::kMemoryLayout)
      return error("this query is not supported");
    Ins i = blank();
    const Operand& o = operand(1);
    if (o.kind != OperandKind::kAddress || o.count != 1) return error("expected [object]");
    i.a = source(*o.items, Ty::kB64);
    if (level) i.b = source(2, Ty::kU32);
    i.d = destination(0u, Ty::kB32);
    i.imm = query;
    i.sub = p.base() == "suq";
    i.flags |= kSetsManyRegisters;
    emit(i, op_image_query);
  }

  void mapa(Parts& p) {
    Key k{op_};
    space(p);
    k.t = p.take_type();
    const bool rank = op_ == Op::kGetctarank;
    if (!finished(p) || !need(rank ? 2 : 3, rank ? 2 : 3)) return;
    Ins i = blank();
    i.n = (uint8_t)type_bytes(k.t);
    i.a = source(1, k.t);
    if (!rank) i.b = source(2, Ty::kU32);
    i.d = destination(0u, rank ? Ty::kU32 : k.t);
    i.flags |= kSetsManyRegisters;
    emit(i, b_.memory(k));
  }

  void convert_address(Parts& p) {
    Key k{p.take("to") ? Op::kCvtaTo : Op::kCvta};
    k.space = space(p);
    k.t = p.take_type();
    if (!finished(p) || !need(2, 2)) return;
    if (type_bytes(k.t) != 8) return error("only 64-bit addresses are supported");
    Ins i = blank();
    i.a = source(1, k.t);
    i.d = destination(0u, k.t);
    emit(i, b_.integer(k));
  }
  void is_space(Parts& p) {
    Key k{Op::kIsspacep};
    const bool own = p.has("shared::cta") || p.has("shared");
    Space s = space(p);
    if (!finished(p) || !need(2, 2)) return;
    Ins i = blank();
    i.imm = s == Space::kShared  ? (int64_t)(kSharedWindow >> 48)
            : s == Space::kLocal ? (int64_t)(kLocalWindow >> 48)
            : s == Space::kParam ? (int64_t)(kParamWindow >> 48)
                                 : 0;
    i.sub = own;
    i.a = source(1, Ty::kU64);
    i.d = destination(0u, Ty::kPred);
    i.flags |= kSetsManyRegisters;
    if (s == Space::kConst) return emit(i, op_is_constant);
    emit(i, b_.integer(k));
  }

  // Instructions that only advise.
  void nothing(Parts&) { emit(blank(), op_nop); }
  void policy(Parts& p) {  // createpolicy: an opaque value
    p.take_prefix("");
    if (in_->operand_count == 0) return operands_missing();
    Ins i = blank();
    i.d = destination(0u, Ty::kB64);
    i.a = constant(0, 8);
    Key k{Op::kMov};
    k.t = Ty::kB64;
    emit(i, b_.integer(k));
  }

  // ---- control ----
  bool find_label(const Operand& o, uint32_t* number, LabelSyntax** found = nullptr) {
    if (o.kind != OperandKind::kName && o.kind != OperandKind::kSymbol) {
      error("expected a label");
      return false;
    }
    return label_number(o.name, number, found);
  }
  bool label_number(Text name, uint32_t* number, LabelSyntax** found = nullptr) {
    LabelSyntax* l = nullptr;
    for (uint32_t scope = in_->scope;; scope = s_.scope_parent[scope]) {
      l = s_.label_map.find(name, scope + 1);
      if (l != nullptr || scope == 0) break;
    }
    if (l == nullptr) {
      error("undefined label '%.*s'", (int)name.size, name.data);
      return false;
    }
    if (found != nullptr) *found = l;
    *number = number_of(l);
    return true;
  }
  uint32_t number_of(LabelSyntax* l) {
    // Its place in the list, which is ordered by `at`.
    uint32_t low = 0, high = (uint32_t)s_.labels.size();
    while (low < high) {
      uint32_t mid = (low + high) / 2;
      if (s_.labels[mid]->at < l->at)
        low = mid + 1;
      else
        high = mid;
    }
    while (s_.labels[low] != l) ++low;
    return low;
  }

  void branch(Parts& p) {
    p.take("uni");
    if (!finished(p) || !need(1, 1)) return;
    uint32_t label;
    if (!find_label(operand(0), &label)) return;
    Ins i = blank();
    i.line = in_->line;
    i.imm = label;
    if (in_->guarded) {
      i.fn = op_branch;
      i.g = kVirtual | in_->guard;
      i.flags = (uint8_t)(kEndsBlock | kConditional | (in_->guard_negated ? kGuardNegated : 0));
    } else {
      i.fn = op_jump;
      i.flags = kEndsBlock | kNoFallThrough;
    }
    d_.code.push(i);
    d_.roles.push(Roles{});
  }
  void branch_indexed(Parts& p) {
    p.take("idx");
    p.take("uni");
    if (!finished(p) || !need(2, 2)) return;
    uint32_t number;
    LabelSyntax* targets = nullptr;
    if (!find_label(operand(1), &number, &targets)) return;
    if (targets->target_count == 0) return error("no branch targets");
    Ins i = blank();
    i.a = source(0u, Ty::kU32);
    i.imm = targets->target_count;
    i.list = m_.syntax.arena.make<uint32_t>(targets->target_count);
    for (uint32_t k = 0; k < targets->target_count; ++k)
      if (!label_number(targets->targets[k], &i.list[k])) return;
    control(i, op_brx, kEndsBlock | kNoFallThrough);
  }

  void call(Parts& p) {
    p.take("uni");
    if (!finished(p) || in_->operand_count == 0) return;
    uint32_t k = 0;
    const Operand* results = nullptr;
    const Operand* params = nullptr;
    if (operand(0).kind == OperandKind::kList && in_->operand_count > 1) results = &operand(k++);
    const Operand& target = operand(k++);
    if (k < in_->operand_count && operand(k).kind == OperandKind::kList) params = &operand(k++);
    auto* site = new (m_.syntax.arena.make<CallSite>()) CallSite();
    const FunctionSyntax* formal = formal_of(target);
    site->results =
        slots(results, formal == nullptr ? nullptr : &formal->results, &site->result_count, false);
    site->params =
        slots(params, formal == nullptr ? nullptr : &formal->params, &site->param_count, true);
    if (failed_) return;
    Ins i = blank();
    i.call = site;
    if (target.kind == OperandKind::kRegister) {
      const Operand& last = operand(in_->operand_count - 1);
      if (last.kind != OperandKind::kSymbol || last.symbol->kind != SymbolKind::kPrototype)
        return error("an indirect call needs a prototype");
      i.a = source(target, Ty::kU64);
      f_->calls_indirectly = true;
    } else {
      Symbol* v = target.symbol != nullptr ? target.symbol : m_.syntax.symbols.find(target.name);
      if (v == nullptr || v->kind != SymbolKind::kFunction)
        return error("call of '%.*s', which is no function", (int)target.name.size,
                     target.name.data);
      if (!direct(v, site)) return;
    }
    control(i, op_call, 0);
    for (uint32_t k = 0; results != nullptr && k < results->count; ++k) {
      const Operand& o = results->items[k];
      if (o.kind == OperandKind::kRegister)
        frame_access(s_.registers[o.reg].type, site->results[k].offset, kVirtual | o.reg, true);
    }
  }
  bool direct(Symbol* v, CallSite* site) {
    FunctionSyntax* f = v->function;
    if (!f->defined) {
      if (v->name == "vprintf")
        site->builtin = Builtin::kVprintf;
      else if (v->name == "__assertfail" || v->name == "__assert_fail")
        site->builtin = Builtin::kAssertFail;
      else if (v->name == "malloc")
        site->builtin = Builtin::kMalloc;
      else if (v->name == "free")
        site->builtin = Builtin::kFree;
      else {
        error("unresolved extern function '%.*s'", (int)v->name.size, v->name.data);
        return false;
      }
      return true;
    }
    if (f->entry) {
      error("call of the kernel '%.*s'", (int)v->name.size, v->name.data);
      return false;
    }
    if (f->params.size() != site->param_count ||
        (f->results.size() != site->result_count && site->result_count != 0)) {
      error("call of '%.*s' with the wrong number of parameters", (int)v->name.size, v->name.data);
      return false;
    }
    site->callee = m_.functions[f->index];
    f_->callees.push(site->callee);
    return true;
  }
  // What says the types of parameters: the function, or the prototype of an indirect call.
  const FunctionSyntax* formal_of(const Operand& target) {
    if (target.kind == OperandKind::kRegister) {
      const Operand& last = operand(in_->operand_count - 1);
      return last.kind == OperandKind::kSymbol ? last.symbol->function : nullptr;
    }
    Symbol* v = target.symbol != nullptr ? target.symbol : m_.syntax.symbols.find(target.name);
    return v == nullptr ? nullptr : v->function;
  }
  CallSlot* slots(const Operand* list, const Vec<Symbol*>* formals, uint32_t* count, bool passed) {
    *count = list == nullptr ? 0 : list->count;
    auto* out = m_.syntax.arena.make<CallSlot>(*count + 1);
    for (uint32_t k = 0; k < *count; ++k) {
      const Operand& o = list->items[k];
      if (o.kind == OperandKind::kSymbol && o.symbol->kind == SymbolKind::kVariable &&
          o.symbol->space == Space::kParam && o.symbol->owner == &s_ && !o.symbol->entry_param &&
          o.symbol->count == 0) {
        out[k] = CallSlot{o.symbol->offset, (uint32_t)o.symbol->bytes};
        continue;
      }
      const bool number = o.kind == OperandKind::kInteger || o.kind == OperandKind::kFloat32 ||
                          o.kind == OperandKind::kFloat64;
      if (!(o.kind == OperandKind::kRegister || (number && passed)) || is_predicate(o) ||
          formals == nullptr || k >= formals->size()) {
        error("call parameters must be .param variables of the function, registers or numbers");
        return out;
      }
      // A register or a number: through a place of its own in the frame.
      const Ty type =
          o.kind == OperandKind::kRegister ? s_.registers[o.reg].type : (*formals)[k]->type;
      if (type_bytes(type) > 8 || f_->local_bytes + 16 >= kLocalLimit) {
        error("bad type of a call parameter");
        return out;
      }
      out[k] = CallSlot{f_->local_bytes, type_bytes(type)};
      f_->local_bytes += 16;
      if (passed) frame_access(type, out[k].offset, source(o, type), false);
    }
    return out;
  }
  // Loads or stores a register of a parameter's type at a place of the frame.
  void frame_access(Ty type, uint32_t offset, uint32_t reg, bool load) {
    Key k{load ? Op::kLd : Op::kSt};
    k.space = Space::kLocal;
    k.t = type;
    k.wide_reg = type_bytes(type) == 8;
    Ins i = blank();
    i.d = reg;
    i.imm = offset;
    i.sub = 2;  // counted from the frame's start
    i.flags |= kSetsManyRegisters;
    Roles r = Roles{};
    r.d_read = !load;
    emit(i, b_.memory(k), r);
  }
  void give_results() {
    if (s_.entry) return;
    for (Symbol* v : s_.results)
      if (v->count != 0) frame_access(v->type, v->offset, kVirtual | v->first, false);
  }

  void ret(Parts& p) {
    p.take("uni");
    if (!finished(p)) return;
    give_results();
    control(op_ret, kEndsBlock | kNoFallThrough);
  }
  void exit(Parts& p) {
    if (finished(p)) control(op_exit, kEndsBlock | kNoFallThrough);
  }
  void trap(Parts& p) {
    if (!finished(p)) return;
    Ins i = blank();
    i.imm = p.base() == "brkpt";
    control(i, op_trap, kEndsBlock | kNoFallThrough);
  }
  void sleep(Parts& p) {
    p.take_type();
    if (finished(p)) emit(blank(), op_sleep);
  }
  void fence(Parts& p) {
    p.take_prefix("");
    emit(blank(), op_fence);
  }

  void barrier(Parts& p) {
    if (p.take("warp")) {
      p.take("sync");
      if (!finished(p) || !need(1, 1)) return;
      Ins i = blank();
      i.sub = (uint16_t)Collective::kSyncwarp;
      i.g = source(0u, Ty::kB32);
      control(i, op_collective, 0);
      return;
    }
    if (p.take("cluster")) {
      Ins i = blank();
      if (p.take("arrive"))
        i.imm = 0;
      else if (p.take("wait"))
        i.imm = 1;
      else
        return error("unknown cluster barrier");
      p.take("release");
      p.take("relaxed");
      p.take("acquire");
      p.take("aligned");
      if (finished(p)) control(i, op_cluster, 0);
      return;
    }
    p.take("cta");
    p.take("aligned");
    Ins i = blank();
    Roles r = Roles{};
    uint32_t first = 0;
    if (p.take("sync")) {
      i.imm = 0;
    } else if (p.take("arrive")) {
      i.imm = 1;
    } else if (p.take("red")) {
      static const char* const kOps[] = {"popc", "and", "or", nullptr};
      int op = p.take_one(kOps);
      Ty t = p.take_type();
      if (op < 0) return error("no operation");
      i.imm = 2 + op;
      if (!need(3, 4)) return;
      i.d = destination(0u, op == 0 ? Ty::kU32 : Ty::kPred);
      (void)t;
      const Operand& c = operand(in_->operand_count - 1);
      i.c = source(c, Ty::kPred);
      i.sub = c.negated;
      first = 1;
    } else {
      return error("unknown barrier");
    }
    if (!finished(p)) return;
    const uint32_t last = first == 1 ? in_->operand_count - 1 : in_->operand_count;
    if (last <= first || last > first + 2) return operands_missing();
    i.a = source(first, Ty::kU32);
    if (last == first + 2) i.b = source(first + 1, Ty::kU32);
    if (i.imm == 1 && i.b == kNone) return error("arrive needs a count");
    i.flags |= kSetsManyRegisters;
    control(i, op_bar, 0, r);
  }

  void collective(Ins i, Collective kind) {
    i.sub = (uint16_t)kind;
    i.flags |= kSetsManyRegisters;
    control(i, op_collective, 0);
  }
  void shuffle(Parts& p) {
    static const char* const kModes[] = {"up", "down", "bfly", "idx", nullptr};
    const bool sync = p.take("sync");
    int mode = p.take_one(kModes);
    p.take_type();
    if (!finished(p) || !need(sync ? 5 : 4, sync ? 5 : 4)) return;
    if (mode < 0) return error("no mode");
    Ins i = blank();
    const Operand& d = operand(0);
    i.a = source(1, Ty::kB32);
    i.b = source(2, Ty::kB32);
    i.c = source(3, Ty::kB32);
    if (sync) i.g = source(4, Ty::kB32);
    i.d = destination(d, Ty::kB32);
    if (d.pair && d.items->kind != OperandKind::kSink) i.e = destination(*d.items, Ty::kPred);
    collective(i, (Collective)((int)Collective::kShflUp + mode));
  }
  void vote(Parts& p) {
    static const char* const kModes[] = {"all", "any", "uni", "ballot", nullptr};
    const bool sync = p.take("sync");
    int mode = p.take_one(kModes);
    Ty t = p.take_type();
    if (!finished(p) || !need(sync ? 3 : 2, sync ? 3 : 2)) return;
    if (mode < 0) return error("no mode");
    (void)t;
    Ins i = blank();
    i.a = source(1, Ty::kPred);
    i.imm = operand(1).negated;
    if (sync) i.g = source(2, Ty::kB32);
    i.d = destination(0u, mode == 3 ? Ty::kB32 : Ty::kPred);
    collective(i, (Collective)((int)Collective::kVoteAll + mode));
  }
  void match(Parts& p) {
    p.take("sync");
    const bool all = p.take("all");
    p.take("any");
    Ty t = p.take_type();
    if (!finished(p) || !need(3, 3)) return;
    Ins i = blank();
    const Operand& d = operand(0);
    i.n = (uint8_t)type_bytes(t);
    i.a = source(1, t);
    i.g = source(2, Ty::kB32);
    i.d = destination(d, Ty::kB32);
    if (d.pair && d.items->kind != OperandKind::kSink) i.e = destination(*d.items, Ty::kPred);
    collective(i, all ? Collective::kMatchAll : Collective::kMatchAny);
  }
  void redux(Parts& p) {
    static const char* const kOps[] = {"add", "min", "max", "and", "or", "xor", nullptr};
    p.take("sync");
    int op = p.take_one(kOps);
    Ty t = p.take_type();
    if (!finished(p) || !need(3, 3)) return;
    static const Collective kKinds[] = {Collective::kReduxAdd, Collective::kReduxMin,
                                        Collective::kReduxMax, Collective::kReduxAnd,
                                        Collective::kReduxOr,  Collective::kReduxXor};
    if (op < 0) return error("no operation");
    Collective kind = kKinds[op];
    if (is_signed(t) && op == 1) kind = Collective::kReduxMinS;
    if (is_signed(t) && op == 2) kind = Collective::kReduxMaxS;
    if (t == Ty::kF32) {
      if (op != 1 && op != 2) return error("bad type");
      kind = op == 1 ? Collective::kReduxMinF : Collective::kReduxMaxF;
    }
    Ins i = blank();
    i.a = source(1, t);
    i.g = source(2, Ty::kB32);
    i.d = destination(0u, t);
    collective(i, kind);
  }
  void elect(Parts& p) {
    p.take("sync");
    if (!finished(p) || !need(2, 2)) return;
    Ins i = blank();
    const Operand& d = operand(0);
    i.g = source(1, Ty::kB32);
    i.d = destination(d, Ty::kB32);
    if (d.pair && d.items->kind != OperandKind::kSink) i.e = destination(*d.items, Ty::kPred);
    collective(i, Collective::kElect);
  }
  void activemask(Parts& p) {
    p.take_type();
    if (!finished(p) || !need(1, 1)) return;
    Ins i = blank();
    i.d = destination(0u, Ty::kB32);
    emit(i, op_activemask);
  }

  void stack(Parts& p) {  // alloca, stacksave, stackrestore
    Ty t = p.take_type();
    if (!finished(p)) return;
    if (t == Ty::kNone) t = Ty::kU64;
    Ins i = blank();
    i.n = (uint8_t)type_bytes(t);
    if (p.base() == "alloca") {
      if (!need(2, 3)) return;
      i.a = source(1, t);
      i.d = destination(0u, t);
      i.imm = in_->operand_count == 3 ? (int64_t)operand(2).value : 8;
      if (i.imm <= 0 || (i.imm & (i.imm - 1)) != 0 || i.imm > 4096) return error("bad alignment");
      i.flags |= kSetsManyRegisters;
      emit(i, op_alloca);
    } else if (p.base() == "stacksave") {
      if (!need(1, 1)) return;
      i.d = destination(0u, t);
      emit(i, op_stacksave);
    } else {
      if (!need(1, 1)) return;
      i.a = source(0u, t);
      emit(i, op_stackrestore);
    }
  }

  Lowering& l_;
  Module& m_;
  Function* f_;
  FunctionSyntax& s_;
  const Backend& b_;
  Draft d_;
  const InstructionSyntax* in_ = nullptr;
  Op op_ = Op::kAdd;
  bool failed_ = false, integral_ = false;
  uint32_t carry_ = kNone;
};

const Body::Row Body::kRows[] = {
    {"add", &Body::arithmetic, Op::kAdd},
    {"sub", &Body::arithmetic, Op::kSub},
    {"mul", &Body::arithmetic, Op::kMul},
    {"mad", &Body::arithmetic, Op::kMad},
    {"fma", &Body::arithmetic, Op::kFma},
    {"mul24", &Body::arithmetic, Op::kMul24},
    {"mad24", &Body::arithmetic, Op::kMad24},
    {"sad", &Body::arithmetic, Op::kSad},
    {"div", &Body::arithmetic, Op::kDiv},
    {"rem", &Body::arithmetic, Op::kRem},
    {"abs", &Body::arithmetic, Op::kAbs},
    {"neg", &Body::arithmetic, Op::kNeg},
    {"min", &Body::arithmetic, Op::kMin},
    {"max", &Body::arithmetic, Op::kMax},
    {"and", &Body::arithmetic, Op::kAnd},
    {"or", &Body::arithmetic, Op::kOr},
    {"xor", &Body::arithmetic, Op::kXor},
    {"not", &Body::arithmetic, Op::kNot},
    {"cnot", &Body::arithmetic, Op::kCnot},
    {"sqrt", &Body::arithmetic, Op::kSqrt},
    {"rcp", &Body::arithmetic, Op::kRcp},
    {"rsqrt", &Body::arithmetic, Op::kRsqrt},
    {"sin", &Body::arithmetic, Op::kSin},
    {"cos", &Body::arithmetic, Op::kCos},
    {"lg2", &Body::arithmetic, Op::kLg2},
    {"ex2", &Body::arithmetic, Op::kEx2},
    {"tanh", &Body::arithmetic, Op::kTanh},
    {"addc", &Body::carry_in, Op::kAddCarry},
    {"subc", &Body::carry_in, Op::kSubCarry},
    {"madc", &Body::carry_in, Op::kMadCarry},
    {"shl", &Body::shift, Op::kShl},
    {"shr", &Body::shift, Op::kShr},
    {"shf", &Body::funnel, Op::kShfLeft},
    {"prmt", &Body::permute, Op::kPrmt},
    {"lop3", &Body::lop3, Op::kLop3},
    {"dp4a", &Body::dot, Op::kDp4a},
    {"dp2a", &Body::dot, Op::kDp2a},
    {"popc", &Body::count_bits, Op::kPopc},
    {"clz", &Body::count_bits, Op::kClz},
    {"bfind", &Body::count_bits, Op::kBfind},
    {"brev", &Body::count_bits, Op::kBrev},
    {"bfe", &Body::field, Op::kBfe},
    {"bfi", &Body::field, Op::kBfi},
    {"bmsk", &Body::mask_field, Op::kBmsk},
    {"szext", &Body::mask_field, Op::kSzext},
    {"fns", &Body::mask_field, Op::kFns},
    {"setp", &Body::setp, Op::kSetp},
    {"set", &Body::set, Op::kSet},
    {"selp", &Body::select, Op::kSelp},
    {"slct", &Body::select, Op::kSlct},
    {"mov", &Body::move, Op::kMov},
    {"cvt", &Body::convert, Op::kCvt},
    {"copysign", &Body::copysign, Op::kCopysign},
    {"testp", &Body::testp, Op::kTestp},
    {"vadd2", &Body::video, Op::kVideo},
    {"vadd4", &Body::video, Op::kVideo},
    {"vsub2", &Body::video, Op::kVideo},
    {"vsub4", &Body::video, Op::kVideo},
    {"vavrg2", &Body::video, Op::kVideo},
    {"vavrg4", &Body::video, Op::kVideo},
    {"vabsdiff2", &Body::video, Op::kVideo},
    {"vabsdiff4", &Body::video, Op::kVideo},
    {"vmin2", &Body::video, Op::kVideo},
    {"vmin4", &Body::video, Op::kVideo},
    {"vmax2", &Body::video, Op::kVideo},
    {"vmax4", &Body::video, Op::kVideo},
    {"ld", &Body::load, Op::kLd},
    {"ldu", &Body::load, Op::kLd},
    {"st", &Body::store, Op::kSt},
    {"atom", &Body::atomic, Op::kAtom},
    {"red", &Body::atomic, Op::kRed},
    {"cp", &Body::copy_async, Op::kCpAsync},
    {"mbarrier", &Body::mbarrier, Op::kMov},
    {"tex", &Body::texture, Op::kMov},
    {"tld4", &Body::texture, Op::kMov},
    {"txq", &Body::image_query, Op::kMov},
    {"suld", &Body::surface, Op::kMov},
    {"sust", &Body::surface, Op::kMov},
    {"sured", &Body::surface, Op::kMov},
    {"suq", &Body::image_query, Op::kMov},
    {"mapa", &Body::mapa, Op::kMapa},
    {"getctarank", &Body::mapa, Op::kGetctarank},
    {"cvta", &Body::convert_address, Op::kCvta},
    {"isspacep", &Body::is_space, Op::kIsspacep},
    {"prefetch", &Body::nothing, Op::kMov},
    {"prefetchu", &Body::nothing, Op::kMov},
    {"discard", &Body::nothing, Op::kMov},
    {"applypriority", &Body::nothing, Op::kMov},
    {"pmevent", &Body::nothing, Op::kMov},
    {"griddepcontrol", &Body::nothing, Op::kMov},
    {"setmaxnreg", &Body::nothing, Op::kMov},
    {"createpolicy", &Body::policy, Op::kMov},
    {"bra", &Body::branch, Op::kMov},
    {"brx", &Body::branch_indexed, Op::kMov},
    {"call", &Body::call, Op::kMov},
    {"ret", &Body::ret, Op::kMov},
    {"exit", &Body::exit, Op::kMov},
    {"trap", &Body::trap, Op::kMov},
    {"brkpt", &Body::trap, Op::kMov},
    {"nanosleep", &Body::sleep, Op::kMov},
    {"membar", &Body::fence, Op::kMov},
    {"fence", &Body::fence, Op::kMov},
    {"bar", &Body::barrier, Op::kMov},
    {"barrier", &Body::barrier, Op::kMov},
    {"shfl", &Body::shuffle, Op::kShfl},
    {"vote", &Body::vote, Op::kVote},
    {"match", &Body::match, Op::kMatch},
    {"redux", &Body::redux, Op::kRedux},
    {"elect", &Body::elect, Op::kElect},
    {"activemask", &Body::activemask, Op::kActivemask},
    {"alloca", &Body::stack, Op::kMov},
    {"stacksave", &Body::stack, Op::kMov},
    {"stackrestore", &Body::stack, Op::kMov},
};

const Body::Row* Body::find_row(Text base) {
  for (const Row& r : kRows)
    if (base == r.name) return &r;
  return nullptr;
}

}  // namespace

bool lower_function(Lowering* l, Function* f) { return Body(l, f).run(); }

}  // namespace simgpu::ptx
