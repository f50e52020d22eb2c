// Memory of the huge page pool: is there enough for a restored job?
//
// Owner: none. Threads: one, which may wait. Errors: one sentence for each obstacle.
#pragma once

#include <string>
#include <vector>

#include "restore/driver/tree.h"

namespace gpuckpt::restore {

// What is missing, one sentence for each page size. Waits a little for the pages of the program
// that was killed.
std::vector<std::string> check_huge_pages(const Tree&);

}  // namespace gpuckpt::restore
