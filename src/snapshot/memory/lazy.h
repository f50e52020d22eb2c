// After `restore --lazy` memory comes while the program runs, from a helper process that serves it
// with a userfaultfd (src/restore/pager/pager.h). A snapshot waits until all of it is there.
//
// Owner: process-wide. Threads: the I/O thread. Errors: false when time is up.
#pragma once

#include <cstdint>

#include "snapshot/memory/smaps.h"

namespace gpuckpt {

// At a restore: notes whether there is such a helper process.
void expect_lazy_pages(bool);

// ON THE I/O THREAD, no thread parked. Reads `smaps` anew until nothing is missing any more, or the
// time (CLOCK_MONOTONIC) is `deadline_us`. False: pages are still missing.
bool await_lazy_pages(Smaps* smaps, uint64_t deadline_us);

// Whether this process was restored so, now or long ago.
bool restored_lazily();

}  // namespace gpuckpt
