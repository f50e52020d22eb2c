// Texture and surface references: a kernel reads what a reference was bound to when the launch was
// called, as its settings say; what cannot be is an error.
#include "check.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

const char* kModule = PTX_HEAD R"(
.visible .global .texref pixels = { addr_mode_0 = clamp_to_border, filter_mode = nearest };
.tex .u32 row;
.visible .global .surfref canvas;
.visible .global .u32 plain = 7;
.visible .entry fetch(.param .u64 out) {
  .reg .b32 %x; .reg .f32 %f, %y, %v<4>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [out]; mov.u32 %x, %tid.x; cvt.rn.f32.u32 %f, %x; mov.f32 %y, 0f3F000000;
  tex.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [pixels, {%f, %y}];
  mad.wide.u32 %d2, %x, 4, %d1; st.global.f32 [%d2], %v0; ret;
}
.visible .entry through_address(.param .u64 out) {
  .reg .b32 %x, %v<4>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [out]; mov.u32 %x, %tid.x; mov.u64 %d3, row;
  tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [%d3, {%x}];
  mad.wide.u32 %d2, %x, 4, %d1; st.global.u32 [%d2], %v0; ret;
}
.visible .entry paint(.param .u32 value) {
  .reg .b32 %x, %v;
  ld.param.u32 %v, [value]; mov.u32 %x, %tid.x; mad.lo.u32 %v, %x, 10, %v; shl.b32 %x, %x, 2;
  sust.b.1d.b32.trap [canvas, {%x}], %v; ret;
}
.visible .entry wait_then_fetch(.param .u64 out, .param .u64 flag) {
  .reg .b32 %x, %r, %v<4>; .reg .b64 %d<4>; .reg .pred %p;
  ld.param.u64 %d1, [out]; ld.param.u64 %d3, [flag]; mov.u32 %x, %tid.x;
again: ld.volatile.global.u32 %r, [%d3]; setp.eq.u32 %p, %r, 0; @%p bra again;
  tex.1d.v4.u32.s32 {%v0, %v1, %v2, %v3}, [row, {%x}];
  mad.wide.u32 %d2, %x, 4, %d1; st.global.u32 [%d2], %v0; ret;
}
)";

CUarray floats(size_t width, size_t height, float first) {
  CUarray array;
  CUDA_ARRAY_DESCRIPTOR d = {width, height, CU_AD_FORMAT_FLOAT, 1};
  OK(cuArrayCreate(&array, &d));
  for (size_t y = 0; y < (height ? height : 1); ++y) {
    float texels[16];
    for (size_t x = 0; x < width; ++x) texels[x] = first + static_cast<float>(10 * y + x);
    CUDA_MEMCPY2D c = {};
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = texels;
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c.dstArray = array;
    c.dstY = y;
    c.WidthInBytes = width * 4;
    c.Height = 1;
    OK(cuMemcpy2D(&c));
  }
  return array;
}

// The settings of the module's text hold until a call changes them.
void arrays_and_settings(CUmodule module) {
  CUdeviceptr out;
  OK(cuMemAlloc(&out, 256));
  float got[8];
  CUtexref pixels, same;
  OK(cuModuleGetTexRef(&pixels, module, "pixels"));
  OK(cuModuleGetTexRef(&same, module, "pixels"));
  CHECK(same == pixels);
  CUaddress_mode mode;
  OK(cuTexRefGetAddressMode(&mode, pixels, 0));
  CHECK(mode == CU_TR_ADDRESS_MODE_BORDER);
  CUarray array = floats(4, 2, 100), told;
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&told, pixels));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetArray(pixels, array, 0));
  OK(cuTexRefSetArray(pixels, array, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefGetArray(&told, pixels));
  CHECK(told == array);
  CUarray_format format;
  int channels;
  OK(cuTexRefGetFormat(&format, &channels, pixels));
  CHECK(format == CU_AD_FORMAT_FLOAT && channels == 1);
  float border[4] = {-1, 0, 0, 0};
  OK(cuTexRefSetBorderColor(pixels, border));
  CUfunction fetch = function(module, "fetch");
  OK(cuParamSetTexRef(fetch, CU_PARAM_TR_DEFAULT, pixels));
  OK(launch1(fetch, 1, 8, nullptr, out));
  OK(cuMemcpyDtoH(got, out, sizeof got));
  CHECK(got[0] == 100 && got[3] == 103 && got[4] == -1);

  // Linear filtering between texels, clamped.
  OK(cuTexRefSetFilterMode(pixels, CU_TR_FILTER_MODE_LINEAR));
  OK(cuTexRefSetAddressMode(pixels, 0, CU_TR_ADDRESS_MODE_CLAMP));
  OK(launch1(fetch, 1, 8, nullptr, out));
  OK(cuMemcpyDtoH(got, out, sizeof got));
  CHECK(got[0] == 100 && got[1] == 100.5f && got[6] == 103);

  // Rows of pitched memory.
  CUdeviceptr rows;
  OK(cuMemAlloc(&rows, 1024));
  float texels[8];
  for (int i = 0; i < 8; ++i) texels[i] = static_cast<float>(i * i);
  OK(cuMemcpyHtoD(rows, texels, sizeof texels));
  CUDA_ARRAY_DESCRIPTOR d = {8, 4, CU_AD_FORMAT_FLOAT, 1};
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress2D(pixels, &d, rows + 4, 256));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress2D(pixels, &d, rows, 28));
  OK(cuTexRefSetAddress2D(pixels, &d, rows, 256));
  OK(cuTexRefSetFilterMode(pixels, CU_TR_FILTER_MODE_POINT));
  OK(launch1(fetch, 1, 8, nullptr, out));
  OK(cuMemcpyDtoH(got, out, sizeof got));
  CHECK(got[2] == 4 && got[7] == 49);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefGetArray(&told, pixels));
}

// A launch keeps what it was launched with.
void linear_memory(CUmodule module) {
  CUtexref row;
  OK(cuModuleGetTexRef(&row, module, "row"));
  CUdeviceptr numbers, out;
  OK(cuMemAlloc(&numbers, 2048));
  OK(cuMemAlloc(&out, 256));
  uint32_t in[256], got[8], *flag;
  for (uint32_t i = 0; i < 256; ++i) in[i] = 1000 + i;
  OK(cuMemcpyHtoD(numbers, in, sizeof in));
  OK(cuTexRefSetFormat(row, CU_AD_FORMAT_UNSIGNED_INT32, 1));
  OK(cuTexRefSetFlags(row, CU_TRSF_READ_AS_INTEGER));
  size_t offset = 99;
  OK(cuTexRefSetAddress(&offset, row, numbers, sizeof in));
  CHECK(offset == 0);
  OK(launch1(function(module, "through_address"), 1, 8, nullptr, out));
  OK(cuMemcpyDtoH(got, out, sizeof got));
  CHECK(got[0] == 1000 && got[7] == 1007);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuTexRefSetAddress(nullptr, row, numbers + 4, 64));
  OK(cuTexRefSetAddress(&offset, row, numbers + 516, 64));
  CHECK(offset == 4);
  CUdeviceptr told;
  OK(cuTexRefGetAddress(&told, row));
  CHECK(told == numbers + 512);

  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 4, 0));
  *flag = 0;
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(launch1(function(module, "wait_then_fetch"), 1, 8, stream, out,
             reinterpret_cast<CUdeviceptr>(flag)));
  OK(cuTexRefSetAddress(&offset, row, numbers, 64));
  __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(got, out, sizeof got));
  CHECK(got[0] == 1128);
}

void surfaces(CUmodule module) {
  CUsurfref canvas;
  OK(cuModuleGetSurfRef(&canvas, module, "canvas"));
  CUDA_ARRAY3D_DESCRIPTOR d = {8, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
  CUarray array, plain = floats(8, 0, 0), told;
  OK(cuArray3DCreate(&array, &d));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfRefGetArray(&told, canvas));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuSurfRefSetArray(canvas, plain, 0));
  OK(cuSurfRefSetArray(canvas, array, 0));
  OK(cuSurfRefGetArray(&told, canvas));
  CHECK(told == array);
  OK(launch1(function(module, "paint"), 1, 8, nullptr, 5));
  uint32_t got[8];
  OK(cuMemcpyAtoH(got, array, 0, sizeof got));
  CHECK(got[0] == 5 && got[7] == 75);
}

void handles(CUmodule module) {
  CUtexref reference;
  CUsurfref surface;
  CUdeviceptr address;
  size_t bytes;
  EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&reference, module, "canvas"));
  EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetSurfRef(&surface, module, "pixels"));
  EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&address, &bytes, module, "pixels"));
  OK(cuModuleGetGlobal(&address, &bytes, module, "plain"));
  OK(cuTexRefCreate(&reference));
  float least = 0, most = 0, bias = 0;
  OK(cuTexRefSetMipmapLevelClamp(reference, 1, 2.5f));
  OK(cuTexRefSetMipmapLevelBias(reference, 0.25f));
  OK(cuTexRefGetMipmapLevelClamp(&least, &most, reference));
  OK(cuTexRefGetMipmapLevelBias(&bias, reference));
  CHECK(least == 1 && most == 2.5f && bias == 0.25f);
  EXPECT(CUDA_ERROR_INVALID_VALUE,
         cuParamSetTexRef(function(module, "fetch"), CU_PARAM_TR_DEFAULT, reference));
  OK(cuTexRefDestroy(reference));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFlags(reference, 0));
  OK(cuModuleGetTexRef(&reference, module, "pixels"));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuTexRefDestroy(reference));
  OK(cuModuleUnload(module));
  EXPECT(CUDA_ERROR_INVALID_HANDLE, cuTexRefSetFlags(reference, 0));
}

// A reference that is bound to nothing is no texture.
void unbound() {
  CUmodule module = load(kModule);
  CUdeviceptr out;
  OK(cuMemAlloc(&out, 256));
  OK(launch1(function(module, "fetch"), 1, 8, nullptr, out));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

}  // namespace

int main() {
  start();
  CUmodule module = load(kModule);
  arrays_and_settings(module);
  linear_memory(module);
  surfaces(module);
  handles(module);
  unbound();
  return ok();
}
