// Tensor maps that a program keeps across snapshots: in its own memory, in a constant variable, in
// device memory and in the parameters of a graph's kernel. Each holds the address of a matrix,
// whose tiles are moved by it.
#include <cuda.h>

#include "subject.h"

constexpr int kWidth = 64, kHeight = 32, kTile = 16;

__constant__ CUtensorMap constant_map;

__device__ void waitFor(unsigned bar) {
  asm volatile(
      "{ .reg .pred p;\n"
      "wait: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n"
      "@!p bra wait; }" ::"r"(bar)
      : "memory");
}

// A tile of `from`, mixed, to the tile's place in `to`.
__device__ void moveTile(const CUtensorMap* from, const CUtensorMap* to, unsigned step) {
  __shared__ __align__(1024) uint32_t tile[kTile][kTile];
  __shared__ __align__(8) uint64_t barrier;
  const auto at = (unsigned)__cvta_generic_to_shared(tile);
  const auto bar = (unsigned)__cvta_generic_to_shared(&barrier);
  const int x = (int)blockIdx.x * kTile, y = (int)blockIdx.y * kTile;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile(
        "{ .reg .b64 t; mbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1; }" ::"r"(bar),
        "r"((unsigned)sizeof tile)
        : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(at),
        "l"(from), "r"(x), "r"(y), "r"(bar)
        : "memory");
  }
  __syncthreads();
  waitFor(bar);
  for (unsigned k = threadIdx.x; k < kTile * kTile; k += blockDim.x)
    (&tile[0][0])[k] = mix((&tile[0][0])[k] + step + k);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x != 0) return;
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(to),
      "r"(x), "r"(y), "r"(at)
      : "memory");
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}

__global__ void fromParameter(const __grid_constant__ CUtensorMap from, unsigned step) {
  moveTile(&from, &constant_map, step);
}
__global__ void fromMemory(const CUtensorMap* maps, unsigned step) {
  moveTile(&constant_map, &maps[1], step);
}
__global__ void inGraph(const __grid_constant__ CUtensorMap from,
                        const __grid_constant__ CUtensorMap to) {
  moveTile(&from, &to, 17);
}

CUtensorMap mapOf(uint32_t* matrix, CUtensorMapSwizzle swizzle) {
  const cuuint64_t extent[] = {kWidth, kHeight}, stride[] = {kWidth * 4};
  const cuuint32_t box[] = {kTile, kTile}, steps[] = {1, 1};
  static CUtensorMap map;  // not in place of a temporary, which g++ does not align as it must
  CHECK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, matrix, extent, stride, box,
                               steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  const dim3 grid(kWidth / kTile, kHeight / kTile);
  uint32_t* matrix[3];
  CUtensorMap map[3];
  for (int i = 0; i < 3; ++i) {
    CHECK(cudaMalloc(&matrix[i], kWidth * kHeight * 4));
    CHECK(cudaMemset(matrix[i], i + 1, kWidth * kHeight * 4));
    map[i] = mapOf(matrix[i], i == 2 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_NONE);
  }
  CUtensorMap* inMemory;
  CHECK(cudaMalloc(&inMemory, sizeof map));
  CHECK(cudaMemcpy(inMemory, map + 1, 2 * sizeof *map, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyToSymbol(constant_map, map + 1, sizeof *map));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  inGraph<<<grid, 32, 0, stream>>>(map[2], map[0]);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));

  Digest digest;
  std::vector<uint32_t> host(kWidth * kHeight);
  for (int step = 0; step < steps.count(); ++step) {
    fromParameter<<<grid, 32, 0, stream>>>(map[0], (unsigned)step);  // 0 to 1
    fromMemory<<<grid, 32, 0, stream>>>(inMemory, (unsigned)step);   // 1 to 2
    CHECK(cudaGraphLaunch(exec, stream));                            // 2 to 0
    CHECK(cudaMemcpyAsync(host.data(), matrix[step % 3], host.size() * 4, cudaMemcpyDeviceToHost,
                          stream));
    CHECK(cudaStreamSynchronize(stream));
    digest.add(host);
    steps.report(step, digest);
  }
  return steps.finish(digest);
}
