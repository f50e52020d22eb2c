// The regular files that a running process has open for writing, and those it has a lease for
// writing on.
//
// Owner: none, they are values. Threads: any. Errors: an empty list.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpuckpt::restore {

struct WrittenDescriptor {
  std::string path;  // the path by which it was opened, as far as the kernel knows
  std::string link;  // /proc/PID/fd/N, which opens the same file whatever happened to its name
  struct stat st;
  bool written;  // open for writing
  // The process has a lease for writing (F_SETLEASE): any open of the file, for reading as well,
  // breaks the lease.
  bool leased;
};
// Empty where the process cannot be inspected. Files that have lost their names are left out.
std::vector<WrittenDescriptor> written_descriptors(int64_t pid);

}  // namespace gpuckpt::restore
