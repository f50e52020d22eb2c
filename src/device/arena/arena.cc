#include "device/arena/arena.h"

#include "intercept/spec/cuda_types.h"

namespace gpuckpt::device {
namespace {

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) & ~(to - 1); }

uint32_t log2_of(uint32_t value) { return 31 - static_cast<uint32_t>(__builtin_clz(value)); }

// First bit at or after `from` that is `set`, or kBlockUnits.
uint32_t find_bit(const uint64_t* bits, uint32_t from, bool set) {
  for (uint32_t word = from / 64; word < kBlockUnits / 64; ++word) {
    uint64_t value = set ? bits[word] : ~bits[word];
    if (word == from / 64) value &= ~uint64_t{0} << (from % 64);
    if (value) return word * 64 + static_cast<uint32_t>(__builtin_ctzll(value));
  }
  return kBlockUnits;
}

uint32_t longest_run(const Block& block) {
  uint32_t longest = 0;
  for (uint32_t at = find_bit(block.used, 0, false); at < kBlockUnits;) {
    uint32_t end = find_bit(block.used, at, true);
    if (end - at > longest) longest = end - at;
    at = end < kBlockUnits ? find_bit(block.used, end, false) : kBlockUnits;
  }
  return longest;
}

// First free run of `units` at a multiple of `align` units; kBlockUnits when there is none.
uint32_t find_run(const Block& block, uint32_t units, uint32_t align) {
  for (uint32_t at = find_bit(block.used, 0, false); at < kBlockUnits;) {
    uint32_t end = find_bit(block.used, at, true);
    uint32_t start = (at + align - 1) & ~(align - 1);
    if (start < end && end - start >= units) return start;
    at = end < kBlockUnits ? find_bit(block.used, end, false) : kBlockUnits;
  }
  return kBlockUnits;
}

}  // namespace

uint64_t next_buffer_id() {
  static uint64_t last;
  return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

int Arena::allocate(uint64_t bytes, uint64_t align, Allocation** out) {
  auto* allocation = make<Allocation>();
  if (!allocation) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = 0;
  int error = CUDA_ERROR_OUT_OF_MEMORY;
  for (int attempt = 0; attempt < 2; ++attempt) {
    error = bytes < kBlockBytes ? allocate_small(bytes, align, &address)
                                : allocate_large(bytes, &address);
    if (error != CUDA_ERROR_OUT_OF_MEMORY || !trim()) break;
  }
  if (error) {
    destroy(allocation);
    return error;
  }
  allocation->begin = address;
  allocation->size = bytes;
  allocation->id = next_buffer_id();
  allocations_.insert(allocation);
  allocated_ += bytes;
  ++count_;
  *out = allocation;
  return 0;
}

void Arena::free(Allocation* allocation) {
  uint64_t address = allocation->begin, bytes = allocation->size;
  allocations_.erase(allocation);
  destroy(allocation);
  __atomic_add_fetch(&ended_, 1, __ATOMIC_RELEASE);
  allocated_ -= bytes;
  --count_;
  free_range(address, bytes);
}

void Arena::reuse(Allocation* allocation, uint64_t bytes) {
  allocated_ += bytes - allocation->size;
  allocations_.resize(allocation, allocation->begin, bytes);
  allocation->id = next_buffer_id();
  allocation->sync_memops = false;
}

Allocation* Arena::starting(uint64_t address) const {
  auto* allocation = covering(address);
  return allocation && allocation->begin == address ? allocation : nullptr;
}

bool Arena::occupied(uint64_t address, uint64_t bytes) const {
  if (allocations_.covering(address)) return true;
  RangeNode* node = allocations_.ceiling(address);
  return node && node->begin < address + bytes;
}

bool Arena::trim() {
  if (!cached_) return false;
  Block* block = cached_;
  cached_ = nullptr;
  drop_block(block, false);
  return true;
}

int Arena::allocate_small(uint64_t bytes, uint64_t align, uint64_t* address) {
  auto units = static_cast<uint32_t>(round_up(bytes, kUnitBytes) / kUnitBytes);
  auto align_units = static_cast<uint32_t>(align > kUnitBytes ? align / kUnitBytes : 1);
  uint32_t unit = kBlockUnits;
  Block* block = nullptr;
  // Blocks of the request's own bin may or may not fit: look at a few. All higher bins fit (but for
  // alignment).
  for (uint32_t bin = log2_of(units); bin < kBins && !block; ++bin) {
    int looks = 16;
    for (Block* b = bins_[bin]; b && looks--; b = b->next) {
      if (b->largest < units) continue;
      unit = find_run(*b, units, align_units);
      if (unit == kBlockUnits) continue;
      block = b;
      break;
    }
  }
  if (!block) {
    uint64_t space;
    if (int error = take_space(kBlockBytes, &space)) return error;
    if (int error = make_block(space, &block)) {
      give_space(space, kBlockBytes);
      return error;
    }
    unit = 0;
  }
  mark(block, unit, units, true);
  *address = block->chunk->begin + unit * kUnitBytes;
  return 0;
}

int Arena::allocate_large(uint64_t bytes, uint64_t* address) {
  uint64_t rounded = round_up(bytes, kBlockBytes);
  if (rounded < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t tail = bytes & (kBlockBytes - 1);
  bool share_tail = tail && (rounded - bytes) > bytes / 128;
  uint64_t whole = share_tail ? rounded - kBlockBytes : rounded;

  uint64_t space;
  if (int error = take_space(rounded, &space)) return error;
  Chunk* chunk;
  if (int error = commit(space, whole, &chunk)) {
    give_space(space, rounded);
    return error;
  }
  if (share_tail) {
    Block* block;
    if (int error = make_block(space + whole, &block)) {
      decommit(chunk);
      give_space(space, rounded);
      return error;
    }
    mark(block, 0, static_cast<uint32_t>(round_up(tail, kUnitBytes) / kUnitBytes), true);
  }
  *address = space;
  return 0;
}

void Arena::free_range(uint64_t address, uint64_t bytes) {
  uint64_t end = address + round_up(bytes, kUnitBytes);
  while (address < end) {
    Chunk* chunk = chunk_at(address);
    uint64_t chunk_end = chunk->begin + chunk->size;
    if (Block* block = chunk->block) {
      uint64_t stop = end < chunk_end ? end : chunk_end;
      mark(block, static_cast<uint32_t>((address - chunk->begin) / kUnitBytes),
           static_cast<uint32_t>((stop - address) / kUnitBytes), false);
      if (block->free_units == kBlockUnits) drop_block(block, true);
    } else {
      uint64_t begin = chunk->begin, size = chunk->size;
      decommit(chunk);
      give_space(begin, size);
    }
    address = chunk_end;
  }
}

int Arena::take_space(uint64_t bytes, uint64_t* address) {
  RangeNode* node = space_.first_fit(bytes);
  if (!node) {
    uint64_t base, got;
    if (int error = backing_->reserve(bytes, &base, &got)) return error;
    give_space(base, got);
    node = space_.first_fit(bytes);
    if (!node) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = node->begin;
  space_.erase(node);
  if (node->size > bytes) {
    node->begin += bytes;
    node->size -= bytes;
    space_.insert(node);
  } else {
    destroy(node);
  }
  return 0;
}

void Arena::give_space(uint64_t address, uint64_t bytes) {
  RangeNode* before = space_.floor(address);
  RangeNode* after = space_.ceiling(address);
  bool joins_before = before && before->begin + before->size == address;
  bool joins_after = after && address + bytes == after->begin;
  if (joins_after) {
    bytes += after->size;
    space_.erase(after);
  }
  if (joins_before) {
    if (joins_after) destroy(after);
    space_.resize(before, before->begin, before->size + bytes);
    return;
  }
  RangeNode* node = joins_after ? after : make<RangeNode>();
  if (!node) return;  // the range is lost, nothing else
  node->begin = address;
  node->size = bytes;
  space_.insert(node);
}

int Arena::commit(uint64_t address, uint64_t bytes, Chunk** out) {
  auto* chunk = make<Chunk>();
  if (!chunk) return CUDA_ERROR_OUT_OF_MEMORY;
  if (int error = backing_->commit(address, bytes, &chunk->handle)) {
    destroy(chunk);
    return error;
  }
  chunk->begin = address;
  chunk->size = bytes;
  chunks_.insert(chunk);
  committed_ += bytes;
  *out = chunk;
  return 0;
}

void Arena::decommit(Chunk* chunk) {
  backing_->decommit(chunk->begin, chunk->size, chunk->handle);
  chunks_.erase(chunk);
  committed_ -= chunk->size;
  destroy(chunk);
}

int Arena::make_block(uint64_t address, Block** out) {
  auto* block = make<Block>();
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  if (int error = commit(address, kBlockBytes, &block->chunk)) {
    destroy(block);
    return error;
  }
  block->chunk->block = block;
  link(block);
  *out = block;
  return 0;
}

// An empty block: kept as the spare one, or given back.
void Arena::drop_block(Block* block, bool keep_one) {
  if (keep_one && !cached_) {
    cached_ = block;
    return;
  }
  if (cached_ == block) cached_ = nullptr;
  unlink(block);
  uint64_t address = block->chunk->begin;
  decommit(block->chunk);
  give_space(address, kBlockBytes);
  destroy(block);
}

void Arena::mark(Block* block, uint32_t unit, uint32_t units, bool used) {
  unlink(block);
  if (used && cached_ == block) cached_ = nullptr;
  for (uint32_t i = unit; i < unit + units;) {
    uint32_t bit = i % 64;
    uint32_t count = 64 - bit < unit + units - i ? 64 - bit : unit + units - i;
    uint64_t mask = (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << bit;
    if (used)
      block->used[i / 64] |= mask;
    else
      block->used[i / 64] &= ~mask;
    i += count;
  }
  block->free_units += used ? -units : units;
  block->largest = longest_run(*block);
  link(block);
}

void Arena::link(Block* block) {
  if (!block->largest) return;
  block->bin = log2_of(block->largest);
  block->previous = nullptr;
  block->next = bins_[block->bin];
  if (block->next) block->next->previous = block;
  bins_[block->bin] = block;
}

void Arena::unlink(Block* block) {
  if (!block->largest) return;
  if (block->previous)
    block->previous->next = block->next;
  else
    bins_[block->bin] = block->next;
  if (block->next) block->next->previous = block->previous;
  block->next = block->previous = nullptr;
}

}  // namespace gpuckpt::device
