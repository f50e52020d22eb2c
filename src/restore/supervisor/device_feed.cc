#include "restore/supervisor/device_feed.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/syscall.h"
#include "gpuckpt/wire.h"

namespace gpuckpt::restore {

using store::Status;

DeviceFeed::DeviceFeed(const store::SnapshotReader& reader, const Memory& memory, unsigned threads)
    : reader_(reader), threads_(threads) {
  if (!memory.device) return;
  void* at =
      mmap(nullptr, DeviceRing::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.device.get(), 0);
  if (at == MAP_FAILED) return;
  memset(at, 0, DeviceRing::kHeaderBytes);
  ring_ = static_cast<DeviceRing*>(at);
}

DeviceFeed::~DeviceFeed() {
  (void)end();
  if (ring_) munmap(ring_, DeviceRing::kBytes);
}

void DeviceFeed::start() {
  if (ring_) thread_ = std::thread([this] { run(); });
}

Status DeviceFeed::end() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  return status_;
}

DeviceFeed::Open& DeviceFeed::mine() {
  std::lock_guard guard(open_mutex_);
  return open_[std::this_thread::get_id()];
}

// Waits for a free block. A thread that waits has committed its own, so one becomes free.
bool DeviceFeed::open_block(Open* open, uint64_t space, uint64_t address) {
  for (;;) {
    const uint32_t seen = ring_->freed.load();
    if (stop_) return false;
    open->block = ring_->claim(DeviceRing::kFree);
    if (open->block != DeviceRing::kBlocks) break;
    sys::futex_wait(&ring_->freed, seen, 50000, true);
  }
  DeviceRing::Block& block = ring_->block[open->block];
  block.space = space, block.address = address, block.length = 0;
  return true;
}

void DeviceFeed::commit(Open* open) {
  if (open->block == DeviceRing::kBlocks) return;
  ring_->block[open->block].state = DeviceRing::kFull;
  open->block = DeviceRing::kBlocks;
  ++ring_->filled;
  sys::futex_wake(&ring_->filled, 1, true);
}

// The bytes belong behind those of the open block; `least` of them must fit into it, or else
// another block is used. False: the feed has ended.
bool DeviceFeed::open_for(Open* open, uint64_t space, uint64_t address, size_t least) {
  if (open->block != DeviceRing::kBlocks) {
    const DeviceRing::Block& last = ring_->block[open->block];
    if (last.space == space && last.address + last.length == address &&
        DeviceRing::kBlockBytes - last.length >= least)
      return true;
    commit(open);
  }
  return open_block(open, space, address);
}

std::span<uint8_t> DeviceFeed::place(uint64_t space, uint64_t address, size_t length) {
  Open& open = mine();
  if (length > DeviceRing::kBlockBytes || !open_for(&open, space, address, length)) return {};
  return {ring_->end_of(open.block), length};
}

bool DeviceFeed::put(uint64_t space, uint64_t address, std::span<const uint8_t> bytes) {
  Open& open = mine();
  const bool placed =
      open.block != DeviceRing::kBlocks && bytes.data() == ring_->end_of(open.block);
  while (!bytes.empty()) {
    if (!placed && !open_for(&open, space, address, 1)) return false;
    DeviceRing::Block& block = ring_->block[open.block];
    const size_t n = std::min<size_t>(bytes.size(), DeviceRing::kBlockBytes - block.length);
    if (!placed) memcpy(ring_->end_of(open.block), bytes.data(), n);
    block.length += n;
    address += n;
    bytes = bytes.subspan(n);
  }
  return true;
}

void DeviceFeed::run() {
  for (uint64_t space : reader_.spaces()) {
    if (space < wire::kSpaceDeviceBase || !status_.ok() || stop_) continue;
    status_ = reader_.read_all(
        space, threads_,
        [&](uint64_t address, std::span<const uint8_t> bytes) {
          return put(space, address, bytes);
        },
        [&](uint64_t address, size_t length) { return place(space, address, length); });
    for (auto& [thread, open] : open_) commit(&open);
    open_.clear();
  }
  ring_->end = status_.ok() && !stop_ ? DeviceRing::kAll : DeviceRing::kFailed;
  ++ring_->filled;
  sys::futex_wake(&ring_->filled, 1, true);
}

}  // namespace gpuckpt::restore
