// Kernel launches.
#include <stdlib.h>
#include <string.h>

#include "driver/graph/graph.h"
#include "driver/module/module.h"
#include "driver/stream/action.h"
#include "driver/stream/occupancy.h"

namespace simgpu {
namespace {

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

template <std::vector<char> Context::*kTo>
void print(void* context, const char* text, size_t length) {
  auto* c = static_cast<Context*>(context);
  Lock lock(c->output_mutex);
  if ((c->*kTo).size() > 64 * kMiB) return;
  (c->*kTo).insert((c->*kTo).end(), text, text + length);
}

}  // namespace

KernelAction::~KernelAction() { free(params); }

CUresult KernelAction::execute(Context& c) {
  State* s = state();
  uint64_t number = s->launches.fetch_add(1) + 1;
  if (s->options.lost != 0 && number == s->options.lost) c.device->lost.store(true);
  if (c.device->lost.load()) return CUDA_ERROR_UNKNOWN;
  ptx::Launch l;
  l.module = module->code;
  l.kernel = function->index;
  for (int i = 0; i < 3; ++i) {
    l.grid[i] = shape.grid[i];
    l.block[i] = shape.block[i];
    l.cluster[i] = shape.cluster[i];
  }
  l.dynamic_shared_bytes = shape.shared;
  l.params = params;
  l.cooperative = shape.cooperative;
  l.grid_id = number;
  l.memory = &c.memory;
  Ref<BoundReferences> bound = references ? references : bind_references(*module);
  l.textures = bound ? bound.get() : all_textures();
  l.output = print<&Context::output>;
  l.errors = print<&Context::errors>;
  l.output_context = &c;
  l.set_conditional = set_conditional;
  l.cancel = &c.cancel;
  ptx::Result r;
  {
    MemoryUse use;
    r = ptx::run(s->pool, l);
  }
  if (r.outcome == ptx::Outcome::kDone) return CUDA_SUCCESS;
  const char* log = getenv("SIMGPU_LOG");
  if (log && *log == '1' && r.outcome != ptx::Outcome::kCancelled)
    say("kernel %s: %s (PTX line %u, address 0x%llx)", name(), r.text, r.line,
        static_cast<unsigned long long>(r.address));
  return result_of(r);
}

CUlaunchAttribute* KernelAction::attribute(CUlaunchAttributeID id) {
  for (CUlaunchAttribute& a : attributes)
    if (a.id == id) return &a;
  return nullptr;
}

namespace {

// Packs the parameters; null on success of a kernel without any.
CUresult pack(const ptx::KernelInfo& k, void** params, void** extra, uint8_t** out) {
  *out = static_cast<uint8_t*>(calloc(1, k.param_bytes != 0 ? k.param_bytes : 1));
  if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
  if (k.param_count == 0) return CUDA_SUCCESS;
  if (params) {
    if (extra) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < k.param_count; ++i) {
      if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
      memcpy(*out + k.params[i].offset, params[i], k.params[i].size);
    }
    return CUDA_SUCCESS;
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (void** e = extra; e && *e != CU_LAUNCH_PARAM_END; e += 2) {
    if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = e[1];
    } else if (*e == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<size_t*>(e[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (!buffer) return CUDA_ERROR_INVALID_VALUE;
  memcpy(*out, buffer, bytes < k.param_bytes ? bytes : k.param_bytes);
  return CUDA_SUCCESS;
}

CUresult check(const Function& f, const Device& d, const LaunchShape& s) {
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
  if (threads > k.max_threads) return CUDA_ERROR_INVALID_VALUE;
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

CUresult apply(const CUlaunchAttribute& a, LaunchShape* s) {
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

CUresult launch(CUfunction handle, const LaunchShape& shape, CUstream stream, void** params,
                void** extra, const CUlaunchAttribute* attributes = nullptr, unsigned count = 0) {
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  Ref<KernelAction> k;
  if (CUresult r = make_kernel(s->context, handle, shape, params, extra, attributes, count, &k);
      r != CUDA_SUCCESS)
    return r;
  s->context->flush_output();
  if (!is_capturing(*s)) k->references = bind_references(*k->module);
  return enqueue(*s, as_action(k));
}

}  // namespace

CUresult KernelAction::set_attribute(const CUlaunchAttribute& a) {
  if (CUresult r = apply(a, &shape); r != CUDA_SUCCESS) return r;
  if (a.id == CU_LAUNCH_ATTRIBUTE_IGNORE) return CUDA_SUCCESS;
  if (CUlaunchAttribute* have = attribute(a.id)) {
    have->value = a.value;
  } else {
    attributes.push_back(a);
  }
  return CUDA_SUCCESS;
}

CUresult make_kernel(Ref<Context> c, CUfunction handle, const LaunchShape& shape, void** params,
                     void** extra, const CUlaunchAttribute* attributes, unsigned count,
                     Ref<KernelAction>* out) {
  Ref<Function> f;
  if (CUresult r = function_of(handle, *c, &f); r != CUDA_SUCCESS) return r;
  if (f->module->context != c.get()) return CUDA_ERROR_INVALID_HANDLE;
  auto k = Ref<KernelAction>::adopt(new KernelAction(c, Ref<Module>(f->module), f));
  k->shape = shape;
  for (unsigned i = 0; i < count; ++i)
    if (CUresult r = k->set_attribute(attributes[i]); r != CUDA_SUCCESS) return r;
  if (CUresult r = check(*f, *c->device, k->shape); r != CUDA_SUCCESS) return r;
  if (CUresult r = pack(*f->info, params, extra, &k->params); r != CUDA_SUCCESS) return r;
  for (uint32_t i = 0; i < f->info->param_count; ++i)
    k->pointers.push_back(k->params + f->info->params[i].offset);
  *out = std::move(k);
  return CUDA_SUCCESS;
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params,
                          void** extra) {
  ENTER(cuLaunchKernel);
  LaunchShape s{{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared, false};
  return launch(f, s, stream, params, extra);
}

SIMGPU_API cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                     unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                     CUstream stream, void** params) {
  ENTER(cuLaunchCooperativeKernel);
  LaunchShape s{{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared, false};
  CUlaunchAttribute cooperative = {};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  return launch(f, s, stream, params, nullptr, &cooperative, 1);
}

SIMGPU_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                            void** extra) {
  ENTER(cuLaunchKernelEx);
  if (!config || (config->numAttrs != 0 && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  LaunchShape s{{config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ},
                {1, 1, 1},
                config->sharedMemBytes,
                false};
  return launch(f, s, config->hStream, params, extra, config->attrs, config->numAttrs);
}
