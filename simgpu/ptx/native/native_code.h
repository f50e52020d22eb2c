// The translation of one function for one shape of warps and one set of lanes: what native.cc and
// native_memory.cc share.
#pragma once

#include <stddef.h>

#include "ptx/native/native.h"
#include "ptx/native/native_ops.h"
#include "ptx/native/x86.h"

namespace simgpu::ptx {

// Facts about a register before its run begins, or about a result.
struct Fact {
  bool compact = false;  // first + stride * lane, or that for each half of the warp
  bool alike = false;    // both halves begin with the same number
  bool constant = false;
  int32_t stride = 0;
  uint32_t root = 0;  // the parameter that it is or was added to; 0: none
  uint64_t value = 0;
};

// Facts that hold wherever only one definition reaches, however lanes diverge: expressions of
// parameters, block and thread numbers, and constants.
class Facts {
 public:
  Facts(const Module& m, const Function& f, const Fn* handlers, WarpShape shape)
      : m_(m), f_(f), handlers_(handlers), shape_(shape) {}
  void find();
  // The fact about register `offset` at the beginning of block `b`.
  Fact at_begin(uint32_t b, uint32_t offset) const;
  // The fact about the result of an instruction with these sources.
  Fact result(const Ins& i, const Known& k, const Fact* sources) const;
  Fact constant(uint32_t operand, bool wide) const;

 private:
  static constexpr uint32_t kMany = ~0u - 1, kUnseen = ~0u;
  void step(uint32_t index, Vec<uint32_t>& now, bool evaluate);
  const Module& m_;
  const Function& f_;
  const Fn* handlers_;
  const WarpShape shape_;
  uint32_t units_ = 0;
  Vec<uint32_t> begin_;  // definitions that reach the begin of each block, by unit
  Vec<Fact> facts_;      // of each instruction's result
  bool known_ = false;
};

// Calls f(operand, bytes units written?) for each register that an instruction reads or writes.
template <class F>
void each_register(const Function& f, uint32_t index, F visit) {
  const Ins& i = f.code[index];
  const Roles& r = f.roles[index];
  auto one = [&](uint32_t o, bool written) {
    if (o != kNone && o >> 31 == 0) visit(o, written);
  };
  one(i.a, false);
  one(i.b, false);
  one(i.c, false);
  one(i.g, false);
  if (r.e_read) one(i.e, false);
  if (r.d_read) one(i.d, false);
  for (unsigned k = r.list_written; k < r.list_count; ++k) one(i.list[k], false);
  if (!r.e_read) one(i.e, true);
  if (!r.d_read) one(i.d, true);
  for (unsigned k = 0; k < r.list_written; ++k) one(i.list[k], true);
}

enum class Form : uint8_t {
  kFrame,      // in its place in the frame, 32 lanes
  kConstant,   // in the module's table
  kCompact,    // first number of each half in an xmm register, and a stride
  kVector,     // 2 or 4 zmm registers
  kLazy,       // base + index * 2^scale: base compact, index a vector of 32 bits
  kPredicate,  // a mask register
};

struct Value {
  Form form = Form::kFrame;
  bool wide = false;   // 64 bits
  bool dirty = false;  // not in the frame yet
  bool nan = false;    // NaNs may have other bits than the canonical ones
  bool alike = false;
  bool sign = false;  // kLazy: the index has a sign
  uint8_t scale = 0;  // kLazy
  int32_t stride = 0;
  uint32_t root = 0;
  uint64_t value = 0;        // kConstant
  uint32_t operand = kNone;  // kConstant
  uint32_t home = kNone;     // its place in the frame while it is that register's value
  uint32_t references = 0;
  uint32_t used = 0;
  int32_t base = -1, index = -1;  // kLazy: other values; base -1: zero
  // A value to which all lanes have the same distance, also those that are not active.
  static constexpr int32_t kItself = -1, kNothing = -2;
  int32_t like = kItself;
  uint8_t reg[4] = {};
};

// Where the parts of a vector are during one instruction.
struct Parts {
  uint8_t reg[4] = {};
  uint32_t owned = 0;  // the registers that belong to this, one bit for each
};

class Translator {
 public:
  Translator(const Module& m, const Function& f, const Fn* handlers, WarpShape shape, LaneSet lanes,
             const Facts& facts, x86::Assembler& a)
      : m_(m), f_(f), handlers_(handlers), shape_(shape), lanes_(lanes), facts_(facts), a_(a) {
    units_ = f.reg_bytes / 128;
    map_.resize(units_ + 1);
  }
  // Makes code that jumps to the run from `begin` on, which could not be translated, continue in
  // the interpreter.
  void refuse(uint32_t begin, x86::Label entry) {
    a_.place(entry);
    to_handler(begin);
  }
  // Translates the instructions from begin to end of block b; false: it cannot.
  bool run(uint32_t b, uint32_t begin, uint32_t end, const Vec<x86::Label>& entries, bool memory);

 private:
  using Code = x86::Code;
  static constexpr unsigned kScratch = 28;  // zmm28 to 31 belong to single sequences
  static constexpr unsigned kLow = 1, kHigh = 2, kFirstPredicate = 3, kPredicates = 3;
  static constexpr unsigned kSpareMask = 6, kTestMask = 7;

  bool line() const { return shape_ == WarpShape::kLine; }
  bool masked() const { return lanes_ != LaneSet::kAll; }

  // ---- values ----
  int make(Form form, bool wide);
  void hold(int v) { ++values_[v].references; }
  void drop(int v);
  int operand(uint32_t o, bool wide);
  void set(uint32_t o, int v);
  void forget(uint32_t unit);
  Fact fact_of(int v) const;
  Value& at(int v) { return values_[v]; }
  static unsigned parts_of(const Value& v) { return v.wide ? 4 : 2; }

  // ---- registers ----
  unsigned take();
  void give(unsigned r) {
    busy_ &= ~(1u << r);
    a_.dead(r);
  }
  void give(const Parts& p) {
    for (unsigned r = 0; r < kScratch; ++r)
      if (p.owned >> r & 1) give(r);
  }
  bool spill();
  unsigned take_mask();
  void free_registers(Value& v);

  // ---- forms ----
  Parts parts(int v, bool canonical = true);
  void become_vector(int v);
  unsigned compact(int v, bool* temporary);
  void canonical(int v);
  void replace_nans(unsigned reg, bool wide, unsigned length);
  unsigned predicate(int v);
  // Writes part k of a value into scratch register `to`, using the one after it, too.
  void expand_part(const Value& v, const Value* base, const Value* index, unsigned part,
                   unsigned to);
  void broadcast(unsigned to, const Value& v, unsigned half);
  void store_value(const Value& v, const Value* base, const Value* index, uint32_t home);
  x86::Mem counting(int32_t stride, bool wide, unsigned first);
  x86::Mem all(uint64_t value, bool wide);

  // ---- instructions ----
  bool instruction(uint32_t index);
  void two_operands(const Known& k, const Ins& i);
  bool add_lazily(const Ins& i);
  void logical_not(const Known& k, const Ins& i);
  void move(const Known& k, const Ins& i);
  void negate(const Known& k, const Ins& i);
  bool widen(const Known& k, const Ins& i, uint32_t index);
  void truncate(const Known& k, const Ins& i);
  void logic3(const Ins& i);
  void parameter(const Known& k, const Ins& i);
  int binary(const Known& k, int a, int b, bool commutes);
  bool compacts(int a, int b) const;
  bool one_number(int v) const;  // for all lanes
  int compact_result(const Known& k, const Ins& i, const Fact& f);
  int new_vector(bool wide);
  void compact_binary(Code c, unsigned d, int a, int b);
  void multiply_add(const Known& k, const Ins& i);
  void wide(const Known& k, const Ins& i);
  int multiply_wide(const Known& k, int a, int b);
  int extend(int a, bool sign);
  void shift(const Known& k, const Ins& i);
  void real(const Known& k, const Ins& i);
  void compare(const Known& k, const Ins& i);
  bool compare_numbers(const Known& k, const Ins& i, int a, int b);
  void select(const Ins& i, bool wide);
  void special(const Ins& i);
  bool logic_of_predicates(const Known& k, const Ins& i);
  bool inside(int v, uint32_t index, bool sign);
  void spread(int v);

  // ---- memory (native_memory.cc) ----
  struct Deopt {
    x86::Label label;
    uint32_t index;        // the instruction at which the interpreter goes on
    int site;              // of a memory access whose address is in rax; -1: none
    uint32_t from, count;  // in saved_
  };
  x86::Label deopt(uint32_t index, int site = -1);
  // A branch in the middle of a run: what happens unless no lane takes it.
  struct Side {
    x86::Label label;
    uint32_t index;
    unsigned mask;         // of the predicate
    Value predicate;       // by value
    uint32_t from, count;  // in saved_
  };
  uint32_t save(const uint64_t* live);
  void store_saved(uint32_t from, uint32_t count);
  int site_of(uint32_t root);
  int in_register(int v);
  bool load(const Ins& i, uint32_t index, bool wide);
  bool store(const Ins& i, uint32_t index, bool wide);
  bool shared(const Ins& i, uint32_t index, bool wide, bool write);
  void shared_compact(int v, int32_t stride, const Parts& p, const Ins& i, uint32_t index,
                      bool wide, bool write);
  void shared_vector(int v, const Parts& p, const Ins& i, uint32_t index, bool wide, bool write);
  // rax: the address of the first lane. Sets r10 to its place in this process.
  void check_range(unsigned bytes, unsigned lanes, bool write, int site, x86::Label miss);
  void check_shared(unsigned bytes, unsigned lanes, x86::Label miss);
  void first_address(int v, unsigned half, int64_t offset);
  // Moves `count` lanes from or to [r10]; lanes from `lane` on.
  void move_lanes(const Parts& p, bool wide, bool write, unsigned first_part, unsigned count);
  void load_same(const Parts& p, bool wide, unsigned first_part, unsigned count);
  void scattered32(unsigned i0, unsigned i1, const Parts& p, bool wide, bool write, unsigned scale,
                   x86::Gpr base);
  void scattered64(const Parts& address, const Parts& p, bool wide, bool write);
  unsigned lane_mask(unsigned part, bool wide);
  x86::Lanes lanes(const uint8_t* reg, bool wide) const {
    return {reg, wide, masked() ? kLow : 0, masked() ? kHigh : 0};
  }
  void lanes_differ(unsigned i0, unsigned i1, int32_t stride);
  struct Layout {
    bool known;
    uint32_t at;  // in Ctx; 0: nowhere
  };
  enum : uint32_t { kRow, kSame, kApart };
  int like(int v) const {  // Value::kNothing: nothing is known
    return values_[v].like == Value::kItself ? v : values_[v].like;
  }
  Layout layout_of(int v, unsigned bytes);
  void note(const Layout&, uint32_t what);
  // An access at base + index * scale; i0 and i1: the registers of the index.
  struct LazyAccess {
    const Value& v;
    const Parts& p;
    bool wide, write;
    unsigned i0, i1;
    int site;
    x86::Label miss;  // to the interpreter
  };
  void lazy_base(const Value& v, const Ins& i);
  void lazy_first(const Value& v, const Ins& i);
  void lazy_in_a_row(const LazyAccess& x, const Ins& i, x86::Label apart, x86::Label done);
  void lazy_at_one_address(const LazyAccess& x, const Ins& i, x86::Label done);
  void check_lazy_lanes(const LazyAccess& x);
  bool lazy_access(int v, const Parts& p, const Ins& i, uint32_t index, bool wide, bool write);
  bool vector_access(int v, const Parts& p, const Ins& i, uint32_t index, bool wide, bool write);
  bool compact_access(int v, const Parts& p, const Ins& i, uint32_t index, bool wide, bool write);

  // ---- ends (native.cc) ----
  void flush(uint32_t index);
  void leave(uint32_t target);
  void leave_backward(uint32_t index, uint32_t target);
  void to_handler(uint32_t index);
  void branch(uint32_t index);
  void branch_in_run(uint32_t index, const uint64_t* live_out);
  void branch_taken(uint32_t index, unsigned mask, const Value& predicate);
  void find_live(uint32_t end);
  void deopts();

  const Module& m_;
  const Function& f_;
  const Fn* handlers_;  // of the interpreter, for each instruction
  const WarpShape shape_;
  const LaneSet lanes_;
  const Facts& facts_;
  x86::Assembler& a_;
  uint32_t units_ = 0;
  uint32_t block_ = 0, begin_ = 0, now_ = 0, stamp_ = 0;
  const Vec<x86::Label>* entries_ = nullptr;
  Vec<int32_t> map_;  // unit of the frame to value + 1
  Vec<Value> values_;
  Vec<uint64_t> live_;  // before each instruction of the run, and behind the last
  size_t live_words_ = 0;
  Vec<Deopt> deopts_;
  Vec<Side> sides_;
  struct Saved {
    Value value, base, index;
    uint32_t home;
  };
  Vec<Saved> saved_;
  struct Noted {
    int like;
    unsigned bytes;
  };
  Vec<Noted> layouts_;
  uint32_t busy_ = 0, masks_ = 0;
  bool failed_ = false;
  int temporary_ = -1;    // a constant in a register while one instruction needs it
  int forced_site_ = -1;  // of an access to shared memory by 64 bits
  struct RootSite {
    uint32_t root;
    int site;
  };

 public:
  // Shared by all variants of a function.
  struct Sites {
    Vec<RootSite> roots;
    int used = 0;
  };
  Sites* sites = nullptr;
};

}  // namespace simgpu::ptx
