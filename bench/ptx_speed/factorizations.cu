// Programs of many small launches.
#include "suite.h"

namespace suite {
namespace {

using A = Array<float>;
const dim3 kBlock2(32, 8);

// Gram-Schmidt, three kernels per column.
__global__ void norm(int n, int m, int k, const float* a, float* r) {
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  float s = 0;
  for (int i = 0; i < n; ++i) s += a[i * m + k] * a[i * m + k];
  r[k * m + k] = sqrtf(s);
}
__global__ void scale(int n, int m, int k, const float* a, const float* r, float* q) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) q[i * m + k] = a[i * m + k] / r[k * m + k];
}
__global__ void project(int n, int m, int k, float* a, float* r, const float* q) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j <= k || j >= m) return;
  float s = 0;
  for (int i = 0; i < n; ++i) s += q[i * m + k] * a[i * m + j];
  r[k * m + j] = s;
  for (int i = 0; i < n; ++i) a[i * m + j] -= q[i * m + k] * s;
}
void plain_gram_schmidt(int n, int m, float* a, float* r, float* q) {
  for (int k = 0; k < m; ++k) {
    float s = 0;
    for (int i = 0; i < n; ++i) s += a[i * m + k] * a[i * m + k];
    r[k * m + k] = sqrtf(s);
    for (int i = 0; i < n; ++i) q[i * m + k] = a[i * m + k] / r[k * m + k];
    for (int j = k + 1; j < m; ++j) {
      float t = 0;
      for (int i = 0; i < n; ++i) t += q[i * m + k] * a[i * m + j];
      r[k * m + j] = t;
      for (int i = 0; i < n; ++i) a[i * m + j] -= q[i * m + k] * t;
    }
  }
}
void gram_schmidt_case() {
  const int n = 128;
  A a(n * n, [](size_t i) { return unit(i * i + i / 128); }), r(n * n, unit), q(n * n, unit);
  measure(
      "gramschmidt", 3 * n,
      [&] {
        a.reset();
        r.reset();
        q.reset();
      },
      [&] {
        for (int k = 0; k < n; ++k) {
          norm<<<1, 32>>>(n, n, k, a.device, r.device);
          scale<<<blocks(n, 128), 128>>>(n, n, k, a.device, r.device, q.device);
          project<<<blocks(n, 128), 128>>>(n, n, k, a.device, r.device, q.device);
        }
      },
      [&] { plain_gram_schmidt(n, n, &a.host[0], &r.host[0], &q.host[0]); },
      [&] { return r.difference(); });
}

// LU in place: two kernels per column.
__global__ void lu_divide(int n, int k, float* a) {
  const int i = k + 1 + blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i * n + k] /= a[k * n + k];
}
__global__ void lu_update(int n, int k, float* a) {
  const int j = k + 1 + blockIdx.x * blockDim.x + threadIdx.x,
            i = k + 1 + blockIdx.y * blockDim.y + threadIdx.y;
  if (i < n && j < n) a[i * n + j] -= a[i * n + k] * a[k * n + j];
}
float dominant(size_t i, int n) { return unit(i) + (i / n == i % n ? (float)n : 0); }
void lu_case() {
  const int n = 160;
  A a(n * n, [=](size_t i) { return dominant(i, n); });
  measure(
      "lu", 2 * n, [&] { a.reset(); },
      [&] {
        for (int k = 0; k + 1 < n; ++k) {
          const int left = n - k - 1;
          lu_divide<<<blocks(left, 128), 128>>>(n, k, a.device);
          lu_update<<<dim3(blocks(left, 32), blocks(left, 8)), kBlock2>>>(n, k, a.device);
        }
      },
      [&] {
        float* x = &a.host[0];
        for (int k = 0; k + 1 < n; ++k)
          for (int i = k + 1; i < n; ++i) {
            x[i * n + k] /= x[k * n + k];
            for (int j = k + 1; j < n; ++j) x[i * n + j] -= x[i * n + k] * x[k * n + j];
          }
      },
      [&] { return a.difference(); });
}

// Gaussian elimination of Rodinia: the multipliers, then matrix and right side.
__global__ void fan1(int n, int t, const float* a, float* m) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n - 1 - t) m[n * (i + t + 1) + t] = a[n * (i + t + 1) + t] / a[n * t + t];
}
__global__ void fan2(int n, int t, float* a, float* b, const float* m) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n - 1 - t || y >= n - t) return;
  a[n * (x + 1 + t) + y + t] -= m[n * (x + 1 + t) + t] * a[n * t + y + t];
  if (y == 0) b[x + 1 + t] -= m[n * (x + 1 + t) + t] * b[t];
}
void gaussian_case() {
  const int n = 128;
  A a(n * n, [=](size_t i) { return dominant(i, n); }), b(n, unit),
      m(n * n, [](size_t) { return 0.f; });
  measure(
      "gaussian", 2 * n,
      [&] {
        a.reset();
        b.reset();
        m.reset();
      },
      [&] {
        for (int t = 0; t < n - 1; ++t) {
          fan1<<<1, 128>>>(n, t, a.device, m.device);
          fan2<<<dim3(blocks(n, 16), blocks(n, 16)), dim3(16, 16)>>>(n, t, a.device, b.device,
                                                                     m.device);
        }
      },
      [&] {
        float *x = &a.host[0], *y = &b.host[0], *z = &m.host[0];
        for (int t = 0; t < n - 1; ++t) {
          for (int i = t + 1; i < n; ++i) z[n * i + t] = x[n * i + t] / x[n * t + t];
          for (int i = t + 1; i < n; ++i) {
            for (int j = t; j < n; ++j) x[n * i + j] -= z[n * i + t] * x[n * t + j];
            y[i] -= z[n * i + t] * y[t];
          }
        }
      },
      [&] { return std::fmax(a.difference(), b.difference()); });
}

// The shortest ways between all pairs, one kernel per vertex.
__global__ void floyd(int n, int k, int* d) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= n || j >= n) return;
  const int way = d[i * n + k] + d[k * n + j];
  if (way < d[i * n + j]) d[i * n + j] = way;
}
void floyd_case() {
  const int n = 128;
  Array<int> d(n * n, [](size_t i) { return i * 2654435761u % 997 + 1; });
  measure(
      "floyd-warshall", n, [&] { d.reset(); },
      [&] {
        for (int k = 0; k < n; ++k)
          floyd<<<dim3(blocks(n, 32), blocks(n, 8)), kBlock2>>>(n, k, d.device);
      },
      [&] {
        int* x = &d.host[0];
        for (int k = 0; k < n; ++k)
          for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j) {
              const int way = x[i * n + k] + x[k * n + j];
              if (way < x[i * n + j]) x[i * n + j] = way;
            }
      },
      [&] { return d.difference(); });
}

}  // namespace

void factorizations() {
  gram_schmidt_case();
  lu_case();
  gaussian_case();
  floyd_case();
}

}  // namespace suite
