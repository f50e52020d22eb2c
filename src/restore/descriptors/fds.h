// Makes the program's descriptors, in the process that becomes the program.
//
// Owner: the calling process has them. Threads: one. Errors: a sentence; the process ends then.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "restore/image/image.h"
#include "restore/memory/memory_loader.h"

namespace gpuckpt::restore {

using Warn = std::function<void(const std::string&)>;

// Makes every description at numbers >= `base` first and then, when all below `base` is closed,
// moves it to its own numbers. Returns an empty string or what is wrong. `warn` reports at once
// what takes long, and what could only be replaced by something harmless. `made`: descriptions that
// exist already, at numbers of this process (job_fds.h); it includes all pipes, sockets and
// terminals then. Null: nothing exists yet.
std::string make_descriptors(const Image&, const Memory&, int base, const std::map<int, int>* made,
                             const Warn& warn);

// Makes every description at a number >= `base` and leaves it there. `made`: description -> number.
std::string make_only(const Image&, const Memory&, int base, const Warn& warn,
                      std::map<int, int>* made);

}  // namespace gpuckpt::restore
