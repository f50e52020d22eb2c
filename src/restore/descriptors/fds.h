// Makes the program's descriptors, in the process that becomes the program.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "restore/preflight/image.h"
#include "restore/preflight/plan_builder.h"

namespace gpuckpt::restore {

// Puts every description at numbers >= `base` first, then, when all below `base` is closed, at its
// own numbers. Returns an empty string or what is wrong. `warnings`: what could only be replaced by
// something harmless.
// `made`: descriptions that exist already, at numbers of this process (job_fds.h); pipes, sockets
// and terminals are all among them then. Null: nothing exists yet.
std::string make_descriptors(const Image&, const Memory&, int base, const std::map<int, int>* made,
                             std::vector<std::string>* warnings);

// Makes every description at a number >= `base` and leaves it there. `made`: description -> number.
std::string make_only(const Image&, const Memory&, int base, std::vector<std::string>* warnings,
                      std::map<int, int>* made);

}  // namespace gpuckpt::restore
