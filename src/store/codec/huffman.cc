#include "store/codec/huffman.h"

#include <cpuid.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gpuckpt::store {
namespace {

constexpr size_t kLengthsBytes = 128;  // two lengths a byte
constexpr size_t kStreams = 4;         // decoded in parallel: they do not depend on each other
constexpr size_t kHeadBytes = kLengthsBytes + 4 * (kStreams - 1);
constexpr uint32_t kCodes = 1u << kLongestCode;

// A pair of bytes: how many bits its code has, the code, and whether there is one.
constexpr uint32_t kLengthMask = 31, kCodeShift = 5, kNoCode = 1u << 31;

uint64_t load64(const uint8_t* from) {
  uint64_t value;
  memcpy(&value, from, sizeof(value));
  return value;
}

// Not by __builtin_cpu_supports: clang 14 does not know the feature's name.
bool counts_leading_zeros() {
  unsigned a, b, c = 0, d;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & bit_LZCNT);
}

// The part of `n` bytes that stream `s` holds.
size_t stream_begin(size_t n, size_t s) { return s * (n / kStreams); }
size_t stream_end(size_t n, size_t s) { return s + 1 == kStreams ? n : (s + 1) * (n / kStreams); }

uint32_t reversed(uint32_t code, unsigned length) {
  uint32_t out = 0;
  for (unsigned i = 0; i < length; ++i) out |= (code >> i & 1) << (length - 1 - i);
  return out;
}

// Assigns codes in the order of (length, value), first bit lowest, as DEFLATE does. False: the
// lengths do not make a complete code.
bool make_codes(const std::array<uint8_t, 256>& lengths, std::array<uint16_t, 256>* codes) {
  uint32_t count[kLongestCode + 1] = {}, next[kLongestCode + 2] = {}, sum = 0;
  for (uint8_t length : lengths) {
    if (length > kLongestCode) return false;
    if (length) sum += kCodes >> length;
    ++count[length];
  }
  if (sum != kCodes) return false;
  count[0] = 0;
  for (unsigned l = 1; l <= kLongestCode; ++l) next[l + 1] = (next[l] + count[l]) << 1;
  for (size_t v = 0; v < 256; ++v) {
    if (unsigned l = lengths[v]) (*codes)[v] = static_cast<uint16_t>(reversed(next[l]++, l));
  }
  return true;
}

// Lengths of a Huffman code for `counts` (at least two are not 0), none above kLongestCode.
std::array<uint8_t, 256> code_lengths(const std::array<uint32_t, 256>& counts) {
  struct Node {
    uint64_t weight;
    uint16_t parent;
  };
  std::vector<uint8_t> values;  // rarest first
  for (size_t v = 0; v < 256; ++v) {
    if (counts[v]) values.push_back(static_cast<uint8_t>(v));
  }
  std::stable_sort(values.begin(), values.end(),
                   [&](uint8_t a, uint8_t b) { return counts[a] < counts[b]; });
  // Leaves, then inner nodes: both queues are sorted, so the two lightest are at their heads.
  const size_t leaves = values.size();
  std::vector<Node> nodes(2 * leaves - 1);
  for (size_t i = 0; i < leaves; ++i) nodes[i].weight = counts[values[i]];
  size_t leaf = 0, inner = leaves;
  for (size_t made = leaves; made < nodes.size(); ++made) {
    nodes[made].weight = 0;
    for (int child = 0; child < 2; ++child) {
      bool take_leaf =
          leaf < leaves && (inner == made || nodes[leaf].weight <= nodes[inner].weight);
      Node& node = nodes[take_leaf ? leaf++ : inner++];
      node.parent = static_cast<uint16_t>(made);
      nodes[made].weight += node.weight;
    }
  }
  std::vector<uint32_t> depth(nodes.size(), 0);
  for (size_t i = nodes.size() - 1; i-- > 0;) depth[i] = depth[nodes[i].parent] + 1;

  // Codes above the limit are shortened, and others become longer instead, the rarest first.
  uint32_t sum = 0;
  for (size_t i = 0; i < leaves; ++i) {
    depth[i] = std::min(depth[i], uint32_t{kLongestCode});
    sum += kCodes >> depth[i];
  }
  while (sum > kCodes) {
    size_t i = 0;
    while (depth[i] == kLongestCode) ++i;
    sum -= kCodes >> ++depth[i];
  }
  for (size_t i = leaves; sum < kCodes && i-- > 0;) {
    while (depth[i] > 1 && sum + (kCodes >> depth[i]) <= kCodes) sum += kCodes >> depth[i]--;
  }
  std::array<uint8_t, 256> lengths{};
  for (size_t i = 0; i < leaves; ++i) lengths[values[i]] = static_cast<uint8_t>(depth[i]);
  return lengths;
}

// The bytes counted in a sample. Neighbours of these values get a count of one, because the plane
// mostly holds exponents and the rest of it may have them; they get long codes.
std::array<uint32_t, 256> sampled_counts(std::span<const uint8_t> in) {
  constexpr size_t kPieces = 8, kPiece = 1024;
  constexpr int kAround = 4;
  std::array<uint32_t, 256> seen{}, counts{};
  size_t step = (in.size() - kPiece) / (kPieces - 1);
  for (size_t p = 0; p < kPieces; ++p) {
    for (uint8_t byte : in.subspan(p * step, kPiece)) ++seen[byte];
  }
  for (int v = 0; v < 256; ++v) {
    if (!seen[v]) continue;
    counts[v] += 64 * seen[v];
    for (int near = std::max(0, v - kAround); near <= std::min(255, v + kAround); ++near)
      counts[near] += 1;
  }
  return counts;
}

std::array<uint32_t, 256> all_counts(std::span<const uint8_t> in) {
  // Four tables, so that equal neighbouring bytes do not wait for each other's increment.
  std::array<std::array<uint32_t, 256>, 4> parts{};
  size_t i = 0;
  for (; i + 4 <= in.size(); i += 4) {
    for (size_t k = 0; k < 4; ++k) ++parts[k][in[i + k]];
  }
  for (; i < in.size(); ++i) ++parts[0][in[i]];
  std::array<uint32_t, 256> counts;
  for (size_t v = 0; v < 256; ++v)
    counts[v] = parts[0][v] + parts[1][v] + parts[2][v] + parts[3][v];
  return counts;
}

// --- decoding

// What the next kLongestCode bits begin with: how many bits in the lowest byte, up to kMost bytes,
// and how many of them in the highest byte. The bits are lowest because a shift takes their number
// from there.
constexpr unsigned kMost = 6, kBytesShift = 8, kCountShift = 56;
struct Table {
  std::array<uint8_t, kLengthsBytes> of{};  // the lengths as stored
  bool made = false;
  std::array<uint64_t, kCodes> entries;
  std::array<uint16_t, kCodes> first;  // value, length << 8
};

bool make_table(const uint8_t* stored, Table* table) {
  table->made = false;
  std::array<uint8_t, 256> lengths;
  for (size_t v = 0; v < 256; ++v) lengths[v] = stored[v / 2] >> (v % 2 * 4) & 15;
  std::array<uint16_t, 256> codes;
  if (!make_codes(lengths, &codes)) return false;
  for (uint32_t v = 0; v < 256; ++v) {
    if (!lengths[v]) continue;
    uint16_t entry = static_cast<uint16_t>(v | uint32_t{lengths[v]} << 8);
    for (uint32_t i = codes[v]; i < kCodes; i += 1u << lengths[v]) table->first[i] = entry;
  }
  for (uint32_t i = 0; i < kCodes; ++i) {
    uint64_t bytes = 0;
    uint32_t count = 0, bits = 0;
    while (count < kMost) {
      uint16_t entry = table->first[i >> bits];  // valid only if enough bits are left
      if (bits + (entry >> 8) > kLongestCode) break;
      bytes |= uint64_t{entry & 255u} << (8 * count++);
      bits += entry >> 8;
    }
    table->entries[i] = bits | bytes << kBytesShift | uint64_t{count} << kCountShift;
  }
  memcpy(table->of.data(), stored, kLengthsBytes);
  return table->made = true;
}

// The tables that this thread used last. Each plane of a frame has a code of its own, and
// neighbouring frames repeat them; making a table takes as long as decoding 50 KiB.
const Table* table_for(const uint8_t* stored) {
  thread_local std::array<Table, 8> tables;
  thread_local size_t oldest = 0;
  for (const Table& t : tables)
    if (t.made && memcmp(stored, t.of.data(), kLengthsBytes) == 0) return &t;
  Table* table = &tables[oldest++ % tables.size()];
  return make_table(stored, table) ? table : nullptr;
}

struct Stream {
  const uint8_t *from, *end;
  uint8_t *to, *to_end;
  uint64_t bits = 0;  // not used yet, lowest first
  unsigned have = 0;  // how many of them are valid
};

// A stream far from its end. The highest bit that is set in `bits` is a mark and tells how many
// bits have been used since they were loaded from `from`, so that there is no counter: four streams
// fit into the registers.
struct Fast {
  const uint8_t* from;
  uint8_t* to;
  uint64_t bits;
};
constexpr uint64_t kMark = uint64_t{1} << 63;

// Reads 8 bytes, and writes 8 for each entry, so it is used while that much room is left. The bits
// of the byte before `from` and four lookups are 7 + 48, so `from` moves by at most kMoves bytes.
constexpr size_t kLookups = 4, kMoves = 6;
[[gnu::always_inline]] inline void decode_some(const uint64_t* entries, Fast* s) {
  const unsigned used = static_cast<unsigned>(__builtin_clzll(s->bits));
  s->from += used >> 3;
  s->bits = (load64(s->from) | kMark) >> (used & 7);
#pragma GCC unroll 4
  for (size_t i = 0; i < kLookups; ++i) {
    const uint64_t entry = entries[s->bits & (kCodes - 1)];
    const uint64_t bytes = entry >> kBytesShift;
    memcpy(s->to, &bytes, sizeof(bytes));
    s->to += entry >> kCountShift;
    s->bits >>= entry & 63;
  }
}
size_t steps_left(const uint8_t* from, const uint8_t* end, const uint8_t* to,
                  const uint8_t* to_end) {
  constexpr size_t kWritten = kLookups * kMost, kBehind = sizeof(uint64_t) - kMost;
  const size_t in = static_cast<size_t>(end - from), out = static_cast<size_t>(to_end - to);
  return std::min(in < 8 ? 0 : (in - 8) / kMoves, out < kBehind ? 0 : (out - kBehind) / kWritten);
}

// Decodes one stream until it is near its end.
[[gnu::always_inline]] inline void decode_alone(const uint64_t* entries, const Stream& s, Fast* f) {
  while (size_t steps = steps_left(f->from, s.end, f->to, s.to_end))
    for (; steps > 0; --steps) decode_some(entries, f);
}

// The last bytes of a stream hold dozens of values where codes are short. They are read from a copy
// that has bytes behind it. False: its codes go on behind the end.
[[gnu::always_inline]] inline bool decode_end(const uint64_t* entries, const Stream& s, Fast* f) {
  uint8_t padded[64] = {};
  const size_t left = static_cast<size_t>(s.end - f->from);
  if (left > sizeof(padded) / 2) return true;  // it ended because there is little to write
  memcpy(padded, f->from, left);
  const uint8_t* const from = f->from;
  f->from = padded;
  decode_alone(entries, {padded, padded + sizeof(padded), f->to, s.to_end}, f);
  const size_t used = static_cast<size_t>(f->from - padded);
  f->from = from + std::min(used, left);
  return used <= left;
}

// Decodes all streams in step, until one of them is near its end, and each as far as that. False:
// they are damaged.
[[gnu::always_inline]] inline bool decode_in_step(const Table& table, Stream (&streams)[kStreams]) {
  const uint64_t* const entries = table.entries.data();
  Fast fast[kStreams];
  for (size_t i = 0; i < kStreams; ++i) fast[i] = {streams[i].from, streams[i].to, kMark};
  for (;;) {
    size_t steps = ~size_t{0};
    for (size_t i = 0; i < kStreams; ++i)
      steps =
          std::min(steps, steps_left(fast[i].from, streams[i].end, fast[i].to, streams[i].to_end));
    if (steps == 0) break;
    Fast a = fast[0], b = fast[1], c = fast[2], d = fast[3];  // in registers
    for (; steps > 0; --steps) {
      asm volatile("" : "+m"(steps));  // in memory: the streams need the registers
      decode_some(entries, &a);
      decode_some(entries, &b);
      decode_some(entries, &c);
      decode_some(entries, &d);
    }
    fast[0] = a, fast[1] = b, fast[2] = c, fast[3] = d;
  }
  for (size_t i = 0; i < kStreams; ++i) {
    Stream& s = streams[i];
    decode_alone(entries, s, &fast[i]);
    if (!decode_end(entries, s, &fast[i])) return false;
    const unsigned used = static_cast<unsigned>(__builtin_clzll(fast[i].bits));
    s.from = fast[i].from + (used >> 3);
    s.to = fast[i].to;
    if (s.from > s.end || (used & 7 && s.from == s.end)) return false;
    if (used & 7) {
      s.bits = uint64_t{*s.from++} >> (used & 7);
      s.have = 8 - (used & 7);
    }
  }
  return true;
}
bool decode_most(const Table& table, Stream (&streams)[kStreams]) {
  return decode_in_step(table, streams);
}
// The same with BMI2, where a shift by a variable number of bits is one instruction instead of
// three.
[[gnu::target("bmi2,lzcnt")]] bool decode_most_by_bmi2(const Table& table,
                                                       Stream (&streams)[kStreams]) {
  return decode_in_step(table, streams);
}

bool decode_rest(const Table& table, Stream* s) {
  while (s->to < s->to_end) {
    while (s->have < kLongestCode && s->from < s->end) {
      s->bits = (s->bits & ((uint64_t{1} << s->have) - 1)) | uint64_t{*s->from++} << s->have;
      s->have += 8;
    }
    uint16_t entry = table.first[s->bits & (kCodes - 1)];
    unsigned length = entry >> 8;
    if (length > s->have) return false;
    *s->to++ = static_cast<uint8_t>(entry);
    s->bits >>= length;
    s->have -= length;
  }
  return s->have < 8 && s->from == s->end;
}

}  // namespace

void HuffmanEncoder::learn(const Counts& given) {
  Counts counts = given;
  for (uint8_t v : {0, 1}) counts[v] = std::max(counts[v], 1u);  // a code needs two values
  if (pairs_.empty()) pairs_.assign(65536, kNoCode);
  for (uint8_t a : values_) {
    for (uint8_t b : values_) pairs_[a | b << 8] = kNoCode;
  }
  lengths_ = code_lengths(counts);
  std::array<uint16_t, 256> codes;
  make_codes(lengths_, &codes);
  values_.clear();
  for (size_t v = 0; v < 256; ++v) {
    if (lengths_[v]) values_.push_back(static_cast<uint8_t>(v));
  }
  for (uint8_t b : values_) {
    for (uint8_t a : values_) {
      uint32_t code = codes[a] | uint32_t{codes[b]} << lengths_[a];
      pairs_[a | b << 8] = code << kCodeShift | (uint32_t{lengths_[a]} + lengths_[b]);
    }
  }
}

size_t HuffmanEncoder::encode_with(std::span<const uint8_t> in, uint8_t* out) const {
  uint8_t* to = out + kHeadBytes;
  const uint32_t* const pairs = pairs_.data();
  uint32_t missing = 0;
  for (size_t s = 0; s < kStreams; ++s) {
    const uint8_t* from = in.data() + stream_begin(in.size(), s);
    const uint8_t* const end = in.data() + stream_end(in.size(), s);
    uint8_t* const begin = to;
    uint64_t bits = 0;
    unsigned have = 0;
    auto flush = [&] {
      memcpy(to, &bits, sizeof(bits));
      to += have >> 3;
      bits >>= have & 56;
      have &= 7;
    };
    for (; end - from >= 4; from += 4) {
      uint32_t four;
      memcpy(&four, from, sizeof(four));
      uint32_t a = pairs[four & 0xffff], b = pairs[four >> 16];
      missing |= a | b;
      uint64_t code = a >> kCodeShift | uint64_t{b >> kCodeShift} << (a & kLengthMask);
      bits |= code << have;
      have += (a & kLengthMask) + (b & kLengthMask);
      flush();
    }
    for (; from < end; ++from) {
      // The first byte of a pair of equal bytes: its code is the low half of the entry.
      uint32_t entry = pairs[*from | *from << 8];
      missing |= entry;
      unsigned length = lengths_[*from];
      bits |= uint64_t{entry >> kCodeShift & ((1u << length) - 1)} << have;
      have += length;
      flush();
    }
    if (have) *to++ = static_cast<uint8_t>(bits);
    if (s + 1 < kStreams) {
      uint32_t length = static_cast<uint32_t>(to - begin);
      memcpy(out + kLengthsBytes + 4 * s, &length, sizeof(length));
    }
  }
  if (missing & kNoCode) return 0;
  for (size_t i = 0; i < kLengthsBytes; ++i)
    out[i] = static_cast<uint8_t>(lengths_[2 * i] | lengths_[2 * i + 1] << 4);
  return static_cast<size_t>(to - out);
}

size_t HuffmanEncoder::encode(std::span<const uint8_t> in, uint8_t* out) {
  constexpr size_t kSampledFrom = 16 * 1024;
  constexpr double kAsGood = 0.02;
  auto bits = [&](size_t n) { return static_cast<double>(8 * n) / static_cast<double>(in.size()); };
  size_t n = pairs_.empty() ? 0 : encode_with(in, out);
  if (n && std::abs(bits(n) / bits_ - 1) < kAsGood) return n;
  n = 0;
  if (in.size() >= kSampledFrom) {
    learn(sampled_counts(in));
    n = encode_with(in, out);
  }
  if (n == 0) {
    learn(all_counts(in));
    n = encode_with(in, out);
  }
  bits_ = bits(n);
  return n;
}

bool huffman_decode(std::span<const uint8_t> stored, std::span<uint8_t> out) {
  const Table* const table = stored.size() < kHeadBytes ? nullptr : table_for(stored.data());
  if (!table) return false;
  Stream streams[kStreams];
  size_t at = kHeadBytes;
  for (size_t s = 0; s < kStreams; ++s) {
    uint32_t length = static_cast<uint32_t>(stored.size() - at);
    if (s + 1 < kStreams) memcpy(&length, stored.data() + kLengthsBytes + 4 * s, sizeof(length));
    if (length > stored.size() - at) return false;
    streams[s].from = stored.data() + at;
    streams[s].end = streams[s].from + length;
    streams[s].to = out.data() + stream_begin(out.size(), s);
    streams[s].to_end = out.data() + stream_end(out.size(), s);
    at += length;
  }
  static const bool shifts = __builtin_cpu_supports("bmi2") && counts_leading_zeros();
  if (!(shifts ? decode_most_by_bmi2 : decode_most)(*table, streams)) return false;
  for (Stream& s : streams) {
    if (!decode_rest(*table, &s)) return false;
  }
  return true;
}

}  // namespace gpuckpt::store
