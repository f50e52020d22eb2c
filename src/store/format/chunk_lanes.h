// The lanes of a block (base/hash/chunk_hash.h) by the widest instructions that this processor has.
//
// Owner: constant tables. Threads: any. Errors: none.
#pragma once

#include "base/hash/chunk_hash.h"

namespace gpuckpt::store {

HashLanes widest_lanes();
// All variants that this processor can run, so that a test compares them; the plain one of
// base/hash/chunk_hash.h is not among them.
struct NamedLanes {
  const char* name;
  HashLanes lanes;
};
const NamedLanes* all_lanes(size_t* count);

}  // namespace gpuckpt::store
