// What the readers of module images share: their parts, and words of PTX.
//
// Owner: the caller's bytes. Threads: pure functions. Errors: false, or an empty part.
#pragma once

#include <elf.h>

#include "device/modules/image.h"

namespace gpuckpt::device {

template <typename T>
T load(const void* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

enum class PartKind { kPtx, kElf };
// Calls `visit` for each piece of PTX (its length, without a terminator that is certain) and each
// ELF file in the image, unpacked; the bytes are gone when it returns. False: some part could not
// be read, or `visit` said so.
using PartVisitor = bool (*)(void* context, PartKind kind, const uint8_t* bytes, size_t size);
bool each_part(const ImageView& image, void* context, PartVisitor visit);

bool elf_size(const uint8_t* bytes, uint64_t limit, uint64_t* size);

// An ELF file's tables, every access within its bounds.
class ElfTables {
 public:
  // Returns false if the bytes are no ELF file, or a damaged one.
  bool open(const uint8_t* bytes, size_t length);
  unsigned sections() const;
  Elf64_Shdr section(uint64_t index) const;
  const char* section_name(const Elf64_Shdr& section) const;
  // "" where there is none.
  const char* text(const Elf64_Shdr& table, uint64_t offset) const;
  const uint8_t* contents(const Elf64_Shdr& section) const;  // null: has none
  // f(symbol table, index in it, symbol, name)
  template <typename F>
  void each_symbol(F f) const {
    for (unsigned i = 0; i < sections(); ++i) {
      const Elf64_Shdr table = section(i);
      if (table.sh_type != SHT_SYMTAB || table.sh_entsize < sizeof(Elf64_Sym) ||
          table.sh_link >= sections())
        continue;
      const Elf64_Shdr strings = section(table.sh_link);
      const uint64_t count = table.sh_size / table.sh_entsize;
      for (uint64_t at = 0; at < count; ++at) {
        const auto symbol = load<Elf64_Sym>(contents(table) + at * table.sh_entsize);
        f(table, at, symbol, text(strings, symbol.st_name));
      }
    }
  }

 private:
  const uint8_t* bytes_ = nullptr;
  Elf64_Ehdr header_ = {};
};

inline bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}

// Words (identifiers, numbers, directives with their dot) and single characters; comments and
// strings skipped.
class PtxScanner {
 public:
  PtxScanner(const char* text, size_t length) : at_(text), end_(text + length) {}
  bool next() {
    skip_blank();
    if (at_ == end_ || !*at_) return false;
    word = at_;
    if (is_word(*at_)) {
      while (at_ < end_ && is_word(*at_)) ++at_;
    } else if (*at_ == '"') {
      for (++at_; at_ < end_ && *at_ != '"'; ++at_)
        if (*at_ == '\\' && at_ + 1 < end_) ++at_;
      if (at_ < end_) ++at_;
    } else {
      ++at_;
    }
    length = static_cast<size_t>(at_ - word);
    return true;
  }
  bool is(const char* text) const {
    return __builtin_strlen(text) == length && !__builtin_memcmp(word, text, length);
  }
  const char* word = nullptr;
  size_t length = 0;

 private:
  void skip_blank() {
    while (at_ < end_) {
      if (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r') {
        ++at_;
      } else if (*at_ == '/' && at_ + 1 < end_ && at_[1] == '/') {
        while (at_ < end_ && *at_ != '\n') ++at_;
      } else if (*at_ == '/' && at_ + 1 < end_ && at_[1] == '*') {
        at_ += 2;
        while (at_ + 1 < end_ && !(at_[0] == '*' && at_[1] == '/')) ++at_;
        at_ = at_ + 2 <= end_ ? at_ + 2 : end_;
      } else {
        break;
      }
    }
  }
  const char* at_;
  const char* end_;
};

}  // namespace gpuckpt::device
