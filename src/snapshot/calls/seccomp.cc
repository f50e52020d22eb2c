#include "snapshot/calls/seccomp.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "base/heap.h"
#include "base/mutex.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/calls/borrowed_memory.h"
#include "snapshot/calls/confinement.h"
#include "snapshot/calls/filter_program.h"
#include "snapshot/calls/libc_wrappers.h"
#include "snapshot/control/state.h"
#include "snapshot/job/membership.h"
#include "snapshot/park/eintr.h"
#include "snapshot/process/refused_state.h"

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));

namespace gpuckpt {
namespace {

constexpr uint32_t kMostFilters = 64;
constexpr unsigned long kKeptFlags = SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW;

struct Filter {
  sock_filter* program;
  uint16_t length;
  uint32_t flags;
};

// In the order in which they were set. Part of the snapshot, as all of the library's memory.
Filter filters[kMostFilters];
FilterCounts counts;
char lost[192];  // why they cannot be set again; empty: they can

// Held from before a filter is set until it is known whether the kernel took it.
Mutex setting;
bool became_deaf;  // for the filter that is being set

bool may_read(const void* at, size_t bytes) {
  const uint64_t first = reinterpret_cast<uint64_t>(at), last = first + bytes - 8;
  return is_readable(first) && is_readable(last);
}

// What the program may not read itself the kernel refuses.
bool is_program(const sock_fprog* p) {
  if (!may_read(p, sizeof(*p)) || !p->len || p->len > BPF_MAXINSNS) return false;
  for (unsigned i = 0; i < p->len; ++i)
    if (!may_read(&p->filter[i], sizeof(p->filter[i]))) return false;
  return true;
}

void stop_listening() {
  became_deaf = become_deaf("confines itself (seccomp)");
  if (!became_deaf) stay_deaf();
}

void lose(const char* why) { copy(lost, sizeof(lost), why); }

void lose_by(int call) {
  format(lost, sizeof(lost),
         "the process has set a system call filter (seccomp) that forbids system call %d, which a "
         "snapshot needs",
         call);
}

// (Once the filter is set, the kernel may not answer that any more.)
bool has_what_no_restore_gives_back() {
  return has_local_segments() || has_keyring(KEY_SPEC_PROCESS_KEYRING) ||
         has_keyring(KEY_SPEC_THREAD_KEYRING);
}

// Copies the program, whose memory may be gone when it is set again.
bool remember(const sock_fprog& p, unsigned long flags) {
  if (counts.remembered == kMostFilters) return false;
  auto* program = static_cast<sock_filter*>(heap_alloc(p.len * sizeof(sock_filter)));
  if (!program) return false;
  __builtin_memcpy(program, p.filter, p.len * sizeof(sock_filter));
  filters[counts.remembered++] = {program, p.len, static_cast<uint32_t>(flags & kKeptFlags)};
  return true;
}

void forget_last() { heap_free(filters[--counts.remembered].program); }

// Calls `set` with what it sets remembered. A filter with a listener is another process's business.
template <typename Set>
auto set_filter(const sock_fprog* p, unsigned long flags, Set set) {
  if (in_borrowed_memory()) return set();  // a child of vfork
  MutexLock hold(setting);
  became_deaf = false;
  char before[sizeof(lost)];
  copy(before, sizeof(before), lost);
  bool remembered = false;
  if (is_program(p)) {
    const FilterVerdict verdict = judge_filter(p->filter, p->len);
    if (verdict.worst == FilterAnswer::kEnds) stop_listening();
    if (verdict.worst != FilterAnswer::kLets)
      lose_by(verdict.call);
    else if (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER)
      lose("the process has set a system call filter (seccomp) with a listener");
    else if (has_what_no_restore_gives_back())
      lose(
          "the process has set a system call filter (seccomp), and has local segments or keyrings");
    remembered = remember(*p, flags);
  }
  const auto r = set();
  if (r >= 0 && !(flags & SECCOMP_FILTER_FLAG_TSYNC && r > 0)) return r;
  if (remembered) forget_last();
  if (became_deaf) listen_again();
  copy(lost, sizeof(lost), before);
  return r;
}

template <typename Set>
auto enter_strict_mode(Set set) {
  if (in_borrowed_memory()) return set();
  MutexLock hold(setting);
  stop_listening();
  const auto r = set();
  if (r != 0 && became_deaf) listen_again();
  return r;
}

// What the library of another process knows of its filters. (The same file is at another address
// there.)
bool read_counts_of(int pid, FilterCounts* to) {
  uint64_t there;
  if (!find_library(pid, &there)) return false;
  const uint64_t offset =
      reinterpret_cast<uint64_t>(&counts) - reinterpret_cast<uint64_t>(__ehdr_start);
  iovec local{to, sizeof(*to)}, remote{reinterpret_cast<void*>(there + offset), sizeof(*to)};
  return sys::call(SYS_process_vm_readv, pid, sys::ptr(&local), 1, sys::ptr(&remote), 1, 0) ==
         sizeof(*to);
}

bool differs(const char* status, const FilterCounts& known) {
  return filters_in(status) != known.at_start + known.remembered;
}

}  // namespace

uint64_t filters_in(const char* status) {
  const char* s = info_line(status, "Seccomp_filters:");
  if (!s) s = status_field(status, "Seccomp:");
  return scan_dec(&s);
}

void note_filters_at_start() {
  char status[4096];
  counts.at_start =
      read_file("/proc/thread-self/status", status, sizeof(status)) > 0 ? filters_in(status) : 0;
}

uint64_t filters_at_start() { return counts.at_start; }

uint32_t remembered_filters() { return counts.remembered; }

bool has_unseen_filter(const char* status) { return differs(status, counts); }

bool KnownFilters::has_unseen(const char* status) {
  if (pid_ == library.pid) return has_unseen_filter(status);
  if (!filters_in(status)) return false;
  if (!asked_) known_ = read_counts_of(pid_, &counts_);
  asked_ = true;
  return !known_ || differs(status, counts_);
}

const char* why_filters_stay_lost() { return counts.remembered && lost[0] ? lost : nullptr; }

long set_remembered_filters(bool may_gain_no_privileges) {
  for (uint32_t i = 0; i < counts.remembered; ++i) {
    sock_fprog p{filters[i].length, filters[i].program};
    const long flags = filters[i].flags | SECCOMP_FILTER_FLAG_TSYNC;
    const auto set = [&] {
      return sys::call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, sys::ptr(&p));
    };
    long r = set();
    if (r == -EACCES && may_gain_no_privileges) {
      sys::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      r = set();
    }
    if (r != 0) return r < 0 ? r : -ESRCH;
  }
  return 0;
}

}  // namespace gpuckpt

using namespace gpuckpt;

extern "C" long gpuckpt_seccomp(long number, long operation, long flags, void* program) {
  const auto set = [&] { return gpuckpt_real_syscall(number, operation, flags, program, 0, 0, 0); };
  if (operation == SECCOMP_SET_MODE_STRICT) return enter_strict_mode(set);
  if (operation != SECCOMP_SET_MODE_FILTER) return set();
  return set_filter(static_cast<const sock_fprog*>(program), static_cast<unsigned long>(flags),
                    set);
}

extern "C" int gpuckpt_prctl_seccomp(int option, long mode, void* program, long c, long d) {
  const auto set = [&] { return gpuckpt_real_prctl(option, mode, program, c, d); };
  if (mode == SECCOMP_MODE_STRICT) return enter_strict_mode(set);
  return set_filter(static_cast<const sock_fprog*>(program), 0, set);
}
