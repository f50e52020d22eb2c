// Conversions and products of matrix elements, many at once. Compiled once per instruction set, as
// the other *_ops.cc; all give the same bits, because products of elements are exact in double and
// sums are computed in one order.
#include "ptx/handlers/matrix.h"
#include "ptx/lanes/real.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace simgpu::ptx::SIMGPU_ARCH {

namespace {

template <class T, class F>
void each(const void* from, unsigned count, double* to, F number) {
  const auto* v = static_cast<const T*>(from);
  for (unsigned i = 0; i < count; ++i) to[i] = number(v[i]);
}

void halves(const void* from, unsigned count, double* to) {
#if defined(__F16C__)
  const auto* v = static_cast<const uint16_t*>(from);
  for (unsigned i = 0; i < count; i += 8) {
    const __m256 f = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(v + i)));
    _mm256_storeu_pd(to + i, _mm256_cvtps_pd(_mm256_castps256_ps128(f)));
    _mm256_storeu_pd(to + i + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(f, 1)));
  }
#else
  each<uint16_t>(from, count, to, [](uint16_t h) { return (double)half_to_float(h); });
#endif
}

void widen(Element e, const void* from, unsigned count, double* to) {
  switch (e) {
    case Element::kF16:
      return halves(from, count, to);
    case Element::kBF16:
      return each<uint16_t>(from, count, to,
                            [](uint16_t h) { return (double)bits<float>((uint32_t)h << 16); });
    case Element::kTF32:
      return each<uint32_t>(from, count, to,
                            [](uint32_t w) { return (double)bits<float>(w & 0xffffe000u); });
    case Element::kPackedE2M1: {
      const float* values = small_floats(e);
      const auto* v = static_cast<const uint8_t*>(from);
      for (unsigned i = 0; i < count; ++i) to[i] = (double)values[v[i / 2] >> i % 2 * 4 & 15];
      return;
    }
    case Element::kE4M3:
    case Element::kE5M2:
    case Element::kE3M2:
    case Element::kE2M3:
    case Element::kE2M1: {
      const float* values = small_floats(e);
      return each<uint8_t>(from, count, to, [=](uint8_t b) { return (double)values[b]; });
    }
    case Element::kS8:
      return each<int8_t>(from, count, to, [](int8_t b) { return (double)b; });
    case Element::kU8:
      return each<uint8_t>(from, count, to, [](uint8_t b) { return (double)b; });
    case Element::kS32:
      return each<int32_t>(from, count, to, [](int32_t w) { return (double)w; });
    default:
      return each<uint32_t>(from, count, to, [](uint32_t w) { return (double)bits<float>(w); });
  }
}

// As many columns as a vector register has room for.
#if defined(__AVX512F__)
constexpr unsigned kColumns = 8;
#elif defined(__AVX__)
constexpr unsigned kColumns = 4;
#else
constexpr unsigned kColumns = 2;
#endif
typedef double Row __attribute__((vector_size(kColumns * 8)));

void tile(const double* a, unsigned pitch, const double* b, double* d, unsigned inner) {
  for (unsigned r = 0; r < 16; r += 4)
    for (unsigned n = 0; n < 8; n += kColumns) {
      const double* from = a + (size_t)r * pitch;
      Row sum[4];
      for (unsigned x = 0; x < 4; ++x) memcpy(&sum[x], d + (r + x) * 8 + n, sizeof(Row));
      for (unsigned k = 0; k < inner; ++k) {
        Row row;
        memcpy(&row, b + 8 * k + n, sizeof(Row));
        for (unsigned x = 0; x < 4; ++x) sum[x] += from[x * pitch + k] * row;
      }
      for (unsigned x = 0; x < 4; ++x) memcpy(d + (r + x) * 8 + n, &sum[x], sizeof(Row));
    }
}

void narrow(const double* from, unsigned count, uint32_t* to) {
  for (unsigned i = 0; i < count; ++i) {
    const uint32_t w = bits<uint32_t>((float)from[i]);
    to[i] = from[i] == from[i] ? w : 0x7fffffffu;
  }
}

}  // namespace

extern const ProductOps kProducts;
const ProductOps kProducts = {widen, tile, narrow};

}  // namespace simgpu::ptx::SIMGPU_ARCH
