// What processes without common memory may have in common: the table of descriptors (CLONE_FILES),
// which a restore cannot give them, and the folders, root and working (CLONE_FS), which it gives to
// a process and its parent. The kernel only compares two at a time (kcmp); it puts them in an
// order, though, by which one process of a job sorts all.
//
// Owner: none. Threads: PARKED. Errors: the Capture's failure; what the kernel does not compare for
// any process is taken to be apart.
#pragma once

#include <cstdint>

namespace gpuckpt {

struct Capture;

// Room for the order: of each process, by its place. Zero at first.
struct SharingTree {
  uint32_t less, greater;  // branches, as places + 1; 0: none
  uint32_t first;          // the first one it shares with, or itself, as a place + 1
  uint32_t root;  // of such a first one: that of them which has it from no parent, likewise
};

// Has the process the folders of its parent, which a restore brings back as well?
bool shares_folders(int parent, int pid);

// In the process that leads, for all of the job; other processes have nothing to do. False:
// refused.
bool check_sharing(Capture*);
// When the leader is done: a process that the leader may not look at compares itself with all.
bool check_own_sharing(Capture*);

}  // namespace gpuckpt
