// The supervisor's side of a DeviceRing: reads the device memory of one process from the store
// into it. It lives as long as the program: a program that was in the middle of libc runs before
// its device memory is restored.
//
// Owner: the supervisor. Threads: one of its own, and those that read the store; start() and
// end() are the caller's. Errors: end()'s Status.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "restore/memory/memory_loader.h"
#include "restore/protocol/device_ring.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

class DeviceFeed {
 public:
  // Empties the ring of `memory` for another attempt. Starts no thread yet, because the caller
  // forks.
  DeviceFeed(const store::SnapshotReader&, const Memory& memory, unsigned threads);
  ~DeviceFeed();  // end()
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  void start();
  // Ends the feed; what was not taken is dropped. If it could not read something, the process has
  // failed because of that.
  store::Status end();

 private:
  // The block that one reading thread fills; kBlocks: none. Frames are smaller than blocks, and
  // each block costs the process a copy and several wake-ups.
  struct Open {
    uint32_t block = DeviceRing::kBlocks;
  };
  void run();
  Open& mine();
  std::span<uint8_t> place(uint64_t space, uint64_t address, size_t length);
  bool put(uint64_t space, uint64_t address, std::span<const uint8_t> bytes);
  bool open_for(Open*, uint64_t space, uint64_t address, size_t least);
  bool open_block(Open*, uint64_t space, uint64_t address);
  void commit(Open*);

  const store::SnapshotReader& reader_;
  const unsigned threads_;
  DeviceRing* ring_ = nullptr;
  std::atomic<bool> stop_{false};
  store::Status status_;
  std::mutex open_mutex_;
  std::map<std::thread::id, Open> open_;
  std::thread thread_;
};

}  // namespace gpuckpt::restore
