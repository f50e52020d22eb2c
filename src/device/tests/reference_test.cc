// Texture and surface references over several generations: kernels that name them read and write
// what they were bound to, as their settings say; what has ended is not missed.
#include "device/tests/life.h"
#include "intercept/generated/real_driver.h"

namespace {

const char kPtx[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .texref pixels = { addr_mode_0 = clamp_to_border };
.visible .global .texref row;
.visible .global .texref gone;
.visible .global .surfref canvas;
.visible .entry look(.param .u64 out) {
  .reg .b32 %x, %v<4>; .reg .f32 %f, %y, %w<4>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [out]; mov.u32 %x, %tid.x; cvt.rn.f32.u32 %f, %x; mov.f32 %y, 0f3F000000;
  mad.wide.u32 %d2, %x, 8, %d1;
  tex.2d.v4.f32.f32 {%w0, %w1, %w2, %w3}, [pixels, {%f, %y}]; st.global.f32 [%d2], %w0;
  tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [row, {%x}]; st.global.u32 [%d2+4], %v0; ret;
}
.visible .entry paint(.param .u32 value) {
  .reg .b32 %x, %v;
  ld.param.u32 %v, [value]; mov.u32 %x, %tid.x; add.u32 %v, %x, %v; shl.b32 %x, %x, 2;
  sust.b.1d.b32.trap [canvas, {%x}], %v; ret;
}
)";

CUmodule module;
CUfunction look, paint;
CUtexref pixels, row, gone, loose;
CUsurfref canvas;
CUarray texels, painted;
CUdeviceptr out, numbers, other;
float border = -1;
uint32_t first_number = 1000, paint_value = 5;

void fill_texels(float first) {
  float rows[2][4];
  for (int i = 0; i < 8; ++i) (&rows[0][0])[i] = first + static_cast<float>(i);
  CUDA_MEMCPY2D c = {};
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = rows;
  c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  c.dstArray = texels;
  c.WidthInBytes = 16;
  c.Height = 2;
  OK(cuMemcpy2D_v2(&c));
}

void make() {
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetFunction(&look, module, "look"));
  OK(cuModuleGetFunction(&paint, module, "paint"));
  OK(cuModuleGetTexRef(&pixels, module, "pixels"));
  OK(cuModuleGetTexRef(&row, module, "row"));
  OK(cuModuleGetTexRef(&gone, module, "gone"));
  OK(cuModuleGetSurfRef(&canvas, module, "canvas"));
  OK(cuTexRefCreate(&loose));
  OK(cuMemAlloc_v2(&out, 256));
  OK(cuMemAlloc_v2(&numbers, 4096));
  OK(cuMemAlloc_v2(&other, 4096));
  uint32_t in[1024];
  for (uint32_t i = 0; i < 1024; ++i) in[i] = 1000 + i;
  OK(cuMemcpyHtoD_v2(numbers, in, sizeof in));

  CUDA_ARRAY3D_DESCRIPTOR d = {4, 2, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  OK(cuArray3DCreate_v2(&texels, &d));
  fill_texels(100);
  d = {8, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
  OK(cuArray3DCreate_v2(&painted, &d));
  OK(cuTexRefSetArray(pixels, texels, CU_TRSA_OVERRIDE_FORMAT));
  float color[4] = {border, 0, 0, 0};
  OK(cuTexRefSetBorderColor(pixels, color));
  OK(cuParamSetTexRef(look, CU_PARAM_TR_DEFAULT, pixels));
  OK(cuSurfRefSetArray(canvas, painted, 0));

  // The format of an array stays when memory takes the array's place.
  CUarray short_lived;
  d = {8, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
  OK(cuArray3DCreate_v2(&short_lived, &d));
  OK(cuTexRefSetArray(row, short_lived, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefSetFlags(row, CU_TRSF_READ_AS_INTEGER));
  size_t offset;
  OK(cuTexRefSetAddress_v2(&offset, row, numbers, 4096));
  // Bound to what is gone by the time of the snapshot.
  OK(cuTexRefSetArray(gone, short_lived, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuArrayDestroy(short_lived));
  OK(cuTexRefSetFormat(loose, CU_AD_FORMAT_HALF, 2));
  OK(cuTexRefSetMipmapLevelClamp(loose, 0.5f, 3));
  OK(cuTexRefSetAddress_v2(&offset, loose, other, 4096));
  OK(cuMemFree_v2(other));
}

void check() {
  struct {
    float pixel;
    uint32_t number;
  } got[8];
  void* arguments[] = {&out};
  OK(cuLaunchKernel(look, 1, 1, 1, 8, 1, 1, 0, nullptr, arguments, nullptr));
  OK(cuMemcpyDtoH_v2(got, out, sizeof got));
  CHECK(got[0].pixel == 100 && got[3].pixel == 103 && got[4].pixel == border);
  CHECK(got[0].number == first_number && got[7].number == first_number + 7);
  CUarray array;
  OK(cuTexRefGetArray(&array, pixels));
  CHECK(array == texels);
  OK(cuSurfRefGetArray(&array, canvas));
  CHECK(array == painted);
  CUtexref again;
  OK(cuModuleGetTexRef(&again, module, "pixels"));
  CHECK(again == pixels);
  CUarray_format format;
  int channels;
  float least, most;
  OK(cuTexRefGetFormat(&format, &channels, loose));
  CHECK(format == CU_AD_FORMAT_HALF && channels == 2);
  OK(cuTexRefGetMipmapLevelClamp(&least, &most, loose));
  CHECK(least == 0.5f && most == 3);
  // Changes for the next generation.
  paint_value += 7;
  void* values[] = {&paint_value};
  OK(cuLaunchKernel(paint, 1, 1, 1, 8, 1, 1, 0, nullptr, values, nullptr));
  uint32_t colors[8];
  OK(cuMemcpyAtoH_v2(colors, painted, 0, sizeof colors));
  CHECK(colors[0] == paint_value && colors[7] == paint_value + 7);
  border -= 1;
  float color[4] = {border, 0, 0, 0};
  OK(cuTexRefSetBorderColor(pixels, color));
  first_number += 128;
  size_t offset;
  OK(cuTexRefSetAddress_v2(&offset, row, numbers + 4 * (first_number - 1000), 64));
  CHECK(offset == 0);
}

}  // namespace

int main() {
  alarm(100);
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  make();
  check();
  for (unsigned generation = 1; generation <= 3; ++generation) {
    next_generation();
    CHECK(gpuckpt::generation() == generation);
    check();
  }
  OK(cuTexRefDestroy(loose));
  OK(cuModuleUnload(module));
  next_generation();
  CHECK(cuTexRefSetFlags(pixels, 0) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuTexRefSetFlags(loose, 0) == CUDA_ERROR_INVALID_HANDLE);
  fprintf(stderr, "generation %u PASS\n", gpuckpt::generation());
  _exit(0);
}
