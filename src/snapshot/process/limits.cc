#include "snapshot/process/limits.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <initializer_list>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/park/raw_thread.h"
#include "snapshot/process/refused_state.h"

namespace gpuckpt {
namespace {

struct Bounds {
  uint64_t soft, hard;
};

Bounds limit(int which) {
  Bounds b{~0ull, ~0ull};
  sys::call(SYS_prlimit64, 0, which, 0, sys::ptr(&b));
  return b;
}

// Of a control group: "max" counts as no limit, and so does a file that is not there.
uint64_t group_value(const char* mount, const char* group, const char* file) {
  char path[800], text[64];
  format(path, sizeof(path), "%s%s/%s", mount, group, file);
  if (read_file(path, text, sizeof(text)) <= 0 || text[0] == 'm') return ~0ull;
  const char* s = text;
  return scan_dec(&s);
}

// Is `pids.max` reached of the control group, or of one around it? What a snapshot had started
// before it failed has ended by now.
bool is_full(const char* mount, char* group) {
  constexpr uint64_t kStarted = 3;
  for (size_t end = length(group);; --end) {
    if (group[end] && group[end] != '/' && end) continue;
    group[end] = 0;
    const uint64_t most = group_value(mount, group, "pids.max");
    const uint64_t now = group_value(mount, group, "pids.current");
    if (most != ~0ull && now != ~0ull && now + kStarted >= most) return true;
    if (!end) return false;
  }
}

// Control groups of version 2 ("0::/NAME") or 1 ("5:pids:/NAME").
bool group_is_full() {
  char groups[1500];
  if (read_file("/proc/thread-self/cgroup", groups, sizeof(groups)) <= 0) return false;
  for (char* line = groups; *line;) {
    char* end = line;
    while (*end && *end != '\n') ++end;
    const bool last = !*end;
    *end = 0;
    char* s = line;
    while (*s >= '0' && *s <= '9') ++s;
    if (starts_with(s, "::/") && is_full("/sys/fs/cgroup", s + 2)) return true;
    if (starts_with(s, ":pids:/") && is_full("/sys/fs/cgroup/pids", s + 6)) return true;
    if (last) break;
    line = end + 1;
  }
  return false;
}

bool runs_by_deadline() {
  constexpr int kDeadline = 6, kResetOnFork = 0x40000000;
  const long policy = sys::call(SYS_sched_getscheduler, 0);
  return policy == kDeadline && !(policy & kResetOnFork);
}

// Has the program so much locked memory that a mapping of a few MiB more fails?
bool limits_locked_memory() {
  char status[4096];
  const uint64_t most = limit(RLIMIT_MEMLOCK).soft;
  if (most == ~0ull || read_file("/proc/thread-self/status", status, sizeof(status)) <= 0)
    return false;
  const char* s = status_field(status, "VmLck:");
  while (*s == ' ') ++s;
  const uint64_t locked = scan_dec(&s) << 10;
  return locked && locked + (64 << 20) > most;
}

// Does the kernel refuse even a mapping that needs no memory? (Of a protection that none beside it
// has, with which it could become one.)
bool has_all_mappings() {
  constexpr long kPage = 4096;
  const long at =
      sys::call(SYS_mmap, 0, kPage, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (sys::failed(at)) return at == -ENOMEM;
  sys::call(SYS_munmap, at, kPage);
  return false;
}

// /proc may be that of another pid namespace: of the children's, after `unshare -p --mount-proc`.
bool has_own_proc() {
  char status[16];
  return read_file("/proc/thread-self/status", status, sizeof(status)) > 0;
}

void explain_locked_memory(char* to, size_t room, const char* what) {
  format(to, room,
         "%s: the program locks all memory that it maps (mlockall), and its limit on locked memory "
         "(RLIMIT_MEMLOCK, `ulimit -l`) is %lu bytes",
         what, limit(RLIMIT_MEMLOCK).soft);
}

}  // namespace

void explain_failure(char* to, size_t room, const char* what, long error) {
  const uint64_t space = limit(RLIMIT_AS).soft;
  switch (-error) {
    case EFBIG:
      format(to, room,
             "%s: the program's limit on the size of a file (RLIMIT_FSIZE, `ulimit -f`) is %lu "
             "bytes",
             what, limit(RLIMIT_FSIZE).soft);
      break;
    case EAGAIN:
      if (runs_by_deadline())
        format(
            to, room,
            "%s: the thread that was asked runs in the scheduling class SCHED_DEADLINE, in which "
            "the kernel lets it start no threads; set SCHED_FLAG_RESET_ON_FORK for it",
            what);
      else if (limits_locked_memory())
        explain_locked_memory(to, room, what);
      else if (group_is_full())
        format(to, room, "%s: the control group has as many processes as it may (pids.max)", what);
      else
        format(to, room,
               "%s: the user has as many processes as it may (RLIMIT_NPROC, `ulimit -u`, is %lu), "
               "or the container has (pids.max)",
               what, limit(RLIMIT_NPROC).soft);
      break;
    case EINVAL:
      if (has_namespace_for_children("pid") || !has_own_proc()) {
        format(to, room,
               "%s: the process has made a pid namespace for its children (unshare, CLONE_NEWPID), "
               "and the kernel lets it start no thread; start what needs it by `unshare -p`",
               what);
        break;
      }
      format(to, room, "%s (error %ld)", what, -error);
      break;
    case EMFILE:
      format(to, room,
             "%s: the program's limit on open descriptors (RLIMIT_NOFILE, `ulimit -n`) is %lu",
             what, limit(RLIMIT_NOFILE).soft);
      break;
    case ENOMEM:
      if (space != ~0ull)
        format(to, room,
               "%s: the program's limit on its address space (RLIMIT_AS, `ulimit -v`) is %lu bytes",
               what, space);
      else if (limits_locked_memory())
        explain_locked_memory(to, room, what);
      else if (const uint64_t data = limit(RLIMIT_DATA).soft; data != ~0ull)
        format(to, room,
               "%s: the program's limit on its data (RLIMIT_DATA, `ulimit -d`) is %lu bytes", what,
               data);
      else if (has_all_mappings())
        format(to, room,
               "%s: the program has as many mappings as the kernel lets it have; raise "
               "vm.max_map_count (sysctl)",
               what);
      else
        format(to, room, "%s: there is no memory for it", what);
      break;
    default:
      format(to, room, "%s (error %ld)", what, -error);
  }
}

namespace {
struct Resize {
  int fd;
  uint64_t bytes;
  std::atomic<long> error;
};
void resize_here(void* argument) {
  Resize* r = static_cast<Resize*>(argument);
  raise_own_limits();
  r->error = sys::call(SYS_ftruncate, r->fd, static_cast<long>(r->bytes));
}
}  // namespace

// (A size beyond the limit is a signal as well: the limit is looked at first.)
long set_memory_size(int memfd, uint64_t bytes) {
  if (bytes <= limit(RLIMIT_FSIZE).soft)
    return sys::call(SYS_ftruncate, memfd, static_cast<long>(bytes));
  alignas(16) static char stack[4096];
  Resize r{memfd, bytes, -EFBIG};
  if (bytes > limit(RLIMIT_FSIZE).hard && sys::call(SYS_geteuid) != 0) return -EFBIG;
  const long pid = clone_raw(CLONE_VM | CLONE_FILES | CLONE_VFORK,
                             reinterpret_cast<uint64_t>(stack + sizeof(stack)), resize_here, &r,
                             nullptr, nullptr, nullptr);
  if (!sys::failed(pid)) sys::call(SYS_wait4, pid, 0, static_cast<long>(__WCLONE), 0);
  return r.error;
}

MoreDescriptors::MoreDescriptors() : before_{}, raised_(false) {
  constexpr uint64_t kMore = 16;
  const Bounds now = limit(RLIMIT_NOFILE);
  before_[0] = now.soft, before_[1] = now.hard;
  const uint64_t soft = now.soft + kMore;
  Bounds more{soft, soft > now.hard ? soft : now.hard};
  raised_ = !sys::failed(sys::call(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::ptr(&more), 0));
  if (raised_ || now.soft == now.hard) return;
  more = {now.hard, now.hard};
  raised_ = !sys::failed(sys::call(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::ptr(&more), 0));
}

MoreDescriptors::~MoreDescriptors() {
  if (raised_) sys::call(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::ptr(before_), 0);
}

void raise_own_limits() {
  for (int which : {RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_NOFILE, RLIMIT_AS}) {
    const Bounds now = limit(which);
    Bounds most{~0ull, ~0ull};
    if (which != RLIMIT_NOFILE &&
        !sys::failed(sys::call(SYS_prlimit64, 0, which, sys::ptr(&most), 0)))
      continue;
    most = {now.hard, now.hard};
    sys::call(SYS_prlimit64, 0, which, sys::ptr(&most), 0);
  }
}

}  // namespace gpuckpt
