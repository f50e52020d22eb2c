// Lowers PTX instructions, one at a time, to handlers and operands. An unknown instruction or
// modifier is an error with its name and line.
#include "ptx/lower/lower.h"

#include "ptx/lower/lower_body.h"

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

bool Body::run() {
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

void Body::error(const char* format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  Text o = in_->opcode;
  l_.log->error(in_->line, "%s in '%.*s'", text, (int)(o.size > 100 ? 100 : o.size), o.data);
  failed_ = true;
}

bool Body::need(uint32_t least, uint32_t most) {
  if (in_->operand_count >= least && in_->operand_count <= most) return true;
  operands_missing();
  return false;
}

void Body::frame() {
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

Ins Body::blank() {
  Ins i{};
  i.d = i.a = i.b = i.c = i.e = i.g = kNone;
  i.n = 1;
  return i;
}

uint32_t Body::temporary(unsigned cls) {
  d_.classes.push((uint8_t)cls);
  return kVirtual | (uint32_t)(d_.classes.size() - 1);
}

void Body::emit(Ins i, Fn fn, Roles roles) {
  if (failed_) return;
  if (!fn) return error("this combination of types and modifiers is not supported");
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

void Body::control(Ins i, Fn fn, uint8_t flags, Roles roles) {
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

uint32_t Body::new_label() {
  d_.labels.push((uint32_t)d_.code.size());
  return (uint32_t)d_.labels.size() - 1;
}

const Operand& Body::operand(uint32_t k) {
  static const Operand kMissing{};
  return k < in_->operand_count ? in_->operands[k] : kMissing;
}

bool Body::is_predicate(const Operand& o) const {
  return o.kind == OperandKind::kRegister && s_.registers[o.reg].type == Ty::kPred;
}

uint64_t Body::number_as(const Operand& o, Ty t) {
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

uint32_t Body::constant(uint64_t v, unsigned bytes) {
  return kConstant | l_.constants.number(v, bytes);
}

uint32_t Body::symbol_value(Symbol* v, uint64_t addend, unsigned bytes) {
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

uint32_t Body::shared_value(Symbol* v, uint64_t addend, unsigned bytes) {
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

uint32_t Body::source(const Operand& o, Ty t) {
  const unsigned bytes = class_of(t) == 0 ? 4 : type_bytes(t);
  switch (o.kind) {
    case OperandKind::kRegister:
      if (d_.classes[o.reg] != class_of(t) ||
          (s_.registers[o.reg].type == Ty::kPred) != (t == Ty::kPred)) {
        error("operand '%.*s' does not fit the type", (int)o.name.size, o.name.data);
        return 0;
      }
      if (o.negated && t != Ty::kPred) error("'!' on a register that is no predicate");
      if (o.value != 0)
        error("a part of register '%.*s' is no operand of", (int)o.name.size, o.name.data);
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

uint32_t Body::source(uint32_t k, Ty t) {
  if (k >= in_->operand_count) {
    operands_missing();
    return 0;
  }
  return source(in_->operands[k], t);
}

uint32_t Body::narrow_source(const Operand& o, Ty t) {
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

uint32_t Body::destination(const Operand& o, Ty t) {
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
  if (o.value != 0)
    error("a part of register '%.*s' is no destination of", (int)o.name.size, o.name.data);
  return kVirtual | o.reg;
}

uint32_t Body::destination(uint32_t k, Ty t) {
  if (k >= in_->operand_count) {
    operands_missing();
    return 0;
  }
  return destination(in_->operands[k], t);
}

uint32_t Body::carry_register() {
  if (carry_ == kNone) carry_ = temporary(0);
  return carry_;
}

Fn Body::pick(const Key& k) {
  Fn fn = nullptr;
  if (is_real(k.t) || (k.op == Op::kSet && is_half(k.t2))) fn = b_.real(k);
  if (!fn) fn = b_.integer(k);
  return fn;
}

Round Body::rounding(Parts& p) {
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

bool Body::finished(Parts& p) {
  if (failed_) return false;
  const Text* t = p.left();
  if (!t) return true;
  error("unknown modifier '.%.*s'", (int)t->size, t->data);
  return false;
}

void Body::instruction() {
  failed_ = false;
  integral_ = false;
  Parts p(in_->opcode);
  const Row* row = find_row(p.base());
  if (!row) return error("unknown instruction");
  op_ = row->op;
  (this->*row->method)(p);
}

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
    {"vadd", &Body::video_of_one, Op::kVideo},
    {"vsub", &Body::video_of_one, Op::kVideo},
    {"vabsdiff", &Body::video_of_one, Op::kVideo},
    {"vmin", &Body::video_of_one, Op::kVideo},
    {"vmax", &Body::video_of_one, Op::kVideo},
    {"vshl", &Body::video_of_one, Op::kVideo},
    {"vshr", &Body::video_of_one, Op::kVideo},
    {"vmad", &Body::video_of_one, Op::kVideo},
    {"vset", &Body::video_of_one, Op::kVideo},
    {"vset2", &Body::video_set, Op::kVideo},
    {"vset4", &Body::video_set, Op::kVideo},
    {"ld", &Body::load, Op::kLd},
    {"ldu", &Body::load, Op::kLd},
    {"st", &Body::store, Op::kSt},
    {"atom", &Body::atomic, Op::kAtom},
    {"red", &Body::atomic, Op::kRed},
    {"cp", &Body::copy_async, Op::kCpAsync},
    {"mbarrier", &Body::mbarrier, Op::kMov},
    {"mma", &Body::mma, Op::kMov},
    {"wmma", &Body::wmma, Op::kMov},
    {"ldmatrix", &Body::ldmatrix, Op::kMov},
    {"stmatrix", &Body::ldmatrix, Op::kMov},
    {"movmatrix", &Body::movmatrix, Op::kMov},
    {"wgmma", &Body::wgmma, Op::kMov},
    {"tcgen05", &Body::tensor_core, Op::kMov},
    {"clusterlaunchcontrol", &Body::launch_control, Op::kMov},
    {"tensormap", &Body::tensor_map, Op::kMov},
    {"tex", &Body::texture, Op::kMov},
    {"tld4", &Body::texture, Op::kMov},
    {"txq", &Body::texture_query, Op::kMov},
    {"suld", &Body::surface, Op::kMov},
    {"sust", &Body::surface, Op::kMov},
    {"sured", &Body::surface, Op::kMov},
    {"suq", &Body::texture_query, Op::kMov},
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

bool lower_function(Lowering* l, Function* f) { return Body(l, f).run(); }

}  // namespace simgpu::ptx
