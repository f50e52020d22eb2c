#include "intercept/doors/foreign_driver.h"

#include <elf.h>
#include <link.h>
#include <sys/uio.h>

#include "base/address.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "intercept/realm/realm.h"

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));

namespace gpuckpt {
namespace {

constexpr char kSoname[] = "libcuda.so.1";

// Files whose beginning was looked at and is no driver's. A snapshot comes again and again, and
// most of what is mapped stays.
struct Seen {
  uint64_t start, device, inode;
};
constexpr size_t kSeen = 4096;
constinit Seen seen[kSeen] = {};

// Where the file of the latest lines begins; its code comes in one of the next.
constinit Seen beginning = {};

// Memory that may not be there: a file can be shorter than its mapping.
bool read(uint64_t address, void* bytes, size_t count) {
  iovec here{bytes, count}, there{reinterpret_cast<void*>(address), count};
  return sys::call(SYS_process_vm_readv, sys::getpid(), sys::ptr(&here), 1, sys::ptr(&there), 1,
                   0) == static_cast<long>(count);
}

// Where the dynamic section of the object at `start` lies, and how far its addresses are off.
bool find_dynamic(uint64_t start, uint64_t* dynamic, uint64_t* bias) {
  Elf64_Ehdr header;
  Elf64_Phdr segment[24];
  if (!read(start, &header, sizeof header) ||
      __builtin_memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_type != ET_DYN ||
      header.e_phnum > 24 ||
      !read(start + header.e_phoff, segment, header.e_phnum * sizeof segment[0]))
    return false;
  *dynamic = 0;
  bool loads = false;
  for (int i = 0; i < header.e_phnum; ++i) {
    if (segment[i].p_type == PT_LOAD && !loads)
      *bias = start - page_down(segment[i].p_vaddr), loads = true;
    if (segment[i].p_type == PT_DYNAMIC) *dynamic = segment[i].p_vaddr;
  }
  *dynamic += *bias;
  return loads && *dynamic != *bias;
}

bool has_soname_of_a_driver(uint64_t start) {
  uint64_t dynamic, bias, name = ~0ull, strings = 0;
  if (!find_dynamic(start, &dynamic, &bias)) return false;
  for (int i = 0; i < 256; ++i) {
    Elf64_Dyn entry;
    if (!read(dynamic + i * sizeof entry, &entry, sizeof entry) || entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SONAME) name = entry.d_un.d_val;
    if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
  }
  if (name == ~0ull || !strings) return false;
  if (strings < start) strings += bias;  // ld.so has not made it an address
  char text[sizeof kSoname];
  return read(strings + name, text, sizeof text) && text[sizeof text - 1] == 0 &&
         equal(text, kSoname);
}

bool named_as_a_driver(const char* path) {
  const char* base = path;
  for (const char* c = path; *c; ++c)
    if (*c == '/') base = c + 1;
  return starts_with(base, "libcuda.so");
}

// A stub for linkers: it does nothing in any program.
bool is_stub(const char* path) {
  constexpr char kFolder[] = "/stubs/";
  for (; *path; ++path)
    if (starts_with(path, kFolder)) return true;
  return false;
}

bool is_foreign(uint64_t start, const char* path) {
  return start != reinterpret_cast<uint64_t>(__ehdr_start) && !realm_has_object(start) &&
         !is_stub(path) && (named_as_a_driver(path) || has_soname_of_a_driver(start));
}

bool same(const Seen& a, const Seen& b) {
  return a.start == b.start && a.device == b.device && a.inode == b.inode;
}

}  // namespace

bool foreign_driver(const MapsLine& line) {
  if (!line.ino || line.shared) return false;
  const Seen file{line.start, line.device(), line.ino};
  if (line.offset == 0) beginning = file;
  // Only of code: looking at the beginning of other mappings would make pages of theirs.
  if (!line.exec || beginning.inode != file.inode || beginning.device != file.device) return false;
  Seen& known = seen[(beginning.start >> 12 ^ beginning.inode) % kSeen];
  if (same(known, beginning)) return false;
  if (is_foreign(beginning.start, line.name)) return true;
  known = beginning;
  return false;
}

}  // namespace gpuckpt
