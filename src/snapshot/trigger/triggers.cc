// How a snapshot begins: the constructor, the wake signal, the timer, and the start of the
// coordinator thread.
//
// Nothing of ours runs until a trigger comes: the constructor installs two signal handlers, maps
// stacks and has ld.so make a TLS block. The handler starts the coordinator by a bare clone.

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>

#include "base/descriptors/handover.h"
#include "base/heap.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/api/api.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/calls/borrowed_memory.h"
#include "snapshot/calls/confinement.h"
#include "snapshot/calls/fork_pause.h"
#include "snapshot/calls/libc_wrappers.h"
#include "snapshot/calls/semaphore_undo.h"
#include "snapshot/calls/signal_stacks.h"
#include "snapshot/control/control_groups.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/io/io_thread.h"
#include "snapshot/io/writer_start.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/job_name.h"
#include "snapshot/memory/track.h"
#include "snapshot/park/interrupted_call.h"
#include "snapshot/park/park.h"
#include "snapshot/park/raw_thread.h"
#include "snapshot/park/stopped_process.h"
#include "snapshot/process/limits.h"
#include "snapshot/trigger/early_malloc.h"
#include "snapshot/trigger/program_end.h"
#include "snapshot/trigger/refusal_note.h"

namespace gpuckpt {

// The one instance (state.h).
constinit Library library{};

namespace {

constexpr uint64_t kTimerCookie = 0x67636b70'74696d65;
constexpr uint64_t kSaFlags = SA_SIGINFO | SA_RESTART | 0x04000000 /* SA_RESTORER */;

sys::Sigaction
    chained;  // the handler of signal 32 before ours (glibc's cancellation); handler 0: none

// What a signal with a value asks for; 0: it is not one of the library's.
uint32_t wanted_by(const siginfo_t* info) {
  if (info->si_code != SI_QUEUE) return 0;
  const uint64_t value = reinterpret_cast<uint64_t>(info->si_value.sival_ptr);
  if (value == wire::kWakeCookie) return kWantCommand;
  if (value == wire::kRelayCookie) return kWantRelay;
  if ((value & wire::kJoinMask) != wire::kJoinCookie) return 0;
  library.leader = info->si_pid;
  library.leader_listener = static_cast<uint32_t>(value & ~wire::kJoinMask);
  return kWantJoin;
}

// Answers a process of the job that asks for a descriptor which was offered to it.
bool gave_descriptor(const siginfo_t* info) {
  if (info->si_code != SI_QUEUE) return false;
  const uint64_t value = reinterpret_cast<uint64_t>(info->si_value.sival_ptr);
  if ((value & kGiveMask) != kGiveCookie) return false;
  handover_serve(value, info->si_pid);
  return true;
}

// From the beginning of fork() until its handlers have run, in the parent and in the child.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool t_forking = false;

// For a child of clone(2) or raw fork after_fork is not called: it notices by itself that it is not
// the process it was. False: not yet (a coordinator that is started now would be forgotten by
// after_fork, and stop itself with the others), or it has its memory from another (vfork).
bool noticed_birth() {
  if (sys::getpid() == library.pid) return true;
  if (t_forking || shares_memory_with(library.pid)) return false;
  forget_after_fork();
  return true;
}

void wake_handler(int sig, siginfo_t* info, void* context) {
  if (library.deaf) {
    if (info->si_code == SI_TKILL && chained.handler > 1)
      reinterpret_cast<void (*)(int, siginfo_t*, void*)>(chained.handler)(sig, info, context);
    return;
  }
  if (library.ready && info->si_code == SI_QUEUE) noticed_birth();
  if (gave_descriptor(info) || held_by(info)) {
    continue_call(static_cast<ucontext_t*>(context), info);
    return;
  }
  if (uint32_t reason = wanted_by(info)) {
    wake_coordinator(reason);
    continue_call(static_cast<ucontext_t*>(context), info);
    return;
  }
  if (info->si_code == SI_TIMER &&
      reinterpret_cast<uint64_t>(info->si_value.sival_ptr) == kTimerCookie) {
    wake_coordinator(kWantTimer);
    continue_call(static_cast<ucontext_t*>(context), info);
    return;
  }
  if (chained.handler <= 1) return;
  // Cancellation may never return from here: give the thread the mask it would have had under
  // glibc's own handler.
  uint64_t mask;
  __builtin_memcpy(&mask, &static_cast<ucontext_t*>(context)->uc_sigmask, sizeof(mask));
  sys::sigprocmask_set(mask | chained.mask | (1ull << (sig - 1)));
  reinterpret_cast<void (*)(int, siginfo_t*, void*)>(chained.handler)(sig, info, context);
}

uint64_t find_tid_offset() {
  char* self;
  asm("mov %%fs:0x10, %0" : "=r"(self));
  uint64_t address = 0;
  if (!sys::failed(sys::call(SYS_prctl, PR_GET_TID_ADDRESS, sys::ptr(&address))) && address) {
    uint64_t offset = address - reinterpret_cast<uint64_t>(self);
    if (offset < 4096) return offset;
  }
  int tid = sys::gettid();
  for (uint64_t o = 0x200; o < 0x400; o += 4)
    if (*reinterpret_cast<int*>(self + o) == tid) return o;
  return 0;
}

// A thread descriptor for the coordinator, good enough to call pthread_create and pthread_join
// with.
bool make_coordinator_tls() {
  using Allocate = void* (*)(void*);
  auto allocate = reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "_dl_allocate_tls"));
  library.tid_offset = find_tid_offset();
  if (!allocate || !library.tid_offset) return false;
  char* tcb = static_cast<char*>(allocate(nullptr));
  if (!tcb) return false;
  char* self;
  asm("mov %%fs:0x10, %0" : "=r"(self));
  *reinterpret_cast<char**>(tcb + 0x00) = tcb;
  *reinterpret_cast<char**>(tcb + 0x10) = tcb;
  *reinterpret_cast<int*>(tcb + 0x18) = 1;  // multiple_threads, before glibc 2.35
  *reinterpret_cast<uint64_t*>(tcb + 0x28) = *reinterpret_cast<uint64_t*>(self + 0x28);
  *reinterpret_cast<uint64_t*>(tcb + 0x30) = *reinterpret_cast<uint64_t*>(self + 0x30);
  library.coordinator_tls = tcb;
  return true;
}

// Tools under which a process would not survive its snapshot, or the snapshot a restore. Null:
// none.
const char* why_not_under(char** environment) {
  for (char** e = environment; e && *e; ++e) {
    if (!starts_with(*e, "LD_PRELOAD=")) continue;
    for (const char* s = *e; *s; ++s)
      if (starts_with(s, "/vgpreload_"))
        return "the program runs under valgrind, which allows no threads but those of libc";
  }
  return nullptr;
}

// ThreadSanitizer replaces functions of libc by ones that end the process on a thread that it does
// not know.
const char* why_refused_always() {
  if (dlsym(RTLD_DEFAULT, "__tsan_init"))
    return "the program is built with ThreadSanitizer, which knows nothing of the threads that "
           "take a snapshot: build it without";
  return nullptr;
}

bool start_coordinator() {
  // The last coordinator may still be on its way out, on the same stack.
  for (uint32_t tid; (tid = library.coordinator_tid.load());)
    sys::futex_wait(&library.coordinator_tid, tid, 1000, true);
  constexpr uint64_t flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                             CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  uint64_t old = sys::sigprocmask_all();
  long tid = clone_raw(flags, library.stacks.start + kCoordinatorStack, coordinator_main, nullptr,
                       reinterpret_cast<int*>(&library.coordinator_tid),
                       reinterpret_cast<int*>(&library.coordinator_tid), library.coordinator_tls);
  sys::sigprocmask_set(old);
  if (sys::failed(tid)) {
    library.wanted = 0;
    char why[256];
    explain_failure(why, sizeof(why), "cannot start a thread", tid);
    log_line(LogLevel::kError, "no snapshot: %s", why);
    leave_refusal_note(why);
  }
  return !sys::failed(tid);
}

}  // namespace

bool being_born() { return t_forking && sys::getpid() != library.pid; }

bool wake_coordinator(uint32_t reason) {
  if (!library.ready || library.deaf || !noticed_birth()) return false;
  uint32_t before = library.wanted.fetch_or(reason | kRunning);
  return before & kRunning || start_coordinator();
}

void install_wake_handler() {
  sys::Sigaction mine{reinterpret_cast<uint64_t>(wake_handler), kSaFlags | signal_stack_flag(),
                      reinterpret_cast<uint64_t>(gpuckpt_sigreturn), ~0ull};
  sys::Sigaction now{};
  sys::sigaction(wire::kWakeSignal, nullptr, &now);
  if (now.handler != mine.handler) chained = now;
  sys::sigaction(wire::kWakeSignal, &mine, nullptr);
}

bool glibc_uses_wake_signal() { return chained.handler > 1; }

uint64_t host_start_time() {
  if (!library.host_start_time) library.host_start_time = start_time_of(library.host_pid);
  return library.host_start_time;
}

void start_timer() {
  library.timer_id = -1;
  uint64_t ms = library.config.every_ms;
  if (!ms) return;
  struct sigevent event {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = wire::kWakeSignal;
  event.sigev_value.sival_ptr = reinterpret_cast<void*>(kTimerCookie);
  int id = -1;
  long r = sys::call(SYS_timer_create, 1 /* CLOCK_MONOTONIC */, sys::ptr(&event), sys::ptr(&id));
  if (sys::failed(r)) {
    log_line(LogLevel::kWarn, "GPUCKPT_EVERY: no timer (error %ld)", -r);
    return;
  }
  int64_t spec[4] = {static_cast<int64_t>(ms / 1000), static_cast<int64_t>(ms % 1000) * 1000000,
                     static_cast<int64_t>(ms / 1000), static_cast<int64_t>(ms % 1000) * 1000000};
  sys::call(SYS_timer_settime, id, 0, sys::ptr(spec), 0);
  library.timer_id = id;
}

// The parent may have been in the middle of a snapshot: its threads about to be parked, its I/O
// thread at work. None of that exists in the child. Until `pid` is the child's, wake_coordinator
// does nothing, so that a signal that comes meanwhile (the parent's job_barrier looks for this
// process already) starts no thread on what is being cleared; the leader of a snapshot asks again.
void forget_after_fork() {
  memory_after_fork();
  fork_pause_after_fork();
  parking_forget();
  io_thread.forget();
  forget_keepers();
  library.start_time = library.host_start_time = 0;  // looked up when needed
  library.wanted = library.serving = 0;
  library.coordinator_tid = 0;
  library.io_thread_tid = 0;
  library.timer_id = -1;
  library.snapshots_done = library.snapshots_failed = 0;
  tracker.forget_after_fork();
  forget_undos();
  job_barrier.forget();
  library.last_snapshot[0] = 0;
  stop_listening_to_term();
  if (device_plugin) device_plugin->forked();
  api_after_fork();
  forget_dispatch();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  library.pid = library.host_pid = sys::getpid();
}

namespace {

void before_fork() {
  count_birth();
  fork_begins();
  t_forking = true;
}
void fork_is_over() {
  t_forking = false;
  fork_ends();
}
void after_fork() {
  const uint64_t old = sys::sigprocmask_all();
  forget_after_fork();
  t_forking = false;
  join_after_birth();
  sys::sigprocmask_set(old);
}

__attribute__((constructor(101))) void start(int, char**, char** environment) {
  library.pid = library.host_pid = sys::getpid();
  library.start_user = static_cast<uint32_t>(sys::call(SYS_geteuid));
  library.start_group = static_cast<uint32_t>(sys::call(SYS_getegid));
  library.timer_id = -1;
  if (!malloc_works_already()) {
    copy(library.why_not, sizeof(library.why_not),
         "the program has a malloc of its own that does not work before its main function");
    log_line(LogLevel::kInfo, "snapshots are not possible: %s", library.why_not);
    return;
  }
  find_job_name(environment);
  read_config(environment);
  if (device_plugin) device_plugin->configure();
  note_inherited_descriptors();
  note_inherited_filters();
  note_inherited_namespaces(nullptr);
  note_control_groups();
  note_inherited_children();
  if (const char* why = why_not_under(environment)) {
    copy(library.why_not, sizeof(library.why_not), why);
    log_line(LogLevel::kWarn, "snapshots are not possible: %s", why);
    return;
  }
  if (const char* why = why_refused_always()) copy(library.why_not, sizeof(library.why_not), why);
  library.stacks = region_map(kCoordinatorStack + kIoThreadStack + 2 * kSpawnStack);
  if (!library.stacks || !make_coordinator_tls()) {
    copy(library.why_not, sizeof(library.why_not),
         "this C library's thread descriptors are unknown to us");
    log_line(LogLevel::kWarn, "snapshots are not possible: %s", library.why_not);
    return;
  }
  if (void* offset = dlsym(RTLD_DEFAULT, "__rseq_offset"))
    library.rseq_offset = *static_cast<const ptrdiff_t*>(offset);
  if (void* size = dlsym(RTLD_DEFAULT, "__rseq_size"))
    library.rseq_size = *static_cast<const unsigned*>(size);
  pthread_atfork(before_fork, fork_is_over, after_fork);
  find_exec_functions();
  find_wrapped_functions();
  find_end_functions();
  library.ready = true;
  install_wake_handler();
  if (library.config.signal) listen_to_signal(library.config.signal, false);
  if (library.config.on_term) listen_to_signal(SIGTERM, true);
  start_timer();
}

}  // namespace
}  // namespace gpuckpt

// glibc installs its own handler for signal 32 at a process's first cancellation, which may be one
// of another thread. So the library's handler is put in front of it after every cancellation.
extern "C" __attribute__((visibility("default"))) int pthread_cancel(pthread_t thread) {
  const int result = gpuckpt_real_pthread_cancel(thread);
  if (gpuckpt::library.ready) gpuckpt::install_wake_handler();
  return result;
}
