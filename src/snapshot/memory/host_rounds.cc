// What is done before any thread is parked: the choice of the cheapest way, and the rounds that
// copy or send what is written while the program runs.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/address.h"
#include "base/procfs/memory_room.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/memory/host_pages.h"
#include "snapshot/memory/own_memory.h"
#include "snapshot/memory/stream.h"
#include "snapshot/memory/track.h"
#include "snapshot/park/shared_work.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kWorthEarly = 64 * kPage;  // less than this is copied while parked

// Nanoseconds per page, corrected by what is measured. A clone copies page table entries; what the
// copy-on-write faults cost afterwards is not in it.
uint64_t clone_ns_per_page = 95, copy_ns_per_page = 1000;
constexpr uint64_t kCloneFixedUs = 300;
// What a clone costs each thread that continues: its stack and its thread descriptor are copied at
// once, each with an interrupt of all processors (to flush their TLBs).
constexpr uint64_t kCloneThreadNs = 8000;
bool early_works = true;  // process_vm_readv is allowed

// After rounds that gained too little, so many snapshots are taken without rounds, because the
// program is likely to continue like that.
constexpr uint32_t kSkipAfterFailure = 8;
uint32_t skip_rounds = 0;  // from one snapshot to the next

// For tests: takes all rounds that are allowed, however little is left.
bool sends_always() { return equal(library.config.copy, "stream"); }
bool makes_all_rounds() { return equal(library.config.copy, "rounds") || sends_always(); }
bool copies_always() { return equal(library.config.copy, "copy") || makes_all_rounds(); }

uint64_t with_margin(uint64_t bytes) { return page_up(bytes + bytes / 4 + (1u << 20)); }

bool fits(uint64_t bytes) {
  return copies_always() || with_margin(bytes) <= memory_room().left / 4;
}

uint64_t thread_count() {
  struct stat st;
  constexpr uint64_t kOtherLinks = 2;
  if (sys::failed(sys::call(SYS_newfstatat, -100, sys::ptr("/proc/self/task"), sys::ptr(&st), 0)))
    return 1;
  return st.st_nlink > kOtherLinks ? st.st_nlink - kOtherLinks : 1;
}

}  // namespace

void learn_clone_cost(uint64_t us, uint64_t pages) {
  if (pages > 4096 && us > kCloneFixedUs)
    clone_ns_per_page = (clone_ns_per_page + (us - kCloneFixedUs) * 1000 / pages) / 2;
}
void learn_copy_cost(uint64_t us, uint64_t pages) {
  if (pages > 1024) copy_ns_per_page = (copy_ns_per_page + us * 1000 / pages) / 2;
}

uint64_t HostPages::count_written() {
  constexpr size_t kRoom = 512;
  PageRegion found[kRoom];
  uint64_t bytes = 0;
  for (const SmapsRange& r : smaps)
    for (uint64_t at = r.start; r.flags & kSmapsTracked && at < r.end;) {
      long n = pagemap.scan(&at, r.end, kWrittenPages, found, kRoom);
      if (n < 0) break;
      for (long i = 0; i < n; ++i) bytes += found[i].end - found[i].start;
    }
  return bytes;
}

// The program runs and may unmap what is copied, so the kernel copies, which reports that as an
// error. It copies in small steps, because a processor that is in the kernel for this thread is not
// the program's. False: the copy is not complete, or the program writes so fast that it is not
// worth completing.
bool HostPages::copy_fresh() {
  const int memory =
      job_barrier.active() ? sys::open("/proc/thread-self/mem", O_RDONLY | O_CLOEXEC) : -1;
  const bool whole = copy_fresh_from(memory);
  if (memory >= 0) sys::close(memory);
  return whole;
}

bool HostPages::copy_fresh_from(int memory) {
  constexpr size_t kBatch = 512;
  constexpr uint64_t kStep = 4ull << 20, kWorthALook = 32ull << 20;
  iovec from[kBatch];
  const int pid = static_cast<int>(sys::call(SYS_getpid));
  const uint64_t begin = fresh.count ? fresh.at[0].categories : 0;
  const uint64_t all =
      fresh.count ? fresh.at[fresh.count - 1].categories +
                        (fresh.at[fresh.count - 1].end - fresh.at[fresh.count - 1].start) - begin
                  : 0;
  uint64_t look = all / 8 < kWorthALook ? kWorthALook : all / 8, done = 0;
  size_t batch = 0;
  for (uint32_t i = 0; done < all;) {
    uint64_t bytes = 0;
    for (size_t n = 0; n < kBatch && bytes < kStep && done + bytes < all;) {
      const PageRegion& r = fresh.at[i];
      const uint64_t at = r.start + (begin + done + bytes - r.categories);
      const uint64_t length = r.end - at < kStep - bytes ? r.end - at : kStep - bytes;
      from[n++] = {reinterpret_cast<void*>(at), length};
      bytes += length;
      if (at + length == r.end) ++i;
      batch = n;
    }
    populate(begin + done + bytes);
    iovec to{copy.data() + begin + done, bytes};
    const long got = memory >= 0 ? copy_unpinned(memory, to.iov_base, from, batch)
                                 : sys::call(SYS_process_vm_readv, pid, sys::ptr(&to), 1,
                                             sys::ptr(from), static_cast<long>(batch), 0);
    if (got == -1 /* EPERM */ || got == -38 /* ENOSYS */) early_works = false;
    if (got != static_cast<long>(bytes)) return false;
    done += bytes;
    if (done < look || done == all || makes_all_rounds()) continue;
    look *= 2;
    // More than half of the pages would be written again by the end of this round.
    if (count_written() > done / 2) return false;
  }
  return true;
}

// Lists what was written up to now, and protects it. There is room for all of it in `early`.
void HostPages::protect_written(PageList* out) {
  PageQuery query = kWrittenPages;
  query.protect = query.tracked_only = true;
  tracker.give_up_base();
  const uint32_t room = (early.room - early.count) / 2;
  out->count = 0;
  for (SmapsRange& r : smaps)
    for (uint64_t at = r.start; r.flags & kSmapsTracked && at < r.end && out->count < room;) {
      long n = pagemap.scan(&at, r.end, query, out->at + out->count, room - out->count);
      // A part of the range is another mapping by now. The kernel does not tell which pages were
      // protected before it came to that part, so no page of the range may count as unchanged.
      if (n < 0) r.flags &= ~static_cast<uint32_t>(kSmapsTracked);
      if (n > 0) out->count += static_cast<uint32_t>(n);
    }
}

// Puts the pieces of `fresh` into `early`, replacing what it has of the same pages.
void HostPages::merge_fresh() {
  PageList merged;
  if (!early.count) {
    merged = early, early = fresh, fresh = merged;
    return;
  }
  // From the end, so that no piece is overwritten before it is read: `early` has room for its own
  // pieces and, twice, for those of `fresh`, which cut them.
  const uint32_t shift = early.room - early.count;
  for (uint32_t i = early.count; i-- > 0;) early.at[i + shift] = early.at[i];
  const PageRegion *old = early.at + shift, *end = old + early.count;
  uint32_t f = 0;
  early.count = 0;
  auto put = [&](const PageRegion& r) { early.at[early.count++] = r; };
  for (; old < end; ++old) {
    const PageRegion o = *old;
    for (uint64_t at = o.start; at < o.end;) {
      while (f < fresh.count && fresh.at[f].end <= at) put(fresh.at[f++]);
      if (f < fresh.count && fresh.at[f].start <= at) {
        at = fresh.at[f].end;
        continue;
      }
      const uint64_t next =
          f < fresh.count && fresh.at[f].start < o.end ? fresh.at[f].start : o.end;
      put({at, next, o.categories + (at - o.start)});
      at = next;
    }
  }
  while (f < fresh.count) put(fresh.at[f++]);
}

// One round: protects what was written up to now and copies it. False: there is no copy, but the
// pages are known.
bool HostPages::copy_round(uint64_t later_bytes) {
  protect_written(&fresh);
  uint64_t bytes = early_bytes;
  for (uint32_t i = 0; i < fresh.count; ++i) {
    PageRegion& r = fresh.at[i];
    r.categories = bytes;
    bytes += r.end - r.start;
  }
  bool ok = copy || make_room(bytes + later_bytes, bytes);
  ok = ok && with_margin(bytes + later_bytes) <= copy.bytes;
  ok = ok && copy_fresh();
  merge_fresh();
  early_bytes = bytes;
  ++rounds;
  return ok;
}

// Returns false if the copy failed; the pages to write are known all the same.
bool HostPages::take_early(uint64_t later_bytes) {
  constexpr uint32_t kMostRounds = 8;
  const bool all = makes_all_rounds();
  constexpr uint64_t kShort =
      1000;  // microseconds of copying in the stop that are not worth another round
  const uint64_t t0 = sys::now_us();
  bool ok = copy_round(later_bytes);
  uint64_t before = early_bytes;
  while (ok && rounds < kMostRounds) {
    const uint64_t left = count_written();
    const uint64_t room = with_margin(early_bytes + left + later_bytes);
    const bool gains = left / kPage * copy_ns_per_page / 1000 >= kShort && left <= before / 2;
    if ((!gains && !all) || room > copy.bytes || !fits(room)) break;
    before = left;
    ok = copy_round(later_bytes);
  }
  early_us += sys::now_us() - t0;
  return ok;
}

// Pages written between now and the stop add to those that are known; `spare`: pages that further
// rounds may add. This reserves address space only.
bool HostPages::make_room(uint64_t bytes, uint64_t spare) {
  if (!fits(bytes)) return false;
  copy = scratch_map(with_margin(bytes) + with_margin(spare));
  populated = 0;
  return static_cast<bool>(copy);
}

void HostPages::populate(uint64_t bytes) {
  if (bytes > copy.bytes) bytes = copy.bytes;
  if (bytes <= populated) return;
  populate_memory(copy.start + populated, bytes - populated);
  populated = bytes;
}

// Whether it is worth copying so much while the program runs: that takes memory, and half a second
// of a processor for each GiB.
bool HostPages::rounds_pay(uint64_t dirty, uint64_t all) const {
  if (dirty < kWorthEarly) return false;
  if (dirty <= all / 4) return true;
  if (!skip_rounds) return fits(dirty);
  --skip_rounds;
  return false;
}

uint64_t HostPages::untracked(uint64_t* fresh) {
  uint64_t loose = 0;
  *fresh = 0;
  for (const SmapsRange& r : smaps) {
    if (r.permissions & kSmapsShared || r.flags & kSmapsTracked) continue;
    loose += r.anonymous_bytes;
    if (r.flags & kSmapsProtect) *fresh += r.anonymous_bytes;
  }
  return loose;
}

// Copying pays as long as it takes no longer than a stop without it, and the copies of the rounds
// that follow are only of what was written.
bool HostPages::sending_pays(uint64_t fresh, uint64_t dirty) const {
  constexpr uint64_t kShortStopUs = 5000;
  // The processes of a job stop together, and share the processors.
  const uint32_t processes = job_barrier.processes(), processors = allowed_processors();
  const uint64_t short_stop =
      processes > processors ? kShortStopUs * processors / processes : kShortStopUs;
  const uint64_t copy = (fresh + dirty) / kPage * copy_ns_per_page / 1000;
  return (copy < plan.clone_us ? copy : plan.clone_us) >= short_stop &&
         (fresh * copy_ns_per_page / kPage / 1000 >= short_stop || dirty > kLittle || !fits(dirty));
}

void HostPages::send_rounds(Producer* out, uint64_t expected) {
  constexpr uint32_t kMostRounds = 6;
  const uint64_t t0 = sys::now_us();
  PageStream stream(&smaps, &pagemap, out);
  stream.gives_up = !sends_always();
  uint64_t left = expected;
  do {
    ++streamed_rounds;
    if (!stream.round(left)) break;
    const uint64_t before = left;
    left = count_written();
    if (sends_always()) continue;
    if (left <= kLittle || left > before / 2) break;
  } while (streamed_rounds < kMostRounds);
  streamed_bytes += stream.bytes;
  now.read();  // flags may have changed in that time
  early_us += sys::now_us() - t0;
}

// Returns the bytes of all private memory.
uint64_t HostPages::expect_clone() {
  uint64_t all = 0, huge = 0;
  for (const SmapsRange& r : smaps) {
    if (r.permissions & kSmapsShared) continue;
    all += r.anonymous_bytes;
    huge += r.huge_bytes;
  }
  plan.small_pages = (all - huge) / kPage;
  plan.clone_us = kCloneFixedUs + plan.small_pages * clone_ns_per_page / 1000 + (huge >> 21) +
                  thread_count() * kCloneThreadNs / 1000;
  return all;
}

void HostPages::precopy(Producer* out) {
  const bool always = sends_always(), again = streamed_rounds > 0;
  const char* wish = library.config.copy;
  if (equal(wish, "clone") || equal(wish, "stop") || equal(wish, "early")) return;
  if (!early_works || !tracker.protects_ranges()) return;
  if (skip_rounds && !again && !always) {
    --skip_rounds;
    return;
  }
  expect_clone();
  uint64_t fresh;
  untracked(&fresh);
  const uint64_t dirty = count_written();
  if (again ? dirty > kLittle : always || sending_pays(fresh, dirty))
    send_rounds(out, fresh + dirty);
}

void HostPages::make_plan(bool device_present) {
  const uint64_t all = expect_clone();
  uint64_t fresh;
  auto expect = [&](uint64_t bytes) {
    plan.bytes = bytes;
    plan.copy_us = bytes / kPage * copy_ns_per_page / 1000;
    return plan.copy_us <= plan.clone_us;
  };
  const char* wish = library.config.copy;
  const bool always = copies_always(), early_only = equal(wish, "early");
  if (equal(wish, "clone") || equal(wish, "stop")) return;
  const uint64_t dirty = count_written(), loose = untracked(&fresh);
  // The device's memory is captured first, and the program runs meanwhile.
  constexpr uint64_t kWhileFreezing = 16ull << 20;
  const uint64_t later = device_present ? kWhileFreezing : 0;
  const bool early_pays = expect(loose) && rounds_pay(dirty, all);
  if (library.config.precopy && early_works && tracker.protects_ranges() &&
      (early_pays || always || early_only)) {
    plan.copy = take_early(loose + later);
    // The program may write faster than the library copies.
    plan.copy &= (expect(loose + count_written()) || always) && !early_only;
    if (!plan.copy && dirty > all / 4) skip_rounds = kSkipAfterFailure;
    if (plan.copy) populate(page_up(early_bytes + with_margin(plan.bytes + later)));
  } else {
    plan.copy = (expect(loose + dirty) || always) && make_room(plan.bytes + later, 0);
    if (plan.copy) populate(copy.bytes);
  }
  if (plan.copy) return;
  if (streamed_rounds) skip_rounds = kSkipAfterFailure;
  scratch_unmap(&copy);
}

}  // namespace gpuckpt
