// Copies of old programs, which count bytes over the ends of an array's rows.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include "conformance.h"

constexpr int kWidth = 6, kHeight = 5, kRow = kWidth * sizeof(short);

int main() {
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<short>();
  cudaArray_t array;
  CHECK(cudaMallocArray(&array, &channel, kWidth, kHeight));
  std::vector<short> all(kWidth * kHeight), got(kWidth * kHeight, -1);
  for (int i = 0; i < kWidth * kHeight; ++i) all[i] = static_cast<short>(7 * i);
  const size_t bytes = all.size() * sizeof(short);
  CHECK(cudaMemcpyToArray(array, 0, 0, all.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyFromArray(got.data(), array, 0, 0, bytes, cudaMemcpyDeviceToHost));
  EXPECT(got == all);

  // From the middle of row 1 to the middle of row 4: a piece, two rows, a piece.
  std::vector<short> some(2 * kWidth + 7);
  for (size_t i = 0; i < some.size(); ++i) some[i] = static_cast<short>(-1 - (short)i);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMemcpyToArrayAsync(array, 2 * sizeof(short), 1, some.data(),
                               some.size() * sizeof(short), cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemcpyFromArrayAsync(got.data(), array, 0, 0, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < some.size(); ++i) all[kWidth + 2 + i] = some[i];
  EXPECT(got == all);
  short last = 0;
  CHECK(cudaMemcpyFromArray(&last, array, kRow - sizeof(short), kHeight - 1, sizeof last,
                            cudaMemcpyDeviceToHost));
  EXPECT(last == all.back());
  EXPECT_ERROR(cudaMemcpyToArray(array, sizeof(short), 0, all.data(), bytes, cudaMemcpyDefault),
               cudaErrorInvalidValue);

  cudaDeviceProp wanted = {};
  int device = -1;
  wanted.major = 7;
  CHECK(cudaChooseDevice(&device, &wanted));
  EXPECT(device == 0);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeArray(array));
  return passed();
}
