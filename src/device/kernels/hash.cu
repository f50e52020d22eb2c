// Names of chunks, computed where the chunks are: XXH3-128 (seed 0, default secret) of pieces of
// device memory, bit for bit what xxHash computes on the host, so that the name of a chunk is good
// from device memory to disk and back.
//
// XXH3 cuts its input into blocks of 1 KiB; inside a block the sums are independent of what was
// before, between blocks there is one short serial step ("scramble") for each of 8 accumulators.
// So one warp takes one piece of 64 KiB, in 8 rounds of 8 KiB: four threads sum up one block each
// with loads of 16 bytes (four neighbours read 64 consecutive bytes), then the first eight threads
// do the eight serial steps. Memory is read once; arithmetic hides behind it.
//
// build.py makes kernels.fatbin from this file; a test compiles it again and compares.

using u64 = unsigned long long;
using u32 = unsigned int;

// Up to 8 consecutive pieces of kPiece bytes, the last may be shorter (more than 240 bytes: shorter
// inputs have other formulas, and are not worth a question). Names go to names[first + i].
struct Span {
  u64 address;
  u32 bytes;
  u32 first;
};

constexpr u32 kPiece = 65536, kWarps = 8, kRound = 8192;

constexpr u64 kPrime64_1 = 0x9E3779B185EBCA87, kPrime64_2 = 0xC2B2AE3D27D4EB4F,
              kPrime64_3 = 0x165667B19E3779F9, kPrime64_4 = 0x85EBCA77C2B2AE63,
              kPrime64_5 = 0x27D4EB2F165667C5;
constexpr u32 kPrime32_1 = 0x9E3779B1, kPrime32_2 = 0x85EBCA77, kPrime32_3 = 0xC2B2AE3D;

// xxHash's default secret as 64-bit words at offsets 0, 8, ...; then the words at the odd offsets
// of the last stripe (121) and of the final merges (11 and 117).
constexpr u32 kTail = 24, kLow = 32, kHigh = 40, kWords = 48;
__constant__ u64 the_secret[kWords] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
    0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
    0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
    0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
    0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
    0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
};

struct Shared {
  u64 secret[kWords];
  u64 sums[kWarps][8][8];  // warp, block of the round, accumulator
};

__device__ u64 word_of(const u64* secret, u32 offset) {
  u32 shift = offset % 8 * 8;
  return secret[offset / 8] >> shift | secret[offset / 8 + 1] << (64 - shift);
}

__device__ u64 first_accumulator(u32 i) {
  switch (i) {
    case 0:
      return kPrime32_3;
    case 1:
      return kPrime64_1;
    case 2:
      return kPrime64_2;
    case 3:
      return kPrime64_3;
    case 4:
      return kPrime64_4;
    case 5:
      return kPrime32_2;
    case 6:
      return kPrime64_5;
    default:
      return kPrime32_1;
  }
}

__device__ u64 product(u64 keyed) {
  return u64{static_cast<u32>(keyed)} * u64{static_cast<u32>(keyed >> 32)};
}
__device__ u64 scramble(u64 sum, u64 key) { return ((sum ^ sum >> 47) ^ key) * kPrime32_1; }

__device__ u64 swapped(u64 v) {
  u32 low = __byte_perm(static_cast<u32>(v), 0, 0x0123);
  u32 high = __byte_perm(static_cast<u32>(v >> 32), 0, 0x0123);
  return u64{low} << 32 | high;
}

// Threads 0 to 3 merge the lower half, 4 to 7 the upper; all of the warp come here.
__device__ void finish(Shared& shared, u32 warp, u32 thread, u64 sum, u64 length, u64* name) {
  u64* sums = shared.sums[warp][0];
  if (thread < 8) sums[thread] = sum;
  __syncwarp();
  u32 pair = thread % 4;
  const u64* secret = shared.secret + (thread & 4 ? kHigh : kLow);
  u64 a = sums[2 * pair] ^ secret[2 * pair], b = sums[2 * pair + 1] ^ secret[2 * pair + 1];
  u64 merged = a * b ^ __umul64hi(a, b);
  merged += __shfl_xor_sync(~0u, merged, 1);
  merged += __shfl_xor_sync(~0u, merged, 2);
  merged += thread & 4 ? ~(length * kPrime64_2) : length * kPrime64_1;
  merged ^= merged >> 37;
  merged *= 0x165667919E3779F9;
  merged ^= merged >> 32;
  // As a store keeps it: most significant byte first.
  if (thread == 0 || thread == 4) name[thread == 0] = swapped(merged);
}

__device__ void hash_piece(Shared& shared, u32 warp, u32 thread, u64 address, u64* name) {
  const u32 block = thread / 4, pair = thread % 4 * 2;
  const u64* secret = shared.secret + pair;
  u64 sum = first_accumulator(thread % 8);
  for (u32 round = 0; round < kPiece / kRound; ++round) {
    const auto* from =
        reinterpret_cast<const ulonglong2*>(address + round * kRound + block * 1024 + pair * 8);
    const bool last = round == kPiece / kRound - 1 && block == 7;
    u64 even = 0, odd = 0, key = secret[0];
#pragma unroll
    for (u32 stripe = 0; stripe < 16; ++stripe) {
      ulonglong2 v = __ldcs(from + stripe * 4);
      u64 next = secret[stripe + 1];
      if (stripe == 15 && last) {
        key = secret[kTail];
        next = secret[kTail + 1];
      }
      even += v.y + product(v.x ^ key);
      odd += v.x + product(v.y ^ next);
      key = next;
    }
    shared.sums[warp][block][pair] = even;
    shared.sums[warp][block][pair + 1] = odd;
    __syncwarp();
    if (thread < 8) {
      const u64 last_key = shared.secret[16 + thread];
#pragma unroll
      for (u32 b = 0; b < 7; ++b) sum = scramble(sum + shared.sums[warp][b][thread], last_key);
      sum += shared.sums[warp][7][thread];
      if (round != kPiece / kRound - 1) sum = scramble(sum, last_key);
    }
    __syncwarp();
  }
  finish(shared, warp, thread, sum, kPiece, name);
}

__device__ u64 load_word(u64 address) {
  if (address % 8 == 0) return *reinterpret_cast<const u64*>(address);
  u64 value = 0;
  for (u32 i = 0; i < 8; ++i)
    value |= u64{*reinterpret_cast<const unsigned char*>(address + i)} << (8 * i);
  return value;
}

// Pieces of odd lengths or at odd addresses (variables): eight threads, one accumulator each.
__device__ void hash_odd_piece(Shared& shared, u32 warp, u32 thread, u64 address, u32 length,
                               u64* name) {
  u32 i = thread % 8;
  u64 sum = first_accumulator(i);
  u32 stripes = (length - 1) / 64;
  if (thread < 8) {
    for (u32 stripe = 0; stripe <= stripes; ++stripe) {
      bool last = stripe == stripes;
      u64 at = last ? address + length - 64 : address + stripe * 64;
      u64 key = last ? shared.secret[kTail + i] : shared.secret[stripe % 16 + i];
      sum += load_word(at + (i ^ 1) * 8) + product(load_word(at + i * 8) ^ key);
      if (!last && stripe % 16 == 15) sum = scramble(sum, shared.secret[16 + i]);
    }
  }
  finish(shared, warp, thread, sum, length, name);
}

extern "C" __global__ void __launch_bounds__(kWarps * 32)
    gpuckpt_hash(const Span* spans, u64* names) {
  __shared__ Shared shared;
  u32 t = threadIdx.x;
  if (t < kTail) shared.secret[t] = the_secret[t];
  if (t >= kTail && t < kLow) shared.secret[t] = word_of(the_secret, 121 + (t - kTail) * 8);
  if (t >= kLow && t < kHigh) shared.secret[t] = word_of(the_secret, 11 + (t - kLow) * 8);
  if (t >= kHigh && t < kWords) shared.secret[t] = word_of(the_secret, 117 + (t - kHigh) * 8);
  __syncthreads();
  Span span = spans[blockIdx.x];
  u32 warp = t / 32, thread = t % 32;
  if (warp * kPiece >= span.bytes) return;
  u64 address = span.address + warp * kPiece;
  u32 length = span.bytes - warp * kPiece;
  u64* name = names + 2 * (u64{span.first} + warp);
  if (length >= kPiece && address % 16 == 0)
    hash_piece(shared, warp, thread, address, name);
  else
    hash_odd_piece(shared, warp, thread, address, length < kPiece ? length : kPiece, name);
}
