// The control groups that a program had moved to (process::kRecControlGroups): a process moves to
// them again before it becomes the program.
//
// Owner: none. Threads: one. Errors: sentences for the user; the process stays where the restore
// is.
#pragma once

#include <string>
#include <vector>

namespace gpuckpt::restore {

// Moves the calling process. `recorded`: "controllers:path" for each line.
std::vector<std::string> enter_control_groups(const std::string& recorded);

}  // namespace gpuckpt::restore
