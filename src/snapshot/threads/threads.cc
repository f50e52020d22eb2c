#include "snapshot/threads/threads.h"

#include <fcntl.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/park/park.h"
#include "snapshot/process/capture.h"
#include "snapshot/process/refused_state.h"
#include "snapshot/process/warnings.h"
#include "snapshot/threads/rseq.h"
#include "snapshot/threads/thread_choices.h"
#include "snapshot/threads/thread_status.h"

namespace gpuckpt {

using namespace process;

namespace {

void put_scheduling(Thread* t) {
  t->policy = static_cast<int>(sys::call(SYS_sched_getscheduler, t->tid));
  int param = 0;
  sys::call(SYS_sched_getparam, t->tid, sys::ptr(&param));
  t->priority = param;
  t->nice = 20 - static_cast<int>(sys::call(SYS_getpriority, 0, t->tid));
  sys::call(SYS_sched_getattr, t->tid, sys::ptr(t->sched), sizeof(t->sched), 0);
  t->io_priority = static_cast<int>(sys::call(SYS_ioprio_get, 1, t->tid));
  long n = sys::call(SYS_sched_getaffinity, t->tid, sizeof(t->affinity), sys::ptr(t->affinity));
  t->affinity_bytes = n > 0 ? static_cast<uint32_t>(n) : 0;
}

// The thread whose share of the process is captured for all: the coordinator, which has what the
// thread had that made it.
bool differs(int a, int b, long kind) {
  const long r = sys::call(SYS_kcmp, a, b, kind, 0, 0);
  return !sys::failed(r) && r != 0;
}
constexpr long kFiles = 2, kFs = 3;  // KCMP_*

// What threads of a process usually share and cannot be given back to one alone.
bool shares_all(Capture* c, const Thread& t, const ThreadStatus& status) {
  const char* what = nullptr;
  if (differs(static_cast<int>(library.coordinator_tid), t.tid, kFiles))
    what = "descriptors of its own (unshare, CLONE_FILES)";
  if (status.unseen_filter) what = "a system call filter of its own";
  return !what || c->refuse("thread %d (%s) has %s", t.tid, t.name, what);
}

// What /proc/self/task/TID/`name` leads to.
void read_link_of(int tid, const char* name, char (&to)[4097]) {
  char link[64];
  format(link, sizeof(link), "/proc/self/task/%d/%s", tid, name);
  const long n = sys::call(SYS_readlinkat, -100, sys::ptr(link), sys::ptr(to), sizeof(to) - 1);
  to[n > 0 ? n : 0] = 0;
}

// A working directory, root and umask of its own, when it has them. Where kcmp is forbidden only
// what differs tells.
bool put_folder(Capture* c, Records* r, const Thread& t, uint32_t umask, uint32_t own_umask) {
  char path[4097], others[4097];
  const int self = static_cast<int>(library.coordinator_tid);
  if (sys::call(SYS_kcmp, self, t.tid, kFs, 0, 0) == 0) return true;
  read_link_of(t.tid, "cwd", path), read_link_of(self, "cwd", others);
  if (!differs(self, t.tid, kFs) && equal(path, others) && umask == own_umask) return true;
  for (size_t i = 0; i < parking.count(); ++i) {
    const int tid = parking.thread(i).tid;
    if (parking.thread(i).state != kParked || tid == t.tid || differs(tid, t.tid, kFs)) continue;
    if (!sys::failed(sys::call(SYS_kcmp, tid, t.tid, kFs, 0, 0)))
      return c->refuse("threads %d and %d share a working directory that the others have not",
                       t.tid, tid);
  }
  if (const size_t n = length(path); n > 10 && equal(path + n - 10, " (deleted)"))
    return c->refuse("thread %d (%s) is in a folder of its own that was removed", t.tid, t.name);
  ThreadFolder folder{t.tid, umask};
  r->begin(kRecThreadFolder);
  r->add(&folder, sizeof(folder));
  r->add_text(path);
  r->end();
  read_link_of(t.tid, "root", path), read_link_of(self, "root", others);
  return equal(path, others) ||
         c->refuse("thread %d (%s) has a root folder of its own", t.tid, t.name);
}

void put_groups(Records* r, const Thread& t, ThreadStatuses* statuses) {
  char text[8192];
  const char* s = statuses->groups_of(t.tid, text, sizeof(text));
  ThreadGroups head{t.tid, 0};
  r->begin(kRecThreadGroups);
  r->add(&head, sizeof(head));
  uint32_t count = 0;
  for (; *s >= '0' && *s <= '9'; s += *s == ' ', ++count) {
    const uint32_t group = static_cast<uint32_t>(scan_dec(&s));
    r->add(&group, sizeof(group));
  }
  r->end(count);
}

// `i`: of parking.thread().
bool put_status(Capture* c, Records* r, ThreadStatuses* statuses, size_t i, Thread* t) {
  const ThreadStatus& status = statuses->of(i);
  if (!status.known) return true;
  t->pending = status.pending & ~(1ull << (kParkSignal - 1));
  t->capabilities = status.capabilities;
  __builtin_memcpy(t->uid, status.uid, sizeof(t->uid));
  __builtin_memcpy(t->gid, status.gid, sizeof(t->gid));
  t->no_new_privs = status.no_new_privs;
  if (status.other_groups) put_groups(r, *t, statuses);
  return shares_all(c, *t, status) && put_folder(c, r, *t, status.umask, statuses->own().umask);
}

// Those of the threads that the program registered itself. `memory` holds the list.
const RseqArea* find_programs_rseq(Region* memory) {
  size_t count = 0;
  for (size_t i = 0; i < parking.count(); ++i)
    count += parking.thread(i).state == kParked && parking.thread(i).rseq == RseqOwner::kProgram;
  if (!count || !(*memory = scratch_map((count + 1) * sizeof(RseqArea)))) return nullptr;
  RseqArea* areas = reinterpret_cast<RseqArea*>(memory->data());
  size_t n = 0;
  for (size_t i = 0; i < parking.count(); ++i)
    if (parking.thread(i).state == kParked && parking.thread(i).rseq == RseqOwner::kProgram)
      areas[n++].tid = parking.thread(i).tid;
  ask_for_rseq(areas, n);
  return areas;
}

// `areas`: ends with one that has no thread.
bool put_rseq(Capture* c, const ParkedThread& p, const RseqArea* areas, Thread* t) {
  if (p.rseq == RseqOwner::kLibc) {
    t->rseq = p.fs + static_cast<uint64_t>(library.rseq_offset);
    t->rseq_bytes = libc_rseq_bytes(), t->rseq_signature = kLibcRseqSignature;
  }
  if (p.rseq != RseqOwner::kProgram) return true;
  while (areas && areas->tid && areas->tid != p.tid) ++areas;
  if (!areas || !areas->known)
    return c->refuse(
        "thread %d (%s) has registered an rseq area of the program's own, and where it lies cannot "
        "be asked here (ptrace is not allowed); let glibc register it (glibc.pthread.rseq=1)",
        p.tid, p.name);
  t->rseq = areas->address;
  t->rseq_bytes = areas->bytes, t->rseq_signature = areas->signature;
  return true;
}

// Is this process a child of its parent's first thread? (PR_SET_PDEATHSIG counts threads.)
bool is_child_of_first_thread(int parent) {
  char path[64];
  format(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
  const int fd = sys::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;  // the kernel does not tell (CONFIG_PROC_CHILDREN)
  const bool is = lists_number(fd, library.pid);
  sys::close(fd);
  return is;
}

void warn_of_death_signal(const Thread& t) {
  const int parent = static_cast<int>(sys::call(SYS_getppid));
  if (!t.death_signal || !job_barrier.active() || !job_barrier.has_process(parent) ||
      is_child_of_first_thread(parent))
    return;
  add_warning(
      "it asks to be told when the thread that forked it ends (PR_SET_PDEATHSIG), which is not the "
      "first one of process %d; a restored one is told when the first one ends",
      parent);
}

bool put_each_thread(Capture* c, Records* r, ThreadStatuses* statuses,
                     const RseqArea* programs_rseq) {
  const ThreadChoices choices = program_choices();
  const ParkedThread* first_thread = parking.first();
  const size_t first = first_thread ? static_cast<size_t>(first_thread - &parking.thread(0)) : 0;
  for (size_t n = 0; n < parking.count(); ++n) {
    const size_t i = n > first ? n : n ? n - 1 : first;  // it comes first, as ever
    ParkedThread& p = parking.thread(i);
    if (p.state != kParked) continue;
    Thread t;
    __builtin_memset(&t, 0, sizeof(t));
    t.tid = p.tid;
    if (p.tid == library.pid) t.flags |= kThreadMain;
    if (p.driver) t.flags |= kThreadDriver, t.resume_pc = p.resume_pc, t.resume_sp = p.resume_sp;
    if (p.in_vdso) t.flags |= kThreadInVdso;
    if (p.call_end == CallEnd::kAlways) t.flags |= kThreadCallEnds;
    if (p.call_end == CallEnd::kWithoutRestart) t.flags |= kThreadCallEndsWithoutRestart;
    t.ucontext = reinterpret_cast<uint64_t>(p.context);
    t.siginfo = reinterpret_cast<uint64_t>(p.info);
    t.fs = p.fs, t.gs = p.gs;
    t.robust_head = p.robust_head, t.robust_bytes = p.robust_bytes;
    t.clear_tid = p.clear_tid;
    if (!put_rseq(c, p, programs_rseq, &t)) return false;
    if (!p.driver && !check_rare_thread_state(c, p)) return false;
    __builtin_memcpy(t.name, p.name, 16);
    put_scheduling(&t);
    if (!put_status(c, r, statuses, i, &t)) return false;
    t.timer_slack = p.timer_slack;
    t.securebits = p.securebits;
    t.death_signal = p.death_signal;
    r->put(kRecThread, t);
    put_thread_choices(r, p, choices);
    warn_of_death_signal(t);
    if (p.memory_policy) {
      MemoryPolicy policy{0, 0, p.tid, static_cast<uint32_t>(p.memory_policy), {}};
      __builtin_memcpy(policy.nodes, p.memory_nodes, sizeof(policy.nodes));
      r->put(kRecPolicy, policy);
    }
    ++c->threads;
  }
  if (parking.zombie_leader()) {
    Thread t;
    __builtin_memset(&t, 0, sizeof(t));
    t.tid = library.pid;
    t.flags = kThreadMain | kThreadZombieLeader;
    // The thread's name is still that of the process.
    const long n = read_file("/proc/self/comm", t.name, sizeof(t.name));
    if (n > 0 && t.name[n - 1] == '\n') t.name[n - 1] = 0;
    r->put(kRecThread, t);
  }
  return true;
}

}  // namespace

bool put_threads(Capture* c, Records* r, ThreadStatuses* statuses) {
  Region memory{};
  const bool ok = put_each_thread(c, r, statuses, find_programs_rseq(&memory));
  scratch_unmap(&memory);
  return ok;
}

}  // namespace gpuckpt
