#include "device/capture/hash.h"

#include "base/syscall.h"
#include "base/text/log.h"
#include "device/base/registry.h"
#include "device/hooks/hooks.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

extern "C" const char gpuckpt_kernels_fatbin[], gpuckpt_kernels_ptx[];

namespace gpuckpt::device {
namespace {

constexpr unsigned kBlockThreads = kSpanChunks * 32;
// Enough blocks of threads to fill a device, few enough that each expands the key for many spans.
constexpr uint32_t kBlocksEach = 8;  // for each multiprocessor

uint32_t blocks_for(uint32_t spans) {
  CUdevice device = 0;
  int processors = 0;
  if (real().cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      real().cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) !=
          CUDA_SUCCESS ||
      processors <= 0)
    processors = 16;
  const uint32_t most = static_cast<uint32_t>(processors) * kBlocksEach;
  return spans < most ? spans : most;
}

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
  MutexLock guard(registry().lock);
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
  CUfunction kernel;
  if (hook_cuModuleGetFunction(&kernel, *module, "gpuckpt_hash") == CUDA_SUCCESS)
    first_use(handle_from<CUfunction>(name_from(Kind::kFunction, kernel)));
  real().cuMemGetInfo_v2(&after, &total);
  real().cuCtxGetDevice(&device);
  MutexLock guard(registry().lock);
  auto* m = registry().find<ModuleObject>(ObjectType::kModule, name_from(Kind::kModule, *module));
  if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
  m->ours = true;
  m->held.take(device, before > after ? before - after : 0);
  return CUDA_SUCCESS;
}

}  // namespace

HostNames::HostNames(const HashKey& key) {
  expand_hash_key(key, &table_);
  hash_zeros(table_, kChunkBytes, reinterpret_cast<uint8_t*>(&whole_zero_));
}

ChunkName HostNames::of_zeros(uint64_t bytes) const {
  if (bytes == kChunkBytes) return whole_zero_;
  ChunkName name;
  hash_zeros(table_, bytes, reinterpret_cast<uint8_t*>(&name));
  return name;
}

ChunkName HostNames::of(const void* bytes, uint64_t length) const {
  ChunkName name;
  hash_chunk(table_, hash_lanes, bytes, length, reinterpret_cast<uint8_t*>(&name));
  return name;
}

Hasher::Hasher(CUcontext context, const HashKey* key) : context_(context) {
  if (!key) return;
  key_ = *key;
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

bool Hasher::unload() {
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
  CUdeviceptr from = in.device, to = out.device;
  void* arguments[] = {&from, &to, &count, &key_};
  result = real().cuLaunchKernel(kernel_, blocks_for(count), 1, 1, kBlockThreads, 1, 1, 0, stream,
                                 arguments, nullptr);
  CUresult end = real().cuStreamSynchronize(stream);
  kernel_us_ += sys::now_us() - start;
  real().cuStreamDestroy_v2(stream);
  return result != CUDA_SUCCESS ? result : end;
}

}  // namespace gpuckpt::device
