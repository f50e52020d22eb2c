// What the test build of the library lets its test programs do from outside.
//
// Owner: the test library, for its life. Threads: the test's; as the functions behind them say.
// Errors: as the functions behind them.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct TestControl {
  bool (*gate_close)(uint64_t deadline_ns, int* tid, const char** function);
  void (*gate_open)();
  bool (*gate_closed)();
  uint32_t (*generation)();
  void (*new_generation)();  // the gate alone
  void (*set_establish)(void (*)(uint32_t context_count, void** context));
  int (*records)();
  void (*rewind)();
  bool (*owns)(uint64_t, uint64_t);
  bool (*owns_fd)(int);
  bool (*driver_thread)(int, uint64_t*, uint64_t*);
  const char* (*unknown_imports)();
  uint64_t (*heap_bytes)();
  uint64_t (*heap_high_water)();
  bool (*heap_contains)(const void*);
  void (*bind_stream)(void* name, void* now);
  int (*refusals)(const char** names, int room);
  const char* (*driver_path)();
};
