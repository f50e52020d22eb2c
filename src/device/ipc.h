// Memory of cuMemAlloc in other processes (cuIpc*). Ours is virtual memory, for which the driver
// gives no such handles: a handle of ours says which process has the memory, and under which number
// that process hands out a descriptor for it (common/handover.h). Who opens it maps that memory.
//
// While memory is shared a snapshot is refused by name.
#pragma once

#include <cstdint>

namespace gpuckpt::device {

// Null, or why not.
const char* ipc_refusal();

// What a program asks about memory that it opened.
bool find_opened(uint64_t address, uint64_t* begin, uint64_t* size);

// A chunk of an arena is given back. Its device's lock is held.
void ipc_forget_chunk(uint64_t begin);
// A restored process: descriptors of the last one are nobody's.
void ipc_forget_all();

}  // namespace gpuckpt::device
