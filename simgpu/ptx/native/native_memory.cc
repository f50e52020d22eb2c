// Loads and stores of a run. Each access remembers the segment that it found last (Ctx::sites).
// Consecutive addresses, or one address for all lanes, become one access of the machine; others are
// gathered or scattered. An address outside the remembered segment is left to the interpreter,
// which finds another segment or reports the fault.
#include <initializer_list>

#include "ptx/native/native_code.h"

namespace simgpu::ptx {

using namespace x86;

namespace {
constexpr Code kLoad32 = {k0F, kF3, 0, 0x6f}, kLoad64 = {k0F, kF3, 1, 0x6f};
constexpr Code kStore32 = {k0F, kF3, 0, 0x7f}, kStore64 = {k0F, kF3, 1, 0x7f};
constexpr Code kBroadcast32 = {k0F38, k66, 0, 0x58}, kBroadcast64 = {k0F38, k66, 1, 0x59};
constexpr Code kSpread32 = {k0F38, k66, 0, 0x7c}, kSpread64 = {k0F38, k66, 1, 0x7c};
constexpr Code kAdd32 = {k0F, k66, 0, 0xfe}, kAdd64 = {k0F, k66, 1, 0xd4};
constexpr Code kSub64 = {k0F, k66, 1, 0xfb};
constexpr Code kCompare32 = {k0F3A, k66, 0, 0x1f}, kCompare64 = {k0F3A, k66, 1, 0x1f};
constexpr Code kCompareU32 = {k0F3A, k66, 0, 0x1e}, kCompareU64 = {k0F3A, k66, 1, 0x1e};
constexpr Code kTest32 = {k0F38, k66, 0, 0x27}, kTest64 = {k0F38, k66, 1, 0x27};
constexpr Code kGather32 = {k0F38, k66, 0, 0x90}, kGather64 = {k0F38, k66, 1, 0x90};
constexpr Code kGatherFar32 = {k0F38, k66, 0, 0x91}, kGatherFar64 = {k0F38, k66, 1, 0x91};
constexpr Code kScatter32 = {k0F38, k66, 0, 0xa0}, kScatter64 = {k0F38, k66, 1, 0xa0};
constexpr Code kScatterFar32 = {k0F38, k66, 0, 0xa1}, kScatterFar64 = {k0F38, k66, 1, 0xa1};
constexpr Code kUpperHalf = {k0F3A, k66, 1, 0x3b}, kInsertHalf = {k0F3A, k66, 1, 0x3a};
constexpr Code kOut32 = {k0F, k66, 0, 0x7e}, kOut64 = {k0F, k66, 1, 0x7e};
constexpr Code kExtract32 = {k0F3A, k66, 0, 0x16}, kExtract64 = {k0F3A, k66, 1, 0x16};
constexpr Code kMoveVector = {k0F, k66, 1, 0x6f};

uint32_t site_at(int site, size_t field) {
  return (uint32_t)(offsetof(Ctx, sites) + (size_t)site * sizeof(Segment) + field);
}
}  // namespace

int Translator::site_of(uint32_t root) {
  if (forced_site_ >= 0) return forced_site_;
  for (const RootSite& r : sites->roots)
    if (root != 0 && r.root == root) return r.site;
  if (sites->used == (int)kSharedSite) return -1;
  const int site = sites->used++;
  sites->roots.push(RootSite{root, site});
  return site;
}

void Translator::check_range(unsigned bytes, unsigned lanes, bool write, int site, Label miss) {
  a_.test_immediate(kRax, bytes - 1);
  a_.jump_if(5, miss);
  a_.move(kR10, kRax);
  a_.sub64m(kR10, kRdi, site_at(site, offsetof(Segment, begin)));
  a_.jump_if(2, miss);
  a_.load64(kR11, kRdi, site_at(site, offsetof(Segment, end)));
  a_.sub(kR11, kRax);
  a_.jump_if(2, miss);
  if (masked() && lanes == kLanes) {  // up to the last active lane
    a_.load32(kR9, kRdi, offsetof(Ctx, high));
    a_.shift(4, kR9, bytes == 8 ? 3 : 2, true);
    a_.cmp(kR11, kR9);
  } else {
    a_.group1(7, kR11, (int32_t)(lanes * bytes), true);
  }
  a_.jump_if(2, miss);
  if (write) {
    a_.cmp8m(kRdi, site_at(site, offsetof(Segment, writable)), 0);
    a_.jump_if(4, miss);
  }
  a_.add64m(kR10, kRdi, site_at(site, offsetof(Segment, host)));
}

// rax: an offset in shared memory; r10 becomes its place.
void Translator::check_shared(unsigned bytes, unsigned lanes, Label miss) {
  a_.test_immediate(kRax, bytes - 1);
  a_.jump_if(5, miss);
  a_.load64(kR10, kRdi, offsetof(Ctx, block));
  a_.load32(kR11, kR10, offsetof(Block, shared_bytes));
  a_.sub(kR11, kRax, false);
  a_.jump_if(2, miss);
  if (masked() && lanes == kLanes) {
    a_.load32(kR9, kRdi, offsetof(Ctx, high));
    a_.shift(4, kR9, bytes == 8 ? 3 : 2, false);
    a_.cmp(kR11, kR9, false);
  } else {
    a_.group1(7, kR11, (int32_t)(lanes * bytes), false);
  }
  a_.jump_if(2, miss);
  a_.load64(kR10, kR10, offsetof(Block, shared));
  a_.add(kR10, kRax);
}

// rax = the number of one half of a compact value, or of the first lane of vectors, + offset.
void Translator::first_address(int n, unsigned half, int64_t offset) {
  const Value& v = values_[n];
  if (half == 0)
    a_.vector(v.wide ? kOut64 : kOut32, v.reg[0], 0, kRax, 0);
  else
    a_.vector(v.wide ? kExtract64 : kExtract32, v.reg[0], 0, kRax, 0, 0, false, 1);
  if (offset != 0) a_.group1(0, kRax, (int32_t)offset, v.wide);
}

void Translator::move_lanes(const Parts& p, bool wide, bool write, unsigned first_part,
                            unsigned count) {
  for (unsigned n = 0; n < count; ++n) {
    const unsigned r = p.reg[first_part + n], mask = lane_mask(first_part + n, wide);
    if (write)
      a_.vector(wide ? kStore64 : kStore32, r, 0, x86::at(kR10, 64 * n), 2, mask);
    else
      a_.vector(wide ? kLoad64 : kLoad32, r, 0, x86::at(kR10, 64 * n), 2, mask, mask != 0);
  }
}

void Translator::load_same(const Parts& p, bool wide, unsigned first_part, unsigned count) {
  a_.vector(wide ? kBroadcast64 : kBroadcast32, p.reg[first_part], 0, x86::at(kR10, 0), 2);
  for (unsigned n = 1; n < count; ++n)
    a_.vector(kMoveVector, p.reg[first_part + n], 0, p.reg[first_part], 2);
}

// How the lanes of a vector of addresses lie to one another: the first access finds out, and notes
// it for those that follow in the run, with the same vector or one at a distance from it.
Translator::Layout Translator::layout_of(int n, unsigned bytes) {
  const int base = like(n);
  if (!a_.short_ways() || base == Value::kNothing) return Layout{false, 0};
  auto place = [](size_t k) { return (uint32_t)(offsetof(Ctx, layouts) + k * sizeof(uint32_t)); };
  for (size_t k = 0; k < layouts_.size(); ++k)
    if (layouts_[k].like == base && layouts_[k].bytes == bytes) return Layout{true, place(k)};
  if (layouts_.size() == kLayouts) return Layout{false, 0};
  layouts_.push(Noted{base, bytes});
  return Layout{false, place(layouts_.size() - 1)};
}

void Translator::note(const Layout& l, uint32_t what) {
  if (!l.known && l.at != 0) a_.store32i(kRdi, l.at, what);
}

// Lanes at base + index * 2^scale, index in two registers of 32 bits.
void Translator::scattered32(unsigned i0, unsigned i1, const Parts& p, bool wide, bool write,
                             unsigned scale, Gpr base) {
  const unsigned index[2] = {i0, i1};
  for (unsigned n = 0; n < (wide ? 4u : 2u); ++n) {
    const unsigned mask = lane_mask(n, wide);
    if (mask != 0)
      a_.mask_move(kTestMask, mask);
    else
      a_.mask3(0x46, kTestMask, kTestMask, kTestMask);  // kxnord: all ones
    unsigned from = index[wide ? n / 2 : n];
    if (wide && (n & 1)) {
      a_.vector(kUpperHalf, from, 0, kScratch + 1, 2, 0, false, 1);
      from = kScratch + 1;
    }
    const Code c = write ? (wide ? kScatter64 : kScatter32) : (wide ? kGather64 : kGather32);
    a_.indexed(c, p.reg[n], base, from, scale, 0, 2, kTestMask);
  }
}

// Lanes at r10 + index, in four registers of 64 bits.
void Translator::scattered64(const Parts& index, const Parts& p, bool wide, bool write) {
  for (unsigned n = 0; n < 4; ++n) {
    const unsigned mask = lane_mask(n, true);
    if (mask != 0)
      a_.mask_move(kTestMask, mask);
    else
      a_.mask3(0x46, kTestMask, kTestMask, kTestMask);
    if (wide) {
      a_.indexed(write ? kScatterFar64 : kGatherFar64, p.reg[n], kR10, index.reg[n], 0, 0, 2,
                 kTestMask);
      continue;
    }
    const unsigned half = p.reg[n / 2];
    if (write) {
      unsigned from = half;
      if (n & 1) {
        a_.vector(kUpperHalf, half, 0, kScratch + 1, 2, 0, false, 1);
        from = kScratch + 1;
      }
      a_.indexed(kScatterFar32, from, kR10, index.reg[n], 0, 0, 2, kTestMask);
    } else if (n & 1) {
      a_.indexed(kGatherFar32, kScratch + 1, kR10, index.reg[n], 0, 0, 2, kTestMask);
      a_.vector(kInsertHalf, half, half, kScratch + 1, 2, 0, false, 1);
    } else {
      a_.indexed(kGatherFar32, half, kR10, index.reg[n], 0, 0, 2, kTestMask);
    }
  }
}

// Tests whether any lane's number in i0 and i1 differs from that in kScratch + stride * lane.
void Translator::lanes_differ(unsigned i0, unsigned i1, int32_t stride) {
  const uint8_t both[2] = {(uint8_t)i0, (uint8_t)i1};
  Mem steps[2];
  for (unsigned k = 0; k < 2 && stride != 0; ++k) steps[k] = counting(stride, false, 16 * k);
  if (a_.lanes_differ(lanes(both, false), kScratch, stride != 0 ? steps : nullptr)) return;
  for (unsigned k = 0; k < 2; ++k) {
    const unsigned mask = masked() ? (k == 0 ? kLow : kHigh) : 0;
    unsigned want = kScratch;
    if (stride != 0) {
      want = kScratch + 1;
      a_.vector(kAdd32, want, kScratch, counting(stride, false, 16 * k), 2);
    }
    a_.vector(kCompare32, k == 0 ? 0 : kTestMask, k == 0 ? i0 : i1, want, 2, mask, false, 4);
  }
  a_.mask_test(0, kTestMask);
}

// rax = the base of a value of two parts, with the instruction's offset.
void Translator::lazy_base(const Value& v, const Ins& i) {
  if (v.base >= 0) {
    a_.vector(kOut64, values_[v.base].reg[0], 0, kRax, 0);
    if (i.imm != 0) a_.group1(0, kRax, (int32_t)i.imm, true);
  } else {
    a_.move_immediate(kRax, (uint64_t)i.imm);
  }
}

// rax = the address of the first lane, whose index is in i0; then rcx is the parameters' again.
void Translator::lazy_first(const Value& v, const Ins& i) {
  if (v.sign) a_.move_sign(kRcx, kRcx);
  a_.shift(4, kRcx, v.scale, true);
  lazy_base(v, i);
  a_.add(kRax, kRcx);
  a_.load64(kRcx, kRdi, offsetof(Ctx, base) + 8);
}

// If all lanes access consecutive addresses: one access, then jumps to `done`. Else jumps to
// `apart`.
void Translator::lazy_in_a_row(const LazyAccess& x, const Ins& i, Label apart, Label done) {
  lanes_differ(x.i0, x.i1, 1);
  a_.jump_if(5, apart);
  a_.vector(kOut32, x.i0, 0, kRcx, 0);
  // Numbers that wrap between lanes lie far apart.
  const Label side = a_.label();
  a_.group1(7, kRcx, x.v.sign ? 0x7fffffe0 : (int32_t)0xffffffe0u, false);
  a_.jump_if(x.v.sign ? 14 : 6, side);
  a_.load64(kRcx, kRdi, offsetof(Ctx, base) + 8);
  a_.jump(apart);
  a_.place(side);
  lazy_first(x.v, i);
  check_range(x.wide ? 8 : 4, kLanes, x.write, x.site, x.miss);
  move_lanes(x.p, x.wide, x.write, 0, x.wide ? 4 : 2);
  a_.jump(done);
}

// If all lanes read one address: one access, then jumps to `done`.
void Translator::lazy_at_one_address(const LazyAccess& x, const Ins& i, Label done) {
  const Label apart = a_.label();
  lanes_differ(x.i0, x.i1, 0);
  a_.jump_if(5, apart);
  a_.vector(kOut32, x.i0, 0, kRcx, 0);
  lazy_first(x.v, i);
  check_range(x.wide ? 8 : 4, 1, x.write, x.site, x.miss);
  load_same(x.p, x.wide, 0, x.wide ? 4 : 2);
  a_.jump(done);
  a_.place(apart);
}

// Jumps to `miss` unless each lane's index leads into the segment that contains the base.
void Translator::check_lazy_lanes(const LazyAccess& x) {
  const unsigned bytes = x.wide ? 8 : 4;
  // How far the index may go in both directions; r11 is what is left of the segment.
  a_.load64(kR11, kRdi, site_at(x.site, offsetof(Segment, end)));
  a_.sub(kR11, kRax);
  a_.group1(5, kR11, (int32_t)bytes, true);
  if (x.v.scale != 0) a_.shift(5, kR11, x.v.scale, true);
  a_.move(kR9, kRax);
  a_.sub64m(kR9, kRdi, site_at(x.site, offsetof(Segment, begin)));
  if (x.v.scale != 0) a_.shift(5, kR9, x.v.scale, true);
  for (Gpr r : {kR11, kR9}) {
    const Label small = a_.label();
    a_.group1(7, r, 0x7fffffff, true);
    a_.jump_if(6, small);
    a_.move_immediate(r, 0x7fffffff);
    a_.place(small);
  }
  a_.vector(kSpread32, kScratch, 0, kR11, 2);
  a_.not_(kR9, false);
  a_.group1(0, kR9, 1, false);
  a_.vector(kSpread32, kScratch + 1, 0, kR9, 2);
  // Where the scale is smaller than what is accessed, the index decides about the alignment.
  const bool any = (1u << x.v.scale) % bytes == 0;
  const Mem low = any ? pool(-1) : all(bytes / (1u << x.v.scale) - 1, false);
  const uint8_t both[2] = {(uint8_t)x.i0, (uint8_t)x.i1};
  if (a_.lanes_inside(lanes(both, false), x.v.sign ? kScratch + 1 : Assembler::kNoLeast, kScratch,
                      low, x.miss))
    return;
  for (unsigned k = 0; k < 2; ++k) {
    const unsigned mask = masked() ? (k == 0 ? kLow : kHigh) : 0, r = k == 0 ? x.i0 : x.i1;
    if (!x.v.sign) {
      a_.vector(kCompareU32, k == 0 ? 0 : kTestMask, r, kScratch, 2, mask, false, 6);
      continue;
    }
    a_.vector(kCompare32, kTestMask, r, kScratch, 2, mask, false, 6);
    a_.vector(kCompare32, kSpareMask, r, kScratch + 1, 2, mask, false, 1);
    a_.mask3(0x45, k == 0 ? kTestMask : kSpareMask, kTestMask, kSpareMask);
    if (k == 0)
      a_.mask_move(0, kTestMask);
    else
      a_.mask_move(kTestMask, kSpareMask);
  }
  a_.mask_test(0, kTestMask);
  a_.jump_if(5, x.miss);
  if (any) return;
  for (unsigned k = 0; k < 2; ++k)
    a_.vector(kTest32, k == 0 ? 0 : kTestMask, k == 0 ? x.i0 : x.i1, low, 2,
              masked() ? (k == 0 ? kLow : kHigh) : 0);
  a_.mask_test(0, kTestMask);
  a_.jump_if(5, x.miss);
}

// base + index * scale, index a vector of 32 bits.
bool Translator::lazy_access(int n, const Parts& p, const Ins& i, uint32_t index, bool wide,
                             bool write) {
  const Value v = values_[n];
  const unsigned bytes = wide ? 8 : 4;
  const unsigned i0 = values_[v.index].reg[0], i1 = values_[v.index].reg[1];
  const int site = site_of(v.root);
  if (site < 0) return false;
  const Label miss = deopt(index, site), scattered = a_.label(), done = a_.label();
  const LazyAccess x{v, p, wide, write, i0, i1, site, miss};
  a_.vector(kBroadcast32, kScratch, 0, i0, 2);
  if (1u << v.scale == bytes) lazy_in_a_row(x, i, scattered, done);
  a_.place(scattered);
  if (!write) lazy_at_one_address(x, i, done);
  lazy_base(v, i);
  check_range(bytes, 1, write, site, miss);
  check_lazy_lanes(x);
  scattered32(i0, i1, p, wide, write, v.scale, kR10);
  a_.place(done);
  return true;
}

// Addresses in four registers.
bool Translator::vector_access(int n, const Parts& p, const Ins& i, uint32_t index, bool wide,
                               bool write) {
  const unsigned bytes = wide ? 8 : 4;
  const Parts x = parts(n);
  // Offsets in the segment, for lanes that lie apart.
  Parts far;
  for (unsigned k = 0; k < 4; ++k) {
    const unsigned r = take();
    far.reg[k] = (uint8_t)r;
    far.owned |= 1u << r;
  }
  const int site = site_of(values_[n].root);
  if (site < 0) return false;
  const Label miss = deopt(index, site), apart = a_.label(), done = a_.label();
  a_.vector(kOut64, x.reg[0], 0, kRax, 0);
  auto differ = [&](int32_t stride) {
    Mem steps[4];
    for (unsigned k = 0; k < 4 && stride != 0; ++k) steps[k] = counting(stride, true, 8 * k);
    if (a_.lanes_differ(lanes(x.reg, true), kScratch, stride != 0 ? steps : nullptr)) return;
    for (unsigned k = 0; k < 4; ++k) {
      unsigned want = kScratch;
      if (stride != 0) {
        want = kScratch + 1;
        a_.vector(kAdd64, want, kScratch, counting(stride, true, 8 * k), 2);
      }
      const unsigned mask = lane_mask(k, true);
      a_.vector(kCompare64, k == 0 ? 0 : kTestMask, x.reg[k], want, 2, mask, false, 4);
      if (k != 0) a_.mask3(0x45, 0, 0, kTestMask);
    }
    a_.mask_test(0, 0);
  };
  const Layout layout = layout_of(n, bytes);
  if (!layout.known) a_.vector(kSpread64, kScratch, 0, kRax, 2);
  if (i.imm != 0) a_.group1(0, kRax, (int32_t)i.imm, true);
  auto jump_unless = [&](uint32_t is, int32_t stride, Label to) {
    if (layout.known) {
      a_.cmp8m(kRdi, layout.at, is);
      return a_.jump_if(5, to);
    }
    differ(stride);
    a_.jump_if(5, to);
    note(layout, is);
  };
  jump_unless(kRow, (int32_t)bytes, apart);
  check_range(bytes, kLanes, write, site, miss);
  move_lanes(p, wide, write, 0, wide ? 4 : 2);
  a_.jump(done);
  a_.place(apart);
  if (!write) {
    const Label scattered = a_.label();
    jump_unless(kSame, 0, scattered);
    check_range(bytes, 1, write, site, miss);
    load_same(p, wide, 0, wide ? 4 : 2);
    a_.jump(done);
    a_.place(scattered);
  }
  note(layout, kApart);
  // The first lane may be inactive, so its address is not checked alone.
  const bool any = masked() && a_.short_ways();
  const Label wrong = any ? a_.label() : miss;
  if (any && write) {
    a_.cmp8m(kRdi, site_at(site, offsetof(Segment, writable)), 0);
    a_.jump_if(4, wrong);
  }
  if (masked() && !any) {
    const Label some = a_.label();
    a_.load32(kR9, kRdi, offsetof(Ctx, mask));
    a_.test_immediate(kR9, 1);
    a_.jump_if(5, some);
    a_.jump(miss);
    a_.place(some);
  }
  if (!any) check_range(bytes, 1, write, site, miss);
  a_.load64(kR11, kRdi, site_at(site, offsetof(Segment, begin)));
  if (i.imm != 0) a_.group1(5, kR11, (int32_t)i.imm, true);
  a_.vector(kSpread64, kScratch, 0, kR11, 2);
  a_.load64(kR9, kRdi, site_at(site, offsetof(Segment, end)));
  a_.sub64m(kR9, kRdi, site_at(site, offsetof(Segment, begin)));
  a_.group1(5, kR9, (int32_t)bytes, true);
  a_.vector(kSpread64, kScratch + 1, 0, kR9, 2);
  const Mem low = all(bytes - 1, true);
  if (!a_.offsets_inside(lanes(x.reg, true), far.reg, kScratch, kScratch + 1, low, wrong)) {
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned mask = lane_mask(k, true);
      a_.vector(kSub64, far.reg[k], x.reg[k], kScratch, 2);
      a_.vector(kCompareU64, k == 0 ? 0 : kTestMask, far.reg[k], kScratch + 1, 2, mask, false, 6);
      if (k != 0) a_.mask3(0x45, 0, 0, kTestMask);
      a_.vector(kTest64, kTestMask, far.reg[k], low, 2, mask);
      a_.mask3(0x45, 0, 0, kTestMask);
    }
    a_.mask_test(0, 0);
    a_.jump_if(5, miss);
  }
  a_.load64(kR10, kRdi, site_at(site, offsetof(Segment, host)));
  scattered64(far, p, wide, write);
  if (any) {
    a_.jump(done);
    a_.place(wrong);
    a_.first_active(x.reg);
    if (i.imm != 0) a_.group1(0, kRax, (int32_t)i.imm, true);
    a_.jump(miss);
  }
  a_.place(done);
  give(x);
  give(far);
  return true;
}

// One number for all lanes, or numbers that count up by the size of what is accessed.
bool Translator::compact_access(int n, const Parts& p, const Ins& i, uint32_t index, bool wide,
                                bool write) {
  const Value v = values_[n];
  const unsigned bytes = wide ? 8 : 4, count = wide ? 4 : 2;
  const int site = site_of(v.root);
  if (site < 0) return false;
  const Label miss = deopt(index, site);
  const bool same = v.stride == 0;
  if (line() || (same && v.alike)) {
    first_address(n, 0, i.imm);
    check_range(bytes, same ? 1 : kLanes, write, site, miss);
    if (same)
      load_same(p, wide, 0, count);
    else
      move_lanes(p, wide, write, 0, count);
    return true;
  }
  for (unsigned half = 0; half < 2; ++half) {
    const Label next = a_.label();
    if (masked() && half == 1) {  // perhaps no lane is there
      a_.mask_test(kHigh, kHigh);
      a_.jump_if(4, next);
    }
    first_address(n, half, i.imm);
    check_range(bytes, same ? 1 : kLanes / 2, write, site, miss);
    if (same)
      load_same(p, wide, half * count / 2, count / 2);
    else
      move_lanes(p, wide, write, half * count / 2, count / 2);
    a_.place(next);
  }
  return true;
}

// A constant as a number of its own in a register.
int Translator::in_register(int n) {
  if (values_[n].form != Form::kConstant) return n;
  bool temporary;
  const unsigned r = compact(n, &temporary);
  const int v = make(Form::kCompact, values_[n].wide);
  values_[v].reg[0] = (uint8_t)r;
  values_[v].alike = true;
  temporary_ = v;
  return v;
}

bool Translator::load(const Ins& i, uint32_t index, bool wide) {
  const int address = in_register(operand(i.a, true));
  Value& x = values_[address];
  if (x.form == Form::kPredicate) return false;
  const int64_t step = wide ? 8 : 4;
  const bool plain = x.form == Form::kCompact && (x.stride == 0 || x.stride == step);
  // The same number for all lanes stays one.
  if (plain && x.stride == 0 && (line() || x.alike)) {
    const unsigned r = take();
    const int site = site_of(values_[address].root);
    if (site < 0) return false;
    const Label miss = deopt(index, site);
    first_address(address, 0, i.imm);
    check_range((unsigned)step, 1, false, site, miss);
    a_.vector(wide ? kBroadcast64 : kBroadcast32, r, 0, x86::at(kR10, 0), 0);
    const int v = make(Form::kCompact, wide);
    values_[v].reg[0] = (uint8_t)r;
    values_[v].alike = true;
    set(i.d, v);
    return true;
  }
  const int v = new_vector(wide);
  Parts p;
  memcpy(p.reg, values_[v].reg, sizeof p.reg);
  bool good;
  if (plain)
    good = compact_access(address, p, i, index, wide, false);
  else if (values_[address].form == Form::kLazy)
    good = lazy_access(address, p, i, index, wide, false);
  else
    good = vector_access(address, p, i, index, wide, false);
  set(i.d, v);
  return good;
}

bool Translator::store(const Ins& i, uint32_t index, bool wide) {
  const int address = in_register(operand(i.a, true)), what = operand(i.d, wide);
  if (values_[address].form == Form::kPredicate) return false;
  const Parts p = parts(what);
  const Value& x = values_[address];
  bool good;
  if (x.form == Form::kCompact && values_[address].stride == (wide ? 8 : 4))
    good = compact_access(address, p, i, index, wide, true);
  else if (values_[address].form == Form::kLazy)
    good = lazy_access(address, p, i, index, wide, true);
  else
    good = vector_access(address, p, i, index, wide, true);
  give(p);
  return good;
}

bool Translator::shared(const Ins& i, uint32_t index, bool wide, bool write) {
  if ((i.sub & 1) == 0) {  // 64 bits: shared memory is a segment that begins at 0
    forced_site_ = (int)kSharedSite;
    const bool good = write ? store(i, index, wide) : load(i, index, wide);
    forced_site_ = -1;
    return good;
  }
  const unsigned bytes = wide ? 8 : 4;
  const int address = operand(i.a, false);
  const int what = write ? operand(i.d, wide) : -1;
  const Value x = values_[address];
  if (x.form == Form::kPredicate) return false;
  const bool compact_form =
      x.form == Form::kCompact && (x.stride == (int32_t)bytes || (x.stride == 0 && !write));
  if (!write && compact_form && x.stride == 0 && (line() || x.alike)) {
    const unsigned r = take();
    const Label miss = deopt(index);
    first_address(address, 0, i.imm);
    check_shared(bytes, 1, miss);
    a_.vector(wide ? kBroadcast64 : kBroadcast32, r, 0, x86::at(kR10, 0), 0);
    const int v = make(Form::kCompact, wide);
    values_[v].reg[0] = (uint8_t)r;
    values_[v].alike = true;
    set(i.d, v);
    return true;
  }
  int v = -1;
  Parts p;
  if (write) {
    p = parts(what);
  } else {
    v = new_vector(wide);
    memcpy(p.reg, values_[v].reg, sizeof p.reg);
  }
  if (compact_form)
    shared_compact(address, x.stride, p, i, index, wide, write);
  else
    shared_vector(address, p, i, index, wide, write);
  if (write)
    give(p);
  else
    set(i.d, v);
  return true;
}

// Addresses that count up from the first lane's, or are all the same, in each half of the warp.
void Translator::shared_compact(int address, int32_t stride, const Parts& p, const Ins& i,
                                uint32_t index, bool wide, bool write) {
  const unsigned bytes = wide ? 8 : 4, count = wide ? 4 : 2;
  const Label miss = deopt(index);
  if (line()) {
    first_address(address, 0, i.imm);
    check_shared(bytes, kLanes, miss);
    move_lanes(p, wide, write, 0, count);
    return;
  }
  for (unsigned half = 0; half < 2; ++half) {
    const Label next = a_.label();
    if (masked() && half == 1) {
      a_.mask_test(kHigh, kHigh);
      a_.jump_if(4, next);
    }
    first_address(address, half, i.imm);
    check_shared(bytes, stride == 0 ? 1 : kLanes / 2, miss);
    if (stride == 0)
      load_same(p, wide, half * count / 2, count / 2);
    else
      move_lanes(p, wide, write, half * count / 2, count / 2);
    a_.place(next);
  }
}

// Any addresses: those that turn out to lie side by side, or to be all the same, are one access.
void Translator::shared_vector(int address, const Parts& p, const Ins& i, uint32_t index, bool wide,
                               bool write) {
  const unsigned bytes = wide ? 8 : 4, count = wide ? 4 : 2;
  Parts at = parts(address);
  const unsigned o0 = take(), o1 = take();
  const Label miss = deopt(index), apart = a_.label(), done = a_.label();
  const Mem offset = all((uint32_t)i.imm, false);
  a_.vector(kAdd32, o0, at.reg[0], offset, 2);
  a_.vector(kAdd32, o1, at.reg[1], offset, 2);
  a_.vector(kOut32, o0, 0, kRax, 0);
  a_.vector(kBroadcast32, kScratch, 0, o0, 2);
  lanes_differ(o0, o1, (int32_t)bytes);
  a_.jump_if(5, apart);
  check_shared(bytes, kLanes, miss);
  move_lanes(p, wide, write, 0, count);
  a_.jump(done);
  a_.place(apart);
  if (!write) {
    const Label scattered = a_.label();
    lanes_differ(o0, o1, 0);
    a_.jump_if(5, scattered);
    check_shared(bytes, 1, miss);
    load_same(p, wide, 0, count);
    a_.jump(done);
    a_.place(scattered);
  }
  a_.load64(kR10, kRdi, offsetof(Ctx, block));
  a_.load32(kR11, kR10, offsetof(Block, shared_bytes));
  a_.group1(5, kR11, (int32_t)bytes, false);
  a_.jump_if(2, miss);
  a_.vector(kSpread32, kScratch, 0, kR11, 2);
  const uint8_t both[2] = {(uint8_t)o0, (uint8_t)o1};
  const Mem low = all(bytes - 1, false);
  if (!a_.lanes_inside(lanes(both, false), Assembler::kNoLeast, kScratch, low, miss)) {
    for (unsigned k = 0; k < 2; ++k) {
      const unsigned mask = masked() ? (k == 0 ? kLow : kHigh) : 0, r = k == 0 ? o0 : o1;
      a_.vector(kCompareU32, kTestMask, r, kScratch, 2, mask, false, 6);
      a_.vector(kTest32, kSpareMask, r, low, 2, mask);
      a_.mask3(0x45, kTestMask, kTestMask, kSpareMask);
      if (k == 0) a_.mask_move(0, kTestMask);
    }
    a_.mask_test(0, kTestMask);
    a_.jump_if(5, miss);
  }
  a_.load64(kR10, kR10, offsetof(Block, shared));
  scattered32(o0, o1, p, wide, write, 0, kR10);
  a_.place(done);
  give(at);
  give(o0);
  give(o1);
}

}  // namespace simgpu::ptx
