#include "restore/device_feed.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "common/syscall.h"
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

bool DeviceFeed::put(uint64_t space, uint64_t address, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const uint32_t seen = ring_->freed.load();
    const uint32_t i = ring_->claim(DeviceRing::kFree);
    if (stop_) return false;
    if (i == DeviceRing::kBlocks) {
      sys::futex_wait(&ring_->freed, seen, 50000, true);
      continue;
    }
    const size_t n = std::min<size_t>(bytes.size(), DeviceRing::kBlockBytes);
    DeviceRing::Block& block = ring_->block[i];
    memcpy(ring_->bytes(i), bytes.data(), n);
    block.space = space, block.address = address, block.length = n;
    block.state = DeviceRing::kFull;
    ++ring_->filled;
    sys::futex_wake(&ring_->filled, 1, true);
    address += n;
    bytes = bytes.subspan(n);
  }
  return true;
}

void DeviceFeed::run() {
  for (uint64_t space : reader_.spaces()) {
    if (space < wire::kSpaceDeviceBase || !status_.ok() || stop_) continue;
    status_ =
        reader_.read_all(space, threads_, [&](uint64_t address, std::span<const uint8_t> bytes) {
          return put(space, address, bytes);
        });
  }
  ring_->end = status_.ok() && !stop_ ? DeviceRing::kAll : DeviceRing::kFailed;
  ++ring_->filled;
  sys::futex_wake(&ring_->filled, 1, true);
}

}  // namespace gpuckpt::restore
