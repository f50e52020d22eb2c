// Lowering of wgmma: matrix products of a warpgroup.
#include "ptx/handlers/wgmma.h"

#include "ptx/handlers/sparse.h"
#include "ptx/lower/lower_body.h"

namespace simgpu::ptx {

namespace {

// The numbers of "m64n96k16".
bool dimensions(Text t, GroupShape* s) {
  unsigned at = 4, value[2] = {};
  for (unsigned& v : value) {
    for (; at < t.size && t[at] >= '0' && t[at] <= '9' && v < 1000; ++at)
      v = v * 10 + (unsigned)(t[at] - '0');
    ++at;  // the letter
  }
  s->n = (uint16_t)value[0];
  s->k = (uint16_t)value[1];
  return at == t.size + 1;
}

bool is_small_float(Element e) { return e == Element::kE4M3 || e == Element::kE5M2; }
bool is_byte(Element e) { return e == Element::kS8 || e == Element::kU8; }

bool exists(const GroupShape& s) {
  if (s.stored() != 256 / element_bits(s.a) || (s.sparse && s.a == Element::kB1)) return false;
  if (s.n == 0 || s.n > 256 || s.n % 8 != 0) return false;
  const bool integers = is_byte(s.a) || s.a == Element::kB1;
  if (integers && s.n % 16 != 0 && s.n != 8 && s.n != 24) return false;
  switch (s.a) {
    case Element::kF16:
      return s.b == s.a && (s.d == Element::kF16 || s.d == Element::kF32);
    case Element::kBF16:
    case Element::kTF32:
      return s.b == s.a && s.d == Element::kF32;
    case Element::kE4M3:
    case Element::kE5M2:
      return is_small_float(s.b) && (s.d == Element::kF16 || s.d == Element::kF32);
    case Element::kS8:
    case Element::kU8:
      return is_byte(s.b) && s.d == Element::kS32;
    case Element::kB1:
      return s.b == s.a && s.d == Element::kS32;
    default:
      return false;
  }
}

}  // namespace

// wgmma.fence, .commit_group and .wait_group have nothing to wait for: see wgmma.h.
void Body::wgmma(Parts& p) {
  if (p.take("mma_async")) return wgmma_product(p);
  const bool group = p.take("wait_group");
  if (!group && !p.take("fence") && !p.take("commit_group"))
    return error("unknown wgmma instruction");
  p.take("sync");
  p.take("aligned");
  if (!finished(p) || !need(group ? 1 : 0, group ? 1 : 0)) return;
  if (group && operand(0).kind != OperandKind::kInteger)
    return error("the number of groups is no constant");
  emit(blank(), op_nop);
}

// wgmma.mma_async d, a or its descriptor, descriptor of b, of a sparse a its metadata and selector,
// whether d is added, and for floating point the signs of a and b and, of 16 bits, which of the
// matrices in memory are transposed.
void Body::wgmma_product(Parts& p) {
  GroupShape s;
  p.take("sync");
  p.take("aligned");
  s.sparse = p.take("sp");
  const Text size = p.take_beginning("m64n");
  if (size.empty() || !dimensions(size, &s)) return error("these dimensions are not supported");
  s.saturate = p.take("satfinite");
  const bool both = p.take("and"), popc = p.take("popc");
  int types[3];
  for (int& t : types) t = p.take_next(kElementNames);
  if (!finished(p)) return;
  for (int t : types)
    if (t < 0) return error("three types of elements are needed");
  s.d = (Element)types[0];
  s.a = (Element)types[1];
  s.b = (Element)types[2];
  const bool bits = s.a == Element::kB1, integers = is_byte(s.a);
  if (!exists(s) || both != bits || popc != bits || (s.saturate && !integers))
    return error("this combination of dimensions and types is not supported");

  const bool registers = operand(1).kind == OperandKind::kList;
  const bool halves = s.a == Element::kF16 || s.a == Element::kBF16;
  const uint32_t added = s.sparse ? 5u : 3u;  // the operand that says so
  const uint32_t count =
      added + 1 + (bits || integers ? 0u : 2u) + (halves ? registers ? 1u : 2u : 0u);
  if (!need(count, count)) return;
  Ins i = blank();
  const unsigned sums = s.sums();
  const Operand& d = operand(0);
  if (d.kind != OperandKind::kList || d.count != sums) return error("d needs %u registers", sums);
  i.list = m_.syntax.arena.make<uint32_t>(2 * sums + kGroupRegisters);
  for (unsigned k = 0; k < sums; ++k) {
    i.list[k] = destination(d.items[k], Ty::kB32);
    i.list[sums + k] = source(d.items[k], Ty::kB32);
  }
  if (registers) {
    const Operand& a = operand(1);
    if (a.count != kGroupRegisters) return error("a needs %u registers", kGroupRegisters);
    for (unsigned k = 0; k < kGroupRegisters; ++k)
      i.list[2 * sums + k] = source(a.items[k], Ty::kB32);
  } else {
    i.a = source(1, Ty::kB64);
  }
  i.b = source(2, Ty::kB64);
  i.c = source(added, Ty::kPred);
  if (s.sparse) {
    MatrixShape sparsity{};
    sparsity.a = s.a;
    sparsity.k = s.k;
    if (!metadata(3, &sparsity, &i.e)) return;
    s.selector = sparsity.selector;
  }
  // What follows are constants.
  auto one_of = [&](uint32_t k, int64_t no, int64_t yes, bool* out) {
    const Operand& o = operand(k);
    const auto v = (int64_t)o.value;
    if (o.kind != OperandKind::kInteger || (v != no && v != yes))
      return error("operand %u is neither %lld nor %lld", k + 1, (long long)no, (long long)yes);
    *out = v == yes;
  };
  uint32_t next = added + 1;
  if (next < count) {
    one_of(next++, 1, -1, &s.negative_a);
    one_of(next++, 1, -1, &s.negative_b);
  }
  if (next < count && !registers) one_of(next++, 0, 1, &s.columns_a);
  if (next < count) one_of(next, 0, 1, &s.rows_b);
  i.imm = s.pack();
  i.flags |= kSetsManyRegisters;
  Roles r = Roles{};
  r.list_count = (uint16_t)(2 * sums + (registers ? kGroupRegisters : 0));
  r.list_written = (uint16_t)sums;
  r.e_read = true;
  control(i, op_wgmma, 0, r);
}

}  // namespace simgpu::ptx
