#include "store/codec/planes.h"

#include <immintrin.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "store/codec/huffman.h"
#include "store/codec/zstd_context.h"
#include "store/format/format.h"
#include "store/io/memory.h"

namespace gpuckpt::store {
namespace {

enum PlaneMode : uint8_t { kRaw = 0, kZstd = 1, kHuffman = 2 };
constexpr double kNoise = 7.4;  // bits per byte from which a plane is stored as it is
constexpr double kFlat = 2.0;   // bits per byte below which zstd's matches are cheap to find
constexpr size_t kWidest = 8;

// How a plane of few values was stored last. zstd finds repeats, a Huffman code is decoded two to
// three times as fast. Frames of one thread resemble each other, so only some of them are stored in
// both ways to see which is better.
struct FlatPlane {
  static constexpr unsigned kTryEvery = 16;
  unsigned frames = 0;
  bool coded = false;
};

// A plane that zstd stored in a few bytes (zeros, mostly) is often the same in the next frame, and
// is decoded only once.
struct KeptPlane {
  static constexpr size_t kLongest = 64;
  std::vector<uint8_t> stored, plane;
  bool is(std::span<const uint8_t> part, size_t elements) const {
    return !stored.empty() && plane.size() == elements &&
           std::equal(part.begin(), part.end(), stored.begin(), stored.end());
  }
};

struct Contexts {
  ZSTD_CCtx* matches = with_memory(ZSTD_createCCtx());
  std::array<FlatPlane, kWidest> flat;
  std::array<HuffmanEncoder, kWidest> codes;  // of each plane: neighbours resemble each other
  std::array<KeptPlane, kWidest> kept;
  std::vector<uint8_t> planes, scratch, packed;  // grow, and are not cleared
  Contexts() {
    ZSTD_CCtx_setParameter(matches, ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(matches, ZSTD_c_contentSizeFlag, 0);
  }
  ~Contexts() { ZSTD_freeCCtx(matches); }
};
Contexts& contexts() {
  thread_local Contexts c;
  return c;
}

void at_least(std::vector<uint8_t>* v, size_t n) {
  if (v->size() < n) v->resize(n);
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
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

[[gnu::target("avx2")]] inline __m256i load32(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// The other way. Each merge has one loop for AVX2 and one for SSE2, and the first returns how much
// it did.
[[gnu::target("avx2")]] size_t merge2_by_avx2(const uint8_t* even, const uint8_t* odd, size_t pairs,
                                              uint8_t* out) {
  size_t i = 0;
  for (; i + 32 <= pairs; i += 32) {
    const __m256i e = load32(even + i), o = load32(odd + i);
    const __m256i low = _mm256_unpacklo_epi8(e, o), high = _mm256_unpackhi_epi8(e, o);
    __m256i* to = reinterpret_cast<__m256i*>(out + 2 * i);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
  }
  return i;
}

void merge2(const uint8_t* even, const uint8_t* odd, size_t pairs, uint8_t* out) {
  size_t i = has_avx2() ? merge2_by_avx2(even, odd, pairs, out) : 0;
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

// Plane p of `width`-byte elements goes to planes[p * step]; `scratch` has room for all twice.
void split(const uint8_t* in, size_t elements, size_t width, uint8_t* const* planes, size_t step,
           uint8_t* scratch) {
  // Even bytes hold the even planes, odd bytes the odd ones; each half is split again at half the
  // width.
  size_t half = elements * width / 2;
  if (width == 2) {
    split2(in, half, planes[0], planes[step]);
    return;
  }
  split2(in, half, scratch, scratch + half);
  split(scratch, elements, width / 2, planes, 2 * step, scratch + 2 * half);
  split(scratch + half, elements, width / 2, planes + step, 2 * step, scratch + 2 * half);
}

[[gnu::target("avx2")]] size_t merge4_by_avx2(const uint8_t* a, const uint8_t* b, const uint8_t* c,
                                              const uint8_t* d, size_t elements, uint8_t* out) {
  size_t i = 0;
  for (; i + 32 <= elements; i += 32) {
    const __m256i va = load32(a + i), vb = load32(b + i), vc = load32(c + i), vd = load32(d + i);
    const __m256i ab_low = _mm256_unpacklo_epi8(va, vb), ab_high = _mm256_unpackhi_epi8(va, vb);
    const __m256i cd_low = _mm256_unpacklo_epi8(vc, vd), cd_high = _mm256_unpackhi_epi8(vc, vd);
    // The lower half of each has elements of the first sixteen, the upper half of the second.
    const __m256i p = _mm256_unpacklo_epi16(ab_low, cd_low);
    const __m256i q = _mm256_unpackhi_epi16(ab_low, cd_low);
    const __m256i r = _mm256_unpacklo_epi16(ab_high, cd_high);
    const __m256i s = _mm256_unpackhi_epi16(ab_high, cd_high);
    __m256i* to = reinterpret_cast<__m256i*>(out + 4 * i);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(p, q, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(r, s, 0x20));
    _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(p, q, 0x31));
    _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(r, s, 0x31));
  }
  return i;
}

// Merges four planes at once, so that no intermediate result is written to memory.
void merge4(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d, size_t elements,
            uint8_t* out) {
  auto load = [](const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  size_t i = has_avx2() ? merge4_by_avx2(a, b, c, d, elements, out) : 0;
  for (; i + 16 <= elements; i += 16) {
    const __m128i va = load(a + i), vb = load(b + i), vc = load(c + i), vd = load(d + i);
    const __m128i ab_low = _mm_unpacklo_epi8(va, vb), ab_high = _mm_unpackhi_epi8(va, vb);
    const __m128i cd_low = _mm_unpacklo_epi8(vc, vd), cd_high = _mm_unpackhi_epi8(vc, vd);
    __m128i* to = reinterpret_cast<__m128i*>(out + 4 * i);
    _mm_storeu_si128(to, _mm_unpacklo_epi16(ab_low, cd_low));
    _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(ab_low, cd_low));
    _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(ab_high, cd_high));
    _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(ab_high, cd_high));
  }
  for (; i < elements; ++i) {
    out[4 * i] = a[i];
    out[4 * i + 1] = b[i];
    out[4 * i + 2] = c[i];
    out[4 * i + 3] = d[i];
  }
}

void merge(const uint8_t* const* planes, size_t step, size_t elements, size_t width, uint8_t* out,
           uint8_t* scratch) {
  size_t half = elements * width / 2;
  if (width == 2) {
    merge2(planes[0], planes[step], half, out);
    return;
  }
  if (width == 4) {
    merge4(planes[0], planes[step], planes[2 * step], planes[3 * step], elements, out);
    return;
  }
  merge(planes, 2 * step, elements, width / 2, scratch, scratch + 2 * half);
  merge(planes + step, 2 * step, elements, width / 2, scratch + half, scratch + 2 * half);
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

size_t store_by_matches(Contexts* c, std::span<const uint8_t> plane, uint8_t* to, size_t room) {
  const size_t length = ZSTD_compress2(c->matches, to, room, plane.data(), plane.size());
  return ZSTD_isError(length) ? plane.size() : length;
}

// Stores a plane of few values: writes it to `to` and returns the length; `mode`: which way it is
// stored.
size_t store_flat(Contexts* c, size_t number, std::span<const uint8_t> plane, uint8_t* to,
                  size_t room, PlaneMode* mode) {
  // A Huffman code may be this many bytes longer and is still preferred.
  constexpr size_t kWorthSpeed = 32;
  FlatPlane& flat = c->flat[number];
  const bool try_both = flat.frames++ % FlatPlane::kTryEvery == 0;
  *mode = kZstd;
  if (!try_both && !flat.coded) return store_by_matches(c, plane, to, room);
  const size_t coded = c->codes[number].encode(plane, to);
  *mode = kHuffman;
  if (!try_both) return coded;
  at_least(&c->scratch, ZSTD_compressBound(plane.size()));
  const size_t matched = store_by_matches(c, plane, c->scratch.data(), c->scratch.size());
  flat.coded = coded <= matched + matched / kWorthSpeed;
  if (flat.coded) return coded;
  *mode = kZstd;
  memcpy(to, c->scratch.data(), matched);
  return matched;
}

}  // namespace

PlanePlan plan_planes(std::span<const uint8_t> bytes) {
  PlanePlan best;
  if (bytes.size() < 2 * kPieces * kPiece) return best;
  // One histogram per position modulo 8 answers for every width.
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

uint32_t compress_planes(std::span<const uint8_t> bytes, const PlanePlan& plan, size_t limit,
                         std::vector<uint8_t>* out) {
  if (plan.width == 0) return kCodecPlain;
  Contexts& c = contexts();
  const size_t width = plan.width, elements = bytes.size() / width, tail = bytes.size() % width;
  const size_t head_bytes = 1 + 5 * width;
  at_least(&c.planes, elements * width);
  at_least(&c.scratch, 2 * elements * width + 16);
  at_least(&c.packed, head_bytes + bytes.size() +
                          std::max(ZSTD_compressBound(elements), HuffmanEncoder::room(elements)));
  uint8_t* const to = c.packed.data();
  // The lowest planes are mostly noise: they are split directly to where they are stored.
  uint8_t* planes[kWidest];
  bool in_place = true;
  for (size_t p = 0; p < width; ++p) {
    in_place = in_place && (plan.raw_planes >> p & 1);
    planes[p] = (in_place ? to + head_bytes : c.planes.data()) + p * elements;
  }
  split(bytes.data(), elements, width, planes, 1, c.scratch.data());
  size_t head = 0, at = head_bytes;
  uint32_t codec = kCodecPlanes;
  to[head++] = static_cast<uint8_t>(width);
  for (size_t p = 0; p < width; ++p) {
    const std::span<const uint8_t> plane(planes[p], elements);
    PlaneMode mode = kRaw;
    size_t length = elements;
    if (plan.flat_planes >> p & 1) {
      length = store_flat(&c, p, plane, to + at, c.packed.size() - at, &mode);
    } else if (!(plan.raw_planes >> p & 1)) {
      mode = kHuffman;
      length = c.codes[p].encode(plane, to + at);
    }
    if (length >= elements) {
      mode = kRaw;
      length = elements;
    }
    if (at + length + tail > limit) return kCodecPlain;
    if (mode == kRaw && planes[p] != to + at) memcpy(to + at, plane.data(), elements);
    if (mode == kHuffman) codec = kCodecCodedPlanes;
    uint32_t stored = static_cast<uint32_t>(length);
    to[head++] = mode;
    memcpy(to + head, &stored, sizeof(stored));
    head += sizeof(stored);
    at += length;
  }
  if (tail) memcpy(to + at, bytes.data() + elements * width, tail);
  out->insert(out->end(), to, to + at + tail);
  return codec;
}

namespace {

// Where the plane is, which may be in `room`; null: `stored` is not such a plane.
const uint8_t* open_by_matches(KeptPlane* kept, std::span<const uint8_t> stored,
                               std::span<uint8_t> room) {
  if (stored.size() <= KeptPlane::kLongest) {
    if (kept->is(stored, room.size())) return kept->plane.data();
    kept->stored.clear();
    kept->plane.resize(room.size());
    room = kept->plane;
  }
  const size_t n = zstd_open(stored, room);
  if (ZSTD_isError(n) || n != room.size()) {
    if (room.data() == kept->plane.data()) kept->plane.clear();
    return nullptr;
  }
  if (room.data() == kept->plane.data()) kept->stored.assign(stored.begin(), stored.end());
  return room.data();
}

}  // namespace

bool decompress_planes(uint32_t codec, std::span<const uint8_t> stored, std::span<uint8_t> plain) {
  if (stored.empty()) return false;
  const size_t width = stored[0];
  if ((width != 2 && width != 4 && width != 8) || stored.size() < 1 + 5 * width) return false;
  const size_t elements = plain.size() / width, tail = plain.size() % width;
  if (elements == 0) return false;
  Contexts& c = contexts();
  at_least(&c.planes, elements * width);
  at_least(&c.scratch, 2 * elements * width + 16);
  const uint8_t* planes[kWidest];
  size_t head = 1, at = 1 + 5 * width;
  for (size_t p = 0; p < width; ++p) {
    uint8_t mode = stored[head];
    uint32_t length;
    memcpy(&length, stored.data() + head + 1, sizeof(length));
    head += 5;
    if (length > stored.size() - at) return false;
    const std::span<const uint8_t> part = stored.subspan(at, length);
    const std::span<uint8_t> plane(c.planes.data() + p * elements, elements);
    planes[p] = plane.data();
    at += length;
    if (mode == kRaw) {
      if (length != elements) return false;
      planes[p] = part.data();
    } else if (mode == kZstd) {
      planes[p] = open_by_matches(&c.kept[p], part, plane);
      if (!planes[p]) return false;
    } else if (mode != kHuffman || codec != kCodecCodedPlanes || !huffman_decode(part, plane)) {
      return false;
    }
  }
  if (stored.size() - at != tail) return false;
  merge(planes, 1, elements, width, plain.data(), c.scratch.data());
  if (tail) memcpy(plain.data() + elements * width, stored.data() + at, tail);
  return true;
}

}  // namespace gpuckpt::store
