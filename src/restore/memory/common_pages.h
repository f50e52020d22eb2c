// Which pages the processes of a job share: fork copies no memory, so a page that no process has
// written since is one page for all of them. They are found by the names of their contents in the
// snapshot: private anonymous pages with equal contents at equal addresses, whether they were
// really shared or not, which no process can detect.
//
// They are shared again when all processes are forked from one that has them (common_memory.h).
// Regions are the ranges where it has them: mappings of one kind, of all processes together.
//
// Owner: the Tree. Threads: one. Errors: none; without regions every page comes back to each
// process by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "restore/memory/memory_loader.h"

namespace gpuckpt::restore {

struct Tree;

struct CommonRegion {
  AddressRange range;
  uint32_t flags;   // of process::VmaFlags, those that it must be mapped with
  uint64_t at = 0;  // where it is until the process has its own address space; mostly range.start
};

struct CommonOfMember {
  std::vector<AddressRange> inherited;  // its mappings that lie in a region, whole
  std::vector<AddressRange> equal;      // its pages that are in a region
  std::vector<AddressRange> foreign;    // pages of a region within `inherited` where it has none
  std::vector<AddressRange> source;     // pages of the regions that are read as this one's
};

struct CommonPages {
  std::vector<CommonRegion> regions;    // by address; none: it is not worth it
  std::vector<CommonOfMember> members;  // by index
  // Bytes that are not needed more than once.
  uint64_t saved() const;
};

CommonPages find_common_pages(const Tree&);
// False for GPUCKPT_COMMON_PAGES=0: every process restores all of its pages itself.
bool common_pages_wanted();

uint64_t bytes_of(const std::vector<AddressRange>&);
// `from`, which is sorted, without the parts inside `what` (of whole ranges, parts).
std::vector<AddressRange> without(const std::vector<AddressRange>& from,
                                  const std::vector<AddressRange>& what);

}  // namespace gpuckpt::restore
