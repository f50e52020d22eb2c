// From syntax to running form: chooses a handler for each instruction, orders the blocks of each
// function so that divergent lanes meet again, and gives registers storage.
#pragma once

#include "ptx/run/ir.h"

namespace simgpu::ptx {

// The module's table of constants while it is built.
class Constants {
 public:
  // Offset of a constant of 4 or 8 bytes.
  uint32_t number(uint64_t value, unsigned bytes);
  // Reserves 8 or 4 bytes that are filled in later.
  uint32_t place(unsigned bytes);
  void fill(uint32_t offset, uint64_t value, unsigned bytes);
  size_t bytes() const { return data_.size() * 8; }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(data_.data()); }

 private:
  struct Slot {
    uint64_t value;
    uint32_t offset;
    uint32_t bytes;  // 0: free
  };
  Vec<uint64_t> data_;
  Vec<Slot> slots_;
  size_t used_ = 0;
};
void fill_constant(uint8_t* at, uint64_t value, unsigned bytes);

// Addresses of shared variables, known when the kernels are laid out.
struct SharedUse {
  uint32_t constant;
  uint32_t bytes;
  Symbol* symbol;
  int64_t addend;
  Function* function;
};

struct Lowering {
  Module* module;
  Constants constants;
  Vec<SharedUse> shared;
  Log* log;
};

// Returns false if it has reported errors.
bool lower_function(Lowering* l, Function* f);

// What lower_function emits before order and storage are decided. Registers are kVirtual | number.
inline constexpr uint32_t kVirtual = 0x40000000u;
inline bool is_virtual(uint32_t o) { return o != kNone && (o & 0xc0000000u) == kVirtual; }
struct Draft {
  Vec<Ins> code;
  Vec<Roles> roles;      // of each instruction
  Vec<uint8_t> classes;  // of each register: 0 is 32 bits, 1 is 64, 2 is 128
  Vec<uint32_t>
      labels;  // where each label stands; branches hold the label's number in imm (d for brx: list)
};
// layout.cc: orders, allocates, and moves the code into the module's arena.
bool finish_function(Lowering* l, Function* f, Draft* draft);

}  // namespace simgpu::ptx
