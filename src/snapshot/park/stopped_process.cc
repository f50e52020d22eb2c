#include "snapshot/park/stopped_process.h"

#include <atomic>

#include "base/descriptors/handover.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/control/state.h"
#include "snapshot/job/membership.h"
#include "snapshot/park/park.h"

namespace gpuckpt {
namespace {

// The number of the last leader's listener (job/barrier.h) for which this process's threads were
// held, times two, and in the lowest bit whether they still are.
std::atomic<uint32_t> held_for{0};

bool is_for_stopped(const siginfo_t* info, uint32_t* listener) {
  if (info->si_code != SI_QUEUE) return false;
  const uint64_t value = reinterpret_cast<uint64_t>(info->si_value.sival_ptr);
  *listener = static_cast<uint32_t>(value & ~wire::kJoinMask);
  return (value & wire::kJoinMask) == wire::kStoppedCookie;
}

void go_to(const siginfo_t* info, uint32_t listener) {
  library.leader = info->si_pid;
  library.leader_listener = listener;
}

int stop_signal = SIGSTOP;  // by which this process was stopped, and stops again
bool asked_early = false;   // stop_early() ended because another leader wants us

// Does a process of our group have its parent in another group of our session? Otherwise the group
// is an orphan, and the kernel ignores the signals of a terminal that stop.
bool group_has_parent() {
  struct Search {
    Relative own;
    bool found;
  } s{};
  if (!look_at(library.pid, &s.own)) return false;
  each_number_in("/proc", &s, [](void* context, int pid) {
    Search* search = static_cast<Search*>(context);
    Relative r, parent;
    search->found = look_at(pid, &r) && r.pgid == search->own.pgid && look_at(r.ppid, &parent) &&
                    parent.pgid != r.pgid && parent.sid == r.sid;
    return !search->found;
  });
  return s.found;
}

// The calling thread stops itself: a stop that another thread acts on could come when this one has
// gone further.
void stop_here() {
  const int sig = stop_signal != SIGSTOP && !group_has_parent() ? SIGSTOP : stop_signal;
  sys::Sigaction before{}, standard{};
  if (sig != SIGSTOP) {
    sys::sigaction(sig, nullptr, &before);
    sys::sigaction(sig, &standard, nullptr);
    sys::sigprocmask_set(~(1ull << (sig - 1)));
  }
  sys::call(SYS_tgkill, library.pid, sys::gettid(), sig);
  if (sig == SIGSTOP) return;
  sys::sigprocmask_set(~0ull);
  sys::sigaction(sig, &before, nullptr);
}

// Takes the signals of our number that wait, and calls for each that asks to be held. The leader of
// a snapshot has asked in the ordinary way as well, which is over; what else uses the number
// (glibc, the command line) stays for its addressee.
template <typename Each>
void take_waiting(Each each) {
  const uint64_t ours = 1ull << (wire::kWakeSignal - 1);
  sys::Timespec none{0, 0};
  siginfo_t info, others[8];
  int count = 0;
  uint32_t listener;
  while (count < 8 &&
         sys::call(SYS_rt_sigtimedwait, sys::ptr(&ours), sys::ptr(&info), sys::ptr(&none), 8) > 0) {
    const uint64_t value = reinterpret_cast<uint64_t>(info.si_value.sival_ptr);
    if (is_for_stopped(&info, &listener))
      each(&info, listener);
    else if (info.si_code != SI_QUEUE || (value & wire::kJoinMask) != wire::kJoinCookie)
      others[count++] = info;
  }
  for (int i = 0; i < count; ++i)
    if (others[i].si_code == SI_TKILL)
      sys::call(SYS_rt_tgsigqueueinfo, library.pid, sys::gettid(), wire::kWakeSignal,
                sys::ptr(&others[i]));
    else
      sys::call(SYS_rt_sigqueueinfo, sys::gettid(), wire::kWakeSignal, sys::ptr(&others[i]));
}

}  // namespace

void wake_stopped(int pid, unsigned listener) {
  struct Call {
    int pid;
    uint64_t value;
  } call{pid, wire::kStoppedCookie | listener};
  char path[40];
  format(path, sizeof(path), "/proc/%d/task", pid);
  each_number_in(path, &call, [](void* context, int tid) {
    const Call* c = static_cast<Call*>(context);
    send_wake_to_thread(c->pid, tid, c->value);
    return true;
  });
  sys::call(SYS_kill, pid, SIGCONT);
}

namespace {

// What a leader asked of held_by() before fork() had returned in this process.
struct AskedAtBirth {
  bool asked;
  int leader;
  uint32_t listener;
} asked_at_birth;

// Until stop_again() lets the threads go. The signal that parks comes through.
void stay_held() {
  sys::sigprocmask_set(~(1ull << (kParkSignal - 1)));
  for (uint32_t seen; (seen = held_for) & 1;) sys::futex_wait(&held_for, seen, 0);
  sys::sigprocmask_set(~0ull);
}

}  // namespace

void join_after_birth() {
  if (!asked_at_birth.asked) return;
  asked_at_birth.asked = false;
  library.leader = asked_at_birth.leader;
  library.leader_listener = asked_at_birth.listener;
  held_for = asked_at_birth.listener << 1 | 1;
  if (!wake_coordinator(kWantJoin)) {
    stop_here();
    held_for = asked_at_birth.listener << 1;
  }
  stay_held();
}

bool held_by(const siginfo_t* info) {
  uint32_t listener;
  if (!is_for_stopped(info, &listener)) return false;
  if (being_born()) {
    asked_at_birth = {true, info->si_pid, listener};
    return true;
  }
  const uint32_t now = listener << 1 | 1;
  uint32_t before = held_for;
  if (before == listener << 1) return true;  // too late: it is over
  if (before != now && held_for.compare_exchange_strong(before, now)) {
    go_to(info, listener);
    if (!wake_coordinator(kWantJoin)) {
      stop_here();
      held_for = listener << 1;
    }
  }
  // (A moment in which it does not block our signal: worker.cc.)
  if (static_cast<uint32_t>(sys::gettid()) == library.coordinator_tid) return true;
  stay_held();
  take_waiting([](const siginfo_t*, uint32_t) {});  // asked for stops that are over
  return true;
}

bool threads_are_held() { return held_for & 1; }

void stop_by(int signal) {
  const bool terminals = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
  stop_signal = terminals ? signal : SIGSTOP;
}

void stop_early() { asked_early = stop_again(); }

bool stop_again() {
  if (asked_early) {
    asked_early = false;
    return true;
  }
  // This thread was there already when we were asked for the snapshot that is over, if we were
  // stopped in the middle of one that failed.
  take_waiting([](const siginfo_t*, uint32_t) {});
  stop_here();
  // A leader that continues us has sent its signal to this thread as well.
  bool asked = false;
  take_waiting([&](const siginfo_t* info, uint32_t listener) {
    go_to(info, listener);
    held_for = listener << 1 | 1;
    asked = true;
  });
  if (asked) return true;
  held_for = held_for & ~1u;
  sys::futex_wake(&held_for, 0x7fffffff);
  return false;
}

}  // namespace gpuckpt
