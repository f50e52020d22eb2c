// Frames: a few chunks, compressed and encrypted together, with their lengths and a checksum.
//
// Owner: the caller. Threads: any; a draft one at a time. Errors: a reason in words.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "store/codec/crypt.h"
#include "store/format/format.h"

namespace gpuckpt::store {

// A frame under construction: chunks are added until kFrameBytes is reached.
struct FrameDraft {
  std::vector<uint8_t> plain;
  // Bytes that follow `plain`, referred to and not copied, for a frame that is stored uncompressed.
  // Their owner must keep them until the frame is written or keep_borrowed() is called.
  std::vector<std::span<const uint8_t>> borrowed;
  uint64_t borrowed_bytes = 0;
  std::vector<ChunkName> names;
  std::vector<uint32_t> lengths;
  uint64_t bytes() const { return plain.size() + borrowed_bytes; }
  bool full() const { return bytes() >= kFrameBytes || names.size() >= kMaxFrameChunks; }
  void copy(std::span<const uint8_t> more) { plain.insert(plain.end(), more.begin(), more.end()); }
  void borrow(std::span<const uint8_t> more);
  void clear();  // keeps the room of `plain`
  // Copies the borrowed bytes, so that their owner may release them.
  void keep_borrowed();
};

// A frame as it goes to disk. Sealing (compression) is the work that runs in parallel.
struct SealedFrame {
  FrameHeader header;
  std::vector<uint8_t> stored;
  std::vector<std::span<const uint8_t>> borrowed;  // follows `stored`
  std::vector<uint32_t> lengths;
  std::vector<ChunkName> names;
  uint64_t disk_bytes() const { return sizeof(header) + 4 * lengths.size() + header.stored_length; }
};

// Compresses a draft (frame_codec.h; `level` is zstd's, and 0 stores it plain), or stores it plain
// where compression does not pay, and encrypts it when there are keys. A draft with borrowed bytes
// is neither compressed nor encrypted.
SealedFrame seal(FrameDraft&& draft, int level, const Keys* keys,
                 Purpose purpose = Purpose::kBalanced);

// Decrypts and decompresses. Returns null, or the reason why it cannot (decompress_frame).
const char* unseal(const FrameHeader& header, std::span<const uint8_t> lengths,
                   std::span<const uint8_t> stored, const Keys* keys, std::span<uint8_t> plain);

// The checksums of packs: XXH3-64 of all parts, one after the other.
using Parts = std::span<const std::span<const uint8_t>>;
uint64_t hash64(std::initializer_list<std::span<const uint8_t>> parts, Parts more = {});
uint64_t frame_checksum(const FrameHeader& header, std::span<const uint8_t> lengths,
                        std::span<const uint8_t> stored, Parts more = {});

// Of what lies on disk as it does in memory.
template <typename T>
std::span<const uint8_t> bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof(value)};
}
template <typename T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace gpuckpt::store
