// Which codec a frame is compressed with, and which function decodes it. The other files of this
// folder are the codecs' own.
//
// Owner: the caller's buffers. Threads: any; what a thread learns of one frame serves its next
// ones. Errors: a reason in words.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/format/format.h"

namespace gpuckpt::store {

// Compresses `plain` with the codec that makes it shortest for its cost: byte planes (planes.h)
// where a sample shows elements with a structure, zstd where bytes repeat. For kRestore the cost is
// the time to read and decode, and LZ4 takes zstd's place; for kSize there is none. Returns the
// codec; `out` is undefined for kCodecPlain.
uint32_t compress_frame(std::span<const uint8_t> plain, int level, std::vector<uint8_t>* out,
                        Purpose purpose = Purpose::kBalanced);
// Returns null, or the reason why it cannot: kUnknownCodec (compare the pointer) or a damage.
const char* decompress_frame(uint32_t codec, std::span<const uint8_t> stored,
                             std::span<uint8_t> plain);
extern const char* const kUnknownCodec;

}  // namespace gpuckpt::store
