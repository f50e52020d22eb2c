// Stencils.
#include "suite.h"

namespace suite {
namespace {

using A = Array<float>;
const dim3 kBlock2(32, 8);
dim3 grid2(int columns, int rows) { return dim3(blocks(columns, 32), blocks(rows, 8)); }

__global__ void jacobi2d(int n, const float* a, float* b) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < 1 || j < 1 || i >= n - 1 || j >= n - 1) return;
  b[i * n + j] = 0.2f * (a[i * n + j] + a[i * n + j - 1] + a[i * n + j + 1] + a[(i + 1) * n + j] +
                         a[(i - 1) * n + j]);
}
void plain_jacobi2d(int n, const float* a, float* b) {
  for (int i = 1; i < n - 1; ++i)
    for (int j = 1; j < n - 1; ++j)
      b[i * n + j] = 0.2f * (a[i * n + j] + a[i * n + j - 1] + a[i * n + j + 1] +
                             a[(i + 1) * n + j] + a[(i - 1) * n + j]);
}
void jacobi2d_case() {
  const int n = 500, steps = 10;
  A a(n * n, unit), b(n * n, unit);
  measure(
      "jacobi-2d", 2 * steps,
      [&] {
        a.reset();
        b.reset();
      },
      [&] {
        for (int t = 0; t < steps; ++t) {
          jacobi2d<<<grid2(n, n), kBlock2>>>(n, a.device, b.device);
          jacobi2d<<<grid2(n, n), kBlock2>>>(n, b.device, a.device);
        }
      },
      [&] {
        for (int t = 0; t < steps; ++t) {
          plain_jacobi2d(n, &a.host[0], &b.host[0]);
          plain_jacobi2d(n, &b.host[0], &a.host[0]);
        }
      },
      [&] { return a.difference(); });
}

__global__ void conv2d(int n, const float* a, float* b) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < 1 || j < 1 || i >= n - 1 || j >= n - 1) return;
  const float* p = a + i * n + j;
  b[i * n + j] = 0.2f * p[-n - 1] - 0.3f * p[-1] + 0.4f * p[n - 1] + 0.5f * p[-n] + 0.6f * p[0] +
                 0.7f * p[n] - 0.8f * p[-n + 1] - 0.9f * p[1] + 0.1f * p[n + 1];
}
void conv2d_case() {
  const int n = 1024;
  A a(n * n, unit), b(n * n, unit);
  measure(
      "2d-convolution", 1, [&] { b.reset(); },
      [&] { conv2d<<<grid2(n, n), kBlock2>>>(n, a.device, b.device); },
      [&] {
        for (int i = 1; i < n - 1; ++i)
          for (int j = 1; j < n - 1; ++j) {
            const float* p = &a.host[i * n + j];
            b.host[i * n + j] = 0.2f * p[-n - 1] - 0.3f * p[-1] + 0.4f * p[n - 1] + 0.5f * p[-n] +
                                0.6f * p[0] + 0.7f * p[n] - 0.8f * p[-n + 1] - 0.9f * p[1] +
                                0.1f * p[n + 1];
          }
      },
      [&] { return b.difference(); });
}

// Finite differences in the time domain: three small kernels per step.
__global__ void fdtd_y(int n, int t, const float* hz, float* ey, const float* edge) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= n || j >= n) return;
  ey[i * n + j] = i == 0 ? edge[t] : ey[i * n + j] - 0.5f * (hz[i * n + j] - hz[(i - 1) * n + j]);
}
__global__ void fdtd_x(int n, const float* hz, float* ex) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < n && j < n && j > 0) ex[i * n + j] -= 0.5f * (hz[i * n + j] - hz[i * n + j - 1]);
}
__global__ void fdtd_z(int n, const float* ex, const float* ey, float* hz) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < n - 1 && j < n - 1)
    hz[i * n + j] -=
        0.7f * (ex[i * n + j + 1] - ex[i * n + j] + ey[(i + 1) * n + j] - ey[i * n + j]);
}
void plain_fdtd(int n, int t, float* ex, float* ey, float* hz, const float* edge) {
  for (int j = 0; j < n; ++j) ey[j] = edge[t];
  for (int i = 1; i < n; ++i)
    for (int j = 0; j < n; ++j) ey[i * n + j] -= 0.5f * (hz[i * n + j] - hz[(i - 1) * n + j]);
  for (int i = 0; i < n; ++i)
    for (int j = 1; j < n; ++j) ex[i * n + j] -= 0.5f * (hz[i * n + j] - hz[i * n + j - 1]);
  for (int i = 0; i < n - 1; ++i)
    for (int j = 0; j < n - 1; ++j)
      hz[i * n + j] -=
          0.7f * (ex[i * n + j + 1] - ex[i * n + j] + ey[(i + 1) * n + j] - ey[i * n + j]);
}
void fdtd_case() {
  const int n = 200, steps = 40;
  A ex(n * n, unit), ey(n * n, unit), hz(n * n, unit), edge(steps, unit);
  measure(
      "fdtd-2d", 3 * steps,
      [&] {
        ex.reset();
        ey.reset();
        hz.reset();
      },
      [&] {
        for (int t = 0; t < steps; ++t) {
          fdtd_y<<<grid2(n, n), kBlock2>>>(n, t, hz.device, ey.device, edge.device);
          fdtd_x<<<grid2(n, n), kBlock2>>>(n, hz.device, ex.device);
          fdtd_z<<<grid2(n, n), kBlock2>>>(n, ex.device, ey.device, hz.device);
        }
      },
      [&] {
        for (int t = 0; t < steps; ++t)
          plain_fdtd(n, t, &ex.host[0], &ey.host[0], &hz.host[0], &edge.host[0]);
      },
      [&] { return hz.difference(); });
}

// The heat of a chip: tiles in shared memory, edges clamped.
constexpr int kTile = 16;
__global__ void hotspot(int n, const float* power, const float* in, float* out) {
  __shared__ float t[kTile + 2][kTile + 2];
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
  const int cx = min(x, n - 1), cy = min(y, n - 1);
  t[ty][tx] = in[cy * n + cx];
  if (threadIdx.x == 0) t[ty][0] = in[cy * n + max(cx - 1, 0)];
  if (threadIdx.x == kTile - 1) t[ty][kTile + 1] = in[cy * n + min(cx + 1, n - 1)];
  if (threadIdx.y == 0) t[0][tx] = in[max(cy - 1, 0) * n + cx];
  if (threadIdx.y == kTile - 1) t[kTile + 1][tx] = in[min(cy + 1, n - 1) * n + cx];
  __syncthreads();
  if (x >= n || y >= n) return;
  const float c = t[ty][tx];
  out[y * n + x] = c + 0.01f * (power[y * n + x] + (t[ty + 1][tx] + t[ty - 1][tx] - 2 * c) * 0.3f +
                                (t[ty][tx + 1] + t[ty][tx - 1] - 2 * c) * 0.2f + (80 - c) * 0.1f);
}
void plain_hotspot(int n, const float* power, const float* in, float* out) {
  for (int y = 0; y < n; ++y)
    for (int x = 0; x < n; ++x) {
      const float c = in[y * n + x];
      const float up = in[(y > 0 ? y - 1 : 0) * n + x], down = in[(y < n - 1 ? y + 1 : y) * n + x],
                  left = in[y * n + (x > 0 ? x - 1 : 0)],
                  right = in[y * n + (x < n - 1 ? x + 1 : x)];
      out[y * n + x] = c + 0.01f * (power[y * n + x] + (down + up - 2 * c) * 0.3f +
                                    (right + left - 2 * c) * 0.2f + (80 - c) * 0.1f);
    }
}
void hotspot_case() {
  const int n = 256, steps = 20;
  A power(n * n, unit), a(n * n, unit), b(n * n, unit);
  const dim3 grid(n / kTile, n / kTile), block(kTile, kTile);
  measure(
      "hotspot", 2 * steps,
      [&] {
        a.reset();
        b.reset();
      },
      [&] {
        for (int t = 0; t < steps; ++t) {
          hotspot<<<grid, block>>>(n, power.device, a.device, b.device);
          hotspot<<<grid, block>>>(n, power.device, b.device, a.device);
        }
      },
      [&] {
        for (int t = 0; t < steps; ++t) {
          plain_hotspot(n, &power.host[0], &a.host[0], &b.host[0]);
          plain_hotspot(n, &power.host[0], &b.host[0], &a.host[0]);
        }
      },
      [&] { return a.difference(); });
}

// Diffusion that removes speckle: a coefficient, then the step, with divisions.
__host__ __device__ inline float coefficient(float c, float n, float s, float w, float e) {
  const float dn = n - c, ds = s - c, dw = w - c, de = e - c;
  const float g = (dn * dn + ds * ds + dw * dw + de * de) / (c * c), l = (dn + ds + dw + de) / c;
  const float q = (0.5f * g - 0.0625f * l * l) / ((1 + 0.25f * l) * (1 + 0.25f * l));
  const float r = 1 / (1 + (q - 0.05f) / (0.05f * 1.05f));
  return r < 0 ? 0 : r > 1 ? 1 : r;
}
__global__ void srad1(int n, const float* a, float* k) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n || y >= n) return;
  k[y * n + x] = coefficient(a[y * n + x], a[max(y - 1, 0) * n + x], a[min(y + 1, n - 1) * n + x],
                             a[y * n + max(x - 1, 0)], a[y * n + min(x + 1, n - 1)]);
}
__global__ void srad2(int n, const float* k, const float* a, float* b) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n || y >= n) return;
  const float c = a[y * n + x], kc = k[y * n + x];
  const float ks = k[min(y + 1, n - 1) * n + x], ke = k[y * n + min(x + 1, n - 1)];
  b[y * n + x] =
      c + 0.125f * (kc * (a[max(y - 1, 0) * n + x] - c) + ks * (a[min(y + 1, n - 1) * n + x] - c) +
                    kc * (a[y * n + max(x - 1, 0)] - c) + ke * (a[y * n + min(x + 1, n - 1)] - c));
}
void plain_srad(int n, const float* a, float* k, float* b) {
  for (int y = 0; y < n; ++y)
    for (int x = 0; x < n; ++x) {
      const int u = y > 0 ? y - 1 : 0, d = y < n - 1 ? y + 1 : y, l = x > 0 ? x - 1 : 0,
                r = x < n - 1 ? x + 1 : x;
      k[y * n + x] =
          coefficient(a[y * n + x], a[u * n + x], a[d * n + x], a[y * n + l], a[y * n + r]);
    }
  for (int y = 0; y < n; ++y)
    for (int x = 0; x < n; ++x) {
      const int u = y > 0 ? y - 1 : 0, d = y < n - 1 ? y + 1 : y, l = x > 0 ? x - 1 : 0,
                r = x < n - 1 ? x + 1 : x;
      const float c = a[y * n + x], kc = k[y * n + x];
      b[y * n + x] = c + 0.125f * (kc * (a[u * n + x] - c) + k[d * n + x] * (a[d * n + x] - c) +
                                   kc * (a[y * n + l] - c) + k[y * n + r] * (a[y * n + r] - c));
    }
}
void srad_case() {
  const int n = 256, steps = 5;
  A a(n * n, [](size_t i) { return unit(i) + 1; }), b(n * n, unit), k(n * n, unit);
  measure(
      "srad", 4 * steps,
      [&] {
        a.reset();
        b.reset();
      },
      [&] {
        for (int t = 0; t < steps; ++t) {
          srad1<<<grid2(n, n), kBlock2>>>(n, a.device, k.device);
          srad2<<<grid2(n, n), kBlock2>>>(n, k.device, a.device, b.device);
          srad1<<<grid2(n, n), kBlock2>>>(n, b.device, k.device);
          srad2<<<grid2(n, n), kBlock2>>>(n, k.device, b.device, a.device);
        }
      },
      [&] {
        for (int t = 0; t < steps; ++t) {
          plain_srad(n, &a.host[0], &k.host[0], &b.host[0]);
          plain_srad(n, &b.host[0], &k.host[0], &a.host[0]);
        }
      },
      [&] { return a.difference(); });
}

}  // namespace

void stencils() {
  jacobi2d_case();
  conv2d_case();
  fdtd_case();
  hotspot_case();
  srad_case();
}

}  // namespace suite
