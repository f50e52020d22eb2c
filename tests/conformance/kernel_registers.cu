// printf with every conversion against the C library's; special registers; named barriers; votes,
// matches and reductions across a warp.
#include <unistd.h>

#include "conformance.h"

// Width and precision, flags, sizes: the same call on both sides.
#define TALK(text)                                                                         \
  printf("%d|%+d|% d|%-6d|%06d|%i|%u\n", -5, 5, 5, 42, -42, 7, 4000000000u);               \
  printf("%x|%X|%#x|%o|%#o|%08x\n", 48879u, 48879u, 255u, 8u, 8u, 1u);                     \
  printf("%ld|%lld|%lu|%llu|%llx\n", -1l, -(1ll << 40), 1ul << 40, ~0ull, 1ull << 63);     \
  printf("%hd|%hhd|%hu|%hhu\n", (short)-3, (signed char)-4, (unsigned short)65535,         \
         (unsigned char)200);                                                              \
  printf("%f|%.2f|%8.3f|%-8.1f|%+.0f|%e|%.3E|%g|%G|%a\n", 1.5, 2.345, -3.14159, 2.25, 7.0, \
         12345.678, 0.00012, 1e10, 1e-10, 1.0);                                            \
  printf("%f|%g|%5.1f\n", 1.0 / 3, 100000.0, (double)1.25f);                               \
  printf("%s|%10s|%-10s|%.3s|%c|%5c|%%\n", text, text, text, text, 'x', 'y');              \
  printf("%*d|%-*d|%.*f|%*.*f\n", 6, 42, 6, 42, 3, 2.0, 9, 2, 3.14159)

__global__ void talk(const char* text) {
  if (threadIdx.x == 0) {
    TALK(text);
  }
}
void check_printf() {
  FILE* file = tmpfile();
  EXPECT(file != nullptr);
  fflush(stdout);
  const int saved = dup(1);
  dup2(fileno(file), 1);
  char* text;
  CHECK(cudaMalloc(&text, 8));
  CHECK(cudaMemcpy(text, "seven77", 8, cudaMemcpyHostToDevice));
  talk<<<1, 32>>>(text);
  CHECK(cudaDeviceSynchronize());
  fflush(stdout);
  const long half = lseek(fileno(file), 0, SEEK_END);
  TALK("seven77");
  fflush(stdout);
  dup2(saved, 1);
  close(saved);
  rewind(file);
  std::vector<char> all((size_t)half * 2 + 512);
  const size_t n = fread(all.data(), 1, all.size(), file);
  if (half < 100 || n != (size_t)half * 2 || memcmp(all.data(), all.data() + half, (size_t)half)) {
    fwrite(all.data(), 1, n, stderr);
    exit(1);
  }
}

#define SPECIAL(name)                                   \
  [&] {                                                 \
    unsigned v_;                                        \
    asm volatile("mov.u32 %0, %%" name ";" : "=r"(v_)); \
    return v_;                                          \
  }()
__global__ void registers(unsigned* out) {
  const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned bad = 0;
  bad |= (SPECIAL("laneid") != t % 32) << 0;
  bad |= (SPECIAL("warpid") != t / 32) << 1;
  bad |= (SPECIAL("lanemask_eq") != 1u << t % 32) << 2;
  bad |= (SPECIAL("lanemask_lt") != (1u << t % 32) - 1) << 3;
  bad |= (SPECIAL("lanemask_ge") != ~((1u << t % 32) - 1)) << 4;
  bad |= (SPECIAL("nctaid.y") != gridDim.y) << 5;
  bad |= (SPECIAL("ctaid.z") != blockIdx.z) << 6;
  bad |= (SPECIAL("smid") >= SPECIAL("nsmid")) << 7;
  bad |= (SPECIAL("dynamic_smem_size") != 64) << 8;
  const long long c = clock64();
  const auto lo = (unsigned)clock();
  unsigned long long before, after;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(before));
  for (int k = 0; k < 100; ++k) asm volatile("" ::: "memory");
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(after));
  bad |= (clock64() <= c) << 9 | (after < before) << 10 | ((unsigned)clock() - lo > 1u << 30) << 11;
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (bad) atomicOr(out, bad);
  atomicAdd(out + 1, block * 1000 + t);
}

// Producers and consumers over two named barriers, half of the block each.
__global__ void named(int* out) {
  __shared__ int data[64];
  const int i = (int)threadIdx.x;
  for (int round = 0; round < 4; ++round) {
    if (i < 64) {
      data[i] = i * 10 + round;
      asm volatile("bar.arrive 1, 128;" ::: "memory");
      asm volatile("bar.sync 2, 128;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      out[round * 64 + i - 64] = data[127 - i];
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
  __syncthreads();
  const int odd = __syncthreads_count(i & 1), all = __syncthreads_and(i < 128),
            any = __syncthreads_or(i == 77);
  if (i == 0) out[256] = odd * 100 + (all != 0) * 10 + (any != 0);
}

__global__ void together(unsigned* out) {
  const unsigned i = threadIdx.x, x = i * 7 % 5;
  unsigned* o = out + i * 8;
  o[0] = __ballot_sync(~0u, x > 2);
  o[1] = (unsigned)(__all_sync(~0u, x < 5) | __any_sync(~0u, x == 4) << 1 |
                    __all_sync(~0u, x < 4) << 2);
  o[2] = __match_any_sync(~0u, x);
  int same = 0;
  o[3] = __match_all_sync(~0u, i / 64, &same);
  o[3] += (unsigned)same;
  o[4] = __match_all_sync(~0u, x, &same);
  o[4] += (unsigned)same * 2;
  if (i & 1) {
    o[5] = __activemask();
    o[6] = __ballot_sync(0xaaaaaaaau, i > 16);
  } else {
    o[5] = o[6] = 0;
  }
  __syncwarp();
#if __CUDA_ARCH__ >= 800
  o[7] = __reduce_add_sync(~0u, i) ^ __reduce_max_sync(~0u, x) << 16 ^
         (unsigned)__reduce_min_sync(~0u, -(int)i) << 8 ^ __reduce_xor_sync(~0u, i * 3);
#else
  o[7] = 0;
#endif
}

int main() {
  check_printf();
  DeviceVector<unsigned> flags(2);
  registers<<<dim3(3, 2, 2), dim3(8, 4, 3), 64>>>(flags.get());
  CHECK(cudaDeviceSynchronize());
  if (flags.copy()[0] != 0) fprintf(stderr, "special registers: %x\n", flags.copy()[0]);
  EXPECT(flags.copy()[0] == 0);
  EXPECT(flags.copy()[1] == 12 * (95 * 96 / 2) + 96 * 1000 * (11 * 12 / 2));

  DeviceVector<int> out(257);
  named<<<1, 128>>>(out.get());
  CHECK(cudaDeviceSynchronize());
  const std::vector<int> got = out.copy();
  for (int k = 0; k < 256; ++k) EXPECT(got[(size_t)k] == (63 - k % 64) * 10 + k / 64);
  EXPECT(got[256] == 6411);

  DeviceVector<unsigned> masks(32 * 8);
  together<<<1, 32>>>(masks.get());
  CHECK(cudaDeviceSynchronize());
  const std::vector<unsigned> m = masks.copy();
  unsigned high = 0, sum = 0, odd = 0;
  for (unsigned i = 0; i < 32; ++i) {
    high |= (i * 7 % 5 > 2) << i;
    sum += i;
    odd ^= i * 3;
  }
  for (unsigned i = 0; i < 32; ++i) {
    unsigned like = 0;
    for (unsigned k = 0; k < 32; ++k) like |= (k * 7 % 5 == i * 7 % 5) << k;
    const unsigned* o = &m[i * 8];
    EXPECT(o[0] == high);
    EXPECT(o[1] == 3);
    EXPECT(o[2] == like);
    EXPECT(o[3] == ~0u + 1);
    EXPECT(o[4] == 0);
    EXPECT(o[5] == (i & 1 ? 0xaaaaaaaau : 0));
    EXPECT(o[6] == (i & 1 ? 0xaaaa0000u & ~(1u << 16) : 0));
    EXPECT(o[7] == 0 || o[7] == (sum ^ 4u << 16 ^ (unsigned)-31 << 8 ^ odd));
  }
  return passed();
}
