// restore --lazy: the program runs before its memory is restored, and gets each page when it
// touches it. Large anonymous mappings are registered with a userfaultfd of the new process; a
// helper process of ours (the pager) answers every page fault from the store, reads everything else
// in the background, and ends when no page is missing any more.
//
// What the program does to memory that is still missing (unmap, move, discard, fork) reaches the
// pager as events, and the kernel lets no call continue before its event was read. That, and that
// the kernel's own accesses (read(2) into such memory) wait as the program's do, needs
// CAP_SYS_PTRACE: without it all pages are read first, and a warning says so. Not used with new
// thread ids either, where all memory is searched for the owners of mutexes.
//
// The pager is a process of its own, so that killing `gpuckpt restore` does not take the rest of
// the program's memory away. If the pager ends too early, `gpuckpt restore` kills the program,
// which must never see zeros where it had data. File mappings, shared memory, small mappings and
// device memory are restored before the program runs.
//
// Owner: the supervisor, which waits for the process. Threads: the caller's; the pager has its
// own. Errors: a Status; nothing is registered then.
#pragma once

#include <linux/userfaultfd.h>
#include <sys/types.h>

#include <vector>

#include "restore/supervisor/fill.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

// The events that a userfaultfd must report; without CAP_SYS_PTRACE the kernel denies the first.
constexpr uint64_t kPagerFeatures = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
                                    UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;

// Registers the ranges with `uffd` (of the new process, no API handshake yet) and starts the pager,
// which closes `others`. Refused: this kernel or user cannot; nothing is registered then.
store::Status start_pager(const store::SnapshotReader&, const std::vector<AddressRange>&,
                          unsigned threads, const Fd& uffd, const std::vector<int>& others,
                          pid_t* pager);

}  // namespace gpuckpt::restore
