// Parking: every thread of the process but our own waits in a signal handler: that of signal 33
// (glibc's SIGSETXID), which can be neither blocked nor waited for through libc, so it reaches
// threads in sigwait(all) too.
//
// Owner: one per process. Threads: the coordinator. Errors: false, with no thread parked and a
// text.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>

#include "base/hash/hash_index.h"
#include "base/heap.h"
#include "base/syscall.h"
#include "snapshot/park/interrupted_call.h"
#include "snapshot/park/seen_threads.h"
#include "snapshot/process/refused_state.h"
#include "snapshot/threads/rseq.h"
#include "snapshot/threads/thread_choices.h"

namespace gpuckpt {

inline constexpr int kParkSignal = 33;

struct ParkedThread {
  std::atomic<uint32_t> state;  // kEmpty.. below
  int tid;
  SyscallState before;     // what it was doing when it was asked to park
  const SeenThread* seen;  // null: not before the stop, or it has run since
  bool unmoved;            // it is as it was seen then, but for signals that wait for it
  ucontext_t* context;     // in its signal frame
  CallEnd call_end;        // of the call that it is in
  siginfo_t* info;
  uint64_t fs, gs;
  uint64_t robust_head, robust_bytes;
  uint64_t clear_tid;
  char name[16];
  uint64_t timer_slack;
  int death_signal;
  uint32_t securebits;
  int memory_policy;  // get_mempolicy
  uint64_t memory_nodes[16];
  RseqOwner rseq;
  RareThreadState rare;
  process::ThreadChoices choices;
  bool driver;
  bool in_vdso;
  int asked_again;
  uint64_t resume_pc, resume_sp;
};
// A siginfo_t as the kernel copies it.
struct PendingSignal {
  int signal;
  char rest[124];
};
enum ParkState : uint32_t {
  kEmpty = 0,
  kAsked = 1,
  kParked = 2,
  kLeft = 3,
  kGone = 4,
  kAgain = 5  // it was inside the vdso, where it could not continue on another kernel
};

constexpr size_t kMostParked = 16384;

class Parking {
 public:
  // While the program runs: looks at the threads that park() will be called for, which is faster
  // then. end_look() when they have been captured.
  void look_before_stop(const int* own, int own_count);
  void end_look() { seen_.forget(); }
  const SeenThreads& seen() const { return seen_; }
  // Parks all threads except `own` ones. False: not possible within `timeout_us`; no thread is
  // parked then and `text` names the one that prevented it. Calls no libc.
  bool park(const int* own, int own_count, uint64_t timeout_us, char* text, size_t room);
  // Releases all threads and returns when all have left the handler.
  void unpark();

  void forget() {
    memory_ = {};
    threads_ = nullptr;
    count_ = 0;
    seen_.forget_memory();
  }

  // PARKED: lets thread `i` take the signals of `mask` that wait for it out, write them down and
  // put them back. Returns how many there were.
  size_t collect_pending(size_t i, uint64_t mask, PendingSignal* to, size_t room);

  size_t count() const { return count_; }
  ParkedThread& thread(size_t i) const { return threads_[i]; }
  // The process's first thread, which parks last, while it is parked; null: it is not.
  const ParkedThread* first() const;
  // PARKED: the first in the table that is no driver's; null: there is none.
  const ParkedThread* any_of_program() const;
  // PARKED: which thread shall have a signal of the process; 0: all block it.
  int thread_for(int sig) const;
  bool zombie_leader() const { return zombie_leader_; }
  // The last park() failed because a thread blocks our signal.
  bool blocked() const { return blocked_; }

 private:
  bool park_all(const int* own, int own_count, uint64_t timeout_us, char* text, size_t room);
  bool knows(int tid) const;
  bool ask(int tid);
  void send(ParkedThread*);
  bool begin();  // makes the table of threads and takes the signal. False: no memory
  bool ask_new_threads(const int* own, int own_count, bool with_first);
  void forget_ended();
  void await_first() const;
  int await_answers(uint64_t deadline_us);
  Region memory_;
  ParkedThread* threads_ = nullptr;
  HashIndex by_tid_;
  SeenThreads seen_;
  size_t count_ = 0, room_ = 0;
  bool zombie_leader_ = false;
  bool blocked_ = false;
};
extern Parking parking;

// What signal 33 did before we borrowed it.
sys::Sigaction parking_saved_action();
// In a restored process: no thread is parked any more.
void parking_forget();

}  // namespace gpuckpt
