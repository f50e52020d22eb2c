// Pages that processes of a job share (common_pages.h) are shared again because all processes are
// forked from this one, which has them. They are at the addresses that they have in the program, or
// elsewhere where the supervisor's own memory occupies that range, and the launcher moves them.
// A process that inherits some of them cannot become the program by execve, which releases all
// memory: the launcher's code is loaded into it and called.
//
// Owner: the calling process, and those forked from it. Threads: one, but for reading the store.
// Errors: a Status, or an errno.
#pragma once

#include "restore/image/tree.h"

namespace gpuckpt::restore {

// Maps and reads the regions of Tree::common into this process, and records them in the members
// (Memory::inherited). Regions for which there is no room are dropped: each process restores those
// pages itself.
store::Status load_common_memory(Tree*, unsigned threads);

// Called in a process that needs none of it (any more).
void drop_common_memory(const Tree&);

// Called in the process that becomes member i, when it has its children: keeps only what it
// inherits, and does not pass that on to temporary processes.
void keep_inherited_memory(const Tree&, size_t i);

// The replacement of execve for a process that inherits memory: `launcher` is the open program,
// which gets `plan` as its argument. Returns the error if it cannot be done.
int launch_in_place(const Tree&, size_t i, int launcher, int plan);

}  // namespace gpuckpt::restore
