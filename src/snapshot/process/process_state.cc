#include "snapshot/process/process_state.h"

#include <signal.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/park/park.h"
#include "snapshot/park/stopped_children.h"
#include "snapshot/process/refused_state.h"
#include "snapshot/process/warnings.h"
#include "snapshot/threads/pending.h"
#include "snapshot/threads/thread_status.h"
#include "snapshot/threads/threads.h"

namespace gpuckpt {

using namespace process;

namespace {

void put_actions(Records* r) {
  r->begin(kRecSigactions, 64);
  for (int sig = 1; sig <= 64; ++sig) {
    sys::Sigaction a{};
    sys::sigaction(sig, nullptr, &a);
    SignalAction out{a.handler, a.flags, a.restorer, a.mask};
    // Signal 33 holds our park handler just now; otherwise it belongs to glibc, which installs it
    // only once. parking knows.
    if (sig == kParkSignal) {
      a = parking_saved_action();
      out = {a.handler, a.flags, a.restorer, a.mask};
    }
    r->add(&out, sizeof(out));
  }
  r->end();
}

void put_limits(Records* r) {
  r->begin(kRecLimits, 16);
  for (int i = 0; i < 16; ++i) {
    Limit l{};
    sys::call(SYS_prlimit64, 0, i, 0, sys::ptr(&l));
    r->add(&l, sizeof(l));
  }
  r->end();
  r->begin(kRecItimers, 3);
  for (int i = 0; i < 3; ++i) {
    Itimer t{};
    sys::call(SYS_getitimer, i, sys::ptr(&t));
    r->add(&t, sizeof(t));
  }
  r->end();
}

void put_timers(Records* r) {
  char buffer[4096];
  LineReader lines("/proc/self/timers", buffer, sizeof(buffer));
  PosixTimer t{};
  auto flush = [&] {
    if (!t.id || t.id - 1 == library.timer_id) return;
    t.id -= 1;
    int64_t spec[4] = {};
    sys::call(SYS_timer_gettime, t.id, sys::ptr(spec));
    t.interval_sec = spec[0], t.interval_ns = spec[1], t.value_sec = spec[2], t.value_ns = spec[3];
    r->put(kRecTimer, t);
  };
  // ID: 0 / signal: 14/0000000000000000 / notify: signal/pid.123 / ClockID: 0
  while (char* line = lines.next()) {
    const char* s;
    if (starts_with(line, "ID: ")) {
      flush();
      t = {};
      s = line + 4;
      t.id = static_cast<int>(scan_dec(&s)) + 1;
    } else if (starts_with(line, "signal: ")) {
      s = line + 8;
      t.signal = static_cast<int>(scan_dec(&s));
      if (*s == '/') ++s, t.value = scan_hex(&s);
    } else if (starts_with(line, "notify: ")) {
      s = line + 8;
      t.notify = starts_with(s, "signal") ? 0 : starts_with(s, "none") ? 1 : 2;
      while (*s && *s != '/') ++s;
      if (starts_with(s, "/tid.")) {
        t.notify |= 4;
        s += 5;
        t.tid = static_cast<int>(scan_dec(&s));
      }
    } else if (starts_with(line, "ClockID: ")) {
      s = line + 9;
      t.clock = static_cast<int>(scan_signed(&s));
    }
  }
  flush();
}

// Children that have ended stay children until they are waited for.
void put_zombie_name(Records* r, int pid) {
  ZombieName z;
  __builtin_memset(&z, 0, sizeof(z));
  z.pid = pid;
  char path[32], text[32];
  format(path, sizeof(path), "/proc/%d/comm", pid);
  const long n = read_file(path, text, sizeof(text));
  if (n <= 1) return;
  text[n - 1] = 0;  // the end of the line
  copy(z.name, sizeof(z.name), text);
  r->put(kRecZombieName, z);
}

bool put_zombies(Capture* c, Records* r) {
  if (!job_barrier.active()) return true;
  const SharedJobState* b = job_barrier.shared_state();
  for (uint32_t i = 0; i < b->relative_count; ++i) {
    const SharedJobState::OtherProcess& child = b->relative[i];
    if (!child.ended || child.ppid != library.pid) continue;
    struct {
      int signal, error, code, pad, pid;
      uint32_t uid;
      int status;
      char rest[100];
    } info{};
    constexpr long kLook = 4 | 1 | 0x01000000 | 0x40000000;  // EXITED, NOHANG, NOWAIT, ALL
    // A child whose first thread has ended cannot be waited for until its others (ours, when it was
    // asked to join) are gone as well.
    long got;
    for (const uint64_t patience = sys::now_us() + 1000000;; sys::sleep_us(200)) {
      got = sys::call(SYS_waitid, 1 /* P_PID */, child.pid, sys::ptr(&info), kLook, 0);
      if (sys::failed(got) || info.pid || sys::now_us() > patience) break;
    }
    if (sys::failed(got) || info.pid != child.pid) continue;
    if (!check_exit_signal(c, child.pid)) return false;
    if (info.code == CLD_DUMPED)
      add_warning(
          "child %d has ended with a core dump, which the process has not asked for yet (wait); of "
          "the restored one the signal alone tells",
          child.pid);
    r->put(kRecZombie, Zombie{child.pid, child.pgid, child.sid, info.code, info.status, 0});
    put_zombie_name(r, child.pid);
  }
  return true;
}

// The scheduler's group of a session has a nice value, which setsid sets to 0. That of a session
// whose leader is not part of the snapshot is the launcher's.
void put_autogroup(Records* r) {
  char text[64];
  if (sys::call(SYS_getsid, 0) != library.pid ||
      read_file("/proc/self/autogroup", text, sizeof(text)) <= 0)
    return;
  const char* s = text;
  while (*s && !starts_with(s, "nice ")) ++s;
  if (!*s) return;
  s += 5;
  const bool negative = *s == '-';
  s += negative;
  const int32_t value = static_cast<int32_t>(scan_dec(&s));
  if (value) r->put(kRecAutogroup, negative ? -value : value);
}

void put_timer_ids(Records* r) {
  constexpr int kRestoreIds = 77, kGet = 2;  // PR_TIMER_CREATE_RESTORE_IDS (Linux 6.15)
  if (sys::call(SYS_prctl, kRestoreIds, kGet) != 1) return;
  r->begin(kRecTimerIds);
  r->end();
}

}  // namespace

bool put_process_state(Capture* c, Records* r) {
  put_actions(r);
  hide_continued_children();
  ThreadStatuses statuses(c->scratch);
  // Pending signals first, because interval timers go on when their signal is taken out, where that
  // has to be.
  bool ok = put_pending(c, r, statuses);
  if (ok) {
    put_limits(r);
    put_autogroup(r);
    put_timers(r);
    put_timer_ids(r);
    ok = put_threads(c, r, &statuses) && put_zombies(c, r);
  }
  if (ok) put_stopped_children(r);
  return ok;
}

}  // namespace gpuckpt
