// Edge-triggered entries of an epoll set: the kernel does not show whether an entry has been
// reported since it became ready. So the set is asked for its events, and each entry that this
// disarms is armed again, which puts it where it was: among those that will be reported.
//
// Owner: the caller's entries. Threads: PARKED, and no process outside the snapshot waits for the
// set. Errors: none; where it cannot be told, the entries stay as they are.
#pragma once

#include "gpuckpt/process_format.h"

namespace gpuckpt {

// Sets EpollEntry::reported. Every entry must go by the number that it was registered by.
void note_reported_edges(int set, process::EpollEntry* entries, uint32_t count);

}  // namespace gpuckpt
