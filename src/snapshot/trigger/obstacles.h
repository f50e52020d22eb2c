// What /proc tells of the threads of a process before one of our signals reaches it: whether the
// signal would kill it, and which process traces it.
//
// Owner: the caller's buffers. Threads: the I/O thread, which may read /proc. Errors: false with a
// text for the user.
#pragma once

#include <cstddef>

namespace gpuckpt {

struct ThreadsSeen {
  int strict = 0;    // a thread in strict seccomp mode; 0: none
  int filtered = 0;  // a thread with a system call filter that its process does not know of
  int traced = 0, tracer = 0;  // a thread that is traced, and its tracer
  char name[16] = "?";         // of the process
};

// Reads the status of every thread of `pid`. On the I/O thread.
ThreadsSeen look_at_threads(int pid);

// May a signal of ours reach the process, and can its threads be stopped? False: `text` says why
// not. `of_the_job` tells of a process whether it takes part in the snapshot.
bool may_be_stopped(int pid, bool (*of_the_job)(int pid), char* text, size_t room);

// Whether process `pid` of the job may be stopped by the helper process of `restore --lazy`, which
// traces the programs of ordinary users and lets each go on as soon as its pages are there.
bool may_be_stopped_by_pager(int pid);

// Does the process run as another user than this one? `text` then names both.
bool runs_as_another(int pid, char* text, size_t room);

// Does a thread of this process sleep inside the kernel (state D), the same sleep as 20 ms ago? No
// signal stops it, and an attempt would delay all others. `text` says which, `vfork` whether it
// waits for a child that it started with vfork.
bool stuck_in_kernel(char* text, size_t room, bool* vfork);

// Does the first thread of the process wait for a child that it started with vfork? Until that
// executes a program or ends, the thread takes no signals.
bool waits_for_vfork(int pid);

}  // namespace gpuckpt
