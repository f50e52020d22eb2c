// How a store names its chunks (docs/FORMAT.md, "Names of chunks").
//
// Owner: shared by all that opened the store. Threads: any, it is immutable. Errors: none.
#pragma once

#include <memory>

#include "base/hash/chunk_hash.h"
#include "store/codec/crypt.h"
#include "store/format/format.h"

namespace gpuckpt::store {

class Names {
 public:
  // By the keyed function. `keys`: of an encrypted store, or null.
  static std::shared_ptr<const Names> keyed(const HashKey& key, std::shared_ptr<const Keys> keys);
  // By XXH3-128, as stores of format version 2 do. It is not collision resistant: any user can make
  // two contents with one name.
  static std::shared_ptr<const Names> unkeyed(std::shared_ptr<const Keys> keys);

  // The name of at most kLargeChunk bytes, as it is computed where the bytes are and sent to the
  // writer.
  ChunkName plain(const void* bytes, size_t length) const;
  // What the store writes for a plain name: the same, or a keyed function of it when encrypted.
  ChunkName stored(const ChunkName& plain) const { return keys_ ? keys_->name(plain) : plain; }
  ChunkName of(const void* bytes, size_t length) const { return stored(plain(bytes, length)); }

  const HashKey* key() const { return keyed_ ? &key_ : nullptr; }  // null: unkeyed
  bool encrypted() const { return keys_ != nullptr; }
  // Whether equal names of the two mean equal bytes.
  bool compare_with(const Names& other) const;

 private:
  HashKey key_{};
  bool keyed_ = false;
  HashTable table_;
  HashLanes lanes_ = nullptr;
  std::shared_ptr<const Keys> keys_;
};

}  // namespace gpuckpt::store
