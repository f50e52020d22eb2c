// Where is the driver? GPUCKPT_DRIVER, LD_LIBRARY_PATH, ld.so.cache, usual folders. Never a stub,
// never ourselves.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/text.h"
#include "intercept/realm/realm.h"

namespace gpuckpt {
namespace {

const char kSoname[] = "libcuda.so.1";
const char* const kFolders[] = {
    "/usr/lib/wsl/lib",  // WSL: before the others, which may hold a stub package
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/local/cuda/compat",
    "/.singularity.d/libs",
};

// The file this code was loaded from.
bool own_file(struct stat* out) {
  struct Search {
    struct stat* out;
    bool found;
  } search{out, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* p) {
        auto* s = static_cast<Search*>(p);
        auto here = reinterpret_cast<ElfW(Addr)>(&kSoname);
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const ElfW(Phdr)& ph = info->dlpi_phdr[i];
          if (ph.p_type != PT_LOAD || here - info->dlpi_addr - ph.p_vaddr >= ph.p_memsz) continue;
          s->found = stat(*info->dlpi_name ? info->dlpi_name : "/proc/self/exe", s->out) == 0;
          return 1;
        }
        return 0;
      },
      &search);
  return search.found;
}

bool is_stub_path(const char* path) { return strstr(path, "/stubs/") != nullptr; }

// A 64-bit shared object for this machine that is neither a stub nor we.
bool usable(const char* path, bool explicit_choice) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  Elf64_Ehdr header;
  struct stat st, own;
  bool good = read(fd, &header, sizeof header) == static_cast<ssize_t>(sizeof header) &&
              memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
              header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_type == ET_DYN &&
              header.e_machine == EM_X86_64 && fstat(fd, &st) == 0;
  close(fd);
  if (!good) return false;
  if (own_file(&own) && own.st_dev == st.st_dev && own.st_ino == st.st_ino) return false;
  if (explicit_choice) return true;
  char real[4096];
  return !is_stub_path(path) && !(realpath(path, real) && is_stub_path(real));
}

bool try_folder(const char* folder, size_t n, char* path, size_t room) {
  if (n == 0 || n + sizeof kSoname + 2 > room) return false;
  memcpy(path, folder, n);
  path[n] = '/';
  memcpy(path + n + 1, kSoname, sizeof kSoname);
  return usable(path, false);
}

bool try_list(const char* list, char* path, size_t room) {
  while (list && *list) {
    size_t n = strcspn(list, ":;");
    if (try_folder(list, n, path, room)) return true;
    list += n + (list[n] != 0);
  }
  return false;
}

// glibc's cache, format "glibc-ld.so.cache1.1", alone or behind the old format.
struct CacheHeader {
  char magic[20];
  uint32_t entries, strings;
  uint32_t unused[5];
};
struct CacheEntry {
  int32_t flags;
  uint32_t key, value, os_version;
  uint64_t hwcap;
};
static_assert(sizeof(CacheHeader) == 48 && sizeof(CacheEntry) == 24);
constexpr int32_t kCacheX8664 = 0x0303;

bool search_cache(const char* bytes, size_t size, char* path, size_t room) {
  const char kMagic[] = "glibc-ld.so.cache1.1";
  auto* at = static_cast<const char*>(memmem(bytes, size, kMagic, 20));
  if (!at) return false;
  size -= static_cast<size_t>(at - bytes);
  if (size < sizeof(CacheHeader)) return false;
  auto* header = reinterpret_cast<const CacheHeader*>(at);
  auto* entry = reinterpret_cast<const CacheEntry*>(header + 1);
  if (header->entries > (size - sizeof *header) / sizeof *entry) return false;
  for (uint32_t i = 0; i < header->entries; i++) {
    const CacheEntry& e = entry[i];
    if (e.flags != kCacheX8664 || e.key >= size || e.value >= size) continue;
    if (strncmp(at + e.key, kSoname, size - e.key) != 0) continue;
    if (strnlen(at + e.value, size - e.value) + 1 > room) continue;
    copy(path, room, at + e.value);
    if (usable(path, false)) return true;
  }
  return false;
}

bool try_cache(char* path, size_t room) {
  int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st;
  bool found = false;
  if (fstat(fd, &st) == 0 && st.st_size > 0) {
    auto size = static_cast<size_t>(st.st_size);
    void* p = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p != MAP_FAILED) {
      found = search_cache(static_cast<const char*>(p), size, path, room);
      munmap(p, size);
    }
  }
  close(fd);
  return found;
}

}  // namespace

bool realm_find_driver(char* path, size_t room) {
  const char* chosen = getenv("GPUCKPT_DRIVER");
  if (chosen && *chosen) {
    copy(path, room, chosen);
    if (usable(path, true)) return true;
    log_line(LogLevel::kWarn,
             "gpuckpt: GPUCKPT_DRIVER=%s is no driver library that can be used; looking elsewhere",
             chosen);
  }
  if (try_list(getenv("LD_LIBRARY_PATH"), path, room)) return true;
  if (try_cache(path, room)) return true;
  for (const char* folder : kFolders)
    if (try_folder(folder, strlen(folder), path, room)) return true;
  return false;
}

}  // namespace gpuckpt
