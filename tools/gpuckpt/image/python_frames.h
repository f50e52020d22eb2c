// The Python call stacks of a stored process: frames of CPython's own stack, read from the stored
// image.
#pragma once

#include <string>
#include <vector>

#include "image/elf_symbols.h"
#include "image/image_memory.h"

namespace gpuckpt::cli {

struct PythonFrame {
  std::string function;  // qualified name
  std::string file;
  int line = 0;  // 0: unknown
};

class PythonFrames {
 public:
  // Looks for a CPython interpreter in the image. Versions 3.11, 3.12 and 3.13 are understood.
  PythonFrames(const ImageMemory& memory, ElfSymbols* symbols);

  // Innermost first; empty when the thread runs no Python code or there is no such interpreter.
  std::vector<PythonFrame> of_thread(int tid, size_t limit = 64) const;
  // "3.10" when the image has an interpreter whose structures are not known here; else empty.
  const std::string& unknown_version() const { return unknown_version_; }

  // Byte offsets in CPython's structures.
  struct Offsets {
    uint64_t interpreters_head;
    uint64_t interpreter_next, threads_head;
    uint64_t thread_next, native_thread_id, current_frame;
    bool frame_behind_cframe;  // thread state -> cframe -> frame
    uint64_t cframe_frame;     // then: of the frame in the cframe
    uint64_t previous, code, instruction, owner;
    uint64_t file, qualified_name, first_line, line_table, bytecode;
    uint64_t ascii_bytes;  // sizeof(PyASCIIObject)
  };

 private:
  std::vector<PythonFrame> walk(uint64_t frame, size_t limit) const;
  PythonFrame describe(uint64_t frame, uint64_t code) const;
  std::string string_at(uint64_t object) const;

  const ImageMemory& memory_;
  uint64_t runtime_ = 0;  // 0: no interpreter
  Offsets offsets_{};
  std::string unknown_version_;
};

// The line of the instruction `unit` (2 bytes each) by a code object's location table; 0: none.
// Format: CPython, Objects/locations.md.
int line_of_unit(const std::vector<uint8_t>& table, int first_line, uint64_t unit);

}  // namespace gpuckpt::cli
