// What a process is before its threads, descriptors and memory: ids, clocks, settings of the kernel
// for it, its working directory, the processor it runs on.
//
// Owner: the Capture. Threads: PARKED, on the I/O thread. Errors: the Capture's failure.
#pragma once

#include "snapshot/process/capture.h"

namespace gpuckpt {

// Returns false if the snapshot is refused.
bool put_process_head(Capture*, Records*, bool device_present);

// The four numbers of a line ("Uid:") of /proc/PID/status.
void read_ids(const char* status, const char* field, uint32_t (&to)[4]);

}  // namespace gpuckpt
