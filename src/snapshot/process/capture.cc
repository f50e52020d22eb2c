#include "snapshot/process/capture.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/address.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/memory/track.h"
#include "snapshot/process/limits.h"
#include "snapshot/process/mappings.h"
#include "snapshot/process/process_head.h"
#include "snapshot/process/process_state.h"

namespace gpuckpt {

using namespace process;

namespace {

// Unread bytes of sockets can fill it while all threads are parked, when the page faults would take
// most of the time. So the pages for them are made before. What most programs need is before the
// huge pages.
Region map_records() {
  constexpr uint64_t kRoom = 96 << 20, kSmall = 2 << 20;
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14
  Region room = scratch_map(kRoom);
  if (!room) return room;
  sys::call(SYS_madvise, sys::ptr(room.data() + kSmall), kRoom - kSmall, MADV_HUGEPAGE);
  const uint64_t expected = page_up(expected_socket_records());
  sys::call(SYS_madvise, sys::ptr(room.data()),
            static_cast<long>(expected < kRoom ? expected : kRoom), kPopulateWrite);
  return room;
}

}  // namespace

bool capture_start(Capture* c, bool self_contained, uint64_t memory) {
  c->eager_left = memory;
  c->pages.pagemap.forget();
  c->record_memory = map_records();
  c->eager_memory = scratch_map(Capture::kEagerRoom * sizeof(EagerCopy));
  c->eager = reinterpret_cast<EagerCopy*>(c->eager_memory.data());
  c->piece_memory = scratch_map(Capture::kPieceRoom * sizeof(SpacePiece));
  c->piece = reinterpret_cast<SpacePiece*>(c->piece_memory.data());
  c->deferred_memory = scratch_map(Capture::kDeferredRoom * sizeof(DeferredPart));
  c->deferred = reinterpret_cast<DeferredPart*>(c->deferred_memory.data());
  c->scratch_memory = scratch_map(sizeof(CaptureScratch));
  c->scratch = reinterpret_cast<CaptureScratch*>(c->scratch_memory.data());
  if (!c->record_memory || !c->eager_memory || !c->piece_memory || !c->deferred_memory ||
      !c->scratch_memory || !make_room_for_descriptors(c) || !c->pages.start() ||
      (self_contained && !c->embedded.start())) {
    char why[256];
    explain_failure(why, sizeof(why), "no memory for the snapshot's tables", -ENOMEM);
    return c->refuse("%s", why);
  }
  return true;
}

bool capture_process(Capture* c, Records* r, bool device_present) {
  const uint64_t begin = sys::now_us();
  if (!put_process_head(c, r, device_present) || !put_process_state(c, r)) return false;
  c->state_us = sys::now_us() - begin;
  if (!put_mappings(c, r)) return false;
  c->maps_us = sys::now_us() - begin - c->state_us;
  if (r->full) return c->refuse("the description of the process does not fit into 96 MiB");
  return true;
}

void put_guards(Capture* c, Records* r) {
  const PageList& list = c->pages.guards;
  if (!list.count) return;
  r->begin(kRecGuards, list.count);
  for (uint32_t i = 0; i < list.count; ++i) {
    Span s{list.at[i].start, list.at[i].end};
    r->add(&s, sizeof(s));
  }
  r->end();
}

bool clone_is_whole(const Capture& c, char* text, size_t room) {
  LineReader lines("/proc/thread-self/maps", c.scratch->lines, sizeof(c.scratch->lines));
  if (!lines.ok()) return true;  // as little to be seen as in the program
  MapsLine l;
  __builtin_memset(&l, 0, sizeof(l));
  const HostPages& h = c.pages;
  for (size_t i = 0; i < h.range_count; ++i)
    for (uint64_t at = h.ranges[i].start; at < h.ranges[i].end; at = l.end) {
      bool more = true;
      while (l.end <= at && more) {
        char* line = lines.next();
        more = line && parse_maps_line(line, &l);
      }
      if (more && l.start <= at) continue;
      format(text, room,
             "memory at %lx was mapped or marked MADV_DONTFORK while the snapshot began; take the "
             "snapshot once more",
             at);
      return false;
    }
  return true;
}

bool capture_before_clone(Capture* c) {
  for (size_t i = 0; i < c->keep_from_clone_count; ++i)
    if (sys::failed(sys::call(
            SYS_madvise, static_cast<long>(c->keep_from_clone[i].start),
            static_cast<long>(c->keep_from_clone[i].end - c->keep_from_clone[i].start), 10)))
      return false;
  for (size_t i = 0; i < c->dont_fork_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->dont_fork[i].start),
              static_cast<long>(c->dont_fork[i].end - c->dont_fork[i].start), 11);
  for (size_t i = 0; i < c->wipe_on_fork_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->wipe_on_fork[i].start),
              static_cast<long>(c->wipe_on_fork[i].end - c->wipe_on_fork[i].start), 19);
  return true;
}

void capture_after_clone(Capture* c) {
  for (size_t i = 0; i < c->keep_from_clone_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->keep_from_clone[i].start),
              static_cast<long>(c->keep_from_clone[i].end - c->keep_from_clone[i].start), 11);
  for (size_t i = 0; i < c->dont_fork_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->dont_fork[i].start),
              static_cast<long>(c->dont_fork[i].end - c->dont_fork[i].start), 10);
  for (size_t i = 0; i < c->wipe_on_fork_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->wipe_on_fork[i].start),
              static_cast<long>(c->wipe_on_fork[i].end - c->wipe_on_fork[i].start), 18);
}

void capture_finish(Capture* c) {
  scratch_unmap(&c->record_memory);
  c->pages.finish();
  c->embedded.finish();
  for (size_t i = 0; i < c->eager_chunks; ++i) scratch_unmap(&c->eager_chunk[i]);
  scratch_unmap(&c->eager_memory);
  scratch_unmap(&c->piece_memory);
  scratch_unmap(&c->deferred_memory);
  scratch_unmap(&c->scratch_memory);
  forget_descriptors(c);
  c->eager_count = c->eager_chunks = c->piece_count = c->deferred_count = 0;
  c->eager_ready = 0;
}

}  // namespace gpuckpt
