// Names of functions by address, from the symbol tables of ELF files on this machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpuckpt::cli {

class ElfSymbols {
 public:
  // "name+0x12" (demangled) for the function that contains `offset`, counted from the address at
  // which the file's first byte is mapped; empty when the file has no such symbol or cannot be
  // read.
  std::string name(const std::string& path, uint64_t offset);
  // The value of the symbol `symbol` as such an offset; 0: the file does not have it.
  uint64_t offset(const std::string& path, const std::string& symbol);

 private:
  struct Symbol {
    uint64_t start, size;
    bool function;
    std::string name;
  };
  const std::vector<Symbol>& load(const std::string& path);
  std::map<std::string, std::vector<Symbol>> files_;
};

}  // namespace gpuckpt::cli
