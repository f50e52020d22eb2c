// How a test of the device side ends when a condition is false. _exit: the driver's threads and the
// exit handlers of the application's own libraries are part of what is tested.
//
// Owner: none. Threads: any. Errors: the program exits with 1.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "device/base/settings.h"
#include "intercept/gate/gate.h"
#include "intercept/spec/cuda_types.h"

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "generation %u: line %d: %s\n", gpuckpt::generation(), __LINE__, \
              #condition);                                                             \
      _exit(1);                                                                        \
    }                                                                                  \
  } while (0)
#define OK(call)                                                                                   \
  do {                                                                                             \
    CUresult r_ = (call);                                                                          \
    if (r_ != CUDA_SUCCESS) {                                                                      \
      fprintf(stderr, "generation %u: line %d: %s = %d\n", gpuckpt::generation(), __LINE__, #call, \
              static_cast<int>(r_));                                                               \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)

// A setting that is read once, changed in the middle of the program.
inline void set(const char* name, const char* value) {
  setenv(name, value, 1);
  gpuckpt::device::read_settings();
}
