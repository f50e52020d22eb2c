// Lowering of branches, calls, barriers and operations across the lanes of a warp.
#include "ptx/handlers/async.h"
#include "ptx/handlers/device_launch.h"
#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

bool Body::find_label(const Operand& o, uint32_t* number, LabelSyntax** found) {
  if (o.kind != OperandKind::kName && o.kind != OperandKind::kSymbol) {
    error("expected a label");
    return false;
  }
  return label_number(o.name, number, found);
}

bool Body::label_number(Text name, uint32_t* number, LabelSyntax** found) {
  LabelSyntax* l = nullptr;
  for (uint32_t scope = in_->scope;; scope = s_.scope_parent[scope]) {
    l = s_.label_map.find(name, scope + 1);
    if (l || scope == 0) break;
  }
  if (!l) {
    error("undefined label '%.*s'", (int)name.size, name.data);
    return false;
  }
  if (found) *found = l;
  *number = number_of(l);
  return true;
}

uint32_t Body::number_of(LabelSyntax* l) {
  // Its position in the list, which is ordered by `at`.
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

void Body::branch(Parts& p) {
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

void Body::branch_indexed(Parts& p) {
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

void Body::call(Parts& p) {
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
  site->results = slots(results, formal ? &formal->results : nullptr, &site->result_count, false);
  site->params = slots(params, formal ? &formal->params : nullptr, &site->param_count, true);
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
    Symbol* v = target.symbol ? target.symbol : m_.syntax.symbols.find(target.name);
    if (!v || v->kind != SymbolKind::kFunction)
      return error("call of '%.*s', which is no function", (int)target.name.size, target.name.data);
    if (!direct(v, site)) return;
  }
  control(i, op_call, 0);
  for (uint32_t k = 0; results && k < results->count; ++k) {
    const Operand& o = results->items[k];
    if (o.kind == OperandKind::kRegister)
      frame_access(s_.registers[o.reg].type, site->results[k].offset, kVirtual | o.reg, true);
  }
}

bool Body::direct(Symbol* v, CallSite* site) {
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
    else if (v->name == "cudaGraphSetConditional")
      site->builtin = Builtin::kSetConditional;
    else if (DeviceCall call = device_call(v->name)) {
      site->builtin = Builtin::kDevice;
      site->device = call;
    } else {
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

const FunctionSyntax* Body::formal_of(const Operand& target) {
  if (target.kind == OperandKind::kRegister) {
    const Operand& last = operand(in_->operand_count - 1);
    return last.kind == OperandKind::kSymbol ? last.symbol->function : nullptr;
  }
  Symbol* v = target.symbol ? target.symbol : m_.syntax.symbols.find(target.name);
  return v ? v->function : nullptr;
}

CallSlot* Body::slots(const Operand* list, const Vec<Symbol*>* formals, uint32_t* count,
                      bool passed) {
  *count = list ? list->count : 0;
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
    if (!(o.kind == OperandKind::kRegister || (number && passed)) || is_predicate(o) || !formals ||
        k >= formals->size()) {
      error("call parameters must be .param variables of the function, registers or numbers");
      return out;
    }
    // A register or a number is passed through memory of its own in the frame.
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

void Body::frame_access(Ty type, uint32_t offset, uint32_t reg, bool load) {
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

void Body::give_results() {
  if (s_.entry) return;
  for (Symbol* v : s_.results)
    if (v->count != 0) frame_access(v->type, v->offset, kVirtual | v->first, false);
}

void Body::ret(Parts& p) {
  p.take("uni");
  if (!finished(p)) return;
  give_results();
  control(op_ret, kEndsBlock | kNoFallThrough);
}

void Body::exit(Parts& p) {
  if (finished(p)) control(op_exit, kEndsBlock | kNoFallThrough);
}

void Body::trap(Parts& p) {
  if (!finished(p)) return;
  Ins i = blank();
  i.imm = p.base() == "brkpt";
  control(i, op_trap, kEndsBlock | kNoFallThrough);
}

void Body::sleep(Parts& p) {
  p.take_type();
  if (finished(p)) emit(blank(), op_sleep);
}

// clusterlaunchcontrol: try_cancel [answer], [mbarrier]; query_cancel d, answer. The answer is
// always no, and the block that it would name is never asked for then.
void Body::launch_control(Parts& p) {
  const bool query = p.take("query_cancel");
  if (!query && !p.take("try_cancel")) return error("unknown clusterlaunchcontrol instruction");
  static const char* const kWords[] = {"async", "shared::cta", "mbarrier::complete_tx::bytes",
                                       "b128", nullptr};
  Ins i = blank();
  if (!query) {
    while (p.take_one(kWords) >= 0) {
    }
    i.imm = p.take("multicast::cluster::all");
    if (!finished(p) || !need(2, 2)) return;
    uint16_t narrow[2] = {};
    i.a = plain_address(operand(0), Space::kShared, &narrow[0]);
    i.e = plain_address(operand(1), Space::kShared, &narrow[1]);
    i.sub = (uint16_t)((narrow[0] & 1 ? kBulkTo32 : 0) | (narrow[1] & 1 ? kBulkBarrier32 : 0));
    Roles r = Roles{};
    r.e_read = true;
    return emit(i, op_try_cancel, r);
  }
  const bool cancelled = p.take("is_canceled") && p.take("pred");
  static const char* const kFirst[] = {"get_first_ctaid", "get_first_ctaid::x",
                                       "get_first_ctaid::y", "get_first_ctaid::z", nullptr};
  const bool block = !cancelled && p.take_one(kFirst) >= 0;
  p.take("v4");
  p.take("b32");
  p.take("b128");
  if (!finished(p) || !need(2, 2)) return;
  if (!cancelled && !block) return error("what is asked for?");
  source(1, Ty::kB128);
  const Operand& d = operand(0);
  const bool list = d.kind == OperandKind::kList;
  const Ty type = cancelled ? Ty::kPred : Ty::kB32;
  for (unsigned k = 0; !failed_ && k < (list ? d.count : 1u); ++k) {
    const Operand& o = list ? d.items[k] : d;
    if (o.kind == OperandKind::kSink) continue;
    Ins move = blank();
    move.a = constant(0, 4);
    move.d = destination(o, type);
    Key key{Op::kMov};
    key.t = type;
    emit(move, b_.integer(key));
  }
}

void Body::fence(Parts& p) {
  p.take_prefix("");
  emit(blank(), op_fence);
}

void Body::barrier(Parts& p) {
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

void Body::collective(Ins i, Collective kind) {
  i.sub = (uint16_t)kind;
  i.flags |= kSetsManyRegisters;
  control(i, op_collective, 0);
}

void Body::shuffle(Parts& p) {
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

void Body::vote(Parts& p) {
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

void Body::match(Parts& p) {
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

void Body::redux(Parts& p) {
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

void Body::elect(Parts& p) {
  p.take("sync");
  if (!finished(p) || !need(2, 2)) return;
  Ins i = blank();
  const Operand& d = operand(0);
  i.g = source(1, Ty::kB32);
  i.d = destination(d, Ty::kB32);
  if (d.pair && d.items->kind != OperandKind::kSink) i.e = destination(*d.items, Ty::kPred);
  collective(i, Collective::kElect);
}

void Body::activemask(Parts& p) {
  p.take_type();
  if (!finished(p) || !need(1, 1)) return;
  Ins i = blank();
  i.d = destination(0u, Ty::kB32);
  emit(i, op_activemask);
}

void Body::stack(Parts& p) {  // alloca, stacksave, stackrestore
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

}  // namespace simgpu::ptx
