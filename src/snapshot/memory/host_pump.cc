#include "snapshot/memory/host_pump.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "base/address.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"

namespace gpuckpt {
namespace {

struct Pump {
  Producer* out;
  const HostPages* pages;
  PumpFrom from;
  Pagemap pagemap;
  int memory = -1;
  const char* copy = nullptr;  // where the next page is that was copied while parked
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
  // A page's first bytes come from memory while those before it are copied: no processor fetches
  // beyond a page by itself, and a run is looked at no further ahead than its cache holds.
  constexpr uint64_t kLook = 16 * kPage;
  for (uint64_t at = 0; at < length;) {
    const uint64_t look = length - at < kLook ? length : at + kLook;
    for (uint64_t next = look; next < length && next < look + kLook; next += kPage)
      __builtin_prefetch(from + next);
    bool zero = all_zero(from + at);
    uint64_t end = at + kPage;
    while (end < look && all_zero(from + end) == zero) end += kPage;
    if (!(zero ? out->add_zero(space, address + at, end - at)
               : out->add(space, address + at, from + at, end - at)))
      return false;
    at = end;
  }
  return true;
}

// Unreadable pages can hold data all the same. /proc/self/mem reads them whatever their protection.
bool send_unreadable(Pump* p, uint64_t start, uint64_t end) {
  char page[8 * kPage];
  for (uint64_t at = start; at < end;) {
    uint64_t n = end - at < sizeof(page) ? end - at : sizeof(page);
    long got = p->memory >= 0 ? sys::pread(p->memory, page, n, at) : -1;
    if (got <= 0) {
      if (p->from != PumpFrom::kClone) return false;
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

bool send_run(Pump* p, const PumpRange& range, uint64_t start, uint64_t end) {
  if (p->from == PumpFrom::kCopy) {
    const char* from = p->copy;
    p->copy += end - start;
    return send_pages(p->out, wire::kSpaceHost, start, from, end - start);
  }
  if (!range.readable) return send_unreadable(p, start, end);
  // (Not given back when sent: libc's state lies in them, which the probe of its locks uses.)
  return send_pages(p->out, wire::kSpaceHost, start, reinterpret_cast<const char*>(start),
                    end - start);
}

// What was found while parked: written pages are sent, and, where the range is tracked, what is not
// gone of the rest is as in the parent.
bool send_resolved(Pump* p, const PumpRange& range) {
  return p->pages->each_piece(
      range, [&](uint64_t start, uint64_t end) { return send_run(p, range, start, end); },
      [&](uint64_t start, uint64_t end, uint64_t where) {
        if (p->from != PumpFrom::kCopy) return send_run(p, range, start, end);
        return send_pages(p->out, wire::kSpaceHost, start, p->pages->copy.data() + where,
                          end - start);
      },
      [&](uint64_t start, uint64_t end) {
        return p->out->add_same(wire::kSpaceHost, start, end - start);
      });
}

bool scan_range(Pump* p, const PumpRange& range) {
  constexpr size_t kRoom = 512;
  PageRegion found[kRoom];
  // A file's own pages are not stored; to tell them from the process's costs a look at each page.
  const PageQuery query{
      .none = range.file ? kPageGuard | kPageZero | kPageFile : kPageGuard | kPageZero,
      .any = kPagePresent | kPageSwapped,
      .tell = kPagePresent};
  if (HostPages::skip(range, p->pagemap)) return true;
  for (uint64_t at = range.start; at < range.end;) {
    long n = p->pagemap.scan(&at, range.end, query, found, kRoom);
    if (n < 0) return false;
    for (long i = 0; i < n; ++i)
      if (!send_run(p, range, found[i].start, found[i].end)) return false;
  }
  return true;
}

// Sandboxes without pagemap: everything that can be read, as far as smaps says that there is
// something.
bool read_all(Pump* p, const PumpRange& range) {
  const SmapsRange* known = p->pages->smaps.find(range.start);
  if (known && !known->anonymous_bytes && known->end >= range.end) return true;
  if (!range.readable && !known) return true;
  return send_run(p, range, range.start, range.end);
}

bool send_range(Pump* p, const PumpRange& range) {
  if (range.resolved) return send_resolved(p, range);
  return p->pagemap.answers() ? scan_range(p, range) : read_all(p, range);
}

}  // namespace

bool pump_memory(const Capture& c, Producer* out, PumpFrom from, char* text, size_t room) {
  const HostPages& pages = c.pages;
  Pump p{out, &pages, from, {}, -1, pages.copy.data() + pages.early_bytes};
  p.pagemap.open();
  p.memory = sys::open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC);
  bool ok = true;
  for (size_t i = 0; ok && i < pages.range_count; ++i) {
    const PumpRange& range = pages.ranges[i];
    ok = send_range(&p, range);
    if (!ok) format(text, room, "memory at %lx-%lx could not be sent", range.start, range.end);
  }
  for (size_t i = 0; ok && i < c.eager_count; ++i) {
    const EagerCopy& e = c.eager[i];
    ok = e.bytes ? send_pages(out, e.space, e.address, e.bytes, e.length)
                 : out->add_zero(e.space, e.address, e.length);
    if (!ok) format(text, room, "shared memory could not be sent");
  }
  p.pagemap.close();
  if (p.memory >= 0) sys::close(p.memory);
  return ok && out->flush();
}

}  // namespace gpuckpt
