// Copies of old programs, which count bytes over the ends of an array's rows.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include "conformance.h"

constexpr int kWidth = 6, kHeight = 5, kRow = kWidth * sizeof(short);

// Between arrays whose rows end at different places.
static void between_arrays() {
  cudaChannelFormatDesc channel = cudaCreateChannelDesc<short>();
  cudaArray_t from, to;
  CHECK(cudaMallocArray(&from, &channel, 6, 5));
  CHECK(cudaMallocArray(&to, &channel, 9, 4));
  std::vector<short> a(30), b(36, -1);
  for (int i = 0; i < 30; ++i) a[i] = static_cast<short>(i);
  CHECK(cudaMemcpyToArray(from, 0, 0, a.data(), 60, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyToArray(to, 0, 0, b.data(), 72, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyArrayToArray(to, 4, 1, from, 6, 0, 2 * 21, cudaMemcpyDeviceToDevice));
  for (int i = 0; i < 21; ++i) b[9 + 2 + i] = a[3 + i];
  std::vector<short> got(36);
  CHECK(cudaMemcpyFromArray(got.data(), to, 0, 0, 72, cudaMemcpyDeviceToHost));
  EXPECT(got == b);
  EXPECT_ERROR(cudaMemcpyArrayToArray(to, 0, 0, from, 2, 0, 60, cudaMemcpyDeviceToDevice),
               cudaErrorInvalidValue);
  EXPECT_ERROR(cudaMemcpyArrayToArray(to, 0, 3, from, 0, 0, 20, cudaMemcpyDeviceToDevice),
               cudaErrorInvalidValue);

  // A batch: a corner of one array into memory.
  short* memory;
  CHECK(cudaMalloc(&memory, 12));
  cudaMemcpy3DBatchOp op = {};
  op.src.type = cudaMemcpyOperandTypeArray;
  op.src.op.array.array = from;
  op.src.op.array.offset = {1, 2, 0};
  op.dst.type = cudaMemcpyOperandTypePointer;
  op.dst.op.ptr.ptr = memory;
  op.extent = {3, 2, 1};
  op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMemcpy3DBatchAsync(1, &op, 0, stream));
  short corner[6];
  CHECK(cudaMemcpyAsync(corner, memory, 12, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < 6; ++i) EXPECT(corner[i] == (2 + i / 3) * 6 + 1 + i % 3);
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(memory));
  CHECK(cudaFreeArray(from));
  CHECK(cudaFreeArray(to));
}

int main() {
  between_arrays();
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
