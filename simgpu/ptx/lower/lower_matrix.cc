// Lowering of matrix instructions: mma.sync, wmma, ldmatrix, stmatrix, movmatrix.
#include "ptx/handlers/sparse.h"
#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

namespace {

struct Dimensions {
  const char* name;
  uint8_t m, n;
  uint16_t k;
};
constexpr Dimensions kMma[] = {
    {"m8n8k4", 8, 8, 4},       {"m8n8k16", 8, 8, 16},     {"m8n8k32", 8, 8, 32},
    {"m8n8k128", 8, 8, 128},   {"m16n8k4", 16, 8, 4},     {"m16n8k8", 16, 8, 8},
    {"m16n8k16", 16, 8, 16},   {"m16n8k32", 16, 8, 32},   {"m16n8k64", 16, 8, 64},
    {"m16n8k128", 16, 8, 128}, {"m16n8k256", 16, 8, 256},
};
constexpr Dimensions kWmma[] = {{"m16n16k16", 16, 16, 16},
                                {"m8n32k16", 8, 32, 16},
                                {"m32n8k16", 32, 8, 16},
                                {"m16n16k8", 16, 16, 8},
                                {"m8n8k4", 8, 8, 4}};

template <size_t N>
bool take_dimensions(Parts& p, const Dimensions (&all)[N], MatrixShape* s) {
  for (const Dimensions& d : all)
    if (p.take(d.name)) {
      s->m = d.m;
      s->n = d.n;
      s->k = d.k;
      return true;
    }
  return false;
}

bool is_small_float(Element e) {
  return e == Element::kE4M3 || e == Element::kE5M2 || e >= Element::kE3M2;
}
bool is_float(Element e) {
  return e == Element::kF16 || e == Element::kBF16 || e == Element::kTF32 || is_small_float(e);
}
bool is_integer(Element e) { return e >= Element::kS8 && e <= Element::kU4; }

// Inner dimensions that PTX has for mma with elements of a kind: registers of a and b are 1 to 4.
bool mma_exists(const MatrixShape& s) {
  const unsigned bits = element_bits(s.a);
  if (bits != element_bits(s.b)) return false;
  if (s.a == Element::kB1)
    return s.b == s.a && s.c == Element::kS32 && s.d == s.c && (s.m == 8 ? s.k == 128 : s.k >= 128);
  if (is_integer(s.a))
    return is_integer(s.b) && s.c == Element::kS32 && s.d == s.c &&
           (s.m == 8 ? s.k == 128 / bits : s.k == 128 / bits || s.k == 256 / bits);
  if (s.a == Element::kF64)
    return s.b == s.a && s.c == s.a && s.d == s.a && (s.m == 8 ? s.k == 4 : s.k <= 16);
  if (!is_float(s.a) || !is_float(s.b) || s.m == 8) return false;
  if (bits != 8 && s.a != s.b) return false;
  const bool half_sums = s.a == Element::kF16 || bits == 8;
  auto sums = [&](Element e) { return e == Element::kF32 || (e == Element::kF16 && half_sums); };
  return sums(s.c) && sums(s.d) && (s.k == 128 / bits || s.k == 256 / bits);
}

// The same for sparse matrices, which have twice as many columns of a as there are elements.
bool sparse_mma_exists(MatrixShape s) {
  const bool half = s.k * element_bits(s.a) == 256;
  if (s.m != 16 || s.k % 2 != 0 || s.a == Element::kB1 || s.a == Element::kF64) return false;
  if (half && is_small_float(s.a)) return false;
  s.k /= 2;
  return mma_exists(s);
}

// What opcodes with a kind have besides: types of 4 and 6 bits, and scales.
bool kind_exists(const MatrixShape& s, Text kind, Text scale_type) {
  if (!is_small_float(s.a) || !is_small_float(s.b) || s.m != 16) return false;
  if (kind == "kind::f8f6f4") return s.k == (s.sparse ? 64 : 32) && scale_type.empty();
  if (s.c != Element::kF32 || s.d != s.c || s.sparse) return false;
  const unsigned parts = s.scales.parts;
  if (kind == "kind::mxf8f6f4") return s.k == 32 && parts == 1 && scale_type == "ue8m0";
  if (s.a != Element::kE2M1 || s.b != s.a || s.k != 64) return false;
  if (kind == "kind::mxf4") return parts == 2 && scale_type == "ue8m0";
  return kind == "kind::mxf4nvf4" &&
         ((parts == 2 && scale_type == "ue8m0") ||
          (parts == 4 && (scale_type == "ue4m3" || scale_type == "ue8m0")));
}

bool wmma_exists(const MatrixShape& s) {
  if (s.a != s.b) return false;
  switch (s.a) {
    case Element::kF16:
      return s.k == 16 && (s.c == Element::kF16 || s.c == Element::kF32) &&
             (s.d == Element::kF16 || s.d == Element::kF32);
    case Element::kBF16:
      return s.k == 16 && s.c == Element::kF32 && s.d == s.c;
    case Element::kTF32:
      return s.k == 8 && s.c == Element::kF32 && s.d == s.c;
    case Element::kS8:
    case Element::kU8:
      return s.k == 16 && s.c == Element::kS32 && s.d == s.c;
    case Element::kF64:
      return s.k == 4 && s.c == s.a && s.d == s.a;
    default:
      return false;
  }
}

}  // namespace

// The registers of a fragment, or of one register that needs no braces.
bool Body::fragment(const Operand& o, const MatrixShape& s, MatrixRole role, bool written,
                    uint32_t* out) {
  const unsigned needed = s.registers(role);
  const bool list = o.kind == OperandKind::kList;
  const unsigned count = list ? o.count : 1;
  if (count < needed || count > 8 || (count != needed && !s.opaque)) {
    error("a fragment of %u registers where %u are needed", count, needed);
    return false;
  }
  const Element e = s.element(role);
  const Ty type = e == Element::kF64 ? Ty::kB64 : Ty::kB32;
  for (unsigned k = 0; k < count; ++k) {
    const Operand& r = list ? o.items[k] : o;
    out[k] = written ? destination(r, type) : source(r, type);
  }
  return !failed_;
}

void Body::mma(Parts& p) {
  MatrixShape s{};
  p.take("sync");
  p.take("aligned");
  s.sparse = p.take("sp") || p.take("sp::ordered_metadata");
  const Text kind = p.take_beginning("kind::");
  const bool scaled = p.take("block_scale");
  if (!take_dimensions(p, kMma, &s)) return error("these dimensions are not supported");
  p.take("row");
  if (!p.take("col")) return error("only row.col is supported");
  s.saturate = p.take("satfinite");
  const bool popc = p.take("popc");
  s.exclusive = p.take("xor");
  const bool both = p.take("and");
  int types[4];
  for (int& t : types) t = p.take_next(kElementNames);
  const Text scale_type = scaled ? p.take_beginning("ue") : Text();
  if (scaled) s.scales = block_scales(p, kind, scale_type);
  const uint32_t count = 4 + (s.sparse ? 2u : 0u) + (scaled ? 4u : 0u);
  if (!finished(p) || !need(count, count)) return;
  for (int t : types)
    if (t < 0) return error("four types of elements are needed");
  s.d = (Element)types[0];
  s.a = (Element)types[1];
  s.b = (Element)types[2];
  s.c = (Element)types[3];
  if (!kind.empty() && kind_exists(s, kind, scale_type)) {
    if (s.k == 64 && !s.sparse) s.a = s.b = Element::kPackedE2M1;
    return multiply(s);
  }
  const bool small = s.a >= Element::kE3M2 || s.b >= Element::kE3M2;
  if (!kind.empty() || scaled || small || !(s.sparse ? sparse_mma_exists(s) : mma_exists(s)) ||
      popc != (s.a == Element::kB1) || popc != (s.exclusive || both))
    return error("this combination of dimensions and types is not supported");
  multiply(s);
}

void Body::multiply(MatrixShape s) {
  Ins i = blank();
  i.list = operand_list(kMatrixCount);
  if (!fragment(operand(0), s, MatrixRole::kD, true, i.list + kMatrixD) ||
      !fragment(operand(1), s, MatrixRole::kA, false, i.list + kMatrixA) ||
      !fragment(operand(2), s, MatrixRole::kB, false, i.list + kMatrixB) ||
      !fragment(operand(3), s, MatrixRole::kC, false, i.list + kMatrixC))
    return;
  if (s.sparse && !metadata(4, &s, &i.list[kMatrixMetadata])) return;
  if (s.scales.parts != 0) {
    scale(4, i.list + kMatrixScaleA);
    scale(6, i.list + kMatrixScaleB);
  }
  i.imm = s.pack();
  i.flags |= kSetsManyRegisters;
  Roles r = Roles{};
  r.list_count = kMatrixCount;
  r.list_written = kMatrixA;
  control(i, op_mma, 0, r);
}

// The word that tells which elements are there, and which lanes have it.
bool Body::metadata(uint32_t k, MatrixShape* s, uint32_t* word) {
  const Operand& selector = operand(k + 1);
  if (selector.kind != OperandKind::kInteger || selector.value >= 4 / Sparsity::lanes(s->a, s->k)) {
    error("the sparsity selector is no constant, or too large,");
    return false;
  }
  s->selector = (uint8_t)selector.value;
  *word = source(k, Ty::kB32);
  return !failed_;
}

BlockScales Body::block_scales(Parts& p, Text kind, Text type) {
  static const char* const kParts[] = {"scale_vec::1X", "scale_vec::2X", "scale_vec::4X", nullptr};
  const int named = p.take_one(kParts);
  const uint8_t usual = kind == "kind::mxf8f6f4" ? 1 : kind == "kind::mxf4" ? 2 : 4;
  return {named < 0 ? usual : (uint8_t)(1 << named), type == "ue4m3"};
}

// Scales and, in braces, which byte of them is the first and which lanes have them. CUTLASS writes
// the scales in braces, too.
void Body::scale(uint32_t k, uint32_t* out) {
  const Operand &scales = operand(k), &place = operand(k + 1);
  if (place.kind != OperandKind::kList || place.count != 2)
    return error("operand %u is no pair of byte and thread", k + 2);
  const bool braces = scales.kind == OperandKind::kList && scales.count == 1;
  out[0] = source(braces ? scales.items[0] : scales, Ty::kB32);
  out[1] = source(place.items[0], Ty::kU16);
  out[2] = source(place.items[1], Ty::kU16);
}

void Body::wmma(Parts& p) {
  if (p.take("load")) return wmma_access(p, false);
  if (p.take("store")) return wmma_access(p, true);
  static const char* const kLayouts[] = {"row", "col", nullptr};
  MatrixShape s{};
  s.opaque = true;
  if (!p.take("mma")) return error("unknown wmma instruction");
  p.take("sync");
  p.take("aligned");
  p.take_next(kLayouts);
  p.take_next(kLayouts);
  if (!take_dimensions(p, kWmma, &s)) return error("these dimensions are not supported");
  s.saturate = p.take("satfinite");
  p.take("rn");
  int types[4];
  for (int& t : types) t = p.take_next(kElementNames);
  if (!finished(p) || !need(4, 4)) return;
  if (types[1] < 0) return error("types of elements are missing");
  const bool halves = types[2] < 0;  // f16: the sums' types alone
  s.d = (Element)types[0];
  s.a = halves ? Element::kF16 : (Element)types[1];
  s.b = halves ? Element::kF16 : (Element)types[2];
  s.c = (Element)(halves ? types[1] : types[3]);
  if ((!halves && types[3] < 0) || !wmma_exists(s))
    return error("this combination of dimensions and types is not supported");
  multiply(s);
}

// wmma.load.a {fragment}, [address] {, pitch}; wmma.store.d [address], {fragment} {, pitch}.
void Body::wmma_access(Parts& p, bool store) {
  static const char* const kRoles[] = {"a", "b", "c", "d", nullptr};
  MatrixShape s{};
  s.opaque = true;
  const int role = p.take_one(kRoles);
  if (role < 0 || store != (role == 3)) return error("which matrix?");
  s.role = (MatrixRole)role;
  p.take("sync");
  p.take("aligned");
  s.columns = p.take("col");
  p.take("row");
  if (!take_dimensions(p, kWmma, &s)) return error("these dimensions are not supported");
  const Space where = space(p);
  const int type = p.take_next(kElementNames);
  if (!finished(p) || !need(2, 3)) return;
  if (type < 0 || element_bits((Element)type) < 8 || is_small_float((Element)type))
    return error("this type is not supported");
  s.a = s.b = s.c = s.d = (Element)type;
  Ins i = blank();
  i.list = operand_list(8);
  uint16_t narrow = 0;
  i.a = plain_address(operand(store ? 0u : 1u), where, &narrow);
  const uint32_t pitch = s.columns ? s.rows(s.role) : s.columns_of(s.role);
  i.b = in_->operand_count == 3 ? source(2, Ty::kU32) : constant(pitch, 4);
  i.sub = (uint16_t)((narrow & 1) | (where == Space::kShared ? 2 : 0));
  if (!fragment(operand(store ? 1u : 0u), s, s.role, !store, i.list)) return;
  i.imm = s.pack();
  i.flags |= kSetsManyRegisters;
  Roles r = Roles{};
  r.list_count = 8;
  r.list_written = store ? 0 : 8;
  control(i, store ? op_wmma_store : op_wmma_load, 0, r);
}

// ldmatrix {registers}, [row]; stmatrix [row], {registers}.
void Body::ldmatrix(Parts& p) {
  static const char* const kCounts[] = {"x1", "x2", "x4", nullptr};
  const bool store = p.base() == "stmatrix";
  p.take("sync");
  p.take("aligned");
  if (!p.take("m8n8")) return byte_matrix(p, store);
  const int count = p.take_one(kCounts);
  const bool transposed = p.take("trans");
  Space where = space(p);
  if (where == Space::kGeneric) where = Space::kShared;
  if (!p.take("b16")) return error("elements of a matrix of 8 x 8 have 16 bits");
  if (!finished(p) || !need(2, 2)) return;
  if (count < 0) return error("how many matrices?");
  Ins i = blank();
  i.sub = (uint16_t)((transposed ? 4 : 0) | (store ? 8 : 0));
  matrix_access(i, op_ldmatrix, 1u << count, where, store);
}

// ldmatrix of 8 x 16 and 16 x 16, stmatrix of 16 x 8: bytes, or in memory 4 or 6 bits of them.
void Body::byte_matrix(Parts& p, bool store) {
  static const char* const kCounts[] = {"x1", "x2", "x4", nullptr};
  static const char* const kShapes[] = {"m8n16", "m16n16", "m16n8", nullptr};
  const int shape = p.take_one(kShapes), count = p.take_one(kCounts);
  if (shape < 0 || store != (shape == 2)) return error("these dimensions are not supported");
  if (count < 0 || (shape == 1 && count == 2)) return error("how many matrices?");
  const bool transposed = p.take("trans");
  if (transposed != (shape != 0)) return error("only .m8n16 is not transposed");
  Space where = space(p);
  if (where == Space::kGeneric) where = Space::kShared;
  ByteMatrix m{(ByteShape)shape, 0, (uint8_t)(1 << count)};
  if (p.take("b8x16"))
    m.packed = p.take("b6x16_p32") ? 6 : p.take("b4x16_p64") ? 4 : 0;
  else if (p.take("b8"))
    m.packed = 8;
  if (!finished(p) || !need(2, 2)) return;
  if (m.packed == 0 || (m.packed == 8 ? shape == 0 : store))
    return error("these types are not supported");
  Ins i = blank();
  i.imm = m.pack();
  matrix_access(i, op_byte_matrix, m.count * m.registers(), where, store);
}

// {registers}, [row], or the other way round.
void Body::matrix_access(Ins i, Fn fn, unsigned registers, Space where, bool store) {
  i.n = (uint8_t)registers;
  i.list = operand_list(4);
  uint16_t narrow = 0;
  i.a = plain_address(operand(store ? 0u : 1u), where, &narrow);
  i.sub |= (uint16_t)((narrow & 1) | 2);
  const Operand& list = operand(store ? 1u : 0u);
  const bool braces = list.kind == OperandKind::kList;
  if (braces ? list.count != i.n : i.n != 1) return error("wrong number of registers");
  for (unsigned k = 0; k < i.n; ++k) {
    const Operand& o = braces ? list.items[k] : list;
    i.list[k] = store ? source(o, Ty::kB32) : destination(o, Ty::kB32);
  }
  i.flags |= kSetsManyRegisters;
  Roles r = Roles{};
  r.list_count = 4;
  r.list_written = store ? 0 : 4;
  control(i, fn, 0, r);
}

void Body::movmatrix(Parts& p) {
  p.take("sync");
  p.take("aligned");
  if (!p.take("m8n8") || !p.take("trans") || !p.take("b16"))
    return error("only m8n8.trans.b16 is supported");
  if (!finished(p) || !need(2, 2)) return;
  Ins i = blank();
  i.a = source(1, Ty::kB32);
  i.d = destination(0u, Ty::kB32);
  i.flags |= kSetsManyRegisters;
  control(i, op_movmatrix, 0);
}

}  // namespace simgpu::ptx
