#include "driver/graph/graph_memory.h"

#include <string.h>

#include "driver/graph/graph.h"
#include "driver/memory/memory.h"
#include "driver/stream/action.h"

namespace simgpu {
namespace {

constexpr uint64_t kRegion = 64 * kGiB;

struct Region {
  uint64_t base = 0;
  std::vector<GraphMemory*> taken;  // by address
  uint64_t used_high = 0, reserved_high = 0;
};

Mutex& memory_mutex() {
  static Mutex m;
  return m;
}
Region regions[8];  // guarded by memory_mutex()

struct Sum {
  uint64_t used = 0, reserved = 0;
};
Sum sum(const Region& r) {
  Sum s;
  for (GraphMemory* m : r.taken) {
    if (m->live) s.used += m->bytes;
    if (m->resident) s.reserved += m->block;
  }
  return s;
}

uint64_t place(Region* r, uint64_t block, GraphMemory* m) {
  uint64_t at = r->base;
  size_t i = 0;
  for (; i < r->taken.size(); ++i) {
    if (r->taken[i]->address - at >= block) break;
    at = r->taken[i]->address + r->taken[i]->block;
  }
  if (at + block > r->base + kRegion) return 0;
  r->taken.insert(r->taken.begin() + static_cast<long>(i), m);
  return at;
}

}  // namespace

Ref<GraphMemory> GraphMemory::make(Ref<Context> c, const CUDA_MEM_ALLOC_NODE_PARAMS_v1& p) {
  auto m = Ref<GraphMemory>::adopt(new GraphMemory(c));
  m->bytes = p.bytesize;
  m->block = round_up(p.bytesize, kBigPage);
  m->params = p;
  for (size_t i = 0; i < p.accessDescCount; ++i) m->access.push_back(p.accessDescs[i]);
  m->params.accessDescs = m->access.empty() ? nullptr : m->access.data();
  Lock lock(memory_mutex());
  Region& r = regions[c->device->ordinal];
  if (r.base == 0) r.base = state()->memory.reserve(kRegion, kPage, 0);
  if (r.base == 0) return {};
  m->address = place(&r, m->block, m.get());
  m->params.dptr = m->address;
  return m->address != 0 ? m : Ref<GraphMemory>();
}

GraphMemory::~GraphMemory() {
  if (address == 0) return;
  if (resident) state()->memory.unmap(address, address + block);
  Lock lock(memory_mutex());
  std::vector<GraphMemory*>& all = regions[context->device->ordinal].taken;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == this) {
      all.erase(all.begin() + static_cast<long>(i));
      break;
    }
  }
}

CUresult GraphMemory::allocate(bool again) {
  Lock lock(memory_mutex());
  if (live) return again ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  Region& r = regions[context->device->ordinal];
  if (!resident) {
    Ref<Backing> backing = Backing::create(context->device, block, false);
    if (!backing) return CUDA_ERROR_OUT_OF_MEMORY;
    Mapping map;
    map.begin = address;
    map.end = address + block;
    map.host = backing->host;
    map.backing = std::move(backing);
    map.device = context->device->ordinal;
    map.readable = map.writable = 1u << map.device;
    for (const CUmemAccessDesc& a : access)
      if (a.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && a.location.id >= 0 && a.location.id < 8)
        map.readable = map.writable = map.writable | 1u << a.location.id;
    state()->memory.map(std::move(map));
    resident = true;
  }
  live = true;
  retain();  // until it is freed
  Allocation a;
  a.type = MemoryType::kDevice;
  a.base = a.block = address;
  a.size = bytes;
  a.block_bytes = block;
  a.id = fresh_id();
  a.device = context->device->ordinal;
  a.context = context->id;
  a.context_handle = context->handle();
  a.graph = true;
  state()->memory.add(a);
  Sum s = sum(r);
  if (s.used > r.used_high) r.used_high = s.used;
  if (s.reserved > r.reserved_high) r.reserved_high = s.reserved;
  return CUDA_SUCCESS;
}

CUresult GraphMemory::free() {
  {
    Lock lock(memory_mutex());
    if (!live) return CUDA_ERROR_INVALID_VALUE;
    live = false;
    state()->memory.remove(address, nullptr);
  }
  release();
  return CUDA_SUCCESS;
}

bool GraphMemory::same_kind(const GraphMemory& other) const {
  const size_t n = access.size();
  return context.get() == other.context.get() && bytes == other.bytes && n == other.access.size() &&
         (n == 0 || memcmp(access.data(), other.access.data(), n * sizeof access[0]) == 0);
}

bool GraphMemory::trim() {
  if (live || !resident) return false;
  resident = false;
  return state()->memory.unmap(address, address + block);
}

Ref<GraphMemory> graph_memory_at(uint64_t address) {
  Lock lock(memory_mutex());
  for (Region& r : regions) {
    if (r.base == 0 || address < r.base || address >= r.base + kRegion) continue;
    for (GraphMemory* m : r.taken)
      if (m->address == address) return Ref<GraphMemory>(m);
  }
  return {};
}

bool graph_memory_covers(uint64_t address, uint64_t length) {
  Lock lock(memory_mutex());
  for (Region& r : regions) {
    if (r.base == 0 || address < r.base || address >= r.base + kRegion) continue;
    for (GraphMemory* m : r.taken)
      if (address >= m->address && length <= m->bytes && address - m->address <= m->bytes - length)
        return true;
  }
  return false;
}

AddressSpace::Place place_of(uint64_t address, uint64_t length) {
  AddressSpace::Place p = state()->memory.classify(address, length);
  if (p == AddressSpace::Place::kBad && graph_memory_covers(address, length))
    return AddressSpace::Place::kDevice;
  return p;
}

CUresult free_graph_memory(uint64_t address) {
  Ref<GraphMemory> m = graph_memory_at(address);
  return m ? m->free() : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuDeviceGraphMemTrim(CUdevice ordinal) {
  ENTER(cuDeviceGraphMemTrim);
  Device* d = device_of(ordinal);
  if (!d) return CUDA_ERROR_INVALID_DEVICE;
  std::vector<Ref<Context>> contexts;
  {
    Lock lock(state()->live_mutex);
    for (Context* c : state()->live) contexts.push_back(Ref<Context>(c));
  }
  for (Ref<Context>& c : contexts) c->synchronize();
  Lock lock(memory_mutex());
  for (GraphMemory* m : regions[ordinal].taken) m->trim();
  return CUDA_SUCCESS;
}

SIMGPU_API cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute id, void* value) {
  ENTER(cuDeviceGetGraphMemAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!device_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(memory_mutex());
  const Region& r = regions[ordinal];
  Sum s = sum(r);
  auto* out = static_cast<cuuint64_t*>(value);
  switch (static_cast<int>(id)) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *out = s.used;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *out = r.used_high;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *out = s.reserved;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *out = r.reserved_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIMGPU_API cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute id, void* value) {
  ENTER(cuDeviceSetGraphMemAttribute);
  if (!value || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!device_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(memory_mutex());
  Region& r = regions[ordinal];
  Sum s = sum(r);
  switch (static_cast<int>(id)) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      r.used_high = s.used;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      r.reserved_high = s.reserved;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
