// Warnings of the snapshot that is being taken: the snapshot is complete, but a restore will not
// put back everything, such as a connection or unread events. With any warning the exit code is 3.
//
// Owner: the attempt; forget_warnings() begins anew. Threads: one of ours at a time. Errors: lines
// without room are counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// The lines of one attempt. A member of a job writes them to the shared state, for the leader.
struct Warnings {
  std::atomic<uint32_t> used;
  std::atomic<uint32_t> more;  // lines that had no room
  char text[800];
};

void add_warning(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
// A warning about the whole job or another process: it does not begin with this process's number.
void add_job_warning(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
// In the leader, or in the only process: forgets the last attempt's warnings; appends this one's to
// the text in `to`, one on each line.
void forget_warnings();
void append_warnings(char* to, size_t room);

}  // namespace gpuckpt
