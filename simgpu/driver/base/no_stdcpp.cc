// The few functions of the C++ run time that our code needs, on libc alone. Those of libstdc++.a
// would bring exceptions with them, and thereby thread-local storage, which the real driver does
// not have either. They are weak, because other objects linked into the same library may have their
// own. The version script keeps them hidden.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <new>

#define SIMGPU_WEAK __attribute__((weak))

namespace {
[[noreturn]] void die(const char* what) {
  char line[128];
  int n = snprintf(line, sizeof line, "simgpu: %s\n", what);
  if (n > 0 && write(2, line, static_cast<size_t>(n)) < 0) abort();
  abort();
}
void* get(size_t n) {
  void* p = malloc(n != 0 ? n : 1);
  if (!p) die("out of host memory");
  return p;
}
}  // namespace

SIMGPU_WEAK void* operator new(size_t n) { return get(n); }
SIMGPU_WEAK void* operator new[](size_t n) { return get(n); }
SIMGPU_WEAK void operator delete(void* p) noexcept { free(p); }
SIMGPU_WEAK void operator delete[](void* p) noexcept { free(p); }
SIMGPU_WEAK void operator delete(void* p, size_t) noexcept { free(p); }
SIMGPU_WEAK void operator delete[](void* p, size_t) noexcept { free(p); }

extern "C" SIMGPU_WEAK void __cxa_pure_virtual() { die("pure virtual call"); }

namespace std {
SIMGPU_WEAK void __throw_length_error(const char* what) { die(what); }
SIMGPU_WEAK void __throw_logic_error(const char* what) { die(what); }
SIMGPU_WEAK void __throw_out_of_range(const char* what) { die(what); }
SIMGPU_WEAK void __throw_out_of_range_fmt(const char* what, ...) { die(what); }
SIMGPU_WEAK void __throw_bad_alloc() { die("out of host memory"); }
SIMGPU_WEAK void __throw_bad_array_new_length() { die("allocation too large"); }
}  // namespace std
