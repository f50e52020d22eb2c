// One question about the pages of many ranges, asked on all processors at once while the
// application is parked and its processors have nothing else to do.
//
// Owner: the caller's ranges and memory. Threads: one calls; it waits for those that it starts.
// Errors: told for each range.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/heap.h"
#include "snapshot/memory/pagemap.h"

namespace gpuckpt {

// Calls take(context, range, region) for each region that matches, on the calling thread, in the
// order of addresses, until it returns false. A null region: the kernel does not answer for that
// range, of which some may have been told. One that begins where the last one ends may be the same.
// `memory`: for answers that wait for their turn, of any size; with little, one processor looks.
// The ranges are sorted.
void scan_widely(Pagemap* pagemap, const PageQuery& query, const Range* ranges, size_t count,
                 const Region& memory, void* context,
                 bool (*take)(void* context, size_t range, const PageRegion* region));
template <typename Take>
void scan_widely(Pagemap* pagemap, const PageQuery& query, const Range* ranges, size_t count,
                 const Region& memory, Take take) {
  scan_widely(pagemap, query, ranges, count, memory, &take,
              [](void* context, size_t range, const PageRegion* region) {
                return (*static_cast<Take*>(context))(range, region);
              });
}

}  // namespace gpuckpt
