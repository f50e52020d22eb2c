// Which chunks the store has, and where: built from the tables of all packs when a writer begins.
//
// Owner: the SnapshotWriter. Threads: any; each shard has a lock. Errors: std::bad_alloc.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "store/format/format.h"

namespace gpuckpt::store {

// A chunk's place while packs are being written: frames get a number when they are begun, long
// before it is known which chunk numbers of which pack they will become.
struct ChunkPlace {
  uint32_t frame;
  uint32_t index;  // within the frame
  bool operator==(const ChunkPlace&) const = default;
};

class ChunkIndex {
 public:
  ChunkIndex();
  // Returns where `name` is already, else enters `mine` and returns it.
  ChunkPlace find_or_insert(const ChunkName& name, ChunkPlace mine);
  // Prefetches the entry of `name`, which is looked up soon.
  void expect(const ChunkName& name) const;
  // Returns false if the store does not have the chunk.
  bool find(const ChunkName& name, ChunkPlace* out) const;
  void reserve(uint64_t chunks);
  uint64_t size() const;

 private:
  struct Entry {
    ChunkName name;
    ChunkPlace place;
  };
  static constexpr uint32_t kEmpty = 0xffffffff;
  static constexpr unsigned kShards = 64;
  // Open addressing: names are uniformly distributed already.
  struct Shard {
    mutable std::mutex mutex;
    std::vector<Entry> slots;
    // Where `slots` begin, for expect(), which takes no lock and may read a value that is a moment
    // old.
    std::atomic<const Entry*> first = nullptr;
    std::atomic<uint64_t> mask = 0;
    uint64_t used = 0;
    void grow(uint64_t slots_wanted);
  };
  std::unique_ptr<Shard[]> shards_;
};

}  // namespace gpuckpt::store
