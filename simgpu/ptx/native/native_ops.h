// Which handlers of the interpreter have a translation, and which.
#pragma once

#include "ptx/native/x86.h"
#include "ptx/run/ir.h"

namespace simgpu::ptx {

enum class Do : uint8_t {
  kNothing,  // no translation
  kAdd,
  kSub,
  kMul,
  kMad,
  kBits,   // and, or, xor: of predicates, too
  kNot,    // of predicates, too
  kMove,   // of predicates, too
  kPlain,  // two sources, nothing known of the result
  kNegate,
  kShift,     // detail: 0 left, 1 right, 2 right with sign
  kWide,      // mul.wide: detail 1 signed
  kMadWide,   // detail 1 signed
  kExtend,    // 32 to 64 bits: detail 1 signed
  kTruncate,  // 64 to 32 bits
  kReal,      // two sources
  kFma,
  kRoot,
  kReciprocal,
  kSign,     // detail: 0 negate, 1 absolute
  kFromInt,  // s32 to f32
  kCompare,  // detail: the machine's predicate
  kSelect,
  kLogic3,
  kSpecial,
  kParam,
  kLoad,
  kStore,
  kLoadShared,
  kStoreShared,
  kBranch,
  kJump,
};

struct Known {
  Fn fn;
  Do what;
  uint8_t wide;  // 1: 64 bits
  uint8_t detail;
  x86::Code code;
};

// Returns null if the handler has no translation to machine code.
const Known* known(Fn handler, const Ins&);

}  // namespace simgpu::ptx
