// Pinned host memory: our own anonymous mappings, registered with the driver. To a snapshot it is
// plain memory; a restore registers it again. Small allocations share mappings, by the same arena
// that serves device memory.
#include <sys/mman.h>

#include "base/address.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "device/base/lock_order.h"
#include "device/capture/idle.h"
#include "device/hooks/hooks.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt {
namespace device {
namespace {

constexpr unsigned kRegisterAll = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

// One per context: registrations end with their context.
class HostBacking : public Backing {
 public:
  int reserve(uint64_t bytes, uint64_t* address, uint64_t* got) override {
    // Room for alignment; what is not used is given back, so that only whole blocks stay.
    long at =
        sys::mmap(0, bytes + kBlockBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (sys::failed(at)) return CUDA_ERROR_OUT_OF_MEMORY;
    auto begin = static_cast<uint64_t>(at);
    uint64_t aligned = (begin + kBlockBytes - 1) & ~(kBlockBytes - 1);
    if (aligned > begin) sys::munmap(begin, aligned - begin);
    uint64_t end = begin + bytes + kBlockBytes;
    if (end > aligned + bytes) sys::munmap(aligned + bytes, end - aligned - bytes);
    *address = aligned;
    *got = bytes;
    return 0;
  }
  int commit(uint64_t address, uint64_t bytes, uint64_t*) override {
    long at =
        sys::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
    if (sys::failed(at)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes >= kBlockBytes) sys::call(SYS_madvise, at, static_cast<long>(bytes), MADV_HUGEPAGE);
    if (plain) return 0;
    CUresult result = real().cuMemHostRegister_v2(reinterpret_cast<void*>(at), bytes, kRegisterAll);
    if (result != CUDA_SUCCESS) retire(address, bytes);
    return result;
  }
  void decommit(uint64_t address, uint64_t bytes, uint64_t) override {
    if (!plain) real().cuMemHostUnregister(reinterpret_cast<void*>(address));
    retire(address, bytes);
  }

  bool plain =
      false;  // the device reads ordinary memory by itself: managed memory needs no registration

 private:
  static void retire(uint64_t address, uint64_t bytes) {
    sys::mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED);
  }
};

struct HostPool {
  uint64_t context = 0;
  HostBacking backing;
  Arena arena;
};

struct Registration : RangeNode {  // cuMemHostRegister by the application
  uint64_t id = 0, context = 0, device_pointer = 0;
  unsigned flags = 0;
};

struct Pinned {
  Mutex lock{kPinnedLock};
  Vector<HostPool*> pools;
  RangeTree registrations;
};

Pinned& pinned() {
  static Pinned* instance;
  return made_once(&instance);
}

HostPool* pool_of(uint64_t context, bool plain) {
  for (HostPool* pool : pinned().pools)
    if (pool->context == context && pool->backing.plain == plain) return pool;
  HostPool* pool = make<HostPool>();
  if (!pool || !pinned().pools.push(pool)) {
    destroy(pool);
    return nullptr;
  }
  pool->context = context;
  pool->backing.plain = plain;
  pool->arena.init(&pool->backing);
  return pool;
}

Allocation* ours(uint64_t address, HostPool** owner) {
  for (HostPool* pool : pinned().pools) {
    if (Allocation* a = pool->arena.covering(address)) {
      *owner = pool;
      return a;
    }
  }
  return nullptr;
}

bool reads_pageable() {
  CUdevice device;
  int yes = 0;
  return real().cuCtxGetDevice(&device) == CUDA_SUCCESS &&
         real().cuDeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device) ==
             CUDA_SUCCESS &&
         yes;
}

CUresult allocate_pinned(void** out, size_t bytes, unsigned flags, bool managed) {
  CUcontext current = nullptr;
  if (CUresult result = real().cuCtxGetCurrent(&current)) return result;
  if (!current) return CUDA_ERROR_INVALID_CONTEXT;
  if (CUresult result = ask_capture()) return result;
  if (CUresult result = ask_context()) return result;
  uint64_t context = current_context_name();
  bool plain = managed && reads_pageable();
  MutexLock guard(pinned().lock);
  HostPool* pool = pool_of(context, plain);
  if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation* a = nullptr;
  int error = pool->arena.allocate(bytes, bytes >= 4096 ? 4096 : kUnitBytes, &a);
  if (error) return static_cast<CUresult>(error);
  a->context = context;
  a->flags = flags;
  a->managed = managed;
  *out = reinterpret_cast<void*>(a->begin);
  return CUDA_SUCCESS;
}

}  // namespace

bool find_pinned(uint64_t address, PinnedView* out) {
  MutexLock guard(pinned().lock);
  HostPool* pool;
  if (Allocation* a = ours(address, &pool)) {
    *out = {a->begin, a->size, a->id, a->context, a->flags, true, a->managed};
    return true;
  }
  auto* r = static_cast<Registration*>(pinned().registrations.covering(address));
  if (!r) return false;
  *out = {r->begin, r->size, r->id, r->context, r->flags, false, false};
  return true;
}

uint64_t pinned_bytes() {
  uint64_t total = 0;
  MutexLock guard(pinned().lock);
  for (HostPool* pool : pinned().pools) total += pool->arena.allocated_bytes();
  return total;
}

void free_pinned_of(uint64_t context) {
  MutexLock guard(pinned().lock);
  for (HostPool* pool : pinned().pools) {
    if (pool->context != context) continue;
    while (Allocation* a = pool->arena.first()) pool->arena.free(a);
    pool->arena.trim();
  }
  for (RangeNode* n = pinned().registrations.first(); n;) {
    auto* r = static_cast<Registration*>(n);
    n = pinned().registrations.next(n);
    if (r->context != context) continue;
    pinned().registrations.erase(r);
    destroy(r);
  }
}

CUresult free_pinned(uint64_t address) {
  uint64_t context;
  {
    MutexLock guard(pinned().lock);
    HostPool* pool;
    Allocation* a = ours(address, &pool);
    if (!a || a->begin != address) return CUDA_ERROR_INVALID_VALUE;
    context = a->context;
  }
  if (CUresult result = ask_capture()) return result;
  if (CUresult result = wait_idle(context)) return result;
  WithContext with(context);
  MutexLock guard(pinned().lock);
  HostPool* pool;
  Allocation* a = ours(address, &pool);
  if (!a || a->begin != address) return CUDA_ERROR_INVALID_VALUE;
  pool->arena.free(a);
  return CUDA_SUCCESS;
}

bool with_managed(uint64_t address, uint64_t bytes, void* context, void (*use)(void*, Advice*)) {
  MutexLock guard(pinned().lock);
  HostPool* pool;
  Allocation* a = ours(address, &pool);
  if (!a || !a->managed || !bytes || address + bytes > a->begin + a->size) return false;
  use(context, &a->advice);
  return true;
}

bool each_pinned(void* context, bool (*range)(void* context, uint64_t start, uint64_t end)) {
  MutexLock guard(pinned().lock);
  for (HostPool* pool : pinned().pools)
    for (Chunk* chunk = pool->arena.first_chunk(); chunk; chunk = pool->arena.next_chunk(chunk))
      if (!range(context, chunk->begin, chunk->begin + chunk->size)) return false;
  for (RangeNode* n = pinned().registrations.first(); n; n = pinned().registrations.next(n))
    if (!range(context, n->begin, n->begin + n->size)) return false;
  return true;
}

// Reads a byte of each page: after `restore --lazy` an ordinary user's pages come when the process
// itself touches them, and not when the driver's kernel module pins them.
static void touch_pages(const void* begin, size_t size) {
  const auto* bytes = static_cast<const volatile char*>(begin);
  for (size_t at = 0; at < size; at += kPage) (void)bytes[at];
}

bool rebuild_pinned(DeviceReport* report) {
  auto fail = [&](uint64_t begin, uint64_t size, CUresult result) {
    return report->fail(
        kExitIncompatible,
        "pinned host memory 0x%lx-0x%lx cannot be registered with the driver here (error %d; "
        "check ulimit -l and free memory)",
        begin, begin + size, static_cast<int>(result));
  };
  for (HostPool* pool : pinned().pools) {
    if (pool->backing.plain || !name_bound(Kind::kContext, pool->context)) continue;
    WithContext with(pool->context);
    for (Chunk* chunk = pool->arena.first_chunk(); chunk; chunk = pool->arena.next_chunk(chunk)) {
      CUresult result = CUDA_ERROR_INVALID_CONTEXT;
      touch_pages(reinterpret_cast<void*>(chunk->begin), chunk->size);
      if (with)
        result = real().cuMemHostRegister_v2(reinterpret_cast<void*>(chunk->begin), chunk->size,
                                             kRegisterAll);
      if (result != CUDA_SUCCESS) return fail(chunk->begin, chunk->size, result);
    }
  }
  for (RangeNode* n = pinned().registrations.first(); n; n = pinned().registrations.next(n)) {
    auto* r = static_cast<Registration*>(n);
    if (!name_bound(Kind::kContext, r->context)) continue;
    WithContext with(r->context);
    auto* at = reinterpret_cast<void*>(r->begin);
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    touch_pages(at, r->size);
    if (with) result = real().cuMemHostRegister_v2(at, r->size, r->flags);
    if (result != CUDA_SUCCESS) return fail(r->begin, r->size, result);
    CUdeviceptr device_pointer = 0;
    if (r->device_pointer &&
        (real().cuMemHostGetDevicePointer_v2(&device_pointer, at, 0) != CUDA_SUCCESS ||
         device_pointer != r->device_pointer))
      return report->fail(
          kExitIncompatible,
          "host memory registered at 0x%lx had the device address 0x%lx and now has 0x%lx",
          r->begin, r->device_pointer, static_cast<unsigned long>(device_pointer));
  }
  return true;
}

}  // namespace device

using namespace device;

CUresult hook_cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  constexpr unsigned known =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (!pp || !bytesize || (Flags & ~known)) return real().cuMemHostAlloc(pp, bytesize, Flags);
  return allocate_pinned(pp, bytesize, Flags, false);
}

// As its successor, which takes longer sizes.
CUresult hook_cuMemAllocHost(void** pp, unsigned int bytesize) {
  return hook_cuMemAllocHost_v2(pp, bytesize);
}
CUresult hook_cuMemAllocHost_v2(void** pp, size_t bytesize) {
  if (!pp || !bytesize) return real().cuMemAllocHost_v2(pp, bytesize);
  return allocate_pinned(pp, bytesize, 0, false);
}

CUresult hook_cuMemFreeHost(void* p) {
  PinnedView view;
  if (!p || !find_pinned(bits(p), &view) || !view.ours) return real().cuMemFreeHost(p);
  return view.managed ? CUDA_ERROR_INVALID_VALUE : free_pinned(bits(p));
}

// Managed memory is host memory the device reads in place: correct everywhere, as fast as native
// only where the device reaches pageable memory by itself. It is captured with the host's pages, so
// that host writes up to the last moment are in the snapshot.
CUresult hook_cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return real().cuMemAllocManaged(dptr, bytesize, flags);
  void* at = nullptr;
  CUresult result = allocate_pinned(&at, bytesize, flags, true);
  if (result == CUDA_SUCCESS) *dptr = bits(at);
  return result;
}

CUresult hook_cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  CUresult result = real().cuMemHostGetDevicePointer_v2(pdptr, p, Flags);
  if (result != CUDA_SUCCESS || !pdptr) return result;
  MutexLock guard(pinned().lock);
  auto* r = static_cast<Registration*>(pinned().registrations.covering(bits(p)));
  if (r) r->device_pointer = *pdptr - (bits(p) - r->begin);
  return result;
}

CUresult hook_cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  PinnedView view;
  if (!pFlags || !find_pinned(bits(p), &view) || !view.ours)
    return real().cuMemHostGetFlags(pFlags, p);
  // With unified addressing the driver maps and shares all of it, whatever was asked.
  *pFlags = view.flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult hook_cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return hook_cuMemHostRegister_v2(p, bytesize, Flags);
}
CUresult hook_cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  CUresult result = real().cuMemHostRegister_v2(p, bytesize, Flags);
  if (result != CUDA_SUCCESS) return result;
  auto* r = make<Registration>();
  if (!r) {
    registry().refuse("out of memory while recording cuMemHostRegister");
    return result;
  }
  r->begin = bits(p);
  r->size = bytesize;
  r->id = next_buffer_id();
  r->flags = Flags;
  r->context = current_context_name();
  if (Flags & (CU_MEMHOSTREGISTER_IOMEMORY))
    registry().refuse("cuMemHostRegister(IOMEMORY): device memory of another driver is registered");
  MutexLock guard(pinned().lock);
  pinned().registrations.insert(r);
  return result;
}

CUresult hook_cuMemHostUnregister(void* p) {
  {
    MutexLock guard(pinned().lock);
    HostPool* pool;
    if (ours(bits(p), &pool)) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  CUresult result = real().cuMemHostUnregister(p);
  if (result != CUDA_SUCCESS) return result;
  MutexLock guard(pinned().lock);
  RangeNode* node = pinned().registrations.covering(bits(p));
  if (node) {
    pinned().registrations.erase(node);
    destroy(static_cast<Registration*>(node));
  }
  return result;
}

}  // namespace gpuckpt
