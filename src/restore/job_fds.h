// What the processes of a job have in common among their descriptors: shared open file
// descriptions, and pipes, sockets and terminals with an end in each of several processes. All of
// it is made once, in the process that becomes the root, before the others are forked from it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "restore/tree.h"

namespace gpuckpt::restore {

// Descriptors of this process, by member (index in the tree) and Descriptor::description.
using CommonFds = std::map<std::pair<size_t, int>, int>;

// Makes them at numbers from `base` up. Returns an error, empty when all went well.
std::string make_common_descriptors(const Tree&, int base, std::vector<std::string>* warnings,
                                    CommonFds* out);

}  // namespace gpuckpt::restore
