// Products of matrices and vectors, and statistics.
#include "suite.h"

namespace suite {
namespace {

using A = Array<float>;

// c = alpha a b + beta c
__global__ void gemm(int n, int m, int p, float alpha, float beta, const float* a, const float* b,
                     float* c) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= n || j >= m) return;
  c[i * m + j] *= beta;
  for (int k = 0; k < p; ++k) c[i * m + j] += alpha * a[i * p + k] * b[k * m + j];
}
void plain_gemm(int n, int m, int p, float alpha, float beta, const float* a, const float* b,
                float* c) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < m; ++j) {
      c[i * m + j] *= beta;
      for (int k = 0; k < p; ++k) c[i * m + j] += alpha * a[i * p + k] * b[k * m + j];
    }
}
dim3 grid2(int columns, int rows) { return dim3(blocks(columns, 32), blocks(rows, 8)); }
const dim3 kBlock2(32, 8);

void gemm_case() {
  const int n = 192;
  A a(n * n, unit), b(n * n, unit), c(n * n, unit);
  measure(
      "gemm", 1, [&] { c.reset(); },
      [&] { gemm<<<grid2(n, n), kBlock2>>>(n, n, n, 1.5f, 1.2f, a.device, b.device, c.device); },
      [&] { plain_gemm(n, n, n, 1.5f, 1.2f, &a.host[0], &b.host[0], &c.host[0]); },
      [&] { return c.difference(); });
}
void mm2_case() {
  const int n = 160;
  A a(n * n, unit), b(n * n, unit), c(n * n, unit), t(n * n, unit), d(n * n, unit);
  measure(
      "2mm", 2,
      [&] {
        t.reset();
        d.reset();
      },
      [&] {
        gemm<<<grid2(n, n), kBlock2>>>(n, n, n, 1.5f, 0, a.device, b.device, t.device);
        gemm<<<grid2(n, n), kBlock2>>>(n, n, n, 1, 1.2f, t.device, c.device, d.device);
      },
      [&] {
        plain_gemm(n, n, n, 1.5f, 0, &a.host[0], &b.host[0], &t.host[0]);
        plain_gemm(n, n, n, 1, 1.2f, &t.host[0], &c.host[0], &d.host[0]);
      },
      [&] { return d.difference(); });
}

// y += a x (rows) and y += a' x (columns), one thread per element of y.
__global__ void rows_by(int n, int m, const float* a, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int j = 0; j < m; ++j) y[i] += a[i * m + j] * x[j];
}
__global__ void columns_by(int n, int m, const float* a, const float* x, float* y) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= m) return;
  for (int i = 0; i < n; ++i) y[j] += a[i * m + j] * x[i];
}
void plain_rows(int n, int m, const float* a, const float* x, float* y) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < m; ++j) y[i] += a[i * m + j] * x[j];
}
void plain_columns(int n, int m, const float* a, const float* x, float* y) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < m; ++j) y[j] += a[i * m + j] * x[i];
}

void vectors_case(const char* name, bool chain) {
  const int n = 1024;
  A a(n * n, unit), x(n, unit), y(n, unit), p(n, unit), q(n, unit);
  measure(
      name, 2,
      [&] {
        p.reset();
        q.reset();
      },
      [&] {
        rows_by<<<n / 256, 256>>>(n, n, a.device, x.device, p.device);
        columns_by<<<n / 256, 256>>>(n, n, a.device, chain ? p.device : y.device, q.device);
      },
      [&] {
        plain_rows(n, n, &a.host[0], &x.host[0], &p.host[0]);
        plain_columns(n, n, &a.host[0], chain ? &p.host[0] : &y.host[0], &q.host[0]);
      },
      [&] { return std::fmax(p.difference(), q.difference()); });
}

__global__ void gesummv(int n, float alpha, float beta, const float* a, const float* b,
                        const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = 0, t = 0;
  for (int j = 0; j < n; ++j) {
    s += a[i * n + j] * x[j];
    t += b[i * n + j] * x[j];
  }
  y[i] = alpha * s + beta * t;
}
void gesummv_case() {
  const int n = 1024;
  A a(n * n, unit), b(n * n, unit), x(n, unit), y(n, unit);
  measure(
      "gesummv", 1, [&] { y.reset(); },
      [&] { gesummv<<<n / 256, 256>>>(n, 1.5f, 1.2f, a.device, b.device, x.device, y.device); },
      [&] {
        for (int i = 0; i < n; ++i) {
          float s = 0, t = 0;
          for (int j = 0; j < n; ++j) {
            s += a.host[i * n + j] * x.host[j];
            t += b.host[i * n + j] * x.host[j];
          }
          y.host[i] = 1.5f * s + 1.2f * t;
        }
      },
      [&] { return y.difference(); });
}

// c = alpha a a' + beta c, in doubles.
__global__ void syrk(int n, int m, double alpha, double beta, const double* a, double* c) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= n || j >= n) return;
  c[i * n + j] *= beta;
  for (int k = 0; k < m; ++k) c[i * n + j] += alpha * a[i * m + k] * a[j * m + k];
}
void syrk_case() {
  const int n = 160;
  Array<double> a(n * n, unit), c(n * n, unit);
  measure(
      "syrk (double)", 1, [&] { c.reset(); },
      [&] { syrk<<<grid2(n, n), kBlock2>>>(n, n, 1.5, 1.2, a.device, c.device); },
      [&] {
        for (int i = 0; i < n; ++i)
          for (int j = 0; j < n; ++j) {
            c.host[i * n + j] *= 1.2;
            for (int k = 0; k < n; ++k)
              c.host[i * n + j] += 1.5 * a.host[i * n + k] * a.host[j * n + k];
          }
      },
      [&] { return c.difference(); });
}

// Mean of each column, deviation, then the triangle of the correlations.
__global__ void mean_and_deviation(int n, int m, const float* d, float* mean, float* deviation) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= m) return;
  float s = 0;
  for (int i = 0; i < n; ++i) s += d[i * m + j];
  s /= (float)n;
  float v = 0;
  for (int i = 0; i < n; ++i) v += (d[i * m + j] - s) * (d[i * m + j] - s);
  mean[j] = s;
  deviation[j] = sqrtf(v / (float)n) + 0.005f;
}
__global__ void center(int n, int m, float* d, const float* mean, const float* deviation) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < n && j < m) d[i * m + j] = (d[i * m + j] - mean[j]) / (sqrtf((float)n) * deviation[j]);
}
__global__ void correlate(int n, int m, const float* d, float* r) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= m) return;
  r[j * m + j] = 1;
  for (int k = j + 1; k < m; ++k) {
    float s = 0;
    for (int i = 0; i < n; ++i) s += d[i * m + j] * d[i * m + k];
    r[j * m + k] = r[k * m + j] = s;
  }
}
void plain_correlation(int n, int m, float* d, float* mean, float* deviation, float* r) {
  for (int j = 0; j < m; ++j) {
    float s = 0, v = 0;
    for (int i = 0; i < n; ++i) s += d[i * m + j];
    s /= (float)n;
    for (int i = 0; i < n; ++i) v += (d[i * m + j] - s) * (d[i * m + j] - s);
    mean[j] = s;
    deviation[j] = sqrtf(v / (float)n) + 0.005f;
  }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < m; ++j)
      d[i * m + j] = (d[i * m + j] - mean[j]) / (sqrtf((float)n) * deviation[j]);
  for (int j = 0; j < m; ++j) {
    r[j * m + j] = 1;
    for (int k = j + 1; k < m; ++k) {
      float s = 0;
      for (int i = 0; i < n; ++i) s += d[i * m + j] * d[i * m + k];
      r[j * m + k] = r[k * m + j] = s;
    }
  }
}
void correlation_case() {
  const int n = 160;
  A d(n * n, unit), r(n * n, unit), mean(n, unit), deviation(n, unit);
  measure(
      "correlation", 3,
      [&] {
        d.reset();
        r.reset();
      },
      [&] {
        mean_and_deviation<<<blocks(n, 64), 64>>>(n, n, d.device, mean.device, deviation.device);
        center<<<grid2(n, n), kBlock2>>>(n, n, d.device, mean.device, deviation.device);
        correlate<<<blocks(n, 64), 64>>>(n, n, d.device, r.device);
      },
      [&] { plain_correlation(n, n, &d.host[0], &mean.host[0], &deviation.host[0], &r.host[0]); },
      [&] { return r.difference(); });
}

}  // namespace

void linear_algebra() {
  gemm_case();
  mm2_case();
  vectors_case("atax", true);
  vectors_case("bicg", false);
  vectors_case("mvt", false);
  gesummv_case();
  syrk_case();
  correlation_case();
}

}  // namespace suite
