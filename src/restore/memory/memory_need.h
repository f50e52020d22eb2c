// Whether enough memory is free for a restored job.
//
// Owner: none. Threads: one, which may wait. Errors: one sentence for each obstacle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "restore/image/tree.h"
#include "restore/options.h"

namespace gpuckpt::restore {

// The bytes that the restore itself fills: private memory of every process (common pages once,
// memory/common_pages.h), and shared memory without a file. Huge pages of the pool are not
// included (huge_pages.h).
uint64_t memory_needed(const Tree&);

// Adds one sentence where the memory does not suffice (`wrong`: more than is free, swap included),
// or where it suffices and leaves next to nothing (`warnings`). Waits a moment for the memory of a
// killed program.
void check_memory(const Tree&, const Options&, std::vector<std::string>* wrong,
                  std::vector<std::string>* warnings);

}  // namespace gpuckpt::restore
