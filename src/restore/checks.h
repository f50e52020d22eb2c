// Can this machine hold the snapshot? Every reason at once.
#pragma once

#include <string>
#include <vector>

#include "restore/front.h"
#include "restore/image.h"

namespace gpuckpt::restore {

std::vector<std::string> check_machine(const Image&);
std::vector<std::string> check_files(const Image&, const Options&);
// Is the file of that name the one that was mapped, as far as its size and time say?
bool is_unchanged(const process::MappedFile&, const std::string& path);

}  // namespace gpuckpt::restore
