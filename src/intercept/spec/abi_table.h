// The spec at run time: one entry per declared entry point, indexed by FunctionId.
//
// Owner: constant tables. Threads: any. Errors: -1 where the rules give no function.
#pragma once

#include <cstddef>
#include <cstdint>

#include "intercept/generated/functions.h"

namespace gpuckpt {

enum class FunctionClass : uint8_t {
  kForward,
  kCreate,
  kDestroy,
  kQuery,
  kCopy,
  kLaunch,
  kSync,
  kCustom,
  kRefuse,
  kUnknown,
};

struct AbiEntry {
  const char* symbol;
  const char* base;  // what cuGetProcAddress calls it
  uint32_t version;  // from which version on; 0: not reachable that way
  bool per_thread;   // the per-thread default stream flavour
  FunctionClass cls;
  size_t slot;         // offset in RealDriver
  void* wrapper;       // our exported function
  const char* reason;  // of Refuse rows
};
extern const AbiEntry kAbi[kDeclaredFunctions];
struct ThunkEntry {
  const char* symbol;
  const char* refusal;  // why a snapshot is refused once it was called; null: it is not
};
extern const ThunkEntry kNamedThunkTable[];

// What cuGetProcAddress would answer for (base, version, per-thread) by the rules of the header:
// index into kAbi or -1.
int abi_lookup(const char* base, uint32_t version, bool per_thread);

}  // namespace gpuckpt
