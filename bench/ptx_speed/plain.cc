// The same work as the kernels', as loops on one core (-O2).
#include "plain.h"

#include <cmath>
#include <vector>

#include "work.h"

namespace plain {

void axpy(float a, const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
}
void hash32(unsigned* out, size_t n, unsigned rounds) {
  for (size_t i = 0; i < n; ++i) {
    auto h = (unsigned)i;
    for (unsigned k = 0; k < rounds; ++k) h = mix32(h, k);
    out[i] = h;
  }
}
void hash64(const unsigned long long* in, unsigned long long* out, size_t warps, unsigned stripes) {
  for (size_t w = 0; w < warps; ++w) {
    unsigned long long a[32], b[32];
    for (unsigned l = 0; l < 32; ++l) {
      a[l] = l * 0x9e3779b185ebca87ull;
      b[l] = ~a[l];
    }
    const unsigned long long* p = in + w * stripes * 64;
    for (unsigned k = 0; k < stripes; ++k, p += 64)
      for (unsigned l = 0; l < 32; ++l) step64(&a[l], &b[l], p[2 * l], p[2 * l + 1], k);
    for (unsigned l = 0; l < 32; ++l) out[w * 32 + l] = a[l] ^ b[l];
  }
}
void matmul(const float* a, const float* b, float* c, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) c[i * n + j] = 0;
    for (size_t k = 0; k < n; ++k)
      for (size_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
  }
}
void reduce(const float* in, float* out, size_t n) {
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += in[i];
  *out += sum;
}
void transcendental(float* out, size_t n, unsigned rounds) {
  for (size_t i = 0; i < n; ++i) {
    float x = (float)(i & 1023) * 0.001f;
    for (unsigned k = 0; k < rounds; ++k) x = sinf(x) + expf(-x) * logf(x + 2.0f);
    out[i] = x;
  }
}
void atomics(const unsigned* in, unsigned* bins, size_t n) {
  for (size_t i = 0; i < n; ++i) ++bins[in[i] & 255];
}
void divergent(unsigned* out, size_t n, unsigned rounds) {
  for (size_t i = 0; i < n; ++i) {
    unsigned total = 0;
    for (unsigned k = 0; k < rounds; ++k) total += collatz((unsigned)i * rounds + k + 1);
    out[i] = total;
  }
}

}  // namespace plain
