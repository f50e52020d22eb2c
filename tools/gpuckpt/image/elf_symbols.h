// Names of functions by address, from the symbol tables of ELF files on this machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpuckpt::cli {

class ElfSymbols {
 public:
  // "name+0x12" (demangled) of the function at `offset` bytes behind the address at which the
  // file's first byte is mapped; empty when the file has no such symbol or cannot be read.
  std::string name(const std::string& path, uint64_t offset);
  // The value of the symbol called `symbol`, as such an offset; 0: not there.
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
