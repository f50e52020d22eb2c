#include "base/heap.h"

#include <sys/mman.h>

#include <atomic>

#include "base/address.h"
#include "base/mutex.h"
#include "base/syscall.h"

namespace gpuckpt {
namespace {

constexpr size_t kMaxScratch = 128;
Mutex scratch_mutex;
Range scratch[kMaxScratch];

// Size classes are powers of two from 32 bytes up; a block starts with its class.
constexpr int kClasses = 24;
struct Block {
  uint64_t size_class;
  Block* next;
};
Mutex heap_mutex;
Block* free_list[kClasses];
uint64_t chunk_at, chunk_end;

constexpr uint64_t kOwnBase = 0x600000000000, kOwnRoom = 0x080000000000;
std::atomic<uint64_t> own_bytes;

}  // namespace

uint64_t own_address(uint64_t bytes) {
  return kOwnBase + own_bytes.fetch_add(page_up(bytes), std::memory_order_relaxed) % kOwnRoom;
}

Region region_map(uint64_t bytes, int fd) {
  bytes = page_up(bytes);
  const uint64_t reserved = bytes + 2 * kPage;
  long at = sys::mmap(own_address(reserved), reserved, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  if (sys::failed(at)) return {};
  uint64_t start = static_cast<uint64_t>(at) + kPage;
  int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  if (sys::failed(sys::mmap(start, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd))) {
    sys::munmap(static_cast<uint64_t>(at), reserved);
    return {};
  }
  return {start, bytes};
}

void region_unmap(Region* r) {
  if (r->start) sys::munmap(r->start - kPage, r->bytes + 2 * kPage);
  *r = {};
}

Region scratch_map(uint64_t bytes, int fd) {
  Region r = region_map(bytes, fd);
  if (!r) return r;
  scratch_mutex.lock();
  bool kept = false;
  for (Range& s : scratch)
    if (!s.start) {
      s.end = 0;
      std::atomic_signal_fence(std::memory_order_seq_cst);
      s.start = r.start - kPage;
      std::atomic_signal_fence(std::memory_order_seq_cst);
      s.end = r.start + r.bytes + kPage;
      kept = true;
      break;
    }
  scratch_mutex.unlock();
  if (!kept) region_unmap(&r);
  return r;
}

void scratch_unmap(Region* r) {
  if (!r->start) return;
  bool known = false;
  scratch_mutex.lock();
  for (Range& s : scratch)
    if (s.start == r->start - kPage) s = {}, known = true;
  scratch_mutex.unlock();
  if (known)
    region_unmap(r);
  else
    *r = {};  // gone since a fork or a restore; what is there now is another's
}

size_t scratch_ranges(Range* out, size_t room) {
  size_t n = 0;
  for (const Range& s : scratch) {
    if (!s.start || n == room) continue;
    size_t i = n++;
    for (; i && out[i - 1].start > s.start; --i) out[i] = out[i - 1];
    out[i] = s;
  }
  return n;
}

void scratch_forget() {
  for (Range& s : scratch) s = {};
  scratch_mutex.reset();
}

void memory_after_fork() {
  // Another thread of the parent may have been in the middle of these: of a range, the end is
  // written last; a chunk that was being replaced is left alone.
  for (Range& s : scratch) {
    if (s.start && s.end > s.start) sys::munmap(s.start, s.end - s.start);
    s = {};
  }
  scratch_mutex.reset();
  if (heap_mutex.held()) chunk_at = chunk_end = 0;
  heap_mutex.reset();
}

void* heap_alloc(size_t bytes) {
  int c = 1;
  while ((32ull << c) < bytes + sizeof(Block) && c < kClasses) ++c;
  if (c == kClasses) return nullptr;
  heap_mutex.lock();
  Block* b = free_list[c];
  if (b) {
    free_list[c] = b->next;
  } else {
    uint64_t need = 32ull << c;
    if (chunk_end - chunk_at < need) {
      uint64_t size = need > (1u << 20) ? need : (1u << 20);
      Region r = region_map(size);
      chunk_at = r.start;
      chunk_end = r.start + r.bytes;
    }
    if (chunk_end - chunk_at >= need && chunk_at) {
      b = reinterpret_cast<Block*>(chunk_at);
      chunk_at += need;
    }
  }
  heap_mutex.unlock();
  if (!b) return nullptr;
  b->size_class = static_cast<uint64_t>(c);
  return b + 1;
}

void heap_free(void* p) {
  if (!p) return;
  Block* b = static_cast<Block*>(p) - 1;
  heap_mutex.lock();
  b->next = free_list[b->size_class];
  free_list[b->size_class] = b;
  heap_mutex.unlock();
}

}  // namespace gpuckpt
