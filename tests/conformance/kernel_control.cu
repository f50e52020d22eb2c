// Control flow and memory: divergence, loops, switches, recursion, virtual calls, local arrays,
// structs by value, vector loads, sub-word accesses, generic pointers into every space.
#include "conformance.h"

struct Shape {
  __device__ virtual int area(int x) const = 0;
};
struct Square : Shape {
  __device__ int area(int x) const override { return x * x; }
};
struct Bar : Shape {
  int width;
  __device__ explicit Bar(int w) : width(w) {}
  __device__ int area(int x) const override { return width * x; }
};

__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__host__ __device__ int collatz(int n) {
  int steps = 0;
  while (n != 1) {
    n = n % 2 ? 3 * n + 1 : n / 2;
    if (++steps > 200) break;
  }
  return steps;
}

__host__ __device__ int choose(int n) {
  switch (n % 9) {
    case 0:
      return 5;
    case 1:
      return n * 3;
    case 2:
      n += 7;  // falls through
    case 3:
      return n ^ 0x55;
    case 5:
      return -n;
    case 7:
      for (int i = 0; i < n; ++i) {
        if (i % 3 == 0) continue;
        if (i > 20) return i;
      }
      return 1;
    default:
      return collatz(n + 1);
  }
}

__host__ __device__ int sortLocal(int seed) {  // an array that lives in local memory
  int a[24];
  for (int i = 0; i < 24; ++i) a[i] = static_cast<int>(scramble(seed * 24 + i) >> 8);
  for (int i = 1; i < 24; ++i) {
    int x = a[i], j = i;
    for (; j > 0 && a[j - 1] > x; --j) a[j] = a[j - 1];
    a[j] = x;
  }
  return a[seed % 24];
}

struct Big {
  double d[20];
  char c[7];
  short s;
  float4 v;
};

__device__ __noinline__ int readAny(const int* p) { return *p; }
__constant__ int in_constant = 11;
__device__ int in_global = 22;

__global__ void run(Big big, int* out, uchar4* bytes, double2* pairs, short* shorts) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  __shared__ int in_shared;
  if (threadIdx.x == 0) in_shared = 33;
  __syncthreads();
  int* mine = out + i * 8;
  mine[0] = choose(i);
  mine[1] = sortLocal(i);
  Square square;
  Bar bar(i % 5);
  const Shape* shape = i % 3 ? static_cast<const Shape*>(&square) : &bar;
  mine[2] = shape->area(i);
  mine[3] = i < 14 ? fibonacci(i) : 0;
  int in_local = i;
  const int* anywhere[] = {&in_constant, &in_global, &in_shared, &in_local};
  mine[4] = readAny(anywhere[i % 4]);
  mine[5] = static_cast<int>(big.d[i % 20]) + big.c[i % 7] + big.s + static_cast<int>(big.v.z);
  uchar4 b = bytes[i];
  bytes[i] = make_uchar4(b.w, b.z + 1, b.y, b.x);
  double2 p = pairs[i];
  pairs[i] = make_double2(p.y, p.x + 0.5);
  shorts[i] = static_cast<short>(shorts[i] - 1000);
  mine[6] = gridDim.x * 1000 + blockDim.x;
  mine[7] = warpSize;
}

__global__ void dimensions(int3* out) {
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      make_int3(blockIdx.x * 100 + threadIdx.x, blockIdx.y * 100 + threadIdx.y,
                blockIdx.z * 100 + threadIdx.z);
}

int main() {
  constexpr int kCount = 192;
  Big big;
  for (int i = 0; i < 20; ++i) big.d[i] = i * 1.5;
  for (int i = 0; i < 7; ++i) big.c[i] = static_cast<char>(i - 3);
  big.s = -300;
  big.v = make_float4(1, 2, 3.5f, 4);
  std::vector<uchar4> bytes(kCount);
  std::vector<double2> pairs(kCount);
  std::vector<short> shorts(kCount);
  for (int i = 0; i < kCount; ++i) {
    bytes[i] = make_uchar4(i, i + 1, i + 2, 255);
    pairs[i] = make_double2(i, -i);
    shorts[i] = static_cast<short>(i * 300);
  }
  DeviceVector<int> out(kCount * 8);
  DeviceVector<uchar4> device_bytes(bytes);
  DeviceVector<double2> device_pairs(pairs);
  DeviceVector<short> device_shorts(shorts);
  run<<<3, kCount / 3>>>(big, out.get(), device_bytes.get(), device_pairs.get(),
                         device_shorts.get());
  CHECK(cudaGetLastError());
  auto got = out.copy();
  auto got_bytes = device_bytes.copy();
  auto got_pairs = device_pairs.copy();
  auto got_shorts = device_shorts.copy();
  const int fibonacci_numbers[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233};
  for (int i = 0; i < kCount; ++i) {
    const int* mine = &got[i * 8];
    EXPECT(mine[0] == choose(i));
    EXPECT(mine[1] == sortLocal(i));
    EXPECT(mine[2] == (i % 3 ? i * i : i % 5 * i));
    EXPECT(mine[3] == (i < 14 ? fibonacci_numbers[i] : 0));
    const int anywhere[] = {11, 22, 33, i};
    EXPECT(mine[4] == anywhere[i % 4]);
    EXPECT(mine[5] == static_cast<int>(i % 20 * 1.5) + i % 7 - 3 - 300 + 3);
    EXPECT(mine[6] == 3064 && mine[7] == 32);
    EXPECT(got_bytes[i].x == 255 && got_bytes[i].y == static_cast<uint8_t>(i + 3) &&
           got_bytes[i].z == static_cast<uint8_t>(i + 1) &&
           got_bytes[i].w == static_cast<uint8_t>(i));
    EXPECT(got_pairs[i].x == -i && got_pairs[i].y == i + 0.5);
    EXPECT(got_shorts[i] == static_cast<short>(i * 300 - 1000));
  }
  dim3 grid(3, 2, 2), block(5, 3, 2);
  DeviceVector<int3> places(3 * 2 * 2 * 30);
  dimensions<<<grid, block>>>(places.get());
  auto got_places = places.copy();
  for (int i = 0; i < 12 * 30; ++i) {
    int b = i / 30, t = i % 30;
    EXPECT(got_places[i].x == b % 3 * 100 + t % 5);
    EXPECT(got_places[i].y == b / 3 % 2 * 100 + t / 5 % 3);
    EXPECT(got_places[i].z == b / 6 * 100 + t / 15);
  }
  return passed();
}
