#include "snapshot/pump.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "common/address.h"
#include "common/syscall.h"
#include "common/text.h"
#include "gpuckpt/wire.h"

namespace gpuckpt {
namespace {

// linux/fs.h of newer kernels.
constexpr unsigned long kPagemapScan = 0xc0606610;
constexpr uint64_t kIsFile = 4, kIsPresent = 8, kIsSwapped = 16, kIsZero = 32;
struct PageRegion {
  uint64_t start, end, categories;
};
struct ScanArgument {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
      category_mask, category_anyof_mask, return_mask;
};

struct Pump {
  Producer* out;
  int pagemap = -1, memory = -1;
  bool own_copy, scan_works = true;
};

bool all_zero(const char* p) {
  const uint64_t* w = reinterpret_cast<const uint64_t*>(p);
  for (int i = 0; i < 512; i += 8)
    if (w[i] | w[i + 1] | w[i + 2] | w[i + 3] | w[i + 4] | w[i + 5] | w[i + 6] | w[i + 7])
      return false;
  return true;
}

// `from` holds the bytes of [address, address+length) of `space`.
bool send_pages(Producer* out, uint64_t space, uint64_t address, const char* from,
                uint64_t length) {
  for (uint64_t at = 0; at < length;) {
    bool zero = all_zero(from + at);
    uint64_t end = at + kPage;
    while (end < length && all_zero(from + end) == zero) end += kPage;
    if (!(zero ? out->add_zero(space, address + at, end - at)
               : out->add(space, address + at, from + at, end - at)))
      return false;
    at = end;
  }
  return true;
}

bool send_run(Pump* p, const PumpRange& range, uint64_t start, uint64_t end) {
  if (range.readable)
    return send_pages(p->out, wire::kSpaceHost, start, reinterpret_cast<const char*>(start),
                      end - start);
  // Unreadable pages can hold data all the same. /proc/self/mem reads them whatever their
  // protection.
  static char page[64 * kPage];
  for (uint64_t at = start; at < end;) {
    uint64_t n = end - at < sizeof(page) ? end - at : sizeof(page);
    long got = p->memory >= 0 ? sys::pread(p->memory, page, n, at) : -1;
    if (got <= 0) {
      if (!p->own_copy) return false;
      if (sys::failed(
              sys::call(SYS_mprotect, static_cast<long>(at), static_cast<long>(n), PROT_READ)))
        return false;
      __builtin_memcpy(page, reinterpret_cast<const void*>(at), n);
      got = static_cast<long>(n);
    }
    uint64_t whole = page_down(static_cast<uint64_t>(got));
    if (!whole || !send_pages(p->out, wire::kSpaceHost, at, page, whole)) return false;
    at += whole;
  }
  return true;
}

bool scan_range(Pump* p, const PumpRange& range) {
  static PageRegion regions[1024];
  ScanArgument a{};
  a.size = sizeof(a);
  a.start = range.start, a.end = range.end;
  a.vec = reinterpret_cast<uint64_t>(regions);
  a.vec_len = 1024;
  a.category_inverted = kIsFile | kIsZero;
  a.category_mask = kIsFile | kIsZero;
  a.category_anyof_mask = kIsPresent | kIsSwapped;
  a.return_mask = kIsPresent;
  while (a.start < range.end) {
    long n = sys::call(SYS_ioctl, p->pagemap, static_cast<long>(kPagemapScan), sys::ptr(&a));
    if (n < 0) {
      p->scan_works = false;
      return false;
    }
    for (long i = 0; i < n; ++i)
      if (!send_run(p, range, regions[i].start, regions[i].end)) return false;
    if (a.walk_end <= a.start) break;
    a.start = a.walk_end;
  }
  return true;
}

// Kernels before 6.7: one word per page. Zero pages cannot be told here; send_pages finds them.
bool read_range(Pump* p, const PumpRange& range) {
  static uint64_t word[4096];
  for (uint64_t at = range.start; at < range.end;) {
    uint64_t pages = (range.end - at) / kPage;
    if (pages > 4096) pages = 4096;
    long got = p->pagemap < 0 ? -1 : sys::pread(p->pagemap, word, pages * 8, at / kPage * 8);
    if (got <= 0) return false;
    pages = static_cast<uint64_t>(got) / 8;
    for (uint64_t i = 0; i < pages;) {
      auto ours = [&](uint64_t k) { return (word[k] >> 62) != 0 && !((word[k] >> 61) & 1); };
      if (!ours(i)) {
        ++i;
        continue;
      }
      uint64_t end = i + 1;
      while (end < pages && ours(end)) ++end;
      if (!send_run(p, range, at + i * kPage, at + end * kPage)) return false;
      i = end;
    }
    at += pages * kPage;
  }
  return true;
}

}  // namespace

bool pump_memory(const Capture& c, Producer* out, bool own_copy, char* text, size_t room) {
  Pump p{out, sys::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC),
         sys::open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC), own_copy};
  bool ok = true;
  for (size_t i = 0; ok && i < c.range_count; ++i) {
    ok = p.scan_works && scan_range(&p, c.ranges[i]);
    if (!ok && !p.scan_works) ok = read_range(&p, c.ranges[i]);
    if (!ok)
      format(text, room, "memory at %lx-%lx could not be sent", c.ranges[i].start, c.ranges[i].end);
  }
  for (size_t i = 0; ok && i < c.eager_count; ++i) {
    ok = send_pages(out, c.eager[i].space, c.eager[i].address, c.eager[i].copy.data(),
                    page_up(c.eager[i].length));
    if (!ok) format(text, room, "shared memory could not be sent");
  }
  if (p.pagemap >= 0) sys::close(p.pagemap);
  if (p.memory >= 0) sys::close(p.memory);
  return ok && out->flush();
}

}  // namespace gpuckpt
