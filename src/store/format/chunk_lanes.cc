#include "store/format/chunk_lanes.h"

#include <immintrin.h>

namespace gpuckpt::store {
namespace {

constexpr size_t kShift = kLaneShift / 4;
// Prefetched bytes; the processor's own prefetcher stops at the end of a page.
constexpr size_t kFetch = 512;

// One body for each width: the compiler's own unrolling of a loop over lanes keeps the sums in
// memory.
void lanes_sse2(const uint8_t* block, size_t bytes, const uint32_t* nh, uint64_t* lanes) {
  __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;
  for (size_t at = 0; at < bytes; at += 16, nh += 4) {
    const __m128i data = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + at));
    const __m128i w = _mm_add_epi32(data, _mm_load_si128(reinterpret_cast<const __m128i*>(nh)));
    const __m128i x =
        _mm_add_epi32(data, _mm_load_si128(reinterpret_cast<const __m128i*>(nh + kShift)));
    const __m128i y =
        _mm_add_epi32(data, _mm_load_si128(reinterpret_cast<const __m128i*>(nh + 2 * kShift)));
    const __m128i z =
        _mm_add_epi32(data, _mm_load_si128(reinterpret_cast<const __m128i*>(nh + 3 * kShift)));
    a = _mm_add_epi64(a, _mm_mul_epu32(w, _mm_srli_epi64(w, 32)));
    b = _mm_add_epi64(b, _mm_mul_epu32(x, _mm_srli_epi64(x, 32)));
    c = _mm_add_epi64(c, _mm_mul_epu32(y, _mm_srli_epi64(y, 32)));
    d = _mm_add_epi64(d, _mm_mul_epu32(z, _mm_srli_epi64(z, 32)));
  }
  const auto store = [&](size_t lane, __m128i sum) {
    uint64_t part[2];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(part), sum);
    lanes[lane] = part[0] + part[1];
  };
  store(0, a), store(1, b), store(2, c), store(3, d);
}

__attribute__((target("avx2"))) void lanes_avx2(const uint8_t* block, size_t bytes,
                                                const uint32_t* nh, uint64_t* lanes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (size_t at = 0; at < bytes; at += 32, nh += 8) {
    __builtin_prefetch(block + at + kFetch);
    const __m256i data = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + at));
    const __m256i w =
        _mm256_add_epi32(data, _mm256_load_si256(reinterpret_cast<const __m256i*>(nh)));
    const __m256i x =
        _mm256_add_epi32(data, _mm256_load_si256(reinterpret_cast<const __m256i*>(nh + kShift)));
    const __m256i y = _mm256_add_epi32(
        data, _mm256_load_si256(reinterpret_cast<const __m256i*>(nh + 2 * kShift)));
    const __m256i z = _mm256_add_epi32(
        data, _mm256_load_si256(reinterpret_cast<const __m256i*>(nh + 3 * kShift)));
    a = _mm256_add_epi64(a, _mm256_mul_epu32(w, _mm256_srli_epi64(w, 32)));
    b = _mm256_add_epi64(b, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
    c = _mm256_add_epi64(c, _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
    d = _mm256_add_epi64(d, _mm256_mul_epu32(z, _mm256_srli_epi64(z, 32)));
  }
  uint64_t part[4][4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(part[0]), a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(part[1]), b);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(part[2]), c);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(part[3]), d);
  for (size_t j = 0; j < kHashLanes; ++j)
    lanes[j] = part[j][0] + part[j][1] + part[j][2] + part[j][3];
}

// Masks of ones, because gcc 12 warns of what the forms without a mask are made of.
__attribute__((target("avx512f"))) inline __m512i products(__m512i data, const uint32_t* nh) {
  const __m512i w = _mm512_add_epi32(data, _mm512_load_si512(nh));
  return _mm512_maskz_mul_epu32(0xff, w, _mm512_maskz_srli_epi64(0xff, w, 32));
}

__attribute__((target("avx512f"))) void lanes_avx512(const uint8_t* block, size_t bytes,
                                                     const uint32_t* nh, uint64_t* lanes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (size_t at = 0; at < bytes; at += 64, nh += 16) {
    __builtin_prefetch(block + at + kFetch);
    const __m512i data = _mm512_loadu_si512(block + at);
    a = _mm512_add_epi64(a, products(data, nh));
    b = _mm512_add_epi64(b, products(data, nh + kShift));
    c = _mm512_add_epi64(c, products(data, nh + 2 * kShift));
    d = _mm512_add_epi64(d, products(data, nh + 3 * kShift));
  }
  uint64_t part[4][8];
  _mm512_storeu_si512(part[0], a);
  _mm512_storeu_si512(part[1], b);
  _mm512_storeu_si512(part[2], c);
  _mm512_storeu_si512(part[3], d);
  for (size_t j = 0; j < kHashLanes; ++j) {
    lanes[j] = 0;
    for (uint64_t sum : part[j]) lanes[j] += sum;
  }
}

// The first processors with AVX-512 (Skylake to Cascade Lake) lower their clock for it, also for
// the program beside us. Those that came later have VBMI, too, and do not.
bool has_cheap_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vbmi");
}

}  // namespace

const NamedLanes* all_lanes(size_t* count) {
  static const NamedLanes all[] = {
      {"sse2", lanes_sse2}, {"avx2", lanes_avx2}, {"avx512", lanes_avx512}};
  static const size_t known = !__builtin_cpu_supports("avx2") ? 1 : !has_cheap_avx512() ? 2 : 3;
  *count = known;
  return all;
}

HashLanes widest_lanes() {
  size_t count;
  const NamedLanes* all = all_lanes(&count);
  return all[count - 1].lanes;
}

}  // namespace gpuckpt::store
