#include "device/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/log.h"
#include "common/syscall.h"
#include "device/registry.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

extern "C" const char gpuckpt_kernels_fatbin[], gpuckpt_kernels_ptx[];

namespace gpuckpt::device {
namespace {

constexpr unsigned kBlockThreads = kSpanChunks * 32;
constexpr uint32_t kMaxGrid = 1u << 30;

// Host memory that the kernel reads and writes in place: no device memory is needed to hash.
class Pinned {
 public:
  explicit Pinned(const Region& region) : at_(region.data()) {
    result = real().cuMemHostRegister_v2(
        at_, region.bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    registered_ = result == CUDA_SUCCESS;
    if (registered_) result = real().cuMemHostGetDevicePointer_v2(&device, at_, 0);
  }
  ~Pinned() {
    if (registered_) real().cuMemHostUnregister(at_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  CUdeviceptr device = 0;
  CUresult result;

 private:
  void* at_;
  bool registered_;
};

// The kernel's module in the context of that name (0: in any); null: it has none now.
CUmodule own_module(uint64_t context) {
  Guard guard(registry().lock);
  for (Object* o = registry().first(); o; o = o->next)
    if (o->type == ObjectType::kModule && !o->dead && (!context || o->context == context) &&
        static_cast<ModuleObject*>(o)->ours)
      return real_of<CUmodule>(Kind::kModule, o->name);
  return nullptr;
}

// In the current context.
CUresult load_own_module(CUmodule* module) {
  size_t before = 0, after = 0, total;
  CUdevice device = -1;
  real().cuMemGetInfo_v2(&before, &total);
  CUresult result = hook_cuModuleLoadData(module, gpuckpt_kernels_fatbin);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
    result = hook_cuModuleLoadData(module, gpuckpt_kernels_ptx);
  if (result != CUDA_SUCCESS) return result;
  real().cuMemGetInfo_v2(&after, &total);
  real().cuCtxGetDevice(&device);
  Guard guard(registry().lock);
  auto* m = registry().find<ModuleObject>(ObjectType::kModule, name_from(Kind::kModule, *module));
  if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
  m->ours = true;
  m->held.take(device, before > after ? before - after : 0);
  return CUDA_SUCCESS;
}

}  // namespace

ChunkName name_of_bytes(const void* bytes, uint64_t length) {
  XXH128_hash_t hash = XXH3_128bits(bytes, length);
  return {{__builtin_bswap64(hash.high64), __builtin_bswap64(hash.low64)}};
}

ChunkName zero_name(uint64_t bytes) {
  static const char zeros[kChunkBytes] = {};
  static ChunkName whole;  // equal values race at worst
  if (bytes > kChunkBytes) return {};
  if (bytes != kChunkBytes) return name_of_bytes(zeros, bytes);
  if (!__atomic_load_n(&whole.word[0], __ATOMIC_ACQUIRE)) {
    ChunkName name = name_of_bytes(zeros, bytes);
    __atomic_store_n(&whole.word[1], name.word[1], __ATOMIC_RELEASE);
    __atomic_store_n(&whole.word[0], name.word[0], __ATOMIC_RELEASE);
  }
  return whole;
}

Hasher::Hasher(CUcontext context) : context_(context) {
  WithContext with(context);
  if (!with) return;
  CUmodule module = own_module(current_context_name());
  CUresult result = module ? CUDA_SUCCESS : load_own_module(&module);
  if (result == CUDA_SUCCESS) result = real().cuModuleGetFunction(&kernel_, module, "gpuckpt_hash");
  if (result == CUDA_SUCCESS) return;
  kernel_ = nullptr;
  log_line(LogLevel::kInfo,
           "the device cannot hash its memory (driver error %d): all of it is copied",
           static_cast<int>(result));
}

bool Hasher::give_way() {
  if (!own_module(0)) return false;
  bool any = false;
  // The calling thread may be capturing, which this must not end.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  real().cuThreadExchangeStreamCaptureMode(&mode);
  while (CUmodule module = own_module(0)) {
    if (hook_cuModuleUnload(module) != CUDA_SUCCESS) break;
    any = true;
  }
  real().cuThreadExchangeStreamCaptureMode(&mode);
  return any;
}

CUresult Hasher::hash(const Region& spans, uint32_t count, const Region& names) {
  WithContext with(context_);
  if (!with) return CUDA_ERROR_INVALID_CONTEXT;
  Pinned in(spans), out(names);
  if (in.result != CUDA_SUCCESS) return in.result;
  if (out.result != CUDA_SUCCESS) return out.result;
  CUstream stream = nullptr;
  CUresult result = real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  uint64_t start = sys::now_us();
  for (uint32_t done = 0; done < count && result == CUDA_SUCCESS;) {
    uint32_t blocks = count - done < kMaxGrid ? count - done : kMaxGrid;
    CUdeviceptr from = in.device + done * sizeof(HashSpan), to = out.device;
    void* arguments[] = {&from, &to};
    result = real().cuLaunchKernel(kernel_, blocks, 1, 1, kBlockThreads, 1, 1, 0, stream, arguments,
                                   nullptr);
    done += blocks;
  }
  CUresult end = real().cuStreamSynchronize(stream);
  kernel_us_ += sys::now_us() - start;
  real().cuStreamDestroy_v2(stream);
  return result != CUDA_SUCCESS ? result : end;
}

}  // namespace gpuckpt::device
