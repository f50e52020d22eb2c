// Lowering of copies with a tensor map, and of changes of one.
#include <initializer_list>

#include "ptx/handlers/async.h"
#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

// cp.async.bulk.tensor: [to], [map, {coordinates}], [mbarrier] {, offsets} {, blocks} {, policy},
// or [map, {coordinates}], [from] {, policy}.
void Body::tensor_copy(Parts& p) {
  static const char* const kDimensions[] = {"1d", "2d", "3d", "4d", "5d", nullptr};
  static const char* const kSpaces[] = {"shared::cta", "shared::cluster", "global", nullptr};
  if (p.take("prefetch")) return tensor_prefetch(p);
  TensorShape shape{};
  const int dimensions = p.take_one(kDimensions);
  if (dimensions < 0) return error("no number of dimensions");
  shape.dimensions = (uint8_t)(dimensions + 1);
  shape.store = p.first_of(kSpaces) == 2;
  const int first = p.take_one(kSpaces), second = p.take_one(kSpaces);
  const bool offsets = p.take("im2col");
  shape.im2col = offsets || p.take("im2col_no_offs");
  p.take("tile");
  const bool gather = p.take("tile::gather4"), scatter = p.take("tile::scatter4");
  shape.four_rows = gather || scatter;
  const bool told = p.take("mbarrier::complete_tx::bytes");
  const bool grouped = p.take("bulk_group"), many = p.take("multicast::cluster");
  const bool policy = p.take("L2::cache_hint");
  if (p.take("reduce")) shape.reduce = (ReduceOp)(p.take_one(kReduceNames) + 1);
  if (!finished(p)) return;
  if (first < 0 || second < 0) return error("copies need two state spaces");
  if (shape.reduce != ReduceOp::kNone && !shape.store) return error("loads do not reduce");
  f_->depends_on_order |= shape.reduce == ReduceOp::kAdd;  // of which type, the map says
  if (told == shape.store || grouped != shape.store) return error("wrong completion mechanism");
  if (offsets && shape.store) return error("stores have no offsets");
  if (shape.four_rows && (shape.dimensions != 2 || shape.im2col || scatter != shape.store))
    return error("four rows are gathered from a matrix, or scattered to one");
  if (shape.im2col && dimensions < 2) return error("im2col needs three dimensions");
  const uint32_t most = shape.store ? 3u : 3u + offsets + many + policy;
  if (!need(shape.store ? 2 : 3, most)) return;

  const Operand& map = operand(shape.store ? 0u : 1u);
  if (map.kind != OperandKind::kAddress || map.count != 2)
    return error("expected [map, coordinates]");
  const Operand& at = map.items[1];
  if (at.kind == OperandKind::kList ? at.count != shape.coordinates() : dimensions != 0)
    return error("wrong number of coordinates");
  Ins i = blank();
  uint16_t narrow[3] = {};
  i.a = plain_address(operand(shape.store ? 1u : 0u), Space::kShared, &narrow[0]);
  Operand plain = map;  // [map]
  plain.count = 1;
  i.b = plain_address(plain, Space::kGeneric, &narrow[1]);
  if (narrow[1] & 1) return error("the address of a map has 64 bits");
  i.list = operand_list(kTensorCount);
  vector_of(at, shape.coordinates(), Ty::kS32, i.list + kTensorCoordinate);
  uint32_t next = 2;
  if (told) i.e = plain_address(operand(next++), Space::kShared, &narrow[2]);
  if (offsets) {
    const Operand& by = operand(next++);
    if (by.kind == OperandKind::kList && by.count + 2 != shape.dimensions)
      return error("wrong number of offsets");
    vector_of(by, 3, Ty::kB16, i.list + kTensorOffset);
  }
  if (many) i.c = source(next++, Ty::kB16);
  i.sub = (uint16_t)((narrow[0] & 1 ? kBulkTo32 : 0) | (narrow[2] & 1 ? kBulkBarrier32 : 0));
  i.imm = shape.pack();
  Roles r = Roles{};
  r.e_read = true;
  r.list_count = kTensorCount;
  emit(i, op_tensor_copy, r);
}

// cp.async.bulk.prefetch.tensor [map, {coordinates}] {, offsets} {, policy}: only advice.
void Body::tensor_prefetch(Parts& p) {
  static const char* const kDimensions[] = {"1d", "2d", "3d", "4d", "5d", nullptr};
  static const char* const kModes[] = {"tile", "tile::gather4", "im2col", nullptr};
  if (p.take_one(kDimensions) < 0) return error("no number of dimensions");
  p.take_one(kModes);
  p.take("L2");
  p.take("global");
  p.take("L2::cache_hint");
  if (finished(p)) emit(blank(), op_nop);
}

// tensormap.replace.tile.field [map] {, dimension}, value; tensormap.cp_fenceproxy.
void Body::tensor_map(Parts& p) {
  static const char* const kPlaces[] = {"shared::cta", "global", nullptr};
  if (p.take("cp_fenceproxy")) return tensor_map_copy(p);
  if (!p.take("replace")) return error("unknown tensormap instruction");
  if (!p.take("tile")) return error("only maps of mode .tile are supported");
  const int name = p.take_one(kMapFieldNames), place = p.take_one(kPlaces);
  p.take("b1024");
  const bool wide = p.take("b64");
  if (!wide && !p.take("b32")) return error("the value's type is missing");
  if (!finished(p)) return;
  if (name < 0) return error("which field?");
  MapChange change{};
  change.field = (MapField)name;
  if (wide != (change.field == MapField::kAddress || change.field == MapField::kStride))
    return error("the value's type does not fit the field");
  const bool numbered = change.field >= MapField::kBox && change.field <= MapField::kStep;
  if (!need(numbered ? 3 : 2, numbered ? 3 : 2)) return;
  if (numbered) {
    const Operand& which = operand(1);
    const unsigned most = change.field == MapField::kStride ? 4 : 5;
    if (which.kind != OperandKind::kInteger || which.value >= most) return error("bad dimension");
    change.index = (uint8_t)which.value;
  }
  const Operand& value = operand(numbered ? 2u : 1u);
  if (change.field >= MapField::kType) {
    static const uint64_t kKnown[] = {13, 1, 4, 2, 2};  // values that the engine has
    if (value.kind != OperandKind::kInteger) return error("the value is no constant");
    if (value.value >= kKnown[name - (int)MapField::kType])
      return error("a map with '%s' %llu is not supported", kMapFieldNames[name],
                   (unsigned long long)value.value);
  }
  // Compilers before CUDA 12.5 took strides as the machine has them, without the last four bits.
  change.pieces = change.field == MapField::kStride && m_.syntax.version < 85;
  Ins i = blank();
  uint16_t narrow = 0;
  i.a = plain_address(operand(0), place == 0 ? Space::kShared : Space::kGeneric, &narrow);
  i.b = source(value, wide ? Ty::kB64 : Ty::kB32);
  i.sub = (uint16_t)((narrow & 1 ? kBulkTo32 : 0) | (place == 0 ? kBulkToShared : 0));
  i.imm = change.pack();
  emit(i, op_map_replace);
}

// [to in global memory], [from in shared memory], 128.
void Body::tensor_map_copy(Parts& p) {
  for (const char* word :
       {"global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"})
    p.take(word);
  static const char* const kScopes[] = {"cta", "cluster", "gpu", "sys", nullptr};
  p.take_one(kScopes);
  if (!finished(p) || !need(3, 3)) return;
  if (operand(2).kind != OperandKind::kInteger || operand(2).value != 128)
    return error("a tensor map has 128 bytes");
  Ins i = blank();
  uint16_t narrow[2] = {};
  i.a = plain_address(operand(0), Space::kGlobal, &narrow[0]);
  i.b = plain_address(operand(1), Space::kShared, &narrow[1]);
  i.sub = (uint16_t)((narrow[0] & 1 ? kBulkTo32 : 0) | (narrow[1] & 1 ? kBulkFrom32 : 0) |
                     kBulkFromShared);
  control(i, op_map_copy, 0);
}

}  // namespace simgpu::ptx
