// Encryption at rest. One key file per store; everything else is derived from it. (docs/FORMAT.md,
// "Encryption")
//
// Frames, layers and manifests are sealed with XChaCha20-Poly1305 under a random nonce before they
// are written. Names of chunks become SipHash-2-4-128 of the plain name under a key of its own, so
// that they say nothing about the contents to readers without it, while equal chunks still share
// one name.
//
// Owner: shared by all that opened the store; the destructor wipes the keys. Threads: any, it is
// immutable. Errors: a Status, or false.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash/chunk_hash.h"
#include "store/format/format.h"
#include "store/status.h"

namespace gpuckpt::store {

class Keys {
 public:
  // What a ciphertext is for: each has a key of its own.
  enum Purpose { kFrames = 1, kLayers = 2, kManifests = 3 };
  static constexpr size_t kOverhead = 24 + 16;  // nonce before, tag after

  // Reads the key file (32 bytes or more of random data; refused when others may read it) and
  // derives the keys of the store that has this id.
  static Status load(const std::string& key_file, const std::string& store_id,
                     std::shared_ptr<const Keys>* out);
  ~Keys();

  // Tells a wrong key from a damaged store; written in the file "format".
  std::string check() const;
  ChunkName name(const ChunkName& plain) const;
  // The key under which plain names are computed.
  HashKey hash_key() const { return hash_key_; }
  // Encrypts. `context` is not stored, but open() must be given the same.
  std::vector<uint8_t> seal(Purpose purpose, std::span<const uint8_t> context,
                            std::span<const uint8_t> plain) const;
  // Decrypts. False: the text was not sealed with this key for this purpose and context, or was
  // changed since.
  bool open(Purpose purpose, std::span<const uint8_t> context, std::span<const uint8_t> sealed,
            std::vector<uint8_t>* plain) const;

 private:
  Keys() = default;
  uint8_t name_key_[16];
  uint8_t check_[16];
  HashKey hash_key_;
  uint8_t keys_[4][32];
};

}  // namespace gpuckpt::store
