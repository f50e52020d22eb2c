// State in __device__ variables, __constant__ tables that change, pointers from one variable to
// another, and device function pointers kept in device memory and on the host.
#include "subject.h"

constexpr int kCount = 1024;
constexpr int kFunctions = 3;

using Operation = uint32_t (*)(uint32_t, uint32_t);

__device__ uint32_t add(uint32_t a, uint32_t b) { return mix(a + b); }
__device__ uint32_t exclusive(uint32_t a, uint32_t b) { return mix(a ^ b); }
__device__ uint32_t multiply(uint32_t a, uint32_t b) { return mix(a * (b | 1)); }

__constant__ uint32_t key[kCount];
__constant__ uint32_t selector;
__device__ uint32_t state[kCount] = {1, 2, 3, 5, 7, 11, 13};
__device__ unsigned long long launches;
__device__ uint32_t* where = state;  // a device address inside the image
__device__ Operation operations[kFunctions] = {add, exclusive, multiply};
__device__ Operation chosen;  // set from the host

__global__ void advance() {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  Operation operation = operations[(selector + i / 32) % kFunctions];
  where[i] = chosen(operation(where[i], key[i]), selector);
  if (i == 0) ++launches;
}

uint32_t onHost(int function, uint32_t a, uint32_t b) {
  return function == 0 ? mix(a + b) : function == 1 ? mix(a ^ b) : mix(a * (b | 1));
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  Operation table[kFunctions];
  CHECK(cudaMemcpyFromSymbol(table, operations, sizeof(table)));
  std::vector<uint32_t> keys(kCount), expected(kCount), actual(kCount);
  CHECK(cudaMemcpyFromSymbol(expected.data(), state, sizeof(state)));
  EXPECT(expected[6] == 13 && expected[7] == 0);
  void* address;
  size_t bytes;
  CHECK(cudaGetSymbolAddress(&address, state));
  CHECK(cudaGetSymbolSize(&bytes, state));
  EXPECT(bytes == sizeof(uint32_t) * kCount);
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    uint32_t select = mix(step);
    for (int i = 0; i < kCount; ++i) keys[i] = mix(step * kCount + i);
    CHECK(cudaMemcpyToSymbol(key, keys.data(), sizeof(key)));
    CHECK(cudaMemcpyToSymbol(selector, &select, sizeof(select)));
    CHECK(cudaMemcpyToSymbol(chosen, &table[step % kFunctions], sizeof(Operation)));
    advance<<<kCount / 128, 128>>>();
    CHECK(cudaGetLastError());
    for (int i = 0; i < kCount; ++i) {
      uint32_t once = onHost((select + i / 32) % kFunctions, expected[i], keys[i]);
      expected[i] = onHost(step % kFunctions, once, select);
    }
    CHECK(cudaMemcpy(actual.data(), address, bytes, cudaMemcpyDeviceToHost));
    EXPECT(actual == expected);
    unsigned long long count;
    CHECK(cudaMemcpyFromSymbol(&count, launches, sizeof(count)));
    EXPECT(count == static_cast<unsigned long long>(step));
    digest.add(actual);
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
