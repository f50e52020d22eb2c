// restore --lazy: the program runs before its memory is restored, and gets each page when it
// touches it. Large anonymous mappings are registered with a userfaultfd of the new process; a
// helper process of ours (the pager) answers every page fault from the store, reads everything else
// in the background, and ends when no page is missing any more.
//
// Where a userfaultfd serves the kernel's own accesses (read(2) into such memory) it needs
// CAP_SYS_PTRACE. An ordinary user's does not: there the pager traces the program
// (traced_program.h), and calls that would need more, fork among them, wait until all is there. Not
// used with new thread ids, where all memory is searched for the owners of mutexes.
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

#include <atomic>
#include <vector>

#include "restore/memory/fill.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

// The events that a userfaultfd must report. Without CAP_SYS_PTRACE the kernel denies that of a
// fork, which therefore waits where the program is traced.
constexpr uint64_t kPagerEvents =
    UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
constexpr uint64_t kPagerForkEvent = UFFD_FEATURE_EVENT_FORK;

// How many processes of a job lack pages: memory that their pagers share.
class ProcessesMissing {
 public:
  ProcessesMissing();
  ~ProcessesMissing();
  ProcessesMissing(const ProcessesMissing&) = delete;
  ProcessesMissing& operator=(const ProcessesMissing&) = delete;
  // Null if there was no memory for the counter.
  std::atomic<int>* count() const { return count_; }

 private:
  std::atomic<int>* count_;
};

// The process whose pages are missing.
struct LazyProcess {
  pid_t pid;
  const Image& image;
  const Fd& uffd;     // no API handshake yet
  bool kernel_waits;  // it serves the kernel's own accesses
};

struct Pager {
  pid_t pid = -1;
  bool traces = false;
  // To be closed when the program runs. Until then the pager stays, also when no page is missing:
  // another descriptor of the userfaultfd is open, by which a thread would wait for it.
  Fd control;
};

// Registers the ranges and starts the pager, which closes `others`. Refused: this kernel or user
// cannot; nothing is registered then.
store::Status start_pager(const LazyProcess&, const store::SnapshotReader&,
                          const std::vector<AddressRange>&, unsigned threads,
                          const ProcessesMissing&, const std::vector<int>& others, Pager* pager);

// All threads of the program wait for permission to run: from now on the pager traces them, where
// it must. Refused: it cannot, and has read all of the memory instead.
store::Status trace_program(const Pager&);

}  // namespace gpuckpt::restore
