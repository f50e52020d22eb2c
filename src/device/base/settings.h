// What the environment says about devices; what it says about hosts is in
// snapshot/trigger/config.cc.
//
// Owner: process-wide. Threads: any. Errors: a value that cannot be read is named in the log.
#pragma once

#include <cstdint>

namespace gpuckpt::device {

struct Settings {
  uint64_t stage = ~uint64_t{0};  // GPUCKPT_STAGE: at most so many bytes of spare device memory
  uint64_t drain_rate = 0;        // GPUCKPT_DRAIN_RATE: bytes a second; 0: as fast as it goes
  bool precopy = true;  // GPUCKPT_PRECOPY: what does not fit the stage goes before the stop
  bool ipc = true;      // GPUCKPT_IPC: memory and events are made so that others can have them
  bool heap_is_empty = false;  // GPUCKPT_DEVICE_HEAP: kernels free what they take from malloc
};

// Any thread. They are read when the library starts, or before, by the thread that calls the driver
// first: later a thread of the program may be changing its environment.
const Settings& settings();
// Reads them, and names in the log what cannot be read.
void read_settings();

}  // namespace gpuckpt::device
