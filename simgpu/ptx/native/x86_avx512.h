// Writes vector instructions in EVEX form.
#pragma once

#include "ptx/native/x86.h"

namespace simgpu::ptx::x86 {

class Avx512Assembler final : public Assembler {
 public:
  void vector(Code c, unsigned reg, unsigned second, unsigned rm, unsigned length,
              unsigned mask = 0, bool zero = false, int immediate = -1) override {
    head(c, reg, second, (rm >> 3 & 1) != 0, (rm >> 4 & 1) != 0, length, mask, zero, false);
    byte(0xc0 | (reg & 7) << 3 | (rm & 7));
    if (immediate >= 0) byte((uint32_t)immediate);
  }
  void vector(Code c, unsigned reg, unsigned second, Mem m, unsigned length, unsigned mask = 0,
              bool zero = false, int immediate = -1, bool broadcast = false) override {
    head(c, reg, second, m.literal < 0 && m.base >= 8, false, length, mask, zero, broadcast);
    operand(reg, m, immediate >= 0 ? 1 : 0);
    if (immediate >= 0) byte((uint32_t)immediate);
  }
  void indexed(Code c, unsigned reg, Gpr base, unsigned index, unsigned scale, int32_t displacement,
               unsigned length, unsigned mask) override {
    const bool b = base >= 8, x = index >> 3 & 1, r = reg >> 3 & 1, r2 = reg >> 4 & 1,
               v2 = index >> 4 & 1;
    byte(0x62);
    byte((uint32_t)!r << 7 | (uint32_t)!x << 6 | (uint32_t)!b << 5 | (uint32_t)!r2 << 4 | c.map);
    byte((uint32_t)c.wide << 7 | 15u << 3 | 4 | c.prefix);
    byte(length << 5 | (uint32_t)!v2 << 3 | mask);
    byte(c.opcode);
    byte(0x80 | (reg & 7) << 3 | 4);
    byte(scale << 6 | (index & 7) << 3 | (base & 7));
    word((uint32_t)displacement);
  }

  // ---- VEX on mask registers ----
  void mask3(unsigned opcode, unsigned d, unsigned a, unsigned b) override {
    vex(1, k66, true, true, opcode, d, a, b);
  }
  void mask_unpack(unsigned d, unsigned high, unsigned low) override {  // kunpckwd
    vex(1, kPlain, false, true, 0x4b, d, high, low);
  }
  void mask_unpack_bytes(unsigned d, unsigned high, unsigned low) override {  // kunpckbw
    vex(1, k66, false, true, 0x4b, d, high, low);
  }
  void mask_not(unsigned d, unsigned a) override { vex(1, k66, true, false, 0x44, d, 0, a); }
  void mask_move(unsigned d, unsigned a) override { vex(1, k66, true, false, 0x90, d, 0, a); }
  void mask_shift_right(unsigned d, unsigned a, unsigned count) override {  // kshiftrd
    vex(3, k66, false, false, 0x31, d, 0, a);
    byte(count);
  }
  void mask_to_gpr(Gpr d, unsigned a) override { vex(1, kF2, false, false, 0x93, d, 0, a); }
  void gpr_to_mask(unsigned d, Gpr a) override { vex(1, kF2, false, false, 0x92, d, 0, a); }
  void mask_test(unsigned a, unsigned b) override {
    vex(1, k66, true, false, 0x98, a, 0, b);
  }  // kortestd

 private:
  void head(Code c, unsigned reg, unsigned second, bool b, bool x, unsigned length, unsigned mask,
            bool zero, bool broadcast) {
    byte(0x62);
    byte((uint32_t) !(reg >> 3 & 1) << 7 | (uint32_t)!x << 6 | (uint32_t)!b << 5 |
         (uint32_t) !(reg >> 4 & 1) << 4 | c.map);
    byte((uint32_t)c.wide << 7 | (~second & 15) << 3 | 4 | c.prefix);
    byte((uint32_t)zero << 7 | length << 5 | (uint32_t)broadcast << 4 |
         (uint32_t) !(second >> 4 & 1) << 3 | mask);
    byte(c.opcode);
  }
  void vex(unsigned map, Prefix p, bool wide, bool length, unsigned opcode, unsigned reg,
           unsigned second, unsigned rm) {
    byte(0xc4);
    byte((uint32_t) !(reg >> 3 & 1) << 7 | 1u << 6 | (uint32_t) !(rm >> 3 & 1) << 5 | map);
    byte((uint32_t)wide << 7 | (~second & 15) << 3 | (uint32_t)length << 2 | p);
    byte(opcode);
    byte(0xc0 | (reg & 7) << 3 | (rm & 7));
  }
};

}  // namespace simgpu::ptx::x86
