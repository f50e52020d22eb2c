// What cub, libcu++ and cooperative groups do within a block: sorts, scans, reductions, histograms,
// barriers, pipelines, semaphores, latches; tiles and coalesced groups.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <algorithm>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>

#include "conformance.h"

#pragma nv_diag_suppress 20054  // shared objects are made by the kernels, as libcu++ says
namespace cg = cooperative_groups;
constexpr int kThreads = 128, kItems = 4, kCount = kThreads * kItems;

struct Less {
  __device__ bool operator()(int a, int b) const { return a < b; }
};

__global__ void blocks(const int* in, int* sorted, int* scanned, unsigned* bins, int* merged) {
  using Sort = cub::BlockRadixSort<int, kThreads, kItems>;
  using Scan = cub::BlockScan<int, kThreads>;
  using Histogram = cub::BlockHistogram<unsigned char, kThreads, kItems, 64>;
  using Merge = cub::WarpMergeSort<int, kItems, 32>;
  __shared__ union {
    typename Sort::TempStorage sort;
    typename Scan::TempStorage scan;
    typename Histogram::TempStorage histogram;
    typename Merge::TempStorage merge[kThreads / 32];
  } shared;
  __shared__ unsigned local[64];
  const int first = (int)threadIdx.x * kItems;
  int items[kItems], copy[kItems];
  unsigned char small[kItems];
  for (int k = 0; k < kItems; ++k) items[k] = copy[k] = in[first + k];
  for (int k = 0; k < kItems; ++k) small[k] = (unsigned char)(copy[k] & 63);
  Sort(shared.sort).Sort(items);
  for (int k = 0; k < kItems; ++k) sorted[first + k] = items[k];
  __syncthreads();
  Scan(shared.scan).ExclusiveSum(copy, items);
  for (int k = 0; k < kItems; ++k) scanned[first + k] = items[k];
  __syncthreads();
  Histogram(shared.histogram).Histogram(small, local);
  __syncthreads();
  if (threadIdx.x < 64) bins[threadIdx.x] = local[threadIdx.x];
  __syncthreads();
  Merge(shared.merge[threadIdx.x / 32]).Sort(copy, Less());
  for (int k = 0; k < kItems; ++k) merged[first + k] = copy[k];
}

__global__ void library(const int* in, int* out, int* total) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ cuda::binary_semaphore<cuda::thread_scope_block> semaphore;
  __shared__ alignas(64) char room[sizeof(cuda::latch<cuda::thread_scope_block>)];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ alignas(16) int buffer[2][kThreads];
  __shared__ int guarded, seen;
  auto& latch = *reinterpret_cast<cuda::latch<cuda::thread_scope_block>*>(room);
  const auto block = cg::this_thread_block();
  const int i = (int)threadIdx.x;
  if (i == 0) {
    init(&barrier, kThreads);
    new (&semaphore) cuda::binary_semaphore<cuda::thread_scope_block>(1);
    new (&latch) cuda::latch<cuda::thread_scope_block>(kThreads);
    guarded = seen = 0;
  }
  __syncthreads();
  for (int round = 0; round < 5; ++round) {
    auto token = barrier.arrive();
    semaphore.acquire();
    ++guarded;
    semaphore.release();
    barrier.wait(std::move(token));
    barrier.arrive_and_wait();
    if (guarded < (round + 1) * kThreads) atomicAdd(&seen, 1);
  }
  latch.arrive_and_wait();
  // A pipeline of two stages over four parts.
  auto pipe = cuda::make_pipeline(block, &state);
  int sum = 0;
  for (int part = 0; part < 5; ++part) {
    if (part < 4) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, buffer[part & 1], in + part * kThreads,
                         cuda::aligned_size_t<16>(sizeof buffer[0]), pipe);
      pipe.producer_commit();
    }
    if (part > 0) {
      pipe.consumer_wait();
      sum += buffer[(part - 1) & 1][(i * 5) % kThreads] * part;
      pipe.consumer_release();
    }
  }
  out[i] = sum;
  __syncthreads();
  cg::memcpy_async(block, buffer[0], in + kThreads, sizeof buffer[0]);
  cg::wait(block);
  out[kThreads + i] = buffer[0][kThreads - 1 - i];
  cuda::atomic_ref<int, cuda::thread_scope_device> all(*total);
  all.fetch_add(guarded == 5 * kThreads ? 1 : 0, cuda::memory_order_relaxed);
  all.fetch_sub(seen, cuda::memory_order_acq_rel);
  cuda::atomic_ref<float, cuda::thread_scope_system> real(*reinterpret_cast<float*>(total + 1));
  real.fetch_add(0.5f);
  cuda::atomic_ref<unsigned char, cuda::thread_scope_device> byte(
      *reinterpret_cast<unsigned char*>(total + 2));
  byte.fetch_add(1);
}

__global__ void groups(int* out) {
  const auto block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  const auto tile = cg::tiled_partition<8>(block);
  const int i = (int)threadIdx.x;
  int* o = out + i * 8;
  o[0] = cg::reduce(tile, i, cg::plus<int>());
  o[1] = cg::reduce(warp, i * 7 % 50, cg::greater<int>());
  o[2] = cg::inclusive_scan(warp, i);
  o[3] = cg::exclusive_scan(tile, i * 2);
  o[4] = o[5] = o[6] = -1;
  if (i % 3 == 0) {
    const auto some = cg::coalesced_threads();
    o[4] = cg::reduce(some, i, cg::plus<int>());
    o[5] = (int)some.size() * 100 + (int)some.thread_rank();
    o[6] = some.shfl(i, 1);
  }
  const auto label = cg::labeled_partition(warp, i % 5);
  o[7] = (int)label.size() * 100 + (int)label.thread_rank();
}

int main() {
  std::vector<int> in(kCount);
  for (int k = 0; k < kCount; ++k) in[(size_t)k] = (int)scramble((uint32_t)k) >> 4;
  DeviceVector<int> device(in), sorted(kCount), scanned(kCount), merged(kCount);
  DeviceVector<unsigned> bins(64);
  blocks<<<1, kThreads>>>(device.get(), sorted.get(), scanned.get(), bins.get(), merged.get());
  CHECK(cudaDeviceSynchronize());
  std::vector<int> want = in;
  std::sort(want.begin(), want.end());
  EXPECT(sorted.copy() == want);
  uint32_t sum = 0;
  std::vector<unsigned> counts(64);
  for (int k = 0; k < kCount; ++k) {
    want[(size_t)k] = (int)sum;
    sum += (uint32_t)in[(size_t)k];
    ++counts[(size_t)(in[(size_t)k] & 63)];
  }
  EXPECT(scanned.copy() == want);
  EXPECT(bins.copy() == counts);
  want = in;
  for (int w = 0; w < kCount; w += 32 * kItems)
    std::sort(want.begin() + w, want.begin() + w + 32 * kItems);
  EXPECT(merged.copy() == want);

  DeviceVector<int> out(2 * kThreads), total(4);
  library<<<1, kThreads>>>(device.get(), out.get(), total.get());
  CHECK(cudaDeviceSynchronize());
  const std::vector<int> got = out.copy(), sums = total.copy();
  for (int i = 0; i < kThreads; ++i) {
    uint32_t s = 0;
    for (int part = 1; part < 5; ++part)
      s += (uint32_t)in[(size_t)((part - 1) * kThreads + i * 5 % kThreads)] * (uint32_t)part;
    EXPECT(got[(size_t)i] == (int)s);
    EXPECT(got[(size_t)(kThreads + i)] == in[(size_t)(2 * kThreads - 1 - i)]);
  }
  EXPECT(sums[0] == kThreads);
  float real;
  memcpy(&real, &sums[1], 4);
  EXPECT(real == 0.5f * kThreads);
  EXPECT((sums[2] & 255) == (kThreads & 255));

  DeviceVector<int> shapes(64 * 8);
  groups<<<1, 64>>>(shapes.get());
  CHECK(cudaDeviceSynchronize());
  const std::vector<int> s = shapes.copy();
  for (int i = 0; i < 64; ++i) {
    const int warp = i / 32 * 32, tile = i / 8 * 8;
    int v[8] = {}, rank = 0, size = 0, thirds = 0, third_rank = 0, third_sum = 0, second = -1;
    for (int k = 0; k < 8; ++k) v[0] += tile + k;
    for (int k = warp; k < warp + 32; ++k) {
      v[1] = std::max(v[1], k * 7 % 50);
      if (k <= i) v[2] += k;
      if (k >= tile && k < i) v[3] += k * 2;
      if (k % 5 == i % 5) {
        ++size;
        rank += k < i;
      }
      if (k % 3 != 0) continue;
      if (++thirds == 2) second = k;
      third_sum += k;
      third_rank += k < i;
    }
    const bool third = i % 3 == 0;
    v[4] = third ? third_sum : -1;
    v[5] = third ? thirds * 100 + third_rank : -1;
    v[6] = third ? second : -1;
    v[7] = size * 100 + rank;
    for (int k = 0; k < 8; ++k)
      if (s[(size_t)(i * 8 + k)] != v[k]) {
        fprintf(stderr, "groups: thread %d, result %d: %d instead of %d\n", i, k,
                s[(size_t)(i * 8 + k)], v[k]);
        return 1;
      }
  }
  return passed();
}
