// The call stacks of a stored process's threads, unwound from the stored image.
#pragma once

#include <string>
#include <vector>

#include "image/elf_symbols.h"
#include "image/image_memory.h"

namespace gpuckpt::cli {

struct StackFrame {
  uint64_t pc = 0;
  std::string function;  // with offset; empty: unknown
  std::string module;    // path; empty: no file
};

// The frame of `pc`: an instruction (`innermost`) or a return address.
StackFrame frame_at(uint64_t pc, bool innermost, const ImageMemory& memory, ElfSymbols* symbols);

// Unwinds `thread` with libunwind's remote interface over the stored bytes; at most `limit` frames,
// innermost first. Empty when the registers were not stored, or when gpuckpt was built without
// libunwind (see `can_unwind`).
std::vector<StackFrame> stack_of(const process::Thread& thread, const ImageMemory& memory,
                                 ElfSymbols* symbols, size_t limit = 64);
bool can_unwind();

}  // namespace gpuckpt::cli
