// Memory of the huge page pool (hugetlbfs). The kernel gives each page of it to one owner: a page
// that is only looked at is taken from the pool, and a copy-on-write child would have the kernel
// find a second page for each that the program writes, or end the program where there is none. So
// private huge pages are copied while all threads are parked, those that exist, and kept from our
// clone.
//
// Owner: the Capture. Threads: PARKED, the I/O thread. Errors: the Capture's failure.
#pragma once

#include "gpuckpt/process_format.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

// MapsLine::name of memory that mmap was asked for with MAP_HUGETLB and without a file.
inline constexpr char kHugeAnonymous[] = "/anon_hugepage";

// PARKED. Copies the pages of a private mapping that are the process's own. False: refused.
bool capture_private_pages(Capture*, const process::Vma&);

// Is the file system of `path` the huge page pool's?
bool in_huge_pages(const char* path);

}  // namespace gpuckpt
