#include "restore/entry/entry_threads.h"

#include <asm/prctl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>

#include "base/syscall.h"
#include "gpuckpt/exit_codes.h"
#include "restore/entry/entry_memory.h"
#include "restore/entry/warnings.h"
#include "snapshot/park/continued_wait.h"
#include "snapshot/park/interrupted_call.h"
#include "snapshot/park/raw_thread.h"

namespace gpuckpt::entry {
namespace {

using namespace process;
using restore::Plan;

constexpr uint64_t kThreadStack = 8192;
constexpr uint32_t kKeepCaps = 1 << 4;  // SECBIT_KEEP_CAPS

struct CapabilityHeader {
  uint32_t version;
  int pid;
};
struct CapabilitySets {
  uint32_t effective, permitted, inheritable;
};

}  // namespace

// Reports the capabilities that threads had and this process may not have. Called before the
// threads get their own, because the supervisor still listens then.
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
    return;  // all other threads lack the same
  }
}

namespace {

// Restores the credentials, which a thread gets last because it may need the present ones until
// then. All threads of a job have theirs before the first of them runs, because what processes may
// do to each other (process_vm_readv, kill) depends on both sides. What is not permitted here
// (another user's ids, or ids that the namespace lacks) cannot be granted.
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
      // Any user may set this bit; the user was told of the others.
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

// Restores what a thread lets its processor speculate on.
void restore_speculation(long what, int state) {
  constexpr int kChoices =
      PR_SPEC_ENABLE | PR_SPEC_DISABLE | PR_SPEC_FORCE_DISABLE | PR_SPEC_DISABLE_NOEXEC;
  if (!(state & PR_SPEC_PRCTL)) return;
  if (const long now = sys::call(SYS_prctl, PR_GET_SPECULATION_CTRL, what, 0, 0, 0);
      (now & kChoices) != (state & kChoices))
    sys::call(SYS_prctl, PR_SET_SPECULATION_CTRL, what, state & kChoices, 0, 0);
}

void restore_choices(const RestoredThread& t) {
  const Head& h = state.head;
  const ThreadChoices choices =
      t.choices ? *t.choices
                : ThreadChoices{t.tid, h.memory_failure, h.store_bypass, h.indirect_branch, 0, 0};
  if (choices.memory_failure != PR_MCE_KILL_DEFAULT)
    sys::call(SYS_prctl, PR_MCE_KILL, PR_MCE_KILL_SET, choices.memory_failure, 0, 0);
  restore_speculation(PR_SPEC_STORE_BYPASS, choices.store_bypass);
  restore_speculation(PR_SPEC_INDIRECT_BRANCH, choices.indirect_branch);
  restore_speculation(PR_SPEC_L1D_FLUSH, choices.l1d_flush);
  if (choices.io_flusher && sys::failed(sys::call(SYS_prctl, PR_SET_IO_FLUSHER, 1, 0, 0, 0)))
    warn("thread %d (%s) cannot be one that writes for others here (PR_SET_IO_FLUSHER)",
         t.saved.tid, t.saved.name);
}

// Restores the working directory and umask of a thread that has its own.
void restore_folder(const Thread& s, const ThreadFolder* folder) {
  const char* path = reinterpret_cast<const char*>(folder + 1);
  if (sys::failed(sys::call(SYS_unshare, CLONE_FS)) ||
      sys::failed(sys::call(SYS_chdir, sys::ptr(path))))
    die(kExitIncompatible, "thread %d (%s) cannot have its working directory %s here", s.tid,
        s.name, path);
  sys::call(SYS_umask, folder->umask);
}

}  // namespace

void adopt(RestoredThread* t) {
  const Thread& s = t->saved;
  if (t->folder) restore_folder(s, t->folder);
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
    // The area says "registered, on CPU n", but the kernel wants it as at the start of a thread.
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
  restore_choices(*t);
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

namespace {

void take_credentials(const RestoredThread& t) {
  restore_credentials(t);
  if (t.saved.no_new_privs) sys::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1);
  // The change of credentials has cleared it.
  if (t.saved.death_signal) sys::call(SYS_prctl, PR_SET_PDEATHSIG, t.saved.death_signal);
}

}  // namespace

void await_release(const RestoredThread& t) {
  if (t.saved.flags & kThreadDriver) {
    wait_for(&state.release_driver);
    take_credentials(t);
    return;
  }
  wait_for(&state.take_credentials);
  take_credentials(t);
  ++state.have_credentials;
  sys::futex_wake(&state.have_credentials, 1);
  wait_for(&state.release);
}

void give_credentials() {
  uint32_t expected = 0;
  for (size_t i = 0; i < state.count; ++i)
    expected += !(state.threads[i].saved.flags & (kThreadDriver | kThreadZombieLeader));
  state.take_credentials = 1;
  sys::futex_wake(&state.take_credentials, 0x7fffffff);
  for (uint32_t n; (n = state.have_credentials) < expected;)
    sys::futex_wait(&state.have_credentials, n, 100000);
}

static CallEnd call_end(const process::Thread& t) {
  return t.flags & kThreadCallEnds                 ? CallEnd::kAlways
         : t.flags & kThreadCallEndsWithoutRestart ? CallEnd::kWithoutRestart
                                                   : CallEnd::kNever;
}

// Continues in the application; does not return.
[[noreturn]] void leave(RestoredThread* t) {
  if (t->saved.flags & kThreadDriver) {
    uint64_t pc = t->saved.resume_pc, sp = t->saved.resume_sp;
    sys::sigprocmask_set(0);
    state.left.fetch_add(1);
    sys::futex_wake(&state.left, 1);
    asm volatile("mov %0, %%rsp\n xor %%ebp, %%ebp\n jmp *%1" : : "d"(sp), "a"(pc) : "memory");
  }
  uint64_t frame = t->saved.ucontext;
  begin_rest(reinterpret_cast<ucontext_t*>(frame));
  end_call_if_signalled(reinterpret_cast<ucontext_t*>(frame), call_end(t->saved), state.count == 1);
  // The stack may be gone from here on, so only registers are used.
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

namespace {

void thread_main(void* argument) {
  RestoredThread* t = static_cast<RestoredThread*>(argument);
  t->tid = sys::gettid();
  adopt(t);
  state.ready.fetch_add(1);
  sys::futex_wake(&state.ready, 1);
  await_release(*t);
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
  // The kernel takes base and size; the child's stack pointer starts at base + size.
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

}  // namespace

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

// Replaces thread ids in glibc's locks. Without set_tid the ids are new, and glibc's mutexes name
// their owner by id. Owned ones are recognised by their layout; a false match needs three
// consecutive words that look like a lock held by one of our threads.
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

}  // namespace gpuckpt::entry
