// How much of a snapshot the writer leaves in the page cache.
//
// Owner: none, the result is a value. Threads: any. Errors: what cannot be read counts as without a
// limit (base/procfs/memory_room.h).
#pragma once

#include <cstdint>

#include "arguments.h"

namespace gpuckpt::writer {

// In bytes. A small snapshot stays there, where a restore reads it at once. Of a large one only the
// beginning does: a write through the page cache costs as much processor time as all other work,
// and evicts the files of other programs. A snapshot that is written for a restore (`--for
// restore`) may take more, because reading it from a disk is most of the time of its restore.
uint64_t room_in_page_cache(const Arguments&);

}  // namespace gpuckpt::writer
