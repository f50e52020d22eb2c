// Floating point: what IEEE 754 defines must agree with the CPU to the last bit, mathematical
// functions within a few units.
#include "conformance.h"

template <typename T>
__device__ void exact(T a, T b, T c, T* out) {
  out[0] = a + b;
  out[1] = a - b;
  out[2] = a * b;
  out[3] = a / b;
  out[4] = fma(a, b, c);
  out[5] = sqrt(fabs(a));
  out[6] = fmin(a, b);
  out[7] = fmax(a, b);
  out[8] = floor(a);
  out[9] = ceil(a);
  out[10] = trunc(a);
  out[11] = rint(a);
  out[12] = copysign(a, b);
  out[13] = a < b ? a : c;
}
constexpr int kExact = 14;

template <typename T>
void exactOnHost(T a, T b, T c, T* out) {
  volatile T va = a, vb = b;  // no contraction, no folding
  out[0] = va + vb;
  out[1] = va - vb;
  out[2] = va * vb;
  out[3] = va / vb;
  out[4] = std::fma(a, b, c);
  out[5] = std::sqrt(std::fabs(a));
  out[6] = std::fmin(a, b);
  out[7] = std::fmax(a, b);
  out[8] = std::floor(a);
  out[9] = std::ceil(a);
  out[10] = std::trunc(a);
  out[11] = std::rint(a);
  out[12] = std::copysign(a, b);
  out[13] = a < b ? a : c;
}

template <typename T>
__host__ __device__ void functions(T x, T* out) {
  T p = fabs(x) + static_cast<T>(0.01);
  out[0] = exp(x);
  out[1] = log(p);
  out[2] = sin(x);
  out[3] = cos(x);
  out[4] = tanh(x);
  out[5] = pow(p, static_cast<T>(1.37));
  out[6] = atan2(x, p);
  out[7] = erf(x);
  out[8] = exp2(x);
  out[9] = log1p(p);
  out[10] = cbrt(x);
  out[11] = static_cast<T>(1) / sqrt(p);
}
constexpr int kFunctions = 12;

__host__ __device__ int64_t convert(int op, float x, double d) {
  switch (op) {
    case 0:
      return static_cast<int32_t>(x);
    case 1:
      return static_cast<int64_t>(d);
    case 2:
      return static_cast<uint32_t>(fabsf(x));
    case 3:
      return static_cast<int64_t>(static_cast<double>(static_cast<float>(d)) * 1024);
    case 4:
      return lrintf(x);
    default:
      return llrint(d);
  }
}
constexpr int kConversions = 6;

template <typename T>
__host__ __device__ T input(int i) {
  const T corners[] = {0,
                       static_cast<T>(-0.0),
                       1,
                       static_cast<T>(-1.5),
                       static_cast<T>(0.5),
                       static_cast<T>(2.5),
                       static_cast<T>(1e30),
                       static_cast<T>(-1e-30),
                       static_cast<T>(1e-40),
                       static_cast<T>(INFINITY)};
  if (i < 10) return corners[i];
  return (static_cast<T>(scramble(i)) / 4294967296.0 - static_cast<T>(0.5)) *
         (i % 7 == 0 ? 1000 : 7);
}

template <typename T>
__global__ void run(T* out_exact, T* out_functions, int64_t* conversions, int side) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= side * side) return;
  T a = input<T>(i % side), b = input<T>(i / side), c = input<T>((i * 7) % side);
  exact(a, b, c, out_exact + i * kExact);
  T x = input<T>(10 + i);
  functions(x, out_functions + i * kFunctions);
  for (int op = 0; op < kConversions; ++op) {
    conversions[i * kConversions + op] = convert(op, static_cast<float>(x), static_cast<double>(x));
  }
}

template <typename T>
int compare(double tolerance) {
  constexpr int kSide = 32;
  DeviceVector<T> e(kSide * kSide * kExact), f(kSide * kSide * kFunctions);
  DeviceVector<int64_t> c(kSide * kSide * kConversions);
  run<T><<<kSide * kSide / 64, 64>>>(e.get(), f.get(), c.get(), kSide);
  CHECK(cudaGetLastError());
  auto got = e.copy(), got_functions = f.copy();
  auto got_conversions = c.copy();
  int wrong = 0;
  for (int i = 0; i < kSide * kSide; ++i) {
    T a = input<T>(i % kSide), b = input<T>(i / kSide), third = input<T>((i * 7) % kSide);
    T want[kExact], want_functions[kFunctions];
    exactOnHost(a, b, third, want);
    for (int op = 0; op < kExact; ++op) {
      T have = got[i * kExact + op];
      bool zeros = (op == 6 || op == 7) && have == 0 && want[op] == 0;  // fmin(0, -0) may be either
      if (memcmp(&have, &want[op], sizeof(T)) == 0 || (have != have && want[op] != want[op]) ||
          zeros)
        continue;
      if (++wrong < 10)
        fprintf(stderr, "operation %d of %a, %a, %a: %a\n", op, a + 0.0, b + 0.0, third + 0.0,
                have + 0.0);
    }
    T x = input<T>(10 + i);
    functions(x, want_functions);
    for (int op = 0; op < kFunctions; ++op) {
      double have = got_functions[i * kFunctions + op], wanted = want_functions[op];
      if (have == wanted || fabs(have - wanted) <= tolerance * (fabs(wanted) + 0.25)) continue;
      if (++wrong < 10)
        fprintf(stderr, "function %d of %a: %a instead of %a\n", op, x + 0.0, have, wanted);
    }
    for (int op = 0; op < kConversions; ++op) {
      if (got_conversions[i * kConversions + op] ==
          convert(op, static_cast<float>(x), static_cast<double>(x)))
        continue;
      if (++wrong < 10) fprintf(stderr, "conversion %d of %a\n", op, x + 0.0);
    }
  }
  return wrong;
}

int main() {
  int wrong = compare<float>(2e-6) + compare<double>(1e-14);
  EXPECT(wrong == 0);
  return passed();
}
