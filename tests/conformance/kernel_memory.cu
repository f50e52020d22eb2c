// Memory as kernels use it: every width and cache operator, local arrays, constants, structures
// through calls, function pointers, recursion, the device heap, alloca; atomics of every type and
// scope; shuffles of every mode and width.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "conformance.h"

// ---- loads and stores ----

template <class T>
__global__ void operators(const T* in, T* out, int n) {
  const int i = threadIdx.x;
  __shared__ T shared[64];
  shared[i] = in[i];
  __syncthreads();
  out[i] = __ldg(in + i);
  out[n + i] = __ldca(in + i);
  __stcg(out + 2 * n + i, __ldcg(in + i));
  __stcs(out + 3 * n + i, __ldcs(in + i));
  __stwt(out + 4 * n + i, __ldlu(in + i));
  __stwb(out + 5 * n + i, __ldcv(in + i));
  out[6 * n + i] = shared[(i + 7) % n];
}
template <class T>
void check_operators(const char* name) {
  const int n = 64;
  std::vector<T> in(n);
  auto* bytes = reinterpret_cast<unsigned char*>(in.data());
  for (size_t k = 0; k < n * sizeof(T); ++k) bytes[k] = (unsigned char)scramble((uint32_t)k);
  DeviceVector<T> device(in), out(7 * n);
  operators<T><<<1, n>>>(device.get(), out.get(), n);
  CHECK(cudaDeviceSynchronize());
  const std::vector<T> got = out.copy();
  for (int k = 0; k < 7; ++k)
    for (int i = 0; i < n; ++i)
      if (memcmp(&got[(size_t)(k * n + i)], &in[(size_t)(k == 6 ? (i + 7) % n : i)], sizeof(T))) {
        fprintf(stderr, "%s: operator %d of element %d\n", name, k, i);
        exit(1);
      }
}

// ---- calls, local memory, the heap ----

struct Matrix {
  double m[4];
  short tag;
  unsigned char flags[3];
};
__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ int global_counter = 5;
__device__ const char* words[3] = {"zero", "one", "two"};

__device__ __noinline__ Matrix turn(Matrix a, short tag, int k) {
  Matrix r = a;
  for (int i = 0; i < 4; ++i) r.m[i] = a.m[(i + k) & 3] * tag;
  r.tag = (short)(a.tag + tag);
  r.flags[k % 3] = (unsigned char)(k + 1);
  return r;
}
__device__ __noinline__ int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
using Operation = int (*)(int, int);
__device__ __noinline__ int plus_(int a, int b) { return a + b; }
__device__ __noinline__ int minus_(int a, int b) { return a - b; }
__device__ __noinline__ int times_(int a, int b) { return a * b; }
__device__ Operation operations[3] = {plus_, minus_, times_};

struct Base {
  __device__ virtual int value(int x) const { return x; }
  __device__ virtual ~Base() {}
};
struct Derived : Base {
  int add;
  __device__ explicit Derived(int a) : add(a) {}
  __device__ int value(int x) const override { return x * 2 + add; }
};

__global__ void calls(int* out) {
  const int i = threadIdx.x;
  int* o = out + i * 16;
  Matrix a{};
  for (int k = 0; k < 4; ++k) a.m[k] = k + i;
  a.tag = (short)i;
  const Matrix b = turn(a, 3, i & 3);
  o[0] = (int)b.m[1];
  o[1] = b.tag;
  o[2] = b.flags[(i & 3) % 3];
  o[3] = ackermann(2, i % 5);
  o[4] = operations[i % 3](i, 7);
  int local[32];
  for (int k = 0; k < 32; ++k) local[(k * 7 + i) & 31] = k * i;
  o[5] = local[(i * 3) & 31];
  o[6] = primes[i & 7];
  o[7] = words[i % 3][1];
  switch (i % 11) {
    case 0:
      o[8] = 100;
      break;
    case 1:
      o[8] = i * 3;
      break;
    case 2:
      o[8] = i ^ 55;
      break;
    case 3:
      o[8] = -i;
      break;
    case 4:
      o[8] = i << 4;
      break;
    case 5:
      o[8] = 5000 / (i + 1);
      break;
    case 7:
      o[8] = i % 4;
      break;
    case 9:
      o[8] = 9;
      break;
    default:
      o[8] = 1;
      break;
  }
  Base* base = i & 1 ? new Base : new Derived(i);
  o[9] = base->value(i);
  delete base;
  int* heap = (int*)malloc(((size_t)i + 1) * 4);
  for (int k = 0; k <= i; ++k) heap[k] = k;
  int sum = 0;
  for (int k = 0; k <= i; ++k) sum += heap[k];
  o[10] = sum;
  free(heap);
  auto* room = (unsigned char*)alloca((size_t)(i % 20) + 1);
  for (int k = 0; k <= i % 20; ++k) room[k] = (unsigned char)(k * 3);
  o[11] = room[i % 20];
  o[12] = global_counter;
  double parts;
  o[13] = (int)(modf(i * 1.25, &parts) * 100) + (int)parts;
  o[14] = __isGlobal(out) + 2 * __isLocal(local) + 4 * __isConstant(primes);
  memcpy(local, primes, sizeof primes);
  o[15] = local[i & 7];
}
static int host_ackermann(int m, int n) {
  if (m == 0) return n + 1;
  return n == 0 ? host_ackermann(m - 1, 1) : host_ackermann(m - 1, host_ackermann(m, n - 1));
}
void check_calls() {
  const int n = 96, primes_[] = {2, 3, 5, 7, 11, 13, 17, 19};
  DeviceVector<int> out(16 * n);
  calls<<<1, n>>>(out.get());
  CHECK(cudaDeviceSynchronize());
  const std::vector<int> got = out.copy();
  for (int i = 0; i < n; ++i) {
    int local[32];
    for (int k = 0; k < 32; ++k) local[(k * 7 + i) & 31] = k * i;
    const int r = i % 11, cases = r == 0   ? 100
                                  : r == 1 ? i * 3
                                  : r == 2 ? i ^ 55
                                  : r == 3 ? -i
                                  : r == 4 ? i << 4
                                  : r == 5 ? 5000 / (i + 1)
                                  : r == 7 ? i % 4
                                  : r == 9 ? 9
                                           : 1;
    double parts;
    const int want[16] = {(((1 + (i & 3)) & 3) + i) * 3,
                          i + 3,
                          (i & 3) + 1,
                          host_ackermann(2, i % 5),
                          i % 3 == 0   ? i + 7
                          : i % 3 == 1 ? i - 7
                                       : i * 7,
                          local[(i * 3) & 31],
                          primes_[i & 7],
                          "enw"[i % 3],
                          cases,
                          i & 1 ? i : i * 3,
                          i * (i + 1) / 2,
                          (i % 20) * 3,
                          5,
                          (int)(modf(i * 1.25, &parts) * 100) + (int)parts,
                          7,
                          primes_[i & 7]};
    for (int k = 0; k < 16; ++k)
      if (got[(size_t)(i * 16 + k)] != want[k]) {
        fprintf(stderr, "calls: thread %d, result %d: %d instead of %d\n", i, k,
                got[(size_t)(i * 16 + k)], want[k]);
        exit(1);
      }
  }
}

// ---- atomics ----

struct Totals {
  int add, least, most, exchanged, count, block, system;
  unsigned all, any, odd, up, down, umost;
  unsigned long long ladd, lall, lany, lodd, lmost, lleast, lswap;
  long long slmost, slleast;
  float fadd;
  double dadd;
  __half2 h2;
  __nv_bfloat162 b2;
  __half h;
  unsigned short small[2];
  int pad;
  float4 four;
  unsigned long long wide[2];
};
__device__ void totals(Totals* t, int i) {
  atomicAdd(&t->add, i);
  atomicSub(&t->add, 1);
  atomicMin(&t->least, 500 - i);
  atomicMax(&t->most, i * 3);
  atomicAdd(&t->count, atomicExch(&t->exchanged, i) == -1 ? 1000 : 0);
  atomicAdd_block(&t->block, 2);
  atomicAdd_system(&t->system, 3);
  atomicAnd(&t->all, ~(1u << (i & 7)));
  atomicOr(&t->any, 1u << (i & 31));
  atomicXor(&t->odd, (unsigned)i);
  atomicInc(&t->up, 99);
  atomicDec(&t->down, 50);
  atomicMax(&t->umost, 0x80000000u + (unsigned)i);
  atomicAdd(&t->ladd, (unsigned long long)i << 32);
  atomicAnd(&t->lall, ~(1ull << (i & 63)));
  atomicOr(&t->lany, 1ull << (i & 63));
  atomicXor(&t->lodd, (unsigned long long)i << 40);
  atomicMax(&t->lmost, (unsigned long long)i << 50);
  atomicMin(&t->lleast, 1ull << (63 - (i & 15)));
  atomicMax(&t->slmost, (long long)i - 1000);
  atomicMin(&t->slleast, -(long long)i << 33);
  atomicAdd(&t->fadd, 0.5f);
  atomicAdd(&t->dadd, 0.25);
  atomicAdd(&t->h2, __floats2half2_rn(1.0f, 0.5f));
  for (unsigned long long old = t->lswap, seen;; old = seen) {
    seen = atomicCAS(&t->lswap, old, old * 3 + 1 - old * 2);
    if (seen == old) break;
  }
#if __CUDA_ARCH__ >= 700
  for (unsigned short old = t->small[1], seen;; old = seen) {
    seen = atomicCAS(&t->small[1], old, (unsigned short)(old + 3));
    if (seen == old) break;
  }
  atomicAdd(&t->h, __float2half(1.0f));
#endif
#if __CUDA_ARCH__ >= 800
  atomicAdd(&t->b2, __floats2bfloat162_rn(1.0f, 2.0f));
#endif
}
__global__ void global_atomics(Totals* t, int* expected_wide) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  totals(t, i);
#if __CUDA_ARCH__ >= 900
  atomicAdd(&t->four, make_float4(1, 2, 3, 4));
  struct alignas(16) Pair {
    unsigned long long low, high;
  };
  auto* wide = reinterpret_cast<Pair*>(t->wide);
  Pair old = *wide, seen;
  for (;; old = seen) {
    seen = atomicCAS(wide, old, Pair{old.low + 1, old.high + 2});
    if (seen.low == old.low && seen.high == old.high) break;
  }
  *expected_wide = 1;
#endif
}
__global__ void shared_atomics(Totals* out, const Totals* start) {
  __shared__ Totals t;
  if (threadIdx.x == 0) t = *start;
  __syncthreads();
  totals(&t, (int)threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) *out = t;
}

#define SAME(field, value)                                                        \
  if (!(t.field == (value))) {                                                    \
    fprintf(stderr, "%s atomics of %d threads: " #field "\n", where, n), exit(1); \
  }
void check_totals(const Totals& t, int n, const char* where, bool bfloats) {
  unsigned odd = 0, any = 0, all = ~0u;
  unsigned long long lodd = 0, lall = ~0ull, lany = 0, swap = 7;
  for (int i = 0; i < n; ++i) {
    odd ^= (unsigned)i;
    any |= 1u << (i & 31);
    all &= ~(1u << (i & 7));
    lodd ^= (unsigned long long)i << 40;
    lall &= ~(1ull << (i & 63));
    lany |= 1ull << (i & 63);
    swap = swap + 1;
  }
  SAME(add, n * (n - 1) / 2 - n);
  SAME(least, 500 - (n - 1));
  SAME(most, (n - 1) * 3);
  SAME(count, 1000);
  SAME(block, 2 * n);
  SAME(system, 3 * n);
  SAME(all, all);
  SAME(any, any);
  SAME(odd, odd);
  SAME(up, (unsigned)n % 100);
  SAME(down, (51u - (unsigned)n % 51) % 51);
  SAME(umost, 0x80000000u + (unsigned)n - 1);
  SAME(ladd, (unsigned long long)n * (unsigned)(n - 1) / 2 << 32);
  SAME(lall, lall);
  SAME(lany, lany);
  SAME(lodd, lodd);
  SAME(lmost, [&] {
    unsigned long long m = 0;
    for (int i = 0; i < n; ++i) m = std::max(m, (unsigned long long)i << 50);
    return m;
  }());
  SAME(lleast, 1ull << 48);
  SAME(slmost, (long long)n - 1001);
  SAME(slleast, -((long long)(n - 1) << 33));
  SAME(fadd, 0.5f * (float)n);
  SAME(dadd, 0.25 * n);
  SAME(lswap, swap);
  SAME(small[1], (unsigned short)(3 * n));
  if (__low2float(t.h2) != (float)n || __high2float(t.h2) != 0.5f * (float)n ||
      __half2float(t.h) != (float)n)
    fprintf(stderr, "%s atomics: halves\n", where), exit(1);
  if (bfloats && n <= 128 &&
      (__low2float(t.b2) != (float)n || __high2float(t.b2) != 2.0f * (float)n))
    fprintf(stderr, "%s atomics: bfloats\n", where), exit(1);
}
void check_atomics() {
  Totals start;
  memset((void*)&start, 0, sizeof start);
  start.least = 1000;
  start.exchanged = -1;
  start.all = ~0u;
  start.lall = ~0ull;
  start.lleast = ~0ull;
  start.lswap = 7;
  start.slmost = -100000;
  cudaFuncAttributes a;
  CHECK(cudaFuncGetAttributes(&a, global_atomics));
  const bool bfloats = a.ptxVersion >= 80;
  DeviceVector<Totals> device(std::vector<Totals>(1, start)), out(1);
  DeviceVector<int> wide(1);
  global_atomics<<<8, 64>>>(device.get(), wide.get());
  CHECK(cudaDeviceSynchronize());
  const Totals t = device.copy()[0];
  check_totals(t, 512, "global", bfloats);
  if (wide.copy()[0] &&
      (t.wide[0] != 512 || t.wide[1] != 1024 || t.four.x != 512 || t.four.w != 2048))
    fprintf(stderr, "128-bit compare and swap, vector add\n"), exit(1);
  DeviceVector<Totals> begin(std::vector<Totals>(1, start));
  shared_atomics<<<1, 128>>>(out.get(), begin.get());
  CHECK(cudaDeviceSynchronize());
  check_totals(out.copy()[0], 128, "shared", bfloats);
}

// ---- shuffles ----

template <class T>
__global__ void shuffles(T* out, int delta, int width) {
  const unsigned l = threadIdx.x;
  const T v = (T)(l * 3 + 1);
  out[l] = __shfl_sync(~0u, v, delta, width);
  out[32 + l] = __shfl_up_sync(~0u, v, (unsigned)delta, width);
  out[64 + l] = __shfl_down_sync(~0u, v, (unsigned)delta, width);
  out[96 + l] = __shfl_xor_sync(~0u, v, delta, width);
}
template <class T>
void check_shuffles() {
  DeviceVector<T> out(128);
  for (int width = 2; width <= 32; width *= 2)
    for (int delta = 0; delta < 32; delta += width == 32 ? 1 : 3) {
      shuffles<T><<<1, 32>>>(out.get(), delta, width);
      CHECK(cudaDeviceSynchronize());
      const std::vector<T> got = out.copy();
      for (int l = 0; l < 32; ++l) {
        const int first = l / width * width, last = first + width - 1;
        const int from[4] = {first + delta % width, l - delta < first ? l : l - delta,
                             l + delta > last ? l : l + delta, (l ^ delta) > last ? l : l ^ delta};
        for (int k = 0; k < 4; ++k)
          if (got[(size_t)(k * 32 + l)] != (T)(from[k] * 3 + 1)) {
            fprintf(stderr, "shuffle %d, width %d, delta %d, lane %d\n", k, width, delta, l);
            exit(1);
          }
      }
    }
}

int main() {
  check_operators<char>("char");
  check_operators<unsigned char>("unsigned char");
  check_operators<short>("short");
  check_operators<int>("int");
  check_operators<long long>("long long");
  check_operators<float>("float");
  check_operators<double>("double");
  check_operators<char2>("char2");
  check_operators<uchar4>("uchar4");
  check_operators<short2>("short2");
  check_operators<short4>("short4");
  check_operators<int2>("int2");
  check_operators<uint4>("uint4");
  check_operators<ulonglong2>("ulonglong2");
  check_operators<float2>("float2");
  check_operators<float4>("float4");
  check_operators<double2>("double2");
  check_operators<__half2>("half2");
  check_calls();
  check_atomics();
  check_shuffles<int>();
  check_shuffles<double>();
  check_shuffles<unsigned long long>();
  return passed();
}
