// Matrix instructions of a warp: the C++ interface (mma.h) for every type of element, and ldmatrix,
// stmatrix and mma.sync as libraries use them, with fragments laid out as PTX documents. Numbers
// are small integers, so that every sum is exact, however it is ordered.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "conformance.h"

using namespace nvcuda;

static int number(uint32_t i, uint32_t salt) { return (int)(scramble(i + salt * 1000) % 9) - 4; }

template <class T>
static std::vector<T> numbers(size_t n, uint32_t salt) {
  std::vector<T> v(n);
  for (size_t k = 0; k < n; ++k) v[k] = (T)(float)number((uint32_t)k, salt);
  return v;
}
template <>
std::vector<unsigned char> numbers(size_t n, uint32_t salt) {
  std::vector<unsigned char> v(n);
  for (size_t k = 0; k < n; ++k) v[k] = (unsigned char)(number((uint32_t)k, salt) + 4);
  return v;
}

// d = a b + c of m x k, k x n.
static std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b,
                                   const std::vector<double>& c, int m, int n, int k) {
  std::vector<double> d = c;
  for (int r = 0; r < m; ++r)
    for (int j = 0; j < n; ++j)
      for (int x = 0; x < k; ++x) d[r * n + j] += a[r * k + x] * b[x * n + j];
  return d;
}
template <class T>
static std::vector<double> real(const std::vector<T>& v) {
  std::vector<double> d(v.size());
  for (size_t k = 0; k < v.size(); ++k) d[k] = (double)(float)v[k];
  return d;
}
// Row by row to column by column.
template <class T>
static std::vector<T> turned(const std::vector<T>& v, int rows, int columns) {
  std::vector<T> t(v.size());
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) t[c * rows + r] = v[r * columns + c];
  return t;
}

// ---- wmma ----

template <int M, int N, int K, class In, class Element, class Sum, class ALayout, class BLayout>
__global__ void wmma_kernel(const In* a, const In* b, const Sum* c, Sum* d) {
  wmma::fragment<wmma::matrix_a, M, N, K, Element, ALayout> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, Element, BLayout> fb;
  wmma::fragment<wmma::accumulator, M, N, K, Sum> fc, fd;
  constexpr bool a_rows = std::is_same<ALayout, wmma::row_major>::value;
  constexpr bool b_rows = std::is_same<BLayout, wmma::row_major>::value;
  wmma::load_matrix_sync(fa, a, a_rows ? K : M);
  wmma::load_matrix_sync(fb, b, b_rows ? N : K);
  wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
  wmma::mma_sync(fd, fa, fb, fc);
  for (int k = 0; k < fd.num_elements; ++k) fd.x[k] = fd.x[k] + fd.x[k];
  wmma::store_matrix_sync(d, fd, N, wmma::mem_row_major);
}

template <int M, int N, int K, class In, class Element, class Sum, bool ARows, bool BRows>
static void check_wmma() {
  using ALayout = typename std::conditional<ARows, wmma::row_major, wmma::col_major>::type;
  using BLayout = typename std::conditional<BRows, wmma::row_major, wmma::col_major>::type;
  const auto a = numbers<In>(M * K, 1), b = numbers<In>(K * N, 2);
  const auto c = numbers<Sum>(M * N, 3);
  DeviceVector<In> da(ARows ? a : turned(a, M, K)), db(BRows ? b : turned(b, K, N));
  DeviceVector<Sum> dc(c), dd(M * N);
  wmma_kernel<M, N, K, In, Element, Sum, ALayout, BLayout>
      <<<1, 32>>>(da.get(), db.get(), dc.get(), dd.get());
  CHECK(cudaDeviceSynchronize());
  const auto want = product(real(a), real(b), real(c), M, N, K);
  const auto got = real(dd.copy());
  for (int k = 0; k < M * N; ++k) EXPECT(got[k] == 2 * want[k]);
}

// ---- ldmatrix and mma.sync: a product of 64 x 64 by 64 x 64 as libraries do it ----

constexpr int kSize = 64;

template <class T>
__device__ void mma_16_8_16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
__device__ void mma_16_8_16<__half>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ void mma_16_8_16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Each of 4 warps: 16 rows. a and b row by row: b by ldmatrix.trans.
template <class T>
__global__ void gemm(const T* a, const T* b, float* d) {
  __shared__ __align__(16) T sa[kSize][kSize + 8], sb[kSize][kSize + 8];
  for (int k = (int)threadIdx.x; k < kSize * kSize; k += (int)blockDim.x) {
    sa[k / kSize][k % kSize] = a[k];
    sb[k / kSize][k % kSize] = b[k];
  }
  __syncthreads();
  const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16;
  for (int column = 0; column < kSize; column += 8) {
    float sum[4] = {};
    for (int k = 0; k < kSize; k += 16) {
      uint32_t fa[4], fb[2];
      const auto pa = (unsigned)__cvta_generic_to_shared(&sa[row + lane % 16][k + lane / 16 * 8]);
      const auto pb = (unsigned)__cvta_generic_to_shared(&sb[k + lane % 16][column]);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                   : "r"(pa));
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                   : "=r"(fb[0]), "=r"(fb[1])
                   : "r"(pb));
      mma_16_8_16<T>(sum, fa, fb);
    }
    float* at = d + (row + lane / 4) * kSize + column + lane % 4 * 2;
    at[0] = sum[0];
    at[1] = sum[1];
    at[8 * kSize] = sum[2];
    at[8 * kSize + 1] = sum[3];
  }
}

template <class T>
static void check_gemm() {
  const auto a = numbers<T>(kSize * kSize, 5), b = numbers<T>(kSize * kSize, 6);
  DeviceVector<T> da(a), db(b);
  DeviceVector<float> dd(kSize * kSize);
  gemm<T><<<1, 128>>>(da.get(), db.get(), dd.get());
  CHECK(cudaDeviceSynchronize());
  const std::vector<double> none(kSize * kSize);
  EXPECT(real(dd.copy()) == product(real(a), real(b), none, kSize, kSize, kSize));
}

// ---- one mma.sync of each kind, with PTX's own words for where a fragment's elements are ----

__global__ void mma_tf32(const float* a, const float* b, float* d) {  // m16n8k8
  const int group = (int)threadIdx.x / 4, member = (int)threadIdx.x % 4;
  uint32_t fa[4], fb[2];
  float fd[4] = {1, 1, 1, 1};
  for (int i = 0; i < 4; ++i)
    fa[i] = __float_as_uint(
        a[(i == 0 || i == 2 ? group : group + 8) * 8 + (i < 2 ? member : member + 4)]);
  for (int i = 0; i < 2; ++i) fb[i] = __float_as_uint(b[(member + 4 * i) * 8 + group]);
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(fd[0]), "+f"(fd[1]), "+f"(fd[2]), "+f"(fd[3])
      : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
  for (int i = 0; i < 4; ++i) d[(i < 2 ? group : group + 8) * 8 + member * 2 + (i & 1)] = fd[i];
}

__global__ void mma_s8(const signed char* a, const signed char* b, int* d) {  // m16n8k32
  const int group = (int)threadIdx.x / 4, member = (int)threadIdx.x % 4;
  union {
    signed char bytes[16];
    uint32_t words[4];
  } fa, fb;
  int fd[4] = {1, 1, 1, 1};
  for (int i = 0; i < 16; ++i)
    fa.bytes[i] = a[(i < 4 || (i >= 8 && i < 12) ? group : group + 8) * 32 + member * 4 + (i & 3) +
                    (i >= 8 ? 16 : 0)];
  for (int i = 0; i < 8; ++i)
    fb.bytes[i] = b[(member * 4 + (i & 3) + (i >= 4 ? 16 : 0)) * 8 + group];
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+r"(fd[0]), "+r"(fd[1]), "+r"(fd[2]), "+r"(fd[3])
      : "r"(fa.words[0]), "r"(fa.words[1]), "r"(fa.words[2]), "r"(fa.words[3]), "r"(fb.words[0]),
        "r"(fb.words[1]));
  for (int i = 0; i < 4; ++i) d[(i < 2 ? group : group + 8) * 8 + member * 2 + (i & 1)] = fd[i];
}

__global__ void mma_f64(const double* a, const double* b, double* d) {  // m8n8k4
  const int group = (int)threadIdx.x / 4, member = (int)threadIdx.x % 4;
  double fd[2] = {1, 1};
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
               : "+d"(fd[0]), "+d"(fd[1])
               : "d"(a[group * 4 + member]), "d"(b[member * 8 + group]));
  for (int i = 0; i < 2; ++i) d[group * 8 + member * 2 + i] = fd[i];
}

template <class In, class Out, class Kernel>
static void check_mma(Kernel kernel, int m, int n, int k) {
  const auto a = numbers<In>(m * k, 7), b = numbers<In>(k * n, 8);
  DeviceVector<In> da(a), db(b);
  DeviceVector<Out> dd(m * n);
  kernel<<<1, 32>>>(da.get(), db.get(), dd.get());
  CHECK(cudaDeviceSynchronize());
  EXPECT(real(dd.copy()) ==
         product(real(a), real(b), std::vector<double>((size_t)(m * n), 1), m, n, k));
}

// ---- stmatrix and movmatrix ----

__global__ void shuffle_matrices(const uint16_t* in, uint16_t* stored, uint16_t* moved) {
  __shared__ __align__(16) uint16_t box[4][8][8];
  const int lane = (int)threadIdx.x;
  uint32_t r[4];
  for (int k = 0; k < 4; ++k)
    r[k] = in[k * 64 + lane / 4 * 8 + lane % 4 * 2] |
           (uint32_t)in[k * 64 + lane / 4 * 8 + lane % 4 * 2 + 1] << 16;
#if __CUDA_ARCH__ >= 900
  const auto row = (unsigned)__cvta_generic_to_shared(&box[lane / 8][lane % 8][0]);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
#else
  for (int k = 0; k < 4; ++k)
    for (int half = 0; half < 2; ++half)
      box[k][lane % 4 * 2 + half][lane / 4] = (uint16_t)(r[k] >> 16 * half);
#endif
  __syncwarp();
  for (int k = lane; k < 256; k += 32) stored[k] = (&box[0][0][0])[k];
  uint32_t t;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(r[0]));
  moved[lane * 2] = (uint16_t)t;
  moved[lane * 2 + 1] = (uint16_t)(t >> 16);
}

static void check_shuffles() {
  std::vector<uint16_t> in(256);
  for (uint32_t k = 0; k < 256; ++k) in[k] = (uint16_t)scramble(k);
  DeviceVector<uint16_t> din(in), stored(256), moved(64);
  shuffle_matrices<<<1, 32>>>(din.get(), stored.get(), moved.get());
  CHECK(cudaDeviceSynchronize());
  const auto s = stored.copy(), m = moved.copy();
  for (int k = 0; k < 4; ++k)
    for (int r = 0; r < 8; ++r)
      for (int c = 0; c < 8; ++c) EXPECT(s[k * 64 + c * 8 + r] == in[k * 64 + r * 8 + c]);
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 8; ++c) EXPECT(m[r * 8 + c] == in[c * 8 + r]);
}

int main() {
  check_wmma<16, 16, 16, __half, __half, float, true, false>();
  check_wmma<16, 16, 16, __half, __half, float, false, true>();
  check_wmma<16, 16, 16, __half, __half, __half, true, true>();
  check_wmma<32, 8, 16, __half, __half, float, true, false>();
  check_wmma<8, 32, 16, __half, __half, __half, false, false>();
  check_wmma<16, 16, 16, __nv_bfloat16, __nv_bfloat16, float, true, true>();
  check_wmma<8, 32, 16, __nv_bfloat16, __nv_bfloat16, float, true, false>();
  check_wmma<16, 16, 8, float, wmma::precision::tf32, float, true, false>();
  check_wmma<16, 16, 16, signed char, signed char, int, true, false>();
  check_wmma<32, 8, 16, unsigned char, unsigned char, int, false, true>();
  check_wmma<8, 8, 4, double, double, double, true, false>();
  check_gemm<__half>();
  check_gemm<__nv_bfloat16>();
  check_mma<float, float>(mma_tf32, 16, 8, 8);
  check_mma<signed char, int>(mma_s8, 16, 8, 32);
  check_mma<double, double>(mma_f64, 8, 8, 4);
  check_shuffles();
  return passed();
}
