#include "restore/entry/entry_device.h"

#include <poll.h>

#include "base/heap.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "restore/entry/entry_state.h"
#include "restore/protocol/device_ring.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/control/worker.h"

namespace gpuckpt::entry {
namespace {

using restore::Plan;

struct Source : RestoreSource {
  const Plan* plan;
  restore::DeviceRing* ring;  // null: the device memory holds zeros only
  uint64_t zeros_given;
};

bool supervisor_is_gone(const Plan* p) {
  pollfd socket{p->report_fd, 0, 0};
  return sys::call(SYS_poll, sys::ptr(&socket), 1, 0) > 0 && socket.revents & POLLHUP;
}

RestoreSource::Next source_next(RestoreSource* s, RestorePiece* out) {
  using restore::DeviceRing;
  Source* self = static_cast<Source*>(s);
  const Plan* p = self->plan;
  const auto* zeros =
      reinterpret_cast<const restore::PlanExtent*>(reinterpret_cast<const char*>(p) + p->extents);
  if (self->zeros_given < p->extent_count) {
    const restore::PlanExtent& e = zeros[self->zeros_given++];
    *out = {e.space, e.address, e.length, nullptr, DeviceRing::kBlocks};
    return RestoreSource::kPiece;
  }
  DeviceRing* ring = self->ring;
  while (ring) {
    const uint32_t seen = ring->filled.load(), end = ring->end.load();
    const uint32_t i = ring->claim(DeviceRing::kFull);
    if (i < DeviceRing::kBlocks) {
      const DeviceRing::Block& b = ring->block[i];
      *out = {b.space, b.address, b.length, ring->bytes(i), i};
      return RestoreSource::kPiece;
    }
    if (end == DeviceRing::kAll) break;
    if (end == DeviceRing::kFailed || supervisor_is_gone(p)) return RestoreSource::kBroken;
    sys::futex_wait(&ring->filled, seen, 100000, true);
  }
  return RestoreSource::kEnd;
}

void source_done(RestoreSource* s, const RestorePiece& piece) {
  restore::DeviceRing* ring = static_cast<Source*>(s)->ring;
  if (piece.token >= restore::DeviceRing::kBlocks) return;
  ring->block[piece.token].state = restore::DeviceRing::kFree;
  ++ring->freed;
  sys::futex_wake(&ring->freed, 1, true);
}

const void* source_blob(RestoreSource* s, const char* name, uint64_t* length) {
  Source* self = static_cast<Source*>(s);
  const char* plan = reinterpret_cast<const char*>(self->plan);
  const auto* b = reinterpret_cast<const restore::PlanBlob*>(plan + self->plan->blobs);
  for (uint64_t i = 0; i < self->plan->blob_count; ++i)
    if (equal(b[i].name, name)) {
      *length = b[i].bytes;
      return plan + b[i].offset;
    }
  return nullptr;
}

struct Work {
  Source source{};
  DeviceReport report;
  bool ok = false;
};
void work_on_device(void* argument) {
  Work* w = static_cast<Work*>(argument);
  w->ok = device_plugin->restore(&w->source, &w->report);
}

// Opens the source of the device's memory: the plan lists extents of zeros, all other bytes come
// through the ring.
void open_source(const Plan* p, Source* source, Region* ring) {
  source->next = source_next;
  source->done = source_done;
  source->blob = source_blob;
  source->plan = p;
  if (p->device_fd < 0) return;
  *ring = scratch_map(restore::DeviceRing::kBytes, p->device_fd);
  if (!*ring) die(kExitError, "no address space for the device's memory");
  sys::close(p->device_fd);
  source->ring = reinterpret_cast<restore::DeviceRing*>(ring->data());
  source->memory = ring->data();
  source->memory_bytes = restore::DeviceRing::kBytes;
}

}  // namespace

uint64_t restore_device(const restore::Plan* p, bool program_runs) {
  static Work work;
  work = Work{};  // an earlier restore may have left it in the image
  Region ring{};
  open_source(p, &work.source, &ring);
  begin_step("putting its device back", 0);
  const uint64_t begin = sys::now_us();
  const bool made = run_on_pthread(work_on_device, &work);
  const uint64_t took = sys::now_us() - begin;
  if (!made || !work.ok) {
    const char* why = made ? work.report.text : "no thread for the device's work could be made";
    log_line(LogLevel::kError, "restore failed: %s", why);
    if (program_runs) sys::exit_group(125);
    die(work.report.code ? work.report.code : kExitIncompatible, "%s", why);
  }
  scratch_unmap(&ring);
  return took;
}

}  // namespace gpuckpt::entry
