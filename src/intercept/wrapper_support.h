// What generated/wrappers.cc uses.
#pragma once

#include "intercept/gate.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/functions.h"
#include "intercept/generated/real_driver.h"
#include "intercept/refuse.h"
#include "intercept/struct_names.h"
#include "intercept/translate.h"
#if __has_include("device/launch_note.h")
#include "device/launch_note.h"
#else
namespace gpuckpt {
inline void note_launch(CUstream, CUfunction) {}
inline void note_queued(CUstream, uint32_t) {}
}  // namespace gpuckpt
#endif

#define GPUCKPT_DRIVER_SYMBOL __attribute__((visibility("default")))

namespace gpuckpt {

// A call failed for want of device memory, and there was some that we held: the call is made once
// more. The stage of a snapshot is such memory (src/device).
bool give_memory_back() __attribute__((weak, visibility("hidden")));
inline bool no_memory(CUresult result) {
  return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) && give_memory_back &&
         give_memory_back();
}

// The stack of current contexts as the application made it, in names (the driver's rules: set
// replaces the top, NULL pops it; destroying the current context pops it).
inline void context_push(ThreadRecord* t, CUcontext name) {
  if (t->context_count < kMaxContexts) t->context[t->context_count++] = name;
}
inline void context_pop(ThreadRecord* t) {
  if (t->context_count) t->context_count--;
}
inline void context_set(ThreadRecord* t, CUcontext name) {
  if (!name) return context_pop(t);
  if (!t->context_count) t->context_count = 1;
  t->context[t->context_count - 1] = name;
}
inline void context_destroy(ThreadRecord* t, CUcontext name) {
  if (t->context_count && t->context[t->context_count - 1] == name) t->context_count--;
}

}  // namespace gpuckpt
