// The function that names chunks (docs/FORMAT.md, "Names of chunks"). It is keyed, so that only a
// party that knows the key can make two contents with equal names. The store, the library and the
// device's kernel (src/device/kernels/hash.cu) compute the same function.
//
// A chunk is cut into blocks of 4 KiB. NH in four lanes takes 64 bits each of a block, with the
// same key for every block; two sums of products modulo 2^128 take the lanes of all blocks, and the
// chunk's length, to 2 x 64 bits.
//
// Owner: the caller's buffers. Threads: pure functions without allocation, libc or state, for any
// program. Errors: none; lengths out of bounds are the caller's mistake.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

inline constexpr size_t kHashedChunk = 64 << 10;  // the longest chunk
inline constexpr size_t kHashBlock = 4096;
inline constexpr size_t kHashPadding = 64;  // a block is padded with zeros to a multiple of this
inline constexpr size_t kHashLanes = 4;
inline constexpr size_t kLaneShift = 512;  // lane j's key begins j times this many bytes further on
inline constexpr size_t kHashSums = 2;
inline constexpr size_t kHashTerms = 2 + kHashLanes * kHashedChunk / kHashBlock;

// What a store keeps (or derives), and what travels.
struct HashKey {
  uint8_t byte[16];
  bool operator==(const HashKey&) const = default;
};

// What it is expanded to by ChaCha20: exactly these bytes, in this order, little endian.
struct HashTable {
  alignas(64) uint32_t nh[(kHashBlock + (kHashLanes - 1) * kLaneShift) / 4];
  struct {
    uint64_t low, high;
  } term[kHashSums][kHashTerms];  // constant, length, then lane j of block b: 2 + 4 b + j
};
static_assert(sizeof(HashTable) == 5632 + 2112);

void expand_hash_key(const HashKey& key, HashTable* table);

// The lanes of one block: `bytes` is a multiple of kHashPadding, at most kHashBlock.
using HashLanes = void (*)(const uint8_t* block, size_t bytes, const uint32_t* nh, uint64_t* lanes);
void hash_lanes(const uint8_t* block, size_t bytes, const uint32_t* nh, uint64_t* lanes);

// Most significant byte first, at most kHashedChunk bytes.
void hash_chunk(const HashTable& table, HashLanes lanes, const void* bytes, size_t length,
                uint8_t* name);
// The same of a chunk that is all zeros.
void hash_zeros(const HashTable& table, size_t length, uint8_t* name);

}  // namespace gpuckpt
