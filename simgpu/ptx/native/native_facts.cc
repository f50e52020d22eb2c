// Computes facts about registers without running code: see Facts.
#include "ptx/native/native_code.h"

namespace simgpu::ptx {

Fact Facts::constant(uint32_t operand, bool wide) const {
  Fact f;
  f.compact = f.alike = f.constant = true;
  const uint8_t* at = m_.constants + (operand & 0x7fffffffu);
  memcpy(&f.value, at, wide ? 8 : 4);
  return f;
}

namespace {

constexpr int64_t kMost = 1 << 20;  // of a stride

// If all sources are equal in all lanes, so is the result.
Fact of_equals(const Fact* s, unsigned count) {
  Fact f;
  f.alike = true;
  for (unsigned n = 0; n < count; ++n) {
    if (!s[n].compact || s[n].stride != 0) return f;
    f.alike &= s[n].alike;
  }
  f.compact = true;
  return f;
}

Fact with_stride(int64_t stride, bool alike) {
  Fact f;
  if (stride > kMost || stride < -kMost) return f;
  f.compact = true;
  f.stride = (int32_t)stride;
  f.alike = alike;
  return f;
}

// s[0] * s[1]: a stride is kept where the other one is a constant.
Fact product(const Fact* s, bool wide) {
  if (!s[0].compact || !s[1].compact) return {};
  const bool alike = s[0].alike && s[1].alike;
  if (s[0].stride == 0 && s[1].stride == 0) return with_stride(0, alike);
  const Fact& c = s[0].constant ? s[0] : s[1];
  const Fact& v = s[0].constant ? s[1] : s[0];
  if (!c.constant) return {};
  const int64_t by = wide ? (int64_t)c.value : (int32_t)c.value;
  if (by > kMost || by < -kMost) return {};
  return with_stride(by * v.stride, alike);
}

}  // namespace

Fact Facts::result(const Ins& i, const Known& k, const Fact* s) const {
  Fact f;
  switch (k.what) {
    case Do::kAdd:
    case Do::kSub:
      if (!s[0].compact || !s[1].compact) return f;
      f = with_stride((int64_t)s[0].stride + (k.what == Do::kAdd ? s[1].stride : -s[1].stride),
                      s[0].alike && s[1].alike);
      f.root = s[0].root != 0 ? s[0].root : s[1].root;
      return f;
    case Do::kMul:
      return product(s, k.wide);
    case Do::kMad: {
      const Fact p = product(s, k.wide);
      if (!p.compact || !s[2].compact) return f;
      return with_stride((int64_t)p.stride + s[2].stride, p.alike && s[2].alike);
    }
    case Do::kMove:
      f = s[0];
      f.constant = false;
      return f;
    case Do::kShift:
      if (k.detail == 0 && s[1].constant && (uint32_t)s[1].value < 20 && s[0].compact)
        return with_stride((int64_t)s[0].stride * ((int64_t)1 << s[1].value), s[0].alike);
      return of_equals(s, 2);
    case Do::kNegate:
      return s[0].compact ? with_stride(-(int64_t)s[0].stride, s[0].alike) : f;
    case Do::kBits:
    case Do::kPlain:
    case Do::kWide:
    case Do::kReal:
      return of_equals(s, 2);
    case Do::kExtend:
    case Do::kFromInt:
      return of_equals(s, 1);
    case Do::kTruncate:
      return s[0].compact ? with_stride(s[0].stride, s[0].alike) : f;
    case Do::kSpecial: {
      const auto reg = (uint8_t)i.imm;
      if (reg == kLaneid) return with_stride(1, false);
      if (reg > kTidZ) return with_stride(0, true);
      if (shape_ == WarpShape::kOther) return f;
      return with_stride(reg == kTidX ? 1 : 0, shape_ == WarpShape::kLine && reg != kTidX);
    }
    case Do::kParam:
      f = with_stride(0, true);
      if (k.wide) f.root = (uint32_t)i.imm + 1;
      return f;
    default:
      return f;
  }
}

void Facts::step(uint32_t index, Vec<uint32_t>& now, bool evaluate) {
  const Ins& i = f_.code[index];
  const bool guarded = i.inner != nullptr;
  const Known* k = guarded ? nullptr : known(handlers_[index], i);
  if (evaluate) {
    facts_[index] = Fact();
    if (k) {
      const uint32_t operands[3] = {i.a, i.b, i.c};
      Fact sources[3];
      const bool wide_source =
          k->what == Do::kWide || k->what == Do::kMadWide || k->what == Do::kExtend ? false
          : k->what == Do::kTruncate                                                ? true
                                                                                    : k->wide;
      for (unsigned n = 0; n < 3; ++n) {
        const uint32_t o = operands[n];
        if (o == kNone) continue;
        if (o >> 31)
          sources[n] = constant(o, wide_source && !(k->what == Do::kShift && n == 1));
        else if (now[o / 128] < kMany)
          sources[n] = facts_[now[o / 128]];
      }
      facts_[index] = result(i, *k, sources);
    }
  }
  each_register(f_, index, [&](uint32_t o, bool written) {
    if (!written) return;
    now[o / 128] = guarded ? kMany : index;
    // A wider register, if it is one: its other units have no other owner.
  });
}

void Facts::find() {
  units_ = f_.reg_bytes / 128;
  const uint64_t size = (uint64_t)units_ * f_.flow_count;
  if (size == 0 || size > 4 << 20) return;
  known_ = true;
  begin_.resize(size);
  facts_.resize(f_.code_count);
  for (uint32_t& x : begin_) x = kUnseen;
  for (uint32_t u = 0; u < units_; ++u) begin_[u] = kMany;
  Vec<uint32_t> now;
  now.resize(units_);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t b = 0; b < f_.flow_count; ++b) {
      const FlowBlock& block = f_.flow[b];
      memcpy(now.data(), begin_.data() + (size_t)b * units_, units_ * sizeof(uint32_t));
      for (uint32_t i = block.begin; i < block.end; ++i) step(i, now, false);
      for (uint32_t n = 0; n < block.count; ++n) {
        uint32_t* to = begin_.data() + (size_t)f_.flow_next[block.first + n] * units_;
        for (uint32_t u = 0; u < units_; ++u) {
          const uint32_t joined = to[u] == kUnseen || to[u] == now[u] ? now[u]
                                  : now[u] == kUnseen                 ? to[u]
                                                                      : kMany;
          if (joined == to[u]) continue;
          to[u] = joined;
          changed = true;
        }
      }
    }
  }
  for (uint32_t b = 0; b < f_.flow_count; ++b) {
    const FlowBlock& block = f_.flow[b];
    memcpy(now.data(), begin_.data() + (size_t)b * units_, units_ * sizeof(uint32_t));
    for (uint32_t i = block.begin; i < block.end; ++i) step(i, now, true);
  }
}

Fact Facts::at_begin(uint32_t b, uint32_t offset) const {
  if (!known_) return Fact();
  const uint32_t d = begin_[(size_t)b * units_ + offset / 128];
  return d < kMany ? facts_[d] : Fact();
}

}  // namespace simgpu::ptx
