// Names of chunks, computed where the chunks are: the keyed function of base/hash/chunk_hash.h
// (docs/FORMAT.md, "Names of chunks"), bit for bit, so that the name of a chunk is good from device
// memory to disk and back.
//
// One warp takes one piece of 64 KiB, in two rounds of 8 blocks of 4 KiB: four threads take one
// block each with loads of 16 bytes (four neighbours read 64 consecutive bytes). A lane's key is
// that of the lane before it, 512 bytes further on: so the threads go down the columns of a block's
// rows of 512 bytes, and what is key of one row and lane is that of the next row and the lane
// before. Memory is read once; arithmetic hides behind it.
//
// The key comes with the launch. Each block of threads expands it in shared memory, and takes many
// spans: it lies nowhere in the device's memory.
//
// build.py makes kernels.fatbin from this file; a test compiles it again and compares.

using u64 = unsigned long long;
using u32 = unsigned int;

// Up to 8 consecutive pieces of kPiece bytes, the last may be shorter. Names go to names[first +
// i].
struct Span {
  u64 address;
  u32 bytes;
  u32 first;
};
struct Key {
  u32 word[4];
};

constexpr u32 kPiece = 65536, kWarps = 8, kBlock = 4096, kLanes = 4, kSums = 2;
constexpr u32 kRow = 512, kRows = kBlock / kRow, kColumns = kRow / 64;
constexpr u32 kTerms = 2 + kLanes * kPiece / kBlock;
constexpr u32 kNhWords = (kBlock + (kLanes - 1) * kRow) / 4;
constexpr u32 kTableWords = kNhWords + kSums * kTerms * 4;

struct Term {
  u64 low, high;
};
struct __align__(16) Table {
  u32 nh[kNhWords];
  Term term[kSums][kTerms];
};
static_assert(sizeof(Table) == kTableWords * 4 && kTableWords % 16 == 0);

__device__ u32 rotated(u32 v, u32 n) { return v << n | v >> (32 - n); }

__device__ void quarter(u32& a, u32& b, u32& c, u32& d) {
  a += b, d = rotated(d ^ a, 16);
  c += d, b = rotated(b ^ c, 12);
  a += b, d = rotated(d ^ a, 8);
  c += d, b = rotated(b ^ c, 7);
}

// Block `number` of ChaCha20 for a key of 16 bytes, nonce 0.
__device__ void chacha(const Key& key, u32 number, u32* out) {
  const u32 k0 = key.word[0], k1 = key.word[1], k2 = key.word[2], k3 = key.word[3];
  u32 s[16] = {0x61707865, 0x3120646e, 0x79622d36, 0x6b206574, k0,     k1, k2, k3,
               k0,         k1,         k2,         k3,         number, 0,  0,  0};
#pragma unroll 1
  for (u32 round = 0; round < 10; ++round) {
    quarter(s[0], s[4], s[8], s[12]), quarter(s[1], s[5], s[9], s[13]);
    quarter(s[2], s[6], s[10], s[14]), quarter(s[3], s[7], s[11], s[15]);
    quarter(s[0], s[5], s[10], s[15]), quarter(s[1], s[6], s[11], s[12]);
    quarter(s[2], s[7], s[8], s[13]), quarter(s[3], s[4], s[9], s[14]);
  }
  const u32 start[16] = {0x61707865, 0x3120646e, 0x79622d36, 0x6b206574, k0,     k1, k2, k3,
                         k0,         k1,         k2,         k3,         number, 0,  0,  0};
#pragma unroll
  for (u32 i = 0; i < 16; ++i) out[i] = s[i] + start[i];
}

__device__ u64 product(u32 a, u32 b) { return u64{a} * b; }

struct Sums {
  u64 low[kSums], high[kSums];
};

__device__ void add(u64& low, u64& high, u64 more_low, u64 more_high) {
  low += more_low;
  high += more_high + (low < more_low);
}

// factor * a term, modulo 2^128.
__device__ void add_product(Sums& sums, const Table& table, u32 i, u64 factor) {
#pragma unroll
  for (u32 s = 0; s < kSums; ++s) {
    const Term t = table.term[s][i];
    add(sums.low[s], sums.high[s], t.low * factor, __umul64hi(t.low, factor) + t.high * factor);
  }
}

__device__ u64 swapped(u64 v) {
  u32 low = __byte_perm(static_cast<u32>(v), 0, 0x0123);
  u32 high = __byte_perm(static_cast<u32>(v >> 32), 0, 0x0123);
  return u64{low} << 32 | high;
}

// All of the warp come here, each with a part of the sums.
__device__ void finish(const Table& table, u32 thread, Sums sums, u32 length, u64* name) {
#pragma unroll
  for (u32 step = 16; step; step /= 2) {
#pragma unroll
    for (u32 s = 0; s < kSums; ++s)
      add(sums.low[s], sums.high[s], __shfl_xor_sync(~0u, sums.low[s], step),
          __shfl_xor_sync(~0u, sums.high[s], step));
  }
  if (thread) return;
  add_product(sums, table, 1, length);
#pragma unroll
  for (u32 s = 0; s < kSums; ++s) {
    add(sums.low[s], sums.high[s], table.term[s][0].low, table.term[s][0].high);
    name[s] = swapped(sums.high[s]);  // as a store keeps it: most significant byte first
  }
}

// Of a group of four threads, thread j gets the sum of their parts of lane j.
__device__ u64 share_lanes(u32 thread, const u64* lane) {
  const bool second = thread & 1, upper = thread & 2;
  // The neighbour keeps the lanes of its own number's lowest bit.
  const u64 a = (second ? lane[1] : lane[0]) + __shfl_xor_sync(~0u, second ? lane[0] : lane[1], 1);
  const u64 b = (second ? lane[3] : lane[2]) + __shfl_xor_sync(~0u, second ? lane[2] : lane[3], 1);
  return (upper ? b : a) + __shfl_xor_sync(~0u, upper ? a : b, 2);
}

__device__ void add_words(uint4 v, uint4 key, u64& lane) {
  lane += product(v.x + key.x, v.y + key.y);
  lane += product(v.z + key.z, v.w + key.w);
}

__device__ void hash_piece(const Table& table, u32 thread, u64 address, u64* name) {
  const u32 group = thread / 4, within = thread % 4 * 16;
  Sums sums = {};
#pragma unroll 1
  for (u32 round = 0; round < 2; ++round) {
    const u32 block = round * 8 + group;
    const char* from = reinterpret_cast<const char*>(address + block * kBlock + within);
    const char* keys = reinterpret_cast<const char*>(table.nh) + within;
    u64 lane[kLanes] = {};
#pragma unroll 1
    for (u32 column = 0; column < kColumns; ++column, from += 64, keys += 64) {
      uint4 v[kRows];
#pragma unroll
      for (u32 row = 0; row < kRows; ++row)
        v[row] = __ldcs(reinterpret_cast<const uint4*>(from + row * kRow));
      uint4 key[kLanes];
#pragma unroll
      for (u32 j = 0; j + 1 < kLanes; ++j)
        key[j + 1] = *reinterpret_cast<const uint4*>(keys + j * kRow);
#pragma unroll
      for (u32 row = 0; row < kRows; ++row) {
#pragma unroll
        for (u32 j = 0; j + 1 < kLanes; ++j) key[j] = key[j + 1];
        key[kLanes - 1] = *reinterpret_cast<const uint4*>(keys + (row + kLanes - 1) * kRow);
#pragma unroll
        for (u32 j = 0; j < kLanes; ++j) add_words(v[row], key[j], lane[j]);
      }
    }
    add_product(sums, table, 2 + kLanes * block + thread % 4, share_lanes(thread, lane));
  }
  finish(table, thread, sums, kPiece, name);
}

// Four bytes, of which those from `end` on are zeros.
__device__ u32 load_word(u64 address, u64 end) {
  if (address % 4 == 0 && address + 4 <= end) return *reinterpret_cast<const u32*>(address);
  u32 value = 0;
  for (u32 i = 0; i < 4 && address + i < end; ++i)
    value |= u32{*reinterpret_cast<const unsigned char*>(address + i)} << (8 * i);
  return value;
}

// Pieces of odd lengths or at odd addresses (variables): the threads take pairs of words in turn.
__device__ void hash_odd_piece(const Table& table, u32 thread, u64 address, u32 length, u64* name) {
  Sums sums = {};
  const u64 end = address + length;
  for (u32 block = 0; block * kBlock < length; ++block) {
    const u32 left = length - block * kBlock,
              bytes = left < kBlock ? (left + 63) / 64 * 64 : kBlock;
    u64 lane[kLanes] = {};
    for (u32 at = thread * 8; at < bytes; at += 256) {
      const u64 from = address + block * kBlock + at;
      const u32 low = load_word(from, end), high = load_word(from + 4, end);
      for (u32 j = 0; j < kLanes; ++j) {
        const u32* key = table.nh + (at + j * kRow) / 4;
        lane[j] += product(low + key[0], high + key[1]);
      }
    }
    u64 mine = share_lanes(thread, lane);
    for (u32 step = 4; step < 32; step *= 2) mine += __shfl_xor_sync(~0u, mine, step);
    if (thread < 4) add_product(sums, table, 2 + kLanes * block + thread, mine);
  }
  finish(table, thread, sums, length, name);
}

extern "C" __global__ void __launch_bounds__(kWarps * 32)
    gpuckpt_hash(const Span* spans, u64* names, u32 count, Key key) {
  __shared__ Table table;
  for (u32 i = threadIdx.x; i < kTableWords / 16; i += blockDim.x)
    chacha(key, i, reinterpret_cast<u32*>(&table) + 16 * i);
  __syncthreads();
  const u32 warp = threadIdx.x / 32, thread = threadIdx.x % 32;
  for (u32 i = blockIdx.x; i < count; i += gridDim.x) {
    const Span span = spans[i];
    if (warp * kPiece >= span.bytes) continue;
    const u64 address = span.address + warp * kPiece;
    const u32 length = span.bytes - warp * kPiece;
    u64* name = names + 2 * (u64{span.first} + warp);
    if (length >= kPiece && address % 16 == 0)
      hash_piece(table, thread, address, name);
    else
      hash_odd_piece(table, thread, address, length < kPiece ? length : kPiece, name);
  }
}
