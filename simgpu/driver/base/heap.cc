#include "driver/base/heap.h"

#include "driver/base/state.h"
#include "driver/context/device.h"

namespace simgpu {
namespace {
constexpr uint64_t kSmall = kMiB;
constexpr uint64_t kUnit = 512;
}  // namespace

CUresult DeviceHeap::new_block(uint64_t bytes, uint64_t* base) {
  Ref<Backing> backing = Backing::create(device_, bytes, false);
  if (!backing) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t at = state()->memory.reserve(bytes, kBigPage, 0);
  if (at == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Mapping m;
  m.begin = at;
  m.end = at + bytes;
  m.host = backing->host;
  m.backing = std::move(backing);
  m.device = device_->ordinal;
  m.readable = m.writable = 1u << device_->ordinal;
  m.peer = true;
  state()->memory.map(std::move(m));
  *base = at;
  return CUDA_SUCCESS;
}

void DeviceHeap::drop_block(uint64_t base, uint64_t bytes) {
  state()->memory.unmap(base, base + bytes);
  state()->memory.unreserve(base);
}

CUresult DeviceHeap::allocate(uint64_t size, Allocation* a) {
  Lock lock(mutex_);
  a->size = size;
  a->device = device_->ordinal;
  a->id = fresh_id();
  if (size > kSmall) {
    uint64_t bytes = round_up(size, kBigPage), base;
    CUresult r = new_block(bytes, &base);
    if (r != CUDA_SUCCESS) return r;
    large_[base] = bytes;
    a->base = a->block = base;
    a->block_bytes = bytes;
    state()->memory.add(*a);
    return CUDA_SUCCESS;
  }
  uint64_t bytes = round_up(size, kUnit);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (auto& [base, block] : small_) {
      for (auto it = block.holes.begin(); it != block.holes.end(); ++it) {
        if (it->second < bytes) continue;
        uint64_t offset = it->first, rest = it->second - bytes;
        block.holes.erase(it);
        if (rest != 0) block.holes[offset + bytes] = rest;
        block.used += bytes;
        a->base = base + offset;
        a->block = base;
        a->block_bytes = bytes;
        state()->memory.add(*a);
        return CUDA_SUCCESS;
      }
    }
    uint64_t base;
    CUresult r = new_block(kBigPage, &base);
    if (r != CUDA_SUCCESS) return r;
    small_[base].holes[0] = kBigPage;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void DeviceHeap::free(const Allocation& a) {
  Lock lock(mutex_);
  auto large = large_.find(a.block);
  if (large != large_.end()) {
    drop_block(large->first, large->second);
    large_.erase(large);
    return;
  }
  auto it = small_.find(a.block);
  if (it == small_.end()) return;
  Block& block = it->second;
  block.used -= a.block_bytes;
  if (block.used == 0) {
    drop_block(it->first, kBigPage);
    small_.erase(it);
    return;
  }
  uint64_t begin = a.base - a.block, length = a.block_bytes;
  auto next = block.holes.lower_bound(begin);
  if (next != block.holes.end() && next->first == begin + length) {
    length += next->second;
    next = block.holes.erase(next);
  }
  if (next != block.holes.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += length;
      return;
    }
  }
  block.holes[begin] = length;
}

void DeviceHeap::set_access(int device, bool on) {
  Lock lock(mutex_);
  for (auto& [base, block] : small_) state()->memory.grant(base, device, on);
  for (auto& [base, size] : large_) state()->memory.grant(base, device, on);
}

uint64_t DeviceHeap::reserved() {
  Lock lock(mutex_);
  uint64_t bytes = small_.size() * kBigPage;
  for (auto& [base, size] : large_) bytes += size;
  return bytes;
}

void DeviceHeap::clear() {
  Lock lock(mutex_);
  AddressSpace& space = state()->memory;
  auto forget = [&](uint64_t base, uint64_t bytes) {
    Allocation a;
    while (space.allocation_overlaps(base, base + bytes, &a)) space.remove(a.base, nullptr);
    drop_block(base, bytes);
  };
  for (auto& [base, block] : small_) forget(base, kBigPage);
  for (auto& [base, size] : large_) forget(base, size);
  small_.clear();
  large_.clear();
}

}  // namespace simgpu
