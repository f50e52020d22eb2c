// Can this machine hold the snapshot? Every reason at once.
#pragma once

#include <string>
#include <vector>

#include "restore/front.h"
#include "restore/image.h"

namespace gpuckpt::restore {

std::vector<std::string> check_machine(const Image&);
std::vector<std::string> check_files(const Image&, const Options&);

}  // namespace gpuckpt::restore
