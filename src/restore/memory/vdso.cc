#include "restore/memory/vdso.h"

#include <elf.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include <algorithm>
#include <map>
#include <span>

#include "store/io/process_identity.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

using Functions = std::map<std::string, uint64_t>;  // offsets from the start of the vdso
using Code = std::vector<uint8_t>;

template <typename T>
const T* at(const uint8_t* bytes, size_t size, uint64_t offset, uint64_t count = 1) {
  if (offset % alignof(T) || offset > size || count > (size - offset) / sizeof(T)) return nullptr;
  return reinterpret_cast<const T*>(bytes + offset);
}

// The functions that a vdso exports. Section headers are in it (kernels strip debugging information
// only), and the image was not checked before: empty when anything is not as expected.
Functions functions_of(const uint8_t* bytes, size_t size) {
  Functions out;
  const auto* head = at<Elf64_Ehdr>(bytes, size, 0);
  if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_machine != EM_X86_64)
    return out;
  const auto* programs = at<Elf64_Phdr>(bytes, size, head->e_phoff, head->e_phnum);
  const auto* sections = at<Elf64_Shdr>(bytes, size, head->e_shoff, head->e_shnum);
  if (!programs || !sections) return out;
  uint64_t base = ~0ull;  // linked at 0, at ffffffffff700000 by old kernels
  for (int i = 0; i < head->e_phnum; ++i)
    if (programs[i].p_type == PT_LOAD) base = std::min<uint64_t>(base, programs[i].p_vaddr);
  for (int i = 0; i < head->e_shnum; ++i) {
    const Elf64_Shdr& s = sections[i];
    if (s.sh_type != SHT_DYNSYM || s.sh_link >= head->e_shnum) continue;
    const uint64_t count = s.sh_size / sizeof(Elf64_Sym);
    const auto* symbols = at<Elf64_Sym>(bytes, size, s.sh_offset, count);
    const Elf64_Shdr& strings = sections[s.sh_link];
    const char* names = at<char>(bytes, size, strings.sh_offset, strings.sh_size);
    if (!symbols || !names || !strings.sh_size || names[strings.sh_size - 1]) return {};
    for (uint64_t k = 0; k < count; ++k) {
      const Elf64_Sym& f = symbols[k];
      const int type = ELF64_ST_TYPE(f.st_info);
      if ((type != STT_FUNC && type != STT_NOTYPE) || f.st_shndx == SHN_UNDEF ||
          f.st_shndx == SHN_ABS || f.st_name >= strings.sh_size)
        continue;
      const uint64_t offset = f.st_value - base;
      if (offset < size) out[names + f.st_name] = offset;
    }
  }
  return out;
}

// This kernel's. Whole pages are mapped; the sections are the last of what is in them.
std::span<const uint8_t> vdso_here() {
  const auto* at = reinterpret_cast<const uint8_t*>(getauxval(AT_SYSINFO_EHDR));
  if (!at) return {};
  const auto* head = reinterpret_cast<const Elf64_Ehdr*>(at);
  return {at, head->e_shoff + size_t{head->e_shnum} * head->e_shentsize};
}

const Functions& functions_here() {
  static const Functions here = functions_of(vdso_here().data(), vdso_here().size());
  return here;
}

Code jump_to(uint64_t address) {
  Code code = {0x49, 0xbb};  // movabs $address, %r11
  for (int i = 0; i < 8; ++i) code.push_back(static_cast<uint8_t>(address >> 8 * i));
  for (uint8_t b : {0x41, 0xff, 0xe3}) code.push_back(b);  // jmp *%r11
  return code;
}

// C's arguments are the system call's (at most three are used: the fourth register differs).
Code call_kernel(uint32_t number) {
  Code code = {0xb8};  // mov $number, %eax
  for (int i = 0; i < 4; ++i) code.push_back(static_cast<uint8_t>(number >> 8 * i));
  for (uint8_t b : {0x0f, 0x05, 0xc3}) code.push_back(b);  // syscall; ret
  return code;
}

// What takes the place of a function. Random numbers come from the kernel always: the state that
// the program keeps for them is of another kernel's making.
Code instead_of(const std::string& name, uint64_t vdso_at) {
  const std::string plain = name.rfind("__vdso_", 0) == 0 ? name.substr(7) : name;
  if (plain == "getrandom") return call_kernel(SYS_getrandom);
  if (auto it = functions_here().find(name); it != functions_here().end())
    return jump_to(vdso_at + it->second);
  static const std::map<std::string, uint32_t> calls = {{"clock_gettime", SYS_clock_gettime},
                                                        {"clock_getres", SYS_clock_getres},
                                                        {"gettimeofday", SYS_gettimeofday},
                                                        {"time", SYS_time},
                                                        {"getcpu", SYS_getcpu}};
  if (auto it = calls.find(plain); it != calls.end()) return call_kernel(it->second);
  return {0xb8, 0xda, 0xff, 0xff, 0xff, 0xc3};  // mov $-ENOSYS, %eax; ret
}

// Writes them over the old ones. False: two are too close together, or there are none.
bool replace_functions(std::vector<uint8_t>* bytes, uint64_t vdso_at) {
  const Functions old = functions_of(bytes->data(), bytes->size());
  std::map<uint64_t, Code> codes;
  for (const auto& [name, offset] : old) {
    Code code = instead_of(name, vdso_at);
    // The same function by two names: "clock_gettime" is a weak one for "__vdso_clock_gettime".
    auto [it, first] = codes.emplace(offset, code);
    if (!first && it->second.size() < code.size()) it->second = code;
  }
  uint64_t free_from = 0;
  for (const auto& [offset, code] : codes) {
    if (offset < free_from || offset + code.size() > bytes->size()) return false;
    memcpy(bytes->data() + offset, code.data(), code.size());
    free_from = offset + code.size();
  }
  return !codes.empty();
}

}  // namespace

bool same_vdso(const Image& image) {
  const std::span<const uint8_t> here = vdso_here();
  // Not beyond what this kernel has: a longer one is another one.
  return !here.empty() && here.size() <= image.vdso_bytes.size() &&
         memcmp(here.data(), image.vdso_bytes.data(), here.size()) == 0;
}

bool has_vdso(const Image& image) { return image.vdso.vdso_start < image.vdso.vdso_end; }

bool is_of_this_boot(const Image& image) { return store::boot_id() == image.head.boot_id; }

std::string vdso_mismatch(const Image& image) {
  // Given up by the program, or written to by it: what it was under is this very kernel.
  if (!has_vdso(image) || same_vdso(image) || is_of_this_boot(image)) return "";
  const std::string kernel = "(kernel " + std::string(image.head.kernel) + ")";
  for (const Thread& t : image.threads)
    if (t.flags & kThreadInVdso)
      return "thread " + std::to_string(t.tid) +
             " was in the middle of asking the kernel it ran under for the time " + kernel +
             "; restore another snapshot, or restore on that kernel";
  std::vector<uint8_t> bytes = image.vdso_bytes;
  if (functions_here().empty() || !replace_functions(&bytes, 0))
    return "the functions that the program's kernel had in its vdso " + kernel +
           " cannot be led to this kernel's; restore on that kernel";
  return "";
}

std::vector<uint8_t> vdso_of_jumps(const Image& image, uint64_t vdso_at) {
  std::vector<uint8_t> bytes = image.vdso_bytes;
  replace_functions(&bytes, vdso_at);
  return bytes;
}

}  // namespace gpuckpt::restore
