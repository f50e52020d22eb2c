// cub: device-wide, block and warp primitives.
#include <cub/cub.cuh>

struct Less {
  __host__ __device__ bool operator()(int a, int b) const { return a < b; }
};
struct Differ {
  __host__ __device__ bool operator()(int a, int b) const { return a != b; }
};

__global__ void blocks(const int* in, int* out, float* reals) {
  using Load = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Store = cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_TRANSPOSE>;
  using Sort = cub::BlockRadixSort<int, 128, 4>;
  using Scan = cub::BlockScan<int, 128>;
  using Reduce = cub::BlockReduce<float, 128>;
  using Histogram = cub::BlockHistogram<unsigned char, 128, 4, 64>;
  using Exchange = cub::BlockExchange<int, 128, 4>;
  using Discontinuity = cub::BlockDiscontinuity<int, 128>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Sort::TempStorage sort;
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
    typename Histogram::TempStorage histogram;
    typename Exchange::TempStorage exchange;
    typename Discontinuity::TempStorage discontinuity;
  } shared;
  __shared__ unsigned bins[64];
  int items[4], heads[4];
  Load(shared.load).Load(in + blockIdx.x * 512, items);
  __syncthreads();
  Sort(shared.sort).Sort(items);
  __syncthreads();
  Discontinuity(shared.discontinuity).FlagHeads(heads, items, Differ());
  __syncthreads();
  Scan(shared.scan).InclusiveSum(items, items);
  __syncthreads();
  Exchange(shared.exchange).BlockedToStriped(items, items);
  __syncthreads();
  unsigned char small[4];
  for (int k = 0; k < 4; ++k) small[k] = items[k] & 63;
  Histogram(shared.histogram).Histogram(small, bins);
  __syncthreads();
  float sum = Reduce(shared.reduce).Sum(static_cast<float>(items[0] + heads[0]));
  __syncthreads();
  Store(shared.store).Store(out + blockIdx.x * 512, items);
  if (threadIdx.x == 0) reals[blockIdx.x] = sum + bins[0];
}

__global__ void warps(const int* in, int* out) {
  using Reduce = cub::WarpReduce<int>;
  using Scan = cub::WarpScan<int>;
  using Sort = cub::WarpMergeSort<int, 4, 32>;
  __shared__ typename Reduce::TempStorage reduce[4];
  __shared__ typename Scan::TempStorage scan[4];
  __shared__ typename Sort::TempStorage sort[4];
  int warp = threadIdx.x / 32, x = in[threadIdx.x], y;
  int keys[4] = {x, x * 3, x * 5, x * 7};
  Sort(sort[warp]).Sort(keys, Less());
  Scan(scan[warp]).ExclusiveSum(x, y);
  out[threadIdx.x] = Reduce(reduce[warp]).Sum(x) + y + keys[0];
}

void devices(int* in, int* out, int* count, float* reals, void* temporary, size_t bytes, int n) {
  cub::DeviceReduce::Sum(temporary, bytes, reals, reals + 1, n);
  cub::DeviceReduce::ArgMin(temporary, bytes, in, out, reinterpret_cast<long long*>(count), n);
  cub::DeviceScan::ExclusiveSum(temporary, bytes, in, out, n);
  cub::DeviceRadixSort::SortPairs(temporary, bytes, in, out, reals, reals, n);
  cub::DeviceRadixSort::SortKeysDescending(temporary, bytes, reals, reals, n);
  cub::DeviceSelect::Unique(temporary, bytes, in, out, count, n);
  cub::DeviceRunLengthEncode::Encode(temporary, bytes, in, out, out, count, n);
  cub::DeviceHistogram::HistogramEven(temporary, bytes, reals, count, 65, 0.0f, 1.0f, n);
  cub::DeviceMergeSort::SortKeys(temporary, bytes, out, n, Less());
  cub::DeviceSegmentedReduce::Sum(temporary, bytes, reals, reals, n, in, in + 1);
}
