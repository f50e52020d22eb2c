// Writes x86-64 machine code: labels, literals and the few scalar instructions that addresses and
// branches need; what vectors need is left to the instruction set (x86_avx512.h, x86_avx2.h).
// Memory operands have 32 bits of displacement, so that no instruction has two lengths.
#pragma once

#include "ptx/support.h"

namespace simgpu::ptx::x86 {

enum Gpr : uint8_t { kRax, kRcx, kRdx, kRbx, kRsp, kRbp, kRsi, kRdi, kR8, kR9, kR10, kR11 };

// A memory operand: base + displacement, or a literal of the function's pool + displacement.
struct Mem {
  Gpr base;
  int32_t displacement;
  int32_t literal;  // index in the pool; -1: none
};
inline Mem at(Gpr base, uint32_t displacement) { return Mem{base, (int32_t)displacement, -1}; }
inline Mem pool(int32_t literal) { return Mem{kRax, 0, literal}; }

enum Map : uint8_t { k0F = 1, k0F38 = 2, k0F3A = 3 };
enum Prefix : uint8_t { kPlain = 0, k66 = 1, kF3 = 2, kF2 = 3 };

// An instruction without its operands.
struct Code {
  Map map;
  Prefix prefix;
  uint8_t wide;  // EVEX.W
  uint8_t opcode;
};

using Label = uint32_t;

// Numbers of all lanes in zmm registers, and the mask registers of the active ones (0: all are).
struct Lanes {
  const uint8_t* reg;
  bool wide;           // four registers of 64-bit numbers; else two of 32
  unsigned low, high;  // masks
  unsigned count() const { return wide ? 4 : 2; }
};

class Assembler {
 public:
  Vec<uint8_t> bytes;
  bool failed = false;  // something has no form in this instruction set

  size_t here() const { return bytes.size(); }
  void byte(uint32_t b) { bytes.push((uint8_t)b); }
  void word(uint32_t v) {
    for (int k = 0; k < 4; ++k) byte(v >> (8 * k));
  }
  void quad(uint64_t v) {
    word((uint32_t)v);
    word((uint32_t)(v >> 32));
  }

  // ---- labels, with 32-bit distances ----
  Label label() {
    labels_.push(~0u);
    return (Label)labels_.size() - 1;
  }
  virtual void place(Label l) { labels_[l] = (uint32_t)here(); }
  uint32_t where(Label l) const { return labels_[l]; }
  virtual void jump(Label to) {
    byte(0xe9);
    reference(to);
  }
  // Conditions as in the machine code: 2 b, 3 ae, 4 e, 5 ne, 6 be, 7 a, 12 l, 13 ge, 14 le, 15 g.
  virtual void jump_if(unsigned condition, Label to) {
    byte(0x0f);
    byte(0x80 + condition);
    reference(to);
  }

  // ---- literals: vectors of 64 bytes behind the code ----
  int32_t literal(const void* data) {
    for (size_t k = 0; k + 64 <= pool_.size(); k += 64)
      if (memcmp(pool_.data() + k, data, 64) == 0) return (int32_t)(k / 64);
    const size_t at = pool_.size();
    for (int k = 0; k < 64; ++k) pool_.push(static_cast<const uint8_t*>(data)[k]);
    return (int32_t)(at / 64);
  }

  // Places the pool and resolves everything.
  void finish() {
    while (here() % 64 != 0) byte(0xcc);
    const auto base = (uint32_t)here();
    for (uint8_t b : pool_) byte(b);
    for (const Use& u : uses_) {
      const uint32_t target = u.literal ? base + u.target : labels_[u.target];
      const uint32_t distance = target - (u.at + 4 + u.after);
      memcpy(&bytes[u.at], &distance, 4);
    }
  }

  // ---- vectors, in terms of AVX-512: see x86_avx512.h and x86_avx2.h ----
  // length: 0 xmm, 1 ymm, 2 zmm. mask: k register, 0 none. `immediate`: one byte more follows.
  virtual void vector(Code c, unsigned reg, unsigned second, unsigned rm, unsigned length,
                      unsigned mask = 0, bool zero = false, int immediate = -1) = 0;
  virtual void vector(Code c, unsigned reg, unsigned second, Mem m, unsigned length,
                      unsigned mask = 0, bool zero = false, int immediate = -1,
                      bool broadcast = false) = 0;
  // Gathers and scatters: base + index * 2^scale + displacement.
  virtual void indexed(Code c, unsigned reg, Gpr base, unsigned index, unsigned scale,
                       int32_t displacement, unsigned length, unsigned mask) = 0;
  // kandd and friends: W1, L1, prefix 66 (d forms).
  virtual void mask3(unsigned opcode, unsigned d, unsigned a, unsigned b) = 0;
  virtual void mask_unpack(unsigned d, unsigned high, unsigned low) = 0;        // kunpckwd
  virtual void mask_unpack_bytes(unsigned d, unsigned high, unsigned low) = 0;  // kunpckbw
  virtual void mask_not(unsigned d, unsigned a) = 0;
  virtual void mask_move(unsigned d, unsigned a) = 0;
  virtual void mask_shift_right(unsigned d, unsigned a, unsigned count) = 0;  // kshiftrd
  virtual void mask_to_gpr(Gpr d, unsigned a) = 0;
  virtual void gpr_to_mask(unsigned d, Gpr a) = 0;
  virtual void mask_test(unsigned a, unsigned b) = 0;  // kortestd

  // ---- what an instruction set with fewer registers wants to know ----
  virtual void dead(unsigned /*reg*/) {}  // nothing reads the register before it is written
  virtual void all_dead() {}
  virtual void rare(Label) {}  // jumps to the label are
  virtual void begin_run() {}
  virtual void end_run() {}  // nothing of the run follows

  // ---- what an instruction set may do in a shorter way: true where it has ----
  virtual bool short_ways() const { return false; }  // it has all of them
  // Replaces NaNs in a register by the literal.
  virtual bool replace_nans(unsigned, bool /*wide*/, unsigned /*length*/, Mem) { return false; }
  // Sets the zero flag unless an active lane differs from `first` (+ the literals).
  virtual bool lanes_differ(const Lanes&, unsigned /*first*/, const Mem*) { return false; }
  // Jumps unless each lane is between `least` (kNoLeast: 0) and `most`, which is below 2^31, and
  // without the literal's bits (literal -1: any).
  static constexpr unsigned kNoLeast = ~0u;
  virtual bool lanes_inside(const Lanes&, unsigned /*least*/, unsigned /*most*/, Mem, Label) {
    return false;
  }
  // `to` = lanes - begin, jumps unless each is at most `most` and without the literal's bits.
  virtual bool offsets_inside(const Lanes&, const uint8_t* /*to*/, unsigned /*begin*/,
                              unsigned /*most*/, Mem, Label) {
    return false;
  }
  // rax = the number of the first active lane, in four registers.
  virtual void first_active(const uint8_t*) {}
  // A mask of 32 lanes: two numbers compared, each in an xmm register or, where that is not below
  // kNone, in memory.
  static constexpr unsigned kNone = 32;
  virtual void compare_one(Code, unsigned, unsigned, Mem, unsigned, Mem, int) {}
  // A mask of 32 lanes: lanes compared with registers, or with a number in memory (null).
  virtual bool compare_lanes(Code, unsigned, const Lanes&, const uint8_t*, Mem, int) {
    return false;
  }

  // ---- scalars ----
  void load64(Gpr d, Gpr base, uint32_t displacement) { scalar(true, 0x8b, d, base, displacement); }
  void load32(Gpr d, Gpr base, uint32_t displacement) {
    scalar(false, 0x8b, d, base, displacement);
  }
  void load16(Gpr d, Gpr base, uint32_t displacement) { extended(0xb7, d, base, displacement); }
  void load8(Gpr d, Gpr base, uint32_t displacement) { extended(0xb6, d, base, displacement); }
  void load_sign(Gpr d, Gpr base, uint32_t displacement) {  // movsxd
    scalar(true, 0x63, d, base, displacement);
  }
  // d = [base + index * 2^scale + displacement], 64 bits; index is not rsp
  void load_indexed(Gpr d, Gpr base, Gpr index, unsigned scale, uint32_t displacement) {
    byte(0x48u | (d >= 8 ? 4u : 0) | (index >= 8 ? 2u : 0) | (base >= 8 ? 1u : 0));
    byte(0x8b);
    byte(0x80 | (d & 7u) << 3 | 4);
    byte(scale << 6 | (index & 7u) << 3 | (base & 7u));
    word(displacement);
  }
  // tzcnt, 32 bits of memory
  void first_bit(Gpr d, Gpr base, uint32_t displacement) {
    byte(0xf3);
    rex(false, d, base);
    byte(0x0f);
    byte(0xbc);
    byte(0x80 | (d & 7u) << 3 | (base & 7u));
    word(displacement);
  }
  void store32(Gpr base, uint32_t displacement, Gpr s) {
    scalar(false, 0x89, s, base, displacement);
  }
  void or32m(Gpr d, Gpr base, uint32_t displacement) { scalar(false, 0x0b, d, base, displacement); }
  void and32m(Gpr d, Gpr base, uint32_t displacement) {
    scalar(false, 0x23, d, base, displacement);
  }
  void xor32m(Gpr d, Gpr base, uint32_t displacement) {
    scalar(false, 0x33, d, base, displacement);
  }
  // mov [base + index * 2^scale], s
  void store_indexed(Gpr base, Gpr index, unsigned scale, Gpr s, bool wide) {
    byte(0x40u | (wide ? 8u : 0) | (s >= 8 ? 4u : 0) | (index >= 8 ? 2u : 0) |
         (base >= 8 ? 1u : 0));
    byte(0x89);
    byte((s & 7u) << 3 | 4);
    byte(scale << 6 | (index & 7u) << 3 | (base & 7u));
  }
  void store64(Gpr base, uint32_t displacement, Gpr s) {
    scalar(true, 0x89, s, base, displacement);
  }
  void sub64m(Gpr d, Gpr base, uint32_t displacement) { scalar(true, 0x2b, d, base, displacement); }
  void add64m(Gpr d, Gpr base, uint32_t displacement) { scalar(true, 0x03, d, base, displacement); }
  void cmp64m(Gpr a, Gpr base, uint32_t displacement) { scalar(true, 0x3b, a, base, displacement); }
  void cmp8m(Gpr base, uint32_t displacement, unsigned value) {  // cmp byte [..], value
    scalar(false, 0x80, kRdi, base, displacement);
    byte(value);
  }
  void cmp64mi(Gpr base, uint32_t displacement, int32_t value) {
    scalar(true, 0x81, kRdi, base, displacement);
    word((uint32_t)value);
  }
  void sub64mi(Gpr base, uint32_t displacement, int32_t value) {
    scalar(true, 0x81, kRbp, base, displacement);
    word((uint32_t)value);
  }
  void store32i(Gpr base, uint32_t displacement, uint32_t value) {
    scalar(false, 0xc7, kRax, base, displacement);
    word(value);
  }
  void move(Gpr d, Gpr s, bool wide = true) { both(wide, 0x8b, d, s); }
  void add(Gpr d, Gpr s, bool wide = true) { both(wide, 0x03, d, s); }
  void sub(Gpr d, Gpr s, bool wide = true) { both(wide, 0x2b, d, s); }
  void and_(Gpr d, Gpr s, bool wide = true) { both(wide, 0x23, d, s); }
  void or_(Gpr d, Gpr s, bool wide = true) { both(wide, 0x0b, d, s); }
  void cmp(Gpr a, Gpr b, bool wide = true) { both(wide, 0x3b, a, b); }
  void test(Gpr a, Gpr b, bool wide = true) { both(wide, 0x85, b, a); }
  void move_sign(Gpr d, Gpr s) { both(true, 0x63, d, s); }  // movsxd
  // Group 1 with a 32-bit immediate: 0 add, 4 and, 5 sub, 6 xor, 7 cmp.
  void group1(unsigned which, Gpr d, int32_t value, bool wide) {
    rex(wide, 0, d);
    byte(0x81);
    byte(0xc0 | which << 3 | (d & 7u));
    word((uint32_t)value);
  }
  void test_immediate(Gpr a, uint32_t value) {
    rex(false, 0, a);
    byte(0xf7);
    byte(0xc0 | (a & 7u));
    word(value);
  }
  // Group 2 with an 8-bit immediate: 4 shl, 5 shr, 7 sar.
  void shift(unsigned which, Gpr d, unsigned count, bool wide) {
    rex(wide, 0, d);
    byte(0xc1);
    byte(0xc0 | which << 3 | (d & 7u));
    byte(count);
  }
  void not_(Gpr d, bool wide) {
    rex(wide, 0, d);
    byte(0xf7);
    byte(0xd0 | (d & 7u));
  }
  void negate(Gpr d) {  // 32 bits
    rex(false, 0, d);
    byte(0xf7);
    byte(0xd8 | (d & 7u));
  }
  void move_immediate(Gpr d, uint64_t value) {
    byte(0x48 | (d >> 3));
    byte(0xb8 | (d & 7u));
    quad(value);
  }
  void jump_to(Gpr r) {
    if (r >= 8) byte(0x41);
    byte(0xff);
    byte(0xe0 | (r & 7u));
  }
  // jmp [base + index * 8]
  void jump_table(Gpr base, Gpr index) {
    byte(0x40 | (base >= 8 ? 1u : 0) | (index >= 8 ? 2u : 0));
    byte(0xff);
    byte(0x44 - 0x20 + 0);  // mod 00, /4, SIB
    byte(3u << 6 | (index & 7u) << 3 | (base & 7u));
  }
  void vzeroupper() {
    byte(0xc5);
    byte(0xf8);
    byte(0x77);
  }
  void ret() { byte(0xc3); }

 protected:
  ~Assembler() = default;
  struct Use {
    uint32_t at, target, after;  // target: a label, or an offset in the pool
    bool literal;
  };

  void reference(Label to) {
    uses_.push(Use{(uint32_t)here(), to, 0, false});
    word(0);
  }
  void operand(unsigned reg, Mem m, uint32_t after) {
    if (m.literal >= 0) {
      byte((reg & 7) << 3 | 5);
      uses_.push(Use{(uint32_t)here(), (uint32_t)(m.literal * 64 + m.displacement), after, true});
      word(0);
      return;
    }
    byte(0x80 | (reg & 7) << 3 | (m.base & 7u));
    word((uint32_t)m.displacement);
  }
  void rex(bool wide, unsigned reg, unsigned rm) {
    const unsigned r = (wide ? 8u : 0) | (reg >= 8 ? 4u : 0) | (rm >= 8 ? 1u : 0);
    if (r != 0) byte(0x40 | r);
  }
  void scalar(bool wide, unsigned opcode, Gpr reg, Gpr base, uint32_t displacement) {
    rex(wide, reg, base);
    byte(opcode);
    byte(0x80 | (reg & 7u) << 3 | (base & 7u));
    word(displacement);
  }
  // movzx
  void extended(unsigned opcode, Gpr reg, Gpr base, uint32_t displacement) {
    rex(false, reg, base);
    byte(0x0f);
    byte(opcode);
    byte(0x80 | (reg & 7u) << 3 | (base & 7u));
    word(displacement);
  }
  void both(bool wide, unsigned opcode, Gpr reg, Gpr rm) {
    rex(wide, reg, rm);
    byte(opcode);
    byte(0xc0 | (reg & 7u) << 3 | (rm & 7u));
  }

 private:
  Vec<uint32_t> labels_;
  Vec<Use> uses_;
  Vec<uint8_t> pool_;
};

}  // namespace simgpu::ptx::x86
