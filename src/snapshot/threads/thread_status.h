// What /proc/self/task/TID/status tells of the parked threads, each read at most once: the kernel
// takes longer to write one than for all else that is asked of a thread. Of threads that have not
// run since they were seen before the stop it is known.
//
// Owner: the caller, in the capture's scratch memory. Threads: PARKED, one of ours. Errors: a
// thread whose status cannot be read is not `known`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/procfs/proc.h"
#include "gpuckpt/process_format.h"

namespace gpuckpt {

struct ThreadStatus {
  uint64_t pending, process_pending;  // signals that wait for the thread, for any thread
  process::Capabilities capabilities;
  uint32_t uid[4], gid[4];
  uint32_t no_new_privs, umask;
  bool known;
  uint32_t filters;    // of system calls (seccomp.h)
  bool unseen_filter;  // among them, or one is missing
  bool other_groups;   // than the coordinator has
};

// `text`: the file; `own`: that of the coordinator.
ThreadStatus parse_status(const char* text, const char* own);

struct CaptureScratch;

class ThreadStatuses {
 public:
  explicit ThreadStatuses(CaptureScratch*);  // reads them
  ~ThreadStatuses();
  ThreadStatuses(const ThreadStatuses&) = delete;
  ThreadStatuses& operator=(const ThreadStatuses&) = delete;
  const ThreadStatus& of(size_t i) const { return threads_[i]; }  // parking.thread(i)
  // Of the coordinator, which has what the thread had that made it.
  const ThreadStatus& own() const { return own_; }
  // The supplementary groups of a thread, as decimal numbers with spaces between them, to the end
  // of the line; in `text`.
  const char* groups_of(int tid, char* text, size_t room);

 private:
  ThreadStatus* threads_;
  ThreadStatus own_{};
  bool read_one(int tid, char* text, size_t room);
  bool may_have_changed(const char* own) const;
  ProcFolder tasks_{"/proc/self/task"};
};

}  // namespace gpuckpt
