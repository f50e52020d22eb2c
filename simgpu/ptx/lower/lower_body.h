// The lowering of one function: what lower.cc shares with lower_arithmetic.cc, lower_moves.cc,
// lower_memory.cc, lower_textures.cc and lower_control.cc, which have a method for each
// instruction.
#pragma once

#include "ptx/lower/lower.h"

#include "ptx/handlers/matrix.h"
#include "ptx/handlers/textures.h"
#include "ptx/handlers/video.h"
#include "ptx/run/control.h"

namespace simgpu::ptx {

inline constexpr uint32_t kConstant = 0x80000000u;

inline bool is_half(Ty t) {
  return t == Ty::kF16 || t == Ty::kF16x2 || t == Ty::kBF16 || t == Ty::kBF16x2;
}
inline bool is_real(Ty t) {
  return is_half(t) || t == Ty::kF32 || t == Ty::kF64 || t == Ty::kF32x2;
}
inline bool is_signed(Ty t) {
  return t == Ty::kS8 || t == Ty::kS16 || t == Ty::kS32 || t == Ty::kS64;
}
inline unsigned class_of(Ty t) {
  unsigned n = type_bytes(t);
  return n <= 4 ? 0 : n == 8 ? 1 : 2;
}

// An opcode split at its dots. Each part must be used; one left over is an unknown modifier.
class Parts {
 public:
  explicit Parts(Text opcode) {
    uint32_t begin = 0;
    for (uint32_t i = 0; i <= opcode.size; ++i)
      if (i == opcode.size || opcode[i] == '.') {
        if (count_ < kMost) parts_[count_++] = Text(opcode.data + begin, i - begin);
        begin = i + 1;
      }
    used_[0] = true;
  }
  Text base() const { return parts_[0]; }
  bool take(Text name) {
    for (unsigned i = 1; i < count_; ++i)
      if (!used_[i] && parts_[i] == name) {
        used_[i] = true;
        return true;
      }
    return false;
  }
  bool has(Text name) const {
    for (unsigned i = 1; i < count_; ++i)
      if (parts_[i] == name) return true;
    return false;
  }
  // The index of the first of `names` (ended by null) that the opcode has; -1 if it has none.
  int take_one(const char* const* names) {
    for (int k = 0; names[k]; ++k)
      if (take(names[k])) return k;
    return -1;
  }
  // The index of that of `names` which comes first in the opcode; -1 if it has none.
  int first_of(const char* const* names) const {
    for (unsigned i = 1; i < count_; ++i)
      for (int k = 0; names[k]; ++k)
        if (parts_[i] == names[k]) return k;
    return -1;
  }
  // The index in `names` of the first unused part that is one of them.
  int take_next(const char* const* names) {
    for (unsigned i = 1; i < count_; ++i)
      for (int k = 0; !used_[i] && names[k]; ++k)
        if (parts_[i] == names[k]) {
          used_[i] = true;
          return k;
        }
    return -1;
  }
  // The first unused part that begins with the text; empty: there is none.
  Text take_beginning(Text prefix) {
    for (unsigned i = 1; i < count_; ++i)
      if (!used_[i] && parts_[i].starts(prefix)) {
        used_[i] = true;
        return parts_[i];
      }
    return Text();
  }
  void take_prefix(Text prefix) {
    for (unsigned i = 1; i < count_; ++i)
      if (parts_[i].starts(prefix)) used_[i] = true;
  }
  Ty take_type() {
    for (unsigned i = 1; i < count_; ++i) {
      Ty t;
      if (!used_[i] && type_from(parts_[i], &t)) {
        used_[i] = true;
        return t;
      }
    }
    return Ty::kNone;
  }
  const Text* left() const {
    for (unsigned i = 1; i < count_; ++i)
      if (!used_[i]) return &parts_[i];
    return nullptr;
  }

 private:
  static constexpr unsigned kMost = 20;
  Text parts_[kMost];
  bool used_[kMost] = {};
  unsigned count_ = 0;
};

class Body {
 public:
  Body(Lowering* l, Function* f) : l_(*l), m_(*l->module), f_(f), s_(*f->syntax), b_(backend()) {}

  // Returns false if it has reported errors.
  bool run();

 private:
  // ---- errors ----
  __attribute__((format(printf, 2, 3))) void error(const char* format, ...);
  void operands_missing() { error("wrong number of operands"); }
  bool need(uint32_t least, uint32_t most);

  // ---- frame ----
  void frame();

  // ---- emitting ----
  static Ins blank();
  uint32_t temporary(unsigned cls);
  // A data instruction: runs under the guard, if any.
  void emit(Ins i, Fn fn, Roles roles = {});
  // An instruction that changes where lanes are: a guard becomes a branch around it.
  void control(Ins i, Fn fn, uint8_t flags, Roles roles = {});
  void control(Fn fn, uint8_t flags) { control(blank(), fn, flags); }
  uint32_t new_label();

  // ---- operands ----
  const Operand& operand(uint32_t k);
  unsigned register_class(const Operand& o) const { return d_.classes[o.reg]; }
  bool is_predicate(const Operand& o) const;
  uint64_t number_as(const Operand& o, Ty t);
  uint32_t constant(uint64_t v, unsigned bytes);
  // The address of a symbol as a value of 4 or 8 bytes.
  uint32_t symbol_value(Symbol* v, uint64_t addend, unsigned bytes);
  uint32_t shared_value(Symbol* v, uint64_t addend, unsigned bytes);
  // A source of type t.
  uint32_t source(const Operand& o, Ty t);
  uint32_t source(uint32_t k, Ty t);
  // A source whose register may be wider than the type: the low part counts.
  uint32_t narrow_source(const Operand& o, Ty t);
  uint32_t destination(const Operand& o, Ty t);
  uint32_t destination(uint32_t k, Ty t);
  // The flag that add.cc and friends pass on.
  uint32_t carry_register();
  Fn pick(const Key& k);

  // ---- modifiers ----
  Round rounding(Parts& p);
  bool finished(Parts& p);

  // ---- instructions: kRows says which method takes which opcode ----
  using Method = void (Body::*)(Parts&);
  struct Row {
    const char* name;
    Method method;
    Op op;
  };
  static const Row kRows[];
  static const Row* find_row(Text base);
  void instruction();

  // ---- arithmetic, bits and comparisons (lower_arithmetic.cc) ----
  uint16_t real_flags(const Key& k);
  void arithmetic(Parts& p);
  uint32_t widened(const Operand& o, Ty from, Ty to);
  Ty wider(Ty t);
  void carry(Key k, bool hi, bool carry_in, bool carry_out);
  void carry_in(Parts& p);
  void shift(Parts& p);
  void funnel(Parts& p);
  void three_words(const Key& k);
  void permute(Parts& p);
  void lop3(Parts& p);
  void dot(Parts& p);
  void count_bits(Parts& p);
  void field(Parts& p);
  void mask_field(Parts& p);
  bool comparison(Parts& p, Key* k);
  void setp(Parts& p);
  void set(Parts& p);
  void select(Parts& p);

  // ---- moves and conversions (lower_moves.cc) ----
  void move(Parts& p);
  Ty part_type(Ty whole, uint32_t count);
  uint32_t* list(const Operand& o);
  void pack(Ty t);
  void unpack(Ty t);
  void convert(Parts& p);
  void convert_pack(Parts& p);
  // ---- video instructions (lower_video.cc) ----
  void video(Parts& p);
  void video_of_one(Parts& p);
  void video_set(Parts& p);
  Operand part_of_word(uint32_t k, WordPart* part);
  void copysign(Parts& p);
  void testp(Parts& p);

  // ---- memory and address spaces (lower_memory.cc) ----
  Space space(Parts& p);
  // Ordering, scope and cache words. True when the access is ordered or volatile.
  bool access_words(Parts& p);
  unsigned vector(Parts& p) { return p.take("v2") ? 2 : p.take("v4") ? 4 : p.take("v8") ? 8 : 1; }
  // Sets a, imm and sub of an access; may replace the space by that of the symbol.
  void address(const Operand& o, Space* space, Ins* i);
  void symbol_address(Symbol* v, Space* space, Ins* i);
  void load(Parts& p);
  void store(Parts& p);
  void access(Key k, const Operand& value, const Operand& where, bool load);
  uint32_t entry_param_bytes();
  void atomic(Parts& p);
  void copy_async(Parts& p);
  uint32_t ignored_source(const Operand& ignore, uint64_t bytes);
  // An address in a register, with its offset added.
  uint32_t plain_address(const Operand& o, Space space, uint16_t* sub);
  void bulk_copy(Parts& p);
  void store_async(Parts& p, bool reduce);
  void zero_bulk(Parts& p);
  void tensor_copy(Parts& p);  // lower_tensor.cc
  void tensor_prefetch(Parts& p);
  void tensor_map(Parts& p);
  void tensor_map_copy(Parts& p);
  void mbarrier_arrive_copy(Parts& p);
  void mbarrier(Parts& p);
  void mapa(Parts& p);
  void convert_address(Parts& p);
  void is_space(Parts& p);
  // Instructions that only advise.
  void nothing(Parts&) { emit(blank(), op_nop); }
  void policy(Parts& p);

  // ---- matrices (lower_matrix.cc) ----
  bool fragment(const Operand& o, const MatrixShape& s, MatrixRole role, bool written,
                uint32_t* out);
  void multiply(MatrixShape s);
  bool metadata(uint32_t k, MatrixShape* s, uint32_t* word);
  static BlockScales block_scales(Parts& p, Text kind, Text type);
  void scale(uint32_t k, uint32_t* out);
  void mma(Parts& p);
  void wmma(Parts& p);
  void wmma_access(Parts& p, bool store);
  void ldmatrix(Parts& p);
  void byte_matrix(Parts& p, bool store);
  void matrix_access(Ins i, Fn fn, unsigned registers, Space where, bool store);
  void movmatrix(Parts& p);
  void wgmma(Parts& p);  // lower_wgmma.cc
  void wgmma_product(Parts& p);
  void tensor_core(Parts& p);  // lower_tensor_core.cc
  bool one_block(Parts& p);
  uint32_t tensor_address(const Operand& o);
  void tensor_alloc(Parts& p, bool alloc);
  void tensor_move(Parts& p, bool store);
  void tensor_product(Parts& p);
  void tensor_commit(Parts& p);

  // ---- textures and surfaces (lower_textures.cc) ----
  bool geometry(Parts& p, Geometry* out);
  static unsigned coordinates(Geometry g);
  static bool has_layer(Geometry g);
  // The handle and coordinates of [object, {x, y}], and the sampler of [object, sampler, {x, y}]
  // where there may be one.
  bool texture_address(const Operand& o, Geometry g, Ty type, uint32_t* handle, uint32_t* out,
                       uint32_t* sampler = nullptr);
  void vector_of(const Operand& o, unsigned most, Ty type, uint32_t* out);
  uint32_t* operand_list(unsigned count);
  void texture(Parts& p);
  void surface(Parts& p);
  void texture_query(Parts& p);

  // ---- branches, calls, barriers and what lanes do together (lower_control.cc) ----
  bool find_label(const Operand& o, uint32_t* number, LabelSyntax** found = nullptr);
  bool label_number(Text name, uint32_t* number, LabelSyntax** found = nullptr);
  uint32_t number_of(LabelSyntax* l);
  void branch(Parts& p);
  void branch_indexed(Parts& p);
  void call(Parts& p);
  bool direct(Symbol* v, CallSite* site);
  // The source of the parameters' types: the function, or the prototype of an indirect call.
  const FunctionSyntax* formal_of(const Operand& target);
  CallSlot* slots(const Operand* list, const Vec<Symbol*>* formals, uint32_t* count, bool passed);
  // Loads or stores a register of a parameter's type at a place of the frame.
  void frame_access(Ty type, uint32_t offset, uint32_t reg, bool load);
  void give_results();
  void ret(Parts& p);
  void exit(Parts& p);
  void trap(Parts& p);
  void sleep(Parts& p);
  void fence(Parts& p);
  void launch_control(Parts& p);
  void barrier(Parts& p);
  void collective(Ins i, Collective kind);
  void shuffle(Parts& p);
  void vote(Parts& p);
  void match(Parts& p);
  void redux(Parts& p);
  void elect(Parts& p);
  void activemask(Parts& p);
  void stack(Parts& p);  // alloca, stacksave, stackrestore

  Lowering& l_;
  Module& m_;
  Function* f_;
  FunctionSyntax& s_;
  const Backend& b_;
  Draft d_;
  const InstructionSyntax* in_ = nullptr;
  Op op_ = Op::kAdd;
  bool failed_ = false, integral_ = false;
  uint32_t carry_ = kNone;
};

}  // namespace simgpu::ptx
