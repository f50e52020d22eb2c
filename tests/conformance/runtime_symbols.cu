// Variables of the device: initial values, copies with offsets, bounds, managed variables read on
// both sides.
#include "conformance.h"

struct Point {
  int x;
  double y;
};
__device__ Point points[4] = {{1, 1.5}, {2, 2.5}};
__constant__ float weights[3] = {0.5f, 0.25f, 0.125f};
__device__ char text[8] = "abc";
static __device__ int hidden = 6;

__global__ void use(float* out) {
  out[0] = weights[0] + weights[2];
  out[1] = static_cast<float>(points[1].y + points[3].x);
  out[2] = text[1] + hidden;
}

int main() {
  DeviceVector<float> out(3);
  use<<<1, 1>>>(out.get());
  CHECK(cudaDeviceSynchronize());
  auto got = out.copy();
  EXPECT(got[0] == 0.625f && got[1] == 2.5f && got[2] == 'b' + 6);

  float weight = 8;
  CHECK(cudaMemcpyToSymbol(weights, &weight, sizeof(weight), 2 * sizeof(float)));
  int x = 40;
  CHECK(cudaMemcpyToSymbol(points, &x, sizeof(x), 3 * sizeof(Point)));
  use<<<1, 1>>>(out.get());
  CHECK(cudaDeviceSynchronize());
  got = out.copy();
  EXPECT(got[0] == 8.5f && got[1] == 42.5f);

  float read[3];
  CHECK(cudaMemcpyFromSymbol(read, weights, sizeof(read)));
  EXPECT(read[0] == 0.5f && read[2] == 8);
  EXPECT_ERROR(cudaMemcpyFromSymbol(read, weights, sizeof(read), 4), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaMemcpyToSymbol(weights, read, 4, 12), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaMemcpyToSymbol(weights, read, 4, 0, cudaMemcpyDeviceToHost),
               cudaErrorInvalidMemcpyDirection);
  size_t bytes;
  CHECK(cudaGetSymbolSize(&bytes, points));
  EXPECT(bytes == sizeof(points));
  void* address;
  CHECK(cudaGetSymbolAddress(&address, text));
  char copy[8];
  CHECK(cudaMemcpy(copy, address, 8, cudaMemcpyDeviceToHost));
  EXPECT(strcmp(copy, "abc") == 0);
  return passed();
}
