#include "device/base/jit_options.h"

#include <fcntl.h>

#include "base/syscall.h"

namespace gpuckpt::device {
namespace {

bool lasting(CUjit_option option) {
  switch (static_cast<int>(option)) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_THREADS_PER_BLOCK:  // also an output
      return false;
  }
  return true;
}

}  // namespace

bool keep_options(Vector<Option>* to, unsigned count, const CUjit_option* options, void** values) {
  bool reports = false;
  for (unsigned i = 0; i < count; ++i) {
    int key = static_cast<int>(options[i]);
    if (key == CU_JIT_GLOBAL_SYMBOL_NAMES || key == CU_JIT_GLOBAL_SYMBOL_ADDRESSES)
      registry().refuse("a module was loaded with symbols bound by CU_JIT_GLOBAL_SYMBOL_ADDRESSES");
    else if (lasting(options[i]))
      to->push({key, values ? bits(values[i]) : 0});
    else
      reports = true;
  }
  return reports;
}

FileBytes::FileBytes(const char* path) {
  int fd = sys::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  for (;;) {
    if (size + (1 << 16) > room) {
      room = room ? room * 2 : 1 << 20;
      void* more = allocate(room + 1);
      if (!more) break;
      if (size) __builtin_memcpy(more, bytes, size);
      release(bytes);
      bytes = static_cast<uint8_t*>(more);
    }
    long got = sys::read(fd, bytes + size, room - size);
    if (got <= 0) break;
    size += static_cast<uint64_t>(got);
  }
  sys::close(fd);
}

}  // namespace gpuckpt::device
