// The blob "process" as it grows, and copies of memory that the copied child cannot see.

#include <sys/mman.h>

#include "base/address.h"
#include "base/procfs/memory_room.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/copied_parts.h"
#include "snapshot/memory/own_memory.h"
#include "snapshot/process/capture.h"

namespace gpuckpt {

using namespace process;

void* Records::begin(RecordType type, uint32_t count) {
  head_ = used_;
  RecordHead h{type, count, 0};
  add(&h, sizeof(h));
  return memory_.data() + used_;
}

void Records::add(const void* bytes, uint64_t n) {
  if (void* room = reserve(n)) __builtin_memcpy(room, bytes, n);
}

void* Records::reserve(uint64_t n) {
  if (memory_.bytes - used_ < n + 16) {
    full = true;
    return nullptr;
  }
  used_ += n;
  return memory_.data() + used_ - n;
}

void Records::add_text(const char* s) { add(s, length(s) + 1); }

void Records::pad() {
  while (!full && used_ & 7) memory_.data()[used_++] = 0;
}

void Records::end() {
  if (full) return;
  RecordHead* h = reinterpret_cast<RecordHead*>(memory_.data() + head_);
  h->bytes = used_ - head_ - sizeof(RecordHead);
  pad();
}

void Records::drop() { used_ = head_; }

void Records::end(uint32_t count) {
  if (!full) reinterpret_cast<RecordHead*>(memory_.data() + head_)->count = count;
  end();
}

// Many small pieces share a mapping; what is not used of it costs nothing.
EagerCopy* Capture::add_eager(uint64_t space, uint64_t address, uint64_t bytes) {
  constexpr uint64_t kChunk = 256 << 20, kHugePage = 2 << 20;
  const uint64_t whole = page_up(bytes);
  if (eager_count == kEagerRoom || whole > eager_left) return nullptr;
  if (!eager_chunks || eager_chunk[eager_chunks - 1].bytes - eager_used < whole) {
    if (eager_chunks == sizeof(eager_chunk) / sizeof(eager_chunk[0])) return nullptr;
    eager_chunk[eager_chunks] = scratch_map(whole > kChunk ? whole : kChunk);
    if (!eager_chunk[eager_chunks]) return nullptr;
    ++eager_chunks;
    eager_used = 0;
  }
  eager_left -= whole;
  eager_ready -= whole < eager_ready ? whole : eager_ready;
  EagerCopy* e = &eager[eager_count++];
  *e = {space, address, whole, eager_chunk[eager_chunks - 1].data() + eager_used};
  // It is filled while all threads are parked: a fault for each page would take most of that time.
  if (whole >= kHugePage)
    sys::call(SYS_madvise, sys::ptr(e->bytes), static_cast<long>(whole), MADV_HUGEPAGE);
  eager_used += whole;
  return e;
}

uint64_t Capture::eager_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < eager_count; ++i)
    if (eager[i].bytes) bytes += eager[i].length;
  return bytes;
}

// Shared memory, and huge pages of the pool. One process of a job copies what several have mapped:
// each expects its share, in whole parts: of 64 processes a part that is not prepared to its end is
// half a gigabyte whose pages come in the stop. There is address space for all of it and more, as
// what only others have touched is not in this one's page tables, and a piece does not lie in two
// chunks.
void Capture::expect_eager() {
  constexpr uint32_t kNeverCopied = +kSmapsDevice | +kVmaNeverWrite;
  constexpr uint64_t kWorthIt = 4ull << 20;
  uint64_t bytes = 0, share = 0;
  for (const SmapsRange& r : pages.smaps)
    if ((r.permissions & kSmapsShared || r.flags & kSmapsHugetlb) && !(r.flags & kNeverCopied))
      bytes += r.present_bytes, share += r.share_bytes;
  if (share < kWorthIt) return;
  if (job_barrier.active()) share = (share + kSharedPart - 1) & ~(kSharedPart - 1);
  if (share > eager_left || share > memory_room().left / 4 || eager_chunks) return;
  eager_chunk[0] = scratch_map(2 * (bytes > share ? bytes : share));
  if (!eager_chunk[0]) return;
  eager_chunks = 1;
  eager_used = 0;
  populate_memory(eager_chunk[0].start, page_up(share));
  eager_ready = page_up(share);
}

bool Capture::add_hole(uint64_t space, uint64_t address, uint64_t bytes) {
  EagerCopy* last = eager_count ? &eager[eager_count - 1] : nullptr;
  if (last && last->space == space && !last->bytes && last->address + last->length == address) {
    last->length += bytes;
    return true;
  }
  if (eager_count == kEagerRoom) return false;
  eager[eager_count++] = {space, address, bytes, nullptr};
  return true;
}

bool Capture::looked_at(uint64_t space, uint64_t at, uint64_t* end) const {
  for (size_t i = 0; i < piece_count; ++i) {
    const SpacePiece& p = piece[i];
    if (p.space != space) continue;
    if (p.start <= at && at < p.end) {
      if (p.end < *end) *end = p.end;
      return true;
    }
    if (p.start > at && p.start < *end) *end = p.start;
  }
  return false;
}

bool Capture::note_looked_at(uint64_t space, uint64_t start, uint64_t end) {
  SpacePiece* last = piece_count ? &piece[piece_count - 1] : nullptr;
  if (last && last->space == space && last->end == start) {
    last->end = end;
    return true;
  }
  if (piece_count == kPieceRoom) return false;
  piece[piece_count++] = {space, start, end};
  return true;
}

}  // namespace gpuckpt
