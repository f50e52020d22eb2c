// What generated/wrappers.cc uses.
//
// Owner: none; the context stack is its thread's record. Threads: the calling thread of the
// application, inside the gate. Errors: the driver's result.
#pragma once

#include "intercept/gate/gate.h"
#include "intercept/gate/launch_note.h"
#include "intercept/gate/refuse.h"
#include "intercept/gate/use_note.h"
#include "intercept/generated/custom_hooks.h"
#include "intercept/generated/functions.h"
#include "intercept/generated/real_driver.h"
#include "intercept/translate/struct_names.h"
#include "intercept/translate/translate.h"

#define GPUCKPT_DRIVER_SYMBOL __attribute__((visibility("default")))

namespace gpuckpt {

// A call ran out of device memory, and the library held some and has released it: the wrapper makes
// the call once more. The stage of a snapshot is such memory (src/device).
inline bool no_memory(CUresult result) {
  return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) && hook_table.give_memory_back();
}

// Before a call that makes the driver load the code of `function` (the application's value), when
// it has not loaded it yet. Calls within the driver's calls are its own business.
inline void use(const ThreadRecord* thread, CUfunction function) {
  const uint64_t context =
      thread->context_count ? handle_bits(thread->context[thread->context_count - 1]) : 0;
  if (__builtin_expect(is_used(handle_bits(function), context), 1) || thread->depth != 1) return;
  hook_table.first_use(function);
  note_used(handle_bits(function), context);
}

inline CUresult beyond_allocation(CUdeviceptr address, uint64_t bytes) {
  return hook_table.leaves_allocation(address, bytes);
}
inline uint64_t rows_bytes(uint64_t pitch, uint64_t width, uint64_t height) {
  return height && width ? pitch * (height - 1) + width : 0;
}
inline CUresult beyond_allocation(const CUDA_MEMCPY2D* c, bool source) {
  const CUmemorytype type = !c ? CU_MEMORYTYPE_HOST : source ? c->srcMemoryType : c->dstMemoryType;
  if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return CUDA_SUCCESS;
  uint64_t pitch = source ? c->srcPitch : c->dstPitch;
  if (!pitch) pitch = c->WidthInBytes;
  const uint64_t start = source ? c->srcDevice + c->srcY * pitch + c->srcXInBytes
                                : c->dstDevice + c->dstY * pitch + c->dstXInBytes;
  return beyond_allocation(start, rows_bytes(pitch, c->WidthInBytes, c->Height));
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
