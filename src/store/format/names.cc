#include "store/format/names.h"

#include "store/format/chunk_lanes.h"

namespace gpuckpt::store {

std::shared_ptr<const Names> Names::keyed(const HashKey& key, std::shared_ptr<const Keys> keys) {
  auto names = std::make_shared<Names>();
  names->key_ = key;
  names->keyed_ = true;
  expand_hash_key(key, &names->table_);
  names->lanes_ = widest_lanes();
  names->keys_ = std::move(keys);
  return names;
}

std::shared_ptr<const Names> Names::unkeyed(std::shared_ptr<const Keys> keys) {
  auto names = std::make_shared<Names>();
  names->keys_ = std::move(keys);
  return names;
}

ChunkName Names::plain(const void* bytes, size_t length) const {
  if (!keyed_) return sum128(bytes, length);
  ChunkName name;
  hash_chunk(table_, lanes_, bytes, length, name.data());
  return name;
}

bool Names::compare_with(const Names& other) const {
  const std::string ours = keys_ ? keys_->check() : "";
  return keyed_ == other.keyed_ && key_ == other.key_ &&
         ours == (other.keys_ ? other.keys_->check() : "");
}

}  // namespace gpuckpt::store
