#include "device/vmm.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "common/proc.h"
#include "common/syscall.h"
#include "device/capture.h"
#include "device/vmm_records.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

Vmm* known;  // null: no such call yet

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUresult set_access(uint64_t address, uint64_t size, int device, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = flags;
  return real().cuMemSetAccess(address, size, &access, 1);
}

int owner_of(const Physical* memory) { return memory->properties.location.id; }

CUresult show(Physical* memory, CUmemGenericAllocationHandle handle) {
  CUresult result = real().cuMemMap(memory->shown, memory->size, 0, handle, 0);
  if (result != CUDA_SUCCESS) return result;
  result =
      set_access(memory->shown, memory->size, owner_of(memory), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (result == CUDA_SUCCESS)
    memory->showing = true;
  else
    real().cuMemUnmap(memory->shown, memory->size);
  return result;
}

CUresult show(Physical* memory) {
  CUresult result = CUDA_SUCCESS;
  if (!memory->shown) {
    CUdeviceptr place = 0;
    result = real().cuMemAddressReserve(&place, memory->size, 0, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    memory->shown = place;
  }
  if (memory->handle)
    return show(memory, real_of<CUmemGenericAllocationHandle>(Kind::kMemHandle, memory->handle));
  CUmemGenericAllocationHandle handle = 0;  // released, and mapped in part
  result = real().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(memory->mapped_at));
  if (result != CUDA_SUCCESS) return result;
  result = show(memory, handle);
  real().cuMemRelease(handle);
  return result;
}

void hide(Physical* memory) {
  if (memory->showing) real().cuMemUnmap(memory->shown, memory->size);
  memory->showing = false;
}

// KCMP_FILE. Containers may forbid it.
long compare_files(int a, int b) {
  const int self = sys::getpid();
  return sys::call(SYS_kcmp, self, self, 0, a, b);
}
bool can_compare() {
  const int fd = sys::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool can = compare_files(fd, fd) == 0;
  sys::close(fd);
  return can;
}

bool note(void*, int fd) {
  Vmm& all = vmm();
  Physical* memory = realm_owns_fd(fd) ? nullptr : all.identify(fd, &all.doubtful);
  if (!memory) return true;
  if (all.shared_count == Vmm::kMostShared) return false;
  long flags = sys::call(SYS_fcntl, fd, F_GETFD);
  all.shared[all.shared_count++] = {memory, fd, static_cast<int>(flags)};
  return true;
}

void note_descriptors() {
  if (!known) return;
  known->shared_count = 0;
  known->doubtful = false;
  if (!known->exported.empty()) each_number_in("/proc/thread-self/fd", nullptr, note);
}

bool is_open(const Physical* memory) {
  for (uint32_t i = 0; i < vmm().shared_count; ++i)
    if (vmm().shared[i].memory == memory) return true;
  return false;
}

bool held(const Physical* memory) { return memory->handles || memory->mappings; }

void forget_descriptors(const Physical* memory) {
  Vmm& all = vmm();
  for (size_t i = all.exported.size(); i-- && memory->exported > 1;)
    if (all.exported[i].memory == memory) all.forget_exported(i);
  for (size_t i = 0; i < all.exported.size(); ++i)
    if (all.exported[i].memory == memory) return all.forget_exported(i);  // may be the end of it
}

// Of memory that was exported: closed everywhere and held by nothing else, it is gone. Closed and
// never imported here, it went to somebody else.
const char* exported_refusal() {
  Vmm& all = vmm();
  note_descriptors();
  if (all.shared_count == Vmm::kMostShared)
    return "cuMemExportToShareableHandle: too many descriptors for memory are open";
  const char* doubt =
      "cuMemExportToShareableHandle: a descriptor that cannot be told from the driver's";
  if (all.doubtful && !can_compare()) return doubt;
  const char* why = nullptr;
  for (Physical *memory = all.first, *next; memory; memory = next) {
    next = memory->next;
    if (!memory->shared) continue;
    const bool open = memory->open = is_open(memory);
    if (open && !held(memory))
      why = "cuMemExportToShareableHandle: memory that only a descriptor holds";
    else if (!open && held(memory) && !memory->imported)
      why = "cuMemExportToShareableHandle: memory shared with another process";
    else if (!open && held(memory) && all.doubtful)
      why = doubt;
    else if (!open && !held(memory))
      forget_descriptors(memory);
  }
  return why;
}

// ---- the way back ----

bool take_range(uint64_t begin, uint64_t size, DeviceReport* report) {
  CUdeviceptr place = 0;
  CUresult result = real().cuMemAddressReserve(&place, size, 0, begin, 0);
  if (result == CUDA_SUCCESS && place == begin) return true;
  if (result == CUDA_SUCCESS) real().cuMemAddressFree(place, size);
  return fail(report, kExitIncompatible,
              "the address range 0x%lx-0x%lx that the program reserved (cuMemAddressReserve) "
              "cannot be had here",
              begin, begin + size);
}

bool create(Physical* memory, DeviceReport* report) {
  memory->showing = false;
  CUresult result = real().cuMemCreate(&memory->replayed, memory->size, &memory->properties, 0);
  return result == CUDA_SUCCESS ||
         fail(report, kExitIncompatible,
              "%lu bytes of device memory (cuMemCreate) cannot be allocated here (%d)",
              memory->size, static_cast<int>(result));
}

// Leaves the owner's access open for the upload.
bool map(Mapped* mapping, DeviceReport* report) {
  CUresult result =
      real().cuMemMap(mapping->begin, mapping->size, mapping->offset, mapping->memory->replayed, 0);
  for (int device = 0; device < kMaxDevices && result == CUDA_SUCCESS; ++device) {
    auto flags = static_cast<CUmemAccess_flags>(mapping->access[device]);
    if (device == owner_of(mapping->memory)) flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (flags) result = set_access(mapping->begin, mapping->size, device, flags);
  }
  return result == CUDA_SUCCESS ||
         fail(report, kExitIncompatible, "memory cannot be mapped at 0x%lx again (%d)",
              mapping->begin, static_cast<int>(result));
}

// The descriptor is nobody's yet: not the driver's, not the program's.
CUresult give_descriptor(Physical* memory, int* fd) {
  CUresult result = real().cuMemExportToShareableHandle(fd, memory->replayed, kDescriptor, 0);
  if (result == CUDA_SUCCESS) realm_disown_fd(*fd);
  return result;
}

// One more handle with a value of its own where there can be one.
CUresult another_handle(Physical* memory, CUmemGenericAllocationHandle* out) {
  if (!(memory->properties.requestedHandleTypes & kDescriptor))
    return real().cuMemRetainAllocationHandle(
        out, reinterpret_cast<void*>(memory->mapped_at ? memory->mapped_at : memory->shown));
  int fd = -1;
  CUresult result = give_descriptor(memory, &fd);
  if (result != CUDA_SUCCESS) return result;
  WithContext with(any_context(owner_of(memory)));
  result = real().cuMemImportFromShareableHandle(
      out, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kDescriptor);
  sys::close(fd);
  return result;
}

bool name_handles(DeviceReport* report) {
  CUresult result = CUDA_SUCCESS;
  vmm().handles.each([&](uint64_t name, MemoryHandle& h) {
    if (result != CUDA_SUCCESS) return;
    CUmemGenericAllocationHandle now = h.memory->replayed;
    if (name != h.memory->handle) result = another_handle(h.memory, &now);
    if (result == CUDA_SUCCESS) bind(Kind::kMemHandle, name, now);
    h.ours = h.references - 1;
  });
  return result == CUDA_SUCCESS || fail(report, kExitIncompatible,
                                        "a handle of memory (cuMemCreate) cannot be had again (%d)",
                                        static_cast<int>(result));
}

bool name_descriptors(DeviceReport* report) {
  Vmm& all = vmm();
  for (const Exported& e : all.exported) e.memory->exported = 0;
  all.exported.clear();
  for (uint32_t i = 0; i < all.shared_count; ++i) {
    const SharedFd& shared = all.shared[i];
    int fd = -1;
    CUresult result = give_descriptor(shared.memory, &fd);
    long placed = -1;
    if (result == CUDA_SUCCESS && !realm_owns_fd(shared.fd)) {
      placed = sys::call(SYS_dup3, fd, shared.fd, shared.flags & FD_CLOEXEC ? O_CLOEXEC : 0);
    }
    if (fd >= 0) sys::close(fd);
    if (placed != shared.fd || !all.add_exported(shared.memory, shared.fd))
      return fail(report, kExitIncompatible,
                  "descriptor %d, a shareable handle of memory, cannot be made again (%d)",
                  shared.fd, static_cast<int>(result));
  }
  return true;
}

}  // namespace

const char* vmm_refusal() {
  Guard guard(vmm().lock);
  for (Physical* memory = vmm().first; memory; memory = memory->next) {
    if (memory->properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
      return "cuMemCreate: physical memory of the host";
    if (memory->properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL)
      return "cuMemCreate: memory for sparse arrays, which no address shows";
  }
  return exported_refusal();
}

void vmm_extents(int device, Vector<VmmExtent>* out) {
  Guard guard(vmm().lock);
  vmm().each_mapping([&](Mapped* mapping) {
    if (owner_of(mapping->memory) == device) out->push({mapping->begin, mapping->size});
  });
  for (Physical* memory = vmm().first; memory; memory = memory->next)
    if (memory->showing && owner_of(memory) == device) out->push({memory->shown, memory->size});
}

uint64_t vmm_bytes() {
  Guard guard(vmm().lock);
  uint64_t bytes = 0;
  for (Physical* memory = vmm().first; memory; memory = memory->next) bytes += memory->size;
  return bytes;
}

bool vmm_unlock(DeviceReport* report) {
  vmm().index();
  vmm().each_mapping([](Mapped* mapping) {
    int owner = owner_of(mapping->memory);
    if (mapping->access[owner] != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      set_access(mapping->begin, mapping->size, owner, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  });
  for (Physical* memory = vmm().first; memory; memory = memory->next) {
    if ((!memory->handle && !memory->mapped_at) || memory->mapped_whole) continue;
    CUresult result = show(memory);
    if (result != CUDA_SUCCESS)
      return fail(report, kExitError,
                  "memory of cuMemCreate that is not mapped cannot be read (%d)",
                  static_cast<int>(result));
  }
  return true;
}

void vmm_relock() {
  vmm().each_mapping([](Mapped* mapping) {
    int owner = owner_of(mapping->memory);
    auto wanted = static_cast<CUmemAccess_flags>(mapping->access[owner]);
    if (wanted != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      set_access(mapping->begin, mapping->size, owner, wanted);
  });
  for (Physical* memory = vmm().first; memory; memory = memory->next) hide(memory);
}

// Leaves all memory open for the upload; vmm_relock() ends that.
bool rebuild_vmm(DeviceReport* report) {
  Vmm& all = vmm();
  for (RangeNode* n = all.reservations.first(); n; n = all.reservations.next(n))
    if (!take_range(n->begin, n->size, report)) return false;
  all.index();
  bool ok = true;
  for (Physical* memory = all.first; memory && ok; memory = memory->next)
    ok = (!memory->shown || take_range(memory->shown, memory->size, report)) &&
         create(memory, report);
  all.each_mapping([&](Mapped* mapping) { ok = ok && map(mapping, report); });
  for (Physical* memory = all.first; memory && ok; memory = memory->next) {
    if (memory->mapped_whole) continue;
    CUresult result = show(memory, memory->replayed);
    ok = result == CUDA_SUCCESS ||
         fail(report, kExitIncompatible, "memory cannot be mapped (%d)", static_cast<int>(result));
  }
  if (!ok || !name_handles(report) || !name_descriptors(report)) return false;
  for (Physical* memory = all.first; memory; memory = memory->next) {
    if (!memory->handles) real().cuMemRelease(memory->replayed);
    memory->replayed = 0;
  }
  return true;
}

const char* vmm_look_again() {
  note_descriptors();
  for (Physical* memory = known ? known->first : nullptr; memory; memory = memory->next)
    if (memory->shared && memory->open && !is_open(memory) && held(memory) && !memory->imported)
      return "cuMemExportToShareableHandle: the last descriptor of memory was closed just now";
  return nullptr;
}

bool vmm_is_descriptor(int fd) {
  return known && !realm_owns_fd(fd) && known->identify(fd, nullptr);
}

void vmm_hold_descriptors() {
  if (!known || !known->shared_count) return;
  int nothing = sys::open("/dev/null", O_RDONLY | O_CLOEXEC);
  bool wanted = false;
  for (uint32_t i = 0; i < vmm().shared_count; ++i) {
    wanted |= vmm().shared[i].fd == nothing;
    if (vmm().shared[i].fd != nothing) sys::call(SYS_dup3, nothing, vmm().shared[i].fd, O_CLOEXEC);
  }
  if (!wanted) sys::close(nothing);
}

// ---- records ----

Vmm& vmm() { return made_once(&known); }

Physical* Vmm::add(uint64_t handle, size_t size, const CUmemAllocationProp& properties) {
  auto* memory = make<Physical>();
  if (!memory) return nullptr;
  memory->size = size;
  memory->properties = properties;
  if (!add_handle(memory, handle)) {
    destroy(memory);
    return nullptr;
  }
  memory->next = first;
  if (first) first->previous = memory;
  first = memory;
  return memory;
}

bool Vmm::add_handle(Physical* memory, uint64_t name) {
  if (MemoryHandle* same = handles.find(name)) return same->memory == memory && ++same->references;
  if (!handles.put(name, {memory, 1, 0})) return false;
  ++memory->handles;
  return true;
}

void Vmm::drop_if_unused(Physical* memory) {
  if (memory->handles || memory->mappings || memory->exported) return;
  if (memory->shown) real().cuMemAddressFree(memory->shown, memory->size);
  (memory->previous ? memory->previous->next : first) = memory->next;
  if (memory->next) memory->next->previous = memory->previous;
  destroy(memory);
}

bool Vmm::add_exported(Physical* memory, int fd) {
  struct stat st;
  if (sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st)))) return false;
  const Exported e = {memory, fd, st.st_dev, st.st_ino, S_ISREG(st.st_mode)};
  memory->shared = true;
  for (size_t i = 0; i < exported.size(); ++i) {
    Exported& known = exported[i];
    if (e.own_file && known.dev == e.dev && known.ino == e.ino) {
      known.fd = fd;
      return true;
    }
    if (e.own_file || known.own_file || known.fd != fd) continue;
    forget_exported(i);  // that one is closed: its number is free again
    break;
  }
  if (!exported.push(e)) return false;
  ++memory->exported;
  return true;
}

void Vmm::forget_exported(size_t index) {
  Physical* memory = exported[index].memory;
  exported.swap_remove(index);
  --memory->exported;
  drop_if_unused(memory);
}

// Numbers are used again: where two records say that one open file is of different memory, one of
// them is of a descriptor that is closed, and it cannot be told which.
Physical* Vmm::identify(int fd, bool* doubtful) {
  struct stat st;
  if (exported.empty() || sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st)))) return nullptr;
  Physical* found = nullptr;
  bool alike = false;
  for (const Exported& e : exported) {
    if (e.dev != st.st_dev || e.ino != st.st_ino) continue;
    if (e.own_file) return e.memory;
    alike = true;
    if (e.fd != fd && compare_files(fd, e.fd) != 0) continue;
    if (found && found != e.memory) {
      found = nullptr;
      break;
    }
    found = e.memory;
  }
  if (alike && !found && doubtful) *doubtful = true;
  return found;
}

void Vmm::index() {
  for (Physical* memory = first; memory; memory = memory->next) {
    memory->handle = memory->mapped_at = 0;
    memory->mapped_whole = false;
  }
  handles.each([](uint64_t name, MemoryHandle& h) { h.memory->handle = name; });
  each_mapping([](Mapped* m) {
    if (m->memory->mapped_whole) return;
    m->memory->mapped_at = m->begin;
    m->memory->mapped_whole = m->size >= m->memory->size;
  });
}

}  // namespace gpuckpt::device
