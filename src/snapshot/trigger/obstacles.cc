#include "snapshot/trigger/obstacles.h"

#include <cstdint>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/calls/seccomp.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/memory/lazy.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kStrict = 1;  // SECCOMP_MODE_STRICT
constexpr uint64_t kLookAgainUs = 20000;
constexpr uint64_t kVforkPatienceUs = 400000;

uint64_t number_of(const char* status, const char* field) {
  const char* s = status_field(status, field);
  return scan_dec(&s);
}

void name_of(int pid, char* to, size_t room) {
  char path[40];
  format(path, sizeof(path), "/proc/%d/comm", pid);
  long n = read_file(path, to, room);
  if (n > 0 && to[n - 1] == '\n') to[n - 1] = 0;
  if (n <= 0) copy(to, room, "?");
}

// How often the thread has gone to sleep, when it sleeps now and takes no signals (state D); -1: it
// does not.
int64_t sleeps_in_kernel(int tid) {
  char path[64], status[4096];
  format(path, sizeof(path), "/proc/self/task/%d/status", tid);
  if (read_file(path, status, sizeof(status)) <= 0 || *status_field(status, "State:") != 'D')
    return -1;
  return static_cast<int64_t>(number_of(status, "voluntary_ctxt_switches:"));
}

// "nobody (65534)", or the number alone: of the users that /etc/passwd lists.
void user_name(uint32_t uid, char* to, size_t room) {
  char buffer[4096];
  LineReader users("/etc/passwd", buffer, sizeof(buffer));
  while (char* line = users.next()) {
    char* s = line;
    while (*s && *s != ':') ++s;
    if (*s != ':') continue;
    *s++ = 0;
    while (*s && *s != ':') ++s;
    if (*s != ':' || s[1] < '0' || s[1] > '9') continue;
    const char* number = s + 1;
    if (scan_dec(&number) == uid && *number == ':') {
      format(to, room, "%s (%u)", line, uid);
      return;
    }
  }
  format(to, room, "%u", uid);
}

// The user whose rights the process has: the second number.
bool effective_user(int pid, uint32_t* out) {
  char path[40], status[4096];
  format(path, sizeof(path), "/proc/%d/status", pid);
  if (read_file(path, status, sizeof(status)) <= 0) return false;
  const char* s = info_line(status, "Uid:");
  if (!s) return false;
  scan_dec(&s);
  while (*s == ' ' || *s == '\t') ++s;
  *out = static_cast<uint32_t>(scan_dec(&s));
  return true;
}

// The number of the system call that a thread sleeps in, by its file in /proc; 0: not known.
uint64_t call_in(const char* path) {
  char call[64];
  const char* s = read_file(path, call, sizeof(call)) > 0 ? call : "0";
  return scan_dec(&s);
}

// clone, vfork or clone3: a thread sleeps in them only until a child of vfork goes its own way.
bool is_vfork(uint64_t call) { return call == 56 || call == 58 || call == 435; }

struct Sleeper {
  int tid;
  int64_t sleeps;
};
Sleeper first_in_kernel() {
  Sleeper found{0, -1};
  each_number_in("/proc/self/task", &found, [](void* to, int tid) {
    Sleeper* s = static_cast<Sleeper*>(to);
    *s = {tid, sleeps_in_kernel(tid)};
    return s->sleeps < 0;
  });
  return found;
}

}  // namespace

ThreadsSeen look_at_threads(int pid) {
  struct Look {
    int pid;
    ThreadsSeen seen;
    KnownFilters filters;
  } look{pid, {}, KnownFilters(pid)};
  char path[40];
  name_of(pid, look.seen.name, sizeof(look.seen.name));
  format(path, sizeof(path), "/proc/%d/task", pid);
  each_number_in(path, &look, [](void* context, int tid) {
    Look* l = static_cast<Look*>(context);
    char status[4096];
    char file[64];
    format(file, sizeof(file), "/proc/%d/task/%d/status", l->pid, tid);
    if (read_file(file, status, sizeof(status)) <= 0) return true;
    if (number_of(status, "Seccomp:") == kStrict) l->seen.strict = tid;
    // (What is left of a first thread that has ended has none any more.)
    const bool ended = *status_field(status, "State:") == 'Z';
    if (!ended && l->filters.has_unseen(status)) l->seen.filtered = tid;
    if (const int tracer = static_cast<int>(number_of(status, "TracerPid:")))
      l->seen.traced = tid, l->seen.tracer = tracer;
    return true;
  });
  return look.seen;
}

bool may_be_stopped(int pid, bool (*of_the_job)(int), char* text, size_t room) {
  const ThreadsSeen seen = look_at_threads(pid);
  if (seen.strict)
    format(text, room,
           "thread %d of process %d (%s) is in strict seccomp mode, in which the signal that stops "
           "it would kill it",
           seen.strict, pid, seen.name);
  else if (seen.filtered)
    format(text, room,
           "thread %d of process %d (%s) has a system call filter (seccomp) that the others do not "
           "have, or that was set by a system call which gpuckpt does not see (not by libc): a "
           "restore could not give it back",
           seen.filtered, pid, seen.name);
  else if (seen.tracer && of_the_job(seen.tracer))
    format(text, room,
           "process %d (%s) is traced by process %d of the same job (strace, gdb): it cannot be "
           "stopped while its tracer is stopped. End the tracer first, or trace from outside of "
           "gpuckpt",
           pid, seen.name, seen.tracer);
  else
    return true;
  return false;
}

bool may_be_stopped_by_pager(int pid) {
  if (!restored_lazily()) return false;
  char path[40], status[4096], name[16] = "";
  format(path, sizeof(path), "/proc/%d/status", pid);
  if (read_file(path, status, sizeof(status)) <= 0) return false;
  // The number of a tracer outside of this process namespace is 0.
  const int tracer = static_cast<int>(number_of(status, "TracerPid:"));
  if (tracer) name_of(tracer, name, sizeof(name));
  return !tracer || equal(name, wire::kPagerName);
}

bool runs_as_another(int pid, char* text, size_t room) {
  const uint32_t own = static_cast<uint32_t>(sys::call(SYS_geteuid));
  uint32_t user = own;
  if (!effective_user(pid, &user) || user == own) return false;
  char name[16], its[64], ours[64];
  name_of(pid, name, sizeof(name));
  user_name(user, its, sizeof(its));
  user_name(own, ours, sizeof(ours));
  format(text, room, "process %d (%s) of the job runs as user %s, its process %d as user %s", pid,
         name, its, library.pid, ours);
  return true;
}

bool waits_for_vfork(int pid) {
  char path[40], status[4096];
  format(path, sizeof(path), "/proc/%d/status", pid);
  if (read_file(path, status, sizeof(status)) <= 0 || *status_field(status, "State:") != 'D')
    return false;
  format(path, sizeof(path), "/proc/%d/syscall", pid);
  return is_vfork(call_in(path));
}

bool stuck_in_kernel(char* text, size_t room, bool* vfork) {
  const uint64_t patience = sys::now_us() + kVforkPatienceUs;
  for (;;) {
    const auto [tid, sleeps] = first_in_kernel();
    if (sleeps < 0) return false;
    sys::sleep_us(kLookAgainUs);
    if (sleeps_in_kernel(tid) != sleeps) return false;
    char path[64], name[16];
    name_of(tid, name, sizeof(name));
    format(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
    const uint64_t number = call_in(path);
    *vfork = is_vfork(number);
    if (*vfork && sys::now_us() < patience) continue;  // its child is about to exec
    if (*vfork)
      format(text, room, "thread %d (%s) waits for a child that it started with vfork", tid, name);
    else
      format(
          text, room,
          "thread %d (%s) waits inside the kernel and cannot be interrupted (state D, system call "
          "%lu): a disk or a network file system that does not answer?",
          tid, name, number);
    return true;
  }
}

}  // namespace gpuckpt
