// A manifest: what one snapshot is. Encoded and decoded as a whole.
#pragma once

#include <string>
#include <vector>

#include "store/env.h"
#include "store/format.h"

namespace gpuckpt::store {

struct SpaceMap {
  uint64_t space = 0;
  ChunkName digest{};
  std::vector<RunRef> runs;  // sorted by address, disjoint
};

struct BlobRef {
  std::string name;
  uint64_t length = 0;
};

struct Manifest {
  std::string meta;  // JSON
  std::vector<PackRef> packs;
  std::vector<SpaceMap> spaces;  // sorted by space; blob i is in space kBlobSpace | i
  std::vector<BlobRef> blobs;
};

std::vector<uint8_t> encode_manifest(const Manifest& manifest);

// Checks the checksum, versions, bounds and order: whatever comes out is safe to use. `path` is for
// messages.
Status decode_manifest(const std::string& path, std::span<const uint8_t> bytes, Manifest* out);

// Only the meta text, with its own checksum: what `list` needs of a thousand snapshots.
Status read_manifest_meta(Env* env, const std::string& path, std::string* meta,
                          uint64_t* file_length);

// The digest of a space: XXH3-128 over, for each run, its address and length and the names of its
// chunks.
class SpaceDigest {
 public:
  SpaceDigest();
  ~SpaceDigest();
  void run(const RunRef& run);
  void name(const ChunkName& name);
  ChunkName finish();

 private:
  void* state_;
};

}  // namespace gpuckpt::store
