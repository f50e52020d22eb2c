#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_c_literalCompressionMode: Huffman without matches
#include "store/planes.h"

#include <emmintrin.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "store/memory.h"

namespace gpuckpt::store {
namespace {

enum PlaneMode : uint8_t { kRaw = 0, kZstd = 1 };
// So large a step that the match finder only passes by; what is left is the Huffman stage.
constexpr int kLiteralsOnly = -100000;
constexpr double kNoise = 7.8;  // bits per byte from which a plane is stored as it is
constexpr double kFlat = 2.0;   // bits per byte below which zstd's matches are cheap to find

struct Contexts {
  ZSTD_CCtx* literals = with_memory(ZSTD_createCCtx());
  ZSTD_CCtx* matches = with_memory(ZSTD_createCCtx());
  ZSTD_DCtx* decoder = with_memory(ZSTD_createDCtx());
  std::vector<uint8_t> planes, scratch, packed;  // grow, and are not cleared
  Contexts() {
    ZSTD_CCtx_setParameter(literals, ZSTD_c_compressionLevel, kLiteralsOnly);
    ZSTD_CCtx_setParameter(literals, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
    ZSTD_CCtx_setParameter(matches, ZSTD_c_compressionLevel, 1);
    for (ZSTD_CCtx* context : {literals, matches}) {
      ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    }
  }
  ~Contexts() {
    ZSTD_freeCCtx(literals);
    ZSTD_freeCCtx(matches);
    ZSTD_freeDCtx(decoder);
  }
};
Contexts& contexts() {
  thread_local Contexts c;
  return c;
}

// even[i] = in[2 i], odd[i] = in[2 i + 1]. SSE2 is part of every x86-64.
void split2(const uint8_t* in, size_t pairs, uint8_t* even, uint8_t* odd) {
  const __m128i low = _mm_set1_epi16(0xff);
  size_t i = 0;
  for (; i + 16 <= pairs; i += 16) {
    __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i + 16));
    __m128i e = _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
    __m128i o = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(even + i), e);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(odd + i), o);
  }
  for (; i < pairs; ++i) {
    even[i] = in[2 * i];
    odd[i] = in[2 * i + 1];
  }
}

void merge2(const uint8_t* even, const uint8_t* odd, size_t pairs, uint8_t* out) {
  size_t i = 0;
  for (; i + 16 <= pairs; i += 16) {
    __m128i e = _mm_loadu_si128(reinterpret_cast<const __m128i*>(even + i));
    __m128i o = _mm_loadu_si128(reinterpret_cast<const __m128i*>(odd + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), _mm_unpacklo_epi8(e, o));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i + 16), _mm_unpackhi_epi8(e, o));
  }
  for (; i < pairs; ++i) {
    out[2 * i] = even[i];
    out[2 * i + 1] = odd[i];
  }
}

// Plane p of `width`-byte elements goes to out + p * elements; `scratch` has room for all twice.
void split(const uint8_t* in, size_t elements, size_t width, size_t stride, uint8_t* out,
           uint8_t* scratch) {
  if (width == 1) {
    memcpy(out, in, elements);
    return;
  }
  // Even bytes hold the even planes, odd bytes the odd ones, each interleaved at half the width.
  size_t half = elements * width / 2;
  if (width == 2) {
    split2(in, half, out, out + stride);
    return;
  }
  split2(in, half, scratch, scratch + half);
  split(scratch, elements, width / 2, 2 * stride, out, scratch + 2 * half);
  split(scratch + half, elements, width / 2, 2 * stride, out + stride, scratch + 2 * half);
}

void merge(const uint8_t* in, size_t elements, size_t width, size_t stride, uint8_t* out,
           uint8_t* scratch) {
  size_t half = elements * width / 2;
  if (width == 2) {
    merge2(in, in + stride, half, out);
    return;
  }
  merge(in, elements, width / 2, 2 * stride, scratch, scratch + 2 * half);
  merge(in + stride, elements, width / 2, 2 * stride, scratch + half, scratch + 2 * half);
  merge2(scratch, scratch + half, half, out);
}

constexpr size_t kPieces = 16, kPiece = 1024;

// n log2 n for every count a sample can have.
const double* count_bits() {
  static const std::vector<double> table = [] {
    std::vector<double> t(kPieces * kPiece + 1, 0);
    for (size_t n = 2; n < t.size(); ++n) t[n] = static_cast<double>(n) * std::log2(n);
    return t;
  }();
  return table.data();
}

// Bits per byte of a code made for these counts, with the table such a code needs.
double entropy(const uint32_t* counts, uint32_t total) {
  const double* bits_of = count_bits();
  double bits = bits_of[total];
  uint32_t values = 0;
  for (int v = 0; v < 256; ++v) {
    bits -= bits_of[counts[v]];
    values += counts[v] != 0;
  }
  // A small sample does not show all values there are (Miller and Madow's correction).
  return bits / total + (values - 1) / (2.0 * total * 0.6931);
}

}  // namespace

PlanePlan plan_planes(std::span<const uint8_t> bytes) {
  PlanePlan best;
  if (bytes.size() < 2 * kPieces * kPiece) return best;
  // One histogram per position modulo 8 says it for every width.
  uint32_t counts[8][256] = {};
  size_t step = (bytes.size() - kPiece) / (kPieces - 1) & ~size_t{7};
  for (size_t p = 0; p < kPieces; ++p) {
    const uint8_t* at = bytes.data() + p * step;
    for (size_t i = 0; i < kPiece; i += 8) {
      for (size_t k = 0; k < 8; ++k) ++counts[k][at[i + k]];
    }
  }
  double plain = 8;
  for (uint32_t width : {1u, 2u, 4u, 8u}) {
    PlanePlan plan;
    plan.width = width;
    double bits = 0;
    for (uint32_t p = 0; p < width; ++p) {
      uint32_t sum[256] = {};
      for (uint32_t k = p; k < 8; k += width) {
        for (int v = 0; v < 256; ++v) sum[v] += counts[k][v];
      }
      double e = std::min(8.0, entropy(sum, static_cast<uint32_t>(kPieces * kPiece / width)));
      if (e > kNoise) plan.raw_planes |= 1u << p;
      if (e < kFlat) plan.flat_planes |= 1u << p;
      bits += e > kNoise ? 8 : e;
    }
    plan.bits_per_byte = bits / width;
    if (width == 1) {
      plain = plan.bits_per_byte;
      best.bits_per_byte = plain;
    } else if (plan.bits_per_byte < best.bits_per_byte - 0.05) {
      best = plan;
    }
  }
  return best;
}

bool compress_planes(std::span<const uint8_t> bytes, const PlanePlan& plan, size_t limit,
                     std::vector<uint8_t>* out) {
  if (plan.width == 0) return false;
  Contexts& c = contexts();
  const size_t width = plan.width, elements = bytes.size() / width, tail = bytes.size() % width;
  auto at_least = [](std::vector<uint8_t>* v, size_t n) {
    if (v->size() < n) v->resize(n);
  };
  at_least(&c.planes, elements * width);
  at_least(&c.scratch, 2 * elements * width + 16);
  at_least(&c.packed, 1 + 5 * width + bytes.size() + ZSTD_compressBound(elements));
  split(bytes.data(), elements, width, elements, c.planes.data(), c.scratch.data());
  uint8_t* const to = c.packed.data();
  size_t head = 0, at = 1 + 5 * width;
  to[head++] = static_cast<uint8_t>(width);
  for (size_t p = 0; p < width; ++p) {
    const uint8_t* plane = c.planes.data() + p * elements;
    uint8_t mode = kRaw;
    size_t length = elements;
    if (!(plan.raw_planes >> p & 1)) {
      ZSTD_CCtx* context = plan.flat_planes >> p & 1 ? c.matches : c.literals;
      size_t n = ZSTD_compress2(context, to + at, c.packed.size() - at, plane, elements);
      if (!ZSTD_isError(n) && n < elements) {
        mode = kZstd;
        length = n;
      }
    }
    if (at + length + tail > limit) return false;
    if (mode == kRaw) memcpy(to + at, plane, elements);
    uint32_t stored = static_cast<uint32_t>(length);
    to[head++] = mode;
    memcpy(to + head, &stored, sizeof(stored));
    head += sizeof(stored);
    at += length;
  }
  if (tail) memcpy(to + at, bytes.data() + elements * width, tail);
  out->insert(out->end(), to, to + at + tail);
  return true;
}

bool decompress_planes(std::span<const uint8_t> stored, std::span<uint8_t> plain) {
  if (stored.empty()) return false;
  const size_t width = stored[0];
  if ((width != 2 && width != 4 && width != 8) || stored.size() < 1 + 5 * width) return false;
  const size_t elements = plain.size() / width, tail = plain.size() % width;
  if (elements == 0) return false;
  Contexts& c = contexts();
  c.planes.resize(elements * width);
  c.scratch.resize(2 * elements * width + 16);
  size_t head = 1, at = 1 + 5 * width;
  for (size_t p = 0; p < width; ++p) {
    uint8_t mode = stored[head];
    uint32_t length;
    memcpy(&length, stored.data() + head + 1, sizeof(length));
    head += 5;
    if (length > stored.size() - at) return false;
    uint8_t* plane = c.planes.data() + p * elements;
    if (mode == kRaw) {
      if (length != elements) return false;
      memcpy(plane, stored.data() + at, elements);
    } else if (mode == kZstd) {
      size_t n =
          with_memory(ZSTD_decompressDCtx(c.decoder, plane, elements, stored.data() + at, length));
      if (ZSTD_isError(n) || n != elements) return false;
    } else {
      return false;
    }
    at += length;
  }
  if (stored.size() - at != tail) return false;
  merge(c.planes.data(), elements, width, elements, plain.data(), c.scratch.data());
  if (tail) memcpy(plain.data() + elements * width, stored.data() + at, tail);
  return true;
}

}  // namespace gpuckpt::store
