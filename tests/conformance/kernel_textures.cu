// Texture and surface functions of the CUDA headers, from objects that the runtime makes: fetches,
// filters, layers, volumes, gathers, linear and pitched memory, surface reads and writes.
#include "conformance.h"

constexpr int kWidth = 16, kHeight = 8, kDepth = 4;

__global__ void fetch2d(cudaTextureObject_t t, const float2* at, float* out) {
  out[threadIdx.x] = tex2D<float>(t, at[threadIdx.x].x, at[threadIdx.x].y);
}
__global__ void fetch3d(cudaTextureObject_t t, float* out) {
  const float x = (float)threadIdx.x + 0.5f;
  out[threadIdx.x] = tex3D<float>(t, x, 2.5f, 1.5f);
}
__global__ void fetch_layer(cudaTextureObject_t t, float* out) {
  out[threadIdx.x] = tex2DLayered<float>(t, (float)threadIdx.x + 0.5f, 3.5f, 2);
}
__global__ void gather(cudaTextureObject_t t, float4* out) {
  *out = tex2Dgather<float4>(t, 5.0f, 3.0f, 0);
}
__global__ void fetch_linear(cudaTextureObject_t t, int4* out) {
  out[threadIdx.x] = tex1Dfetch<int4>(t, (int)threadIdx.x - 1);
}
__global__ void fetch_bytes(cudaTextureObject_t t, float4* out) {
  out[threadIdx.x] = tex1D<float4>(t, (float)threadIdx.x + 0.5f);
}
__global__ void turn(cudaSurfaceObject_t from, cudaSurfaceObject_t to) {
  const int x = (int)threadIdx.x, y = (int)threadIdx.y;
  float v;
  surf2Dread(&v, from, x * 4, y);
  surf2Dwrite(v + 1, to, (kWidth - 1 - x) * 4, kHeight - 1 - y);
  float none = 5;
  surf2Dread(&none, from, -4, y, cudaBoundaryModeZero);
  if (none != 0) surf2Dwrite(-1.0f, to, 0, 0);
}

static float texel(int x, int y, int z = 0) { return (float)(x * x + 10 * y + 1000 * z) + 0.5f; }

static cudaArray_t array_of(int w, int h, int d, unsigned flags) {
  std::vector<float> host;
  for (int z = 0; z < (d ? d : 1); ++z)
    for (int y = 0; y < h; ++y)
      for (int x = 0; x < w; ++x) host.push_back(texel(x, y, z));
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t a;
  CHECK(cudaMalloc3DArray(&a, &format, make_cudaExtent((size_t)w, (size_t)h, (size_t)d), flags));
  cudaMemcpy3DParms p{};
  p.srcPtr = make_cudaPitchedPtr(host.data(), (size_t)w * 4, (size_t)w, (size_t)h);
  p.dstArray = a;
  p.extent = make_cudaExtent((size_t)w, (size_t)h, (size_t)(d ? d : 1));
  p.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&p));
  return a;
}
static cudaTextureObject_t texture_of(const cudaResourceDesc& r, cudaTextureAddressMode mode,
                                      cudaTextureFilterMode filter, bool normalized,
                                      cudaTextureReadMode read = cudaReadModeElementType) {
  cudaTextureDesc t{};
  for (auto& a : t.addressMode) a = mode;
  t.filterMode = filter;
  t.normalizedCoords = normalized;
  t.readMode = read;
  cudaTextureObject_t object;
  CHECK(cudaCreateTextureObject(&object, &r, &t, nullptr));
  return object;
}
static cudaResourceDesc resource(cudaArray_t a) {
  cudaResourceDesc r{};
  r.resType = cudaResourceTypeArray;
  r.res.array.array = a;
  return r;
}
static int wrap(int i, int n) { return ((i % n) + n) % n; }
static int clamp(int i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

static void check_2d() {
  const cudaArray_t a = array_of(kWidth, kHeight, 0, 0);
  std::vector<float2> at(64);
  for (int k = 0; k < 64; ++k)
    at[(size_t)k] = make_float2((float)k * 0.31f - 2, (float)k * 0.17f - 1);
  DeviceVector<float2> device(at);
  DeviceVector<float> out(64);
  cudaTextureObject_t t =
      texture_of(resource(a), cudaAddressModeClamp, cudaFilterModeLinear, false);
  fetch2d<<<1, 64>>>(t, device.get(), out.get());
  CHECK(cudaDeviceSynchronize());
  std::vector<float> got = out.copy();
  for (int k = 0; k < 64; ++k) {
    const double u = (double)at[(size_t)k].x - 0.5, v = (double)at[(size_t)k].y - 0.5;
    const int i = (int)floor(u), j = (int)floor(v);
    const double p = floor((u - i) * 256 + 0.5) / 256, q = floor((v - j) * 256 + 0.5) / 256;
    auto value = [&](int x, int y) { return (double)texel(clamp(x, kWidth), clamp(y, kHeight)); };
    const double want = (1 - p) * (1 - q) * value(i, j) + p * (1 - q) * value(i + 1, j) +
                        (1 - p) * q * value(i, j + 1) + p * q * value(i + 1, j + 1);
    EXPECT(fabs((double)got[(size_t)k] - want) <= 1e-6 * want);
  }
  CHECK(cudaDestroyTextureObject(t));
  t = texture_of(resource(a), cudaAddressModeWrap, cudaFilterModePoint, true);
  fetch2d<<<1, 64>>>(t, device.get(), out.get());
  CHECK(cudaDeviceSynchronize());
  got = out.copy();
  for (int k = 0; k < 64; ++k)
    EXPECT(got[(size_t)k] == texel(wrap((int)floor((double)at[(size_t)k].x * kWidth), kWidth),
                                   wrap((int)floor((double)at[(size_t)k].y * kHeight), kHeight)));
  CHECK(cudaDestroyTextureObject(t));
  CHECK(cudaFreeArray(a));
}

static void check_shapes() {
  DeviceVector<float> out(kWidth);
  cudaArray_t a = array_of(kWidth, kHeight, kDepth, 0);
  cudaTextureObject_t t = texture_of(resource(a), cudaAddressModeClamp, cudaFilterModePoint, false);
  fetch3d<<<1, kWidth>>>(t, out.get());
  CHECK(cudaDeviceSynchronize());
  for (int x = 0; x < kWidth; ++x) EXPECT(out.copy()[(size_t)x] == texel(x, 2, 1));
  CHECK(cudaDestroyTextureObject(t));
  CHECK(cudaFreeArray(a));

  a = array_of(kWidth, kHeight, kDepth, cudaArrayLayered);
  t = texture_of(resource(a), cudaAddressModeClamp, cudaFilterModePoint, false);
  fetch_layer<<<1, kWidth>>>(t, out.get());
  CHECK(cudaDeviceSynchronize());
  for (int x = 0; x < kWidth; ++x) EXPECT(out.copy()[(size_t)x] == texel(x, 3, 2));
  CHECK(cudaDestroyTextureObject(t));
  CHECK(cudaFreeArray(a));

  a = array_of(kWidth, kHeight, 0, cudaArrayTextureGather);
  t = texture_of(resource(a), cudaAddressModeClamp, cudaFilterModePoint, false);
  DeviceVector<float4> four(1);
  gather<<<1, 1>>>(t, four.get());
  CHECK(cudaDeviceSynchronize());
  const float4 g = four.copy()[0];
  EXPECT(g.x == texel(4, 3) && g.y == texel(5, 3) && g.z == texel(5, 2) && g.w == texel(4, 2));
  CHECK(cudaDestroyTextureObject(t));
  CHECK(cudaFreeArray(a));
}

static void check_linear() {
  std::vector<int4> host(8);
  for (int k = 0; k < 8; ++k) host[(size_t)k] = make_int4(k, -k, k * k, 7);
  DeviceVector<int4> device(host), out(10);
  cudaResourceDesc r{};
  r.resType = cudaResourceTypeLinear;
  r.res.linear.devPtr = device.get();
  r.res.linear.desc = cudaCreateChannelDesc<int4>();
  r.res.linear.sizeInBytes = 8 * sizeof(int4);
  cudaTextureObject_t t = texture_of(r, cudaAddressModeClamp, cudaFilterModePoint, false);
  fetch_linear<<<1, 10>>>(t, out.get());
  CHECK(cudaDeviceSynchronize());
  const std::vector<int4> got = out.copy();
  for (int k = 0; k < 8; ++k)
    EXPECT(got[(size_t)k + 1].y == -k && got[(size_t)k + 1].z == k * k &&
           got[(size_t)k + 1].w == 7);
  EXPECT(got[0].w == 0 && got[9].w == 0);
  CHECK(cudaDestroyTextureObject(t));

  float* pitched;
  size_t pitch;
  CHECK(cudaMallocPitch(&pitched, &pitch, kWidth * 4, kHeight));
  std::vector<float> rows;
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) rows.push_back(texel(x, y));
  CHECK(cudaMemcpy2D(pitched, pitch, rows.data(), kWidth * 4, kWidth * 4, kHeight,
                     cudaMemcpyHostToDevice));
  r = {};
  r.resType = cudaResourceTypePitch2D;
  r.res.pitch2D.devPtr = pitched;
  r.res.pitch2D.desc = cudaCreateChannelDesc<float>();
  r.res.pitch2D.width = kWidth;
  r.res.pitch2D.height = kHeight;
  r.res.pitch2D.pitchInBytes = pitch;
  t = texture_of(r, cudaAddressModeClamp, cudaFilterModePoint, false);
  DeviceVector<float2> at(std::vector<float2>{make_float2(3.5f, 6.5f), make_float2(99, -3)});
  DeviceVector<float> two(2);
  fetch2d<<<1, 2>>>(t, at.get(), two.get());
  CHECK(cudaDeviceSynchronize());
  EXPECT(two.copy()[0] == texel(3, 6) && two.copy()[1] == texel(kWidth - 1, 0));
  CHECK(cudaDestroyTextureObject(t));
  CHECK(cudaFree(pitched));

  // Bytes read as fractions.
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
  cudaArray_t bytes;
  CHECK(cudaMallocArray(&bytes, &format, 2, 0));
  const unsigned char values[8] = {0, 51, 102, 255, 255, 204, 153, 0};
  CHECK(cudaMemcpy2DToArray(bytes, 0, 0, values, 8, 8, 1, cudaMemcpyHostToDevice));
  t = texture_of(resource(bytes), cudaAddressModeClamp, cudaFilterModePoint, false,
                 cudaReadModeNormalizedFloat);
  DeviceVector<float4> fractions(2);
  fetch_bytes<<<1, 2>>>(t, fractions.get());
  CHECK(cudaDeviceSynchronize());
  const std::vector<float4> f = fractions.copy();
  EXPECT(f[0].x == 0 && f[0].y == 0.2f && f[0].z == 0.4f && f[0].w == 1 && f[1].y == 0.8f);
  CHECK(cudaDestroyTextureObject(t));
  CHECK(cudaFreeArray(bytes));
}

static void check_surfaces() {
  const cudaArray_t from = array_of(kWidth, kHeight, 0, cudaArraySurfaceLoadStore),
                    to = array_of(kWidth, kHeight, 0, cudaArraySurfaceLoadStore);
  const cudaResourceDesc r = resource(from), w = resource(to);
  cudaSurfaceObject_t source, target;
  CHECK(cudaCreateSurfaceObject(&source, &r));
  CHECK(cudaCreateSurfaceObject(&target, &w));
  turn<<<1, dim3(kWidth, kHeight)>>>(source, target);
  CHECK(cudaDeviceSynchronize());
  std::vector<float> got(kWidth * kHeight);
  CHECK(cudaMemcpy2DFromArray(got.data(), kWidth * 4, to, 0, 0, kWidth * 4, kHeight,
                              cudaMemcpyDeviceToHost));
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x)
      EXPECT(got[(size_t)(y * kWidth + x)] == texel(kWidth - 1 - x, kHeight - 1 - y) + 1);
  CHECK(cudaDestroySurfaceObject(source));
  CHECK(cudaDestroySurfaceObject(target));
  CHECK(cudaFreeArray(from));
  CHECK(cudaFreeArray(to));
}

int main() {
  check_2d();
  check_shapes();
  check_linear();
  check_surfaces();
  return passed();
}
