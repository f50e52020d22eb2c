// Integer arithmetic of every width: the same function compiled for the CPU and for the GPU must
// agree bit for bit.
#include "conformance.h"

constexpr int kOps = 44;

__host__ __device__ uint64_t operate(int op, uint64_t a, uint64_t b) {
  uint32_t x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  int32_t sx = static_cast<int32_t>(x), sy = static_cast<int32_t>(y);
  int64_t sa = static_cast<int64_t>(a), sb = static_cast<int64_t>(b);
  uint32_t shift = y & 31, shift64 = y & 63;
  uint32_t divisor = y | 1;
  uint64_t divisor64 = b | 1;
  switch (op) {
    case 0:
      return x + y;
    case 1:
      return x - y;
    case 2:
      return x * y;
    case 3:
      return x / divisor;
    case 4:
      return x % divisor;
    case 5:
      return static_cast<uint32_t>(sx / (static_cast<int32_t>(divisor >> 1) | 1));
    case 6:
      return static_cast<uint32_t>(sx % -(static_cast<int32_t>(divisor >> 2) | 5));
    case 7:
      return x << shift;
    case 8:
      return x >> shift;
    case 9:
      return static_cast<uint32_t>(sx >> shift);
    case 10:
      return x & y;
    case 11:
      return x | ~y;
    case 12:
      return x ^ y;
    case 13:
      return sx < sy ? x : y;
    case 14:
      return x < y ? x : y;
    case 15:
      return a + b;
    case 16:
      return a - b;
    case 17:
      return a * b;
    case 18:
      return a / divisor64;
    case 19:
      return a % divisor64;
    case 20:
      return static_cast<uint64_t>(sa / (((sb >> 3) & ~2ll) | 1));
    case 21:
      return a << shift64;
    case 22:
      return a >> shift64;
    case 23:
      return static_cast<uint64_t>(sa >> shift64);
    case 24:
      return sa < sb;
    case 25:
      return a < b ? a : b;
    case 26:
      return static_cast<uint64_t>(x) * y;
    case 27:
      return static_cast<uint64_t>(static_cast<int64_t>(sx) * sy);
    case 28:
      return static_cast<uint32_t>(static_cast<uint16_t>(x)) * static_cast<uint16_t>(y);
    case 29:
      return static_cast<uint16_t>(x + y);
    case 30:
      return static_cast<uint64_t>(static_cast<int16_t>(x));
    case 31:
      return static_cast<uint64_t>(static_cast<int8_t>(x));
    case 32:
      return static_cast<uint8_t>(x >> 5);
    case 33:
      return static_cast<uint64_t>(static_cast<int64_t>(sx));
    case 34:
      return sx < 0 ? 0u - x : x;
    case 35:
      return x << shift | x >> (32 - shift) % 32;
    case 36:
      return (x >> 24) | (x >> 8 & 0xff00) | (x << 8 & 0xff0000) | x << 24;
    case 37:
      return x == y ? 1 : x != (y ^ x) ? 2 : 3;
    case 38:
      return static_cast<uint64_t>(static_cast<int64_t>(static_cast<float>(sx)));
    case 39:
      return static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(sa >> 4)));
    case 40:
      return static_cast<uint8_t>(x) > static_cast<uint8_t>(y);
    case 41:
      return x > 7 && y % 3 == 1 ? a : b;
    case 42:
      return (a >> 7) * 0x123456789ull + (b << 3);
    default:
      return -x;
  }
}

// The same through intrinsics on the GPU and by hand on the CPU.
__device__ uint32_t intrinsic(int op, uint32_t x, uint32_t y) {
  switch (op) {
    case 0:
      return __clz(x);
    case 1:
      return __popc(x);
    case 2:
      return __brev(x);
    case 3:
      return __ffs(x);
    case 4:
      return __umulhi(x, y);
    case 5:
      return __mulhi(static_cast<int>(x), static_cast<int>(y));
    case 6:
      return __byte_perm(x, y, 0x5140);
    case 7:
      return __funnelshift_l(x, y, 13);
    case 8:
      return __usad(x, y, 100);
    case 9:
      return __clzll(static_cast<uint64_t>(x) << 9);
    case 10:
      return __popcll(static_cast<uint64_t>(x) << 32 | y);
    case 11:
      return static_cast<uint32_t>(__umul64hi(x * 0x100000001ull, y * 0x100000001ull));
    default:
      return __dp4a(x, y, 5u);
  }
}

uint32_t byHand(int op, uint32_t x, uint32_t y) {
  uint32_t r = 0;
  switch (op) {
    case 0:
      return x == 0 ? 32 : __builtin_clz(x);
    case 1:
      return __builtin_popcount(x);
    case 2:
      for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
      return r;
    case 3:
      return __builtin_ffs(x);
    case 4:
      return static_cast<uint32_t>(static_cast<uint64_t>(x) * y >> 32);
    case 5:
      return static_cast<uint32_t>(
          static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(x)) *
                                static_cast<int32_t>(y)) >>
          32);
    case 6:
      return (x & 255) | (y & 255) << 8 | (x >> 8 & 255) << 16 | (y >> 8 & 255) << 24;
    case 7:
      return y << 13 | x >> 19;
    case 8:
      return (x > y ? x - y : y - x) + 100;
    case 9:
      return x == 0 ? 64 : __builtin_clzll(static_cast<uint64_t>(x) << 9);
    case 10:
      return __builtin_popcount(x) + __builtin_popcount(y);
    case 11:
      return static_cast<uint32_t>(
          static_cast<unsigned __int128>(x * 0x100000001ull) * (y * 0x100000001ull) >> 64);
    default:
      for (int i = 0; i < 32; i += 8) r += (x >> i & 255) * (y >> i & 255);
      return r + 5;
  }
}
constexpr int kIntrinsics = 13;

__host__ __device__ uint64_t input(int i) {
  const uint64_t corners[] = {0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 63, ~0ull};
  return i < 8 ? corners[i] : scramble64(i) >> (i % 5) * 9;
}

__global__ void run(uint64_t* out, uint32_t* intrinsics, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  uint64_t a = input(i % 32), b = input(i / 32);
  for (int op = 0; op < kOps; ++op) out[i * kOps + op] = operate(op, a, b);
  for (int op = 0; op < kIntrinsics; ++op) {
    intrinsics[i * kIntrinsics + op] =
        intrinsic(op, static_cast<uint32_t>(a), static_cast<uint32_t>(b));
  }
}

int main() {
  constexpr int kCount = 32 * 32;
  DeviceVector<uint64_t> out(kCount * kOps);
  DeviceVector<uint32_t> intrinsics(kCount * kIntrinsics);
  run<<<kCount / 64, 64>>>(out.get(), intrinsics.get(), kCount);
  CHECK(cudaGetLastError());
  auto got = out.copy();
  auto got_intrinsics = intrinsics.copy();
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    uint64_t a = input(i % 32), b = input(i / 32);
    for (int op = 0; op < kOps && wrong < 10; ++op) {
      if (got[i * kOps + op] == operate(op, a, b)) continue;
      ++wrong;
      fprintf(stderr, "operation %d of %llx, %llx: %llx\n", op, static_cast<unsigned long long>(a),
              static_cast<unsigned long long>(b),
              static_cast<unsigned long long>(got[i * kOps + op]));
    }
    for (int op = 0; op < kIntrinsics && wrong < 10; ++op) {
      uint32_t x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
      if (got_intrinsics[i * kIntrinsics + op] == byHand(op, x, y)) continue;
      ++wrong;
      fprintf(stderr, "intrinsic %d of %x, %x: %x instead of %x\n", op, x, y,
              got_intrinsics[i * kIntrinsics + op], byHand(op, x, y));
    }
  }
  EXPECT(wrong == 0);
  return passed();
}
