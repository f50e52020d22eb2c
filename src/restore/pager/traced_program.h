// A restored program whose system calls stop at their entry while pages of it are missing, because
// its userfaultfd does not serve the kernel's own accesses: the pages that a call uses are put
// there first (kernel_accesses.h). The same for signals, whose frames the kernel writes to the
// stack.
//
// The kernel tells the program nothing of its tracer, but /proc does (TracerPid), and while it
// lasts no other can trace it. The program dies with this process (PTRACE_O_EXITKILL), as it must
// never see zeros where it had data. When no page is missing, each thread is let go: at once, or,
// where it waits in a call that would end with EINTR, when its time-out ends that call.
//
// Owner: the pager's process. Threads: all functions on the same one, but all_there(). Errors: a
// Status, nothing is traced then.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <set>

#include "restore/image/image.h"
#include "restore/pager/kernel_accesses.h"
#include "restore/pager/missing_pages.h"
#include "store/status.h"

namespace gpuckpt::restore {

class TracedProgram : public ProgramMemory {
 public:
  // `processes_missing`: how many processes of the job lack pages, shared by their pagers.
  TracedProgram(pid_t pid, MissingPages* pages, const std::atomic<int>* processes_missing)
      : pid_(pid), pages_(pages), processes_missing_(processes_missing) {}

  // Puts there what the kernel uses of `threads` without a system call of theirs, and in the calls
  // that they make before attach(): what it writes when a thread ends or moves to another
  // processor, their stacks and their frames. False: it failed.
  bool supply_for(const std::vector<process::Thread>& threads);
  // Traces all threads, which must be waiting for a message of the supervisor.
  store::Status attach();
  // Returns when no thread is traced any more. False: pages could not be supplied.
  bool run();
  // On another thread: no page of the process is missing any more. Returns when run() knows it, or
  // has ended.
  void all_there();
  // Instead of run(): returns when all_there() is called.
  void forego();

  void supply(uint64_t address, uint64_t bytes) override;
  bool read(uint64_t address, void* to, size_t bytes) override;

 private:
  struct Tracee {
    bool stopped = false;      // in a stop that was reported here
    bool in_call = false;      // the last stop was a call's entry
    bool interrupted = false;  // to be let go
    bool shortened = false;    // its call goes on with the time that was left
    int signal = 0;            // of the stop, to be delivered
    int64_t began_ms = 0;      // the call
    SystemCall call{};
    CallMay may = CallMay::kBegin;
  };

  bool seize_new_threads(bool* some);
  void stopped(pid_t tid, int status);
  void stopped_at_call(pid_t tid, Tracee* t);
  void stopped_by_signal(pid_t tid, Tracee* t, int signal);
  void resume(pid_t tid, Tracee* t, int request);
  bool may_begin(CallMay) const;
  bool is_over() const { return all_there_ && *processes_missing_ == 0; }
  void begin_waiting_calls();
  static bool is_left_alone(const Tracee&);
  bool may_let_go(pid_t tid) const;
  void interrupt_all();
  // Lets a stopped thread go.
  void let_go(pid_t tid, Tracee* t);
  bool begin_call_again(pid_t tid, Tracee*, bool again);
  bool signal_waits(pid_t tid) const;

  const pid_t pid_;
  MissingPages* const pages_;
  const std::atomic<int>* const processes_missing_;
  std::map<pid_t, Tracee> tracees_;
  std::set<pid_t> came_first_;  // threads whose maker has not yet said that it made them
  std::atomic<bool> all_there_{false};
  std::atomic<bool> knows_{false};  // run() has seen all_there_, or will not look again
  pid_t tracer_ = 0;                // the thread that traces
  bool failed_ = false;
};

}  // namespace gpuckpt::restore
