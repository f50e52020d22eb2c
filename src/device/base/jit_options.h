// The options of a call that compiles or links code, kept so that a replay passes the same ones.
//
// Owner: the object whose options they are; FileBytes owns its bytes. Threads: hooks, the object's
// record is locked by the caller. Errors: FileBytes holds fewer bytes where the file cannot be read
// or memory is short.
#pragma once

#include "device/base/registry.h"

namespace gpuckpt::device {

// Keeps the options that a replay repeats. Those that only report back, or point into the caller's
// memory, are left out; true: there was such a one.
bool keep_options(Vector<Option>* to, unsigned count, const CUjit_option* options, void** values);

// Kept options as a call takes them.
struct JitOptions {
  CUjit_option keys[32];
  void* values[32];
  unsigned count = 0;
  explicit JitOptions(const Vector<Option>& from) {
    for (const Option& o : from) {
      if (count == 32) break;
      keys[count] = static_cast<CUjit_option>(o.key);
      values[count++] = reinterpret_cast<void*>(o.value);
    }
  }
};

// The bytes of a file the driver has just read, with a terminating NUL (PTX text needs it).
struct FileBytes {
  explicit FileBytes(const char* path);
  ~FileBytes() { release(bytes); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  uint8_t* bytes = nullptr;
  uint64_t size = 0, room = 0;
};

}  // namespace gpuckpt::device
