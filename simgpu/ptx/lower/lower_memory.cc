// Lowering of loads, stores, atomics, asynchronous copies and address spaces.
#include "ptx/handlers/async.h"

#include <initializer_list>

#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

Space Body::space(Parts& p) {
  if (p.take("global")) return Space::kGlobal;
  if (p.take("const")) return Space::kConst;
  if (p.take("shared") || p.take("shared::cta") || p.take("shared::cluster")) return Space::kShared;
  if (p.take("local")) return Space::kLocal;
  if (p.take("param") || p.take("param::entry") || p.take("param::func")) return Space::kParam;
  return Space::kGeneric;
}

bool Body::access_words(Parts& p) {
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

void Body::address(const Operand& o, Space* space, Ins* i) {
  if (o.kind != OperandKind::kAddress && !o.indexed) return error("expected an address");
  const Operand& base = o.indexed ? o : *o.items;
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

void Body::symbol_address(Symbol* v, Space* space, Ins* i) {
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

void Body::load(Parts& p) {
  Key k{Op::kLd};
  if (p.base() == "ldu") k.ordered = false;
  k.space = space(p);
  k.ordered = access_words(p);
  k.n = (uint8_t)vector(p);
  k.t = p.take_type();
  if (!finished(p) || !need(2, 3)) return;
  access(k, operand(0), operand(1), true);
}

void Body::store(Parts& p) {
  if (p.take("async")) return store_async(p, false);
  if (p.take("bulk")) return zero_bulk(p);
  Key k{Op::kSt};
  k.space = space(p);
  k.ordered = access_words(p);
  k.n = (uint8_t)vector(p);
  k.t = p.take_type();
  if (!finished(p) || !need(2, 3)) return;
  access(k, operand(1), operand(0), false);
}

void Body::access(Key k, const Operand& value, const Operand& where, bool load) {
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

uint32_t Body::entry_param_bytes() {
  uint32_t end = 0;
  for (Symbol* v : s_.params)
    end = v->offset + (uint32_t)v->bytes > end ? v->offset + (uint32_t)v->bytes : end;
  return end;
}

void Body::atomic(Parts& p) {
  if (p.base() == "red" && p.take("async")) return store_async(p, true);
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
  f_->depends_on_order |= k.space != Space::kShared && (cas || (op == kAtomAdd && is_real(k.t)));
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

void Body::copy_async(Parts& p) {
  p.take("async");
  if (p.take("bulk")) return p.take("tensor") ? tensor_copy(p) : bulk_copy(p);
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
    i.c = ignored_source(operand(3), (uint64_t)i.imm);
  emit(i, b_.memory(k));
}

// How many bytes to read where a predicate says to read none.
uint32_t Body::ignored_source(const Operand& ignore, uint64_t bytes) {
  Ins i = blank();
  i.a = constant(ignore.negated ? bytes : 0, 4);
  i.b = constant(ignore.negated ? 0 : bytes, 4);
  i.c = source(ignore, Ty::kPred);
  i.d = temporary(0);
  Key k{Op::kSelp};
  k.t = Ty::kB32;
  const uint32_t d = i.d;
  emit(i, pick(k));
  return d;
}

uint32_t Body::plain_address(const Operand& o, Space space, uint16_t* sub) {
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

void Body::bulk_copy(Parts& p) {
  if (p.take("commit_group") || p.take("wait_group") || p.take("prefetch")) {
    if (p.take("tensor")) p.take_prefix("");
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
  const bool many = p.take("multicast::cluster");
  Reduction by;
  if (p.take("reduce")) {
    p.take("noftz");
    by.op = (ReduceOp)(p.take_one(kReduceNames) + 1);
    by.type = p.take_type();
    if (!reduction_exists(by.op, by.type)) return error("this reduction is not supported");
    f_->depends_on_order |= !to_shared && by.op == ReduceOp::kAdd && is_real(by.type);
  }
  p.take_prefix("L2");
  if (!finished(p) || !need(told ? (many ? 5 : 4) : 3, many ? 6 : 5)) return;
  if (first < 0 || second < 0) return error("copies need two state spaces");
  const bool from_shared = first < 2 && second < 2 ? true : !to_shared;
  Ins i = blank();
  i.imm = by.pack();
  uint16_t narrow[3] = {};
  i.a = plain_address(operand(0), to_shared ? Space::kShared : Space::kGlobal, &narrow[0]);
  i.b = plain_address(operand(1), from_shared ? Space::kShared : Space::kGlobal, &narrow[1]);
  i.c = source(2, Ty::kU32);
  Roles r = Roles{};
  r.e_read = true;
  if (told) i.e = plain_address(operand(3), Space::kShared, &narrow[2]);
  if (many) {
    i.d = source(4, Ty::kB16);
    r.d_read = true;
  }
  i.sub = (uint16_t)((narrow[0] & 1 ? kBulkTo32 : 0) | (narrow[1] & 1 ? kBulkFrom32 : 0) |
                     (narrow[2] & 1 ? kBulkBarrier32 : 0) | (to_shared ? kBulkToShared : 0) |
                     (from_shared ? kBulkFromShared : 0));
  emit(i, op_bulk_copy, r);
}

// st.async, red.async: [to], value, [mbarrier].
void Body::store_async(Parts& p, bool reduce) {
  Reduction by;
  for (const char* word : {"weak", "relaxed", "cluster", "shared::cluster"}) p.take(word);
  if (!p.take("mbarrier::complete_tx::bytes")) return error("no completion mechanism");
  if (reduce) by.op = (ReduceOp)(p.take_one(kReduceNames) + 1);
  Ins i = blank();
  i.n = (uint8_t)vector(p);
  by.type = p.take_type();
  if (!finished(p) || !need(3, 3)) return;
  const unsigned bytes = type_bytes(by.type);
  if (i.n > 4 || (bytes != 4 && bytes != 8) ||
      (reduce && (i.n != 1 || is_real(by.type) || !reduction_exists(by.op, by.type))))
    return error("bad type");
  i.imm = by.pack();
  uint16_t narrow[2] = {};
  i.a = plain_address(operand(0), Space::kShared, &narrow[0]);
  i.e = plain_address(operand(2), Space::kShared, &narrow[1]);
  i.sub = (uint16_t)((narrow[0] & 1 ? kBulkTo32 : 0) | (narrow[1] & 1 ? kBulkBarrier32 : 0));
  const Operand& value = operand(1);
  const bool list = value.kind == OperandKind::kList;
  if (list ? value.count != i.n : i.n != 1) return error("bad vector");
  i.list = operand_list(4);
  for (unsigned k = 0; k < i.n; ++k)
    i.list[k] = source(list ? value.items[k] : value, bytes == 8 ? Ty::kB64 : Ty::kB32);
  Roles r = Roles{};
  r.e_read = true;
  r.list_count = 4;
  emit(i, op_store_async, r);
}

// st.bulk: [to], bytes, 0.
void Body::zero_bulk(Parts& p) {
  p.take("weak");
  const Space where = space(p);
  if (!finished(p) || !need(3, 3)) return;
  if (operand(2).kind != OperandKind::kInteger || operand(2).value != 0)
    return error("only zeros are stored in bulk");
  Ins i = blank();
  uint16_t narrow = 0;
  i.a = plain_address(operand(0), where, &narrow);
  i.b = source(1, Ty::kU64);
  i.sub = (uint16_t)((narrow & 1) | (where == Space::kShared ? 2 : 0));
  emit(i, op_zero_bulk);
}

// cp.async.mbarrier.arrive: copies are done at once, so it is an arrival or, where PTX adds one
// to what is pending first, nothing.
void Body::mbarrier_arrive_copy(Parts& p) {
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

void Body::mbarrier(Parts& p) {
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

void Body::mapa(Parts& p) {
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

void Body::convert_address(Parts& p) {
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

void Body::is_space(Parts& p) {
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

void Body::policy(Parts& p) {  // createpolicy: an opaque value
  p.take_prefix("");
  if (in_->operand_count == 0) return operands_missing();
  Ins i = blank();
  i.d = destination(0u, Ty::kB64);
  i.a = constant(0, 8);
  Key k{Op::kMov};
  k.t = Ty::kB64;
  emit(i, b_.integer(k));
}

}  // namespace simgpu::ptx
