// Files that were opened by a name that is gone, and have another: libc makes named semaphores so.
//
// Owner: the caller's buffer. Threads: PARKED. Errors: false: none was found.
#pragma once

#include <sys/stat.h>

#include <cstddef>

namespace gpuckpt {

enum class LinkSearch {
  kFile,    // `file` is what stat tells. Overlays show other numbers in folders: each entry of the
            // first folder is asked for.
  kNumber,  // only the device and the inode number of `file` are known, and whether it has another
            // name is not: fewer folders are looked through
};

// Looks for another name of the file: in the folder in which it was opened as `path`, below that,
// and below the folders above it on the same file system, for a limited number of entries. Puts
// what it finds in the place of `path`.
bool find_hard_link(char* path, size_t room, const struct stat& file, LinkSearch);

}  // namespace gpuckpt
