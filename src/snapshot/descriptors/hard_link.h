// Files that were opened by a name that is gone, and have another: libc makes named semaphores so.
//
// Owner: the caller's buffer. Threads: PARKED. Errors: false: none was found.
#pragma once

#include <sys/stat.h>

#include <cstddef>

namespace gpuckpt {

// Looks for another name of the file in the folder in which it was opened as `path`, and puts that
// in its place. `thorough`: also by asking for each file there, because overlays show other numbers
// in folders than by stat.
bool find_hard_link(char* path, size_t room, const struct stat& file, bool thorough);

}  // namespace gpuckpt
