// Graphs, dynamic programming, clusters: branches, atomics and addresses that follow the data.
#include "suite.h"

namespace suite {
namespace {

using A = Array<float>;
using I = Array<int>;

__global__ void bfs(int n, int level, const int* first, const int* to, int* depth, int* changed) {
  const int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n || depth[v] != level) return;
  for (int e = first[v]; e < first[v + 1]; ++e)
    if (depth[to[e]] < 0) {
      depth[to[e]] = level + 1;
      *changed = 1;
    }
}
void bfs_case() {
  const int n = 1 << 15, degree = 6;
  I first(n + 1, [](size_t i) { return i * degree; });
  I to(n * degree, [=](size_t i) { return i * 2654435761u % 4294967291u % n; });
  I depth(n, [](size_t i) { return i == 0 ? 0 : -1; }), changed(1, [](size_t) { return 0; });
  measure(
      "bfs", 12, [&] { depth.reset(); },
      [&] {
        int again = 1;
        for (int level = 0; again != 0; ++level) {
          check(cudaMemset(changed.device, 0, 4), "cudaMemset");
          bfs<<<blocks(n, 256), 256>>>(n, level, first.device, to.device, depth.device,
                                       changed.device);
          check(cudaMemcpy(&again, changed.device, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
        }
      },
      [&] {
        std::vector<int> queue = {0};
        for (size_t k = 0; k < queue.size(); ++k) {
          const int v = queue[k];
          for (int e = first.host[v]; e < first.host[v + 1]; ++e) {
            const int w = to.host[e];
            if (depth.host[w] >= 0) continue;
            depth.host[w] = depth.host[v] + 1;
            queue.push_back(w);
          }
        }
      },
      [&] { return depth.difference(); });
}

// Needleman-Wunsch: one kernel per diagonal of tiles.
constexpr int kTile = 32;
__global__ void nw(int n, int diagonal, int lowest, const int* score, int* m) {
  __shared__ int t[kTile + 1][kTile + 1];
  const int bx = lowest + blockIdx.x, by = diagonal - bx, x = threadIdx.x;
  int* corner = m + by * kTile * (n + 1) + bx * kTile;
  const int* s = score + by * kTile * n + bx * kTile;
  for (int y = 0; y <= kTile; ++y) t[y][x + 1] = corner[y * (n + 1) + x + 1];
  t[x + 1][0] = corner[(x + 1) * (n + 1)];
  if (x == 0) t[0][0] = corner[0];
  __syncwarp();
  for (int step = 0; step < 2 * kTile - 1; ++step) {
    const int y = step - x;
    if (y >= 0 && y < kTile)
      t[y + 1][x + 1] = max(t[y][x] + s[y * n + x], max(t[y + 1][x] - 10, t[y][x + 1] - 10));
    __syncwarp();
  }
  for (int y = 0; y < kTile; ++y) corner[(y + 1) * (n + 1) + x + 1] = t[y + 1][x + 1];
}
void nw_case() {
  const int n = 512, tiles = n / kTile;
  I score(n * n, [](size_t i) { return (int)(i * 2654435761u % 21) - 10; });
  I m((n + 1) * (n + 1), [=](size_t i) {
    const int y = (int)(i / (n + 1)), x = (int)(i % (n + 1));
    return x == 0 ? -10 * y : y == 0 ? -10 * x : 0;
  });
  measure(
      "nw", 2 * tiles - 1, [&] { m.reset(); },
      [&] {
        for (int d = 0; d < 2 * tiles - 1; ++d) {
          const int lowest = d < tiles ? 0 : d - tiles + 1,
                    count = d < tiles ? d + 1 : 2 * tiles - 1 - d;
          nw<<<count, kTile>>>(n, d, lowest, score.device, m.device);
        }
      },
      [&] {
        int* t = &m.host[0];
        for (int y = 1; y <= n; ++y)
          for (int x = 1; x <= n; ++x) {
            const int a = t[(y - 1) * (n + 1) + x - 1] + score.host[(y - 1) * n + x - 1];
            const int b = t[y * (n + 1) + x - 1] - 10, c = t[(y - 1) * (n + 1) + x] - 10;
            const int bc = b > c ? b : c;
            t[y * (n + 1) + x] = a > bc ? a : bc;
          }
      },
      [&] { return m.difference(); });
}

// The cheapest way down a grid, one row per kernel.
__global__ void pathfinder(int n, const int* wall, const int* from, int* to) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= n) return;
  int best = from[x];
  if (x > 0) best = min(best, from[x - 1]);
  if (x < n - 1) best = min(best, from[x + 1]);
  to[x] = best + wall[x];
}
void pathfinder_case() {
  const int n = 20000, rows = 50;
  I wall(n * rows, [](size_t i) { return i * 2654435761u % 10; }), a(n, unit), b(n, unit);
  measure(
      "pathfinder", rows,
      [&] {
        a.reset();
        b.reset();
      },
      [&] {
        for (int r = 0; r < rows; ++r)
          pathfinder<<<blocks(n, 256), 256>>>(n, wall.device + r * n, (r & 1 ? b : a).device,
                                              (r & 1 ? a : b).device);
      },
      [&] {
        for (int r = 0; r < rows; ++r) {
          const int *w = &wall.host[r * n], *from = &(r & 1 ? b : a).host[0];
          int* to = &(r & 1 ? a : b).host[0];
          for (int x = 0; x < n; ++x) {
            int best = from[x];
            if (x > 0 && from[x - 1] < best) best = from[x - 1];
            if (x < n - 1 && from[x + 1] < best) best = from[x + 1];
            to[x] = best + w[x];
          }
        }
      },
      [&] { return a.difference(); });
}

// k-means: the nearest of the centers.
__global__ void nearest(int n, int k, int m, const float* p, const float* c, int* where) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float least = 1e30f;
  int best = 0;
  for (int j = 0; j < k; ++j) {
    float s = 0;
    for (int d = 0; d < m; ++d) s += (p[d * n + i] - c[j * m + d]) * (p[d * n + i] - c[j * m + d]);
    if (s < least) {
      least = s;
      best = j;
    }
  }
  where[i] = best;
}
void kmeans_case() {
  const int n = 1 << 15, k = 8, m = 16;
  A p(n * m, unit), c(k * m, unit);
  I where(n, [](size_t) { return -1; });
  measure(
      "kmeans", 1, [&] { where.reset(); },
      [&] { nearest<<<blocks(n, 256), 256>>>(n, k, m, p.device, c.device, where.device); },
      [&] {
        for (int i = 0; i < n; ++i) {
          float least = 1e30f;
          int best = 0;
          for (int j = 0; j < k; ++j) {
            float s = 0;
            for (int d = 0; d < m; ++d) {
              const float apart = p.host[d * n + i] - c.host[j * m + d];
              s += apart * apart;
            }
            if (s < least) {
              least = s;
              best = j;
            }
          }
          where.host[i] = best;
        }
      },
      [&] { return 0.0; });  // contraction may choose the other of two that are as near
}

__global__ void histogram(int n, const int* in, int* bins) {
  __shared__ int local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[in[i] & 255], 1);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
void histogram_case() {
  const int n = 1 << 20;
  I in(n, [](size_t i) { return i * 2654435761u >> 7; }), bins(256, [](size_t) { return 0; });
  measure(
      "histogram", 1, [&] { bins.reset(); },
      [&] { histogram<<<32, 256>>>(n, in.device, bins.device); },
      [&] {
        for (int i = 0; i < n; ++i) ++bins.host[in.host[i] & 255];
      },
      [&] { return bins.difference(); });
}

// A sparse matrix by a vector, one thread per row.
__global__ void spmv(int n, const int* first, const int* column, const float* a, const float* x,
                     float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = 0;
  for (int e = first[i]; e < first[i + 1]; ++e) s += a[e] * x[column[e]];
  y[i] = s;
}
void spmv_case() {
  const int n = 1 << 15;
  I first(n + 1, [](size_t i) { return 8 * i + i % 7; });
  I column(8 * n + 8, [=](size_t i) { return i * 2654435761u % 4294967291u % n; });
  A a(8 * n + 8, unit), x(n, unit), y(n, unit);
  measure(
      "spmv", 1, [&] { y.reset(); },
      [&] {
        spmv<<<blocks(n, 256), 256>>>(n, first.device, column.device, a.device, x.device, y.device);
      },
      [&] {
        for (int i = 0; i < n; ++i) {
          float s = 0;
          for (int e = first.host[i]; e < first.host[i + 1]; ++e)
            s += a.host[e] * x.host[column.host[e]];
          y.host[i] = s;
        }
      },
      [&] { return y.difference(); });
}

}  // namespace

void irregular() {
  bfs_case();
  nw_case();
  pathfinder_case();
  kmeans_case();
  histogram_case();
  spmv_case();
}

}  // namespace suite
