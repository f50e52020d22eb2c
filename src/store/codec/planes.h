// A codec for tensors. Numbers of one width are split into planes of bytes (all lowest bytes, ...,
// all highest), and each plane is stored in the way that suits it. Weights and moments have planes
// of noise (mantissas), which no compressor shortens, and planes of few values (exponents), which a
// Huffman code shortens quickly; a search for matches finds nothing in either.
//
// Layout in docs/FORMAT.md, "Codecs 2 and 3".
//
// Owner: the caller's buffers. Threads: pure functions, but for an encoder that each thread keeps.
// Errors: false for bytes that are not such planes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpuckpt::store {

// What a sample of the bytes shows.
struct PlanePlan {
  uint32_t width = 0;        // of the elements: 2, 4 or 8; 0: splitting them saves nothing
  uint32_t raw_planes = 0;   // bit p: plane p is noise
  uint32_t flat_planes = 0;  // bit p: plane p has few values, so that matches may be found in it
  double bits_per_byte = 8;  // expected of the result
};
PlanePlan plan_planes(std::span<const uint8_t> bytes);

// Appends to `out` and returns the codec; kCodecPlain: the result would not be shorter than `limit`
// bytes.
uint32_t compress_planes(std::span<const uint8_t> bytes, const PlanePlan& plan, size_t limit,
                         std::vector<uint8_t>* out);
// Returns false if `stored` does not hold the planes of plain.size() bytes.
bool decompress_planes(uint32_t codec, std::span<const uint8_t> stored, std::span<uint8_t> plain);

}  // namespace gpuckpt::store
