#include "store/format/index.h"

#include <bit>

namespace gpuckpt::store {
namespace {

uint64_t word(const ChunkName& name, size_t at) {
  uint64_t out;
  memcpy(&out, name.data() + at, sizeof(out));
  return out;
}

}  // namespace

ChunkIndex::ChunkIndex() : shards_(new Shard[kShards]) {}

void ChunkIndex::Shard::grow(uint64_t wanted) {
  std::vector<Entry> old = std::move(slots);
  slots.assign(std::bit_ceil(wanted), Entry{{}, {kEmpty, 0}});
  const uint64_t last = slots.size() - 1;
  for (const Entry& entry : old) {
    if (entry.place.frame == kEmpty) continue;
    uint64_t at = word(entry.name, 8) & last;
    while (slots[at].place.frame != kEmpty) at = (at + 1) & last;
    slots[at] = entry;
  }
  first = slots.data();
  mask = last;
}

void ChunkIndex::expect(const ChunkName& name) const {
  const Shard& shard = shards_[name[0] % kShards];
  const uint64_t at = word(name, 8) & shard.mask.load(std::memory_order_relaxed);
  const Entry* first = shard.first.load(std::memory_order_relaxed);
  __builtin_prefetch(reinterpret_cast<const char*>(first) + at * sizeof(Entry), 1);
}

ChunkPlace ChunkIndex::find_or_insert(const ChunkName& name, ChunkPlace mine) {
  Shard& shard = shards_[name[0] % kShards];
  std::lock_guard guard(shard.mutex);
  if (shard.used * 4 >= shard.slots.size() * 3)
    shard.grow(shard.slots.empty() ? 8 : shard.slots.size() * 2);
  uint64_t mask = shard.slots.size() - 1;
  for (uint64_t at = word(name, 8) & mask;; at = (at + 1) & mask) {
    Entry& entry = shard.slots[at];
    if (entry.place.frame == kEmpty) {
      entry = {name, mine};
      ++shard.used;
      return mine;
    }
    if (entry.name == name) return entry.place;
  }
}

bool ChunkIndex::find(const ChunkName& name, ChunkPlace* out) const {
  Shard& shard = shards_[name[0] % kShards];
  std::lock_guard guard(shard.mutex);
  if (shard.slots.empty()) return false;
  uint64_t mask = shard.slots.size() - 1;
  for (uint64_t at = word(name, 8) & mask;; at = (at + 1) & mask) {
    const Entry& entry = shard.slots[at];
    if (entry.place.frame == kEmpty) return false;
    if (entry.name != name) continue;
    *out = entry.place;
    return true;
  }
}

void ChunkIndex::reserve(uint64_t chunks) {
  for (unsigned i = 0; i < kShards; ++i) {
    std::lock_guard guard(shards_[i].mutex);
    uint64_t wanted = (shards_[i].used + chunks / kShards) * 3 / 2 + 8;
    if (wanted > shards_[i].slots.size()) shards_[i].grow(wanted);
  }
}

uint64_t ChunkIndex::size() const {
  uint64_t sum = 0;
  for (unsigned i = 0; i < kShards; ++i) {
    std::lock_guard guard(shards_[i].mutex);
    sum += shards_[i].used;
  }
  return sum;
}

}  // namespace gpuckpt::store
