// Whether the huge page pool has enough memory for a restored job.
//
// Owner: none. Threads: one, which may wait. Errors: one sentence for each obstacle.
#pragma once

#include <string>
#include <vector>

#include "restore/image/tree.h"

namespace gpuckpt::restore {

// The missing pages, one sentence for each page size. Waits a moment for the pages of the killed
// program.
std::vector<std::string> check_huge_pages(const Tree&);

}  // namespace gpuckpt::restore
