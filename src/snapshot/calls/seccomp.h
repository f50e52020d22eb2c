// Programs that confine themselves by system call filters (seccomp). The kernel shows a filter only
// to a process with CAP_SYS_ADMIN, so each is remembered when libc's prctl, seccomp or syscall sets
// it, in memory that is part of the snapshot; a restored process sets them again just before the
// program runs. A filter that could end the program at one of our system calls makes our handlers
// silent (Library::deaf); one that answers them with errors, or that was not seen, refuses
// snapshots.
//
// Owner: process-wide. Threads: the one that confines itself; the coordinator and the I/O thread
// ask. Errors: a sentence.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// What is known of a process's filters; read in other processes of the job as well.
struct FilterCounts {
  uint64_t at_start;  // when the library started, or the process was restored
  uint32_t remembered;
};

// What the process runs under from its start, or its restore.
void note_filters_at_start();
uint64_t filters_at_start();
// How many there are; the mode where the kernel does not count them (before Linux 5.9). `status`:
// /proc/PID/task/TID/status.
uint64_t filters_in(const char* status);
// How many of them are remembered.
uint32_t remembered_filters();
// Has the thread other filters than those of its process's start and those that are remembered?
bool has_unseen_filter(const char* status);
// The same of the threads of another process, whose library is asked once, and only when one of
// them has a filter at all. Where it cannot be asked that is one it does not know.
class KnownFilters {
 public:
  explicit KnownFilters(int pid) : pid_(pid) {}
  bool has_unseen(const char* status);

 private:
  const int pid_;
  bool asked_ = false, known_ = false;
  FilterCounts counts_{};
};
// Why a restore could not give back what is remembered; null: it can.
const char* why_filters_stay_lost();

// In a restored process, whose threads have their credentials: sets the remembered filters for all
// of them. Returns -errno, 0: done.
long set_remembered_filters(bool may_gain_no_privileges);

}  // namespace gpuckpt
