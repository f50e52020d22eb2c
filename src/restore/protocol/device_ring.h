// Device memory for a restored process: shared blocks that the supervisor fills from the store
// while the process uploads others, so that host memory holds only a few blocks, and reading and
// copying overlap.
//
// Owner: the supervisor makes it; both processes map it. Threads: any of both, by the atomics.
// Errors: kFailed.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuckpt::restore {

struct DeviceRing {
  static constexpr uint32_t kBlocks = 32;
  static constexpr uint64_t kBlockBytes = 1 << 20;
  static constexpr uint64_t kHeaderBytes = 4096;
  static constexpr uint64_t kBytes = kHeaderBytes + kBlocks * kBlockBytes;

  enum State : uint32_t { kFree, kBusy, kFull };  // kBusy: being filled, or uploaded
  enum End : uint32_t { kMore, kAll, kFailed };
  struct Block {
    std::atomic<uint32_t> state;
    uint32_t reserved;
    uint64_t space, address, length;
  };

  std::atomic<uint32_t> filled, freed;  // futex words that count; setting `end` counts as filled
  std::atomic<uint32_t> end;            // set after the last block was filled
  Block block[kBlocks];

  char* bytes(uint32_t i) { return reinterpret_cast<char*>(this) + kHeaderBytes + i * kBlockBytes; }
  uint8_t* end_of(uint32_t i) { return reinterpret_cast<uint8_t*>(bytes(i)) + block[i].length; }
  // Takes a block in state `from` and marks it kBusy; kBlocks: there is none.
  uint32_t claim(State from) {
    for (uint32_t i = 0; i < kBlocks; ++i) {
      uint32_t expected = from;
      if (block[i].state.load(std::memory_order_relaxed) == from &&
          block[i].state.compare_exchange_strong(expected, kBusy))
        return i;
    }
    return kBlocks;
  }
};
static_assert(sizeof(DeviceRing) <= DeviceRing::kHeaderBytes);

}  // namespace gpuckpt::restore
