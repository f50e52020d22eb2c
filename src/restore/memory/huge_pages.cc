#include "restore/memory/huge_pages.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>

#include "base/procfs/proc.h"
#include "gpuckpt/wire.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

// Numbers of pages within one mapping or one shared object.
using Pages = std::set<uint64_t>;

void add_pages(Pages* pages, uint64_t start, uint64_t end, uint32_t shift) {
  for (uint64_t page = start >> shift; page << shift < end; ++page) pages->insert(page);
}

// Adds the pages of a space that have contents, within [start, end).
void add_data(Pages* pages, const Member& m, uint64_t space, uint64_t start, uint64_t end,
              uint32_t shift) {
  for (const store::Extent& e : m.reader->extents(space))
    if (!e.zero && e.address < end && start < e.address + e.length)
      add_pages(pages, std::max(e.address, start), std::min(e.address + e.length, end), shift);
}

// How many pages of each size (its logarithm) the job needs. A mapping reserves pages for its whole
// length, unless it was made with MAP_NORESERVE.
std::map<uint32_t, uint64_t> needed(const Tree& tree) {
  std::map<uint32_t, uint64_t> out;
  std::map<std::pair<uint64_t, uint64_t>, std::pair<uint32_t, Pages>> shared;
  for (const auto& m : tree.members) {
    const Image& image = m->image;
    for (const auto& [v, path] : image.vmas) {
      if (!(v.flags & kVmaHugetlb)) continue;
      const uint32_t shift = v.flags >> kVmaHugeShift;
      if (v.kind == kVmaShared) {
        const SharedObject& o = image.shared[static_cast<size_t>(v.object)].first;
        if (o.kind == kSharedFile) continue;  // a file has its pages already
        auto& [size, pages] = shared[{o.dev, o.ino}];
        size = shift;
        if (!(v.flags & kVmaNoReserve))
          add_pages(&pages, v.offset, v.offset + (v.end - v.start), shift);
        add_data(&pages, *m, wire::kSpaceSharedBase + o.index, 0, ~0ull, shift);
      } else if (v.flags & kVmaNoReserve) {
        Pages pages;
        add_data(&pages, *m, wire::kSpaceHost, v.start, v.end, shift);
        out[shift] += pages.size();
      } else if (v.kind == kVmaAnonymous || v.kind == kVmaFile) {
        out[shift] += (v.end - v.start) >> shift;
      }
    }
    for (const auto& [d, path] : image.fds) {
      if (d.kind != kFdMemory || !d.value[2] || d.description != d.fd) continue;
      const uint64_t dev = device_number(major(d.dev), minor(d.dev));
      auto& [size, pages] = shared[{dev, d.ino}];
      size = static_cast<uint32_t>(d.value[2]);
      add_data(&pages, *m, wire::kSpaceFileBase + 0x8000 + static_cast<uint64_t>(d.fd), 0, ~0ull,
               size);
    }
  }
  for (const auto& [object, pages] : shared) out[pages.first] += pages.second.size();
  return out;
}

uint64_t pool(uint32_t shift, const char* what) {
  std::ifstream f("/sys/kernel/mm/hugepages/hugepages-" + std::to_string((1ull << shift) >> 10) +
                  "kB/" + what);
  uint64_t n = 0;
  f >> n;
  return n;
}

// The pages that are neither used nor reserved, and those that the kernel would add.
uint64_t available(uint32_t shift) {
  const uint64_t free = pool(shift, "free_hugepages"), reserved = pool(shift, "resv_hugepages"),
                 more = pool(shift, "nr_overcommit_hugepages"),
                 made = pool(shift, "surplus_hugepages");
  return (free > reserved ? free - reserved : 0) + (more > made ? more - made : 0);
}

}  // namespace

std::vector<std::string> check_huge_pages(const Tree& tree) {
  std::vector<std::string> wrong;
  for (const auto& [shift, pages] : needed(tree)) {
    if (shift < 12 || shift > 40) continue;  // a damaged value, which the kernel would refuse
    for (int tries = 0; available(shift) < pages && tries < 20; ++tries) usleep(100000);
    const uint64_t have = available(shift);
    if (have >= pages) continue;
    const std::string size = std::to_string((1ull << shift) >> 20) + " MiB";
    wrong.push_back("the program needs " + std::to_string(pages) + " huge pages of " + size +
                    " and " + std::to_string(have) + " are free here; make " +
                    std::to_string(pages - have) + " more (" +
                    (shift == 21 ? "sysctl vm.nr_hugepages"
                                 : "/sys/kernel/mm/hugepages/hugepages-" +
                                       std::to_string((1ull << shift) >> 10) + "kB/nr_hugepages") +
                    "), or end the processes that use them");
  }
  return wrong;
}

}  // namespace gpuckpt::restore
