// Allocation, copies of every kind and shape, sets, and what is known about a pointer.
#include "conformance.h"

void checkCopies() {
  std::vector<int> a(1000), b(1000);
  for (int i = 0; i < 1000; ++i) a[i] = i * 3;
  size_t bytes = a.size() * sizeof(int);
  int *x, *y, *pinned;
  CHECK(cudaMalloc(&x, bytes));
  CHECK(cudaMalloc(&y, bytes));
  CHECK(cudaMallocHost(&pinned, bytes));
  CHECK(cudaMemcpy(x, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(y, x, bytes, cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpy(pinned, y, bytes, cudaMemcpyDefault));
  CHECK(cudaMemcpy(b.data(), pinned, bytes, cudaMemcpyHostToHost));
  EXPECT(a == b);
  CHECK(cudaMemset(x, 0xab, 10));
  CHECK(cudaMemcpy(y, x, 12, cudaMemcpyDefault));
  CHECK(cudaMemcpyAsync(b.data(), y, bytes, cudaMemcpyDeviceToHost, nullptr));
  CHECK(cudaStreamSynchronize(nullptr));
  EXPECT(b[0] == static_cast<int>(0xababababu) && b[2] == (6 & ~0xffff | 0xabab) && b[3] == 9);
  CHECK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
  CHECK(cudaMemcpy(b.data() + 1, reinterpret_cast<char*>(x) + 3, 5,
                   cudaMemcpyDeviceToHost));  // unaligned
  CHECK(cudaMemcpyPeer(y, 0, x, 0, bytes));
  CHECK(cudaFree(x));
  CHECK(cudaFree(y));
  CHECK(cudaFreeHost(pinned));
}

void checkZeroes() {
  void* p = &p;
  CHECK(cudaMalloc(&p, 0));
  EXPECT(p == nullptr);
  CHECK(cudaFree(nullptr));
  CHECK(cudaFreeHost(nullptr));
}

void checkShapes() {
  constexpr int kWidth = 37, kHeight = 11, kDepth = 3;
  std::vector<uint8_t> a(kWidth * kHeight * kDepth), b(a.size(), 7);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint8_t>(scramble(i));
  uint8_t* plane;
  size_t pitch;
  CHECK(cudaMallocPitch(&plane, &pitch, kWidth, kHeight));
  EXPECT(pitch >= kWidth && pitch % 256 == 0);
  CHECK(cudaMemset2D(plane, pitch, 9, kWidth, kHeight));
  CHECK(cudaMemcpy2D(plane + pitch, pitch, a.data() + 2, kWidth, kWidth - 2, 3,
                     cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2D(b.data(), kWidth, plane, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      bool copied = y >= 1 && y < 4 && x < kWidth - 2;
      EXPECT(b[y * kWidth + x] == (copied ? a[(y - 1) * kWidth + x + 2] : 9));
    }
  }
  EXPECT_ERROR(cudaMemcpy2D(plane, 5, a.data(), kWidth, 6, 1, cudaMemcpyHostToDevice),
               cudaErrorInvalidPitchValue);
  CHECK(cudaFree(plane));

  cudaPitchedPtr box;
  cudaExtent all = make_cudaExtent(kWidth, kHeight, kDepth);
  CHECK(cudaMalloc3D(&box, all));
  CHECK(cudaMemset3D(box, 1, all));
  CHECK(cudaMemset3D(box, 2, make_cudaExtent(4, 5, 2)));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(a.data(), kWidth, kWidth, kHeight);
  copy.srcPos = make_cudaPos(3, 2, 0);
  copy.dstPtr = box;
  copy.dstPos = make_cudaPos(10, 6, 1);
  copy.extent = make_cudaExtent(8, 4, 2);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
  copy = {};
  copy.srcPtr = box;
  copy.dstPtr = make_cudaPitchedPtr(b.data(), kWidth, kWidth, kHeight);
  copy.extent = all;
  copy.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&copy));
  for (int i = 0; i < kWidth * kHeight * kDepth; ++i) {
    int x = i % kWidth, y = i / kWidth % kHeight, z = i / kWidth / kHeight;
    int want = x < 4 && y < 5 && z < 2 ? 2 : 1;
    if (x >= 10 && x < 18 && y >= 6 && y < 10 && z >= 1) {
      want = a[((z - 1) * kHeight + y - 4) * kWidth + x - 7];
    }
    EXPECT(b[i] == want);
  }
  CHECK(cudaFree(box.ptr));
}

void checkAttributes() {
  cudaPointerAttributes attributes;
  char* device;
  char* pinned;
  char* managed;
  int local;
  CHECK(cudaMalloc(&device, 100));
  CHECK(cudaHostAlloc(&pinned, 100, cudaHostAllocMapped));
  CHECK(cudaMallocManaged(&managed, 100));
  CHECK(cudaPointerGetAttributes(&attributes, device + 50));
  EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 0 &&
         attributes.devicePointer == device + 50);
  CHECK(cudaPointerGetAttributes(&attributes, pinned + 3));
  EXPECT(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned + 3);
  CHECK(cudaPointerGetAttributes(&attributes, managed));
  EXPECT(attributes.type == cudaMemoryTypeManaged);
  CHECK(cudaPointerGetAttributes(&attributes, &local));
  EXPECT(attributes.type == cudaMemoryTypeUnregistered && attributes.devicePointer == nullptr);
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaFree(managed));
}

int main() {
  checkCopies();
  checkZeroes();
  checkShapes();
  checkAttributes();
  return passed();
}
