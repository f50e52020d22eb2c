// Do two processes of a job have the same open file description? The kernel tells (kcmp) only a
// process with the rights of both. A process with fewer rights than another one, or of another
// user, asks one that may compare them and that waits for its own turn meanwhile.
//
// Owner: the job's shared state. Threads: PARKED, the coordinator. Errors: -errno.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuckpt {

// A question, in the memory that the processes of a job share. The asking process holds the lock of
// that memory, so there is one at a time.
struct Comparison {
  enum Stage : uint32_t { kFree, kAsked, kBeingAnswered, kAnswered };
  std::atomic<uint32_t> stage;
  int pid[2], fd[2];
  long answer;
};

// May this thread compare its descriptors with those of every process, whatever its user?
// (CAP_SYS_PTRACE)
bool may_compare_all();

// PARKED, in this process's turn. 0: the same; above: another one; -errno: no process can tell.
long compare_descriptors(int fd, int other_pid, int other_fd);

// PARKED, of a process that may compare with every other one. Answers a question if there is one,
// or waits `us` for one.
void answer_comparisons(uint64_t us);

}  // namespace gpuckpt
