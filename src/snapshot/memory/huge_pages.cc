#include "snapshot/memory/huge_pages.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <atomic>

#include "base/address.h"
#include "base/syscall.h"
#include "gpuckpt/wire.h"
#include "snapshot/memory/own_memory.h"
#include "snapshot/park/shared_work.h"

namespace gpuckpt {

using namespace process;

namespace {

uint64_t page_size(const Vma& v) {
  return v.flags & kVmaHugetlb ? 1ull << (v.flags >> kVmaHugeShift) : kPage;
}

// Calls each(start, end) for the pages of a mapping that are the process's own.
template <typename Each>
bool each_own_page(const Pagemap& pages, const Vma& v, Each each) {
  const uint64_t page = page_size(v);
  const bool file = v.kind == kVmaFile;
  Pagemap pagemap = pages;
  if (pagemap.answers()) {
    constexpr size_t kRoom = 512;
    PageRegion found[kRoom];
    const PageQuery own{
        .none = file ? +kPageFile : 0ull, .any = kPagePresent, .tell = kPagePresent};
    for (uint64_t at = v.start; at < v.end;) {
      const long n = pagemap.scan(&at, v.end, own, found, kRoom);
      if (n < 0) return false;
      for (long i = 0; i < n; ++i)
        if (!each(found[i].start, found[i].end)) return false;
    }
    return true;
  }
  for (uint64_t at = v.start; at < v.end; at += page) {
    unsigned char resident = 1;
    const long asked = sys::call(SYS_mincore, static_cast<long>(at), kPage, sys::ptr(&resident));
    if (!sys::failed(asked) && resident && !each(at, at + page)) return false;
  }
  return true;
}

}  // namespace

bool capture_private_pages(Capture* c, const Vma& v) {
  const long bytes = static_cast<long>(v.end - v.start);
  if (!(v.prot & PROT_READ))
    sys::call(SYS_mprotect, static_cast<long>(v.start), bytes, v.prot | PROT_READ);
  const bool ok = each_own_page(c->pages.pagemap, v, [&](uint64_t start, uint64_t end) {
    EagerCopy* e = c->add_eager(wire::kSpaceHost, start, end - start);
    if (!e) return false;
    std::atomic<bool> whole{true};
    share_parts(start, end, [&](uint64_t at, uint64_t stop) {
      if (copy_own_memory(e->bytes + (at - start), reinterpret_cast<const void*>(at), stop - at) !=
          stop - at)
        whole = false;
    });
    return whole.load();
  });
  if (!(v.prot & PROT_READ)) sys::call(SYS_mprotect, static_cast<long>(v.start), bytes, v.prot);
  return ok || c->refuse("no memory to copy the memory at %lx-%lx (%lu MiB) while stopped", v.start,
                         v.end, (v.end - v.start) >> 20);
}

bool in_huge_pages(const char* path) {
  struct statfs fs;
  return !sys::failed(sys::call(SYS_statfs, sys::ptr(path), sys::ptr(&fs))) &&
         static_cast<uint32_t>(fs.f_type) == HUGETLBFS_MAGIC;
}

}  // namespace gpuckpt
