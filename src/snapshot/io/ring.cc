#include "snapshot/io/ring.h"

#include "base/hash/chunk_hash.h"
#include "base/syscall.h"

namespace gpuckpt {
namespace {
constexpr uint32_t kNoSlot = ~0u;
constexpr uint64_t kChunk = wire::kLargeChunk;
static_assert(kChunk == kHashedChunk);
// How many bytes from `at` on lie in the same chunk, up to `end`.
uint64_t chunk_at(uint64_t at, uint64_t end) {
  const uint64_t whole = kChunk - at % kChunk;
  return whole < end - at ? whole : end - at;
}
uint64_t room_for_names(uint64_t chunks) {
  return wire::padded_names(chunks * wire::kChunkNameBytes);
}
}  // namespace

Producer::Producer(void* ring, Post post, void* context, uint32_t slots)
    : slots(slots), ring_(static_cast<wire::RingHeader*>(ring)), post_(post), context_(context) {
  data = [](CaptureSink* s, uint64_t space, uint64_t a, const void* b, uint64_t n) {
    return static_cast<Producer*>(s)->add(space, a, b, n);
  };
  zero = [](CaptureSink* s, uint64_t space, uint64_t a, uint64_t n) {
    return static_cast<Producer*>(s)->add_zero(space, a, n);
  };
  blob = [](CaptureSink* s, const char* name, const void* b, uint64_t n) {
    return static_cast<Producer*>(s)->add_blob(name, b, n);
  };
  sealed = [](CaptureSink* s, uint64_t space, uint64_t a, const void* b, uint64_t n,
              const void* names) {
    return static_cast<Producer*>(s)->add_sealed(space, a, b, n, names);
  };
  acquire = [](CaptureSink* s, uint64_t n, uint64_t chunks, Block* out) {
    return static_cast<Producer*>(s)->acquire_slot(n, chunks, out);
  };
  commit_block = [](CaptureSink* s, const Block& block, uint64_t space, uint64_t a, uint64_t n,
                    const void* names, uint64_t chunks) {
    return static_cast<Producer*>(s)->commit_slot(block, space, a, n, names, chunks);
  };
  named = [](CaptureSink* s, uint64_t space, uint64_t a, uint64_t n, const void* names) {
    return static_cast<Producer*>(s)->add_named(space, a, n, names);
  };
  arrived = [](CaptureSink* s) { return static_cast<Producer*>(s)->wait_until_taken(); };
  memory = ring;
  memory_bytes = wire::kRingHeaderBytes + slots * wire::kSlotBytes;
  same = [](CaptureSink* s, uint64_t space, uint64_t a, uint64_t n) {
    return static_cast<Producer*>(s)->add_same(space, a, n);
  };
}

bool Producer::try_claim(uint32_t* slot) {
  for (*slot = 0; *slot < slots; ++*slot) {
    uint32_t expected = wire::kSlotFree;
    if (ring_->state[*slot].load(std::memory_order_relaxed) == expected &&
        ring_->state[*slot].compare_exchange_strong(expected, wire::kSlotBusy))
      return true;
  }
  return false;
}

uint32_t Producer::claim() {
  for (;;) {
    if (ring_->writer_dead.load()) return kNoSlot;
    uint32_t seen = ring_->freed.load(), slot;
    if (try_claim(&slot)) return slot;
    sys::futex_wait(&ring_->freed, seen, 100000, true);
    // A writer that was killed cannot set writer_dead: an empty message finds out.
    if (!post_(context_, 0, 0, nullptr)) return kNoSlot;
  }
}

wire::SlotHeader* Producer::header_of(uint32_t slot) const {
  return reinterpret_cast<wire::SlotHeader*>(reinterpret_cast<char*>(ring_) +
                                             wire::kRingHeaderBytes + slot * wire::kSlotBytes);
}

bool Producer::open(uint64_t space) {
  if (failed) return false;
  if (open_ && header_->space != space && !post_slot(wire::kMsgData, nullptr)) return false;
  if (open_) return true;
  slot_ = claim();
  if (slot_ == kNoSlot) {
    failed = true;
    return false;
  }
  header_ = header_of(slot_);
  payload_ = reinterpret_cast<char*>(header_) + wire::kSlotHeaderBytes;
  header_->space = space;
  header_->runs = 0;
  header_->reserved = 0;
  header_->payload_bytes = 0;
  open_ = true;
  return true;
}

bool Producer::post_slot(uint32_t type, const char* text) {
  open_ = false;
  if (!post_(context_, type, slot_, text)) failed = true;
  return !failed;
}

bool Producer::flush() {
  mutex_.lock();
  bool ok = !failed && (!open_ || post_slot(wire::kMsgData, nullptr));
  mutex_.unlock();
  return ok;
}

char* Producer::reserve(uint64_t space, uint64_t length, uint64_t* granted) {
  mutex_.lock();
  if (!open(space)) {
    mutex_.unlock();
    return nullptr;
  }
  if (header_->runs == wire::kMaxRuns || wire::kSlotPayloadBytes - header_->payload_bytes < 4096) {
    if (!post_slot(wire::kMsgData, nullptr) || !open(space)) {
      mutex_.unlock();
      return nullptr;
    }
  }
  uint64_t room = wire::kSlotPayloadBytes - header_->payload_bytes;
  *granted = length < room ? length : room;
  return payload_ + header_->payload_bytes;  // the lock is held until commit
}

bool Producer::commit(uint64_t address, uint64_t length) {
  const wire::Run run{address, length, wire::kRunData, 0};
  return commit(&run, length ? 1 : 0);
}

bool Producer::commit(const wire::Run* runs, size_t count) {
  for (const wire::Run* run = runs; run != runs + count; ++run) {
    wire::Run* last = header_->runs ? &header_->run[header_->runs - 1] : nullptr;
    if (last && last->flags == run->flags && last->address + last->length == run->address)
      last->length += run->length;
    else
      header_->run[header_->runs++] = *run;
    header_->payload_bytes += run->length;
    data_bytes += run->length;
  }
  mutex_.unlock();
  return !failed;
}

bool Producer::add(uint64_t space, uint64_t address, const void* bytes, uint64_t length) {
  const char* from = static_cast<const char*>(bytes);
  while (length) {
    uint64_t n = 0;
    char* to = reserve(space, length, &n);
    if (!to) return false;
    __builtin_memcpy(to, from, n);
    if (!commit(address, n)) return false;
    from += n, address += n, length -= n;
  }
  return true;
}

// A run without payload.
bool Producer::add_empty(uint64_t space, uint64_t address, uint64_t length, uint32_t flags) {
  if (!length) return true;
  mutex_.lock();
  bool ok = open(space);
  if (ok && header_->runs == wire::kMaxRuns) ok = post_slot(wire::kMsgData, nullptr) && open(space);
  if (ok) {
    wire::Run* last = header_->runs ? &header_->run[header_->runs - 1] : nullptr;
    if (last && last->flags == flags && last->address + last->length == address)
      last->length += length;
    else
      header_->run[header_->runs++] = {address, length, flags, 0};
    (flags == wire::kRunZero ? zero_bytes : same_bytes) += length;
  }
  mutex_.unlock();
  return ok;
}

bool Producer::add_zero(uint64_t space, uint64_t address, uint64_t length) {
  return add_empty(space, address, length, wire::kRunZero);
}

bool Producer::add_same(uint64_t space, uint64_t address, uint64_t length) {
  return add_empty(space, address, length, wire::kRunSame);
}

bool Producer::acquire_slot(uint64_t length, uint64_t chunks, Block* out) {
  if (failed || room_for_names(chunks) + length > wire::kSlotPayloadBytes) return false;
  // A thread that has acquired slots may wait for another one before it commits these, so some
  // slots must come free without it.
  if (acquired_.fetch_add(1) >= most_acquired() || !try_claim(&out->token)) {
    acquired_.fetch_sub(1);
    return false;
  }
  out->bytes = reinterpret_cast<char*>(header_of(out->token)) + wire::kSlotHeaderBytes +
               room_for_names(chunks);
  return true;
}

bool Producer::commit_slot(const Block& block, uint64_t space, uint64_t address, uint64_t length,
                           const void* names, uint64_t chunks) {
  wire::SlotHeader* header = header_of(block.token);
  header->space = space;
  header->runs = 1;
  header->reserved = 0;
  header->payload_bytes = room_for_names(chunks) + length;
  header->run[0] = {address, length, wire::kRunSealed, 0};
  __builtin_memcpy(reinterpret_cast<char*>(header) + wire::kSlotHeaderBytes, names,
                   chunks * wire::kChunkNameBytes);
  mutex_.lock();
  data_bytes += length;
  acquired_.fetch_sub(1);
  if (!post_(context_, wire::kMsgData, block.token, nullptr)) failed = true;
  bool ok = !failed;
  mutex_.unlock();
  return ok;
}

bool Producer::add_sealed(uint64_t space, uint64_t address, const void* bytes, uint64_t length,
                          const void* names) {
  const char* from = static_cast<const char*>(bytes);
  const char* name = static_cast<const char*>(names);
  mutex_.lock();
  bool ok = true;
  while (length && (ok = open(space))) {
    uint64_t room = wire::kSlotPayloadBytes - header_->payload_bytes, chunks = 0, n = 0;
    while (n < length && header_->runs < wire::kMaxRuns) {
      const uint64_t chunk = chunk_at(address + n, address + length);
      if (n + chunk + room_for_names(chunks + 1) > room) break;
      n += chunk;
      ++chunks;
    }
    if (!n) {
      if (!(ok = post_slot(wire::kMsgData, nullptr))) break;
      continue;
    }
    char* to = payload_ + header_->payload_bytes;
    __builtin_memcpy(to, name, chunks * wire::kChunkNameBytes);
    __builtin_memcpy(to + room_for_names(chunks), from, n);
    header_->run[header_->runs++] = {address, n, wire::kRunSealed, 0};
    header_->payload_bytes += room_for_names(chunks) + n;
    data_bytes += n;
    name += chunks * wire::kChunkNameBytes;
    from += n, address += n, length -= n;
  }
  mutex_.unlock();
  return ok && !failed;
}

bool Producer::add_named(uint64_t space, uint64_t address, uint64_t length, const void* names) {
  const char* name = static_cast<const char*>(names);
  mutex_.lock();
  bool ok = true;
  while (length && (ok = open(space))) {
    const uint64_t room =
        (wire::kSlotPayloadBytes - header_->payload_bytes) / wire::kChunkNameBytes;
    uint64_t chunks = 0, n = 0;
    for (; n < length && chunks < room && header_->runs < wire::kMaxRuns; ++chunks)
      n += chunk_at(address + n, address + length);
    if (!n) {
      if (!(ok = post_slot(wire::kMsgData, nullptr))) break;
      continue;
    }
    __builtin_memcpy(payload_ + header_->payload_bytes, name, chunks * wire::kChunkNameBytes);
    header_->run[header_->runs++] = {address, n, wire::kRunNamed, 0};
    header_->payload_bytes += chunks * wire::kChunkNameBytes;
    name += chunks * wire::kChunkNameBytes;
    address += n, length -= n;
  }
  mutex_.unlock();
  return ok && !failed;
}

// Every slot is free, so the writer is done with all of them.
bool Producer::wait_until_taken() {
  if (!flush()) return false;
  for (;;) {
    const uint32_t seen = ring_->freed.load();
    if (ring_->writer_dead.load()) break;
    bool busy = false;
    for (auto& state : ring_->state) busy |= state.load() != wire::kSlotFree;
    if (!busy) return true;
    sys::futex_wait(&ring_->freed, seen, 100000, true);
    if (!post_(context_, 0, 0, nullptr)) break;
  }
  failed = true;
  return false;
}

bool Producer::add_blob(const char* name, const void* bytes, uint64_t length) {
  const char* from = static_cast<const char*>(bytes);
  mutex_.lock();
  bool ok = !failed && (!open_ || post_slot(wire::kMsgData, nullptr));
  do {
    if (!ok || !(ok = open(wire::kSpaceHost))) break;
    uint64_t n = length < wire::kSlotPayloadBytes ? length : wire::kSlotPayloadBytes;
    __builtin_memcpy(payload_, from, n);
    header_->payload_bytes = n;
    ok = post_slot(wire::kMsgBlob, name);
    from += n, length -= n;
  } while (length);
  mutex_.unlock();
  return ok;
}

}  // namespace gpuckpt
