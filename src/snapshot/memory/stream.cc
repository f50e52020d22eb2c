#include "snapshot/memory/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include "base/address.h"
#include "base/syscall.h"
#include "gpuckpt/wire.h"
#include "snapshot/io/io_thread.h"
#include "snapshot/job/barrier.h"
#include "snapshot/memory/track.h"

namespace gpuckpt {
namespace {

constexpr size_t kRoom = 512, kBatch = 256;
constexpr uint64_t kStep = 32ull << 20;

// The pages are read by a write to the ring's file, which pins nothing (own_memory.h) and is the
// faster way, too. The size of files may be limited (EFBIG; SIGXFSZ is blocked here).
long read_own(char* to, uint64_t bytes, const iovec* from, size_t count) {
  const uint64_t at = reinterpret_cast<uint64_t>(to) - io_thread.ring.start;
  if (io_thread.ring_file >= 0 && at < io_thread.ring.bytes) {
    const long written = sys::call(SYS_pwritev, io_thread.ring_file, sys::ptr(from),
                                   static_cast<long>(count), static_cast<long>(at), 0);
    if (written != -EFBIG) return written;
  }
  iovec into{to, bytes};
  return sys::call(SYS_process_vm_readv, static_cast<long>(sys::call(SYS_getpid)), sys::ptr(&into),
                   1, sys::ptr(from), static_cast<long>(count), 0);
}

}  // namespace

// A write does not read these: pages without access, which /proc/self/mem reads, and pages that do
// not exist any more, which are not among the pages of the stop either.
bool PageStream::send_page(uint64_t at) {
  const int memory = sys::open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC);
  uint64_t room;
  char* to = out_->reserve(wire::kSpaceHost, kPage, &room);
  if (!to) return false;
  const bool there =
      memory >= 0 && room >= kPage && sys::pread(memory, to, kPage, at) == static_cast<long>(kPage);
  if (memory >= 0) sys::close(memory);
  const wire::Run run{at, kPage, wire::kRunEarly, 0};
  bytes += there ? kPage : 0;
  return out_->commit(&run, there ? 1 : 0);
}

bool PageStream::send(const PageRegion* found, size_t count) {
  iovec from[kBatch];
  wire::Run runs[kBatch];
  const PageRegion* const last = found + count;
  for (uint64_t at = count ? found->start : 0; found != last;) {
    uint64_t room;
    char* to = out_->reserve(wire::kSpaceHost, wire::kSlotPayloadBytes, &room);
    if (!to) return false;
    room = page_down(room);
    const size_t most = out_->runs_left() < kBatch ? out_->runs_left() : kBatch;
    size_t n = 0;
    uint64_t wanted = 0, begin = at;
    for (const PageRegion* r = found; r != last && n < most && wanted < room; ++r) {
      if (r != found) begin = r->start;
      const uint64_t length = r->end - begin < room - wanted ? r->end - begin : room - wanted;
      from[n] = {reinterpret_cast<void*>(begin), length};
      runs[n++] = {begin, length, wire::kRunEarly, 0};
      wanted += length;
    }
    const long got = read_own(to, wanted, from, n);
    if (got == -1 /* EPERM */ || got == -38 /* ENOSYS */) {
      out_->commit(runs, 0);
      return false;
    }
    uint64_t left = got > 0 ? page_down(static_cast<uint64_t>(got)) : 0;
    bytes += left;
    if (job_barrier.active()) job_barrier.shared_state()->precopied += left;
    // The range up to where it was read, and one page more when that page could not be read.
    size_t whole = 0;
    while (whole < n && runs[whole].length <= left) left -= runs[whole++].length;
    const bool in_the_way = whole < n;
    at = runs[n - 1].address + runs[n - 1].length;
    if (in_the_way) {
      at = runs[whole].address + left;
      runs[whole].length = left;
      if (left) ++whole;
    }
    if (!out_->commit(runs, whole)) return false;
    if (in_the_way) {
      if (!send_page(at)) return false;
      at += kPage;
    }
    while (found != last && found->end <= at) ++found;
    if (found != last && at < found->start) at = found->start;
  }
  return true;
}

// Whether more than half of a round would be written again before its end: as large a part as of
// what was sent until now, over the time that all of it takes.
bool PageStream::outruns(uint64_t up_to, uint64_t sent, uint64_t expected) {
  PageRegion found[kRoom];
  uint64_t again = 0;
  for (const SmapsRange& r : *smaps_) {
    const uint64_t end = r.end < up_to ? r.end : up_to;
    for (uint64_t at = r.start; r.flags & kSmapsTracked && at < end;) {
      const long n = pagemap_->scan(&at, end, kWrittenPages, found, kRoom);
      if (n < 0) break;
      for (long i = 0; i < n; ++i) again += found[i].end - found[i].start;
    }
  }
  return static_cast<double>(again) * static_cast<double>(expected) >
         static_cast<double>(sent) * static_cast<double>(sent) / 2;
}

bool PageStream::round(uint64_t expected) {
  constexpr uint64_t kLeastLook = 16ull << 20;
  PageRegion found[kRoom];
  bool ok = true;
  const uint64_t before = bytes;
  uint64_t look = expected / 8 < kLeastLook ? kLeastLook : expected / 8;
  tracker.give_up_base();
  for (SmapsRange& r : *smaps_) {
    if (!(r.flags & kSmapsProtect)) continue;
    // Pages that are not tracked were protected a moment ago (Tracker::arm).
    const bool fresh = !(r.flags & kSmapsTracked);
    PageQuery query = fresh ? kExistingPages : kWrittenPages;
    query.protect = query.tracked_only = true;
    r.flags |= kSmapsTracked;
    uint64_t step = kStep;
    for (uint64_t at = r.start; ok && at < r.end;) {
      // The pages are protected a short time before they are read.
      const uint64_t until = r.end - at < step ? r.end : at + step;
      const long n = pagemap_->scan(&at, until, query, found, kRoom);
      // A part of the range is another mapping by now: no page of it may count as unchanged.
      if (n < 0) r.flags &= ~static_cast<uint32_t>(kSmapsTracked);
      if (n < 0) break;
      step = n ? kStep : 2 * step;
      ok = send(found, static_cast<size_t>(n));
      if (!ok) r.flags &= ~static_cast<uint32_t>(kSmapsTracked);
      if (!ok || !gives_up || bytes - before < look || at == r.end) continue;
      look *= 2;
      if (!outruns(at, bytes - before, expected)) continue;
      // The pages behind this one are still as they were: written, or protected and never sent.
      if (fresh) r.flags &= ~static_cast<uint32_t>(kSmapsTracked);
      outrun = true;
      ok = false;
    }
    if (!ok) break;
  }
  // A page that is sent again must come behind this one in the ring.
  return out_->wait_until_taken() && ok;
}

}  // namespace gpuckpt
