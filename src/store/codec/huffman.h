// A canonical Huffman code for planes of few values (planes.h). It shortens bytes in which there
// are no repetitions to find, and decodes several times as fast as a general compressor. Layout in
// docs/FORMAT.md, "Codecs 2 and 3".
//
// Owner: the caller has the encoder. Threads: an encoder for each thread; decoding is a pure
// function. Errors: false.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace gpuckpt::store {

inline constexpr unsigned kLongestCode = 12;  // bits; do not change: FORMAT.md

// Encodes bytes, and reuses the code of the last call as long as it suits the data: making a code
// costs as much as using it for a few thousand bytes. Not thread safe.
class HuffmanEncoder {
 public:
  // An upper bound of what encode() writes for `n` bytes.
  static size_t room(size_t n) { return 256 + n + n / 2; }
  // Returns the number of bytes written to `out`. The result may be longer than the input: compare
  // it with in.size().
  size_t encode(std::span<const uint8_t> in, uint8_t* out);

 private:
  using Counts = std::array<uint32_t, 256>;
  void learn(const Counts& counts);
  // The same with the code of the last call. 0: it has no code for one of the bytes.
  size_t encode_with(std::span<const uint8_t> in, uint8_t* out) const;

  std::array<uint8_t, 256> lengths_{};
  std::vector<uint8_t> values_;  // those that have a code
  std::vector<uint32_t> pairs_;  // 65536, by two bytes as they lie in memory; empty: knows no code
  double bits_ = 0;              // per byte, when the code was made
};

// Returns false if `stored` is not such a code of out.size() bytes.
bool huffman_decode(std::span<const uint8_t> stored, std::span<uint8_t> out);

}  // namespace gpuckpt::store
