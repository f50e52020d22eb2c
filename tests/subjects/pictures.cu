// Pictures: an array and every level of a mipmap are written through surfaces and read through
// textures of several kinds, and cut out of each other by copies; texture and surface objects are
// made, kept over steps and destroyed. Layers and cubes have contents that only copies reach.
#include "subject.h"

constexpr int kWidth = 64, kLevels = 5, kLayers = 3, kKept = 5;

__global__ void paint(cudaSurfaceObject_t to, int width, uint32_t seed) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= width) return;
  uchar4 old;
  surf2Dread(&old, to, x * 4, y);
  const uint32_t v = mix(seed + y * width + x) ^ (old.x | old.y << 8 | old.z << 16 | old.w << 24);
  surf2Dwrite(make_uchar4(v, v >> 8, v >> 16, v >> 24), to, x * 4, y);
}

// A level of the mipmap from the one above it.
__global__ void shrink(cudaTextureObject_t from, cudaSurfaceObject_t to, int width) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= width) return;
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) {
    const uchar4 t = tex2D<uchar4>(from, 2 * x + (i & 1) + 0.5f, 2 * y + (i >> 1) + 0.5f);
    v = mix(v + (t.x | t.y << 8 | t.z << 16 | t.w << 24));
  }
  surf2Dwrite(make_uchar4(v, v >> 8, v >> 16, v >> 24), to, x * 4, y);
}

__global__ void look(cudaTextureObject_t mipmap, cudaTextureObject_t layers, uint32_t* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = (i % kWidth + 0.5f) / kWidth, y = (i / kWidth + 0.5f) / kWidth;
  uint32_t sum = out[i];
  for (int level = 0; level < kLevels; ++level) {
    const float4 f = tex2DLod<float4>(mipmap, x, y, static_cast<float>(level));
    sum = mix(sum + static_cast<uint32_t>(f.x * 255.0f + 0.5f) * 3 +
              static_cast<uint32_t>(f.w * 255.0f + 0.5f) * 1000);
  }
  for (int layer = 0; layer < kLayers; ++layer)
    sum = mix(sum + tex2DLayered<unsigned>(layers, i % kWidth, i / kWidth, layer));
  out[i] = sum;
}

cudaResourceDesc resource(cudaArray_t array) {
  cudaResourceDesc r = {};
  r.resType = cudaResourceTypeArray;
  r.res.array.array = array;
  return r;
}
cudaSurfaceObject_t surface(cudaArray_t array) {
  cudaSurfaceObject_t s;
  cudaResourceDesc r = resource(array);
  CHECK(cudaCreateSurfaceObject(&s, &r));
  return s;
}
cudaTextureObject_t texture(const cudaResourceDesc& r, cudaTextureReadMode read, bool normalized) {
  cudaTextureObject_t t;
  cudaTextureDesc d = {};
  for (auto& mode : d.addressMode) mode = cudaAddressModeClamp;
  d.filterMode = cudaFilterModePoint;
  d.mipmapFilterMode = cudaFilterModePoint;
  d.maxMipmapLevelClamp = kLevels - 1;
  d.readMode = read;
  d.normalizedCoords = normalized;
  CHECK(cudaCreateTextureObject(&t, &r, &d, nullptr));
  return t;
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  const auto rgba = cudaCreateChannelDesc<uchar4>();
  const auto word = cudaCreateChannelDesc<unsigned>();
  cudaMipmappedArray_t mipmap;
  CHECK(cudaMallocMipmappedArray(&mipmap, &rgba, make_cudaExtent(kWidth, kWidth, 0), kLevels,
                                 cudaArraySurfaceLoadStore));
  cudaArray_t level[kLevels], layers;
  for (int i = 0; i < kLevels; ++i) CHECK(cudaGetMipmappedArrayLevel(&level[i], mipmap, i));
  CHECK(cudaMalloc3DArray(&layers, &word, make_cudaExtent(kWidth, kWidth, kLayers),
                          cudaArrayLayered));
  uint32_t *sums, *rows;
  constexpr size_t kBytes = kWidth * kWidth * 4;
  CHECK(cudaMalloc(&sums, kBytes));
  CHECK(cudaMalloc(&rows, kBytes));
  CHECK(cudaMemset(sums, 0, kBytes));
  // Zeroed, because the initial contents are undefined.
  std::vector<uint32_t> host(kWidth * kWidth);
  for (int i = 0; i < kLevels; ++i) {
    const size_t width = kWidth >> i;
    CHECK(cudaMemcpy2DToArray(level[i], 0, 0, host.data(), width * 4, width * 4, width,
                              cudaMemcpyHostToDevice));
  }
  auto copy_layer = [&](int layer, uint32_t* from) {
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(from, kWidth * 4, kWidth, kWidth);
    p.dstArray = layers;
    p.dstPos = make_cudaPos(0, 0, layer);
    p.extent = make_cudaExtent(kWidth, kWidth, 1);
    p.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3D(&p));
  };
  for (int i = 0; i < kLayers; ++i) copy_layer(i, sums);

  cudaResourceDesc whole = {};
  whole.resType = cudaResourceTypeMipmappedArray;
  whole.res.mipmap.mipmap = mipmap;
  const cudaTextureObject_t all = texture(whole, cudaReadModeNormalizedFloat, true);
  const cudaTextureObject_t stack = texture(resource(layers), cudaReadModeElementType, false);
  const cudaSurfaceObject_t first = surface(level[0]);
  cudaTextureObject_t kept[kKept] = {};  // of one level each, made and destroyed in turn
  int kept_level[kKept] = {};

  Digest digest;
  uint32_t random = 3;
  const dim3 block(16, 16);
  for (int step = 1; step <= steps.count(); ++step) {
    random = mix(random + step);
    paint<<<dim3(4, 4), block>>>(first, kWidth, random);
    for (int i = 1; i < kLevels; ++i) {
      const int width = kWidth >> i, grid = (width + 15) / 16;
      const int k = random % kKept;
      if (!kept[k] || kept_level[k] != i - 1) {
        if (kept[k]) CHECK(cudaDestroyTextureObject(kept[k]));
        kept[k] = texture(resource(level[i - 1]), cudaReadModeElementType, false);
        kept_level[k] = i - 1;
      }
      const cudaSurfaceObject_t to = surface(level[i]);
      shrink<<<dim3(grid, grid), block>>>(kept[k], to, width);
      CHECK(cudaDeviceSynchronize());
      CHECK(cudaDestroySurfaceObject(to));
      random = mix(random);
    }
    look<<<kWidth * kWidth / 256, 256>>>(all, stack, sums);
    copy_layer(static_cast<int>(random % kLayers), sums);
    CHECK(cudaMemcpy2DFromArray(rows, kWidth * 4, level[0], 0, 0, kWidth * 4, kWidth,
                                cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(host.data(), rows, kBytes, cudaMemcpyDeviceToHost));
    digest.add(host);
    CHECK(cudaMemcpy(host.data(), sums, kBytes, cudaMemcpyDeviceToHost));
    digest.add(host);
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
