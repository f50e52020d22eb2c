// What the threads were seen to be before they are asked to park. Most threads of a program with
// many of them sleep: what such a thread is (/proc/self/task/TID/syscall and status, which the
// kernel takes longer to write than for all else that is asked of it) is the same in the stop, if
// it has not run since.
//
// Owner: Parking. Threads: look() and forget() on one of ours while the program runs, of() also
// while threads are being parked. Errors: a thread that is not known is looked at in the stop.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/hash/hash_index.h"
#include "base/heap.h"
#include "snapshot/park/eintr.h"
#include "snapshot/threads/thread_status.h"

namespace gpuckpt {

struct SeenThread {
  int tid;
  uint64_t processor_ns;  // that it had used
  uint64_t sleeps;        // how often it had gone to sleep
  SyscallState call;      // in which it slept
  ThreadStatus status;
};

class SeenThreads {
 public:
  // Looks at all threads but `own` ones.
  void look(const int* own, int own_count);
  void forget();
  void forget_memory() { *this = SeenThreads{}; }  // which is not there any more

  // What is known of a thread that has not run since; null: nothing.
  const SeenThread* of(int tid) const;
  // What a change of one thread for all of them (SECCOMP_FILTER_FLAG_TSYNC) shows in.
  const ThreadStatus& own() const { return own_; }

 private:
  static constexpr uint32_t kMost = 16384;
  void add(int tid, ProcFolder* tasks);
  Region memory_{};
  SeenThread* threads_ = nullptr;
  HashIndex by_tid_;
  uint32_t count_ = 0;
  ThreadStatus own_{};
  char own_text_[8192] = {};
};

// What a thread of this process does in the kernel; nr is -1 when it does not sleep there. False:
// there is no such thread. `tasks`: /proc/self/task.
bool read_syscall(ProcFolder* tasks, int tid, SyscallState*);

}  // namespace gpuckpt
