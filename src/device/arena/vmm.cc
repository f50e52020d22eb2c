#include "device/arena/vmm.h"

#include "base/descriptors/handover.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "device/arena/vmm_records.h"
#include "device/capture/capture.h"
#include "device/sharing/ipc.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

Vmm* known;  // null: no such call yet

CUresult set_access(uint64_t address, uint64_t size, int device, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = flags;
  return real().cuMemSetAccess(address, size, &access, 1);
}

bool of_host(const Physical* memory) { return is_of_host(memory->properties.location); }
// Its device; of the host's memory, one that can copy it (-1: none has a context).
int owner_of(const Physical* memory) {
  if (!of_host(memory)) return memory->properties.location.id;
  for (int device = 0; device < machine_facts.devices; ++device)
    if (any_context(device)) return device;
  return -1;
}

// The host's memory is shown to a device for that.
CUresult copy_host_memory(Physical* memory, bool to_contents) {
  WithContext with(any_context(owner_of(memory)));
  return to_contents ? real().cuMemcpyDtoH_v2(memory->contents, memory->shown, memory->size)
                     : real().cuMemcpyHtoD_v2(memory->shown, memory->contents, memory->size);
}
bool make_contents(Physical* memory) {
  if (!memory->contents) memory->contents = static_cast<char*>(allocate(memory->size));
  return memory->contents;
}

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
  if (memory->kept) return show(memory, memory->kept);
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

// Where one of the processes that had the memory has ended, the one that still has it is its only
// owner now.
void inherit(Physical* memory) {
  bool ended = false;
  catches_signal(memory->name.pid, wire::kWakeSignal, &ended);
  if (!ended) return;
  memory->foreign = false;
  memory->ticket.close();
}

const char* shared_refusal() {
  vmm().sweep();
  for (Physical* memory = vmm().first; memory; memory = memory->next) {
    if (!memory->handles && !memory->mappings && !memory->kept)
      return "cuMemExportToShareableHandle: memory that only a descriptor holds";
    if (memory->foreign) inherit(memory);
    if (memory->foreign && !memory->ticket.is_open())
      return "cuMemImportFromShareableHandle: our duplicate of the descriptor was closed";
  }
  return nullptr;
}

// ---- restore ----

bool take_range(uint64_t begin, uint64_t size, DeviceReport* report) {
  CUdeviceptr place = 0;
  CUresult result = real().cuMemAddressReserve(&place, size, 0, begin, 0);
  if (result == CUDA_SUCCESS && place == begin) return true;
  if (result == CUDA_SUCCESS) real().cuMemAddressFree(place, size);
  return report->fail(
      kExitIncompatible,
      "the address range 0x%lx-0x%lx that the program reserved (cuMemAddressReserve) "
      "cannot be reserved here",
      begin, begin + size);
}

CUresult import_and_close(int fd, int device, CUmemGenericAllocationHandle* out) {
  WithContext with(any_context(device));
  CUresult result = import_memory(fd, out);
  sys::close(fd);
  return result;
}

// Fetches memory that another process has made again from that process.
CUresult fetch(Physical* memory, CUmemGenericAllocationHandle* out) {
  Shareable what;
  int fd = -1;
  if (!look_at_shareable(memory->ticket.fd, kIpcRestorePatienceUs, &what, &fd))
    return CUDA_ERROR_MAP_FAILED;
  return import_and_close(fd, owner_of(memory), out);
}

bool create(Physical* memory, DeviceReport* report) {
  memory->showing = false;
  CUresult result =
      memory->foreign ? fetch(memory, &memory->replayed)
                      : real().cuMemCreate(&memory->replayed, memory->size, &memory->properties, 0);
  if (result == CUDA_SUCCESS) return true;
  if (memory->foreign)
    return report->fail(
        kExitIncompatible,
        "memory of process %d (cuMemImportFromShareableHandle) cannot be imported again (%d)",
        memory->name.pid, static_cast<int>(result));
  return report->fail(kExitIncompatible,
                      "%lu bytes of device memory (cuMemCreate) cannot be allocated here (%d)",
                      memory->size, static_cast<int>(result));
}

// Leaves the owner's access open for the upload.
bool map(Mapped* mapping, DeviceReport* report) {
  CUresult result =
      real().cuMemMap(mapping->begin, mapping->size, mapping->offset, mapping->memory->replayed, 0);
  for (int device = 0; device < kMaxDevices && result == CUDA_SUCCESS; ++device) {
    auto flags = static_cast<CUmemAccess_flags>(mapping->access[device]);
    if (!of_host(mapping->memory) && device == owner_of(mapping->memory))
      flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (flags) result = set_access(mapping->begin, mapping->size, device, flags);
  }
  if (result == CUDA_SUCCESS && mapping->host.flags)
    result = real().cuMemSetAccess(mapping->begin, mapping->size, &mapping->host, 1);
  return result == CUDA_SUCCESS ||
         report->fail(kExitIncompatible, "memory cannot be mapped at 0x%lx again (%d)",
                      mapping->begin, static_cast<int>(result));
}

// One more handle with a value of its own where there can be one.
CUresult another_handle(Physical* memory, CUmemGenericAllocationHandle* out) {
  if (!(memory->properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
    return real().cuMemRetainAllocationHandle(
        out, reinterpret_cast<void*>(memory->mapped_at ? memory->mapped_at : memory->shown));
  int fd = -1;
  CUresult result = export_memory(memory->replayed, &fd);
  if (result != CUDA_SUCCESS) return result;
  return import_and_close(fd, owner_of(memory), out);
}

bool name_handles(bool foreign, DeviceReport* report) {
  CUresult result = CUDA_SUCCESS;
  vmm().handles.each([&](uint64_t name, MemoryHandle& h) {
    if (result != CUDA_SUCCESS || h.memory->foreign != foreign) return;
    CUmemGenericAllocationHandle now = h.memory->replayed;
    if (name != h.memory->handle) result = another_handle(h.memory, &now);
    if (result == CUDA_SUCCESS) bind(Kind::kMemHandle, name, now);
    h.ours = h.references - 1;
  });
  return result == CUDA_SUCCESS ||
         report->fail(kExitIncompatible,
                      "a handle of memory (cuMemCreate) cannot be made again (%d)",
                      static_cast<int>(result));
}

// The descriptors exist already; the messages in them are sent anew.
bool share_all_again(bool foreign, DeviceReport* report) {
  for (Exported& e : vmm().exported) {
    if (e.memory->foreign != foreign) continue;
    int fd = -1;
    CUresult result = export_memory(e.memory->replayed, &fd);
    const bool sent = result == CUDA_SUCCESS && share_again(shareable_of(e.memory), fd, e.end);
    if (fd >= 0) sys::close(fd);
    if (!sent && !closed_everywhere(e.end))
      return report->fail(
          kExitIncompatible,
          "a shareable handle of memory (cuMemExportToShareableHandle) cannot be made again "
          "(%d)",
          static_cast<int>(result));
  }
  return true;
}

// Makes either all memory of this process, or all memory of others.
bool rebuild_memory(bool foreign, DeviceReport* report) {
  Vmm& all = vmm();
  bool ok = true;
  for (Physical* memory = all.first; memory && ok; memory = memory->next) {
    if (memory->foreign != foreign) continue;
    ok = (!memory->shown || take_range(memory->shown, memory->size, report)) &&
         create(memory, report);
  }
  all.each_mapping([&](Mapped* mapping) {
    if (mapping->memory->foreign == foreign) ok = ok && map(mapping, report);
  });
  for (Physical* memory = all.first; memory && ok && !foreign; memory = memory->next) {
    if (memory->foreign || (memory->mapped_whole && !of_host(memory))) continue;
    CUresult result = show(memory, memory->replayed);
    if (result == CUDA_SUCCESS && of_host(memory)) result = copy_host_memory(memory, false);
    ok = result == CUDA_SUCCESS ||
         report->fail(kExitIncompatible, "memory cannot be mapped (%d)", static_cast<int>(result));
  }
  return ok && name_handles(foreign, report) && share_all_again(foreign, report);
}

}  // namespace

const char* vmm_refusal() {
  MutexLock guard(vmm().lock);
  for (Physical* memory = vmm().first; memory; memory = memory->next) {
    if (of_host(memory) && (memory->name.pid || owner_of(memory) < 0))
      return "cuMemCreate: physical memory of the host, shared or without a context to copy it";
    if (memory->properties.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL)
      return "cuMemCreate: memory for sparse arrays, which no address shows";
  }
  return shared_refusal();
}

void vmm_extents(int device, Vector<VmmExtent>* out) {
  MutexLock guard(vmm().lock);
  vmm().each_mapping([&](Mapped* mapping) {
    const Physical* memory = mapping->memory;
    if (!memory->foreign && !of_host(memory) && owner_of(memory) == device)
      out->push({mapping->begin, mapping->size});
  });
  for (Physical* memory = vmm().first; memory; memory = memory->next)
    if (memory->showing && !of_host(memory) && owner_of(memory) == device)
      out->push({memory->shown, memory->size});
}

uint64_t vmm_bytes() {
  MutexLock guard(vmm().lock);
  uint64_t bytes = 0;
  for (Physical* memory = vmm().first; memory; memory = memory->next) bytes += memory->size;
  return bytes;
}

bool vmm_unlock(DeviceReport* report) {
  vmm().index();
  vmm().each_mapping([](Mapped* mapping) {
    if (of_host(mapping->memory)) return;
    int owner = owner_of(mapping->memory);
    if (!mapping->memory->foreign && mapping->access[owner] != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      set_access(mapping->begin, mapping->size, owner, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  });
  for (Physical* memory = vmm().first; memory; memory = memory->next) {
    if (memory->foreign || (memory->mapped_whole && !of_host(memory))) continue;
    if (!memory->handle && !memory->mapped_at && !memory->kept) continue;
    CUresult result = show(memory);
    if (result == CUDA_SUCCESS && of_host(memory))
      result = make_contents(memory) ? copy_host_memory(memory, true) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
      return report->fail(kExitError,
                          "memory of cuMemCreate that is not mapped cannot be read (%d)",
                          static_cast<int>(result));
  }
  return true;
}

void vmm_relock() {
  vmm().each_mapping([](Mapped* mapping) {
    if (of_host(mapping->memory)) return;
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
  for (Exported& e : all.exported) e.end.restored();
  for (Physical* memory = all.first; memory; memory = memory->next) {
    memory->ticket.restored();
    if (memory->name.identity == handover_identity() && !memory->foreign)
      memory->name.pid = sys::getpid();  // where ids do not stay
  }
  // Other processes wait for the memory of this one.
  if (!rebuild_memory(false, report) || !rebuild_memory(true, report)) return false;
  for (Physical* memory = all.first; memory; memory = memory->next) {
    if (memory->kept)
      memory->kept = memory->replayed;
    else if (!memory->handles)
      real().cuMemRelease(memory->replayed);
    memory->replayed = 0;
  }
  return true;
}

void vmm_copy_host() {
  if (!known) return;
  known->each_mapping([](Mapped* m) {
    if (m->memory->contents && m->host.flags)
      __builtin_memcpy(m->memory->contents, reinterpret_cast<void*>(m->begin), m->size);
  });
}

bool vmm_imported() {
  MutexLock guard(vmm().lock);
  for (Physical* memory = vmm().first; memory; memory = memory->next)
    if (memory->foreign) return true;
  return false;
}

bool vmm_shares(void* context, bool (*one)(void* context, const DeviceShare&)) {
  for (Physical* memory = known ? known->first : nullptr; memory; memory = memory->next) {
    const SharedName& name = memory->name;
    if (!name.pid) continue;
    const auto kind = memory->foreign ? DeviceShare::kTook : DeviceShare::kOffers;
    if (!one(context, {kind, name.pid, name.number | DeviceShare::kHandle})) return false;
  }
  return true;
}

void vmm_sweep() {
  if (!known || !__atomic_load_n(&known->kept, __ATOMIC_RELAXED)) return;
  MutexLock guard(known->lock);
  known->sweep();
}

// ---- records ----

Shareable shareable_of(const Physical* memory) {
  Shareable s = make_shareable(Shareable::kMemory, memory->name, owner_of(memory));
  s.size = memory->size;
  return s;
}

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
  drop_reference(memory);
  memory->ticket.close();
  release(memory->contents);
  if (memory->shown) real().cuMemAddressFree(memory->shown, memory->size);
  (memory->previous ? memory->previous->next : first) = memory->next;
  if (memory->next) memory->next->previous = memory->previous;
  destroy(memory);
}

void Vmm::drop_reference(Physical* memory) {
  if (!memory->kept) return;
  real().cuMemRelease(memory->kept);
  memory->kept = 0;
  --kept;
}

bool Vmm::add_exported(Physical* memory, const OwnFd& end) {
  if (!exported.push({memory, end})) return false;
  ++memory->exported;
  return true;
}

void Vmm::sweep() {
  for (size_t i = exported.size(); i--;) {
    if (!closed_everywhere(exported[i].end)) continue;
    Physical* memory = exported[i].memory;
    exported[i].end.close();
    exported.swap_remove(i);
    --memory->exported;
    drop_if_unused(memory);
  }
}

void Vmm::sweep_sometimes() {
  if (exported.size() < sweep_at) return;
  sweep();
  sweep_at = 2 * exported.size() + 64;
}

Physical* Vmm::named(const SharedName& name) {
  for (Physical* memory = first; memory; memory = memory->next)
    if (memory->name == name) return memory;
  return nullptr;
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
