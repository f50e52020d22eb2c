#include "snapshot/park/stopped_children.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/membership.h"

namespace gpuckpt {

using process::StoppedChild;

namespace {

constexpr uint64_t kPatienceUs = 5000000;
constexpr uint64_t kUnseenRestUs = 5000;
constexpr uint64_t kChildSignal = 1ull << (SIGCHLD - 1);

bool signal_waited;  // SIGCHLD was pending when the children were noted

template <typename Each>
void each_stopped_child(Each each) {
  SharedJobState* b = job_barrier.active() ? job_barrier.shared_state() : nullptr;
  for (uint32_t i = 0; b && i < b->stopped_count; ++i)
    if (b->stopped[i].ppid == library.pid) each(b->stopped[i]);
}

// The signal by which the child is stopped, if the parent has not waited for that yet; else 0.
// `take`: it counts as waited for from now on.
int stop_of(int pid, bool take) {
  siginfo_t info;
  __builtin_memset(&info, 0, sizeof(info));
  const long options = WSTOPPED | WNOHANG | __WALL | (take ? 0 : WNOWAIT);
  const long r = sys::call(SYS_waitid, P_PID, pid, sys::ptr(&info), options, 0);
  return sys::failed(r) || !info.si_pid ? 0 : info.si_status;
}

uint64_t switches_of(int pid, int tid) {
  char path[64], status[4096];
  format(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
  if (read_file(path, status, sizeof(status)) <= 0) return 0;
  const char* s = status_field(status, "voluntary_ctxt_switches:");
  const uint64_t n = scan_dec(&s);
  s = status_field(status, "nonvoluntary_ctxt_switches:");
  return n + scan_dec(&s);
}

// Whether every thread of the child has stopped. The last one that stops tells the parent, and it
// shows as stopped (T) a moment before it does. Reading what call it is in waits for that moment to
// pass. `switches` (may be null): of all threads.
bool at_rest(int pid, uint64_t* switches) {
  struct Look {
    int pid;
    uint64_t* switches;
    bool rests;
  } look{pid, switches, true};
  if (switches) *switches = 0;
  char folder[40];
  format(folder, sizeof(folder), "/proc/%d/task", pid);
  each_number_in(folder, &look, [](void* context, int tid) {
    Look* l = static_cast<Look*>(context);
    char path[64], text[256];
    Relative thread;
    if (!look_at_thread(l->pid, tid, &thread) || thread.state == 'Z' || thread.state == 'X')
      return true;
    l->rests = thread.state == 'T';
    format(path, sizeof(path), "/proc/%d/task/%d/syscall", l->pid, tid);
    if (l->rests && read_file(path, text, sizeof(text)) <= 0)
      sys::sleep_us(kUnseenRestUs);  // not permitted
    if (l->switches) *l->switches += switches_of(l->pid, tid);
    return l->rests;
  });
  return look.rests;
}

// Waits until the process is stopped, or is no child of this one any more.
void await_stop(int pid) {
  const uint64_t patience = sys::now_us() + kPatienceUs;
  for (Relative r; look_at(pid, &r) && r.state != 'Z' && r.state != 'X'; sys::sleep_us(200)) {
    if (r.state == 'T' && at_rest(pid, nullptr)) return;
    if (sys::now_us() < patience) continue;
    log_line(LogLevel::kWarn, "process %d has not stopped again: its parent may notice", pid);
    return;
  }
}

// Takes the SIGCHLD out that tells of one of `children`; others stay.
void take_signal(const StoppedChild* const* children, size_t count) {
  siginfo_t info;
  sys::Timespec none{0, 0};
  if (sys::call(SYS_rt_sigtimedwait, sys::ptr(&kChildSignal), sys::ptr(&info), sys::ptr(&none),
                8) != SIGCHLD)
    return;
  const bool stop = info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED;
  for (size_t i = 0; i < count && stop; ++i)
    if (children[i]->pid == info.si_pid) return;
  // By the number of this thread, which stands for the process here (process_state.cc).
  sys::call(SYS_rt_sigqueueinfo, sys::gettid(), SIGCHLD, sys::ptr(&info));
}

}  // namespace

bool child_signal_waits() {
  uint64_t pending = 0;
  sys::call(SYS_rt_sigpending, sys::ptr(&pending), 8);
  return pending & kChildSignal;
}

bool job_has_stopped() { return job_barrier.active() && job_barrier.shared_state()->stopped_count; }

void note_stopped_children() {
  signal_waited = child_signal_waits();
  each_stopped_child([](SharedJobState::Stopped& s) {
    if (!at_rest(s.pid, &s.switches)) s.switches = 0;
    s.signal = stop_of(s.pid, false);
  });
}

bool stands_as_noted(const SharedJobState::Stopped& s) {
  uint64_t now;
  if (s.ppid != library.pid && !job_barrier.has_process(s.ppid)) return true;
  return at_rest(s.pid, &now) && now == s.switches;
}

void put_stopped_children(Records* r) {
  each_stopped_child([&](SharedJobState::Stopped& s) {
    if (s.woken) r->put(process::kRecStoppedChild, StoppedChild{s.pid, s.signal});
  });
}

void stop_restored_children_again(const StoppedChild* const* children, size_t count, bool waited) {
  if (!count) return;
  for (size_t i = 0; i < count; ++i) {
    await_stop(children[i]->pid);
    if (!children[i]->signal) stop_of(children[i]->pid, true);
  }
  if (!waited) take_signal(children, count);
}

namespace {

constexpr size_t kMost = 256;
// Noted while the process is parked, and needed until its children are stopped again.
StoppedChild children[kMost];
const StoppedChild* listed[kMost];

// Those that were continued for this snapshot.
size_t list_woken() {
  size_t n = 0;
  each_stopped_child([&](SharedJobState::Stopped& s) {
    if (!s.woken || n == kMost) return;
    children[n] = {s.pid, s.signal};
    listed[n] = &children[n];
    ++n;
  });
  return n;
}

}  // namespace

void hide_continued_children() {
  const size_t n = list_woken();
  if (n && !signal_waited) take_signal(listed, n);
}

void stop_children_again() { stop_restored_children_again(listed, list_woken(), signal_waited); }

}  // namespace gpuckpt
