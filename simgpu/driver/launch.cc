// Kernel launches.
#include <stdlib.h>
#include <string.h>

#include "module.h"
#include "occupancy.h"
#include "work.h"

namespace simgpu {
namespace {

struct Spec {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  unsigned shared = 0;
  bool cooperative = false;
  CUstream stream = nullptr;
};

CUresult result_of(const ptx::Result& r) {
  switch (r.outcome) {
    case ptx::Outcome::kDone:
      return CUDA_SUCCESS;
    case ptx::Outcome::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case ptx::Outcome::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case ptx::Outcome::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case ptx::Outcome::kInvalidPc:
      return CUDA_ERROR_INVALID_PC;
    case ptx::Outcome::kAssert:
      return CUDA_ERROR_ASSERT;
    case ptx::Outcome::kTrap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case ptx::Outcome::kCancelled:
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_ERROR_UNKNOWN;
}

void print(void* context, const char* text, size_t length) {
  auto* c = static_cast<Context*>(context);
  Lock lock(c->output_mutex);
  if (c->output.size() > 64 * kMiB) return;
  c->output.insert(c->output.end(), text, text + length);
}

class KernelWork : public Work {
 public:
  KernelWork(Ref<Module> m, Ref<Function> f, const Spec& s, uint8_t* params)
      : module_(std::move(m)), function_(std::move(f)), spec_(s), params_(params) {}
  ~KernelWork() override { free(params_); }
  const char* name() const override { return function_->info->name; }

  CUresult execute(Context& c) override {
    State* s = state();
    uint64_t number = s->launches.fetch_add(1) + 1;
    if (s->options.lost != 0 && number == s->options.lost) c.device->lost.store(true);
    if (c.device->lost.load()) return CUDA_ERROR_UNKNOWN;
    ptx::Launch l;
    l.module = module_->code;
    l.kernel = function_->index;
    for (int i = 0; i < 3; ++i) {
      l.grid[i] = spec_.grid[i];
      l.block[i] = spec_.block[i];
      l.cluster[i] = spec_.cluster[i];
    }
    l.dynamic_shared_bytes = spec_.shared;
    l.params = params_;
    l.cooperative = spec_.cooperative;
    l.grid_id = number;
    l.memory = &c.memory;
    l.output = print;
    l.output_context = &c;
    l.cancel = &c.cancel;
    ptx::Result r;
    {
      KernelRunning running;
      r = ptx::run(s->pool, l);
    }
    if (r.outcome == ptx::Outcome::kDone) return CUDA_SUCCESS;
    const char* log = getenv("SIMGPU_LOG");
    if (log != nullptr && *log == '1' && r.outcome != ptx::Outcome::kCancelled)
      say("kernel %s: %s (PTX line %u, address 0x%llx)", name(), r.text, r.line,
          static_cast<unsigned long long>(r.address));
    return result_of(r);
  }

 private:
  const Ref<Module> module_;
  const Ref<Function> function_;
  const Spec spec_;
  uint8_t* const params_;
};

// Packs the parameters; null on success of a kernel without any.
CUresult pack(const ptx::KernelInfo& k, void** params, void** extra, uint8_t** out) {
  *out = static_cast<uint8_t*>(calloc(1, k.param_bytes != 0 ? k.param_bytes : 1));
  if (*out == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (k.param_count == 0) return CUDA_SUCCESS;
  if (params != nullptr) {
    if (extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < k.param_count; ++i) {
      if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      memcpy(*out + k.params[i].offset, params[i], k.params[i].size);
    }
    return CUDA_SUCCESS;
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (void** e = extra; e != nullptr && *e != CU_LAUNCH_PARAM_END; e += 2) {
    if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = e[1];
    } else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<size_t*>(e[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memcpy(*out, buffer, bytes < k.param_bytes ? bytes : k.param_bytes);
  return CUDA_SUCCESS;
}

CUresult check(const Function& f, const Device& d, const Spec& s) {
  const ptx::KernelInfo& k = *f.info;
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (s.grid[i] == 0 || s.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    threads *= s.block[i];
  }
  if (s.grid[0] > 2147483647u || s.grid[1] > 65535 || s.grid[2] > 65535)
    return CUDA_ERROR_INVALID_VALUE;
  if (s.block[0] > 1024 || s.block[1] > 1024 || s.block[2] > 64 || threads > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  if (threads > k.max_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  for (int i = 0; i < 3; ++i)
    if (k.required_block[i] != 0 && k.required_block[i] != s.block[i])
      return CUDA_ERROR_INVALID_VALUE;
  int allowed;
  f.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &allowed);
  if (s.shared > static_cast<unsigned>(allowed < 0 ? 0 : allowed)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t cluster = static_cast<uint64_t>(s.cluster[0]) * s.cluster[1] * s.cluster[2];
  if (cluster > 1) {
    if (d.sm() < 90) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (cluster > (f.non_portable_cluster.load() != 0 ? 16u : 8u))
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    for (int i = 0; i < 3; ++i)
      if (s.cluster[i] == 0 || s.grid[i] % s.cluster[i] != 0)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  if (s.cooperative) {
    uint64_t blocks = static_cast<uint64_t>(s.grid[0]) * s.grid[1] * s.grid[2];
    uint64_t most = static_cast<uint64_t>(
                        blocks_per_multiprocessor(f, d, static_cast<int>(threads), s.shared)) *
                    Device::kMultiprocessors;
    if (blocks > most) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, const Spec& spec, void** params, void** extra) {
  Ref<Stream> s;
  if (CUresult r = resolve(spec.stream, &s); r != CUDA_SUCCESS) return r;
  Ref<Function> f;
  if (CUresult r = function_of(handle, *s->context, &f); r != CUDA_SUCCESS) return r;
  if (f->module->context != s->context.get()) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult r = check(*f, *s->context->device, spec); r != CUDA_SUCCESS) return r;
  uint8_t* buffer = nullptr;
  CUresult r = pack(*f->info, params, extra, &buffer);
  if (r != CUDA_SUCCESS) {
    free(buffer);
    return r;
  }
  s->context->flush_output();
  return enqueue(*s, new KernelWork(Ref<Module>(f->module), f, spec, buffer));
}

CUresult apply(const CUlaunchAttribute& a, Spec* s) {
  switch (static_cast<int>(a.id)) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      s->cooperative = a.value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      s->cluster[0] = a.value.clusterDim.x;
      s->cluster[1] = a.value.clusterDim.y;
      s->cluster[2] = a.value.clusterDim.z;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return CUDA_SUCCESS;  // hints, and what full serialisation satisfies
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params,
                          void** extra) {
  ENTER(cuLaunchKernel);
  Spec s{{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared, false, stream};
  return launch(f, s, params, extra);
}

SIMGPU_API cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                     unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                     CUstream stream, void** params) {
  ENTER(cuLaunchCooperativeKernel);
  Spec s{{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared, true, stream};
  return launch(f, s, params, nullptr);
}

SIMGPU_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                            void** extra) {
  ENTER(cuLaunchKernelEx);
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  Spec s{{config->gridDimX, config->gridDimY, config->gridDimZ},
         {config->blockDimX, config->blockDimY, config->blockDimZ},
         {1, 1, 1},
         config->sharedMemBytes,
         false,
         config->hStream};
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (CUresult r = apply(config->attrs[i], &s); r != CUDA_SUCCESS) return r;
  return launch(f, s, params, extra);
}
