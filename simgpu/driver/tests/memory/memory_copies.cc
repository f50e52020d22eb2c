// Allocation, sets and copies of every shape give the bytes they should; wrong addresses and sizes
// are refused.
#include "check.h"

int main() {
  start();
  CUdeviceptr a, b;
  OK(cuMemAlloc(&a, 1 << 20));
  OK(cuMemAlloc(&b, 3 << 20));
  auto* h = static_cast<unsigned char*>(malloc(3 << 20));
  auto* g = static_cast<unsigned char*>(malloc(3 << 20));
  for (int i = 0; i < 3 << 20; ++i) h[i] = static_cast<unsigned char>(i * 7 + (i >> 8));
  OK(cuMemcpyHtoD(b, h, 3 << 20));
  OK(cuMemcpyDtoH(g, b, 3 << 20));
  CHECK(memcmp(h, g, 3 << 20) == 0);
  OK(cuMemcpyDtoD(a, b + 4096, 1 << 20));
  OK(cuMemcpyDtoH(g, a, 1 << 20));
  CHECK(memcmp(h + 4096, g, 1 << 20) == 0);
  OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(g), b, 100));
  CHECK(memcmp(h, g, 100) == 0);

  OK(cuMemsetD32(a, 0x01020304, 1000));
  OK(cuMemsetD16(a + 4000, 0x0a0b, 10));
  OK(cuMemsetD8(a + 4020, 0xee, 3));
  OK(cuMemcpyDtoH(g, a, 4023));
  uint32_t word;
  memcpy(&word, g + 3996, 4);
  CHECK(word == 0x01020304 && g[4000] == 0x0b && g[4001] == 0x0a && g[4022] == 0xee);

  CUdeviceptr p;
  size_t pitch;
  OK(cuMemAllocPitch(&p, &pitch, 100, 50, 4));
  CHECK(pitch >= 100 && pitch % 512 == 0);
  CUDA_MEMCPY2D d;
  memset(&d, 0, sizeof d);
  d.srcMemoryType = CU_MEMORYTYPE_HOST;
  d.srcHost = h;
  d.srcPitch = 100;
  d.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  d.dstDevice = p;
  d.dstPitch = pitch;
  d.WidthInBytes = 100;
  d.Height = 50;
  OK(cuMemcpy2D(&d));
  d.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  d.srcDevice = p;
  d.srcPitch = pitch;
  d.srcXInBytes = 10;
  d.srcY = 5;
  d.dstMemoryType = CU_MEMORYTYPE_HOST;
  d.dstHost = g;
  d.dstPitch = 20;
  d.WidthInBytes = 20;
  d.Height = 10;
  OK(cuMemcpy2D(&d));
  for (int y = 0; y < 10; ++y) CHECK(memcmp(g + y * 20, h + (y + 5) * 100 + 10, 20) == 0);
  OK(cuMemsetD2D8(p, pitch, 0x55, 30, 20));
  OK(cuMemcpyDtoH(g, p, 40));
  CHECK(g[29] == 0x55 && g[30] == h[30]);

  CUDA_MEMCPY3D c;
  memset(&c, 0, sizeof c);
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = h;
  c.srcPitch = 16;
  c.srcHeight = 8;
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.dstDevice = b;
  c.dstPitch = 64;
  c.dstHeight = 10;
  c.WidthInBytes = 16;
  c.Height = 8;
  c.Depth = 4;
  OK(cuMemcpy3D(&c));
  OK(cuMemcpyDtoH(g, b + 64 * 10 * 3 + 64 * 7, 16));
  CHECK(memcmp(g, h + 16 * 8 * 3 + 16 * 7, 16) == 0);

  // What must not work.
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a, h, (1 << 20) + 1));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(0x1234560000, h, 16));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(g, reinterpret_cast<CUdeviceptr>(h), 16));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(a + 16));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&p, 0));
  CUdeviceptr base;
  size_t size;
  OK(cuMemGetAddressRange(&base, &size, a + 77));
  CHECK(base == a && size == 1 << 20);
  OK(cuMemFree(a));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(a));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(a, h, 16));
  OK(cuMemFree(b));
  return ok();
}
