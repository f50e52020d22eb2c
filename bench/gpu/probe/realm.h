// Loads a driver and watches, or takes over, everything it asks of libc (probe only: no product
// code).
//
// The driver imports nothing but libc, through its own GOT, so rewriting its GOT slots shows the
// complete list of what it registers with the process: heap blocks, mappings, descriptors, threads,
// keys, exit handlers, ioctls. With `isolate` its heap also becomes a private region at a fixed
// address, and a copy of its writable segments is kept from before cuInit, so that rewind() can put
// it back to the state of a fresh process.
#pragma once

#include <cstdint>
#include <cstdio>

namespace probe {

struct RealmOptions {
  bool isolate = true;   // private heap; false: only watch
  bool unmap = true;     // rewind() unmaps the driver's mappings; false: leaves them in place
  bool scribble = true;  // rewind() fills the old private heap with 0xEE
};

// Finds the driver: $PROBE_DRIVER, else LD_LIBRARY_PATH, ld.so.cache, usual folders. Empty when
// there is none.
const char* find_driver();

// dlopens and rewrites. Returns the handle, or nullptr with a line on stderr.
void* realm_load(const char* path, const RealmOptions& options);

// In a fork()ed child, where the driver's threads are gone as after a restore.
void realm_rewind();

// Says which driver call the current thread is in (the door sets it); -1: none.
extern int (*realm_current_call)();
extern const char* (*realm_call_name)(int);

// Everything seen so far as one JSON object.
void realm_report(FILE* out);

uint64_t realm_heap_used();

}  // namespace probe
