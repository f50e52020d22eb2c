// Writes for processors with AVX2 what the translation asks for in terms of AVX-512: a zmm register
// is two halves of 32 bytes in Ctx::vectors, a mask register one word in Ctx::masks, and sixteen
// ymm registers hold the halves that were used last. A result goes to Ctx::vectors at once, so that
// memory is right wherever code can jump to, and a label begins without anything in registers.
//
// Clobbers r8 and r9 in comparisons, mask instructions and gathers, and r11, too, in scatters.
#pragma once

#include "ptx/native/x86.h"

namespace simgpu::ptx::x86 {

class Avx2Assembler final : public Assembler {
 public:
  void place(Label) override;
  void jump(Label) override;
  void jump_if(unsigned condition, Label) override;
  void dead(unsigned reg) override;
  void all_dead() override;
  void rare(Label) override;
  void begin_run() override;
  void end_run() override;
  void vector(Code c, unsigned reg, unsigned second, unsigned rm, unsigned length,
              unsigned mask = 0, bool zero = false, int immediate = -1) override;
  void vector(Code c, unsigned reg, unsigned second, Mem m, unsigned length, unsigned mask = 0,
              bool zero = false, int immediate = -1, bool broadcast = false) override;
  void indexed(Code c, unsigned reg, Gpr base, unsigned index, unsigned scale, int32_t displacement,
               unsigned length, unsigned mask) override;
  void mask3(unsigned opcode, unsigned d, unsigned a, unsigned b) override;
  void mask_unpack(unsigned d, unsigned high, unsigned low) override;
  void mask_unpack_bytes(unsigned d, unsigned high, unsigned low) override;
  void mask_not(unsigned d, unsigned a) override;
  void mask_move(unsigned d, unsigned a) override;
  void mask_shift_right(unsigned d, unsigned a, unsigned count) override;
  void mask_to_gpr(Gpr d, unsigned a) override;
  void gpr_to_mask(unsigned d, Gpr a) override;
  void mask_test(unsigned a, unsigned b) override;
  bool replace_nans(unsigned reg, bool wide, unsigned length, Mem) override;
  bool lanes_differ(const Lanes&, unsigned first, const Mem* steps) override;
  bool lanes_inside(const Lanes&, unsigned least, unsigned most, Mem bits, Label miss) override;
  bool offsets_inside(const Lanes&, const uint8_t* to, unsigned begin, unsigned most, Mem bits,
                      Label miss) override;
  bool short_ways() const override { return true; }
  void first_active(const uint8_t* reg) override;
  void compare_one(Code, unsigned d, unsigned x, Mem x_number, unsigned y, Mem y_number,
                   int predicate) override;
  bool compare_lanes(Code, unsigned d, const Lanes&, const uint8_t* with, Mem number,
                     int predicate) override;

 private:
  // The operand that may be memory.
  struct Rm {
    bool memory;
    unsigned reg;
    Mem m;
    bool broadcast;
  };
  // One request, as vector() has it.
  struct Request {
    Code c;
    unsigned reg, second;
    Rm rm;
    bool small;  // xmm
    unsigned mask;
    bool zero;
    int immediate;
    unsigned halves() const { return small ? 1 : 2; }
  };
  static constexpr unsigned kActive = 2;  // masks up to this one say which lanes are active
  static constexpr int kMasks = 64;       // Cached::half of what lanes_of() has made
  static constexpr unsigned kCached = 11, kTemp = 11;  // ymm11 to 15 belong to single requests
  struct Cached {
    int half = -1;  // register * 2 + half; -1: none
    bool small = false;
    bool dirty = false;  // not in Ctx::vectors
    uint32_t used = 0;
  };
  // Code behind the run that writes what was in registers at a jump to a rare label.
  struct Detour {
    Label label, to;
    uint32_t version;
    Cached cached[kCached];
  };

  // ---- the halves in registers ----
  unsigned oldest();
  void write(unsigned at, Cached&);
  void write_all();
  unsigned use(unsigned reg, unsigned half, bool small);
  unsigned define(unsigned reg, unsigned half);
  void keep(unsigned at, unsigned reg, unsigned half, bool small);
  unsigned source(const Request&, unsigned half, unsigned temp);
  Mem half_of(const Rm&, unsigned half) const;

  // ---- VEX ----
  void vex(Code c, bool small, unsigned reg, unsigned second, unsigned rm, int immediate = -1);
  void vex(Code c, bool small, unsigned reg, unsigned second, Mem m, int immediate = -1);
  void vex_head(Code c, bool small, unsigned reg, unsigned second, bool b);

  // ---- requests ----
  void request(const Request&);
  void plain(const Request&);
  void shift_immediate(const Request&);
  void move(const Request&);
  void store(const Request&);
  void broadcast(const Request&);
  void spread(const Request&);
  void extend(const Request&);
  void narrow(const Request&);
  void insert_half(const Request&);
  void blend(const Request&);
  void multiply64(const Request&);
  void choose64(const Request&, bool sign, bool most);
  void shift_sign64(const Request&, unsigned half, int immediate);
  void fuse(const Request&);
  void logic3(const Request&);
  void logic2(unsigned table, bool small, unsigned to, unsigned b, unsigned c);
  void compare(const Request&);
  unsigned compare_half(const Request&, unsigned half, bool* inverted);
  void expand_mask(unsigned mask, bool wide, unsigned half, bool small, unsigned to,
                   unsigned first = 0);
  unsigned lanes_of(unsigned mask, bool wide, unsigned half, bool small, unsigned temp,
                    unsigned first = 0);
  unsigned compare_halves(unsigned x, const Request&, unsigned half, bool* inverted);
  unsigned active(const Lanes&, unsigned part, unsigned half, unsigned x, unsigned to,
                  unsigned mask);
  void jump_if_signs(unsigned at, bool wide, Label);
  Mem lane_bits(bool wide, unsigned half, unsigned first);
  Mem all_ones();
  Mem sign64();

  // ---- scalars ----
  void load_mask(Gpr to, unsigned mask) { load32(to, kRdi, mask_at(mask)); }
  void store_mask(unsigned mask, Gpr from);
  static uint32_t mask_at(unsigned mask);
  static uint32_t vector_at(unsigned reg, unsigned half);
  void vex_indexed(Code c, unsigned reg, unsigned second, Gpr base, Gpr index, unsigned scale,
                   int immediate = -1);
  void gather_four(bool wide, unsigned to, Gpr base, unsigned index, unsigned scale);
  void gather(Code c, unsigned reg, Gpr base, unsigned index, unsigned scale, unsigned mask);
  void scatter(Code c, unsigned reg, Gpr base, unsigned index, unsigned scale, unsigned mask);

  Cached cached_[kCached];
  uint32_t clock_ = 0;
  uint32_t version_ = 0;  // changes with what cached_ says
  Vec<uint8_t> rare_;     // by label
  Vec<Detour> detours_;
  uint32_t ones_ = 0;  // masks with all bits set, one bit for each
};

}  // namespace simgpu::ptx::x86
