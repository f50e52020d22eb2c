#include "store/format/frame.h"

#include <xxh_x86dispatch.h>

#include <cstring>

#include "store/codec/frame_codec.h"
#include "store/io/memory.h"

namespace gpuckpt::store {
namespace {

struct HashContext {
  XXH3_state_t* state = with_memory(XXH3_createState());
  ~HashContext() { XXH3_freeState(state); }
};

// The data that encryption authenticates beside a frame's bytes: its header and the lengths of its
// chunks.
std::vector<uint8_t> frame_context(const FrameHeader& header, std::span<const uint8_t> lengths) {
  std::vector<uint8_t> out(sizeof(header));
  memcpy(out.data(), &header, sizeof(header));
  out.resize(offsetof(FrameHeader, checksum));
  out.insert(out.end(), lengths.begin(), lengths.end());
  return out;
}

}  // namespace

uint64_t hash64(std::initializer_list<std::span<const uint8_t>> parts, Parts more) {
  thread_local HashContext context;
  XXH3_64bits_reset(context.state);
  for (const Parts& all : {Parts(parts.begin(), parts.size()), more})
    for (const auto& part : all)
      if (!part.empty()) XXH3_64bits_update(context.state, part.data(), part.size());
  return XXH3_64bits_digest(context.state);
}

uint64_t frame_checksum(const FrameHeader& header, std::span<const uint8_t> lengths,
                        std::span<const uint8_t> stored, Parts more) {
  return hash64({bytes_of(header).first(offsetof(FrameHeader, checksum)), lengths, stored}, more);
}

const char* unseal(const FrameHeader& header, std::span<const uint8_t> lengths,
                   std::span<const uint8_t> stored, const Keys* keys, std::span<uint8_t> plain) {
  thread_local std::vector<uint8_t> opened;
  if (keys) {
    if (!keys->open(Keys::kFrames, frame_context(header, lengths), stored, &opened))
      return "it was not written with this store's key, or was changed since";
    stored = opened;
  }
  return decompress_frame(header.codec, stored, plain);
}

void FrameDraft::borrow(std::span<const uint8_t> more) {
  if (!borrowed.empty() && borrowed.back().data() + borrowed.back().size() == more.data())
    borrowed.back() = {borrowed.back().data(), borrowed.back().size() + more.size()};
  else
    borrowed.push_back(more);
  borrowed_bytes += more.size();
}

void FrameDraft::clear() {
  plain.clear();
  borrowed.clear();
  borrowed_bytes = 0;
  names.clear();
  lengths.clear();
}

void FrameDraft::keep_borrowed() {
  for (std::span<const uint8_t> part : borrowed) copy(part);
  borrowed.clear();
  borrowed_bytes = 0;
}

SealedFrame seal(FrameDraft&& draft, int level, const Keys* keys, Purpose purpose) {
  SealedFrame out;
  FrameHeader& header = out.header;
  header = {};
  header.magic = kFrameMagic;
  header.codec = kCodecPlain;
  header.plain_length = static_cast<uint32_t>(draft.bytes());
  header.chunks = static_cast<uint32_t>(draft.names.size());
  if (level != 0) header.codec = compress_frame(draft.plain, level, &out.stored, purpose);
  if (header.codec == kCodecPlain) out.stored = std::move(draft.plain);
  out.borrowed = std::move(draft.borrowed);
  out.lengths = std::move(draft.lengths);
  out.names = std::move(draft.names);
  header.stored_length = static_cast<uint32_t>(out.stored.size() + draft.borrowed_bytes +
                                               (keys ? Keys::kOverhead : 0));
  if (keys) {
    out.stored =
        keys->seal(Keys::kFrames, frame_context(header, bytes_of(out.lengths)), out.stored);
  }
  header.checksum = frame_checksum(header, bytes_of(out.lengths), out.stored, out.borrowed);
  return out;
}

}  // namespace gpuckpt::store
