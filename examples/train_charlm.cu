// Trains a small character language model on a text file: the classic neural n-gram (Bengio et al.,
// 2003) with two hidden layers. The last `context` characters are embedded, concatenated and sent
// through two tanh layers; a softmax predicts the next character. Forward, backward and Adam are
// the kernels below; nothing but the CUDA runtime is needed.
//
//   train_charlm [options] [TEXT]      (default text: a licence every Debian machine has)
//
// Three streams work together: `copy_` uploads the next batch from pinned memory, `compute_` runs
// forward and backward, `update_` computes weight gradients and applies Adam to a layer while the
// backward pass goes on below it. Events order them. Every sum is computed in a fixed order, so
// that two runs print the same losses and the same digest to the last bit, on whatever machine:
// that is how one sees that a restored run is the same run.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <string>
#include <vector>

#define CUDA_CHECK(call)                                                  \
  do {                                                                    \
    cudaError_t error_ = (call);                                          \
    if (error_ != cudaSuccess) {                                          \
      fprintf(stderr, "train_charlm: line %d: %s: %s\n", __LINE__, #call, \
              cudaGetErrorString(error_));                                \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

// -------------------------------------------------------------------------------------------
// kernels

constexpr int kTile = 32;    // a block of matmul computes kTile x kTile results
constexpr int kSlice = 16;   // reading kSlice rows of both factors at a time
constexpr int kSide = 16;    // with kSide x kSide threads, 2 x 2 results each
constexpr int kBlock = 128;  // threads of the other kernels
constexpr int kWarp = 32;

struct AdamSettings {
  float rate, beta1, beta2, epsilon;
};
__constant__ AdamSettings adam_settings;

__device__ float warpSum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_down_sync(~0u, x, offset);
  return x;
}
__device__ float warpMax(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_down_sync(~0u, x, offset));
  }
  return x;
}

// The sum (or maximum) over the block, known to all its threads.
template <float (*kWarpReduce)(float)>
__device__ float blockReduce(float x, float neutral) {
  __shared__ float partial[kBlock / kWarp];
  int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  x = kWarpReduce(x);
  __syncthreads();  // the last reduction's results have been read
  if (lane == 0) partial[warp] = x;
  __syncthreads();
  x = kWarpReduce(lane < kBlock / kWarp ? partial[lane] : neutral);
  return __shfl_sync(~0u, x, 0);
}

// c[m][n] = A B + bias, where A is a[m][k] or, transposed, a[k][m]; B is b[k][n] or b[n][k].
// bias[n] may be null.
template <bool kTransposeA, bool kTransposeB>
__global__ void matmul(int m, int n, int k, const float* a, const float* b, const float* bias,
                       float* c) {
  __shared__ float a_tile[kSlice][kTile + 1];
  __shared__ float b_tile[kSlice][kTile + 1];
  int row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile;
  int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
  float sum[2][2] = {};
  for (int k0 = 0; k0 < k; k0 += kSlice) {
    for (int i = threadIdx.x; i < kSlice * kTile; i += kSide * kSide) {
      // Neighbouring threads read neighbouring addresses, whichever way the factor lies.
      int ka = kTransposeA ? i / kTile : i % kSlice, row = kTransposeA ? i % kTile : i / kSlice;
      int kb = kTransposeB ? i % kSlice : i / kTile, column = kTransposeB ? i / kSlice : i % kTile;
      bool in_a = k0 + ka < k && row0 + row < m;
      bool in_b = k0 + kb < k && column0 + column < n;
      a_tile[ka][row] = !in_a         ? 0.f
                        : kTransposeA ? a[(k0 + ka) * m + row0 + row]
                                      : a[(row0 + row) * k + k0 + ka];
      b_tile[kb][column] = !in_b         ? 0.f
                           : kTransposeB ? b[(column0 + column) * k + k0 + kb]
                                         : b[(k0 + kb) * n + column0 + column];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSlice; ++i) {
      float a0 = a_tile[i][ty], a1 = a_tile[i][ty + kSide];
      float b0 = b_tile[i][tx], b1 = b_tile[i][tx + kSide];
      sum[0][0] += a0 * b0;
      sum[0][1] += a0 * b1;
      sum[1][0] += a1 * b0;
      sum[1][1] += a1 * b1;
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      int row = row0 + ty + i * kSide, column = column0 + tx + j * kSide;
      if (row < m && column < n) {
        c[row * n + column] = sum[i][j] + (bias != nullptr ? bias[column] : 0.f);
      }
    }
  }
}

// x[position][e] = table[character at position][e]
__global__ void embed(int count, int width, const int* characters, const float* table, float* x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count * width) x[i] = table[characters[i / width] * width + i % width];
}

// Gradient of the embedding table, one block per character: the sum over the positions where it
// occurs, which the batch lists, so that no atomics are needed and the order is fixed.
__global__ void embedBackward(int width, const int* first, const int* positions, const float* dx,
                              float* dtable) {
  int character = blockIdx.x;
  for (int e = threadIdx.x; e < width; e += blockDim.x) {
    float sum = 0.f;
    for (int i = first[character]; i < first[character + 1]; ++i)
      sum += dx[positions[i] * width + e];
    dtable[character * width + e] = sum;
  }
}

__global__ void tanhForward(int count, float* x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = tanhf(x[i]);
}

__global__ void tanhBackward(int count, const float* y, float* dy) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) dy[i] *= 1.f - y[i] * y[i];
}

// One block per example: its loss, and in place of the logits their gradient.
__global__ void softmaxLoss(int classes, float scale, const int* targets, float* logits,
                            float* losses) {
  float* row = logits + blockIdx.x * classes;
  int target = targets[blockIdx.x];
  float top = -INFINITY;
  for (int i = threadIdx.x; i < classes; i += kBlock) top = fmaxf(top, row[i]);
  top = blockReduce<warpMax>(top, -INFINITY);
  float sum = 0.f;
  for (int i = threadIdx.x; i < classes; i += kBlock) sum += expf(row[i] - top);
  sum = blockReduce<warpSum>(sum, 0.f);
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) + top - row[target];
  __syncthreads();
  for (int i = threadIdx.x; i < classes; i += kBlock) {
    row[i] = (expf(row[i] - top) / sum - (i == target ? 1.f : 0.f)) * scale;
  }
}

__global__ void mean(int count, const float* x, float* out) {
  float sum = 0.f;
  for (int i = threadIdx.x; i < count; i += kBlock) sum += x[i];
  sum = blockReduce<warpSum>(sum, 0.f);
  if (threadIdx.x == 0) *out = sum / count;
}

// out[column] = sum over rows; one thread per column.
__global__ void columnSums(int rows, int columns, const float* x, float* out) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.f;
  for (int row = 0; row < rows; ++row) sum += x[row * columns + column];
  out[column] = sum;
}

// `correction` holds 1 - beta^t for both moments.
__global__ void adam(int count, float2 correction, const float* gradient, float* m, float* v,
                     float* weight) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const AdamSettings& s = adam_settings;
  float g = gradient[i];
  m[i] = s.beta1 * m[i] + (1.f - s.beta1) * g;
  v[i] = s.beta2 * v[i] + (1.f - s.beta2) * g * g;
  weight[i] -= s.rate * (m[i] / correction.x) / (sqrtf(v[i] / correction.y) + s.epsilon);
}

// A hash of every bit of the weights. Each is mixed with its place and the results are added: the
// order does not matter.
__global__ void digest(int count, const float* weights, unsigned long long* out) {
  unsigned long long sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    unsigned long long h = (static_cast<unsigned long long>(i) << 32) | __float_as_uint(weights[i]);
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    sum += h ^ (h >> 31);
  }
  atomicAdd(out, sum);
}

// ---------------------------------------------------------------------------------- options and
// text

struct Options {
  int steps = 200;
  int batch = 64;
  int context = 8;
  int embedding = 16;
  int hidden = 96;
  float rate = 0.008f;
  uint64_t seed = 1;
  int pace_ms = 0;
  const char* log = nullptr;
  const char* text = nullptr;
};

[[noreturn]] void usage(int status) {
  fprintf(status == 0 ? stdout : stderr,
          "usage: train_charlm [options] [TEXT]\n"
          "  --steps N      training steps (200)\n"
          "  --batch N      examples per step (64)\n"
          "  --context N    characters the model sees (8)\n"
          "  --embedding N  numbers per character (16)\n"
          "  --hidden N     width of both hidden layers (96)\n"
          "  --rate X       Adam's learning rate (0.008)\n"
          "  --seed N       weights and order of examples (1)\n"
          "  --pace-ms N    wait at least this long from step to step (0)\n"
          "  --log FILE     write the log there instead of to standard output\n");
  exit(status);
}

int positive(const char* text) {
  char* end;
  long value = strtol(text, &end, 10);
  if (*end != '\0' || value < 1 || value > 1 << 24) usage(2);
  return static_cast<int>(value);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") usage(0);
    if (name.rfind("--", 0) != 0) {
      if (o.text != nullptr) usage(2);
      o.text = argv[i];
      continue;
    }
    if (++i == argc) usage(2);
    const char* value = argv[i];
    if (name == "--steps") {
      o.steps = positive(value);
    } else if (name == "--batch") {
      o.batch = positive(value);
    } else if (name == "--context") {
      o.context = positive(value);
    } else if (name == "--embedding") {
      o.embedding = positive(value);
    } else if (name == "--hidden") {
      o.hidden = positive(value);
    } else if (name == "--rate") {
      o.rate = strtof(value, nullptr);
    } else if (name == "--seed") {
      o.seed = strtoull(value, nullptr, 10);
    } else if (name == "--pace-ms") {
      o.pace_ms = atoi(value);
    } else if (name == "--log") {
      o.log = value;
    } else {
      usage(2);
    }
  }
  return o;
}

std::string readFile(const char* path) {
  std::string text;
  FILE* file = fopen(path, "rb");
  if (file == nullptr) return text;
  char buffer[65536];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), file)) > 0;) text.append(buffer, n);
  fclose(file);
  return text;
}

// The text as numbers 0 .. vocabulary-1, one for each different byte in it.
struct Corpus {
  std::vector<uint8_t> characters;
  int vocabulary = 0;

  explicit Corpus(const Options& o) {
    static const char* const kDefaults[] = {
        "/usr/share/common-licenses/GPL-3", "/usr/share/common-licenses/Apache-2.0",
        "/usr/share/common-licenses/GPL-2", "/usr/share/doc/libc6/copyright"};
    std::string text;
    if (o.text != nullptr) text = readFile(o.text);
    for (const char* path : kDefaults) {
      if (o.text == nullptr && text.empty()) text = readFile(path);
    }
    if (text.size() <= static_cast<size_t>(o.context) + 1) {
      fprintf(stderr, "train_charlm: %s: no text, or too short\n",
              o.text ? o.text : "default text");
      exit(1);
    }
    int number[256] = {};
    for (unsigned char c : text) number[c] = 1;
    for (int& n : number) n = n ? vocabulary++ : -1;
    for (unsigned char c : text) characters.push_back(static_cast<uint8_t>(number[c]));
  }
};

// splitmix64: the whole state is one number.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  float uniform() { return static_cast<float>(next() >> 40) / 8388608.f - 1.f; }  // -1 .. 1
};

// --------------------------------------------------------------------------------------------
// trainer

// One kind of weights and where it lies in the flat arrays of weights, gradients and moments.
struct Block {
  int offset, count;
};

// Offsets, in ints, of the parts of a batch; host and device copies look alike.
struct BatchLayout {
  int characters, targets, first, positions, total;
  BatchLayout(const Options& o, int vocabulary)
      : characters(0),
        targets(characters + o.batch * o.context),
        first(targets + o.batch),
        positions(first + vocabulary + 1),
        total(positions + o.batch * o.context) {}
};

template <typename T>
T* deviceArray(size_t count) {
  T* p;
  CUDA_CHECK(cudaMalloc(&p, count * sizeof(T)));
  CUDA_CHECK(cudaMemset(p, 0, count * sizeof(T)));
  return p;
}

template <typename T>
T* pinnedArray(size_t count) {
  T* p;
  CUDA_CHECK(cudaMallocHost(&p, count * sizeof(T)));
  return p;
}

int blocksFor(int threads) { return (threads + kBlock - 1) / kBlock; }

class Trainer {
 public:
  Trainer(const Options& options, const Corpus& corpus);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Queues one step. Its loss can be had by loss() of the same step, until two steps later.
  void step(int number);
  float loss(int step_number);
  unsigned long long weightDigest();
  int parameters() const { return parameters_; }

 private:
  struct Slot {  // two of everything that belongs to one step, so that two steps can be under way
    int* host_batch;
    int* batch;
    float* host_loss;
    cudaEvent_t uploaded, done;
  };

  Block reserve(int count) {
    Block block{parameters_, count};
    parameters_ += count;
    return block;
  }
  void initialise(const Block& block, float scale, std::vector<float>* weights);
  void sampleBatch(int* batch);
  void forward(const Slot& slot);
  void backward(const Slot& slot, int number);
  // Weight gradients and Adam of one dense layer, behind all that `compute_` has queued.
  void updateLayer(const Block& weight, const Block& bias, int inputs, int outputs, const float* x,
                   const float* dy, int number);
  void applyAdam(const Block& block, int number);

  template <bool kTransposeA, bool kTransposeB>
  void multiply(cudaStream_t stream, int m, int n, int k, const float* a, const float* b,
                const float* bias, float* c) {
    dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
    matmul<kTransposeA, kTransposeB><<<grid, kSide * kSide, 0, stream>>>(m, n, k, a, b, bias, c);
  }

  const Options& o_;
  const Corpus& corpus_;
  BatchLayout layout_;
  Random random_;
  int inputs_, vocabulary_;
  int parameters_ = 0;
  Block embedding_, weight1_, bias1_, weight2_, bias2_, weight3_, bias3_;
  float *weights_, *gradients_, *moment1_, *moment2_;
  float *x_, *h1_, *h2_, *logits_, *dx_, *dh1_, *dh2_, *losses_, *loss_;
  unsigned long long* digest_;
  Slot slots_[2];
  cudaStream_t copy_, compute_, update_;
  cudaEvent_t gradient_ready_, updated_;
};

Trainer::Trainer(const Options& options, const Corpus& corpus)
    : o_(options),
      corpus_(corpus),
      layout_(options, corpus.vocabulary),
      random_{options.seed},
      inputs_(options.context * options.embedding),
      vocabulary_(corpus.vocabulary) {
  embedding_ = reserve(vocabulary_ * o_.embedding);
  weight1_ = reserve(inputs_ * o_.hidden);
  bias1_ = reserve(o_.hidden);
  weight2_ = reserve(o_.hidden * o_.hidden);
  bias2_ = reserve(o_.hidden);
  weight3_ = reserve(o_.hidden * vocabulary_);
  bias3_ = reserve(vocabulary_);

  std::vector<float> weights(parameters_);
  initialise(embedding_, 0.5f, &weights);
  initialise(weight1_, 1.f / sqrtf(static_cast<float>(inputs_)), &weights);
  initialise(weight2_, 1.f / sqrtf(static_cast<float>(o_.hidden)), &weights);
  initialise(weight3_, 1.f / sqrtf(static_cast<float>(o_.hidden)), &weights);
  weights_ = deviceArray<float>(parameters_);
  gradients_ = deviceArray<float>(parameters_);
  moment1_ = deviceArray<float>(parameters_);
  moment2_ = deviceArray<float>(parameters_);
  CUDA_CHECK(
      cudaMemcpy(weights_, weights.data(), parameters_ * sizeof(float), cudaMemcpyHostToDevice));

  x_ = deviceArray<float>(o_.batch * inputs_);
  dx_ = deviceArray<float>(o_.batch * inputs_);
  h1_ = deviceArray<float>(o_.batch * o_.hidden);
  dh1_ = deviceArray<float>(o_.batch * o_.hidden);
  h2_ = deviceArray<float>(o_.batch * o_.hidden);
  dh2_ = deviceArray<float>(o_.batch * o_.hidden);
  logits_ = deviceArray<float>(o_.batch * vocabulary_);
  losses_ = deviceArray<float>(o_.batch);
  loss_ = deviceArray<float>(1);
  digest_ = deviceArray<unsigned long long>(1);

  CUDA_CHECK(cudaStreamCreateWithFlags(&copy_, cudaStreamNonBlocking));
  CUDA_CHECK(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
  CUDA_CHECK(cudaStreamCreateWithFlags(&update_, cudaStreamNonBlocking));
  CUDA_CHECK(cudaEventCreateWithFlags(&gradient_ready_, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventCreateWithFlags(&updated_, cudaEventDisableTiming));
  for (Slot& slot : slots_) {
    slot.host_batch = pinnedArray<int>(layout_.total);
    slot.batch = deviceArray<int>(layout_.total);
    slot.host_loss = pinnedArray<float>(1);
    CUDA_CHECK(cudaEventCreateWithFlags(&slot.uploaded, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming));
  }
  AdamSettings settings{o_.rate, 0.9f, 0.99f, 1e-8f};
  CUDA_CHECK(cudaMemcpyToSymbol(adam_settings, &settings, sizeof(settings)));
  CUDA_CHECK(cudaDeviceSynchronize());
}

Trainer::~Trainer() {
  for (float* p : {weights_, gradients_, moment1_, moment2_, x_, dx_, h1_, dh1_, h2_, dh2_, logits_,
                   losses_, loss_}) {
    CUDA_CHECK(cudaFree(p));
  }
  CUDA_CHECK(cudaFree(digest_));
  for (Slot& slot : slots_) {
    CUDA_CHECK(cudaFreeHost(slot.host_batch));
    CUDA_CHECK(cudaFreeHost(slot.host_loss));
    CUDA_CHECK(cudaFree(slot.batch));
    CUDA_CHECK(cudaEventDestroy(slot.uploaded));
    CUDA_CHECK(cudaEventDestroy(slot.done));
  }
  CUDA_CHECK(cudaEventDestroy(gradient_ready_));
  CUDA_CHECK(cudaEventDestroy(updated_));
  for (cudaStream_t stream : {copy_, compute_, update_}) CUDA_CHECK(cudaStreamDestroy(stream));
}

void Trainer::initialise(const Block& block, float scale, std::vector<float>* weights) {
  for (int i = 0; i < block.count; ++i) (*weights)[block.offset + i] = scale * random_.uniform();
}

// Random places in the text; and for every character the positions in the batch where it occurs (a
// counting sort).
void Trainer::sampleBatch(int* batch) {
  int* characters = batch + layout_.characters;
  int* targets = batch + layout_.targets;
  int* first = batch + layout_.first;
  int* positions = batch + layout_.positions;
  int count = o_.batch * o_.context;
  for (int i = 0; i < o_.batch; ++i) {
    const uint8_t* at =
        &corpus_.characters[random_.next() % (corpus_.characters.size() - o_.context)];
    for (int j = 0; j < o_.context; ++j) characters[i * o_.context + j] = at[j];
    targets[i] = at[o_.context];
  }
  memset(first, 0, (vocabulary_ + 1) * sizeof(int));
  for (int i = 0; i < count; ++i) ++first[characters[i] + 1];
  for (int c = 0; c < vocabulary_; ++c) first[c + 1] += first[c];
  std::vector<int> next(first, first + vocabulary_);
  for (int i = 0; i < count; ++i) positions[next[characters[i]]++] = i;
}

void Trainer::step(int number) {
  const Slot& slot = slots_[number % 2];
  CUDA_CHECK(cudaEventSynchronize(slot.done));  // the step before last has used its batch
  sampleBatch(slot.host_batch);
  CUDA_CHECK(cudaMemcpyAsync(slot.batch, slot.host_batch, layout_.total * sizeof(int),
                             cudaMemcpyHostToDevice, copy_));
  CUDA_CHECK(cudaEventRecord(slot.uploaded, copy_));

  CUDA_CHECK(cudaStreamWaitEvent(compute_, slot.uploaded));
  CUDA_CHECK(cudaStreamWaitEvent(compute_, updated_));  // all weights have had their last update
  forward(slot);
  backward(slot, number);
  CUDA_CHECK(cudaEventRecord(slot.done, compute_));
  CUDA_CHECK(cudaGetLastError());
}

void Trainer::forward(const Slot& slot) {
  const float* w = weights_;
  int batch = o_.batch, hidden = o_.hidden, activations = batch * hidden;
  embed<<<blocksFor(batch * inputs_), kBlock, 0, compute_>>>(
      batch * o_.context, o_.embedding, slot.batch + layout_.characters, w + embedding_.offset, x_);
  multiply<false, false>(compute_, batch, hidden, inputs_, x_, w + weight1_.offset,
                         w + bias1_.offset, h1_);
  tanhForward<<<blocksFor(activations), kBlock, 0, compute_>>>(activations, h1_);
  multiply<false, false>(compute_, batch, hidden, hidden, h1_, w + weight2_.offset,
                         w + bias2_.offset, h2_);
  tanhForward<<<blocksFor(activations), kBlock, 0, compute_>>>(activations, h2_);
  multiply<false, false>(compute_, batch, vocabulary_, hidden, h2_, w + weight3_.offset,
                         w + bias3_.offset, logits_);
  softmaxLoss<<<batch, kBlock, 0, compute_>>>(vocabulary_, 1.f / batch,
                                              slot.batch + layout_.targets, logits_, losses_);
  mean<<<1, kBlock, 0, compute_>>>(batch, losses_, loss_);
  CUDA_CHECK(
      cudaMemcpyAsync(slot.host_loss, loss_, sizeof(float), cudaMemcpyDeviceToHost, compute_));
}

void Trainer::backward(const Slot& slot, int number) {
  const float* w = weights_;
  int batch = o_.batch, hidden = o_.hidden, activations = batch * hidden;
  multiply<false, true>(compute_, batch, hidden, vocabulary_, logits_, w + weight3_.offset, nullptr,
                        dh2_);
  updateLayer(weight3_, bias3_, hidden, vocabulary_, h2_, logits_, number);
  tanhBackward<<<blocksFor(activations), kBlock, 0, compute_>>>(activations, h2_, dh2_);
  multiply<false, true>(compute_, batch, hidden, hidden, dh2_, w + weight2_.offset, nullptr, dh1_);
  updateLayer(weight2_, bias2_, hidden, hidden, h1_, dh2_, number);
  tanhBackward<<<blocksFor(activations), kBlock, 0, compute_>>>(activations, h1_, dh1_);
  multiply<false, true>(compute_, batch, inputs_, hidden, dh1_, w + weight1_.offset, nullptr, dx_);
  updateLayer(weight1_, bias1_, inputs_, hidden, x_, dh1_, number);
  embedBackward<<<vocabulary_, kWarp, 0, update_>>>(o_.embedding, slot.batch + layout_.first,
                                                    slot.batch + layout_.positions, dx_,
                                                    gradients_ + embedding_.offset);
  applyAdam(embedding_, number);
  CUDA_CHECK(cudaEventRecord(updated_, update_));
  CUDA_CHECK(cudaStreamWaitEvent(compute_, updated_));
}

void Trainer::updateLayer(const Block& weight, const Block& bias, int inputs, int outputs,
                          const float* x, const float* dy, int number) {
  CUDA_CHECK(cudaEventRecord(gradient_ready_, compute_));
  CUDA_CHECK(cudaStreamWaitEvent(update_, gradient_ready_));
  multiply<true, false>(update_, inputs, outputs, o_.batch, x, dy, nullptr,
                        gradients_ + weight.offset);
  columnSums<<<blocksFor(outputs), kBlock, 0, update_>>>(o_.batch, outputs, dy,
                                                         gradients_ + bias.offset);
  applyAdam({weight.offset, weight.count + bias.count},
            number);  // the bias lies behind the weights
}

void Trainer::applyAdam(const Block& block, int number) {
  float2 correction = make_float2(1.f - powf(0.9f, number + 1.f), 1.f - powf(0.99f, number + 1.f));
  adam<<<blocksFor(block.count), kBlock, 0, update_>>>(
      block.count, correction, gradients_ + block.offset, moment1_ + block.offset,
      moment2_ + block.offset, weights_ + block.offset);
}

float Trainer::loss(int step_number) {
  const Slot& slot = slots_[step_number % 2];
  CUDA_CHECK(cudaEventSynchronize(slot.done));
  return *slot.host_loss;
}

unsigned long long Trainer::weightDigest() {
  CUDA_CHECK(cudaMemsetAsync(digest_, 0, sizeof(*digest_), compute_));
  digest<<<4, kBlock, 0, compute_>>>(parameters_, weights_, digest_);
  CUDA_CHECK(cudaStreamSynchronize(compute_));
  unsigned long long result;
  CUDA_CHECK(cudaMemcpy(&result, digest_, sizeof(result), cudaMemcpyDeviceToHost));
  return result;
}

// -----------------------------------------------------------------------------------------------
// main

double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

// Keeps the pace asked for: sleeps until `milliseconds` after `*last`.
void pace(int milliseconds, double* last) {
  double left = *last + milliseconds * 1e-3 - seconds();
  if (left > 0) {
    timespec time{static_cast<time_t>(left),
                  static_cast<long>((left - static_cast<long>(left)) * 1e9)};
    nanosleep(&time, nullptr);
  }
  *last = seconds();
}

int main(int argc, char** argv) {
  Options options = parse(argc, argv);
  FILE* log = options.log != nullptr ? fopen(options.log, "w") : stdout;
  if (log == nullptr) {
    perror(options.log);
    return 1;
  }
  setvbuf(log, nullptr, _IOLBF, 4096);
  Corpus corpus(options);
  Trainer trainer(options, corpus);
  fprintf(log, "train_charlm: %zu characters, %d different; %d parameters; %d steps\n",
          corpus.characters.size(), corpus.vocabulary, trainer.parameters(), options.steps);
  double last = seconds();
  for (int i = 0; i < options.steps; ++i) {
    trainer.step(i);  // queued; meanwhile the step before it is reported
    if (i > 0) fprintf(log, "step %d loss %.9g\n", i, trainer.loss(i - 1));
    if (options.pace_ms > 0) pace(options.pace_ms, &last);
  }
  fprintf(log, "step %d loss %.9g\n", options.steps, trainer.loss(options.steps - 1));
  fprintf(log, "digest %016llx\n", trainer.weightDigest());
  if (log != stdout) fclose(log);
  return 0;
}
