// Names of chunks, computed on the device by kernels/hash.cu: the keyed function of
// base/hash/chunk_hash.h, as the store computes it.
//
// The kernels are a module of ours in the application's context. It stays loaded from its first use
// on and is recorded as the program's modules are, because where modules come to lie depends on all
// that were loaded before. What the application can ask (memory, modules, loading mode) never shows
// it.
//
// Threads: one at a time per context, gate closed. No locks.
// Owner: a Hasher is its caller's, the module is the context's. Errors: ready() is false, or false.
#pragma once

#include "base/hash/chunk_hash.h"
#include "base/heap.h"
#include "gpuckpt/wire.h"
#include "intercept/spec/cuda_types.h"

namespace gpuckpt::device {

inline constexpr uint64_t kChunkBytes = wire::kLargeChunk;
static_assert(kChunkBytes == kHashedChunk);
inline constexpr uint64_t kMinHashed = 241;  // shorter pieces are copied, not named

// Chunks that [address, address + size) touches; size > 0.
constexpr uint64_t chunks_in(uint64_t address, uint64_t size) {
  return (address + size - 1) / kChunkBytes - address / kChunkBytes + 1;
}

// Most significant byte first, as the store keeps it.
struct ChunkName {
  uint64_t word[2];
  bool operator==(const ChunkName& other) const {
    return word[0] == other.word[0] && word[1] == other.word[1];
  }
};
static_assert(sizeof(ChunkName) == 16);

// The host's own answers, for one key.
class HostNames {
 public:
  explicit HostNames(const HashKey& key);
  HostNames(const HostNames&) = delete;
  HostNames& operator=(const HostNames&) = delete;
  // Of a piece that is all zeros, at most kChunkBytes long.
  ChunkName of_zeros(uint64_t bytes) const;
  ChunkName of(const void* bytes, uint64_t length) const;

 private:
  HashTable table_;
  ChunkName whole_zero_;
};

// At most kSpanChunks whole chunks, the last may be shorter: names[first] onwards. As the kernel
// reads it.
struct HashSpan {
  uint64_t address;
  uint32_t bytes, first;
};
inline constexpr uint32_t kSpanChunks = 8;

class Hasher {
 public:
  // Loads the kernel where that was not done before: it stays, recorded as the program's modules
  // are, because what these place depends on all that was loaded before them.
  // `key`: null: it names nothing.
  Hasher(CUcontext context, const HashKey* key);
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  bool ready() const { return kernel_; }
  const HashKey& key() const { return key_; }
  // Unloads the kernel until the next snapshot, because the program needs its memory. Returns true
  // if memory was freed. The caller holds no lock.
  static bool unload();
  // Fills `names` for all spans (both in scratch memory of ours). The driver's error otherwise; a
  // sticky one is the application's context's own.
  CUresult hash(const Region& spans, uint32_t count, const Region& names);
  // Time the kernel ran, all calls together.
  uint64_t kernel_us() const { return kernel_us_; }

 private:
  CUcontext context_;
  HashKey key_{};
  CUfunction kernel_ = nullptr;
  uint64_t kernel_us_ = 0;
};

}  // namespace gpuckpt::device
