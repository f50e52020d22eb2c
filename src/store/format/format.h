// What the files of a store look like, byte for byte. docs/FORMAT.md explains them.
//
// All numbers are little endian. Structs below are exactly the bytes on disk: do not change one, do
// not renumber. A change of meaning is a new version; a reader refuses versions it does not know.
//
// Owner: none, they are values. Threads: pure functions. Errors: false for text that is no
// hexadecimal number.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <string>

#include "gpuckpt/wire.h"

namespace gpuckpt::store {

inline constexpr uint32_t kStoreVersion = 3;     // do not change; FORMAT.md, "Versions"
inline constexpr uint32_t kPackVersion = 3;      // "
inline constexpr uint32_t kManifestVersion = 2;  // "
inline constexpr uint32_t kLayerVersion = 1;     // "

inline constexpr char kPackMagic[8] = {'G', 'P', 'C', 'K', 'P', 'A', 'C', 'K'};
inline constexpr char kPackEndMagic[8] = {'G', 'P', 'C', 'K', 'P', 'E', 'N', 'D'};
inline constexpr char kManifestMagic[8] = {'G', 'P', 'C', 'K', 'S', 'N', 'A', 'P'};
inline constexpr char kManifestEndMagic[8] = {'G', 'P', 'C', 'K', 'S', 'E', 'N', 'D'};
inline constexpr char kLayerMagic[8] = {'G', 'P', 'C', 'K', 'L', 'A', 'Y', 'R'};
inline constexpr uint32_t kFrameMagic = 0x6d617246;  // "Fram"

// Stores and packs of this version name chunks by XXH3-128; everything else is as in later ones.
inline constexpr uint32_t kUnkeyedVersion = 2;

// Identifies a chunk's plain bytes (names.h), or is a 128-bit checksum.
using ChunkName = std::array<uint8_t, wire::kChunkNameBytes>;
using PackId = std::array<uint8_t, 16>;  // random

using wire::kLargeChunk;
using wire::kSmallChunk;
inline constexpr uint64_t kFrameBytes = 256 * 1024;  // plain bytes after which a frame is closed
inline constexpr uint64_t kMaxFrameBytes = 1024 * 1024;  // a reader refuses more
inline constexpr uint32_t kMaxFrameChunks = 4096;
inline constexpr uint64_t kPackBytes =
    512ull * 1024 * 1024;  // after which a writer begins another pack

enum Codec : uint32_t {
  kCodecPlain = 0,
  kCodecZstd = 1,
  kCodecPlanes = 2,
  kCodecCodedPlanes = 3,  // byte planes, some with a Huffman code of our own
  kCodecLz4 = 4,
};

// What the codec of a frame is optimised for.
enum class Purpose : uint8_t { kBalanced, kRestore, kSize };

// Of packs, layers and manifests: what is stored of their contents is nonce, ciphertext and tag.
enum Flags : uint32_t { kFlagEncrypted = 1 };

// --- pack: PackHeader, frames, FrameEntry[frames], ChunkEntry[chunks], PackTrailer
// -------------------------
struct PackHeader {
  char magic[8];
  uint32_t version;
  uint32_t flags;  // Flags
  PackId id;
  uint8_t name_key[16];  // as in the file "format", which can be made again from it; 0 where
                         // encrypted, and in version 2
  uint8_t zeros[8];
  uint64_t checksum;  // XXH3-64 of the 56 bytes before
};
static_assert(sizeof(PackHeader) == 64);

// A frame on disk: FrameHeader, uint32_t chunk_length[chunks], stored bytes.
struct FrameHeader {
  uint32_t magic;
  uint32_t codec;
  uint32_t plain_length;
  uint32_t stored_length;  // of the stored bytes alone
  uint32_t chunks;
  uint32_t reserved;  // 0
  uint64_t checksum;  // XXH3-64 of the 24 bytes before, the chunk lengths and the stored bytes
};
static_assert(sizeof(FrameHeader) == 32);

struct FrameEntry {
  uint64_t offset;  // of the FrameHeader in the file
  uint32_t codec;
  uint32_t plain_length;
  uint32_t stored_length;
  uint32_t chunks;
  uint32_t first_chunk;  // chunks are numbered through the pack
  uint32_t reserved;     // 0
  uint64_t checksum;     // the same as in the FrameHeader
};
static_assert(sizeof(FrameEntry) == 40);

struct ChunkEntry {
  ChunkName name;
  uint32_t length;
};
static_assert(sizeof(ChunkEntry) == 20);

struct PackTrailer {
  uint64_t table_offset;  // where FrameEntry[] begins
  uint32_t frames;
  uint32_t chunks;
  uint64_t plain_bytes;
  PackId id;
  uint64_t table_checksum;  // XXH3-64 of FrameEntry[] and ChunkEntry[]
  uint32_t version;
  uint32_t reserved;  // 0
  uint64_t checksum;  // XXH3-64 of the 56 bytes before
  char magic[8];
};
static_assert(sizeof(PackTrailer) == 72);

// --- manifest: ManifestHeader, meta (JSON), body (zstd), ManifestTrailer
// -------------------------------------
struct ManifestHeader {
  char magic[8];
  uint32_t version;
  uint32_t flags;              // Flags
  uint64_t meta_length;        // as stored
  uint64_t body_length;        // as stored
  uint64_t body_plain_length;  // after decompression
  uint64_t meta_checksum;      // XXH3-64 of the meta bytes as stored
  uint64_t zeros;
  uint64_t checksum;  // XXH3-64 of the 56 bytes before
};
static_assert(sizeof(ManifestHeader) == 64);

struct ManifestTrailer {
  uint8_t checksum[16];  // XXH3-128 (canonical) of everything before
  char magic[8];
};
static_assert(sizeof(ManifestTrailer) == 24);

// The body, decompressed: BodyHeader, LayerRef[layers], the top layer, SpaceSum[spaces], then per
// blob BlobHeader and its name.
struct BodyHeader {
  uint32_t layers;
  uint32_t spaces;
  uint32_t blobs;
  uint32_t reserved;    // 0
  uint64_t top_length;  // bytes of the top layer
};
static_assert(sizeof(BodyHeader) == 24);

struct LayerRef {
  ChunkName name;  // XXH3-128 of the file, which bears it
  uint64_t file_length;
  uint64_t entries;  // its runs
};
static_assert(sizeof(LayerRef) == 32);

struct SpaceSum {
  uint64_t space;
  uint64_t bytes;      // captured
  uint8_t digest[16];  // XXH3-128 (canonical) over its chunks, see FORMAT.md "Digest"
};
static_assert(sizeof(SpaceSum) == 32);

// A blob is a space of its own: kBlobSpace | index.
inline constexpr uint64_t kBlobSpace = 1ull << 63;
struct BlobHeader {
  uint64_t length;
  uint32_t name_length;
  uint32_t reserved;  // 0
};
static_assert(sizeof(BlobHeader) == 16);

// --- layer file: LayerFileHeader, body (zstd). A layer, decompressed, and the top layer in a
// manifest: space_map.cc and FORMAT.md.
struct LayerFileHeader {
  char magic[8];
  uint32_t version;
  uint32_t flags;              // Flags
  uint64_t body_length;        // as stored
  uint64_t body_plain_length;  // after decompression
  uint8_t zeros[24];
  uint64_t checksum;  // XXH3-64 of the 56 bytes before
};
static_assert(sizeof(LayerFileHeader) == 64);

// Named in layers.
struct PackRef {
  PackId id;
  uint64_t file_length;
  uint64_t table_checksum;
};
static_assert(sizeof(PackRef) == 32);

// Limits a reader holds files to before it allocates for them.
inline constexpr uint64_t kMaxManifestBytes = 1ull << 32;
inline constexpr uint64_t kMaxMetaBytes = 64ull * 1024 * 1024;

// XXH3-128 in XXH128_canonicalFromHash order (big endian, as xxhsum -H2 prints it): for sums, which
// find damage. Chunks are named by names.h.
ChunkName sum128(const void* bytes, size_t length);
// The name that users see: "plain", "zstd", "planes", "lz4".
std::string codec_name(uint32_t codec);  // what people read: "plain", "zstd", "planes"
std::string hex(const uint8_t* bytes, size_t length);
inline std::string hex(const ChunkName& name) { return hex(name.data(), name.size()); }
bool unhex(const std::string& text, uint8_t* out, size_t length);
bool all_zero(const void* bytes, size_t length);

// The unit in which a space is cut into chunks.
uint64_t chunk_unit(uint64_t space);

}  // namespace gpuckpt::store
