#include "restore/entry/entry_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/sem.h>

#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "restore/entry/entry_aio.h"
#include "restore/entry/entry_memory.h"
#include "restore/entry/entry_state.h"
#include "restore/entry/warnings.h"
#include "snapshot/calls/semaphore_undo.h"
#include "snapshot/control/state.h"

namespace gpuckpt::entry {
namespace {

using namespace process;
using restore::Plan;

constexpr int kSetMemoryMerge = 67;  // newer than the headers of some machines this is built on

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
  // A thread that has ended gets no signals, and its timer runs on without one.
  if (event.notify == SIGEV_THREAD_ID && !has_thread) event.notify = SIGEV_NONE, event.tid = 0;
  // Ids are given in order: make and delete timers until the wanted id comes. Kernels since 6.15
  // accept a wanted id.
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

}  // namespace

// The kernel allows ordinary users ten changes a second, all together, and writers of snapshots
// take some of them.
void restore_autogroup(int value) {
  char text[16];
  const int size = static_cast<int>(format(text, sizeof(text), "%d", value));
  long r = -1;
  for (int tries = 0; tries < 200; ++tries) {
    const int fd = sys::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    r = fd < 0 ? fd : sys::write(fd, text, static_cast<size_t>(size));
    if (fd >= 0) sys::close(fd);
    if (r != -EAGAIN) break;
    sys::sleep_us(20'000);
  }
  if (sys::failed(r))
    warn("the session cannot have the nice value %d of its autogroup here (error %ld)", value, -r);
}

// What the kernel is to do at the end of the process (SEM_UNDO). Semaphores whose values are not
// those of the snapshot were left to other processes by the restore, which has said so.
void restore_undos(const SemaphoreSet& set, const char* at) {
  const auto* values = reinterpret_cast<const uint16_t*>(at);
  const auto* undos = reinterpret_cast<const int16_t*>(values + set.count);
  for (uint32_t i = 0; i < set.count; ++i) {
    const int semaphore = static_cast<int>(i);
    if (!undos[i] || sys::call(SYS_semctl, set.id, semaphore, GETVAL, 0) != values[i]) continue;
    if (!redo(set.id, semaphore, undos[i]))
      warn("what SEM_UNDO is to do to semaphore %d of the System V set %d is not done", semaphore,
           set.id);
  }
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
            // A hard limit cannot be raised without privilege, so at least the soft one is set.
            Limit have{};
            sys::call(SYS_prlimit64, 0, i, 0, sys::ptr(&have));
            have.soft = now.soft < have.hard ? now.soft : have.hard;
            sys::call(SYS_prlimit64, 0, i, sys::ptr(&have), 0);
          }
        }
        break;
      }
      case kRecSemaphores:
        restore_undos(*reinterpret_cast<const SemaphoreSet*>(at), at + sizeof(SemaphoreSet));
        break;
      case kRecAutogroup:
        restore_autogroup(*reinterpret_cast<const int32_t*>(at));
        break;
      default:
        break;
    }
  });
  const Head& h = state.head;
  sys::call(SYS_umask, h.umask);
  if (h.personality != static_cast<uint32_t>(sys::call(SYS_personality, 0xffffffff)))
    sys::call(SYS_personality, h.personality);
  if (h.subreaper) sys::call(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1);
  constexpr long kThpFlags = ~1;  // PR_THP_DISABLE_EXCEPT_ADVISED (Linux 6.18)
  if (h.thp_disable)
    if (sys::failed(sys::call(SYS_prctl, PR_SET_THP_DISABLE, 1, h.thp_disable & kThpFlags)))
      sys::call(SYS_prctl, PR_SET_THP_DISABLE, 1);
  if (h.memory_merge) sys::call(SYS_prctl, kSetMemoryMerge, 1);
  for (uint32_t bit = 1; bit; bit <<= 1)
    if (h.membarrier & bit) sys::call(SYS_membarrier, bit, 0, 0);
}

// The kernel has chosen for a process with as many threads by now; the program may have chosen
// something else.
void restore_futex_hash(Plan* p) {
  each_record(p, [](const RecordHead& h, const char* at) {
    if (h.type != kRecFutexHash) return;
    const uint32_t slots = *reinterpret_cast<const uint32_t*>(at);
    if (const long now = sys::call(SYS_prctl, sys::kFutexHash, sys::kGetFutexHashSlots, 0, 0, 0);
        !sys::failed(now) && now != slots)
      sys::call(SYS_prctl, sys::kFutexHash, sys::kSetFutexHashSlots, slots, 0, 0);
  });
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

namespace {

// Makes the timers in the order of their ids: where ids only grow, one that is too high cannot be
// lowered. (The kernel lists timers in any order.)
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
  bool stays = false;
  each_record(p, [&](const RecordHead& h, const char*) { stays |= h.type == kRecTimerIds; });
  if (!stays) sys::call(SYS_prctl, kRestoreIds, 0);
}

}  // namespace

// Called after the threads exist, because timers may name one.
void restore_clocks(Plan* p) {
  restore_timers(p);
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type == kRecItimers)
      for (int i = 0; i < 3; ++i) {
        Itimer t = reinterpret_cast<const Itimer*>(at)[i];
        // A timer that has just expired still has its signal pending.
        if (!t.value_sec && !t.value_us) t.value_sec = t.interval_sec, t.value_us = t.interval_us;
        sys::call(SYS_setitimer, i, sys::ptr(&t));
      }
    if (h.type == kRecPending)
      for (uint32_t i = 0; i < h.count; ++i) {
        char info[128];
        __builtin_memcpy(info, at + i * 128, 128);
        int sig;
        __builtin_memcpy(&sig, info, 4);
        if (sig == term_signal()) continue;  // the signal was sent to end the killed process
        sys::call(SYS_rt_sigqueueinfo, library.pid, sig, sys::ptr(info));
      }
  });
}

// Locks memory that is mapped from now on; existing mappings keep their own locks.
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

}  // namespace gpuckpt::entry
