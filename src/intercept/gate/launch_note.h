// What was queued last on which stream: a small lossy table, written by the wrappers without any
// lock (a few relaxed stores), read only to name the culprit when a stream does not become idle
// before a deadline.
//
// Owner: process-wide. Threads: any, without locks. Errors: none; what is lost makes a message less
// exact.
#pragma once

#include "intercept/spec/cuda_types.h"

#include <atomic>
#include <cstdint>

namespace gpuckpt {

struct LaunchNote {
  std::atomic<uint64_t> stream;  // the driver's handle
  std::atomic<uint64_t>
      function;                // of the last kernel: CUfunction or CUkernel, the driver's handle
  std::atomic<uint32_t> call;  // FunctionId + 1 of what was queued behind it (a copy, a host
                               // function, a wait), 0: nothing
};
inline constexpr uint32_t kLaunchNotes = 256;
extern LaunchNote launch_notes[kLaunchNotes];

inline LaunchNote& launch_note_of(uint64_t stream) {
  return launch_notes[(stream * 0x9e3779b97f4a7c15ull) >> 56];
}
inline void note_launch(CUstream stream, CUfunction function) {
  auto key = reinterpret_cast<uint64_t>(stream);
  LaunchNote& note = launch_note_of(key);
  note.stream.store(key, std::memory_order_relaxed);
  note.function.store(reinterpret_cast<uint64_t>(function), std::memory_order_relaxed);
  note.call.store(0, std::memory_order_relaxed);
}
inline void note_queued(CUstream stream, uint32_t function_id) {
  auto key = reinterpret_cast<uint64_t>(stream);
  LaunchNote& note = launch_note_of(key);
  if (note.stream.load(std::memory_order_relaxed) != key) {
    note.function.store(0, std::memory_order_relaxed);
    note.stream.store(key, std::memory_order_relaxed);
  }
  note.call.store(function_id + 1, std::memory_order_relaxed);
}

}  // namespace gpuckpt
