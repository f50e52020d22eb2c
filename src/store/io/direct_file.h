// A file that is written past the page cache (O_DIRECT). Data that would not stay in the page cache
// is not copied into it first: that copy costs the processor several times as much as the rest of
// the write, and evicts other pages.
//
// Owner: the caller. Threads: as File. Errors: as File; the plain file where O_DIRECT cannot be
// used.
#pragma once

#include <memory>

#include "store/io/env.h"

namespace gpuckpt::store {

// `file` is new, empty, and open as `fd` for reading and writing without O_APPEND. The first
// `cached` bytes, rounded down to MiB, go through the page cache as usual. Returns `file` itself
// where the file system does not support O_DIRECT, or when there is no memory for the buffers.
std::unique_ptr<File> write_past_cache(std::unique_ptr<File> file, int fd, uint64_t cached);

}  // namespace gpuckpt::store
