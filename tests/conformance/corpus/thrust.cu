// What thrust makes of ordinary calls: sort, scan, reduce, transform and their relatives.
#include <thrust/binary_search.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>

struct Square {
  __host__ __device__ double operator()(int x) const { return static_cast<double>(x) * x; }
};
struct Odd {
  __host__ __device__ bool operator()(int x) const { return x & 1; }
};
struct ByLow {
  __host__ __device__ bool operator()(int a, int b) const { return (a & 0xffff) < (b & 0xffff); }
};

double use(thrust::device_vector<int>& v, thrust::device_vector<float>& f) {
  thrust::sort(v.begin(), v.end());
  thrust::sort(v.begin(), v.end(), ByLow());
  thrust::stable_sort_by_key(v.begin(), v.end(), f.begin());
  thrust::inclusive_scan(v.begin(), v.end(), v.begin());
  thrust::exclusive_scan(f.begin(), f.end(), f.begin(), 0.0f, thrust::plus<float>());
  thrust::transform(f.begin(), f.end(), f.begin(), f.begin(), thrust::multiplies<float>());
  double sum = thrust::transform_reduce(v.begin(), v.end(), Square(), 0.0, thrust::plus<double>());
  sum += thrust::reduce(f.begin(), f.end(), 0.0f, thrust::maximum<float>());
  sum += static_cast<double>(thrust::count_if(v.begin(), v.end(), Odd()));
  sum += thrust::inner_product(f.begin(), f.end(), f.begin(), 0.0f);
  auto end = thrust::unique(v.begin(), v.end());
  end = thrust::remove_if(v.begin(), end, Odd());
  thrust::partition(v.begin(), v.end(), Odd());
  thrust::device_vector<int> keys(v.size()), out(v.size());
  thrust::reduce_by_key(v.begin(), v.end(), f.begin(), keys.begin(), f.begin());
  thrust::lower_bound(v.begin(), v.end(), keys.begin(), keys.end(), out.begin());
  thrust::merge(v.begin(), v.end(), v.begin(), v.end(), keys.begin());
  return sum;
}
