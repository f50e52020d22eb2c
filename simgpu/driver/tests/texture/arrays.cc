// Arrays of every shape: bytes go in and come out where they belong, texture objects describe them.
#include "check.h"

namespace {

CUmemcpy3DOperand at(CUarray array, CUoffset3D offset) {
  CUmemcpy3DOperand o = {};
  o.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  o.op.array.array = array;
  o.op.array.offset = offset;
  return o;
}
CUmemcpy3DOperand at(CUdeviceptr memory, size_t row_length, size_t layer_height) {
  CUmemcpy3DOperand o = {};
  o.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  o.op.ptr.ptr = memory;
  o.op.ptr.rowLength = row_length;
  o.op.ptr.layerHeight = layer_height;
  return o;
}

// From memory into one array, a corner of it into another, and from there into wider memory.
void copies_in_batches(CUarray bytes) {
  CUarray one, two;
  CUDA_ARRAY3D_DESCRIPTOR shape = {4, 3, 2, CU_AD_FORMAT_FLOAT, 4, 0};
  OK(cuArray3DCreate(&one, &shape));
  OK(cuArray3DCreate(&two, &shape));
  float in[2][3][4][4], out[2][5][4] = {};
  for (int i = 0; i < 96; ++i) (&in[0][0][0][0])[i] = static_cast<float>(i);
  CUdeviceptr from, to;
  CUstream stream;
  OK(cuMemAlloc(&from, sizeof in));
  OK(cuMemAlloc(&to, sizeof out));
  OK(cuMemcpyHtoD(from, in, sizeof in));
  OK(cuMemcpyHtoD(to, out, sizeof out));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  constexpr auto kOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  CUDA_MEMCPY3D_BATCH_OP ops[] = {
      {at(from, 0, 0), at(one, {0, 0, 0}), {4, 3, 2}, kOrder, 0},
      {at(one, {1, 1, 1}), at(two, {2, 0, 0}), {2, 2, 1}, kOrder, 0},
      {at(two, {2, 0, 0}), at(to, 5, 0), {2, 2, 1}, kOrder, 0},
  };
  OK(cuMemcpy3DBatchAsync(3, ops, 0, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(out, to, sizeof out));
  for (int y = 0; y < 2; ++y) CHECK(memcmp(out[y], in[1][1 + y][1], 32) == 0 && out[y][2][0] == 0);

  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(3, ops, 0, nullptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(3, ops, 1, stream));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(0, ops, 0, stream));
  auto wrong = [&](CUDA_MEMCPY3D_BATCH_OP op) {
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync(1, &op, 0, stream));
  };
  wrong({at(from, 3, 0), at(one, {0, 0, 0}), {4, 3, 2}, kOrder, 0});
  wrong({at(from, 0, 2), at(one, {0, 0, 0}), {4, 3, 2}, kOrder, 0});
  wrong({at(from, 0, 0), at(one, {1, 0, 0}), {4, 3, 2}, kOrder, 0});
  wrong({at(from, 0, 0), at(one, {0, 0, 0}), {4, 3, 0}, kOrder, 0});
  wrong({at(from, 0, 0), at(one, {0, 0, 0}), {4, 3, 2}, CU_MEMCPY_SRC_ACCESS_ORDER_INVALID, 0});
  wrong({at(bytes, {0, 0, 0}), at(one, {0, 0, 0}), {1, 1, 1}, kOrder, 0});
}

}  // namespace

int main() {
  start();
  CUarray one, two, three;
  CUDA_ARRAY_DESCRIPTOR d = {16, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
  OK(cuArrayCreate(&one, &d));
  d = {8, 4, CU_AD_FORMAT_UNSIGNED_INT8, 2};
  OK(cuArrayCreate(&two, &d));
  CUDA_ARRAY3D_DESCRIPTOR deep = {4, 3, 2, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SURFACE_LDST};
  OK(cuArray3DCreate(&three, &deep));
  deep = {5, 4, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP};
  CUarray none;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate(&none, &deep));
  d = {8, 4, CU_AD_FORMAT_UNSIGNED_INT8, 3};
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuArrayCreate(&none, &d));

  uint32_t in[16], out[16] = {};
  for (uint32_t i = 0; i < 16; ++i) in[i] = i * i;
  OK(cuMemcpyHtoA(one, 0, in, 64));
  OK(cuMemcpyAtoH(out, one, 8, 32));
  CHECK(out[0] == 4 && out[7] == 81);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA(one, 32, in, 64));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA(one, 2, in, 4));

  unsigned char rows[4][16], back[4][16] = {};
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 16; ++x) rows[y][x] = static_cast<unsigned char>(y * 16 + x);
  CUDA_MEMCPY2D c = {};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = rows;
  c.srcPitch = 16;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = two;
  c.WidthInBytes = 16;
  c.Height = 4;
  OK(cuMemcpy2D(&c));
  CUDA_MEMCPY2D o = {};
  o.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  o.srcArray = two;
  o.srcXInBytes = 4;
  o.srcY = 1;
  o.dstMemoryType = CU_MEMORYTYPE_HOST;
  o.dstHost = back;
  o.dstPitch = 16;
  o.WidthInBytes = 6;
  o.Height = 3;
  OK(cuMemcpy2D(&o));
  CHECK(back[0][0] == 20 && back[2][5] == 3 * 16 + 9 && back[0][6] == 0);
  o.srcY = 2;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&o));

  float volume[2][3][16], again[2][3][16] = {};
  for (int i = 0; i < 96; ++i) (&volume[0][0][0])[i] = static_cast<float>(i);
  CUDA_MEMCPY3D v = {};
  v.srcMemoryType = CU_MEMORYTYPE_HOST;
  v.srcHost = volume;
  v.srcPitch = 64;
  v.srcHeight = 3;
  v.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  v.dstArray = three;
  v.WidthInBytes = 64;
  v.Height = 3;
  v.Depth = 2;
  OK(cuMemcpy3D(&v));
  CUdeviceptr linear;
  OK(cuMemAlloc(&linear, sizeof volume));
  CUDA_MEMCPY3D w = {};
  w.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  w.srcArray = three;
  w.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  w.dstDevice = linear;
  w.dstPitch = 64;
  w.dstHeight = 3;
  w.WidthInBytes = 64;
  w.Height = 3;
  w.Depth = 2;
  OK(cuMemcpy3D(&w));
  OK(cuMemcpyDtoH(again, linear, sizeof again));
  CHECK(memcmp(again, volume, sizeof volume) == 0);

  CUmipmappedArray mip;
  deep = {16, 8, 0, CU_AD_FORMAT_HALF, 1, 0};
  OK(cuMipmappedArrayCreate(&mip, &deep, 99));
  CUarray level;
  OK(cuMipmappedArrayGetLevel(&level, mip, 4));
  CUDA_ARRAY3D_DESCRIPTOR said;
  OK(cuArray3DGetDescriptor(&said, level));
  CHECK(said.Width == 1 && said.Height == 1);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mip, 5));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(level));

  CUDA_RESOURCE_DESC r = {};
  r.resType = CU_RESOURCE_TYPE_ARRAY;
  r.res.array.hArray = two;
  CUDA_TEXTURE_DESC t = {};
  CUtexObject texture, other;
  CUsurfObject surface;
  OK(cuTexObjectCreate(&texture, &r, &t, nullptr));
  OK(cuTexObjectCreate(&other, &r, &t, nullptr));
  CHECK(texture != other);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate(&surface, &r));
  r.res.array.hArray = three;
  OK(cuSurfObjectCreate(&surface, &r));
  CUDA_RESOURCE_DESC asked;
  OK(cuTexObjectGetResourceDesc(&asked, texture));
  CHECK(asked.resType == CU_RESOURCE_TYPE_ARRAY && asked.res.array.hArray == two);
  OK(cuTexObjectDestroy(texture));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(texture));
  CUtexObject reused;
  r.res.array.hArray = two;
  OK(cuTexObjectCreate(&reused, &r, &t, nullptr));
  CHECK(reused == texture);
  OK(cuSurfObjectDestroy(surface));
  OK(cuMipmappedArrayDestroy(mip));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayGetLevel(&level, mip, 0));
  OK(cuArrayDestroy(one));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuMemcpyHtoA(one, 0, in, 64));
  copies_in_batches(two);
  return ok();
}
