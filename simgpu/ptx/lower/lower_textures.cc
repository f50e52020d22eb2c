// Lowering of texture and surface instructions.
#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

bool Body::geometry(Parts& p, Geometry* out) {
  static const char* const kNames[] = {"1d", "2d", "3d", "a1d", "a2d", "cube", "acube", nullptr};
  const int k = p.take_one(kNames);
  if (k < 0) error("this geometry is not supported");
  *out = (Geometry)k;
  return k >= 0;
}

unsigned Body::coordinates(Geometry g) {
  static const uint8_t kCount[] = {1, 2, 3, 2, 3, 3, 4};  // layer included
  return kCount[(unsigned)g];
}

bool Body::has_layer(Geometry g) {
  return g == Geometry::k1DLayered || g == Geometry::k2DLayered || g == Geometry::kCubeLayered;
}

bool Body::texture_address(const Operand& o, Geometry g, Ty type, uint32_t* handle, uint32_t* out,
                           uint32_t* sampler) {
  const bool apart = sampler && o.count == 3;
  if (o.kind != OperandKind::kAddress || (o.count != 2 && !apart)) {
    error("expected [object, coordinates]");
    return false;
  }
  *handle = source(o.items[0], Ty::kB64);
  if (apart) *sampler = source(o.items[1], Ty::kB64);
  const unsigned n = coordinates(g);
  const Operand& list = o.items[o.count - 1];
  const bool single = list.kind != OperandKind::kList;
  if (single ? n != 1 : list.count < n) {
    error("too few coordinates");
    return false;
  }
  for (unsigned k = 0; k < n; ++k)
    out[k] = source(single ? list : list.items[k], k == 0 && has_layer(g) ? Ty::kB32 : type);
  return !failed_;
}

void Body::vector_of(const Operand& o, unsigned most, Ty type, uint32_t* out) {
  if (o.kind != OperandKind::kList) {
    out[0] = source(o, type);
    return;
  }
  for (unsigned k = 0; k < o.count && k < most; ++k) out[k] = source(o.items[k], type);
}

uint32_t* Body::operand_list(unsigned count) {
  auto* list = m_.syntax.arena.make<uint32_t>(count);
  for (unsigned k = 0; k < count; ++k) list[k] = kNone;
  return list;
}

void Body::texture(Parts& p) {
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
  i.list = operand_list(kTexCount);
  if (!texture_address(operand(1), shape.geometry, type, &i.a, i.list + kTexCoordinate, &i.b))
    return;
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

void Body::surface(Parts& p) {
  static const char* const kOutside[] = {"trap", "clamp", "zero", nullptr};
  static const char* const kOps[] = {"add", "min", "max", "and", "or", nullptr};
  const bool load = p.base() == "suld", reduce = p.base() == "sured";
  SurfaceShape shape{};
  shape.formatted = p.take("p");
  if (!shape.formatted && !p.take("b")) return error("neither .b nor .p");
  if (shape.formatted && load) return error("formatted loads are not supported");
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
  if (shape.formatted && (type_bytes(shape.type) != 4 || (reduce && shape.type != Ty::kB32)))
    return error("bad type");
  shape.outside = (Outside)outside;
  shape.wide = type_bytes(shape.type) == 8;
  Ins i = blank();
  i.n = (uint8_t)n;
  i.list = operand_list(kSurfCount);
  if (!texture_address(operand(load ? 1u : 0u), shape.geometry, Ty::kS32, &i.a,
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

void Body::texture_query(Parts& p) {
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
  if (query == (int)TextureQuery::kChannelType || query == (int)TextureQuery::kChannelOrder ||
      query == (int)TextureQuery::kMemoryLayout)
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
  emit(i, op_texture_query);
}

}  // namespace simgpu::ptx
