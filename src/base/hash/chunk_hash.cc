#include "base/hash/chunk_hash.h"

namespace gpuckpt {
namespace {

__extension__ using Wide = unsigned __int128;

uint32_t rotate(uint32_t v, int n) { return v << n | v >> (32 - n); }

void quarter(uint32_t* s, int a, int b, int c, int d) {
  s[a] += s[b], s[d] = rotate(s[d] ^ s[a], 16);
  s[c] += s[d], s[b] = rotate(s[b] ^ s[c], 12);
  s[a] += s[b], s[d] = rotate(s[d] ^ s[a], 8);
  s[c] += s[d], s[b] = rotate(s[b] ^ s[c], 7);
}

// One block of ChaCha20 for a key of 16 bytes ("expand 16-byte k"), nonce 0.
void chacha(const uint32_t* key, uint32_t number, uint32_t* out) {
  const uint32_t start[16] = {0x61707865, 0x3120646e, 0x79622d36, 0x6b206574, key[0], key[1],
                              key[2],     key[3],     key[0],     key[1],     key[2], key[3],
                              number,     0,          0,          0};
  for (int i = 0; i < 16; ++i) out[i] = start[i];
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 4; ++i) quarter(out, i, 4 + i, 8 + i, 12 + i);
    for (int i = 0; i < 4; ++i) quarter(out, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
  }
  for (int i = 0; i < 16; ++i) out[i] += start[i];
}

constexpr size_t padded(size_t bytes) {
  return (bytes + kHashPadding - 1) / kHashPadding * kHashPadding;
}

struct Sums {
  Wide sum[kHashSums];
};

Wide term(const HashTable& table, size_t s, size_t i) {
  return Wide{table.term[s][i].high} << 64 | table.term[s][i].low;
}

Sums begin(const HashTable& table, size_t length) {
  Sums out;
  for (size_t s = 0; s < kHashSums; ++s)
    out.sum[s] = term(table, s, 0) + term(table, s, 1) * length;
  return out;
}

void add_block(const HashTable& table, size_t block, const uint64_t* lanes, Sums* out) {
  for (size_t s = 0; s < kHashSums; ++s)
    for (size_t j = 0; j < kHashLanes; ++j)
      out->sum[s] += term(table, s, 2 + kHashLanes * block + j) * lanes[j];
}

void finish(const Sums& sums, uint8_t* name) {
  for (size_t s = 0; s < kHashSums; ++s) {
    const uint64_t value = __builtin_bswap64(static_cast<uint64_t>(sums.sum[s] >> 64));
    __builtin_memcpy(name + 8 * s, &value, 8);
  }
}

}  // namespace

void expand_hash_key(const HashKey& key, HashTable* table) {
  uint32_t words[4];
  __builtin_memcpy(words, key.byte, sizeof(words));
  auto* out = reinterpret_cast<uint8_t*>(table);
  static_assert(sizeof(HashTable) % 64 == 0);
  for (uint32_t i = 0; i < sizeof(HashTable) / 64; ++i) {
    uint32_t block[16];
    chacha(words, i, block);
    __builtin_memcpy(out + 64 * i, block, 64);
  }
}

void hash_lanes(const uint8_t* block, size_t bytes, const uint32_t* nh, uint64_t* lanes) {
  for (size_t j = 0; j < kHashLanes; ++j) lanes[j] = 0;
  for (size_t at = 0; at < bytes; at += 8, nh += 2) {
    uint32_t low, high;
    __builtin_memcpy(&low, block + at, 4);
    __builtin_memcpy(&high, block + at + 4, 4);
    for (size_t j = 0; j < kHashLanes; ++j) {
      const uint32_t* key = nh + j * kLaneShift / 4;
      lanes[j] += uint64_t{low + key[0]} * (high + key[1]);
    }
  }
}

void hash_chunk(const HashTable& table, HashLanes lanes, const void* bytes, size_t length,
                uint8_t* name) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  Sums sums = begin(table, length);
  for (size_t block = 0; length; ++block) {
    const size_t now = length < kHashBlock ? length : kHashBlock;
    const size_t whole = now / kHashPadding * kHashPadding;
    uint64_t lane[kHashLanes];
    lanes(at, whole, table.nh, lane);
    if (now != whole) {
      uint8_t last[kHashPadding] = {};
      uint64_t more[kHashLanes];
      __builtin_memcpy(last, at + whole, now - whole);
      lanes(last, kHashPadding, table.nh + whole / 4, more);
      for (size_t j = 0; j < kHashLanes; ++j) lane[j] += more[j];
    }
    add_block(table, block, lane, &sums);
    at += now;
    length -= now;
  }
  finish(sums, name);
}

void hash_zeros(const HashTable& table, size_t length, uint8_t* name) {
  static const uint8_t zeros[kHashBlock] = {};
  Sums sums = begin(table, length);
  uint64_t lane[kHashLanes];
  for (size_t block = 0; length; ++block) {
    const size_t now = length < kHashBlock ? length : kHashBlock;
    if (!block || now < kHashBlock) hash_lanes(zeros, padded(now), table.nh, lane);
    add_block(table, block, lane, &sums);
    length -= now;
  }
  finish(sums, name);
}

}  // namespace gpuckpt
