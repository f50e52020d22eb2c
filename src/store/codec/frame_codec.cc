#include "store/codec/frame_codec.h"

#include <lz4.h>
#include <lz4hc.h>
#include <stdlib.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "store/codec/planes.h"
#include "store/codec/zstd_context.h"
#include "store/io/memory.h"

namespace gpuckpt::store {

const char* const kUnknownCodec = "its codec is unknown to this gpuckpt: use a newer one";

namespace {

// The longest result worth keeping: less than 3 % saved does not pay for the decompression at
// restore.
size_t worth(size_t plain) { return plain - plain / 32; }

// zstd's level 1 finds short repetitions, of which each takes its time to decode. With its search
// for two lengths (as level 2 has), but none below 7 bytes, and tables that stay in the first-level
// cache, a frame is up to 6 % shorter, decoded in 4 to 16 % less time, and takes 4 to 12 % longer
// to encode. (docs/decisions/0004-codecs.md)
struct FrameSearch {
  ZSTD_cParameter parameter;
  int value;
};
constexpr FrameSearch kQuickSearch[] = {{ZSTD_c_strategy, ZSTD_dfast},
                                        {ZSTD_c_minMatch, 7},
                                        {ZSTD_c_hashLog, 13},
                                        {ZSTD_c_chainLog, 13}};

// The thread's context for frames, which keeps its parameters from call to call.
ZSTD_CCtx* frame_compressor(int level) {
  struct Kept {
    ZSTD_CCtx* zstd = with_memory(ZSTD_createCCtx());
    int level = 0;
    ~Kept() { ZSTD_freeCCtx(zstd); }
  };
  thread_local Kept kept;
  if (kept.level == level) return kept.zstd;
  ZSTD_CCtx_reset(kept.zstd, ZSTD_reset_session_and_parameters);
  ZSTD_CCtx_setParameter(kept.zstd, ZSTD_c_compressionLevel, level);
  if (level == 1)
    for (const FrameSearch& s : kQuickSearch)
      ZSTD_CCtx_setParameter(kept.zstd, s.parameter, s.value);
  kept.level = level;
  return kept.zstd;
}

// Returns the compressed length; as long as `plain` or longer: not worth keeping. `out` may be
// null.
size_t zstd_to(std::span<const uint8_t> plain, int level, std::vector<uint8_t>* out) {
  thread_local std::vector<uint8_t> packed;  // grows, and is not cleared
  if (packed.size() < ZSTD_compressBound(plain.size()))
    packed.resize(ZSTD_compressBound(plain.size()));
  size_t n = ZSTD_compress2(frame_compressor(level), packed.data(), packed.size(), plain.data(),
                            plain.size());
  if (ZSTD_isError(n)) return plain.size();
  if (out && n < worth(plain.size())) out->assign(packed.data(), packed.data() + n);
  return n;
}

constexpr size_t kSampledFrom = 64 * 1024;
constexpr double kHopeless = 7.98;  // bits per byte: not even a part of it can be shortened

// Bits per byte that zstd needs for a few samples: it sees repetitions that counting bytes does
// not.
double sampled_zstd_bits(std::span<const uint8_t> plain, int level) {
  thread_local std::vector<uint8_t> sample;
  constexpr size_t kPieces = 4, kPiece = 4096;
  sample.clear();
  for (size_t i = 0; i < kPieces; ++i) {
    auto piece = plain.subspan((plain.size() - kPiece) / (kPieces - 1) * i, kPiece);
    sample.insert(sample.end(), piece.begin(), piece.end());
  }
  return 8.0 * static_cast<double>(zstd_to(sample, level, nullptr)) /
         static_cast<double>(sample.size());
}

// Returns false if the result is not worth keeping. From level 3 on it searches for longer
// repetitions (LZ4 HC): a seventh of the speed and less, for what is a quarter shorter.
bool lz4_to(std::span<const uint8_t> plain, int level, std::vector<uint8_t>* out) {
  thread_local void* const state =
      with_memory(malloc(static_cast<size_t>(std::max(LZ4_sizeofState(), LZ4_sizeofStateHC()))));
  out->resize(worth(plain.size()));
  const auto* from = reinterpret_cast<const char*>(plain.data());
  auto* to = reinterpret_cast<char*>(out->data());
  const int bytes = static_cast<int>(plain.size()), room = static_cast<int>(out->size());
  const int n = level < LZ4HC_CLEVEL_MIN
                    ? LZ4_compress_fast_extState(state, from, to, bytes, room, 1)
                    : LZ4_compress_HC_extStateHC(state, from, to, bytes, room, level);
  out->resize(static_cast<size_t>(std::max(n, 0)));
  return n > 0;
}

double bits_of(std::span<const uint8_t> plain, const std::vector<uint8_t>& out) {
  return 8.0 * static_cast<double>(out.size()) / static_cast<double>(plain.size());
}

// The same for LZ4, of one long sample, because it finds repetitions within 64 KiB.
double sampled_lz4_bits(std::span<const uint8_t> plain, int level) {
  thread_local std::vector<uint8_t> packed;
  constexpr size_t kPiece = 32 << 10;
  const auto piece = plain.subspan((plain.size() - kPiece) / 2, kPiece);
  return lz4_to(piece, level, &packed) ? bits_of(piece, packed) : 8;
}

// Neighbouring frames resemble each other: a codec that paid for one frame is tried on the next few
// without a new estimate, and kept while it pays as much.
struct Habit {
  PlanePlan plan;  // width 0: the codec that `otherwise` stands for
  double bits = 0;
  int left = 0;
};
constexpr int kTrust = 15;

// Compresses by habit; kCodecPlain: there is none, or it does not pay any more. `planes` and
// `otherwise` return a codec.
template <typename Planes, typename Otherwise>
uint32_t again(Habit* habit, std::span<const uint8_t> plain, std::vector<uint8_t>* out,
               Planes planes, Otherwise otherwise) {
  if (habit->left == 0) return kCodecPlain;
  --habit->left;
  const bool by_planes = habit->plan.width != 0;
  const uint32_t codec = by_planes ? planes(habit->plan) : otherwise();
  if (codec != kCodecPlain) {
    const double change = bits_of(plain, *out) / habit->bits;
    if (by_planes ? std::abs(change - 1) < 0.02 : change < 1.1) return codec;
  }
  habit->left = 0;
  out->clear();
  return kCodecPlain;
}

uint32_t compress_balanced(std::span<const uint8_t> plain, int level, std::vector<uint8_t>* out) {
  thread_local Habit habit;
  out->clear();
  auto planes = [&](const PlanePlan& plan) {
    return compress_planes(plain, plan, worth(plain.size()), out);
  };
  auto zstd = [&] {
    return zstd_to(plain, level, out) < worth(plain.size()) ? kCodecZstd : kCodecPlain;
  };
  if (const uint32_t codec = again(&habit, plain, out, planes, zstd); codec != kCodecPlain)
    return codec;
  const bool sampled = plain.size() >= kSampledFrom;
  if (sampled) {
    PlanePlan plan = plan_planes(plain);
    double zstd_bits = sampled_zstd_bits(plain, level);
    // Of two about equally short results planes are chosen: they are decoded several times as fast.
    if (plan.width != 0 && plan.bits_per_byte < 1.02 * zstd_bits) {
      if (const uint32_t codec = planes(plan); codec != kCodecPlain) {
        habit = {plan, bits_of(plain, *out), kTrust};
        return codec;
      }
    }
    if (zstd_bits > kHopeless) return kCodecPlain;
  }
  if (zstd() == kCodecPlain) return kCodecPlain;
  if (sampled) habit = {{}, bits_of(plain, *out), kTrust};
  return kCodecZstd;
}

// Tries all codecs and keeps the shortest result, however long that takes.
uint32_t compress_to_least(std::span<const uint8_t> plain, int level, std::vector<uint8_t>* out) {
  thread_local std::vector<uint8_t> planes;
  uint32_t codec = kCodecPlain;
  planes.clear();
  if (plain.size() >= kSampledFrom)
    if (const PlanePlan plan = plan_planes(plain); plan.width != 0)
      codec = compress_planes(plain, plan, worth(plain.size()), &planes);
  const size_t zstd = zstd_to(plain, level, out);
  if (codec != kCodecPlain && planes.size() < zstd) {
    out->swap(planes);
    return codec;
  }
  return zstd < worth(plain.size()) ? kCodecZstd : kCodecPlain;
}

// Nanoseconds that a byte costs at restore: read from a disk of 2 GB/s, and decoded by two
// processors.
double way_back(double bits, double decode) {
  constexpr double kRead = 0.5, kProcessors = 2;
  return bits / 8 * kRead + decode / kProcessors;
}

uint32_t compress_for_restore(std::span<const uint8_t> plain, int level,
                              std::vector<uint8_t>* out) {
  // Nanoseconds for a byte on one processor.
  constexpr double kDecodePlanes = 0.3, kDecodeLz4 = 0.22;
  thread_local Habit habit;
  const double best = way_back(8, 0) * 0.97;
  out->clear();
  auto pays = [&](double decode) { return way_back(bits_of(plain, *out), decode) < best; };
  auto planes = [&](const PlanePlan& plan) {
    const uint32_t codec = compress_planes(plain, plan, worth(plain.size()), out);
    return codec != kCodecPlain && pays(kDecodePlanes) ? codec : uint32_t{kCodecPlain};
  };
  auto lz4 = [&] {
    return lz4_to(plain, level, out) && pays(kDecodeLz4) ? kCodecLz4 : kCodecPlain;
  };
  if (plain.size() < kSampledFrom) return lz4();
  if (const uint32_t codec = again(&habit, plain, out, planes, lz4); codec != kCodecPlain)
    return codec;
  const PlanePlan plan = plan_planes(plain);
  const double by_lz4 = way_back(sampled_lz4_bits(plain, level), kDecodeLz4);
  if (plan.width != 0 && way_back(plan.bits_per_byte, kDecodePlanes) < std::min(by_lz4, best)) {
    if (const uint32_t codec = planes(plan); codec != kCodecPlain) {
      habit = {plan, bits_of(plain, *out), kTrust};
      return codec;
    }
    out->clear();
  }
  if (by_lz4 >= best || lz4() == kCodecPlain) return kCodecPlain;
  habit = {{}, bits_of(plain, *out), kTrust};
  return kCodecLz4;
}

}  // namespace

uint32_t compress_frame(std::span<const uint8_t> plain, int level, std::vector<uint8_t>* out,
                        Purpose purpose) {
  switch (purpose) {
    case Purpose::kRestore:
      return compress_for_restore(plain, level, out);
    case Purpose::kSize:
      return compress_to_least(plain, level, out);
    default:
      return compress_balanced(plain, level, out);
  }
}

const char* decompress_frame(uint32_t codec, std::span<const uint8_t> stored,
                             std::span<uint8_t> plain) {
  switch (codec) {
    case kCodecPlain:
      if (stored.size() != plain.size()) return "its lengths differ";
      memcpy(plain.data(), stored.data(), stored.size());
      return nullptr;
    case kCodecZstd: {
      size_t n = zstd_open(stored, plain);
      return ZSTD_isError(n) || n != plain.size() ? "it does not decompress" : nullptr;
    }
    case kCodecPlanes:
    case kCodecCodedPlanes:
      return decompress_planes(codec, stored, plain) ? nullptr : "its planes do not fit together";
    case kCodecLz4: {
      const int n = LZ4_decompress_safe(
          reinterpret_cast<const char*>(stored.data()), reinterpret_cast<char*>(plain.data()),
          static_cast<int>(stored.size()), static_cast<int>(plain.size()));
      return n < 0 || static_cast<size_t>(n) != plain.size() ? "it does not decompress" : nullptr;
    }
    default:
      return kUnknownCodec;
  }
}

}  // namespace gpuckpt::store
