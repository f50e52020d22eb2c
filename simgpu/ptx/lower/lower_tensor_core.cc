// Lowering of tcgen05: tensor memory and the products whose sums lie there.
#include "ptx/handlers/tensor_core.h"

#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

// Those that have something to wait for or to order find it done.
void Body::tensor_core(Parts& p) {
  if (p.take("alloc")) return tensor_alloc(p, true);
  if (p.take("dealloc")) return tensor_alloc(p, false);
  if (p.take("ld")) return tensor_move(p, false);
  if (p.take("st")) return tensor_move(p, true);
  if (p.take("mma")) return tensor_product(p);
  if (p.take("commit")) return tensor_commit(p);
  static const char* const kNothing[] = {"wait::ld",
                                         "wait::st",
                                         "fence::before_thread_sync",
                                         "fence::after_thread_sync",
                                         "relinquish_alloc_permit",
                                         nullptr};
  if (p.take_one(kNothing) < 0) return error("these tensor-core instructions are not supported:");
  p.take("sync");
  p.take("aligned");
  if (!one_block(p) || !finished(p) || !need(0, 0)) return;
  emit(blank(), op_nop);
}

bool Body::one_block(Parts& p) {
  p.take("cta_group::1");
  if (!p.has("cta_group::2")) return true;
  error("tensor cores of two blocks together are not supported:");
  return false;
}

// The address of tensor memory in a register, with its offset added.
uint32_t Body::tensor_address(const Operand& o) {
  uint16_t narrow = 0;
  const uint32_t a = plain_address(o, Space::kShared, &narrow);
  if (!failed_ && !(narrow & 1)) error("the address of tensor memory has 32 bits");
  return a;
}

void Body::tensor_alloc(Parts& p, bool alloc) {
  p.take("sync");
  p.take("aligned");
  p.take("shared::cta");
  p.take("b32");
  if (!one_block(p) || !finished(p) || !need(2, 2)) return;
  f_->uses_tensor_memory = true;
  Ins i = blank();
  if (alloc) {
    uint16_t narrow = 0;
    i.a = plain_address(operand(0), Space::kShared, &narrow);
    i.sub = narrow & 1;
  } else {
    i.a = source(0, Ty::kB32);
  }
  i.b = source(1, Ty::kB32);
  control(i, alloc ? op_tensor_alloc : op_tensor_dealloc, 0);
}

// tcgen05.ld {registers}, [address] {, split}; tcgen05.st [address] {, split}, {registers}.
void Body::tensor_move(Parts& p, bool store) {
  static const char* const kTiles[] = {"32x32b",  "16x32bx2", "16x64b",
                                       "16x128b", "16x256b",  nullptr};
  static const char* const kTimes[] = {"x1",  "x2",  "x4",   "x8",   "x16",
                                       "x32", "x64", "x128", nullptr};
  p.take("sync");
  p.take("aligned");
  const int tile = p.take_one(kTiles), times = p.take_one(kTimes);
  const bool halves = p.take(store ? "unpack::16b" : "pack::16b");
  if (p.has("red")) return error("reductions are not supported:");
  p.take("b32");
  if (!finished(p)) return;
  if (tile < 0 || times < 0) return error("this shape is not supported");
  if (halves && tile > 1) return error("packed halves of this shape are not supported:");
  TensorMove m{(TensorTile)tile, store, 0, halves};
  const bool split = m.tile == TensorTile::k16x32bx2;
  if (!need(split ? 3 : 2, split ? 3 : 2)) return;
  f_->uses_tensor_memory = true;
  Ins i = blank();
  const uint32_t where = store ? 0u : 1u, what = store ? in_->operand_count - 1 : 0u;
  i.a = tensor_address(operand(where));
  if (split) {
    const Operand& by = operand(where + 1);
    if (by.kind != OperandKind::kInteger || by.value >= kTensorColumns)
      return error("the columns of the second half are no constant");
    m.split = (uint16_t)by.value;
  }
  const unsigned count = m.registers() << times;
  const Operand& list = operand(what);
  const bool braces = list.kind == OperandKind::kList;
  if (count > 128 || (braces ? list.count : 1) != count) return error("wrong number of registers");
  i.list = operand_list(count);
  for (unsigned k = 0; k < count; ++k) {
    const Operand& o = braces ? list.items[k] : list;
    i.list[k] = store ? source(o, Ty::kB32) : destination(o, Ty::kB32);
  }
  i.sub = (uint16_t)count;
  i.imm = m.pack();
  i.flags |= kSetsManyRegisters;
  Roles r = Roles{};
  r.list_count = (uint16_t)count;
  r.list_written = store ? 0 : (uint16_t)count;
  control(i, op_tensor_move, 0, r);
}

// tcgen05.mma [d], descriptor of a or [a], descriptor of b, instruction descriptor, whether d is
// added {, power of two that divides d before}. The lanes that are there do it, one by one.
void Body::tensor_product(Parts& p) {
  if (p.has("sp")) return error("sparse matrices are not supported:");
  if (p.has("ws")) return error("products of one warp's lanes are not supported:");
  if (p.has("block_scale")) return error("block scales in tensor memory are not supported:");
  if (p.has("ashift")) return error("a shifted matrix is not supported:");
  const int kind = p.take_one(kTensorKinds);
  p.take_beginning("collector::");
  if (!one_block(p) || !finished(p) || !need(5, 6)) return;
  if (kind < 0) return error("this kind is not supported");
  if (operand(4).kind == OperandKind::kList)
    return error("lanes that are not written are not supported:");
  f_->uses_tensor_memory = true;
  Ins i = blank();
  const bool in_memory = operand(1).kind == OperandKind::kAddress;
  uint64_t divided = 0;
  if (in_->operand_count == 6) {
    const Operand& by = operand(5);
    if (by.kind != OperandKind::kInteger || by.value > 15)
      return error("the scale of d is no constant up to 15");
    divided = by.value;
  }
  i.list = operand_list(kTensorProductCount);
  i.list[kTensorD] = tensor_address(operand(0));
  i.list[kTensorA] = in_memory ? tensor_address(operand(1)) : source(1, Ty::kB64);
  i.list[kTensorB] = source(2, Ty::kB64);
  i.list[kTensorInstruction] = source(3, Ty::kB32);
  i.list[kTensorAdded] = source(4, Ty::kPred);
  i.imm = (int64_t)((uint64_t)kind | (in_memory ? 256u : 0u) | divided << 16);
  Roles r = Roles{};
  r.list_count = kTensorProductCount;
  emit(i, op_tensor_product, r);
}

void Body::tensor_commit(Parts& p) {
  static const char* const kWords[] = {"mbarrier::arrive::one", "shared::cluster", "b64", nullptr};
  while (p.take_one(kWords) >= 0) {
  }
  const bool many = p.take("multicast::cluster");
  if (!one_block(p) || !finished(p) || !need(many ? 2 : 1, many ? 2 : 1)) return;
  Ins i = blank();
  uint16_t narrow = 0;
  i.a = plain_address(operand(0), Space::kShared, &narrow);
  i.sub = narrow & 1;
  if (many) i.b = source(1, Ty::kB16);
  emit(i, op_tensor_commit);
}

}  // namespace simgpu::ptx
