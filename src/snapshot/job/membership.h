// Which processes belong to this one: its ancestors that run under the library, its descendants,
// and whose parents have ended meanwhile (job_name.h). Reads /proc; nothing is remembered between
// snapshots but which process does not belong to it.
//
// The root of a job is its first process, or the highest ancestor of that reached without leaving
// processes that listen to us; when the first one has ended, the oldest of the others. A snapshot
// of a job is taken by its root, whichever of its processes was asked.
//
// Owner: the caller's lists. Threads: any of ours. Errors: false or 0 where /proc cannot be read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

struct Relative {
  int pid, ppid, pgid, sid;
  uint64_t started;  // clock ticks
  char state;        // as /proc/PID/stat has it; Z: ended, its parent has not looked
  bool orphan;       // no parent of it is in the job; it may still not belong to it (job_name.h)
  char name[16];
};

// Return false if there is no such process.
bool look_at(int pid, Relative* out);
bool look_at_thread(int pid, int tid, Relative* out);

// There is such a process, and it has not ended.
bool lives(int pid);

// Whether this process has any child at all, living or ended. Takes one system call.
bool has_children();

// Whether the process has the library and listens to its signal already.
bool listens(int pid);
// Whether the process has the library, even before the constructor has run: ld.so maps what is
// preloaded first.
bool has_library(int pid);
// The same; `start`: where its file is mapped there.
bool find_library(int pid, uint64_t* start);
// Its first thread is exiting: large memory takes a while to be freed, and its maps are empty
// meanwhile.
bool is_ending(int pid);

// The root of the job that this process belongs to; itself when it is alone.
int find_root();

// The descendants of `root`, parents before their children, without processes of ours (copies,
// writers). Returns how many; 0 as well when /proc cannot be read.
size_t find_descendants(int root, Relative* out, size_t room);
// With those whose parents have ended, and their descendants.
size_t find_job(int root, Relative* out, size_t room);
// Those of the process's session, ended ones as well.
size_t find_session(int session, Relative* out, size_t room);
// Whether the job has any process but this one.
bool has_job();

}  // namespace gpuckpt
