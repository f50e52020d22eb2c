// What the library knows about its own process.
//
// Owner: process-wide, one instance in .bss: it is part of every snapshot. Threads: the
// coordinator, but for what is atomic, what the constructor writes, and what the wake handler
// leaves for it (`leader`). Errors: `why_not`.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/heap.h"

namespace gpuckpt {

// What becomes of connections to processes that are not part of the snapshot.
enum class OutsideConnections : uint8_t {
  kReset,   // TCP comes back reset by the peer; with a Unix socket or a pipe there is no snapshot
  kRefuse,  // no snapshot
  kDrop,    // all come back closed by the other end
};

// Processes of other users in a job that root leads.
enum class OtherUsers : uint32_t {
  kWarn,    // they are taken, with a warning (exit 3)
  kRefuse,  // no snapshot
  kTrust,   // they are taken
};

struct Config {
  char store[1024];  // absolute
  char job[128];
  char writer[512];  // empty: ../bin/gpuckpt-writer beside the library
  char status_file[512];
  char session_dir[96];  // GPUCKPT_SESSION_DIR
  char runtime_dir[96];  // XDG_RUNTIME_DIR
  char copy[16];         // GPUCKPT_COPY: auto, copy, rounds, stream, early, clone, stop
  bool precopy;          // GPUCKPT_PRECOPY: memory is copied while the program runs
  char level[16], purpose[16], keep[16], budget[32], stop_status[16];
  int signal;           // 0: none
  bool on_term;         // SIGTERM: a snapshot first
  uint64_t every_ms;    // 0: no timer
  uint64_t timeout_ms;  // for one snapshot, until the application resumes
  uint64_t gate_ms;
  bool io_uring;               // GPUCKPT_IO_URING=on: programs may have rings (io_uring.cc)
  OutsideConnections outside;  // GPUCKPT_SOCKETS
  bool self_contained;         // GPUCKPT_SELF_CONTAINED
  bool files;                  // GPUCKPT_FILES: the writer takes files while all stand
  uint64_t
      copy_limit;      // GPUCKPT_COPY_LIMIT, bytes: what a copied child may have to itself; 0: none
  OtherUsers users;    // GPUCKPT_USERS
  uint32_t children;   // GPUCKPT_CHILDREN: Children (barrier.h)
  char** environment;  // private copy without LD_*
};

// Why the coordinator was started; bits of Library::wanted. kRunning is set as long as one exists.
enum Wanted : uint32_t {
  kRunning = 1,
  kWantSignal = 2,
  kWantTimer = 4,
  kWantCommand = 8,
  kWantTerm = 16,       // then the application gets its SIGTERM
  kWantTermTaken = 32,  // it has it already and waits for the snapshot (sigwait)
  kWantProgram = 64,    // gpuckpt_checkpoint_begin
  kWantJoin = 128,      // another process leads a snapshot of the job
  kWantRelay = 256,     // another process of the job was asked by a signal
};

struct Library {
  Config config;
  bool ready;         // the constructor ran to its end: snapshots can be taken
  char why_not[256];  // otherwise; or, when it is ready all the same, why each one is refused
  bool deaf;          // a system call of our handlers could end the program (seccomp.h)
  uint32_t start_user, start_group;  // effective ids when the library was loaded
  int pid;
  uint64_t start_time;
  int host_pid;  // as the command line outside sees it; differs in a restored process
  uint64_t host_start_time;
  uint32_t generation;

  std::atomic<uint32_t> wanted;
  std::atomic<uint32_t> serving;  // of these bits, what the coordinator is at work for
  std::atomic<uint32_t>
      coordinator_tid;  // cleared (and woken) by the kernel when the thread is gone
  std::atomic<uint32_t> io_thread_tid;
  Region stacks;          // see coordinator.cc
  char* coordinator_tls;  // from _dl_allocate_tls
  uint64_t tid_offset;    // of pthread::tid in the thread descriptor
  int64_t rseq_offset;    // glibc's, from the thread pointer; size 0: none registered
  uint32_t rseq_size;
  Range vdso;    // where the kernel's is; found before the first stop
  int timer_id;  // of GPUCKPT_EVERY, -1: none
  uint64_t snapshots_done, snapshots_failed;
  char last_snapshot[64];  // id of the last durable one of this process; empty: none yet
  uint32_t last_number;    // as which member of the job it is in that one
  int leader;              // kWantJoin: which process called, and where (barrier.h)
  uint32_t leader_listener;
  std::atomic<uint32_t> term_waits;    // a SIGTERM waits for its snapshot
  std::atomic<uint32_t> terms_served;  // counts snapshots taken because of one, done or failed
};
extern Library library;

inline constexpr uint64_t kCoordinatorStack = 256 * 1024;
inline constexpr uint64_t kIoThreadStack = 128 * 1024;
inline constexpr uint64_t kSpawnStack = 32 * 1024;

// config.cc: reads the environment given to the constructor.
void read_config(char** environment);
int signal_by_name(const char* name);  // 0 for "none", -1 unknown

// triggers.cc
// Async-signal-safe. False: no thread can be started, or this is another process (vfork).
bool wake_coordinator(uint32_t reason);
void install_wake_handler();
bool glibc_uses_wake_signal();  // a thread was cancelled: glibc's handler is behind ours
void start_timer();
uint64_t host_start_time();  // library.host_start_time, looked up when it is not known yet
void forget_after_fork();    // in the child of fork(2)
bool being_born();           // in the child of fork(2), before forget_after_fork()

// exec.cc
void find_exec_functions();

// app_signals.cc: the trigger signal, and SIGTERM with --on-term, as the application sees them.
void listen_to_signal(int sig, bool snapshot_first);
void stop_listening_to_term();  // in the child of fork(2): only the process that was told snapshots
int term_signal();              // 0: not listening
bool term_is_fatal();           // the application left SIGTERM to the kernel
void deliver_term();            // lets the SIGTERM that waits have its way

// coordinator.cc
void coordinator_main(void*);

// src/restore/entry/entry.cc: top of the stack the launcher enters on.
uint64_t restore_stack_top();

}  // namespace gpuckpt
