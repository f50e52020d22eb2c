#include "device/sharing/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

#include "base/descriptors/handover.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "device/arena/vmm.h"
#include "device/base/lock_order.h"
#include "device/capture/capture.h"
#include "device/capture/idle.h"
#include "device/hooks/hooks.h"
#include "device/sharing/shareable.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace gpuckpt {
namespace device {
namespace {

constexpr uint32_t kMagic = 0x31706b67;      // "gkp1"
constexpr uint32_t kPoolMagic = 0x316c6b67;  // "gkl1", memory of a pool
constexpr uint64_t kPatienceUs = 10000000;
constexpr int kHighDescriptor = 500;  // out of the way of the program's numbers

// A large allocation may end in a second chunk, right behind the first.
struct Ticket {
  uint32_t magic;
  int32_t pid;
  uint64_t identity;  // of the process: numbers are used again
  uint16_t offers[2];
  uint32_t offset;  // of the allocation in the first chunk, in units
  uint64_t chunks[2], size;
  CUuuid device;
  uint64_t bytes() const { return chunks[0] + chunks[1]; }
};
static_assert(sizeof(Ticket) == CU_IPC_HANDLE_SIZE);

struct Export {
  uint64_t chunk;  // where it begins
  int fd, offer;
};
struct Opened {
  uint64_t address, base;
  Ticket ticket;
  int device, users;
};
struct Ipc {
  Mutex lock{kIpcLock};
  uint32_t fetching = 0;  // threads outside the gate that wait for an owner's descriptors
  Vector<Export> exports;
  Vector<Opened> opened;
};
Ipc* only;
Ipc& all() { return made_once(&only); }

bool same_ticket(const Ticket& a, const Ticket& b) { return !__builtin_memcmp(&a, &b, sizeof a); }

// ---- the process that has the memory ----

}  // namespace

int ipc_own_descriptor(int fd) {
  const long high = sys::call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (sys::failed(high)) {
    realm_adopt_fd(fd);
    return fd;
  }
  realm_disown_fd(fd);
  sys::close(fd);
  realm_adopt_fd(static_cast<int>(high));
  return static_cast<int>(high);
}
void ipc_close_descriptor(int fd) {
  realm_disown_fd(fd);
  sys::close(fd);
}

namespace {

CUresult export_chunk(const Chunk* chunk, int* fd) {
  CUresult result = export_memory(chunk->handle, fd);
  if (result == CUDA_SUCCESS) *fd = ipc_own_descriptor(*fd);
  return result;
}

// The number that the chunk is offered under; -1: `result` says why not. The device's lock is held.
int offer_chunk(const Chunk* chunk, CUresult* result) {
  MutexLock guard(all().lock);
  for (const Export& e : all().exports)
    if (e.chunk == chunk->begin) return e.offer;
  int fd = -1;
  *result = export_chunk(chunk, &fd);
  if (*result != CUDA_SUCCESS) return -1;
  const int offer = handover_offer(fd);
  if (offer >= 0 && all().exports.push({chunk->begin, fd, offer})) return offer;
  handover_withdraw(offer);
  ipc_close_descriptor(fd);
  *result = CUDA_ERROR_OUT_OF_MEMORY;
  return -1;
}

// Memory of pools goes by another call.
bool may_be_shared(const Allocation* a, uint32_t magic) {
  if (magic == kMagic) return !a->pool;
  MutexLock guard(registry().lock);
  auto* pool = registry().find<PoolObject>(ObjectType::kPool, a->pool);
  return pool && !a->ready &&
         (pool->properties.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult make_ticket(int device, CUdeviceptr address, uint32_t magic, Ticket* ticket) {
  DeviceMemory* memory = device_memory(device);
  CUuuid uuid = {};
  if (CUresult result = real().cuDeviceGetUuid_v2(&uuid, device)) return result;
  MutexLock guard(memory->lock);
  Allocation* a = memory->arena.covering(address);
  Chunk* first = a && may_be_shared(a, magic) ? memory->arena.chunk_at(a->begin) : nullptr;
  if (!first) return CUDA_ERROR_INVALID_VALUE;
  if (!memory->backing.exportable) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t end = first->begin + first->size;
  Chunk* second = a->begin + a->size > end ? memory->arena.chunk_at(end) : nullptr;
  *ticket = {};
  CUresult result = CUDA_SUCCESS;
  int index = 0;
  for (Chunk* chunk : {first, second}) {
    if (!chunk) continue;
    const int offer = offer_chunk(chunk, &result);
    if (offer < 0) return result;
    ticket->offers[index] = static_cast<uint16_t>(offer);
    ticket->chunks[index++] = chunk->size;
  }
  a->shared = true;
  ticket->magic = magic;
  ticket->pid = sys::getpid();
  ticket->identity = handover_identity();
  ticket->offset = static_cast<uint32_t>((a->begin - first->begin) / kUnitBytes);
  ticket->size = a->size;
  ticket->device = uuid;
  return CUDA_SUCCESS;
}

// ---- the process that opens it ----

CUresult allow(uint64_t base, uint64_t bytes, int device) {
  CUmemAccessDesc access[kMaxDevices] = {};
  size_t count = 0;
  int devices = 0;
  real().cuDeviceGetCount(&devices);
  for (int other = 0; other < devices && other < kMaxDevices; ++other) {
    int can = other == device;
    if (!can && real().cuDeviceCanAccessPeer(&can, other, device) != CUDA_SUCCESS) can = 0;
    if (!can) continue;
    access[count].location = {CU_MEM_LOCATION_TYPE_DEVICE, {other}};
    access[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return real().cuMemSetAccess(base, bytes, access, count);
}

CUresult map_descriptor(int fd, CUdeviceptr at, uint64_t bytes) {
  CUmemGenericAllocationHandle memory = 0;
  CUresult result = import_memory(fd, &memory);
  if (result != CUDA_SUCCESS) return result;
  result = real().cuMemMap(at, bytes, 0, memory, 0);
  real().cuMemRelease(memory);
  return result;
}

// The chunks, one behind the other.
CUresult map_ticket(const int (&fds)[2], const Ticket& t, int device, CUdeviceptr base) {
  CUresult result = map_descriptor(fds[0], base, t.chunks[0]);
  bool first = result == CUDA_SUCCESS, second = false;
  if (first && t.chunks[1]) {
    result = map_descriptor(fds[1], base + t.chunks[0], t.chunks[1]);
    second = result == CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) result = allow(base, t.bytes(), device);
  if (result == CUDA_SUCCESS) return result;
  if (first) real().cuMemUnmap(base, t.chunks[0]);
  if (second) real().cuMemUnmap(base + t.chunks[0], t.chunks[1]);
  return result;
}
CUresult map_anywhere(const int (&fds)[2], const Ticket& t, int device, CUdeviceptr* base) {
  CUresult result = real().cuMemAddressReserve(base, t.bytes(), kBlockBytes, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = map_ticket(fds, t, device, *base);
  if (result != CUDA_SUCCESS) real().cuMemAddressFree(*base, t.bytes());
  return result;
}

// 0, or why not (handover.h).
template <typename Fetch>
long fetch_chunks(const Ticket& t, int (&fds)[2], Fetch fetch) {
  for (int i = 0; i < 2 && t.chunks[i]; ++i) {
    const long fd = fetch(t.offers[i]);
    if (sys::failed(fd)) return fd;
    fds[i] = static_cast<int>(fd);
  }
  return 0;
}

void close_chunks(const int (&fds)[2]) {
  for (int fd : fds)
    if (fd >= 0) sys::close(fd);
}

CUdeviceptr opened_before(const Ticket& t) {
  for (Opened& o : all().opened) {
    if (!same_ticket(o.ticket, t)) continue;
    ++o.users;
    return o.address;
  }
  return 0;
}

CUresult open_ticket(CUdeviceptr* out, const Ticket& t) {
  const int device = device_with(t.device);
  const uint64_t offset = t.offset * kUnitBytes;
  if (device < 0 || offset > t.bytes() || t.size > t.bytes() - offset)
    return CUDA_ERROR_INVALID_VALUE;
  int fds[2] = {-1, -1};
  IpcFetch fetch;
  const long why = fetch_chunks(
      t, fds, [&](uint32_t offer) { return fetch.descriptor(t.pid, t.identity, offer); });
  CUresult result = CUDA_SUCCESS;
  MutexLock guard(all().lock);
  *out = opened_before(t);  // by another thread, meanwhile
  if (!*out) {
    CUdeviceptr base = 0;
    result = why ? CUDA_ERROR_MAP_FAILED : map_anywhere(fds, t, device, &base);
    *out = base + offset;
    if (result == CUDA_SUCCESS && !all().opened.push({*out, base, t, device, 1}))
      registry().refuse("out of memory while recording cuIpcOpenMemHandle");
  }
  close_chunks(fds);
  return result;
}

CUresult open_once(CUdeviceptr* out, const Ticket& t) {
  CUdevice current;
  if (CUresult result = real().cuCtxGetDevice(&current)) return result;
  if (t.pid == sys::getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // as documented
  {
    MutexLock guard(all().lock);
    *out = opened_before(t);
  }
  return *out ? CUDA_SUCCESS : open_ticket(out, t);
}

CUresult open_handle(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags) {
  Ticket t;
  __builtin_memcpy(&t, &handle, sizeof t);
  if (!out || flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  return open_once(out, t);
}

bool is_ours(const CUipcMemHandle& handle) {
  uint32_t magic;
  __builtin_memcpy(&magic, &handle, sizeof magic);
  return magic == kMagic;
}

bool any_shared(DeviceMemory* memory) {
  MutexLock guard(memory->lock);
  for (Allocation* a = memory->arena.first(); a; a = memory->arena.next(a))
    if (a->shared) return true;
  return false;
}

bool memory_given() {
  {
    MutexLock guard(all().lock);
    if (all().exports.empty()) return false;
  }
  for (int device = 0; device < machine_facts.devices; ++device)
    if (any_shared(device_memory(device))) return true;
  return false;
}

}  // namespace

bool ipc_shared() {
  {
    MutexLock guard(all().lock);
    if (!all().opened.empty()) return true;
  }
  return memory_given();
}

bool ipc_offers_chunk(uint64_t begin) {
  if (!only) return false;
  MutexLock guard(only->lock);
  for (const Export& e : only->exports)
    if (e.chunk == begin) return true;
  return false;
}

IpcFetch::IpcFetch() { __atomic_add_fetch(&all().fetching, 1, __ATOMIC_ACQ_REL); }
IpcFetch::~IpcFetch() { __atomic_sub_fetch(&all().fetching, 1, __ATOMIC_ACQ_REL); }
long IpcFetch::descriptor(int pid, uint64_t identity, uint32_t offer) {
  GateOutside outside;
  const long fd = handover_fetch(pid, identity, static_cast<int>(offer), kPatienceUs);
  if (sys::failed(fd))
    log_line(LogLevel::kWarn,
             "process %d does not send the memory that it shares (cuIpc*; error %ld)", pid, -fd);
  return fd;
}

bool ipc_fetching() { return only && __atomic_load_n(&only->fetching, __ATOMIC_ACQUIRE); }

// With the gate closed no other thread is here.
namespace {

struct Takers {
  void* context;
  bool (*one)(void* context, const DeviceShare&);
  bool memory;  // some that was given away is still allocated
};

}  // namespace

// With the gate closed no other thread is here.
bool ipc_shares(void* context, bool (*one)(void* context, const DeviceShare&)) {
  for (size_t k = 0; only && k < only->opened.size(); ++k) {
    const Ticket& t = only->opened[k].ticket;
    for (int i = 0; i < 2 && t.chunks[i]; ++i)
      if (!one(context, {DeviceShare::kTook, t.pid, t.offers[i]})) return false;
  }
  for (size_t i = 0; only && i < only->exports.size(); ++i)
    if (!one(context, {DeviceShare::kOffers, 0, static_cast<uint32_t>(only->exports[i].offer)}))
      return false;
  if (!ipc_event_shares(context, one) || !vmm_shares(context, one)) return false;
  Takers takers = {context, one, only && memory_given()};
  return handover_each_taker(&takers, [](void* to, int number, int pid) {
    auto* t = static_cast<Takers*>(to);
    return (!t->memory && !ipc_offers_event(number)) ||
           t->one(t->context, {DeviceShare::kGave, pid, static_cast<uint32_t>(number)});
  });
}

bool find_opened(uint64_t address, uint64_t* begin, uint64_t* size) {
  MutexLock guard(all().lock);
  for (const Opened& o : all().opened) {
    if (address - o.address >= o.ticket.size) continue;
    *begin = o.address;
    *size = o.ticket.size;
    return true;
  }
  return false;
}

namespace {

bool known_opened(CUdeviceptr address, uint32_t magic) {
  MutexLock guard(all().lock);
  for (const Opened& o : all().opened)
    if (o.address == address && o.ticket.magic == magic) return true;
  return false;
}

// Once for each time that it was opened.
void close_opened(CUdeviceptr address) {
  MutexLock guard(all().lock);
  for (size_t i = 0; i < all().opened.size(); ++i) {
    Opened& o = all().opened[i];
    if (o.address != address) continue;
    if (--o.users) return;
    real().cuMemUnmap(o.base, o.ticket.bytes());
    real().cuMemAddressFree(o.base, o.ticket.bytes());
    return all().opened.swap_remove(i);
  }
}

}  // namespace

bool ipc_from_pool(CUdeviceptr address) { return only && known_opened(address, kPoolMagic); }
void ipc_free_from_pool(CUdeviceptr address) { close_opened(address); }

void ipc_forget_chunk(uint64_t begin) {
  MutexLock guard(all().lock);
  for (size_t i = 0; i < all().exports.size(); ++i) {
    const Export e = all().exports[i];
    if (e.chunk != begin) continue;
    handover_withdraw(e.offer);
    ipc_close_descriptor(e.fd);
    return all().exports.swap_remove(i);
  }
}

void ipc_restart() { handover_forget(); }

bool ipc_offer_again(DeviceReport* report) {
  for (size_t i = 0; i < all().exports.size(); ++i) {
    Export& e = all().exports[i];
    const int device = device_holding(e.chunk);
    DeviceMemory* memory = device_memory(device);
    Chunk* chunk = memory ? memory->arena.chunk_at(e.chunk) : nullptr;
    WithContext with(any_context(device));
    CUresult result = chunk ? export_chunk(chunk, &e.fd) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
      return report->fail(
          kExitIncompatible,
          "memory at 0x%lx, handed to other processes (cuIpcGetMemHandle), cannot be "
          "exported again (%d)",
          e.chunk, static_cast<int>(result));
    handover_offer_again(e.offer, e.fd);
  }
  return true;
}

bool rebuild_opened(DeviceReport* report) {
  for (Opened& o : all().opened) {
    CUdeviceptr place = 0;
    CUresult result = real().cuMemAddressReserve(&place, o.ticket.bytes(), kBlockBytes, o.base, 0);
    if (result == CUDA_SUCCESS && place == o.base) continue;
    if (result == CUDA_SUCCESS) real().cuMemAddressFree(place, o.ticket.bytes());
    return report->fail(kExitIncompatible,
                        "the address range 0x%lx-0x%lx that memory of another process was at "
                        "(cuIpcOpenMemHandle) cannot be reserved here",
                        o.base, o.base + o.ticket.bytes());
  }
  for (Opened& o : all().opened) {
    WithContext with(any_context(o.device));
    int fds[2] = {-1, -1};
    const Ticket& t = o.ticket;
    const long why = fetch_chunks(t, fds, [&](uint32_t offer) {
      return handover_fetch(t.pid, t.identity, static_cast<int>(offer), kIpcRestorePatienceUs);
    });
    CUresult result = why ? CUDA_ERROR_MAP_FAILED : map_ticket(fds, o.ticket, o.device, o.base);
    close_chunks(fds);
    if (result != CUDA_SUCCESS)
      return report->fail(
          kExitIncompatible,
          "memory of process %d at 0x%lx (cuIpcOpenMemHandle) cannot be opened again (error "
          "%ld, of the driver %d)",
          o.ticket.pid, o.address, -why, static_cast<int>(result));
  }
  return true;
}

bool ipc_await_owners(DeviceReport* report) {
  struct Wait {
    DeviceReport* report;
    Vector<int> there;
  } wait{report, {}};
  return ipc_shares(&wait, [](void* context, const DeviceShare& share) {
    Wait* w = static_cast<Wait*>(context);
    if (share.kind != DeviceShare::kTook) return true;
    for (size_t i = 0; i < w->there.size(); ++i)
      if (w->there[i] == share.pid) return true;
    if (!handover_await(share.pid, kIpcRestorePatienceUs))
      return w->report->fail(kExitIncompatible,
                             "process %d does not bring back the device memory that it shares",
                             share.pid);
    return w->there.push(share.pid) || w->report->fail(kExitError, "no host memory");
  });
}

}  // namespace device

using namespace device;

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  const int device = device_holding(dptr);
  if (!pHandle || device < 0) {
    CUresult result = real().cuIpcGetMemHandle(pHandle, dptr);
    if (result == CUDA_SUCCESS)
      registry().refuse("cuIpcGetMemHandle: memory shared with another process");
    return result;
  }
  Ticket ticket;
  CUresult result = make_ticket(device, dptr, kMagic, &ticket);
  if (result == CUDA_SUCCESS) __builtin_memcpy(pHandle, &ticket, sizeof ticket);
  return result;
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int flags) {
  if (is_ours(handle)) return open_handle(pdptr, handle, flags);
  CUresult result = real().cuIpcOpenMemHandle_v2(pdptr, handle, flags);
  if (result == CUDA_SUCCESS) registry().refuse("cuIpcOpenMemHandle: memory of another process");
  return result;
}
CUresult hook_cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int flags) {
  if (is_ours(handle)) return open_handle(pdptr, handle, flags);
  CUresult result = real().cuIpcOpenMemHandle(pdptr, handle, flags);
  if (result == CUDA_SUCCESS) registry().refuse("cuIpcOpenMemHandle: memory of another process");
  return result;
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr) {
  if (!known_opened(dptr, kMagic)) return real().cuIpcCloseMemHandle(dptr);
  CUresult result = wait_idle(current_context_name());
  close_opened(dptr);
  return result;
}

CUresult hook_cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  const int device = device_holding(ptr);
  if (!shareData_out || device < 0) return CUDA_ERROR_INVALID_VALUE;
  Ticket ticket;
  CUresult result = make_ticket(device, ptr, kPoolMagic, &ticket);
  if (result == CUDA_SUCCESS) __builtin_memcpy(shareData_out, &ticket, sizeof ticket);
  return result;
}

CUresult hook_cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                     CUmemPoolPtrExportData* shareData) {
  Ticket t;
  if (!ptr_out || !shareData || !is_imported_pool(pool)) return CUDA_ERROR_INVALID_VALUE;
  __builtin_memcpy(&t, shareData, sizeof t);
  return t.magic == kPoolMagic ? open_once(ptr_out, t) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpuckpt
