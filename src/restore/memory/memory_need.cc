#include "restore/memory/memory_need.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/procfs/memory_room.h"
#include "gpuckpt/wire.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

constexpr uint64_t kMiB = 1 << 20;
// The memory that the restore itself and the kernel's page tables for these bytes take.
constexpr uint64_t beside(uint64_t bytes) { return 4 * kMiB + bytes / 512; }

// Private memory, without the huge pages of the pool.
uint64_t private_memory(const Member& m) {
  std::vector<std::pair<uint64_t, uint64_t>> huge;
  for (const auto& [v, path] : m.image.vmas)
    if (v.flags & kVmaHugetlb) huge.emplace_back(v.start, v.end);
  uint64_t bytes = 0;
  for (const store::Extent& e : m.reader->extents(wire::kSpaceHost)) {
    if (e.zero) continue;
    bytes += e.length;
    const uint64_t end = e.address + e.length;
    for (const auto& [from, to] : huge)
      if (from < end && e.address < to) bytes -= std::min(end, to) - std::max(e.address, from);
  }
  return bytes;
}

// Whether the object must be allocated: files and System V segments have memory already, or need
// none.
bool is_made(const Image& image, size_t object) {
  const SharedObject& o = image.shared[object].first;
  if (o.kind != kSharedAnonymous && o.kind != kSharedMemfd) return false;
  for (const auto& [v, path] : image.vmas)
    if (v.kind == kVmaShared && static_cast<size_t>(v.object) == object)
      return !(v.flags & kVmaHugetlb);
  return true;
}

bool still_grows(uint64_t* left) {
  const uint64_t now = memory_room().left;
  return now > std::exchange(*left, now);
}

}  // namespace

uint64_t memory_needed(const Tree& tree) {
  uint64_t bytes = 0;
  const uint64_t saved = tree.common.saved();
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (const auto& m : tree.members) {
    bytes += private_memory(*m);
    for (size_t i = 0; i < m->image.shared.size(); ++i) {
      const SharedObject& o = m->image.shared[i].first;
      if (!is_made(m->image, i) || !seen.insert({o.dev, o.ino}).second) continue;
      for (const store::Extent& e : m->reader->extents(wire::kSpaceSharedBase + o.index))
        if (!e.zero) bytes += e.length;
    }
  }
  return bytes - saved;
}

void check_memory(const Tree& tree, const Options& o, std::vector<std::string>* wrong,
                  std::vector<std::string>* warnings) {
  const uint64_t pages = memory_needed(tree), need = pages + beside(pages);
  MemoryRoom room = memory_room();
  // The memory of a large killed program is freed over seconds.
  uint64_t left = room.left;
  for (int patience = 5; room.left < need && patience > 0; room = memory_room()) {
    usleep(100000);
    if (!still_grows(&left)) --patience;
  }
  auto text = [](uint64_t bytes) { return std::to_string(bytes / kMiB) + " MiB"; };
  const std::string whose =
      room.group[0] ? std::string("the control group ") + room.group : std::string("this machine");
  const std::string numbers = "the job takes " + text(need) + " of memory, and " + text(room.left) +
                              " of the " + text(room.all) + " of " + whose + " are free";
  if (room.left >= need) {
    if (room.left - need < room.all / 64) warnings->push_back(numbers);
  } else if (need - room.left <= room.swap) {
    warnings->push_back(numbers + ": the rest goes to swap");
  } else if (o.lazy) {
    warnings->push_back(numbers +
                        ": the kernel may kill it for lack of memory when it has touched more");
  } else {
    wrong->push_back(numbers + (room.swap ? ", and " + text(room.swap) + " of swap" : "") +
                     "; raise the limit or free memory, or restore --lazy, which reads memory when "
                     "the program touches it");
  }
}

}  // namespace gpuckpt::restore
