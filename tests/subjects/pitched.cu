// Pitched 2D and 3D allocations, copied by rows and boxes between host, device and each other.
#include "subject.h"

constexpr int kWidth = 75, kHeight = 40, kDepth = 6;

__global__ void advance2D(char* data, size_t pitch, uint32_t step) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= kWidth) return;
  uint32_t* row = reinterpret_cast<uint32_t*>(data + y * pitch);
  row[x] = mix(row[x] + step + x * 7 + y);
}

__global__ void advance3D(cudaPitchedPtr box, uint32_t step) {
  int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  if (x >= kWidth) return;
  char* slice = static_cast<char*>(box.ptr) + z * box.pitch * kHeight;
  uint32_t* row = reinterpret_cast<uint32_t*>(slice + y * box.pitch);
  row[x] = mix(row[x] ^ (step + x + y * 3 + z * 5));
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  constexpr size_t kRow = kWidth * sizeof(uint32_t);
  char *plane, *other;
  size_t pitch, other_pitch;
  CHECK(cudaMallocPitch(&plane, &pitch, kRow, kHeight));
  CHECK(cudaMallocPitch(&other, &other_pitch, 2 * kRow, kHeight));
  EXPECT(pitch >= kRow && other_pitch >= 2 * kRow);
  CHECK(cudaMemset2D(plane, pitch, 0x11, kRow, kHeight));
  CHECK(cudaMemset2D(other, other_pitch, 0x22, 2 * kRow, kHeight));
  cudaPitchedPtr box;
  cudaExtent extent = make_cudaExtent(kRow, kHeight, kDepth);
  CHECK(cudaMalloc3D(&box, extent));
  CHECK(cudaMemset3D(box, 0x33, extent));

  std::vector<uint32_t> expected(kWidth * kHeight, 0x11111111u),
      expected3(kWidth * kHeight * kDepth, 0x33333333u);
  std::vector<uint32_t> actual(expected.size()), actual3(expected3.size());
  Digest digest;
  for (int step = 1; step <= steps.count(); ++step) {
    advance2D<<<dim3((kWidth + 31) / 32, kHeight), 32>>>(plane, pitch, step);
    advance3D<<<dim3(kHeight, kDepth), 96>>>(box, step);
    for (int i = 0; i < kWidth * kHeight; ++i) {
      expected[i] = mix(expected[i] + step + i % kWidth * 7 + i / kWidth);
    }
    for (int i = 0; i < kWidth * kHeight * kDepth; ++i) {
      int x = i % kWidth, y = i / kWidth % kHeight, z = i / kWidth / kHeight;
      expected3[i] = mix(expected3[i] ^ (step + x + y * 3 + z * 5));
    }
    // Through the other plane, at an odd place in it, and back to the host.
    CHECK(cudaMemcpy2D(other + 12, other_pitch, plane, pitch, kRow, kHeight,
                       cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy2DAsync(actual.data(), kRow, other + 12, other_pitch, kRow, kHeight,
                            cudaMemcpyDeviceToHost, nullptr));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = box;
    copy.dstPtr = make_cudaPitchedPtr(actual3.data(), kRow, kRow, kHeight);
    copy.extent = extent;
    copy.kind = cudaMemcpyDefault;
    CHECK(cudaMemcpy3D(&copy));
    CHECK(cudaDeviceSynchronize());
    EXPECT(actual == expected);
    EXPECT(actual3 == expected3);
    // The first row of the plane comes from the host, the box's lower corner from the plane.
    CHECK(cudaMemcpy2D(plane, pitch, actual3.data(), kRow, kRow, 1, cudaMemcpyHostToDevice));
    for (int x = 0; x < kWidth; ++x) expected[x] = expected3[x];
    digest.add(actual);
    digest.add(actual3);
    steps.report(step, digest);
  }
  CHECK(cudaFree(plane));
  CHECK(cudaFree(other));
  CHECK(cudaFree(box.ptr));
  return steps.finish(digest);
}
