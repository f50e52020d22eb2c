// What kernels and plain loops of ptx_speed have in common.
#pragma once

#ifndef __CUDACC__
#define __host__
#define __device__
#endif

__host__ __device__ inline unsigned mix32(unsigned h, unsigned k) {
  h ^= k * 0x9e3779b9u;
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ (h >> 16);
}

// A step of XXH3's accumulation over two 64-bit words.
__host__ __device__ inline void step64(unsigned long long* a, unsigned long long* b,
                                       unsigned long long x, unsigned long long y, unsigned k) {
  const unsigned long long kx = x ^ (0xbe4ba423396cfeb8ull + k),
                           ky = y ^ (0x1cad21f72c81017cull + k);
  *a += y + (kx & 0xffffffffu) * (kx >> 32);
  *b += x + (ky & 0xffffffffu) * (ky >> 32);
  if ((k & 15) == 15) {
    *a = (*a ^ (*a >> 47) ^ 0xdb979083e96dd4deull) * 0x9e3779b1u;
    *b = (*b ^ (*b >> 47) ^ 0x1f67b3b7a4a44072ull) * 0x9e3779b1u;
  }
}

__host__ __device__ inline unsigned collatz(unsigned n) {
  unsigned steps = 0;
  while (n != 1 && steps < 100) {
    n = n & 1 ? 3 * n + 1 : n / 2;
    ++steps;
  }
  return steps;
}
