// Why something was not done: a code for the exit of a command, whether it is worth another try,
// and a sentence for a person. What can fail in many ways derives from it, or holds one.
//
// Owner: the object that can fail; it is overwritten by the next failure. Threads: that object's.
// Errors: none; a sentence that is too long is cut.
#pragma once

#include "gpuckpt/exit_codes.h"

namespace gpuckpt {

// As a code, inside the library: kExitRefused, but the obstacle may be gone in a moment.
inline constexpr int kRefusedForNow = -14;

struct Failure {
  int code = kExitOk;
  char text[1024] = "";

  // Always false, so that a function can end with it.
  bool fail(int why, const char* pattern, ...) __attribute__((format(printf, 3, 4)));
  bool refuse(const char* pattern, ...) __attribute__((format(printf, 2, 3)));
  bool refuse_for_now(const char* pattern, ...) __attribute__((format(printf, 2, 3)));
  bool refused_for_now() const { return code == kRefusedForNow; }
};

}  // namespace gpuckpt
