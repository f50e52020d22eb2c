#include "intercept/doors/doors.h"

#include <dlfcn.h>

#include <atomic>

#include "base/heap.h"
#include "base/mutex.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "intercept/gate/gate.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"
#include "intercept/spec/abi_table.h"
#include "intercept/translate/translate.h"

extern "C" const char gpuckpt_pool_thunks[];  // generated/thunks.S, 16 bytes each

namespace gpuckpt {

constinit RealDriver g_real{};

namespace {

constexpr uint32_t kThunks = kNamedThunks + kPoolThunks;

CUresult absent() { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult no_driver() { return CUDA_ERROR_NO_DEVICE; }

struct Thunk {
  std::atomic<uint64_t> calls;
  std::atomic<void*> target;
  const char* name;
};
constinit Thunk g_thunk[kThunks] = {};
constinit uint32_t g_pool_used = 0;
constinit Mutex g_pool_mutex;
constinit std::atomic<uint64_t> g_tables_given{0};

// The driver's function -> FunctionId + 1. Open addressing.
constexpr uint32_t kMapSlots = 2048;
static_assert(kMapSlots > 2 * kDeclaredFunctions);
struct MapSlot {
  void* function;
  uint32_t id;
};
constinit MapSlot g_map[kMapSlots] = {};

uint32_t map_slot(void* f) {
  return static_cast<uint32_t>((reinterpret_cast<uint64_t>(f) * 0x9e3779b97f4a7c15ull) >> 53);
}
MapSlot* map_find(void* f) {
  for (uint32_t i = map_slot(f);; i = (i + 1) % kMapSlots) {
    if (!g_map[i].function || g_map[i].function == f) return &g_map[i];
  }
}

void* door_pool_thunk(void* function, const char* name) {
  g_pool_mutex.lock();
  uint32_t i = 0;
  while (i < g_pool_used && g_thunk[kNamedThunks + i].target.load() != function) i++;
  if (i == g_pool_used && i < kPoolThunks) {
    size_t n = length(name) + 1;
    char* kept = static_cast<char*>(heap_alloc(n));
    if (kept) copy(kept, n, name);
    g_thunk[kNamedThunks + i].name = kept ? kept : "?";
    g_thunk[kNamedThunks + i].target.store(function);
    g_pool_used++;
  }
  g_pool_mutex.unlock();
  if (i == kPoolThunks) {
    log_line(LogLevel::kWarn, "gpuckpt: more than %u unknown driver functions; %s is not counted",
             kPoolThunks, name);
    return function;
  }
  return const_cast<char*>(gpuckpt_pool_thunks) + 16 * i;
}

bool is_driver_name(const char* file) {
  const char* base = file;
  for (const char* c = file; *c; c++)
    if (*c == '/') base = c + 1;
  return starts_with(base, "libcuda.so") && (base[10] == 0 || base[10] == '.');
}

}  // namespace

bool is_absent(const void* slot) {
  return slot == reinterpret_cast<const void*>(&absent) ||
         slot == reinterpret_cast<const void*>(&no_driver);
}

void doors_fill(void* handle) {
  void* const missing = reinterpret_cast<void*>(handle ? &absent : &no_driver);
  auto* slots = reinterpret_cast<char*>(&g_real);
  for (uint32_t i = 0; i < kDeclaredFunctions; i++) {
    void* f = handle ? dlsym(handle, kAbi[i].symbol) : nullptr;
    if (f) {
      MapSlot* s = map_find(f);
      if (!s->function) *s = {f, i + 1};
    }
    *reinterpret_cast<void**>(slots + kAbi[i].slot) = f ? f : missing;
  }
  for (uint32_t i = 0; i < kNamedThunks; i++) {
    void* f = handle ? dlsym(handle, kNamedThunkTable[i].symbol) : nullptr;
    g_thunk[i].name = kNamedThunkTable[i].symbol;
    g_thunk[i].target.store(f ? f : missing);
  }
}

void* door_to(void* function, const char* name, int preferred) {
  if (preferred >= 0) {
    auto* slots = reinterpret_cast<char*>(&g_real);
    if (*reinterpret_cast<void**>(slots + kAbi[preferred].slot) == function) {
      return kAbi[preferred].wrapper;
    }
  }
  if (MapSlot* s = map_find(function); s->function) return kAbi[s->id - 1].wrapper;
  return door_pool_thunk(function, name);
}

uint64_t thunk_calls(uint32_t thunk) {
  return g_thunk[thunk].calls.load(std::memory_order_relaxed);
}
const char* thunk_name(uint32_t thunk) { return g_thunk[thunk].name; }
const char* thunk_refusal(uint32_t thunk) {
  return thunk < kNamedThunks ? kNamedThunkTable[thunk].refusal
                              : "an entry point of the driver that gpuckpt does not know";
}
uint64_t export_tables_given() { return g_tables_given.load(std::memory_order_relaxed); }

DlopenFunction real_dlopen() {
  static constinit std::atomic<DlopenFunction> found{nullptr};
  DlopenFunction f = found.load(std::memory_order_relaxed);
  if (!f) {
    f = reinterpret_cast<DlopenFunction>(dlsym(RTLD_NEXT, "dlopen"));
    found.store(f, std::memory_order_relaxed);
  }
  return f;
}

// -- cuGetProcAddress: the driver chooses (it knows its own versions), we answer with our function
// for its choice.

namespace {
void answer(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  if (!symbol || !pfn || !*pfn) return;
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  *pfn = door_to(*pfn, symbol, abi_lookup(symbol, static_cast<uint32_t>(version), per_thread));
}
}  // namespace

CUresult hook_cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  CUresult result = real().cuGetProcAddress(symbol, pfn, version, flags);
  if (result == CUDA_SUCCESS) answer(symbol, pfn, version, flags);
  return result;
}

CUresult hook_cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  CUresult result = real().cuGetProcAddress_v2(symbol, pfn, version, flags, status);
  if (result == CUDA_SUCCESS) answer(symbol, pfn, version, flags);
  return result;
}

// The private tables are handed through as they are, always: cudart and driver authenticate each
// other by them.
CUresult hook_cuGetExportTable(const void** table, const CUuuid* id) {
  CUresult result = real().cuGetExportTable(table, id);
  if (result == CUDA_SUCCESS) g_tables_given.fetch_add(1, std::memory_order_relaxed);
  return result;
}

}  // namespace gpuckpt

using namespace gpuckpt;

// Called by gpuckpt_thunk: counts, waits while the gate is closed, returns the driver's function.
extern "C" void* gpuckpt_thunk_enter(uint32_t thunk) {
  GateGuard gate(kDeclaredFunctions + thunk);
  g_thunk[thunk].calls.fetch_add(1, std::memory_order_relaxed);
  return g_thunk[thunk].target.load(std::memory_order_acquire);
}

struct DlopenArguments {
  const char* file;
  long mode;
};
// Called by our dlopen with its arguments; what is left in them goes to libc's dlopen, whose
// address is returned.
extern "C" DlopenFunction gpuckpt_dlopen_door(DlopenArguments* a) {
  if (a->file && is_driver_name(a->file)) {
    char path[512];
    if (realm_find_driver(path, sizeof path)) {
      a->file = "libcuda.so.1";  // our own SONAME: ld.so gives us back
      a->mode &= ~static_cast<long>(RTLD_DEEPBIND);
    } else if (equal(a->file, "libcuda.so.1")) {
      a->file =
          "libcuda.so.1 ";  // no driver here: the error ld.so gives without us, one blank longer
    }
  }
  return real_dlopen();
}
