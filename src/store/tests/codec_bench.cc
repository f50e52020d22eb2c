// Ratio and speed of the codecs on the shapes that tensors have, against zstd and lz4 on the same
// bytes in the same run: store_codec_bench [MiB per shape [FILE...]]. One core. Weights and moments
// come from a small network that is trained here with Adam. Each file, the memory of some program,
// is a shape of its own.

#include <lz4.h>
#include <time.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "store/codec/frame_codec.h"
#include "store/format/pack.h"

using namespace gpuckpt::store;

namespace {

using Bytes = std::vector<uint8_t>;

// CPU time of this thread: others on the machine do not count.
double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values, size_t limit) {
  Bytes out(std::min(limit, values.size() * sizeof(T)));
  memcpy(out.data(), values.data(), out.size());
  return out;
}

Bytes bf16_of(const std::vector<float>& values, size_t limit) {
  std::vector<uint16_t> out;
  for (float v : values) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    out.push_back(static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
  }
  return bytes_of(out, limit);
}

// Two layers, learning a random teacher. What is wanted is not the loss but how numbers look after
// real steps of a real optimizer.
struct Trained {
  std::vector<float> weights, first, second, activations;
};
Trained train(size_t inputs, size_t hidden, int steps) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Trained t;
  const size_t n = inputs * hidden;
  t.weights.resize(n);
  t.first.assign(n, 0);
  t.second.assign(n, 0);
  for (float& w : t.weights) w = normal(random) / std::sqrt(static_cast<float>(inputs));
  std::vector<float> out_weights(hidden), teacher(inputs), x(inputs), h(hidden);
  for (float& w : out_weights) w = normal(random) / std::sqrt(static_cast<float>(hidden));
  for (float& w : teacher) w = normal(random) / std::sqrt(static_cast<float>(inputs));
  for (int step = 1; step <= steps; ++step) {
    float wanted = 0, got = 0;
    for (size_t i = 0; i < inputs; ++i) wanted += teacher[i] * (x[i] = normal(random));
    for (size_t j = 0; j < hidden; ++j) {
      float sum = 0;
      for (size_t i = 0; i < inputs; ++i) sum += t.weights[j * inputs + i] * x[i];
      h[j] = std::max(0.0f, sum);
      t.activations.push_back(sum / (1 + std::exp(-sum)));
      got += out_weights[j] * h[j];
    }
    const float error = got - wanted;
    const float c1 = 1 - std::pow(0.9f, static_cast<float>(step));
    const float c2 = 1 - std::pow(0.999f, static_cast<float>(step));
    for (size_t j = 0; j < hidden; ++j) {
      float dh = h[j] > 0 ? error * out_weights[j] : 0;
      for (size_t i = 0; i < inputs; ++i) {
        size_t k = j * inputs + i;
        float g = dh * x[i];
        t.first[k] = 0.9f * t.first[k] + 0.1f * g;
        t.second[k] = 0.999f * t.second[k] + 0.001f * g * g;
        t.weights[k] -= 1e-3f * (t.first[k] / c1) / (std::sqrt(t.second[k] / c2) + 1e-8f);
      }
    }
  }
  return t;
}

struct Result {
  double ratio, compress, decompress;
};
constexpr size_t kStep = kFrameBytes;

// Words and numbers in the order of chance.
Bytes words(size_t limit, std::mt19937* random) {
  static const char* const kWords[] = {
      "the ", "of ", "checkpoint ", "memory ", "process ", "a ",  "restores ", "page ",
      "and ", "is ", "store ",      "while ",  "device ",  "in ", "copy ",     "snapshot "};
  std::string out;
  while (out.size() < limit)
    out += (*random)() % 8 ? kWords[(*random)() % 16] : std::to_string((*random)() % 65536) + " ";
  return Bytes(out.begin(), out.begin() + static_cast<ptrdiff_t>(limit));
}

Bytes contents_of(const char* path) {
  FILE* const file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(1);
  }
  Bytes out, piece(1 << 20);
  while (size_t n = fread(piece.data(), 1, piece.size(), file))
    out.insert(out.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(n));
  fclose(file);
  return out;
}

Result measure(const Bytes& data, const std::function<size_t(const uint8_t*, size_t, Bytes*)>& pack,
               const std::function<void(const Bytes&, size_t, uint8_t*, size_t)>& unpack) {
  Result best{0, 0, 0};
  for (int round = 0; round < 3; ++round) {
    double packing = 0, unpacking = 0;
    size_t stored = 0;
    Bytes packed, plain(kStep);
    for (size_t at = 0; at < data.size(); at += kStep) {
      size_t n = std::min(kStep, data.size() - at);
      double t0 = now();
      size_t m = pack(data.data() + at, n, &packed);
      double t1 = now();
      unpack(packed, m, plain.data(), n);
      unpacking += now() - t1;
      packing += t1 - t0;
      stored += m;
      if (memcmp(plain.data(), data.data() + at, n) != 0) {
        fprintf(stderr, "bytes differ\n");
        exit(1);
      }
    }
    double gb = static_cast<double>(data.size()) / 1e9;
    best.ratio = static_cast<double>(stored) / static_cast<double>(data.size());
    best.compress = std::max(best.compress, gb / packing);
    best.decompress = std::max(best.decompress, gb / unpacking);
  }
  return best;
}

void report(const std::string& shape, const Bytes& data) {
  auto zstd = [&](int level) {
    static ZSTD_CCtx* c = ZSTD_createCCtx();
    static ZSTD_DCtx* d = ZSTD_createDCtx();
    return measure(
        data,
        [level](const uint8_t* in, size_t n, Bytes* out) {
          out->resize(ZSTD_compressBound(n));
          return ZSTD_compressCCtx(c, out->data(), out->size(), in, n, level);
        },
        [](const Bytes& in, size_t m, uint8_t* out, size_t n) {
          ZSTD_decompressDCtx(d, out, n, in.data(), m);
        });
  };
  Result lz4 = measure(
      data,
      [](const uint8_t* in, size_t n, Bytes* out) {
        out->resize(static_cast<size_t>(LZ4_compressBound(static_cast<int>(n))));
        return static_cast<size_t>(LZ4_compress_default(
            reinterpret_cast<const char*>(in), reinterpret_cast<char*>(out->data()),
            static_cast<int>(n), static_cast<int>(out->size())));
      },
      [](const Bytes& in, size_t m, uint8_t* out, size_t n) {
        LZ4_decompress_safe(reinterpret_cast<const char*>(in.data()), reinterpret_cast<char*>(out),
                            static_cast<int>(m), static_cast<int>(n));
      });
  uint64_t codecs[kCodecLz4 + 1] = {};
  uint32_t codec = 0;
  Result ours = measure(
      data,
      [&](const uint8_t* in, size_t n, Bytes* out) {
        codec = compress_frame({in, n}, 1, out);
        ++codecs[codec];
        if (codec == kCodecPlain) out->assign(in, in + n);
        return out->size();
      },
      [&](const Bytes& in, size_t m, uint8_t* out, size_t n) {
        if (decompress_frame(codec, {in.data(), m}, {out, n})) abort();
      });
  Result one = zstd(1), three = zstd(3);
  size_t most =
      static_cast<size_t>(std::max_element(std::begin(codecs), std::end(codecs)) - codecs);
  printf(
      "%-28s %-6s %5.1f %% %5.2f %5.2f | %5.1f %% %5.2f %5.2f | %5.1f %% %5.2f | %5.1f %% %5.2f | "
      "x%.1f\n",
      shape.c_str(), codec_name(static_cast<uint32_t>(most)).c_str(), 100 * ours.ratio,
      ours.compress, ours.decompress, 100 * one.ratio, one.compress, one.decompress,
      100 * three.ratio, three.compress, 100 * lz4.ratio, lz4.compress,
      ours.compress / one.compress);
}

}  // namespace

int main(int argc, char** argv) {
  size_t limit = static_cast<size_t>(argc > 1 ? atof(argv[1]) * (1 << 20) : 4 << 20);
  size_t hidden = std::max<size_t>(64, limit / 4 / 1024);
  Trained t = train(1024, hidden, 30);
  printf(
      "%-28s %-6s %-21s | %-21s | %-13s | %-13s | GB/s per core; last: packing against zstd -1\n",
      "shape", "codec", "gpuckpt in out", "zstd -1 in out", "zstd -3", "lz4");
  report("bf16 weights", bf16_of(t.weights, limit));
  report("fp32 weights", bytes_of(t.weights, limit));
  report("Adam first moment, fp32", bytes_of(t.first, limit));
  report("Adam second moment, fp32", bytes_of(t.second, limit));
  std::vector<float> activations;
  while (activations.size() * 4 < limit)
    activations.insert(activations.end(), t.activations.begin(), t.activations.end());
  // Not repeated: a repetition would favour compressors that look for matches.
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (size_t i = t.activations.size(); i < activations.size(); ++i)
    activations[i] *= 1 + 0.1f * normal(random);
  report("fp32 activations (SiLU)", bytes_of(activations, limit));
  Bytes embedding = bytes_of(t.first, limit);  // rows of 4 KiB, few ever touched
  for (size_t row = 0; row + 4096 <= embedding.size(); row += 4096) {
    if (random() % 20 != 0) memset(&embedding[row], 0, 4096);
  }
  report("embedding moments, 5 % used", embedding);
  Bytes cache = bf16_of(t.weights, limit);
  memset(cache.data() + cache.size() / 8, 0, cache.size() - cache.size() / 8);
  report("KV cache, 1/8 used", cache);
  std::vector<int64_t> tokens(limit / 8);
  for (int64_t& token : tokens) token = static_cast<int64_t>(random() % 50257);
  report("int64 token ids", bytes_of(tokens, limit));
  Bytes noise(limit);
  for (uint8_t& b : noise) b = static_cast<uint8_t>(random());
  report("noise", noise);
  report("words", words(limit, &random));
  for (int i = 2; i < argc; ++i) report(argv[i], contents_of(argv[i]));
  return 0;
}
