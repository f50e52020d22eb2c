// Obstacles to a snapshot, counted by the generated wrappers: live objects we cannot restore, calls
// whose effect we cannot restore, entry points we do not know.
//
// Owner: process-wide. Threads: any; reading them: PARKED. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "intercept/translate/translate.h"

namespace gpuckpt {

void refuse_live(Kind kind, int change, uint32_t function);
void refuse_used(uint32_t function);

struct Refusal {
  const char* function;  // the entry point to name
  const char* reason;
  int64_t count;  // objects alive, or calls made
};
// Refusals one by one: start with index 0, continue with the returned index; -1 = no more. PARKED
// rules.
int refuse_next(int index, Refusal* out);

}  // namespace gpuckpt
