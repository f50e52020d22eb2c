#include "snapshot/process/refused_state.h"

#include <asm/prctl.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/calls/confinement.h"
#include "snapshot/control/state.h"
#include "snapshot/park/park.h"
#include "snapshot/process/capture.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {
namespace {

constexpr long kAskPersonality = 0xffffffff;

}  // namespace

bool has_keyring(long which) {
  return !sys::failed(sys::call(SYS_keyctl, KEYCTL_GET_KEYRING_ID, which, 0));
}

bool has_local_segments() {
  char first[8];
  return sys::call(SYS_modify_ldt, 0 /* read */, sys::ptr(first), sizeof(first)) > 0;
}

RareThreadState rare_thread_state() {
  int rdtsc = PR_TSC_ENABLE;
  sys::call(SYS_prctl, PR_GET_TSC, sys::ptr(&rdtsc));
  return {static_cast<uint32_t>(sys::call(SYS_personality, kAskPersonality)),
          rdtsc == PR_TSC_SIGSEGV, sys::call(SYS_arch_prctl, ARCH_GET_CPUID, 0) == 0,
          has_keyring(KEY_SPEC_THREAD_KEYRING)};
}

bool has_namespace_for_children(const char* kind) {
  char own[64], theirs[80];
  format(own, sizeof(own), "/proc/thread-self/ns/%s", kind);
  format(theirs, sizeof(theirs), "%s_for_children", own);
  struct stat a, b;
  if (sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(own), sys::ptr(&a), 0)))
    return false;
  // (A pid namespace without a first process is not shown.)
  return sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(theirs), sys::ptr(&b), 0)) ||
         a.st_ino != b.st_ino || a.st_dev != b.st_dev;
}

uint32_t program_personality() {
  const ParkedThread* t = parking.any_of_program();
  return t ? t->rare.personality
           : static_cast<uint32_t>(sys::call(SYS_personality, kAskPersonality));
}

void allow_rdtsc_and_cpuid() {
  sys::call(SYS_prctl, PR_SET_TSC, PR_TSC_ENABLE);
  sys::call(SYS_arch_prctl, ARCH_SET_CPUID, 1);
}

bool check_rare_process_state(Capture* c) {
  if (has_local_segments())
    return c->refuse(
        "the process has memory segments of its own (modify_ldt), which a restore cannot give "
        "back; remove them before the snapshot");
  if (has_keyring(KEY_SPEC_PROCESS_KEYRING))
    return c->refuse(
        "the process has a process keyring (keyctl, KEY_SPEC_PROCESS_KEYRING), whose keys a "
        "restored process would not have; keep them in the user keyring (KEY_SPEC_USER_KEYRING)");
  if (has_namespace_for_children("time"))
    return c->refuse(
        "the process has made a time namespace for its children (unshare, CLONE_NEWTIME), which a "
        "restored process would not have; start what needs it by `unshare -T`");
  if (joined_session_keyring())
    add_warning(
        "the process has joined a session keyring of its own (keyctl); a restored process has the "
        "session keyring of the user who restores it, without these keys");
  return true;
}

bool check_rare_thread_state(Capture* c, const ParkedThread& t) {
  const RareThreadState& rare = t.rare;
  const char* what = nullptr;
  if (rare.no_rdtsc)
    what =
        "has switched the instruction RDTSC off (prctl PR_SET_TSC), which a restore cannot do "
        "again; switch it on before the snapshot";
  if (rare.no_cpuid)
    what =
        "has switched the instruction CPUID off (arch_prctl ARCH_SET_CPUID), which a restore "
        "cannot do again; switch it on before the snapshot";
  if (rare.thread_keyring)
    what =
        "has a thread keyring (keyctl, KEY_SPEC_THREAD_KEYRING), whose keys a restored thread "
        "would not have; keep them in the user keyring (KEY_SPEC_USER_KEYRING)";
  if (rare.personality != program_personality())
    what =
        "has another execution domain than the other threads (personality), which a restore "
        "cannot give to one thread alone";
  return !what || c->refuse("thread %d (%s) %s", t.tid, t.name, what);
}

bool check_exit_signal(Capture* c, int pid) {
  constexpr int kExitSignal = 38;  // of /proc/PID/stat
  ProcStat stat;
  if (!read_stat_of(pid, &stat)) return true;
  const int signal = static_cast<int>(stat.field[kExitSignal]);
  if (signal == SIGCHLD || signal < 0) return true;
  constexpr const char* kWhy =
      "started by clone() with the exit signal %d, and a restored process could tell its parent of "
      "its end by SIGCHLD only; start it by fork()";
  char why[256], whose[48];
  format(why, sizeof(why), kWhy, signal);
  format(whose, sizeof(whose), "child %d", pid);
  return c->refuse("%s was %s", pid == library.pid ? "it" : whose, why);
}

}  // namespace gpuckpt
