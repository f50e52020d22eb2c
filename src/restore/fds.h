// Makes the program's descriptors, in the process that becomes the program.
#pragma once

#include <string>
#include <vector>

#include "restore/image.h"
#include "restore/plan_builder.h"

namespace gpuckpt::restore {

// Puts every description at numbers >= `base` first, then, when all below `base` is closed, at its
// own numbers. Returns an empty string or what is wrong. `warnings`: what could only be replaced by
// something harmless.
std::string make_descriptors(const Image&, const Memory&, int base,
                             std::vector<std::string>* warnings);

}  // namespace gpuckpt::restore
