// __managed__ variables: one variable on both sides, there before any other call.
#include "conformance.h"

struct Settings {
  int factor;
  float offset;
};
__managed__ int counter = 41;
__managed__ Settings settings = {3, 0.5f};
__managed__ int table[100];

__global__ void use() {
  int i = threadIdx.x;
  table[i] = table[i] * settings.factor + i;
  if (i == 0) ++counter;
}

int main() {
  EXPECT(counter == 41 && settings.factor == 3 && settings.offset == 0.5f);
  for (int i = 0; i < 100; ++i) table[i] = i;
  use<<<1, 100>>>();
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 100; ++i) EXPECT(table[i] == i * 4);
  EXPECT(counter == 42);
  counter = 100;
  settings.factor = 1;
  use<<<1, 100>>>();
  CHECK(cudaDeviceSynchronize());
  EXPECT(counter == 101 && table[99] == 99 * 5);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, table));
  EXPECT(attributes.type == cudaMemoryTypeManaged);
  return passed();
}
