// Memory that a restored job takes at once: is that much free here?
//
// Owner: none. Threads: one, which may wait. Errors: one sentence for each obstacle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "restore/driver/driver.h"
#include "restore/driver/tree.h"

namespace gpuckpt::restore {

// Bytes that the restore itself fills: private memory of every process (what they have in common
// once, driver/common_pages.h), and shared memory without a file. Huge pages of the pool are not
// among them (huge_pages.h).
uint64_t memory_needed(const Tree&);

// One sentence where that cannot work (`wrong`: more than is free, swap included), or where it can
// and leaves next to nothing (`warnings`). Waits a little for the memory of a program that was
// killed.
void check_memory(const Tree&, const Options&, std::vector<std::string>* wrong,
                  std::vector<std::string>* warnings);

}  // namespace gpuckpt::restore
