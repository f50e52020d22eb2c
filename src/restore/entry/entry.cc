// The restore entry: where the launcher jumps to. The memory of the process is complete, there is
// one thread, on a stack of our own, without a thread pointer; raw system calls only.
//
// It puts back what belongs to the process (signals, limits, timers), makes the threads anew, each
// on a small stack of ours, and lets them wait. A new coordinator then has the device rebuilt and
// releases them: each goes back through the signal frame in which it was parked, which holds its
// registers, signal mask and alternate stack.

#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/address.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/syscall.h"
#include "base/text.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/process_format.h"
#include "gpuckpt/wire.h"
#include "restore/entry/entry_aio.h"
#include "restore/entry/entry_memory.h"
#include "restore/entry/warnings.h"
#include "restore/protocol/device_ring.h"
#include "restore/protocol/plan.h"
#include "snapshot/api/api.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/control/worker.h"
#include "snapshot/control/writer_start.h"
#include "snapshot/descriptors/semaphores.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/job_name.h"
#include "snapshot/memory/lazy.h"
#include "snapshot/memory/track.h"
#include "snapshot/park/park.h"
#include "snapshot/park/raw_thread.h"
#include "snapshot/park/stopped_children.h"

namespace gpuckpt {
namespace {

using namespace process;
using restore::Plan;

constexpr uint64_t kThreadStack = 8192;

struct RestoredThread {
  Thread saved;
  int tid;
  const char* pending;  // siginfos that wait for it alone
  size_t pending_count;
  const MemoryPolicy* policy;
  const uint32_t* groups;  // supplementary ones
  uint32_t group_count;
  const ThreadPlace* place;  // null: everybody's
};

// One restore at a time in a process's life, before anything else runs.
struct State {
  Plan* plan;
  RestoredThread* threads;
  size_t count;
  Region thread_memory, stack_memory;
  std::atomic<uint32_t> ready;
  std::atomic<uint32_t> release_driver, release;  // futex words
  std::atomic<uint32_t> left;
  bool locks_free, zombie_leader;
  uint64_t started_us;
  Head head;
};
State state;

alignas(64) char entry_stack[64 * 1024];

[[noreturn]] void die(int code, const char* pattern, ...) __attribute__((format(printf, 2, 3)));
void die(int code, const char* pattern, ...) {
  restore::Report r;
  __builtin_memset(&r, 0, sizeof(r));
  r.type = restore::kReportFailed;
  r.code = code;
  va_list args;
  va_start(args, pattern);
  vformat(r.text, sizeof(r.text), pattern, args);
  va_end(args);
  sys::call(SYS_sendto, state.plan->report_fd, sys::ptr(&r), sizeof(r), MSG_NOSIGNAL, 0, 0);
  sys::exit_group(125);
}

// What the process begins, for the restore driver's patience (kReportStep).
void begin_step(const char* name, int seconds) {
  restore::Report r;
  __builtin_memset(&r, 0, sizeof(r));
  r.type = restore::kReportStep;
  r.code = seconds;
  copy(r.text, sizeof(r.text), name);
  sys::call(SYS_sendto, state.plan->report_fd, sys::ptr(&r), sizeof(r), MSG_NOSIGNAL, 0, 0);
}

template <typename Each>
void each_record(const Plan* p, Each each) {
  const char* at = reinterpret_cast<const char*>(p) + p->process;
  const char* end = at + p->process_bytes;
  while (at + sizeof(RecordHead) <= end) {
    const RecordHead* h = reinterpret_cast<const RecordHead*>(at);
    each(*h, at + sizeof(RecordHead));
    at += sizeof(RecordHead) + ((h->bytes + 7) & ~7ull);
  }
}

// --- one thread
// ------------------------------------------------------------------------------------------------------

// Newer than the headers of some machines this is built on.
constexpr int kSetMdwe = 65, kSetMemoryMerge = 67;
constexpr uint32_t kKeepCaps = 1 << 4;  // SECBIT_KEEP_CAPS

struct CapabilityHeader {
  uint32_t version;
  int pid;
};
struct CapabilitySets {
  uint32_t effective, permitted, inheritable;
};

// Each thread gets back what this process may have of its capabilities; before, because then the
// restore driver still listens.
void tell_lost_capabilities() {
  CapabilityHeader header{0x20080522, 0};
  CapabilitySets data[2] = {};
  sys::call(SYS_capget, sys::ptr(&header), sys::ptr(data));
  const uint64_t permitted = data[0].permitted | static_cast<uint64_t>(data[1].permitted) << 32;
  uint64_t bounding = 0;
  for (int cap = 0; cap <= 40; ++cap)
    if (sys::call(SYS_prctl, PR_CAPBSET_READ, cap) == 1) bounding |= 1ull << cap;
  for (size_t i = 0; i < state.count; ++i) {
    const Thread& s = state.threads[i].saved;
    constexpr int kSetpcap = 8;
    const uint32_t bits = s.securebits & ~kKeepCaps;
    if (!(permitted >> kSetpcap & 1) &&
        bits != (static_cast<uint32_t>(sys::call(SYS_prctl, PR_GET_SECUREBITS)) & ~kKeepCaps))
      warn("thread %d (%s) cannot have its securebits %x here (CAP_SETPCAP)", s.tid, s.name, bits);
    const uint64_t lost = s.capabilities.permitted & ~permitted;
    const uint64_t barred = s.capabilities.bounding & ~bounding;
    if (!lost && !barred) continue;
    warn(
        "thread %d (%s) had capabilities that the user who restores it does not have: permitted "
        "%lx, bounding %lx",
        s.tid, s.name, lost, barred);
    return;  // the same again for each
  }
}

// The credentials are the last thing a thread gets back: until then it may need what it has more.
// What is not permitted here (another user's, or none of the namespace) cannot be had.
void restore_credentials(const RestoredThread& t) {
  const Thread& s = t.saved;
  const Capabilities& want = s.capabilities;
  for (int cap = 0; cap <= 40; ++cap)
    if (!(want.bounding >> cap & 1)) sys::call(SYS_prctl, PR_CAPBSET_DROP, cap);
  if (state.plan->flags & restore::kSetIds) {
    if (sys::failed(sys::call(SYS_setgroups, t.group_count, sys::ptr(t.groups))) ||
        sys::failed(sys::call(SYS_setresgid, s.gid[0], s.gid[1], s.gid[2])))
      die(kExitIncompatible,
          "the program's groups (%u and %u supplementary ones) cannot be set here; restore it as "
          "root",
          s.gid[0], t.group_count);
    sys::call(SYS_prctl, PR_SET_KEEPCAPS, 1);
    sys::call(SYS_setfsgid, s.gid[3]);
    if (sys::failed(sys::call(SYS_setresuid, s.uid[0], s.uid[1], s.uid[2])))
      die(kExitIncompatible,
          "the program ran as user %u, which cannot be set here; restore it as that user or as "
          "root",
          s.uid[0]);
    sys::call(SYS_setfsuid, s.uid[3]);
  }
  CapabilityHeader header{0x20080522, 0};
  CapabilitySets data[2] = {};
  sys::call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  sys::call(SYS_capget, sys::ptr(&header), sys::ptr(data));
  const long bits = sys::call(SYS_prctl, PR_GET_SECUREBITS);
  if (bits != static_cast<long>(s.securebits)) {
    for (auto& half : data) half.effective = half.permitted;
    sys::call(SYS_capset, sys::ptr(&header), sys::ptr(data));
    if (sys::failed(sys::call(SYS_prctl, PR_SET_SECUREBITS, s.securebits))) {
      // This one anybody may have; the others were told.
      sys::call(SYS_prctl, PR_SET_KEEPCAPS, (s.securebits & kKeepCaps) != 0);
    }
  }
  uint64_t bounding = 0;
  for (int cap = 0; cap <= 40; ++cap)
    if (sys::call(SYS_prctl, PR_CAPBSET_READ, cap) == 1) bounding |= 1ull << cap;
  for (int i = 0; i < 2; ++i) {
    data[i].inheritable |= data[i].permitted & static_cast<uint32_t>(bounding >> (32 * i));
    data[i].permitted &= static_cast<uint32_t>(want.permitted >> (32 * i));
    data[i].effective = data[i].permitted & static_cast<uint32_t>(want.effective >> (32 * i));
    data[i].inheritable &= static_cast<uint32_t>(want.inheritable >> (32 * i));
  }
  header.pid = 0;
  sys::call(SYS_capset, sys::ptr(&header), sys::ptr(data));
  for (int cap = 0; want.ambient && cap < 64; ++cap)
    if (want.ambient >> cap & 1)
      sys::call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
}

void restore_scheduling(const Thread& s) {
  if (s.affinity_bytes) sys::call(SYS_sched_setaffinity, 0, s.affinity_bytes, sys::ptr(s.affinity));
  long r = 0;
  if (s.sched[0]) {
    r = sys::call(SYS_sched_setattr, 0, sys::ptr(s.sched), 0);
  } else {
    int priority = s.priority;
    if (s.policy & 0xff) r = sys::call(SYS_sched_setscheduler, 0, s.policy, sys::ptr(&priority));
    if (s.nice) r |= sys::call(SYS_setpriority, 0, 0, s.nice);
  }
  if (sys::failed(r))
    warn("thread %d (%s) cannot have its scheduling class %d and nice value %d here", s.tid, s.name,
         s.policy, s.nice);
  if (s.io_priority > 0) sys::call(SYS_ioprio_set, 1, 0, s.io_priority);
  if (s.timer_slack) sys::call(SYS_prctl, PR_SET_TIMERSLACK, static_cast<long>(s.timer_slack));
}

// A working directory and a umask of its own.
void restore_place(const Thread& s, const ThreadPlace* place) {
  const char* path = reinterpret_cast<const char*>(place + 1);
  if (sys::failed(sys::call(SYS_unshare, CLONE_FS)) ||
      sys::failed(sys::call(SYS_chdir, sys::ptr(path))))
    die(kExitIncompatible, "thread %d (%s) cannot have its working directory %s here", s.tid,
        s.name, path);
  sys::call(SYS_umask, place->umask);
}

void adopt(RestoredThread* t) {
  const Thread& s = t->saved;
  if (t->place) restore_place(s, t->place);
  sys::call(SYS_arch_prctl, ARCH_SET_FS, static_cast<long>(s.fs));
  if (s.gs) sys::call(SYS_arch_prctl, ARCH_SET_GS, static_cast<long>(s.gs));
  if (s.clear_tid) {
    sys::call(SYS_set_tid_address, static_cast<long>(s.clear_tid));
    int* word = reinterpret_cast<int*>(s.clear_tid);
    if (t->tid != s.tid && *word == s.tid) *word = t->tid;
  }
  if (s.robust_head)
    sys::call(SYS_set_robust_list, static_cast<long>(s.robust_head),
              static_cast<long>(s.robust_bytes));
  if (s.rseq) {
    // The area still says "registered, on CPU n"; the kernel wants it as at the start of a thread.
    uint32_t* area = reinterpret_cast<uint32_t*>(s.rseq);
    area[0] = 0;
    area[1] = ~0u;
    area[2] = area[3] = 0;
    if (sys::failed(
            sys::call(SYS_rseq, static_cast<long>(s.rseq), s.rseq_bytes, 0, s.rseq_signature)))
      warn("thread %d (%s) cannot have its rseq area here", s.tid, s.name);
  }
  sys::call(SYS_prctl, PR_SET_NAME, sys::ptr(s.name));
  restore_scheduling(s);
  if (t->policy) restore_policy(*t->policy);
  for (size_t i = 0; i < t->pending_count; ++i) {
    int sig;
    __builtin_memcpy(&sig, t->pending + i * 128, 4);
    sys::call(SYS_rt_tgsigqueueinfo, sys::getpid(), t->tid, sig, sys::ptr(t->pending + i * 128));
  }
}

void wait_for(std::atomic<uint32_t>* word) {
  while (!*word) sys::futex_wait(word, 0, 0);
}

// Does not return: the thread goes on in the application.
[[noreturn]] void leave(RestoredThread* t) {
  restore_credentials(*t);
  if (t->saved.no_new_privs) sys::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1);
  // What just changed takes it away.
  if (t->saved.death_signal) sys::call(SYS_prctl, PR_SET_PDEATHSIG, t->saved.death_signal);
  if (t->saved.flags & kThreadDriver) {
    uint64_t pc = t->saved.resume_pc, sp = t->saved.resume_sp;
    sys::sigprocmask_set(0);
    state.left.fetch_add(1);
    sys::futex_wake(&state.left, 1);
    asm volatile("mov %0, %%rsp\n xor %%ebp, %%ebp\n jmp *%1" : : "r"(sp), "r"(pc) : "memory");
  }
  uint64_t frame = t->saved.ucontext;
  // From here on the stack this runs on may be gone: registers only.
  asm volatile(
      "lock incl %1\n"
      "mov %0, %%rsp\n"
      "mov $15, %%eax\n"
      "syscall\n"
      "hlt\n"
      :
      : "r"(frame), "m"(state.left)
      : "memory");
  __builtin_unreachable();
}

void thread_main(void* argument) {
  RestoredThread* t = static_cast<RestoredThread*>(argument);
  t->tid = sys::gettid();
  adopt(t);
  state.ready.fetch_add(1);
  sys::futex_wake(&state.ready, 1);
  wait_for(t->saved.flags & kThreadDriver ? &state.release_driver : &state.release);
  leave(t);
}

// clone3 with a chosen id; the child runs thread_main on its own small stack.
long clone_with_id(uint64_t flags, uint64_t stack_top, RestoredThread* t, int tid) {
  struct clone_args a;
  __builtin_memset(&a, 0, sizeof(a));
  uint64_t* sp = reinterpret_cast<uint64_t*>(stack_top & ~63ull) - 8;
  sp[0] = reinterpret_cast<uint64_t>(thread_main);
  sp[1] = reinterpret_cast<uint64_t>(t);
  a.flags = flags;
  a.stack = reinterpret_cast<uint64_t>(sp) & ~15ull;
  a.stack_size = 0;
  uint64_t id = static_cast<uint64_t>(static_cast<uint32_t>(tid));
  pid_t ids[1] = {tid};
  (void)id;
  a.set_tid = reinterpret_cast<uint64_t>(ids);
  a.set_tid_size = 1;
  // The kernel wants base and size; base + size is where the child's stack pointer starts.
  a.stack = stack_top - kThreadStack;
  a.stack_size = reinterpret_cast<uint64_t>(sp) - a.stack;
  long result;
  asm volatile(
      "syscall\n"
      "test %%rax, %%rax\n"
      "jnz 1f\n"
      "xor %%ebp, %%ebp\n"
      "pop %%rax\n"
      "pop %%rdi\n"
      "call *%%rax\n"
      "hlt\n"
      "1:\n"
      : "=a"(result)
      : "a"(SYS_clone3), "D"(&a), "S"(sizeof(a))
      : "rcx", "r11", "memory");
  return result;
}

void make_threads(Plan* p) {
  constexpr uint64_t flags =
      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  state.stack_memory = scratch_map(state.count * kThreadStack);
  if (!state.stack_memory) die(kExitError, "no memory for %lu threads", state.count);
  size_t others = 0;
  for (size_t i = 0; i < state.count; ++i) {
    RestoredThread* t = &state.threads[i];
    if (t->saved.flags & kThreadMain) continue;
    uint64_t top = state.stack_memory.start + (i + 1) * kThreadStack;
    long r = p->flags & restore::kSameIds
                 ? clone_with_id(flags, top, t, t->saved.tid)
                 : clone_raw(flags, top, thread_main, t, nullptr, nullptr, nullptr);
    if (sys::failed(r))
      die(r == -17 ? kExitLocked : kExitError, "thread %d cannot be made again (error %ld)",
          t->saved.tid, -r);
    ++others;
  }
  uint64_t deadline = sys::now_us() + 10000000;
  for (uint32_t n; (n = state.ready) < others;) {
    sys::futex_wait(&state.ready, n, 100000);
    if (sys::now_us() > deadline) die(kExitError, "%u of %lu threads came up", n, others);
  }
}

// Without set_tid the ids are new: glibc's mutexes name their owner by id. Owned ones are found by
// their shape; a false match needs three words in a row to look like a lock held by one of our
// threads.
size_t rewrite_owners(const Plan* p) {
  size_t rewritten = 0;
  const auto* fills =
      reinterpret_cast<const restore::PlanFill*>(reinterpret_cast<const char*>(p) + p->fills);
  const auto* maps =
      reinterpret_cast<const restore::PlanMap*>(reinterpret_cast<const char*>(p) + p->maps);
  auto new_tid = [&](uint32_t old) -> int {
    for (size_t k = 0; k < state.count; ++k)
      if (static_cast<uint32_t>(state.threads[k].saved.tid) == old) return state.threads[k].tid;
    return 0;
  };
  for (uint64_t i = 0; i < p->fill_count; ++i) {
    if (fills[i].offset == restore::kZeros) continue;
    bool writable = false;
    for (uint64_t k = 0; k < p->map_count && !writable; ++k)
      writable = fills[i].address >= maps[k].start && fills[i].address < maps[k].end &&
                 (maps[k].prot & 3) == 3;
    if (!writable) continue;
    uint64_t state_start = reinterpret_cast<uint64_t>(state.threads);
    const uint64_t end = fills[i].address + fills[i].length;
    for (uint64_t at = fills[i].address; at + 28 <= end; at += 4) {
      if (at >= state_start && at < state_start + state.count * sizeof(RestoredThread)) continue;
      int32_t* w = reinterpret_cast<int32_t*>(at);
      // A read-write lock held for writing: both phase bits, two futexes, two empty words, owner.
      if (w[6] > 0 && at + 32 <= end && (w[0] & 3) == 3 && !w[4] && !w[5] && w[2] >= 0 &&
          w[2] < 4 && w[3] >= 0 && w[3] < 4 && w[7] >= 0 && w[7] < 2)
        if (int tid = new_tid(static_cast<uint32_t>(w[6]))) {
          w[6] = tid;
          ++rewritten;
        }
      if (w[2] <= 0) continue;
      int tid = new_tid(static_cast<uint32_t>(w[2]));
      if (!tid) continue;
      bool robust_or_pi = (w[0] & 0x3fffffff) == w[2];
      if (!(w[0] == 1 || w[0] == 2 || robust_or_pi)) continue;
      if (w[1] < 0 || w[1] > 10000 || w[3] < 0 || w[3] > 1 || w[4] < 0 || w[4] >= 0x200) continue;
      if (robust_or_pi) w[0] = (w[0] & static_cast<int32_t>(0xc0000000)) | tid;
      w[2] = tid;
      ++rewritten;
    }
  }
  return rewritten;
}

// --- the process
// -----------------------------------------------------------------------------------------------------

void restore_timer(const PosixTimer& t) {
  struct {
    uint64_t value;
    int signal, notify, tid, pad[11];
  } event{t.value, t.signal, t.notify, t.tid, {}};
  bool has_thread = false;
  for (size_t k = 0; k < state.count; ++k) {
    if (state.threads[k].saved.tid != t.tid) continue;
    event.tid = state.threads[k].tid;
    has_thread = true;
  }
  // A thread that has ended gets no signals, and the timer counts on.
  if (event.notify == SIGEV_THREAD_ID && !has_thread) event.notify = SIGEV_NONE, event.tid = 0;
  // Ids are given in order: make and drop timers until the wanted one comes. Kernels since 6.15 can
  // be asked for one.
  int made[1] = {t.id};
  for (int tries = 0; tries < 100000; ++tries) {
    long r = sys::call(SYS_timer_create, t.clock, sys::ptr(&event), sys::ptr(made));
    if (sys::failed(r)) {
      warn("timer %d cannot be made again (error %ld) and is lost", t.id, -r);
      return;
    }
    if (made[0] == t.id) break;
    sys::call(SYS_timer_delete, made[0]);
    if (made[0] > t.id) {
      warn("timer %d could not get its number back and is lost", t.id);
      return;
    }
  }
  int64_t spec[4] = {t.interval_sec, t.interval_ns, t.value_sec, t.value_ns};
  sys::call(SYS_timer_settime, t.id, 0, sys::ptr(spec), 0);
}

// A mitigation against speculation that the program asked for. Threads inherit it.
void restore_speculation(long what, int state) {
  constexpr int kChoices = PR_SPEC_DISABLE | PR_SPEC_FORCE_DISABLE | PR_SPEC_DISABLE_NOEXEC;
  if (state & PR_SPEC_PRCTL && state & kChoices)
    sys::call(SYS_prctl, PR_SET_SPECULATION_CTRL, what, state & kChoices);
}

void restore_process(Plan* p) {
  each_record(p, [&](const RecordHead& h, const char* at) {
    switch (h.type) {
      case kRecSigactions: {
        const SignalAction* a = reinterpret_cast<const SignalAction*>(at);
        for (int sig = 1; sig <= 64; ++sig) {
          sys::Sigaction k{a[sig - 1].handler, a[sig - 1].flags, a[sig - 1].restorer,
                           a[sig - 1].mask};
          if (sig != 9 && sig != 19) sys::sigaction(sig, &k, nullptr);
        }
        break;
      }
      case kRecLimits: {
        const Limit* l = reinterpret_cast<const Limit*>(at);
        for (int i = 0; i < 16; ++i) {
          Limit now = l[i];
          if (sys::failed(sys::call(SYS_prlimit64, 0, i, sys::ptr(&now), 0))) {
            // A hard limit cannot be raised without privilege: the soft one at least.
            Limit have{};
            sys::call(SYS_prlimit64, 0, i, 0, sys::ptr(&have));
            have.soft = now.soft < have.hard ? now.soft : have.hard;
            sys::call(SYS_prlimit64, 0, i, sys::ptr(&have), 0);
          }
        }
        break;
      }
      default:
        break;
    }
  });
  const Head& h = state.head;
  sys::call(SYS_umask, h.umask);
  if (h.personality != static_cast<uint32_t>(sys::call(SYS_personality, 0xffffffff)))
    sys::call(SYS_personality, h.personality);
  if (h.subreaper) sys::call(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1);
  if (h.thp_disable) sys::call(SYS_prctl, PR_SET_THP_DISABLE, 1);
  if (h.memory_merge) sys::call(SYS_prctl, kSetMemoryMerge, 1);
  if (h.memory_failure != PR_MCE_KILL_DEFAULT)
    sys::call(SYS_prctl, PR_MCE_KILL, PR_MCE_KILL_SET, h.memory_failure);
  restore_speculation(PR_SPEC_STORE_BYPASS, h.store_bypass);
  restore_speculation(PR_SPEC_INDIRECT_BRANCH, h.indirect_branch);
  for (uint32_t bit = 1; bit; bit <<= 1)
    if (h.membarrier & bit) sys::call(SYS_membarrier, bit, 0, 0);
}

void restore_memory(Plan* p) {
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type != kRecAio) return;
    const long r = restore_aio(*reinterpret_cast<const Aio*>(at), at + sizeof(Aio));
    if (r == -7 /* E2BIG */)
      die(kExitIncompatible, "an AIO context (io_setup) is larger here: there are more processors");
    if (sys::failed(r))
      die(kExitIncompatible,
          "an AIO context (io_setup) cannot be made again here (error %ld; fs.aio-max-nr)", -r);
  });
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type == kRecGuards && !restore_guards(reinterpret_cast<const Span*>(at), h.count))
      die(kExitIncompatible,
          "guard pages (MADV_GUARD_INSTALL) cannot be made here: they need Linux 6.13");
  });
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* policy = reinterpret_cast<const MemoryPolicy*>(at);
    if (h.type == kRecVma) {
      restore_locked(*reinterpret_cast<const Vma*>(at));
      restore_title(*reinterpret_cast<const Vma*>(at), at + sizeof(Vma));
    }
    if (h.type != kRecPolicy) return;
    if (!policy->tid) restore_policy(*policy);
    for (size_t k = 0; k < state.count; ++k)
      if (state.threads[k].saved.tid == policy->tid) state.threads[k].policy = policy;
  });
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type == kRecVma && !restore_seal(*reinterpret_cast<const Vma*>(at)))
      die(kExitIncompatible, "memory cannot be sealed here (mseal): that needs Linux 6.10");
  });
}

// By their numbers: where numbers only grow, one that is too high cannot be had back. (The kernel
// lists them in any order.)
void restore_timers(Plan* p) {
  constexpr int kRestoreIds = 77;  // PR_TIMER_CREATE_RESTORE_IDS
  sys::call(SYS_prctl, kRestoreIds, 1);
  for (int last = -1;;) {
    const PosixTimer* next = nullptr;
    each_record(p, [&](const RecordHead& h, const char* at) {
      const auto* t = reinterpret_cast<const PosixTimer*>(at);
      if (h.type == kRecTimer && t->id > last && (!next || t->id < next->id)) next = t;
    });
    if (!next) break;
    restore_timer(*next);
    last = next->id;
  }
  sys::call(SYS_prctl, kRestoreIds, 0);
}

// After the threads, because timers may name one.
void restore_clocks(Plan* p) {
  restore_timers(p);
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type == kRecItimers)
      for (int i = 0; i < 3; ++i) {
        Itimer t = reinterpret_cast<const Itimer*>(at)[i];
        // One that expired this very moment waits for its signal to be taken.
        if (!t.value_sec && !t.value_us) t.value_sec = t.interval_sec, t.value_us = t.interval_us;
        sys::call(SYS_setitimer, i, sys::ptr(&t));
      }
    if (h.type == kRecPending)
      for (uint32_t i = 0; i < h.count; ++i) {
        char info[128];
        __builtin_memcpy(info, at + i * 128, 128);
        int sig;
        __builtin_memcpy(&sig, info, 4);
        if (sig == term_signal()) continue;  // was meant for the process that was to end
        sys::call(SYS_rt_sigqueueinfo, library.pid, sig, sys::ptr(info));
      }
  });
}

// /proc shows the program only now. The path names the process by its old number.
void open_kernel_file(Plan* p, const Descriptor& d, const char* path) {
  char own[64], here[4200];
  format(own, sizeof(own), "/proc/%d", state.head.pid);
  size_t n = length(own);
  if (starts_with(path, own) && (path[n] == '/' || !path[n])) {
    format(here, sizeof(here), "/proc/%d%s", sys::getpid(), path + n);
    path = here;
  }
  constexpr int kNot = O_CREAT | O_EXCL | O_TRUNC;
  int flags = (static_cast<int>(d.flags) & ~kNot) | O_CLOEXEC;
  if (S_ISLNK(d.mode)) flags |= O_NOFOLLOW;  // O_PATH of a link itself
  int fd = sys::open(path, flags);
  if (fd < 0) {
    warn("descriptor %d (%s) cannot be opened again (error %d)", d.fd, path, -fd);
    return;
  }
  sys::call(SYS_lseek, fd, static_cast<long>(d.offset), 0);
  each_record(p, [&](const RecordHead& h, const char* at) {
    const Descriptor* o = reinterpret_cast<const Descriptor*>(at);
    if (h.type == kRecFd && o->description == d.description && !(o->fd_flags & kFdInFlight))
      sys::call(SYS_dup3, fd, o->fd, 0);
  });
  sys::close(fd);
}

// Locks belong to the process or to a description, and closing any other descriptor of the file
// would take them away again: so they come last.
long lock_file(const FileLock& l) {
  long r;
  if (l.kind == kLockFlock) {
    r = sys::call(SYS_flock, l.fd, (l.type == F_WRLCK ? 2 : 1) | 4 /* LOCK_NB */);
  } else {
    struct {
      short type, whence;
      int64_t start, length;
      int pid;
    } lock{static_cast<short>(l.type), 0, static_cast<int64_t>(l.start),
           l.end == ~0ull ? 0 : static_cast<int64_t>(l.end - l.start + 1), 0};
    r = sys::call(SYS_fcntl, l.fd, l.kind == kLockOfd ? 37 : F_SETLK, sys::ptr(&lock));
  }
  return r;
}

// A child of the killed program may have it still, for a moment.
void restore_lock(const FileLock& l) {
  constexpr uint64_t kPatienceUs = 8'000'000;
  const uint64_t begin = sys::now_us();
  long r;
  while ((r = lock_file(l)) == -11 /* EAGAIN */ || r == -13 /* EACCES */) {
    if (sys::now_us() - begin > kPatienceUs) break;
    sys::sleep_us(20'000);
  }
  if (sys::failed(r))
    die(kExitIncompatible,
        "the file behind descriptor %d, which the program had locked, is locked by another "
        "process; end that process, and restore again",
        l.fd);
}

// Its locks are there (fds.cc).
bool is_in_flight(const Plan* p, int fd) {
  bool result = false;
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* d = reinterpret_cast<const Descriptor*>(at);
    result |= h.type == kRecFd && d->fd == fd && d->fd_flags & kFdInFlight;
  });
  return result;
}

// One that cannot be had again is as good as broken: the program is told as the kernel would tell
// it, by the signal it has chosen.
void restore_lease(const FileLock& l) {
  constexpr int kTries = 50;  // of 20 ms: others of the job may have the file open for a moment
  long r = -1;
  for (int i = 0; i < kTries && sys::failed(r); ++i, sys::sleep_us(sys::failed(r) ? 20'000 : 0))
    r = sys::call(SYS_fcntl, l.fd, 1024 /* F_SETLEASE */, l.type);
  if (!sys::failed(r)) return;
  warn(
      "the lease on the file behind descriptor %d cannot be taken again (error %ld): the "
      "program is told that it is broken",
      l.fd, -r);
  const long chosen = sys::call(SYS_fcntl, l.fd, 11 /* F_GETSIG */);
  siginfo_t info;
  __builtin_memset(&info, 0, sizeof(info));
  info.si_signo = chosen > 0 ? static_cast<int>(chosen) : SIGIO;
  info.si_code = POLL_MSG;
  info.si_fd = l.fd;
  sys::call(SYS_rt_sigqueueinfo, sys::getpid(), info.si_signo, sys::ptr(&info));
}

// What they have noticed of the restore itself.
void drop_notices(const Plan* p) {
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* d = reinterpret_cast<const Descriptor*>(at);
    if (h.type != kRecFd || d->kind != kFdInotify || d->description != d->fd ||
        d->fd_flags & kFdInFlight)
      return;
    char events[8192];
    int queued = 0;
    while (!sys::failed(sys::call(SYS_ioctl, d->fd, FIONREAD, sys::ptr(&queued))) && queued > 0 &&
           sys::read(d->fd, events, sizeof(events)) > 0) {
    }
  });
}

// When nobody has the files open who helped with the restore.
void restore_leases(const Plan* p) {
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* l = reinterpret_cast<const FileLock*>(at);
    if (h.type == kRecFileLock && l->kind == kLockLease) restore_lease(*l);
  });
}

void restore_owner(const DescriptorOwner& o) {
  struct {
    int type, pid;
  } owner{o.type, o.pid == state.head.pid ? sys::getpid() : o.pid};
  sys::call(SYS_fcntl, o.fd, 15 /* F_SETOWN_EX */, sys::ptr(&owner));
  if (o.signal) sys::call(SYS_fcntl, o.fd, 10 /* F_SETSIG */, o.signal);
  if (!o.asynchronous) return;
  // si_fd is the number by which it was switched on.
  const long flags = sys::call(SYS_fcntl, o.fd, F_GETFL);
  sys::call(SYS_fcntl, o.fd, F_SETFL, flags & ~O_ASYNC);
  sys::call(SYS_fcntl, o.fd, F_SETFL, flags | O_ASYNC);
}

void set_foreground(int terminal) {
  int group = state.head.foreground;
  if (group > 0) sys::call(SYS_ioctl, terminal, TIOCSPGRP, sys::ptr(&group));
}

// Only terminals that were made anew: the launcher's own belongs to the launcher's session.
void take_terminal(Plan* p) {
  if (!state.head.terminal || sys::call(SYS_getsid, 0) != sys::getpid()) return;
  bool taken = false;
  each_record(p, [&](const RecordHead& h, const char* at) {
    const Descriptor* d = reinterpret_cast<const Descriptor*>(at);
    if (h.type != kRecFd || taken || d->kind != kFdTerminal || (d->fd_flags & kFdInFlight) ||
        d->value[1] != static_cast<uint64_t>(state.head.terminal))
      return;
    taken = !sys::failed(sys::call(SYS_ioctl, d->fd, TIOCSCTTY, 0));
    if (taken) set_foreground(d->fd);
  });
  // Nobody has its slave open: then it is opened for this alone.
  char path[40];
  format(path, sizeof(path), "/dev/pts/%d", state.head.terminal - 1);
  const bool own = p->flags & restore::kOwnTerminal;
  const int slave = taken || !own ? -1 : sys::open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return;
  if (!sys::failed(sys::call(SYS_ioctl, slave, TIOCSCTTY, 0))) set_foreground(slave);
  sys::close(slave);
}

// What was opened as /dev/tty is a descriptor of the terminal's slave so far: the session must have
// its terminal first, which the process that leads it takes.
void open_controlling_terminals(Plan* p) {
  each_record(p, [&](const RecordHead& h, const char* at) {
    const Descriptor* d = reinterpret_cast<const Descriptor*>(at);
    struct stat st;
    if (h.type != kRecFd || d->kind != kFdTerminal || !d->value[2] || d->description != d->fd ||
        d->fd_flags & kFdInFlight || sys::failed(sys::call(SYS_fstat, d->fd, sys::ptr(&st))) ||
        (st.st_rdev >> 8 & 0xfff) < 136)
      return;
    const int fd = sys::open(
        "/dev/tty", (static_cast<int>(d->flags) & (O_ACCMODE | O_NONBLOCK | O_APPEND)) | O_CLOEXEC);
    if (fd < 0) return;
    each_record(p, [&](const RecordHead& other, const char* record) {
      const Descriptor* o = reinterpret_cast<const Descriptor*>(record);
      if (other.type == kRecFd && o->description == d->description && !(o->fd_flags & kFdInFlight))
        sys::call(SYS_dup3, fd, o->fd, o->fd_flags & FD_CLOEXEC ? O_CLOEXEC : 0);
    });
    sys::close(fd);
  });
}

void finish_descriptors(Plan* p) {
  for (int fd = p->report_fd + 1; fd <= p->highest_fd; ++fd)
    if (fd != p->device_fd) sys::close(fd);
  each_record(p, [&](const RecordHead& h, const char* at) {
    const Descriptor* d = reinterpret_cast<const Descriptor*>(at);
    if (h.type == kRecFd && d->kind == kFdKernelFile && d->description == d->fd)
      open_kernel_file(p, *d, at + sizeof(Descriptor));
  });
  const auto* fds =
      reinterpret_cast<const restore::PlanFd*>(reinterpret_cast<const char*>(p) + p->fds);
  for (uint64_t i = 0; i < p->fd_count; ++i) {
    if (fds[i].seals) sys::call(SYS_fcntl, fds[i].fd, 1033 /* F_ADD_SEALS */, fds[i].seals);
    sys::call(SYS_fcntl, fds[i].fd, F_SETFD, fds[i].fd_flags & FD_CLOEXEC);
  }
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* l = reinterpret_cast<const FileLock*>(at);
    if (h.type == kRecFileLock && l->kind != kLockLease && !is_in_flight(p, l->fd))
      restore_lock(*l);
    if (h.type == kRecOwner) restore_owner(*reinterpret_cast<const DescriptorOwner*>(at));
  });
  take_terminal(p);
}

// What the image says of our own machinery was true in the middle of a snapshot in another process.
void forget_the_old_process(Plan* p) {
  scratch_forget();
  parking_forget();
  tracker.forget_after_restore();
  job_barrier.forget();
  forget_keepers();
  forget_semaphores();
  expect_lazy_pages(p->flags & restore::kLazy);
  library.pid = library.host_pid = sys::getpid();
  library.start_time = library.host_start_time = 0;
  library.wanted = kRunning;  // triggers wait until the program runs
  library.coordinator_tid = 0;
  library.io_thread_tid = 0;
  library.vdso = {};
  library.generation = p->generation;
  note_inherited_filters();
  note_inherited_place(&p->restorer);
  note_inherited_standard(p->standard);
  library.snapshots_done = library.snapshots_failed = 0;
  library.last_snapshot[0] = 0;  // what lies in the image is the one before
  library.term_waits = 0;
}

// Another process of the job may need an id that a new thread of ours would take.
void await_threads_of_all(const Plan* p) {
  if (!(p->flags & restore::kSeveral)) return;
  restore::Report r;
  __builtin_memset(&r, 0, sizeof(r));
  r.type = restore::kReportThreads;
  sys::call(SYS_sendto, p->report_fd, sys::ptr(&r), sizeof(r), MSG_NOSIGNAL, 0, 0);
  const long n = sys::call(SYS_recvfrom, p->report_fd, sys::ptr(&r), sizeof(r), 0, 0, 0);
  if (n != sizeof(r) || r.type != restore::kReportDriver) sys::exit_group(125);
}

// --- the device
// -------------------------------------------------------------------------------------------------------

struct Source : RestoreSource {
  const Plan* plan;
  restore::DeviceRing* ring;  // null: zeros are all there is
  uint64_t zeros_given;
};

bool driver_is_gone(const Plan* p) {
  pollfd socket{p->report_fd, 0, 0};
  return sys::call(SYS_poll, sys::ptr(&socket), 1, 0) > 0 && socket.revents & POLLHUP;
}

RestoreSource::Next source_next(RestoreSource* s, RestorePiece* out) {
  using restore::DeviceRing;
  Source* self = static_cast<Source*>(s);
  const Plan* p = self->plan;
  const auto* zeros =
      reinterpret_cast<const restore::PlanExtent*>(reinterpret_cast<const char*>(p) + p->extents);
  if (self->zeros_given < p->extent_count) {
    const restore::PlanExtent& e = zeros[self->zeros_given++];
    *out = {e.space, e.address, e.length, nullptr, DeviceRing::kBlocks};
    return RestoreSource::kPiece;
  }
  DeviceRing* ring = self->ring;
  while (ring) {
    const uint32_t seen = ring->filled.load(), end = ring->end.load();
    const uint32_t i = ring->claim(DeviceRing::kFull);
    if (i < DeviceRing::kBlocks) {
      const DeviceRing::Block& b = ring->block[i];
      *out = {b.space, b.address, b.length, ring->bytes(i), i};
      return RestoreSource::kPiece;
    }
    if (end == DeviceRing::kAll) break;
    if (end == DeviceRing::kFailed || driver_is_gone(p)) return RestoreSource::kBroken;
    sys::futex_wait(&ring->filled, seen, 100000, true);
  }
  return RestoreSource::kEnd;
}

void source_done(RestoreSource* s, const RestorePiece& piece) {
  restore::DeviceRing* ring = static_cast<Source*>(s)->ring;
  if (piece.token >= restore::DeviceRing::kBlocks) return;
  ring->block[piece.token].state = restore::DeviceRing::kFree;
  ++ring->freed;
  sys::futex_wake(&ring->freed, 1, true);
}

const void* source_blob(RestoreSource* s, const char* name, uint64_t* length) {
  Source* self = static_cast<Source*>(s);
  const char* plan = reinterpret_cast<const char*>(self->plan);
  const auto* b = reinterpret_cast<const restore::PlanBlob*>(plan + self->plan->blobs);
  for (uint64_t i = 0; i < self->plan->blob_count; ++i)
    if (equal(b[i].name, name)) {
      *length = b[i].bytes;
      return plan + b[i].offset;
    }
  return nullptr;
}

struct DeviceWork {
  Source source;
  DeviceReport report;
  bool ok;
};
void restore_device(void* argument) {
  DeviceWork* w = static_cast<DeviceWork*>(argument);
  w->ok = device_plugin->restore(&w->source, &w->report);
}

// --- the coordinator
// ----------------------------------------------------------------------------------------------------

void restore_dumpable() {
  if (state.head.dumpable == 0 || state.head.dumpable == 1)
    sys::call(SYS_prctl, PR_SET_DUMPABLE, state.head.dumpable);
}

// Children that are stopped stop as the first thing they do, and they run before their parent does.
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

// All that is mapped already keeps its own locks.
void restore_future_locks() {
  each_record(state.plan, [&](const RecordHead& h, const char* at) {
    if (h.type != kRecFutureLocks) return;
    const long r = sys::call(SYS_mlockall, *reinterpret_cast<const uint32_t*>(at));
    if (sys::failed(r))
      warn(
          "memory that the program maps from now on is not locked as it had asked (mlockall, "
          "MCL_FUTURE; error %ld; ulimit -l)",
          -r);
  });
}

void release_threads() {
  if (state.head.deny_write_exec) sys::call(SYS_prctl, kSetMdwe, state.head.deny_write_exec);
  // Changing credentials clears it, and without it /proc/self is closed to us.
  restore_dumpable();
  state.release_driver = 1;
  sys::futex_wake(&state.release_driver, 0x7fffffff);
  state.release = 1;
  sys::futex_wake(&state.release, 0x7fffffff);
}

// Tells the restore driver that everything is in place and waits for its word.
void ask_to_go(uint64_t device_us) {
  tell_lost_capabilities();
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
  rename_job(r.us[0]);
  warn_through(-1);
  sys::close(fd);
  drop_notices(state.plan);
  restore_leases(state.plan);
  stop_children_again_after_restore(told);
  api_after_restore(r.text);
}

void coordinator_after_restore(void*) {
  *reinterpret_cast<int*>(library.coordinator_tls + library.tid_offset) = sys::gettid();
  sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt"));
  Plan* p = state.plan;
  const bool device = state.head.device_present && device_plugin;
  if (device_plugin) device_plugin->rewind(device);
  if (device_plugin && p->flags & restore::kStep) device_plugin->step(p->steps);
  Region ring{};
  static DeviceWork work;
  uint64_t device_us = 0;
  bool released = false;
  if (state.head.device_present && !device_plugin)
    die(kExitIncompatible, "the snapshot needs a device side this library does not have");
  if (device) {
    __builtin_memset(static_cast<void*>(&work), 0, sizeof(work));
    work.source.next = source_next;
    work.source.done = source_done;
    work.source.blob = source_blob;
    work.source.plan = p;
    if (p->device_fd >= 0) {
      ring = scratch_map(restore::DeviceRing::kBytes, p->device_fd);
      if (!ring) die(kExitError, "no address space for the device's memory");
      sys::close(p->device_fd);
      work.source.ring = reinterpret_cast<restore::DeviceRing*>(ring.data());
      work.source.memory = ring.data();
      work.source.memory_bytes = restore::DeviceRing::kBytes;
    }
    if (!state.locks_free) {
      log_line(
          LogLevel::kInfo,
          "a lock of libc was held at the snapshot: the program runs before the device is back");
      ask_to_go(0);
      release_threads();
      released = true;
    } else {
      state.release_driver = 1;
      sys::futex_wake(&state.release_driver, 0x7fffffff);
    }
    // Others of the job ask for the memory of ours that they have mapped, perhaps before we are
    // ready or while we wait for theirs: our signal is answered on this thread.
    sys::sigprocmask_set(~(1ull << (wire::kWakeSignal - 1)));
    begin_step("putting its device back", 0);
    uint64_t t0 = sys::now_us();
    bool made = run_on_pthread(restore_device, &work);
    device_us = sys::now_us() - t0;
    if (!made || !work.ok) {
      const char* why = made ? work.report.text : "no thread for the device's work could be made";
      log_line(LogLevel::kError, "restore failed: %s", why);
      if (released) sys::exit_group(125);
      die(work.report.code ? work.report.code : kExitIncompatible, "%s", why);
    }
    scratch_unmap(&ring);
  }
  if (!released) {
    ask_to_go(device_us);
    release_threads();
  }
  sys::sigprocmask_all();
  size_t others = state.count;
  while (state.left < others) sys::sleep_us(100);
  // Threads that got other user ids have taken it away again.
  if (p->flags & restore::kSetIds) restore_dumpable();
  scratch_unmap(&state.stack_memory);
  scratch_unmap(&state.thread_memory);
  sys::munmap(p->chosen_gap, p->gap_bytes);
  start_timer();
  coordinator_main(nullptr);  // serves what was triggered meanwhile
}

}  // namespace
}  // namespace gpuckpt

extern "C" __attribute__((visibility("hidden"))) void gpuckpt_restore_entry(void* plan) {
  using namespace gpuckpt;
  Plan* p = static_cast<Plan*>(plan);
  __builtin_memset(static_cast<void*>(&state), 0, sizeof(state));
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
  state.thread_memory = scratch_map(state.count * sizeof(RestoredThread));
  if (!state.thread_memory) die(kExitError, "no memory for %lu threads", state.count);
  state.threads = reinterpret_cast<RestoredThread*>(state.thread_memory.data());
  size_t i = 0;
  RestoredThread* leader = nullptr;
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type != kRecThread) return;
    RestoredThread* t = &state.threads[i++];
    __builtin_memcpy(&t->saved, at, sizeof(Thread));
    if (t->saved.flags & kThreadMain) leader = t;
  });
  if (!leader) die(kExitCorrupt, "the snapshot has no main thread");
  each_record(p, [&](const RecordHead& h, const char* at) {
    for (size_t k = 0; h.type == kRecThreadPending && k < state.count; ++k)
      if (state.threads[k].saved.tid == reinterpret_cast<const ThreadPending*>(at)->tid)
        state.threads[k].pending = at + sizeof(ThreadPending),
        state.threads[k].pending_count = h.count;
  });
  each_record(p, [&](const RecordHead& h, const char* at) {
    for (size_t k = 0; k < state.count; ++k) {
      RestoredThread& t = state.threads[k];
      if (h.type == kRecGroups)
        t.groups = reinterpret_cast<const uint32_t*>(at), t.group_count = h.count;
      if (h.type == kRecThreadGroups &&
          reinterpret_cast<const ThreadGroups*>(at)->tid == t.saved.tid)
        t.groups = reinterpret_cast<const uint32_t*>(at + sizeof(ThreadGroups)),
        t.group_count = h.count;
      if (h.type == kRecThreadPlace && reinterpret_cast<const ThreadPlace*>(at)->tid == t.saved.tid)
        t.place = reinterpret_cast<const ThreadPlace*>(at);
    }
  });
  leader->tid = sys::gettid();
  begin_step("locking its files", 120);
  finish_descriptors(p);
  log_adopt_stderr();
  begin_step("preparing its memory", 120);
  restore_process(p);
  restore_memory(p);
  begin_step("making its threads", 60);
  make_threads(p);
  await_threads_of_all(p);
  open_controlling_terminals(p);
  restore_clocks(p);
  if (!(p->flags & restore::kSameIds)) {
    size_t n = rewrite_owners(p);
    log_line(LogLevel::kInfo, "restored with new thread ids; %lu owned mutexes rewritten", n);
  }
  constexpr uint64_t flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                             CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                             CLONE_CHILD_CLEARTID;
  int* tid = reinterpret_cast<int*>(&library.coordinator_tid);
  long r = clone_raw(flags, library.stacks.start + kCoordinatorStack, coordinator_after_restore,
                     nullptr, tid, tid, library.coordinator_tls);
  if (sys::failed(r)) die(kExitError, "cannot start a thread (error %ld)", -r);
  if (leader->saved.flags & kThreadZombieLeader) {
    wait_for(&state.release);
    ++state.left;
    sys::exit_thread(0);
  }
  adopt(leader);
  wait_for(&state.release);
  leave(leader);
}

namespace gpuckpt {
uint64_t restore_stack_top() {
  return reinterpret_cast<uint64_t>(entry_stack + sizeof(entry_stack)) & ~63ull;
}
}  // namespace gpuckpt
