// Pages that processes of a job have in common (common_pages.h) come back in common because all
// processes are forked from one that has them: this one. They lie here at the addresses that they
// have in the program, or elsewhere where that range is taken by the restore driver's own memory,
// and the launcher moves them. A process that inherits some of them cannot become the program by
// execve, which releases all memory: the launcher's code is read into it and called.
//
// Owner: the calling process, and those forked from it. Threads: one, but for reading the store.
// Errors: a Status, or an errno.
#pragma once

#include "restore/driver/tree.h"

namespace gpuckpt::restore {

// Maps and reads what Tree::common says, into this process, and tells the members of it
// (Memory::inherited). What has no room is forgotten: it comes back to each process by itself.
store::Status load_common_memory(Tree*, unsigned threads);

// In a process that needs none of it (any more).
void drop_common_memory(const Tree&);

// In the process that becomes member i, when it has its children: only what it inherits is left,
// and is not passed on to processes that it makes for a moment.
void keep_inherited_memory(const Tree&, size_t i);

// The execve of a process that inherits memory: `launcher` is the open program, which gets `plan`
// as its argument. Returns the error if it cannot be done.
int launch_in_place(const Tree&, size_t i, int launcher, int plan);

}  // namespace gpuckpt::restore
