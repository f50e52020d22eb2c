// A heap with boundary tags and next fit, in device memory that kernels may overwrite: all that is
// read from it is checked before it is used.
#include "ptx/handlers/device_heap.h"

#include <sched.h>

namespace simgpu::ptx {

namespace {

constexpr uint64_t kMagic = 0x7061656865636976ull;
constexpr uint32_t kUsed = 0x44455355u, kFree = 0x45455246u;
constexpr uint64_t kHead = 64;   // bytes before the first chunk
constexpr uint64_t kLeast = 32;  // a chunk: its header and something

struct Head {
  uint64_t magic;
  uint32_t lock;
  uint32_t pad;
  uint64_t end;    // offset
  uint64_t rover;  // offset of the chunk where the search begins
};
struct Chunk {
  uint64_t bytes;     // with this header; to the next chunk
  uint32_t previous;  // size of the chunk before, in units of 16 bytes; 0: this is the first
  uint32_t tag;
};

class Heap {
 public:
  explicit Heap(Ctx& c) {
    Segment s{};
    uint64_t bytes = 0;
    Memory& memory = *c.grid->memory;
    if (!memory.heap(&address_, &bytes) || !memory.find(address_, &s) || s.end - address_ < bytes ||
        bytes < kHead + kLeast || !s.writable)
      return;
    base_ = s.host + (address_ - s.begin);
    head_ = reinterpret_cast<Head*>(base_);
    while (__atomic_exchange_n(&head_->lock, 1u, __ATOMIC_ACQUIRE) != 0) sched_yield();
    if (head_->magic != kMagic) {
      head_->end = bytes & ~15ull;
      head_->rover = kHead;
      *at(kHead) = Chunk{head_->end - kHead, 0, kFree};
      head_->magic = kMagic;
    }
    end_ = bytes & ~15ull;
  }
  ~Heap() {
    if (head_) __atomic_store_n(&head_->lock, 0u, __ATOMIC_RELEASE);
  }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  uint64_t take(uint64_t bytes) {
    if (!head_ || bytes > end_ || !good(head_->rover)) return 0;
    const uint64_t need = (bytes + sizeof(Chunk) + 15) & ~15ull;
    const uint64_t want = need < kLeast ? kLeast : need, begin = head_->rover;
    uint64_t o = begin;
    do {
      Chunk* k = at(o);
      if (k->tag == kFree && k->bytes >= want) {
        split(o, want);
        k->tag = kUsed;
        head_->rover = next(o);
        return address_ + o + sizeof(Chunk);
      }
      o = next(o);
      if (!good(o)) return 0;
    } while (o != begin);
    return 0;
  }

  bool give(uint64_t address) {
    if (!head_ || address < address_ + kHead + sizeof(Chunk)) return false;
    uint64_t o = address - address_ - sizeof(Chunk);
    if (!good(o) || at(o)->tag != kUsed) return false;
    at(o)->tag = kFree;
    if (at(o)->previous != 0 && (uint64_t)at(o)->previous * 16 <= o - kHead) {
      const uint64_t before = o - (uint64_t)at(o)->previous * 16;
      if (good(before) && at(before)->tag == kFree && next_of(before) == o) {
        at(before)->bytes += at(o)->bytes;
        o = before;
      }
    }
    const uint64_t after = next_of(o);
    if (after < end_ && good(after) && at(after)->tag == kFree) at(o)->bytes += at(after)->bytes;
    tell_next(o);
    head_->rover = o;
    return true;
  }

 private:
  Chunk* at(uint64_t o) { return reinterpret_cast<Chunk*>(base_ + o); }
  // A chunk whose bounds were checked.
  bool good(uint64_t o) {
    if (o < kHead || (o & 15) != 0 || o > end_ - kLeast) return false;
    const Chunk& k = *at(o);
    return (k.tag == kUsed || k.tag == kFree) && k.bytes >= kLeast && (k.bytes & 15) == 0 &&
           k.bytes <= end_ - o;
  }
  uint64_t next_of(uint64_t o) { return o + at(o)->bytes; }
  uint64_t next(uint64_t o) {
    const uint64_t n = next_of(o);
    return n >= end_ ? kHead : n;
  }
  void tell_next(uint64_t o) {
    const uint64_t n = next_of(o);
    if (n < end_) at(n)->previous = (uint32_t)(at(o)->bytes / 16);
  }
  void split(uint64_t o, uint64_t want) {
    Chunk* k = at(o);
    if (k->bytes - want < kLeast) return;
    *at(o + want) = Chunk{k->bytes - want, (uint32_t)(want / 16), kFree};
    k->bytes = want;
    tell_next(o + want);
  }

  uint64_t address_ = 0, end_ = 0;
  uint8_t* base_ = nullptr;
  Head* head_ = nullptr;
};

}  // namespace

uint64_t device_malloc(Ctx& c, uint64_t bytes) { return Heap(c).take(bytes); }
bool device_free(Ctx& c, uint64_t address) { return Heap(c).give(address); }

}  // namespace simgpu::ptx
