#include "driver/stream/occupancy.h"

namespace simgpu {

int blocks_per_multiprocessor(const Function& f, const Device& d, int threads,
                              uint64_t dynamic_shared) {
  if (threads <= 0 || threads > static_cast<int>(f.info->max_threads)) return 0;
  int warps = (threads + 31) / 32;
  int most = d.blocks_per_sm();
  int by_warps = d.threads_per_sm() / 32 / warps;
  if (by_warps < most) most = by_warps;
  // Registers are given out per warp, in units of 256.
  int per_warp = static_cast<int>(
      round_up(static_cast<uint64_t>(f.info->registers < 16 ? 16 : f.info->registers) * 32, 256));
  int by_registers = 65536 / per_warp / warps;
  if (by_registers < most) most = by_registers;
  uint64_t shared = round_up(f.info->static_shared_bytes + dynamic_shared + 1024, 128);
  uint64_t by_shared = static_cast<uint64_t>(d.shared_per_sm()) / shared;
  if (by_shared < static_cast<uint64_t>(most)) most = static_cast<int>(by_shared);
  return most;
}

namespace {

CUresult find(CUfunction handle, Ref<Context>* c, Ref<Function>* f) {
  if (CUresult r = current(c); r != CUDA_SUCCESS) return r;
  return function_of(handle, **c, f);
}

CUresult best_block(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize size_of,
                    size_t fixed, int limit) {
  if (!grid || !block) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  Ref<Function> f;
  if (CUresult r = find(handle, &c, &f); r != CUDA_SUCCESS) return r;
  int most = static_cast<int>(f->info->max_threads);
  if (limit > 0 && limit < most) most = limit;
  int best = 0, best_threads = 0, best_blocks = 0;
  for (int n = most; n > 0; n = (n - 1) / 32 * 32) {
    size_t shared = size_of ? size_of(n) : fixed;
    int blocks = blocks_per_multiprocessor(*f, *c->device, n, shared);
    if (blocks * n > best_threads) {
      best = n;
      best_threads = blocks * n;
      best_blocks = blocks;
    }
  }
  *block = best;
  *grid = best_blocks * Device::kMultiprocessors;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                       size_t shared) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  if (!blocks || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  Ref<Function> f;
  if (CUresult r = find(handle, &c, &f); r != CUDA_SUCCESS) return r;
  *blocks = blocks_per_multiprocessor(*f, *c->device, threads, shared);
  return CUDA_SUCCESS;
}

SIMGPU_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                                int threads, size_t shared,
                                                                unsigned flags) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  if (!blocks || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
    return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  Ref<Function> f;
  if (CUresult r = find(handle, &c, &f); r != CUDA_SUCCESS) return r;
  *blocks = blocks_per_multiprocessor(*f, *c->device, threads, shared);
  return CUDA_SUCCESS;
}

SIMGPU_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction f,
                                            CUoccupancyB2DSize size_of, size_t shared, int limit) {
  ENTER(cuOccupancyMaxPotentialBlockSize);
  return best_block(grid, block, f, size_of, shared, limit);
}

SIMGPU_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction f,
                                                     CUoccupancyB2DSize size_of, size_t shared,
                                                     int limit, unsigned flags) {
  ENTER(cuOccupancyMaxPotentialBlockSizeWithFlags);
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  return best_block(grid, block, f, size_of, shared, limit);
}

SIMGPU_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                   int threads) {
  ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
  if (!bytes || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  Ref<Function> f;
  if (CUresult r = find(handle, &c, &f); r != CUDA_SUCCESS) return r;
  if (blocks_per_multiprocessor(*f, *c->device, threads, 0) < blocks)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t each = round_down(static_cast<uint64_t>(c->device->shared_per_sm() / blocks), 128);
  uint64_t taken = f->info->static_shared_bytes + 1024;
  uint64_t most = static_cast<uint64_t>(c->device->shared_optin()) - f->info->static_shared_bytes;
  uint64_t left = each > taken ? each - taken : 0;
  *bytes = left < most ? left : most;
  return CUDA_SUCCESS;
}

SIMGPU_API cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle,
                                              const CUlaunchConfig* config) {
  ENTER(cuOccupancyMaxPotentialClusterSize);
  if (!size || !config) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  Ref<Function> f;
  if (CUresult r = find(handle, &c, &f); r != CUDA_SUCCESS) return r;
  if (c->device->sm() < 90) return CUDA_ERROR_NOT_SUPPORTED;
  *size = f->non_portable_cluster.load() != 0 ? 16 : 8;
  return CUDA_SUCCESS;
}

SIMGPU_API cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                        const CUlaunchConfig* config) {
  ENTER(cuOccupancyMaxActiveClusters);
  if (!clusters || !config) return CUDA_ERROR_INVALID_VALUE;
  Ref<Context> c;
  Ref<Function> f;
  if (CUresult r = find(handle, &c, &f); r != CUDA_SUCCESS) return r;
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    cluster = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
              config->attrs[i].value.clusterDim.z;
  }
  if (cluster == 0) return CUDA_ERROR_INVALID_VALUE;
  int threads = static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ);
  int blocks = blocks_per_multiprocessor(*f, *c->device, threads, config->sharedMemBytes);
  *clusters = blocks * Device::kMultiprocessors / static_cast<int>(cluster);
  return CUDA_SUCCESS;
}
