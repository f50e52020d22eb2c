#include "snapshot/io/writer_start.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>

#include <atomic>

#include "base/heap.h"
#include "base/syscall.h"
#include "snapshot/control/state.h"
#include "snapshot/park/raw_thread.h"
#include "snapshot/process/limits.h"

namespace gpuckpt {
namespace {

constexpr long kAnyChild = 0x40000000;  // __WALL
constexpr uint64_t kLookUs = 1000;
constexpr uint64_t kEndPatienceUs = 100000;

struct Keeper {
  int pid;
  Region stack;
  int writer;
  std::atomic<uint32_t> stage;  // kStarting and on
};
enum Stage : uint32_t { kStarting, kStarted, kKnown };  // kKnown: the I/O thread knows the writer
Keeper keepers[4];  // a writer can have something to do when its snapshot is durable

struct Spawn {
  WriterStart* writer;
  uint64_t inner_stack;
  Keeper* keeper;
  long made = 0;  // by the outer process: the writer's number, or -errno
};

// Inner process: becomes the writer. Shares memory with the application until exec, so it touches
// only its stack.
void become_writer(void* argument) {
  WriterStart* w = static_cast<Spawn*>(argument)->writer;
  sys::call(SYS_setsid);
  sys::Sigaction standard{};
  for (int sig = 1; sig <= 64; ++sig) sys::sigaction(sig, &standard, nullptr);
  raise_own_limits();
  sys::sigprocmask_set(0);
  w->error = sys::call(SYS_execve, sys::ptr(w->path), sys::ptr(w->argv), sys::ptr(w->environment));
  sys::exit_group(127);
}

// Outer process: its death makes the writer an orphan.
void become_orphan_maker(void* argument) {
  Spawn* s = static_cast<Spawn*>(argument);
  sys::call(SYS_setsid);  // out of the program's process group
  s->made = clone_raw(CLONE_VM | CLONE_VFORK | CLONE_PIDFD, s->inner_stack, become_writer, s,
                      &s->writer->pidfd, nullptr, nullptr);
  sys::exit_group(0);
}

// The outer process where orphans would become children of this program. All signals are blocked,
// as in the I/O thread, and the descriptors are a copy of the I/O thread's.
void become_keeper(void* argument) {
  Spawn* s = static_cast<Spawn*>(argument);
  Keeper* k = s->keeper;
  const long program = sys::call(SYS_getppid);
  sys::call(SYS_prctl, PR_SET_NAME, sys::ptr("gpuckpt-writer"));  // membership.cc knows it by this
  sys::call(SYS_setsid);
  k->writer = static_cast<int>(clone_raw(CLONE_VM | CLONE_VFORK, s->inner_stack, become_writer, s,
                                         nullptr, nullptr, nullptr));
  if (sys::failed(sys::call(SYS_close_range, 0, ~0u, 0)))
    for (int fd = 0; fd < 1024; ++fd) sys::close(fd);
  k->stage = kStarted;  // nothing of `s` is used from here on
  sys::futex_wake(&k->stage, 1);
  while (k->stage != kKnown && sys::call(SYS_getppid) == program)
    sys::futex_wait(&k->stage, kStarted, kLookUs);
  while (sys::call(SYS_wait4, k->writer, 0, kAnyChild, 0) == -4 /* EINTR */) {
  }
  sys::exit_group(0);
}

bool takes_orphans() {
  int subreaper = 0;
  sys::call(SYS_prctl, PR_GET_CHILD_SUBREAPER, sys::ptr(&subreaper));
  return subreaper || sys::getpid() == 1;
}

bool has_ended(int pid) { return sys::call(SYS_wait4, pid, 0, kAnyChild | 1 /* WNOHANG */, 0); }

void reap(uint64_t patience_us) {
  const uint64_t until = sys::now_us() + patience_us;
  for (Keeper& k : keepers) {
    bool ended;
    while (!(ended = !k.pid || has_ended(k.pid)) && sys::now_us() < until) sys::sleep_us(kLookUs);
    if (!ended) continue;
    k.pid = 0;
    scratch_unmap(&k.stack);
  }
}

Keeper* free_keeper() {
  reap(0);
  for (Keeper& k : keepers) {
    if (k.pid) continue;
    k.stack = scratch_map(kSpawnStack);
    return k.stack ? &k : nullptr;
  }
  return nullptr;
}

long start_with_keeper(Keeper* k, Spawn* s) {
  s->keeper = k;
  k->stage = kStarting;
  const long pid = clone_raw(CLONE_VM, k->stack.start + kSpawnStack, become_keeper, s, nullptr,
                             nullptr, nullptr);
  if (sys::failed(pid)) {
    scratch_unmap(&k->stack);
    return pid;
  }
  k->pid = static_cast<int>(pid);
  bool ended = false;
  while (k->stage == kStarting && !ended) {
    sys::futex_wait(&k->stage, kStarting, kLookUs);
    ended = k->stage == kStarting && has_ended(k->pid);  // another process kills ours
  }
  if (ended) {
    k->pid = 0;
    scratch_unmap(&k->stack);
    return -3;
  }
  const long fd = k->writer > 0 ? sys::call(SYS_pidfd_open, k->writer, 0) : k->writer;
  if (!sys::failed(fd)) s->writer->pidfd = static_cast<int>(fd);
  k->stage = kKnown;
  sys::futex_wake(&k->stage, 1);
  return k->writer < 0 ? k->writer : 0;
}

}  // namespace

long start_writer(WriterStart* w) {
  const uint64_t stacks = library.stacks.start + kCoordinatorStack + kIoThreadStack;
  Spawn spawn{w, stacks + 2 * kSpawnStack, nullptr};
  if (Keeper* k = takes_orphans() ? free_keeper() : nullptr) return start_with_keeper(k, &spawn);
  // The new process shares this thread's descriptors, so that the pidfd of the writer appears in
  // this thread's table.
  const long pid = clone_raw(CLONE_VM | CLONE_FILES | CLONE_VFORK, stacks + kSpawnStack,
                             become_orphan_maker, &spawn, nullptr, nullptr, nullptr);
  if (sys::failed(pid)) return pid;
  sys::call(SYS_wait4, pid, 0, kAnyChild, 0);
  return sys::failed(spawn.made) ? spawn.made : 0;
}

unsigned writer_user() {
  const auto real = static_cast<unsigned>(sys::call(SYS_getuid));
  const auto effective = static_cast<unsigned>(sys::call(SYS_geteuid));
  return real == library.start_user || effective == 0 ? library.start_user : effective;
}

void reap_keepers() { reap(kEndPatienceUs); }

void forget_keepers() {
  for (Keeper& k : keepers) {
    k.pid = 0;
    k.stack = {};
  }
}

}  // namespace gpuckpt
