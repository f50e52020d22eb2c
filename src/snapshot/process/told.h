// What the user must know of the snapshot that is being taken although it is complete: a connection
// that a restore finds reset, events that it drops. With any of it the exit code is 3.
//
// Owner: the attempt; forget_told() begins anew. Threads: one of ours at a time. Errors: lines
// without room are counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// Lines, of one attempt. In a member of a job they lie in the state that all share, for the leader.
struct Told {
  std::atomic<uint32_t> used;
  std::atomic<uint32_t> more;  // lines that had no room
  char text[800];
};

void tell(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
// The same of the job as a whole, or with processes of its own: without the number of this one.
void tell_of_job(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
// In the leader, or in the only process.
void forget_told();
void add_told(char* to, size_t room);

}  // namespace gpuckpt
