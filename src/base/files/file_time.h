// A file's time of modification, as images and records keep it.
//
// Owner: none. Threads: a pure function. Errors: none.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace gpuckpt {

// Nanoseconds since 1970.
inline uint64_t mtime_of(const struct stat& st) {
  return static_cast<uint64_t>(st.st_mtim.tv_sec) * 1000000000 +
         static_cast<uint64_t>(st.st_mtim.tv_nsec);
}

}  // namespace gpuckpt
