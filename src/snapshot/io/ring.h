// The producers' side of the ring (wire.h). One Producer per source; its sink may be used from
// several threads.
//
// Owner: the ring is the I/O thread's; a Producer is the attempt's or the copied child's. Threads:
// any. Errors: false once the writer is gone.
#pragma once

#include <atomic>

#include "base/mutex.h"
#include "gpuckpt/wire.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt {

class Producer : public CaptureSink {
 public:
  // `post` tells the writer that a slot is filled (kMsgData, kMsgBlob with a name). False: the
  // writer is gone.
  using Post = bool (*)(void* context, uint32_t type, uint32_t slot, const char* text);
  Producer(void* ring, Post post, void* context, uint32_t slots = wire::kRingSlots);

  bool add(uint64_t space, uint64_t address, const void* bytes, uint64_t length);
  bool add_zero(uint64_t space, uint64_t address, uint64_t length);
  bool add_blob(const char* name, const void* bytes, uint64_t length);
  // What the parent snapshot has; of whole chunks with their names (device_plugin.h).
  bool add_same(uint64_t space, uint64_t address, uint64_t length);
  bool add_sealed(uint64_t space, uint64_t address, const void* bytes, uint64_t length,
                  const void* names);
  bool add_named(uint64_t space, uint64_t address, uint64_t length, const void* names);
  bool wait_until_taken();
  bool acquire_slot(uint64_t length, uint64_t chunks, Block* out);
  bool commit_slot(const Block& block, uint64_t space, uint64_t address, uint64_t length,
                   const void* names, uint64_t chunks);
  bool flush();  // posts what is still being collected

  // For producers that fill memory themselves: room for `length` bytes (at most a slot) of one run,
  // then `commit`.
  char* reserve(uint64_t space, uint64_t length, uint64_t* granted);
  bool commit(uint64_t address, uint64_t length);
  // The same of several runs, which lie behind each other; at most runs_left() as it is after
  // `reserve`.
  bool commit(const wire::Run* runs, size_t count);
  uint32_t runs_left() const { return wire::kMaxRuns - header_->runs; }

  // Slots from here on stay unused, and what they lie in is no memory: few where that is short.
  const uint32_t slots;

  uint64_t data_bytes = 0, zero_bytes = 0, same_bytes = 0;
  bool failed = false;

 private:
  bool open(uint64_t space);
  bool add_empty(uint64_t space, uint64_t address, uint64_t length, uint32_t flags);
  bool post_slot(uint32_t type, const char* text);
  uint32_t claim();
  bool try_claim(uint32_t* slot);
  wire::SlotHeader* header_of(uint32_t slot) const;

  wire::RingHeader* ring_;
  Post post_;
  void* context_;
  Mutex mutex_;  // of everything below, and of the slot that is being filled
  uint32_t most_acquired() const { return slots > 8 ? slots - 8 : 0; }
  std::atomic<uint32_t> acquired_{0};
  uint32_t slot_ = 0;
  bool open_ = false;
  wire::SlotHeader* header_ = nullptr;
  char* payload_ = nullptr;
};

}  // namespace gpuckpt
