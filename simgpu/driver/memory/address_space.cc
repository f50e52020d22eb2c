#include "driver/memory/address_space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/base/state.h"
#include "driver/context/context.h"
#include "driver/context/device.h"
#include "driver/stream/stream.h"

namespace simgpu {
namespace {

class ReadLock {
 public:
  explicit ReadLock(pthread_rwlock_t& l) : l_(l) { pthread_rwlock_rdlock(&l_); }
  ~ReadLock() { pthread_rwlock_unlock(&l_); }

 private:
  pthread_rwlock_t& l_;
};
class WriteLock {
 public:
  explicit WriteLock(pthread_rwlock_t& l) : l_(l) { pthread_rwlock_wrlock(&l_); }
  ~WriteLock() { pthread_rwlock_unlock(&l_); }

 private:
  pthread_rwlock_t& l_;
};

// A random address below the kernel's own choices. It is only a hint to mmap: an existing mapping
// stays.
void* somewhere() {
  static std::atomic<uint64_t> anchor{0};
  uint64_t a = anchor.load();
  if (a == 0) {
    void* p = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    munmap(p, kPage);
    a = round_down(reinterpret_cast<uint64_t>(p), kBigPage);
    anchor.store(a);
  }
  uint64_t below = 64 * kGiB / kBigPage;
  return reinterpret_cast<void*>(a - (1 + state()->random_below(below)) * kBigPage);
}

// Exportable memory, found by its file: memory of this process that it imports again is charged
// once, memory of another process is not charged.
struct Exportable {
  uint64_t file;
  int users;
  bool charged;
};
Mutex exportable_mutex;
std::vector<Exportable>& exportables() {
  static std::vector<Exportable> all;
  return all;
}

void use_file(uint64_t file, bool charged) {
  Lock lock(exportable_mutex);
  for (Exportable& e : exportables()) {
    if (e.file != file) continue;
    ++e.users;
    return;
  }
  exportables().push_back({file, 1, charged});
}
// Returns true if that was the last user and the memory had been charged.
bool leave_file(uint64_t file) {
  Lock lock(exportable_mutex);
  auto& all = exportables();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].file != file) continue;
    if (--all[i].users > 0) return false;
    const bool charged = all[i].charged;
    all.erase(all.begin() + static_cast<long>(i));
    return charged;
  }
  return true;
}
uint64_t file_of(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

void* map_somewhere(uint64_t size, int fd) {
  int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* p = mmap(somewhere(), size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
  return p == MAP_FAILED ? nullptr : p;
}

Ref<Backing> Backing::create(Device* device, uint64_t size, bool shareable) {
  if (device && !device->charge(size)) return {};
  device_ioctl();
  auto b = Ref<Backing>::adopt(new Backing);
  b->device = device;
  b->size = size;
  b->shareable = shareable;
  b->host = static_cast<uint8_t*>(map_somewhere(size, -1));
  if (!b->host) return {};
  return b;
}

namespace {

// Pages of zeros stay holes in the file.
bool write_contents(int fd, const uint8_t* from, uint64_t size) {
  static const uint8_t zeros[kPage] = {};
  for (uint64_t at = 0; at < size; at += kPage) {
    const uint64_t n = size - at < kPage ? size - at : kPage;
    if (memcmp(from + at, zeros, n) != 0 &&
        pwrite(fd, from + at, n, static_cast<off_t>(at)) != static_cast<ssize_t>(n))
      return false;
  }
  return true;
}

Mutex share_mutex;
constexpr int kHighDescriptor =
    500;  // memory of a real GPU takes none of the program's low numbers

// The name of such a file says on which device the memory is.
constexpr char kFileName[] = "simgpu-memory-";
constexpr char kLinkName[] = "/memfd:simgpu-memory-";
struct FileName {
  char text[64];
  explicit FileName(const Device* d) {
    int n = snprintf(text, sizeof text, "%s", kFileName);
    for (size_t i = 0; d && i < sizeof d->uuid.bytes; ++i)
      n += snprintf(text + n, sizeof text - static_cast<size_t>(n), "%02x",
                    static_cast<unsigned char>(d->uuid.bytes[i]));
  }
};
Device* device_named(const char* link) {
  for (int i = 0; Device* d = device_of(i); ++i) {
    const FileName its(d);
    if (strncmp(link + sizeof "/memfd:" - 1, its.text, strlen(its.text)) == 0) return d;
  }
  return nullptr;
}

}  // namespace

bool Backing::share() {
  Lock one(share_mutex);
  if (fd >= 0) return true;
  MemoryPause pause;
  if (!pause) return false;
  int made = memfd_create(FileName(device).text, MFD_CLOEXEC);
  if (made < 0) return false;
  if (ftruncate(made, static_cast<off_t>(size)) != 0 || !write_contents(made, host, size) ||
      mmap(host, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, made, 0) ==
          MAP_FAILED) {
    close(made);
    return false;
  }
  file = file_of(made);
  use_file(file, true);
  fd = fcntl(made, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (fd >= 0)
    close(made);
  else
    fd = made;
  return true;
}

Ref<Backing> Backing::import_fd(int fd) {
  struct stat st;
  char name[128], link[64];
  if (fstat(fd, &st) != 0 || st.st_size <= 0) return {};
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, name, sizeof name - 1);
  if (n <= 0) return {};
  name[n] = 0;
  if (strncmp(name, kLinkName, sizeof kLinkName - 1) != 0) return {};
  Device* device = device_named(name);
  if (!device) return {};
  auto b = Ref<Backing>::adopt(new Backing);
  b->size = static_cast<uint64_t>(st.st_size);
  use_file(st.st_ino, false);
  b->file = st.st_ino;
  b->shareable = true;
  b->device = device;
  b->fd = fcntl(fd, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (b->fd < 0) return {};
  b->host = static_cast<uint8_t*>(map_somewhere(b->size, b->fd));
  if (!b->host) return {};
  return b;
}

Backing::~Backing() {
  if (host) munmap(host, size);
  if (fd >= 0) close(fd);
  if (file != 0 && !leave_file(file)) return;
  if (device) device->discharge(size);
}

uint64_t AddressSpace::reserve(uint64_t size, uint64_t align, uint64_t hint) {
  size = round_up(size, kPage);
  if (align < kPage) align = kPage;
  void* p = MAP_FAILED;
  if (hint != 0 && hint % align == 0 && !state()->options.ignore_hints) {
    p = mmap(reinterpret_cast<void*>(hint), size, PROT_NONE, kReserveFlags | MAP_FIXED_NOREPLACE,
             -1, 0);
    if (p != MAP_FAILED &&
        reinterpret_cast<uint64_t>(p) != hint) {  // a kernel that does not know the flag
      munmap(p, size);
      p = MAP_FAILED;
    }
  }
  if (p == MAP_FAILED) {
    uint64_t extra = align > kPage ? align : 0;
    p = mmap(somewhere(), size + extra, PROT_NONE, kReserveFlags, -1, 0);
    if (p == MAP_FAILED) return 0;
    auto at = reinterpret_cast<uint64_t>(p);
    uint64_t base = round_up(at, align), end = at + size + extra;
    if (base > at) munmap(p, base - at);
    if (end > base + size) munmap(reinterpret_cast<void*>(base + size), end - base - size);
    p = reinterpret_cast<void*>(base);
  }
  auto base = reinterpret_cast<uint64_t>(p);
  WriteLock lock(lock_);
  reservations_[base] = base + size;
  return base;
}

void AddressSpace::unreserve(uint64_t base) {
  uint64_t size = 0;
  {
    WriteLock lock(lock_);
    auto it = reservations_.find(base);
    if (it == reservations_.end()) return;
    size = it->second - base;
    reservations_.erase(it);
  }
  munmap(reinterpret_cast<void*>(base), size);
}

bool AddressSpace::reserved(uint64_t address, uint64_t* begin, uint64_t* end) {
  ReadLock lock(lock_);
  auto it = reservations_.upper_bound(address);
  if (it == reservations_.begin()) return false;
  --it;
  if (address >= it->second) return false;
  if (begin) *begin = it->first;
  if (end) *end = it->second;
  return true;
}

void AddressSpace::changed() {
  for (ptx::Memory* m : watchers_) m->epoch.fetch_add(1, std::memory_order_release);
}

void AddressSpace::watch(ptx::Memory* m) {
  WriteLock lock(lock_);
  watchers_.push_back(m);
}

void AddressSpace::unwatch(ptx::Memory* m) {
  WriteLock lock(lock_);
  for (auto it = watchers_.begin(); it != watchers_.end(); ++it) {
    if (*it == m) {
      watchers_.erase(it);
      return;
    }
  }
}

Mapping* AddressSpace::find_mapping(uint64_t address) {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return nullptr;
  --it;
  return address < it->second.end ? &it->second : nullptr;
}

Allocation* AddressSpace::find_allocation(uint64_t address) {
  auto it = allocations_.upper_bound(address);
  if (it == allocations_.begin()) return nullptr;
  --it;
  return address < it->second.base + it->second.size ? &it->second : nullptr;
}

void AddressSpace::map(Mapping m) {
  WriteLock lock(lock_);
  uint64_t begin = m.begin;
  mappings_[begin] = std::move(m);
  changed();
}

bool AddressSpace::unmap(uint64_t begin, uint64_t end) {
  std::vector<Ref<Backing>> gone;  // released after the lock
  {
    WriteLock lock(lock_);
    uint64_t at = begin;
    auto first = mappings_.find(begin), it = first;
    while (it != mappings_.end() && it->first == at && at < end) {
      at = it->second.end;
      ++it;
    }
    if (at != end) return false;
    for (auto i = first; i != it; ++i) {
      Mapping& m = i->second;
      if (m.by_access)
        mmap(reinterpret_cast<void*>(m.begin), m.end - m.begin, PROT_NONE,
             kReserveFlags | MAP_FIXED, -1, 0);
      gone.push_back(std::move(m.backing));
    }
    mappings_.erase(first, it);
    changed();
  }
  for (auto& b : gone)
    if (b) retire(Ref<RefCounted>(b.get()));
  return true;
}

bool AddressSpace::covered(uint64_t begin, uint64_t end) {
  ReadLock lock(lock_);
  for (uint64_t at = begin; at < end;) {
    Mapping* m = find_mapping(at);
    if (!m) return false;
    at = m->end;
  }
  return true;
}

bool AddressSpace::overlaps(uint64_t begin, uint64_t end) {
  ReadLock lock(lock_);
  auto it = mappings_.lower_bound(begin);
  if (it != mappings_.end() && it->first < end) return true;
  return find_mapping(begin) != nullptr;
}

bool AddressSpace::set_access(uint64_t begin, uint64_t end, int device, bool read, bool write) {
  WriteLock lock(lock_);
  for (uint64_t at = begin; at < end;) {
    Mapping* m = find_mapping(at);
    if (!m || m->begin < begin || m->end > end) return false;
    at = m->end;
  }
  uint32_t bit = 1u << device;
  for (uint64_t at = begin; at < end;) {
    Mapping* m = find_mapping(at);
    m->readable = read ? m->readable | bit : m->readable & ~bit;
    m->writable = write ? m->writable | bit : m->writable & ~bit;
    at = m->end;
  }
  changed();
  return true;
}

bool AddressSpace::set_host_access(uint64_t begin, uint64_t end, bool read, bool write) {
  WriteLock lock(lock_);
  for (uint64_t at = begin; at < end;) {
    Mapping* m = find_mapping(at);
    if (!m || m->begin < begin || m->end > end || !m->by_access) return false;
    at = m->end;
  }
  const int prot = write ? PROT_READ | PROT_WRITE : read ? PROT_READ : PROT_NONE;
  for (uint64_t at = begin; at < end;) {
    Mapping* m = find_mapping(at);
    if (mmap(reinterpret_cast<void*>(m->begin), m->end - m->begin, prot,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, m->backing->fd, 0) == MAP_FAILED)
      return false;
    at = m->end;
  }
  return true;
}

void AddressSpace::grant(uint64_t address, int device, bool on) {
  WriteLock lock(lock_);
  Mapping* m = find_mapping(address);
  if (!m) return;
  const uint32_t bit = 1u << device;
  m->readable = on ? m->readable | bit : m->readable & ~bit;
  m->writable = on ? m->writable | bit : m->writable & ~bit;
  changed();
}

bool AddressSpace::mapping(uint64_t address, Mapping* out) {
  ReadLock lock(lock_);
  Mapping* m = find_mapping(address);
  if (m) *out = *m;
  return m != nullptr;
}

void AddressSpace::add(const Allocation& a) {
  WriteLock lock(lock_);
  allocations_[a.base] = a;
}

bool AddressSpace::remove(uint64_t base, Allocation* out) {
  WriteLock lock(lock_);
  auto it = allocations_.find(base);
  if (it == allocations_.end()) return false;
  if (out) *out = it->second;
  allocations_.erase(it);
  return true;
}

bool AddressSpace::allocation(uint64_t address, Allocation* out) {
  ReadLock lock(lock_);
  Allocation* a = find_allocation(address);
  if (a) *out = *a;
  return a != nullptr;
}

bool AddressSpace::allocation_at(uint64_t base, Allocation* out) {
  ReadLock lock(lock_);
  auto it = allocations_.find(base);
  if (it == allocations_.end()) return false;
  *out = it->second;
  return true;
}

bool AddressSpace::allocation_overlaps(uint64_t begin, uint64_t end, Allocation* out) {
  ReadLock lock(lock_);
  Allocation* a = find_allocation(begin);
  if (!a) {
    auto it = allocations_.lower_bound(begin);
    if (it != allocations_.end() && it->first < end) a = &it->second;
  }
  if (a) *out = *a;
  return a != nullptr;
}

std::vector<Allocation> AddressSpace::of_context(uint64_t context) {
  ReadLock lock(lock_);
  std::vector<Allocation> all;
  for (auto& [base, a] : allocations_)
    if (a.context == context) all.push_back(a);
  return all;
}

AddressSpace::Place AddressSpace::classify(uint64_t address, uint64_t length) {
  ReadLock lock(lock_);
  if (length == 0) length = 1;
  uint64_t end = address + length;
  if (end < address) return Place::kBad;
  Allocation* a = find_allocation(address);
  if (!a) {
    auto it = reservations_.upper_bound(address);
    if (it != reservations_.begin() && address < std::prev(it)->second) return Place::kBad;
    if (it != reservations_.end() && it->first < end) return Place::kBad;
    return Place::kPageable;
  }
  bool host = a->type == MemoryType::kPinned || a->type == MemoryType::kRegistered;
  bool managed = a->type == MemoryType::kManaged;
  if (!host && !managed) {
    // One allocation, except that neighbouring cuMemMaps count as one.
    uint64_t at = a->base + a->size;
    while (at < end && a->type == MemoryType::kVirtual) {
      a = find_allocation(at);
      if (!a || a->type != MemoryType::kVirtual) return Place::kBad;
      at = a->base + a->size;
    }
    if (at < end) return Place::kBad;
    for (at = address; at < end;) {
      Mapping* m = find_mapping(at);
      if (!m) return Place::kBad;
      at = m->end;
    }
    return Place::kDevice;
  }
  if (end > a->base + a->size) return Place::kPageable;
  return managed ? Place::kManaged : Place::kHost;
}

bool AddressSpace::pin(const Context& c, uint64_t address, uint64_t length, bool write,
                       Piece* out) {
  ReadLock lock(lock_);
  Mapping* m = find_mapping(address);
  if (!m) {
    auto it = reservations_.upper_bound(address);
    if (it != reservations_.begin() && address < std::prev(it)->second) return false;
    out->host = reinterpret_cast<uint8_t*>(address);
    out->length = length;
    auto next = mappings_.lower_bound(address);
    if (next != mappings_.end() && next->first - address < length)
      out->length = next->first - address;
    out->backing = {};
    out->on_device = false;
    return true;
  }
  uint32_t own = m->device >= 0 ? 1u << m->device : 0;
  uint32_t mask = write ? m->writable : m->readable;
  if (!c.reaches(*m, write) && !m->peer && (mask & own) == 0) return false;
  out->host = m->host + (address - m->begin);
  out->length = m->end - address < length ? m->end - address : length;
  out->backing = m->backing;
  out->on_device = m->device >= 0;
  return true;
}

bool AddressSpace::find(const Context& c, uint64_t address, ptx::Segment* out) {
  ReadLock lock(lock_);
  Mapping* m = find_mapping(address);
  if (!m || !c.reaches(*m, false)) return false;
  out->begin = m->begin;
  out->end = m->end;
  out->host = m->host;
  out->writable = c.reaches(*m, true);
  return true;
}

}  // namespace simgpu
