// Memory and events of another process of this machine: cuIpc*, and memory of shared pools. A
// handle names the owning process and its descriptor; the process that opens it maps the same file.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/memory/memory.h"
#include "driver/memory/pool.h"
#include "driver/stream/stream.h"

namespace simgpu {
namespace {

constexpr int kHighDescriptor = 500;  // out of the way of the program's numbers
constexpr uint64_t kMagic = 0x6d656d2d75677073ull;
constexpr uint64_t kPoolMagic = 0x6c6f6f702d756773ull;  // of a pool, or of memory from one

struct Ticket {
  uint64_t magic;
  int32_t pid, fd;
  uint64_t file;          // inode of the descriptor
  uint64_t offset, size;  // of the allocation within it
  CUuuid device;
};
static_assert(sizeof(Ticket) <= CU_IPC_HANDLE_SIZE);

struct Opened {
  uint64_t address;  // of the allocation
  uint64_t base, bytes;
  Ticket ticket;
  int users;
};
Mutex mutex;
std::vector<Opened>& opened() {
  static std::vector<Opened> all;
  return all;
}

Device* device_with(const CUuuid& uuid) {
  for (int i = 0; Device* d = device_of(i); ++i)
    if (memcmp(&d->uuid, &uuid, sizeof uuid) == 0) return d;
  return nullptr;
}

CUresult make_ticket(Ticket* t, CUdeviceptr address, uint64_t magic) {
  AddressSpace& space = state()->memory;
  Allocation a;
  Mapping m;
  if (!space.allocation(address, &a) || a.type != MemoryType::kDevice || a.variable || a.graph ||
      a.imported || !space.mapping(a.base, &m) || !m.backing)
    return CUDA_ERROR_INVALID_VALUE;
  const auto* pool = static_cast<const Pool*>(a.pool);
  if (magic == kMagic ? pool != nullptr : !pool || !pool->exportable)
    return CUDA_ERROR_INVALID_VALUE;
  if (!m.backing->share()) return CUDA_ERROR_OPERATING_SYSTEM;
  *t = Ticket{
      magic,  static_cast<int32_t>(getpid()), m.backing->fd, m.backing->file, a.base - m.begin,
      a.size, m.backing->device->uuid};
  return CUDA_SUCCESS;
}

// A process that is just dropping privileges cannot be opened by others for a moment: try again.
int open_patiently(const char* path) {
  constexpr int kTries = 400;
  for (int tries = 0;; ++tries) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 || errno != EACCES || tries == kTries) return fd;
    usleep(5000);
  }
}

// The descriptor in another process, if it still refers to that file; -1.
int fetch(int pid, int fd, uint64_t file) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  int mine = open_patiently(path);
  struct stat st;
  if (mine >= 0 && (fstat(mine, &st) != 0 || st.st_ino != file)) {
    close(mine);
    mine = -1;
  }
  return mine;
}

Ref<Backing> fetch_memory(const Ticket& t) {
  const int fd = fetch(t.pid, t.fd, t.file);
  Ref<Backing> b;
  if (fd >= 0) {
    b = Backing::import_fd(fd);
    close(fd);
  }
  return b;
}

CUresult open_ticket(CUdeviceptr* out, const Ticket& t, const Ref<Context>& c) {
  Device* device = device_with(t.device);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  Ref<Backing> b = fetch_memory(t);
  if (!b || t.offset + t.size > b->size) return CUDA_ERROR_MAP_FAILED;
  AddressSpace& space = state()->memory;
  uint64_t base = space.reserve(b->size, kBigPage, 0);
  if (base == 0) return CUDA_ERROR_MAP_FAILED;
  const uint64_t bytes = b->size;
  Mapping m;
  m.begin = base;
  m.end = base + bytes;
  m.host = b->host;
  m.backing = b;
  m.device = device->ordinal;
  m.peer = true;
  // Its own device, and the one that it is opened on.
  m.readable = m.writable = 1u << device->ordinal | 1u << c->device->ordinal;
  space.map(std::move(m));
  Allocation a;
  a.base = base + t.offset;
  a.size = t.size;
  a.block = base;
  a.block_bytes = bytes;
  a.id = fresh_id();
  a.device = device->ordinal;
  a.context = c->id;
  a.context_handle = c->handle();
  a.imported = t.magic == kPoolMagic;
  a.variable = !a.imported;  // not for cuMemFree
  space.add(a);
  opened().push_back({a.base, base, bytes, t, 1});
  *out = a.base;
  return CUDA_SUCCESS;
}

void allow_free(uint64_t address) {
  state()->memory.update(address, [](Allocation& a) { a.freeing = false; });
}

CUresult open_once(CUdeviceptr* out, const Ticket& t, const Ref<Context>& c) {
  Lock lock(mutex);
  for (Opened& o : opened()) {
    if (memcmp(&o.ticket, &t, sizeof t) != 0) continue;
    ++o.users;
    allow_free(o.address);  // a pending cuMemFreeAsync of another thread frees it
    *out = o.address;
    return CUDA_SUCCESS;
  }
  return open_ticket(out, t, c);
}

void close_opened(size_t i) {
  AddressSpace& space = state()->memory;
  const Opened& o = opened()[i];
  space.unmap(o.base, o.base + o.bytes);
  space.unreserve(o.base);
  opened().erase(opened().begin() + static_cast<long>(i));
}

// What the descriptor of a pool holds.
struct PoolFile {
  uint64_t magic;
  CUuuid device;
};

Ref<Pool> pool_at(CUmemoryPool handle) { return state()->handles.get<Pool>(handle); }

constexpr uint64_t kEventMagic = 0x746e65762d756773ull;
struct EventTicket {
  uint64_t magic;
  int32_t pid, fd;
  uint64_t file;
};
static_assert(sizeof(EventTicket) <= CU_IPC_HANDLE_SIZE);

uint64_t inode_of(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

}  // namespace

// Memory that is open several times stays mapped until its last user frees it: another thread may
// be copying from it at any moment.
void free_imported(const Allocation& a) {
  Lock lock(mutex);
  for (size_t i = 0; i < opened().size(); ++i) {
    if (opened()[i].address != a.base) continue;
    if (--opened()[i].users > 0) return allow_free(a.base);
    state()->memory.remove(a.base, nullptr);
    return close_opened(i);
  }
}

Ref<SharedEvent> SharedEvent::create() {
  int fd = memfd_create("simgpu-event", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kPage) != 0) {
    if (fd >= 0) close(fd);
    return {};
  }
  int high = fcntl(fd, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (high >= 0) close(fd);
  return import_fd(high >= 0 ? high : fd);
}

Ref<SharedEvent> SharedEvent::import_fd(int fd) {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) {
    close(fd);
    return {};
  }
  auto e = Ref<SharedEvent>::adopt(new SharedEvent);
  e->page_ = static_cast<Page*>(page);
  e->fd_ = fd;
  return e;
}

SharedEvent::~SharedEvent() {
  if (page_) munmap(page_, kPage);
  if (fd_ >= 0) close(fd_);
}

void SharedEvent::reach(uint64_t number) {
  uint64_t before = page_->reached.load();
  while (before < number && !page_->reached.compare_exchange_weak(before, number)) {
  }
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event) {
  ENTER(cuIpcGetEventHandle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ref<Event> e = state()->handles.get<Event>(event);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  if (!e->shared) return CUDA_ERROR_INVALID_VALUE;
  EventTicket t = {kEventMagic, static_cast<int32_t>(getpid()), e->shared->fd(),
                   inode_of(e->shared->fd())};
  memset(out, 0, sizeof *out);
  memcpy(out, &t, sizeof t);
  return CUDA_SUCCESS;
}

SIMGPU_API cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle handle) {
  ENTER(cuIpcOpenEventHandle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  EventTicket t;
  memcpy(&t, &handle, sizeof t);
  if (t.magic != kEventMagic) return CUDA_ERROR_INVALID_VALUE;
  if (t.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const int fd = fetch(t.pid, t.fd, t.file);
  Ref<SharedEvent> shared;
  if (fd >= 0) shared = SharedEvent::import_fd(fd);
  if (!shared) return CUDA_ERROR_MAP_FAILED;
  auto* e = new Event(c, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  e->shared = std::move(shared);
  state()->handles.add(e);
  *out = reinterpret_cast<CUevent>(e);
  return CUDA_SUCCESS;
}

SIMGPU_API cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  ENTER(cuIpcGetMemHandle);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  Ticket t;
  if (CUresult r = make_ticket(&t, address, kMagic); r != CUDA_SUCCESS) return r;
  memset(out, 0, sizeof *out);
  memcpy(out, &t, sizeof t);
  return CUDA_SUCCESS;
}

SIMGPU_API cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  ENTER(cuIpcOpenMemHandle_v2);
  if (!out || flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  CURRENT(c);
  Ticket t;
  memcpy(&t, &handle, sizeof t);
  if (t.magic != kMagic) return CUDA_ERROR_INVALID_VALUE;
  if (t.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // as documented
  return open_once(out, t, c);
}
SIMGPU_API cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(out, handle, flags);
}

SIMGPU_API cuIpcCloseMemHandle(CUdeviceptr address) {
  ENTER(cuIpcCloseMemHandle);
  CURRENT(c);
  Lock lock(mutex);
  auto& all = opened();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].address != address || all[i].ticket.magic != kMagic) continue;
    if (--all[i].users > 0) return CUDA_SUCCESS;
    state()->memory.remove(address, nullptr);
    close_opened(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

SIMGPU_API cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  ENTER(cuMemPoolExportToShareableHandle);
  Ref<Pool> p = pool_at(handle);
  if (!out || !p || !p->exportable || flags != 0 ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  const PoolFile file = {kPoolMagic, p->device->uuid};
  int fd = memfd_create("simgpu-pool", MFD_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (pwrite(fd, &file, sizeof file, 0) != sizeof file) {
    close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(out) = fd;
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* handle,
                                              CUmemAllocationHandleType type,
                                              unsigned long long flags) {
  ENTER(cuMemPoolImportFromShareableHandle);
  PoolFile file;
  if (!out || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      pread(static_cast<int>(reinterpret_cast<intptr_t>(handle)), &file, sizeof file, 0) !=
          sizeof file ||
      file.magic != kPoolMagic)
    return CUDA_ERROR_INVALID_VALUE;
  Device* d = device_with(file.device);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  auto* p = new Pool(d, false);
  p->imported = true;
  state()->handles.add(p);
  *out = reinterpret_cast<CUmemoryPool>(p);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  ENTER(cuMemPoolExportPointer);
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Ticket t;
  if (CUresult r = make_ticket(&t, address, kPoolMagic); r != CUDA_SUCCESS) return r;
  static_assert(sizeof t <= sizeof *out);
  memset(out, 0, sizeof *out);
  memcpy(out, &t, sizeof t);
  return CUDA_SUCCESS;
}

SIMGPU_API cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool handle,
                                  CUmemPoolPtrExportData* data) {
  ENTER(cuMemPoolImportPointer);
  CURRENT(c);
  Ref<Pool> p = pool_at(handle);
  if (!out || !data || !p || !p->imported) return CUDA_ERROR_INVALID_VALUE;
  Ticket t;
  memcpy(&t, data, sizeof t);
  if (t.magic != kPoolMagic) return CUDA_ERROR_INVALID_VALUE;
  return open_once(out, t, c);
}
