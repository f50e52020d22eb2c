#include "image/elf_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace gpuckpt::cli {
namespace {

// A file mapped for reading, with every access checked, because it may be no ELF file at all.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) {
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
      void* p = mmap(nullptr, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
      if (p != MAP_FAILED) bytes_ = static_cast<const char*>(p), size_ = st.st_size;
    }
    if (fd >= 0) close(fd);
  }
  ~ElfFile() {
    if (bytes_) munmap(const_cast<char*>(bytes_), size_);
  }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  template <typename T>
  bool get(uint64_t at, T* out) const {
    if (at > size_ || size_ - at < sizeof(T)) return false;
    memcpy(out, bytes_ + at, sizeof(T));
    return true;
  }
  std::string text(uint64_t at) const {
    return at < size_ ? std::string(bytes_ + at, strnlen(bytes_ + at, size_ - at)) : "";
  }

 private:
  const char* bytes_ = nullptr;
  uint64_t size_ = 0;
};

std::string demangle(const std::string& name) {
  int status = 0;
  char* plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 && plain ? plain : name;
  free(plain);
  return out;
}

// The link address of the file's first byte.
uint64_t link_base(const ElfFile& file, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr ph;
    if (!file.get(header.e_phoff + i * sizeof(ph), &ph)) break;
    if (ph.p_type == PT_LOAD) return (ph.p_vaddr - ph.p_offset) & ~4095ull;
  }
  return 0;
}

}  // namespace

const std::vector<ElfSymbols::Symbol>& ElfSymbols::load(const std::string& path) {
  auto [it, fresh] = files_.try_emplace(path);
  std::vector<Symbol>& out = it->second;
  if (!fresh) return out;
  ElfFile file(path);
  Elf64_Ehdr header;
  if (!file.get(0, &header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return out;
  uint64_t base = link_base(file, header);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section, strings;
    if (!file.get(header.e_shoff + i * sizeof(section), &section)) break;
    if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) continue;
    if (!file.get(header.e_shoff + section.sh_link * sizeof(strings), &strings)) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym s;
      if (!file.get(section.sh_offset + at, &s)) break;
      int type = ELF64_ST_TYPE(s.st_info);
      if (s.st_shndx == SHN_UNDEF ||
          (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_OBJECT))
        continue;
      out.push_back({s.st_value - base, s.st_size, type != STT_OBJECT,
                     file.text(strings.sh_offset + s.st_name)});
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Symbol& a, const Symbol& b) { return a.start < b.start; });
  return out;
}

std::string ElfSymbols::name(const std::string& path, uint64_t offset) {
  const std::vector<Symbol>& symbols = load(path);
  auto it = std::upper_bound(symbols.begin(), symbols.end(), offset,
                             [](uint64_t a, const Symbol& s) { return a < s.start; });
  while (it != symbols.begin()) {
    --it;
    if (!it->function) continue;
    // A symbol without a size (hand-written assembly) reaches up to the next one.
    if (it->size && offset >= it->start + it->size) return "";
    uint64_t in = offset - it->start;
    return in ? fmt::format("{}+{:#x}", demangle(it->name), in) : demangle(it->name);
  }
  return "";
}

uint64_t ElfSymbols::offset(const std::string& path, const std::string& symbol) {
  for (const Symbol& s : load(path))
    if (s.name == symbol) return s.start;
  return 0;
}

}  // namespace gpuckpt::cli
