// Threads that talk to each other: shuffles, votes, matches, barriers, shared memory, atomics.
#include <algorithm>

#include "conformance.h"

constexpr int kBlock = 128;

__global__ void warps(uint32_t* out) {
  int lane = threadIdx.x % 32;
  uint32_t x = scramble(threadIdx.x);
  uint32_t* mine = out + threadIdx.x * 12;
  mine[0] = __shfl_sync(~0u, x, 5);
  mine[1] = __shfl_up_sync(~0u, x, 3);
  mine[2] = __shfl_down_sync(~0u, x, 7);
  mine[3] = __shfl_xor_sync(~0u, x, 9);
  mine[4] = __shfl_down_sync(~0u, x, 2, 8);
  mine[5] = __ballot_sync(~0u, x & 1);
  mine[6] = __any_sync(~0u, lane == 40) * 2 + __all_sync(~0u, lane < 32);
  mine[7] = __match_any_sync(~0u, lane / 5);
  mine[8] = lane < 11 ? __activemask() : 0;
  mine[9] = 0;
  if (lane % 2) mine[9] = __shfl_sync(0xaaaaaaaau, x, 1);  // only the odd lanes
  uint64_t wide = __shfl_sync(~0u, static_cast<unsigned long long>(x) << 20, 4);
  mine[10] = static_cast<uint32_t>(wide >> 16);
  mine[11] = __syncthreads_count(x & 4) + 1000 * __syncthreads_or(threadIdx.x == 77);
}

void checkWarps() {
  DeviceVector<uint32_t> out(kBlock * 12);
  warps<<<1, kBlock>>>(out.get());
  CHECK(cudaGetLastError());
  auto got = out.copy();
  uint32_t count = 0;
  for (int t = 0; t < kBlock; ++t) count += (scramble(t) & 4) != 0;
  for (int t = 0; t < kBlock; ++t) {
    int base = t / 32 * 32, lane = t % 32;
    const uint32_t* mine = &got[t * 12];
    EXPECT(mine[0] == scramble(base + 5));
    EXPECT(mine[1] == scramble(lane >= 3 ? t - 3 : t));
    EXPECT(mine[2] == scramble(lane + 7 < 32 ? t + 7 : t));
    EXPECT(mine[3] == scramble(t ^ 9));
    EXPECT(mine[4] == scramble(lane % 8 + 2 < 8 ? t + 2 : t));
    uint32_t ballot = 0, match = 0;
    for (int i = 0; i < 32; ++i) {
      ballot |= (scramble(base + i) & 1) << i;
      match |= (i / 5 == lane / 5 ? 1u : 0u) << i;
    }
    EXPECT(mine[5] == ballot);
    EXPECT(mine[6] == 1);
    EXPECT(mine[7] == match);
    EXPECT(mine[8] == (lane < 11 ? 0x7ffu : 0u));
    EXPECT(mine[9] == (lane % 2 ? scramble(base + 1) : 0u));
    EXPECT(mine[10] ==
           static_cast<uint32_t>((static_cast<uint64_t>(scramble(base + 4)) << 20) >> 16));
    EXPECT(mine[11] == count + 1000);
  }
}

// Static and dynamic shared memory, a barrier per round: bitonic sort of one block's numbers.
__global__ void sortBlock(uint32_t* data, int* smallest) {
  extern __shared__ uint32_t shared[];
  __shared__ int turns;
  int t = threadIdx.x;
  if (t == 0) turns = 0;
  shared[t] = data[t];
  __syncthreads();
  for (int size = 2; size <= kBlock; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      int other = t ^ stride;
      if (other > t && (shared[t] > shared[other]) == ((t & size) == 0)) {
        uint32_t x = shared[t];
        shared[t] = shared[other];
        shared[other] = x;
      }
      if (t == 0) ++turns;
      __syncthreads();
    }
  }
  data[t] = shared[t];
  if (t == 0) *smallest = turns;
}

void checkShared() {
  std::vector<uint32_t> data(kBlock);
  for (int i = 0; i < kBlock; ++i) data[i] = scramble(i);
  DeviceVector<uint32_t> on_device(data);
  DeviceVector<int> turns(1);
  sortBlock<<<1, kBlock, kBlock * sizeof(uint32_t)>>>(on_device.get(), turns.get());
  CHECK(cudaGetLastError());
  std::sort(data.begin(), data.end());
  EXPECT(on_device.copy() == data);
  EXPECT(turns.copy()[0] == 28);
}

struct Counters {
  int add, minimum, maximum, exchange_sum;
  unsigned increment, decrement, ands, ors, xors, cas;
  unsigned long long wide, wide_max;
  float real;
  double real64;
  int blocks_done, last_block_saw;
};

__global__ void atomics(Counters* c, int* histogram) {
  __shared__ int local[16];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&local[scramble(i) % 16], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&histogram[threadIdx.x], local[threadIdx.x]);
  atomicAdd(&c->add, i);
  atomicSub(&c->add, 1);
  atomicMin(&c->minimum, static_cast<int>(scramble(i)));
  atomicMax(&c->maximum, static_cast<int>(scramble(i)));
  atomicInc(&c->increment, 99);
  atomicDec(&c->decrement, 50);
  atomicAnd(&c->ands, ~(1u << i % 7));
  atomicOr(&c->ors, 1u << i % 9);
  atomicXor(&c->xors, scramble(i));
  atomicAdd(&c->wide, 1ull << 33);
  atomicMax(&c->wide_max, static_cast<unsigned long long>(scramble(i)) << 8);
  atomicAdd(&c->real, 0.25f);
  atomicAdd(&c->real64, 0.125);
  unsigned seen = c->cas, assumed;  // a lock-free "add 3"
  do {
    assumed = seen;
    seen = atomicCAS(&c->cas, assumed, assumed + 3);
  } while (seen != assumed);
  // The last block sees what all others wrote.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(&c->blocks_done, 1) == static_cast<int>(gridDim.x) - 1) {
    c->last_block_saw = atomicAdd(&c->add, 0);
  }
}

void checkAtomics() {
  constexpr int kThreads = 16 * kBlock;
  Counters start = {};
  start.ands = ~0u;
  start.minimum = INT32_MAX;
  start.maximum = INT32_MIN;
  DeviceVector<Counters> counters(std::vector<Counters>{start});
  DeviceVector<int> histogram(16);
  atomics<<<kThreads / kBlock, kBlock>>>(counters.get(), histogram.get());
  CHECK(cudaGetLastError());
  Counters c = counters.copy()[0];
  int sum = 0, low = INT32_MAX, high = INT32_MIN, want[16] = {};
  unsigned xors = 0, down = 0;
  unsigned long long wide_max = 0;
  for (int i = 0; i < kThreads; ++i) {
    sum += i - 1;
    low = std::min(low, static_cast<int>(scramble(i)));
    high = std::max(high, static_cast<int>(scramble(i)));
    xors ^= scramble(i);
    down = down == 0 || down > 50 ? 50 : down - 1;
    wide_max = std::max(wide_max, static_cast<unsigned long long>(scramble(i)) << 8);
    ++want[scramble(i) % 16];
  }
  EXPECT(c.add == sum && c.last_block_saw == sum);
  EXPECT(c.minimum == low && c.maximum == high);
  EXPECT(c.increment == kThreads % 100u && c.decrement == down);
  EXPECT(c.ands == (~0u & ~0x7fu) && c.ors == 0x1ffu && c.xors == xors);
  EXPECT(c.wide == static_cast<unsigned long long>(kThreads) << 33 && c.wide_max == wide_max);
  EXPECT(c.real == kThreads * 0.25f && c.real64 == kThreads * 0.125);
  EXPECT(c.cas == 3u * kThreads);
  auto got = histogram.copy();
  EXPECT(std::equal(got.begin(), got.end(), want));
}

int main() {
  checkWarps();
  checkShared();
  checkAtomics();
  return passed();
}
