#include "intercept/realm/realm.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/address.h"
#include "base/heap.h"
#include "base/procfs/proc.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "intercept/doors/doors.h"
#include "intercept/gate/gate.h"
#include "intercept/realm/realm_internal.h"
#include "intercept/translate/translate.h"

namespace gpuckpt {
namespace {

// A writable piece of a driver file and what it held right after loading.
struct Segment {
  uint64_t at, bytes;
  char* pristine;
};
// A block libc gave to the driver's constructors; the pristine segments point to it.
struct Pinned {
  uint64_t at, bytes;
  char* pristine;
};
struct Object {
  const link_map* map;
  Segment segment[4];
  int segments;
};

constexpr int kMaxObjects = 16;
constexpr int kMaxPinned = 256;
constinit Object g_object[kMaxObjects] = {};
constinit int g_objects = 0;
constinit Pinned g_pinned[kMaxPinned] = {};
constinit int g_pinneds = 0;
constinit char g_path[512] = {};
constinit char g_unknown[2048] = {};

enum LoadState : uint32_t { kNotLoaded, kLoading, kLoaded, kNoDriver };
constinit std::atomic<uint32_t> g_state{kNotLoaded};
constinit std::atomic<int> g_loader{0};
constinit std::atomic<int> g_constructing{0};  // tid inside dlopen of a driver's object

const char* base_name(const char* path) {
  const char* base = strrchr(path, '/');
  return base ? base + 1 : path;
}

// -- what an object's dynamic section says

struct Dynamic {
  const Elf64_Sym* symbols = nullptr;
  const char* strings = nullptr;
  const Elf64_Rela* plt = nullptr;
  const Elf64_Rela* rela = nullptr;
  size_t plt_count = 0, rela_count = 0;
};

Dynamic read_dynamic(const link_map* map) {
  Dynamic d;
  // glibc has relocated these addresses in place.
  for (const Elf64_Dyn* e = map->l_ld; e->d_tag != DT_NULL; e++) {
    switch (e->d_tag) {
      case DT_SYMTAB:
        d.symbols = reinterpret_cast<const Elf64_Sym*>(e->d_un.d_ptr);
        break;
      case DT_STRTAB:
        d.strings = reinterpret_cast<const char*>(e->d_un.d_ptr);
        break;
      case DT_JMPREL:
        d.plt = reinterpret_cast<const Elf64_Rela*>(e->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        d.plt_count = e->d_un.d_val / sizeof(Elf64_Rela);
        break;
      case DT_RELA:
        d.rela = reinterpret_cast<const Elf64_Rela*>(e->d_un.d_ptr);
        break;
      case DT_RELASZ:
        d.rela_count = e->d_un.d_val / sizeof(Elf64_Rela);
        break;
      default:
        break;
    }
  }
  return d;
}

struct Headers {
  const link_map* map;
  Segment load[8];
  int loads = 0;
  uint64_t relro_begin = 0, relro_end = 0;
};

Headers read_headers(const link_map* map) {
  Headers h{.map = map, .load = {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* p) {
        auto* h = static_cast<Headers*>(p);
        if (info->dlpi_addr != h->map->l_addr || strcmp(info->dlpi_name, h->map->l_name) != 0)
          return 0;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const ElfW(Phdr)& ph = info->dlpi_phdr[i];
          uint64_t at = info->dlpi_addr + ph.p_vaddr;
          if (ph.p_type == PT_LOAD && (ph.p_flags & PF_W) && h->loads < 8) {
            h->load[h->loads++] = {at, ph.p_memsz, nullptr};
          } else if (ph.p_type == PT_GNU_RELRO) {
            h->relro_begin = page_down(at);
            h->relro_end = page_down(at + ph.p_memsz);
          }
        }
        return 1;
      },
      &h);
  return h;
}

// -- rewriting

void note_unknown(const char* import, const char* object) {
  log_line(LogLevel::kWarn,
           "gpuckpt: %s imports %s, which has not been reviewed; a restore may not rewind it",
           object, import);
  size_t used = strlen(g_unknown), n = strlen(import);
  if (used + n + 3 >= sizeof g_unknown) return;
  if (used) g_unknown[used++] = ',';
  memcpy(g_unknown + used, import, n + 1);
}

void write_slot(uint64_t slot, void* function, const Headers& h) {
  bool sealed = slot >= h.relro_begin && slot < h.relro_end;
  uint64_t page = page_down(slot);
  if (sealed) sys::call(SYS_mprotect, static_cast<long>(page), kPage, PROT_READ | PROT_WRITE);
  memcpy(reinterpret_cast<void*>(slot), &function, sizeof function);
  if (sealed) sys::call(SYS_mprotect, static_cast<long>(page), kPage, PROT_READ);
}

void rewrite(const Elf64_Rela* rela, size_t count, const Dynamic& d, const Headers& h) {
  for (size_t i = 0; i < count; i++) {
    uint64_t type = ELF64_R_TYPE(rela[i].r_info);
    if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
    const Elf64_Sym& symbol = d.symbols[ELF64_R_SYM(rela[i].r_info)];
    if (symbol.st_shndx != SHN_UNDEF || !symbol.st_name) continue;
    const char* name = d.strings + symbol.st_name;
    bool reviewed;
    void* mine = realm_hooks::replacement(name, &reviewed);
    if (!reviewed && ELF64_ST_BIND(symbol.st_info) != STB_WEAK) {
      note_unknown(name, base_name(h.map->l_name));
    }
    if (mine && rela[i].r_addend == 0) write_slot(h.map->l_addr + rela[i].r_offset, mine, h);
  }
}

// -- pristine state

void keep_pristine(Object* o, const Headers& h) {
  for (int i = 0; i < h.loads; i++) {
    uint64_t begin = h.load[i].at, end = begin + h.load[i].bytes;
    if (h.relro_end > begin && h.relro_begin <= begin)
      begin = h.relro_end;  // read-only since loading
    if (begin >= end || o->segments == 4) continue;
    Region copy = region_map(end - begin);
    if (!copy) continue;
    memcpy(copy.data(), reinterpret_cast<void*>(begin), end - begin);
    o->segment[o->segments++] = {begin, end - begin, copy.data()};
  }
}

// The main heap of libc, by its name in /proc/self/maps.
bool libc_heap(uint64_t* begin, uint64_t* end) {
  static char buffer[8192];  // with the load lock held
  LineReader maps("/proc/self/maps", buffer, sizeof buffer);
  while (char* line = maps.next()) {
    MapsLine m;
    if (!parse_maps_line(line, &m) || strcmp(m.name, "[heap]") != 0) continue;
    *begin = m.start;
    *end = m.end;
    return true;
  }
  return false;
}

// ld.so's own lists change with every dlopen: never put back.
bool is_link_map(const link_map* start, uint64_t word) {
  for (const link_map* m = start; m; m = m->l_prev)
    if (reinterpret_cast<uint64_t>(m) == word) return true;
  for (const link_map* m = start; m; m = m->l_next)
    if (reinterpret_cast<uint64_t>(m) == word) return true;
  return false;
}

// Blocks the constructors allocated: words outside the GOT that point to the start of a plausible
// libc block.
void pin_blocks(const Object& o, const Dynamic& d, uint64_t heap_begin, uint64_t heap_end) {
  uint64_t got_end = 0;
  for (size_t i = 0; i < d.plt_count; i++) {
    uint64_t slot = o.map->l_addr + d.plt[i].r_offset + 8;
    if (slot > got_end) got_end = slot;
  }
  for (int i = 0; i < o.segments; i++) {
    const Segment& s = o.segment[i];
    for (uint64_t at = (s.at + 7) & ~7ull; at + 8 <= s.at + s.bytes; at += 8) {
      if (at < got_end && d.plt_count && at + 24 + d.plt_count * 8 >= got_end)
        continue;  // link_map and slots
      uint64_t word = *reinterpret_cast<uint64_t*>(at);
      if (word < heap_begin + 16 || word > heap_end - 16 || word % 16) continue;
      uint64_t size = *reinterpret_cast<uint64_t*>(word - 8) & ~7ull;
      if (size < 32 || size > 1 << 20 || word - 16 + size > heap_end) continue;
      if (is_link_map(o.map, word)) continue;
      if (realm_is_pinned(reinterpret_cast<void*>(word)) || g_pinneds == kMaxPinned) continue;
      size_t bytes = size - 8;
      char* copy = static_cast<char*>(heap_alloc(bytes));
      if (copy) memcpy(copy, reinterpret_cast<void*>(word), bytes);
      g_pinned[g_pinneds++] = {word, copy ? bytes : 0, copy};
    }
  }
}

void adopt(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map) return;
  for (int i = 0; i < g_objects; i++)
    if (g_object[i].map == map) return;
  if (g_objects == kMaxObjects) return note_unknown("(too many libraries)", base_name(map->l_name));
  Dynamic d = read_dynamic(map);
  Headers h = read_headers(map);
  if (!d.symbols || !d.strings) return;
  rewrite(d.plt, d.plt_count, d, h);
  rewrite(d.rela, d.rela_count, d, h);
  Object& o = g_object[g_objects++];
  o.map = map;
  keep_pristine(&o, h);
  uint64_t begin, end;
  if (libc_heap(&begin, &end)) pin_blocks(o, d, begin, end);
}

void after_fork() {
  realm_heap::after_fork();
  realm_maps::after_fork();
  realm_threads::after_fork();
  gate_after_fork();
}

uint32_t load() {
  pthread_atfork(nullptr, nullptr, after_fork);
  void* handle = nullptr;
  if (realm_find_driver(g_path, sizeof g_path)) {
    handle = realm_dlopen(g_path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) log_line(LogLevel::kError, "gpuckpt: cannot load the driver: %s", dlerror());
  }
  if (!handle)
    g_path[0] = 0;
  else
    adopt(handle);
  doors_fill(handle);
  return handle ? kLoaded : kNoDriver;
}

}  // namespace

bool realm_load() {
  uint32_t state = g_state.load(std::memory_order_acquire);
  if (state == kLoaded || state == kNoDriver) return state == kLoaded;
  uint32_t none = kNotLoaded;
  if (g_state.compare_exchange_strong(none, kLoading)) {
    g_loader.store(sys::gettid());
    state = load();
    g_state.store(state, std::memory_order_release);
    sys::futex_wake(&g_state, 0x7fffffff);
    return state == kLoaded;
  }
  if (g_loader.load() == sys::gettid()) return false;  // from inside the driver's constructors
  while ((state = g_state.load(std::memory_order_acquire)) == kLoading) {
    sys::futex_wait(&g_state, kLoading, 0);
  }
  return state == kLoaded;
}

void* realm_dlopen(const char* file, int mode) {
  int before = g_constructing.exchange(sys::gettid());
  void* handle = real_dlopen()(file, mode);
  g_constructing.store(before);
  return handle;
}

bool realm_loading_here() {
  return g_constructing.load(std::memory_order_relaxed) == sys::gettid();
}

bool realm_load_began() { return g_state.load(std::memory_order_acquire) != kNotLoaded; }
bool realm_loaded() { return g_state.load(std::memory_order_acquire) == kLoaded; }
bool realm_has_object(uint64_t base) {
  for (int i = 0; i < g_objects; i++)
    if (g_object[i].map->l_addr == base) return true;
  return false;
}
const char* realm_driver_path() { return g_path; }
const char* realm_unknown_imports() { return g_unknown; }

void realm_adopt_object(void* handle) {
  static constinit Mutex lock;
  MutexLock locked(lock);
  adopt(handle);
}

bool realm_is_pinned(const void* block) {
  auto at = reinterpret_cast<uint64_t>(block);
  for (int i = 0; i < g_pinneds; i++)
    if (g_pinned[i].at == at) return true;
  return false;
}

bool realm_owns(uint64_t address, uint64_t length) { return realm_maps::owns(address, length); }
bool realm_owns_first(uint64_t address, uint64_t end, uint64_t* until) {
  return realm_maps::owns_first(address, end, until);
}
bool realm_owns_fd(int fd) { return realm_fds::owns(fd); }
void realm_adopt_fd(int fd) { realm_fds::opened(fd); }
void realm_disown_fd(int fd) { realm_fds::closed(fd); }
bool realm_driver_thread(int tid, uint64_t* pc, uint64_t* sp) {
  return realm_threads::find(tid, pc, sp);
}
bool realm_is_consistent() {
  return realm_heap::unlocked() && realm_maps::unlocked() &&
         g_state.load(std::memory_order_relaxed) != kLoading;
}
void realm_expect_at(uint64_t address) { realm_maps::expect_at(address); }
bool realm_release_placeholders() { return realm_maps::release_placeholders(); }

void realm_rewind() {
  // Keys first: their destructors are code that is about to find its data gone.
  realm_threads::rewind();
  realm_fds::rewind();
  for (int i = 0; i < g_objects; i++) {
    const Object& o = g_object[i];
    for (int k = 0; k < o.segments; k++) {
      memcpy(reinterpret_cast<void*>(o.segment[k].at), o.segment[k].pristine, o.segment[k].bytes);
    }
  }
  for (int i = 0; i < g_pinneds; i++) {
    memcpy(reinterpret_cast<void*>(g_pinned[i].at), g_pinned[i].pristine, g_pinned[i].bytes);
  }
  realm_heap::new_generation();
  realm_maps::rewind();
  translate_forget_all();
  gate_new_generation();
}

}  // namespace gpuckpt
