// Who belongs to this process: its ancestors that run under the library, and its descendants. Reads
// /proc; nothing is remembered between snapshots.
//
// The root of a job is the highest ancestor reached without leaving processes that listen to us. A
// snapshot of a job is taken by its root, whoever of its processes was asked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

struct Relative {
  int pid, ppid, pgid, sid;
  char state;  // as /proc/PID/stat has it; Z: ended, its parent has not looked
  char name[16];
};

// False: there is no such process.
bool look_at(int pid, Relative* out);

// Has this process any child at all, living or ended? One system call.
bool has_children();

// Does the process have the library, and has it come so far that it listens to our signal?
bool listens(int pid);

// The root of the job that `pid` belongs to; `pid` itself when its parent does not listen.
int find_root(int pid);

// The descendants of `root`, parents before their children, without processes of ours (copies,
// writers). Returns how many; 0 as well when /proc cannot be read.
size_t find_family(int root, Relative* out, size_t room);

}  // namespace gpuckpt
