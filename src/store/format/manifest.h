// A manifest: what one snapshot consists of. In memory its map is whole; on disk it is a stack of
// layers (space_map.h), the newest of them in the manifest itself while it is small.
//
// Owner: the caller; layers are shared and immutable. Threads: one for each object. Errors: a
// Status that names the file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/codec/crypt.h"
#include "store/format/format.h"
#include "store/format/space_map.h"
#include "store/io/env.h"

namespace gpuckpt::store {

struct BlobRef {
  std::string name;
  uint64_t length = 0;
};

// A layer in a file of its own.
struct SharedLayer {
  LayerRef ref;
  std::shared_ptr<const Layer> layer;
};

struct Manifest : PageMap {
  std::string meta;            // JSON
  std::vector<BlobRef> blobs;  // blob i is in space kBlobSpace | i
  std::vector<SharedLayer> layers;
};

// An encoded manifest, and the layer file that must be durable before it, if there is a new one.
struct EncodedManifest {
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> layer_bytes;  // empty: none
  ChunkName layer_name{};
  uint64_t disk_bytes() const { return bytes.size() + layer_bytes.size(); }
};
// Encodes a manifest. `parent` (may be null) is any snapshot of the same store: layers that serve
// both are shared.
EncodedManifest encode_manifest(const Manifest& manifest, const Manifest* parent, const Keys* keys);

// What a manifest file says itself. Sums and bounds were checked: it is safe to use. `path` is for
// messages.
struct DecodedManifest {
  std::string meta;
  std::vector<LayerRef> layers;
  Layer top;
  std::vector<SpaceSum> sums;
  std::vector<BlobRef> blobs;
};
Status decode_manifest(const std::string& path, std::span<const uint8_t> bytes, const Keys* keys,
                       DecodedManifest* out);
Status decode_layer_file(const std::string& path, std::span<const uint8_t> bytes, const Keys* keys,
                         const LayerRef& ref, Layer* out);
// Applies the layers to each other. `shared` are those that `decoded.layers` names.
Status assemble(const std::string& path, DecodedManifest&& decoded,
                std::vector<SharedLayer>&& shared, PageMap&& below, Manifest* out);
// The map that `shared` make up, each above the one before: assemble's `below`.
Status stack(const std::string& path, const std::vector<SharedLayer>& shared, PageMap* out);

// Reads only the meta text, which has its own checksum: `list` needs no more of a thousand
// snapshots.
Status read_manifest_meta(Env* env, const std::string& path, const Keys* keys, std::string* meta,
                          uint64_t* file_length);

}  // namespace gpuckpt::store
