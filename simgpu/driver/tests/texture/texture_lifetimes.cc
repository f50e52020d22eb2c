// Texture and surface objects that are destroyed after a launch, before it has run: the launch sees
// them, calls do not, and their memory goes with the work.
#include "check.h"

int main() {
  start();
  CUmodule module = load(PTX_HEAD R"(
.visible .entry copy(.param .u64 from, .param .u64 to) {
  .reg .b32 %x, %v<4>; .reg .b64 %d<2>;
  ld.param.u64 %d0, [from]; ld.param.u64 %d1, [to]; mov.u32 %x, %tid.x;
  tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [%d0, {%x}];
  shl.b32 %x, %x, 2; sust.b.1d.b32.trap [%d1, {%x}], %v0; ret;
})");
  CUfunction copy = function(module, "copy");
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  uint32_t* flag;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4096, 0));
  *flag = 0;
  size_t before, total, after;
  OK(cuMemGetInfo(&before, &total));

  CUarray from, to;
  CUDA_ARRAY3D_DESCRIPTOR shape = {
      1 << 13, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
  OK(cuArray3DCreate(&from, &shape));
  OK(cuArray3DCreate(&to, &shape));
  uint32_t texels[32], got[32] = {};
  for (uint32_t i = 0; i < 32; ++i) texels[i] = 100 + i;
  OK(cuMemcpyHtoA(from, 0, texels, sizeof texels));
  CUDA_RESOURCE_DESC read = {}, write = {};
  read.resType = write.resType = CU_RESOURCE_TYPE_ARRAY;
  read.res.array.hArray = from;
  write.res.array.hArray = to;
  CUDA_TEXTURE_DESC sampling = {};
  sampling.flags = CU_TRSF_READ_AS_INTEGER;
  CUtexObject texture, other;
  CUsurfObject surface;
  OK(cuTexObjectCreate(&texture, &read, &sampling, nullptr));
  OK(cuSurfObjectCreate(&surface, &write));

  OK(cuStreamWaitValue32(s, reinterpret_cast<CUdeviceptr>(flag), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(launch1(copy, 1, 32, s, texture, surface));
  OK(cuTexObjectDestroy(texture));
  OK(cuSurfObjectDestroy(surface));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy(texture));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(surface));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc(&write, texture));
  // A new object is not what the launch waits for.
  CUDA_RESOURCE_DESC empty = read;
  empty.res.array.hArray = to;
  OK(cuTexObjectCreate(&other, &empty, &sampling, nullptr));
  CHECK(other != texture);
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyAtoH(got, to, 0, sizeof got));
  CHECK(memcmp(got, texels, sizeof got) == 0);

  // With the work done the slot is free again, and so is the memory.
  OK(cuTexObjectCreate(&texture, &empty, &sampling, nullptr));
  CHECK(texture < other);
  OK(cuTexObjectDestroy(texture));
  OK(cuTexObjectDestroy(other));
  OK(cuArrayDestroy(from));
  OK(cuArrayDestroy(to));
  OK(cuMemGetInfo(&after, &total));
  CHECK(after == before);
  return ok();
}
