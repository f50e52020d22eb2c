#include "snapshot/trigger/sender.h"

#include <dlfcn.h>

#include <atomic>
#include <initializer_list>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/job/job_name.h"
#include "snapshot/job/membership.h"

namespace gpuckpt {
namespace {

constexpr int kMostAncestors = 64;
constexpr uint64_t kArriveUs = 50000;   // at most, for a signal on its way
constexpr uint64_t kLookedAtUs = 2000;  // from its arrival to the look at its sender

// Processes of the job that have sent us something: number and start time in one word, because
// handlers of several threads write here.
constexpr int kStartBits = 40;
constexpr size_t kSenders = 64;
std::atomic<uint64_t> senders[kSenders];

uint64_t packed(int pid, uint64_t started) {
  return static_cast<uint64_t>(pid) << kStartBits | (started & ((1ull << kStartBits) - 1));
}

std::atomic<uint64_t>& slot_of(int pid) { return senders[static_cast<size_t>(pid) % kSenders]; }

bool asked_for_by_program(const siginfo_t* info) {
  switch (info->si_code) {
    case SI_USER:
    case SI_QUEUE:
    case SI_TKILL:
      return false;
    case SI_KERNEL: {  // a terminal's, or that of a limit; but its own timers'
      constexpr uint64_t kOfTimers =
          1ull << SIGALRM | 1ull << SIGVTALRM | 1ull << SIGPROF | 1ull << SIGIO;
      return kOfTimers >> info->si_signo & 1;
    }
    default:  // timers, message queues, asynchronous input
      return true;
  }
}

// The process itself, or one it descends from (a zombie, or a process that has changed its user,
// hides its identity; their parents do not), is of this job.
bool descends_from_job(int pid) {
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    Relative r;
    if (pid == library.pid) return true;
    if (!look_at(pid, &r)) return false;
    if (has_job_name(pid, r.started)) return true;
    pid = r.ppid;
  }
  return false;
}

struct {
  std::atomic<uint64_t> when_us;
  std::atomic<int> to;  // 0: several
} sent;

void note_sent(int to, int signal) {
  if (signal != library.config.signal || !signal || to == library.pid) return;
  sent.to = to > 0 ? to : 0;
  sent.when_us = sys::now_us();
}

bool is_pending(int pid) {
  char path[40], status[4096];
  format(path, sizeof(path), "/proc/%d/status", pid);
  if (read_file(path, status, sizeof(status)) <= 0) return false;
  for (const char* field : {"SigPnd:", "ShdPnd:"}) {
    const char* s = status_field(status, field);
    if (scan_hex(&s) >> (library.config.signal - 1) & 1) return true;
  }
  return false;
}

template <typename Fn>
Fn next(Fn& cache, const char* name) {
  if (!cache) cache = reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
  return cache;
}

int (*real_kill)(pid_t, int);
int (*real_killpg)(pid_t, int);
int (*real_sigqueue)(pid_t, int, const union sigval);

}  // namespace

bool sent_within_job(const siginfo_t* info) {
  if (asked_for_by_program(info)) return true;
  const int pid = info->si_pid;
  if (pid == library.pid) return true;
  // Into a pid namespace that the program made it sends signals itself, from inside and (then the
  // number is 0) from outside; /proc may be the one of outside, where numbers mean others.
  if (in_new_pid_namespace()) return true;
  if (pid <= 0) return false;
  const uint64_t started = start_time_of(pid), known = slot_of(pid);
  if (!started) return static_cast<int>(known >> kStartBits) == pid;
  if (known == packed(pid, started)) return true;
  if (!descends_from_job(pid)) return false;
  slot_of(pid) = packed(pid, started);
  return true;
}

void let_signals_arrive() {
  const uint64_t when = sent.when_us;
  if (!when || sys::now_us() - when > kArriveUs) return;
  const uint64_t until = when + kArriveUs;
  while (sent.to && is_pending(sent.to) && sys::now_us() < until) sys::sleep_us(500);
  sys::sleep_us(kLookedAtUs);
}

}  // namespace gpuckpt

#define EXPORT extern "C" __attribute__((visibility("default")))
using namespace gpuckpt;

EXPORT int kill(pid_t pid, int signal) noexcept {
  note_sent(pid, signal);
  return next(real_kill, "kill")(pid, signal);
}
EXPORT int killpg(pid_t group, int signal) noexcept {
  note_sent(-group, signal);
  return next(real_killpg, "killpg")(group, signal);
}
EXPORT int sigqueue(pid_t pid, int signal, const union sigval value) noexcept {
  note_sent(pid, signal);
  return next(real_sigqueue, "sigqueue")(pid, signal, value);
}
