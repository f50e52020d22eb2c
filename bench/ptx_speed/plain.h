// The work of ptx_speed as plain loops; see plain.cc.
#pragma once

#include <cstddef>

namespace plain {

void axpy(float a, const float* x, float* y, size_t n);
void hash32(unsigned* out, size_t n, unsigned rounds);
void hash64(const unsigned long long* in, unsigned long long* out, size_t warps, unsigned stripes);
void matmul(const float* a, const float* b, float* c, size_t n);
void reduce(const float* in, float* out, size_t n);
void transcendental(float* out, size_t n, unsigned rounds);
void atomics(const unsigned* in, unsigned* bins, size_t n);
void divergent(unsigned* out, size_t n, unsigned rounds);

}  // namespace plain
