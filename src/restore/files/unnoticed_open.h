// Opens a program's regular file for reading so that neither the program nor a later look at the
// file's times notices.
//
// Owner: the caller has the descriptor. Threads: any. Errors: no descriptor, with errno.
#pragma once

#include <string>

#include "base/descriptors/fd.h"

namespace gpuckpt::restore {

// `flags`: more of open(2)'s, O_NOFOLLOW for instance. Opens nothing that is not a regular file: to
// open a FIFO wakes its other end, and to open a device may do anything. The access time stays as
// it is where the kernel lets us (the file is ours, or we are root).
Fd open_unnoticed(const std::string& path, int flags = 0);

// A program may have opened a file of its own that its mode does not let it open any more (made
// with mode 0444, say, and open for writing). Its owner can give it another mode for a moment.
bool is_own_file(const std::string& path);
int open_as_owner(const std::string& path, int flags);

}  // namespace gpuckpt::restore
