// The restore entry: the launcher jumps here. The memory of the process is complete, and there is
// one thread, on a stack of our own, without a thread pointer; raw system calls only.
//
// It restores what belongs to the process (signals, limits, timers) and makes the threads anew,
// each on a small stack of ours, where they wait. A new coordinator then has the device rebuilt and
// releases them: each returns through the signal frame in which it was parked, which holds its
// registers, signal mask and alternate stack.

#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <new>

#include "base/address.h"
#include "base/heap.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/process_format.h"
#include "gpuckpt/wire.h"
#include "restore/entry/entry_descriptors.h"
#include "restore/entry/entry_device.h"
#include "restore/entry/entry_process.h"
#include "restore/entry/entry_state.h"
#include "restore/entry/entry_threads.h"
#include "restore/entry/warnings.h"
#include "restore/protocol/plan.h"
#include "snapshot/api/api.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/calls/seccomp.h"
#include "snapshot/control/control_groups.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/io/writer_start.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/job_name.h"
#include "snapshot/memory/lazy.h"
#include "snapshot/memory/track.h"
#include "snapshot/park/park.h"
#include "snapshot/park/raw_thread.h"
#include "snapshot/park/stopped_children.h"

namespace gpuckpt::entry {
namespace {

using namespace process;
using restore::Plan;

constexpr int kSetMdwe = 65;  // newer than the headers of some machines this is built on
constexpr uint64_t kThreadFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;

alignas(64) char entry_stack[64 * 1024];

// The text of the record, which has no zero at its end.
void note_control_groups_of(const Plan* p) {
  static char moved[kControlGroupsText];
  each_record(p, [](const RecordHead& h, const char* at) {
    const uint64_t n = h.bytes < sizeof(moved) - 1 ? h.bytes : sizeof(moved) - 1;
    if (h.type == kRecControlGroups) __builtin_memcpy(moved, at, n), moved[n] = 0;
  });
  note_restored_control_groups(moved);
}

// Resets the library's own state, which is that of another process in the middle of a snapshot.
void forget_the_old_process(Plan* p) {
  scratch_forget();
  parking_forget();
  tracker.forget_after_restore();
  job_barrier.forget();
  forget_keepers();
  expect_lazy_pages(p->flags & restore::kLazy);
  library.pid = library.host_pid = sys::getpid();
  library.start_time = library.host_start_time = 0;
  library.wanted = kRunning;  // triggers wait until the program runs
  library.coordinator_tid = 0;
  library.io_thread_tid = 0;
  library.vdso = {};
  library.generation = p->generation;
  note_inherited_filters();
  note_inherited_namespaces(&p->restorer);
  note_inherited_standard(p->standard);
  note_control_groups_of(p);
  library.snapshots_done = library.snapshots_failed = 0;
  // The figures in the image are those of the snapshot before this one.
  library.last_snapshot[0] = 0;
  library.term_waits = 0;
}

// Waits for all processes of the job, because another one may need an id that a new thread of ours
// would take.
void await_threads_of_all(const Plan* p) {
  if (!(p->flags & restore::kSeveral)) return;
  restore::Report r;
  __builtin_memset(&r, 0, sizeof(r));
  r.type = restore::kReportThreads;
  sys::call(SYS_sendto, p->report_fd, sys::ptr(&r), sizeof(r), MSG_NOSIGNAL, 0, 0);
  const long n = sys::call(SYS_recvfrom, p->report_fd, sys::ptr(&r), sizeof(r), 0, 0, 0);
  if (n != sizeof(r) || r.type != restore::kReportDriver) sys::exit_group(125);
}

void restore_dumpable() {
  if (state.head.dumpable == 0 || state.head.dumpable == 1)
    sys::call(SYS_prctl, PR_SET_DUMPABLE, state.head.dumpable);
}

// Makes each child that was stopped stop before it does anything else: children run before their
// parent.
void stop_children_again_after_restore(bool waited) {
  constexpr size_t kMost = 256;
  static const StoppedChild* children[kMost];
  size_t n = 0;
  each_record(state.plan, [&](const RecordHead& h, const char* at) {
    if (h.type == kRecStoppedChild && n < kMost)
      children[n++] = reinterpret_cast<const StoppedChild*>(at);
  });
  stop_restored_children_again(children, n, waited);
}

void release_threads() {
  if (state.head.deny_write_exec) sys::call(SYS_prctl, kSetMdwe, state.head.deny_write_exec);
  // A change of credentials clears the flag, and without it /proc/self cannot be opened.
  restore_dumpable();
  state.release_driver = 1;
  sys::futex_wake(&state.release_driver, 0x7fffffff);
  state.release = 1;
  sys::futex_wake(&state.release, 0x7fffffff);
}

// The last that could fail: what is called from here on, the program's filters allow.
void restore_filters() {
  bool gain_none = true;
  for (size_t i = 0; i < state.count; ++i) gain_none &= state.threads[i].saved.no_new_privs != 0;
  const long r = set_remembered_filters(gain_none);
  if (sys::failed(r))
    die(kExitIncompatible,
        "the system call filters (seccomp) that the program had set cannot be set again (error "
        "%ld)%s",
        -r, r == -13 /* EACCES */ ? ": without PR_SET_NO_NEW_PRIVS that needs root" : "");
}

// Tells the supervisor that everything is in place, and waits for its permission to run.
void ask_to_go(uint64_t device_us) {
  tell_lost_capabilities();
  give_credentials();
  restore_filters();
  restore_dumpable();  // which changed credentials clear
  restore_future_locks();
  restore::Report r;
  __builtin_memset(&r, 0, sizeof(r));
  r.type = restore::kReportReady;
  r.us[0] = sys::now_us() - state.started_us;
  r.us[2] = device_us;
  int fd = state.plan->report_fd;
  const bool told = child_signal_waits();
  sys::call(SYS_sendto, fd, sys::ptr(&r), sizeof(r), MSG_NOSIGNAL, 0, 0);
  long n = sys::call(SYS_recvfrom, fd, sys::ptr(&r), sizeof(r), 0, 0, 0);
  if (n != sizeof(r) || r.type != restore::kReportGo) sys::exit_group(125);
  library.host_pid = r.host_pid;
  library.host_start_time = r.host_start_time;
  rename_job(r.us[0], static_cast<int>(r.us[1]));
  warn_through(-1);
  sys::close(fd);
  drop_notices(state.plan);
  restore_leases(state.plan);
  stop_children_again_after_restore(told);
  api_after_restore(r.text);
}

// Rebuilds the device while the program waits. When the program holds a lock of libc that this work
// could need, or a process does with which it shares device memory, the program runs first. True:
// it runs already.
bool bring_device_back(Plan* p, uint64_t* took_us) {
  const bool program_runs = !state.locks_free || p->flags & restore::kRunsFirst;
  if (program_runs) {
    log_line(
        LogLevel::kInfo,
        "a lock of libc was held at the snapshot%s: the program runs before the device is back",
        state.locks_free ? " by a process with which it shares device memory" : "");
    ask_to_go(0);
    release_threads();
  } else {
    state.release_driver = 1;
    sys::futex_wake(&state.release_driver, 0x7fffffff);
  }
  // Other processes of the job ask for the memory of ours that they have mapped, perhaps before we
  // are ready or while we wait for theirs, so this thread handles the wake signal.
  sys::sigprocmask_set(~(1ull << (wire::kWakeSignal - 1)));
  *took_us = restore_device(p, program_runs);
  return program_runs;
}

void coordinator_after_restore(void*) {
  *reinterpret_cast<int*>(library.coordinator_tls + library.tid_offset) = sys::gettid();
  sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt"));
  Plan* p = state.plan;
  if (state.head.device_present && !device_plugin)
    die(kExitIncompatible, "the snapshot needs a device side this library does not have");
  const bool device = state.head.device_present;
  if (device_plugin) device_plugin->rewind(device);
  if (device_plugin && p->flags & restore::kStep) device_plugin->step(p->steps);
  uint64_t device_us = 0;
  if (!device || !bring_device_back(p, &device_us)) {
    ask_to_go(device_us);
    release_threads();
  }
  sys::sigprocmask_all();
  size_t others = state.count;
  while (state.left < others) sys::sleep_us(100);
  // Threads that changed their user ids have cleared the flag again.
  if (p->flags & restore::kSetIds) restore_dumpable();
  scratch_unmap(&state.stack_memory);
  scratch_unmap(&state.thread_memory);
  sys::munmap(p->chosen_gap, p->gap_bytes);
  start_timer();
  coordinator_main(nullptr);  // serves the triggers that came meanwhile
}

void start_coordinator() {
  constexpr uint64_t flags =
      kThreadFlags | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  int* tid = reinterpret_cast<int*>(&library.coordinator_tid);
  long r = clone_raw(flags, library.stacks.start + kCoordinatorStack, coordinator_after_restore,
                     nullptr, tid, tid, library.coordinator_tls);
  if (sys::failed(r)) die(kExitError, "cannot start a thread (error %ld)", -r);
}

void begin(Plan* p) {
  new (&state) State{};  // an earlier restore may have left it in the image
  state.plan = p;
  warn_through(p->report_fd);
  state.started_us = sys::now_us();
  sys::sigprocmask_all();
  forget_the_old_process(p);
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type == kRecHead) __builtin_memcpy(&state.head, at, sizeof(Head));
    if (h.type == kRecThread) ++state.count;
    if (h.type == kRecLocks) state.locks_free = reinterpret_cast<const LibcLocks*>(at)->free;
  });
}

// Notes what a record says of one thread, or of all threads.
void note_of_thread(RestoredThread* t, const RecordHead& h, const char* at) {
  const auto* pending = reinterpret_cast<const ThreadPending*>(at);
  const auto* groups = reinterpret_cast<const ThreadGroups*>(at);
  const auto* folder = reinterpret_cast<const ThreadFolder*>(at);
  const auto* choices = reinterpret_cast<const ThreadChoices*>(at);
  const int tid = t->saved.tid;
  if (h.type == kRecThreadPending && pending->tid == tid)
    t->pending = at + sizeof(*pending), t->pending_count = h.count;
  if (h.type == kRecGroups)
    t->groups = reinterpret_cast<const uint32_t*>(at), t->group_count = h.count;
  if (h.type == kRecThreadGroups && groups->tid == tid)
    t->groups = reinterpret_cast<const uint32_t*>(groups + 1), t->group_count = h.count;
  if (h.type == kRecThreadFolder && folder->tid == tid) t->folder = folder;
  if (h.type == kRecThreadChoices && choices->tid == tid) t->choices = choices;
}

// Reads the threads; returns the first one, which is the calling thread.
RestoredThread* read_threads(const Plan* p) {
  state.thread_memory = scratch_map(state.count * sizeof(RestoredThread));
  if (!state.thread_memory) die(kExitError, "no memory for %lu threads", state.count);
  state.threads = reinterpret_cast<RestoredThread*>(state.thread_memory.data());
  size_t i = 0;
  RestoredThread* first = nullptr;
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type != kRecThread) return;
    RestoredThread* t = &state.threads[i++];
    __builtin_memcpy(&t->saved, at, sizeof(Thread));
    if (t->saved.flags & kThreadMain) first = t;
  });
  if (!first) die(kExitCorrupt, "the snapshot has no main thread");
  each_record(p, [&](const RecordHead& h, const char* at) {
    for (size_t k = 0; k < state.count; ++k) note_of_thread(&state.threads[k], h, at);
  });
  first->tid = sys::gettid();
  return first;
}

}  // namespace

[[noreturn]] static void run(Plan* p) {
  begin(p);
  RestoredThread* first = read_threads(p);
  begin_step("locking its files", 120);
  finish_descriptors(p);
  log_adopt_stderr();
  begin_step("preparing its memory", 120);
  restore_process(p);
  restore_memory(p);
  begin_step("making its threads", 60);
  make_threads(p);
  await_threads_of_all(p);
  restore_owners(p);
  restore_clocks(p);
  if (!(p->flags & restore::kSameIds)) {
    size_t n = rewrite_owners(p);
    log_line(LogLevel::kInfo, "restored with new thread ids; %lu owned mutexes rewritten", n);
  }
  start_coordinator();
  restore_futex_hash(p);
  if (first->saved.flags & kThreadZombieLeader) {
    sys::call(SYS_prctl, PR_SET_NAME, sys::ptr(first->saved.name));
    wait_for(&state.release);
    ++state.left;
    sys::exit_thread(0);
  }
  adopt(first);
  await_release(*first);
  leave(first);
}

}  // namespace gpuckpt::entry

extern "C" __attribute__((visibility("hidden"))) void gpuckpt_restore_entry(void* plan) {
  gpuckpt::entry::run(static_cast<gpuckpt::restore::Plan*>(plan));
}

namespace gpuckpt {
uint64_t restore_stack_top() {
  return reinterpret_cast<uint64_t>(entry::entry_stack + sizeof(entry::entry_stack)) & ~63ull;
}
}  // namespace gpuckpt
