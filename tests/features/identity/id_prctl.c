// What prctl and friends set for a process: name, death signal, subreaper, slack,
// no_new_privs, personality, umask, limits, oom score, io priority, nice, keepcaps, THP,
// core dump filter, memory failures, write or execute, securebits, merging, speculation, numbers of
// timers.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include "feature.h"
static long number(const char* path) {
  char text[32] = "";
  int fd = open(path, O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, 31) > 0);
  close(fd);
  return strtol(text, NULL, strstr(path, "filter") ? 16 : 10);
}
int main(void) {
  struct rlimit core = {12345, 1234567}, stack, now;
  CHECK(prctl(PR_SET_NAME, "my-name") == 0 && prctl(PR_SET_PDEATHSIG, SIGUSR2) == 0);
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && prctl(PR_SET_TIMERSLACK, 77777) == 0);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  // A filter that cannot be read is the kernel's to refuse.
  struct sock_fprog nowhere = {1, (struct sock_filter*)64};
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (void*)-1L) == -1 && errno == EFAULT);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &nowhere) == -1 && errno == EFAULT);
  CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &nowhere) == -1 && errno == EFAULT);
  // (Linux 6.18: but where madvise asks for them.)
  CHECK(prctl(PR_SET_THP_DISABLE, 1, 2, 0, 0) == 0 || prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
  const int huge = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
  prctl(77 /* PR_TIMER_CREATE_RESTORE_IDS */, 1, 0, 0, 0);
  const int numbers = prctl(77, 2, 0, 0, 0);
  CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
  CHECK(personality(PER_LINUX | ADDR_NO_RANDOMIZE) != -1);
  umask(0137);
  CHECK(setrlimit(RLIMIT_CORE, &core) == 0 && getrlimit(RLIMIT_STACK, &stack) == 0);
  stack.rlim_cur = 4 << 20;
  CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
  int oom = open("/proc/self/oom_score_adj", O_WRONLY);
  CHECK(oom >= 0 && write(oom, "321", 3) == 3);
  close(oom);
  CHECK(syscall(SYS_ioprio_set, 1, 0, (2 << 13) | 6) == 0);
  const int nicer = nicer_by(3);
  CHECK(setpriority(PRIO_PROCESS, 0, nicer) == 0);
  int filter = open("/proc/self/coredump_filter", O_WRONLY);
  CHECK(filter >= 0 && write(filter, "0x3e", 4) == 4);
  close(filter);
  CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
  CHECK(prctl(65 /* PR_SET_MDWE */, 1, 0, 0, 0) == 0 || errno == EINVAL);
  const int deny = prctl(66 /* PR_GET_MDWE */, 0, 0, 0, 0);
  // With privilege only, and where the processor has something to switch off.
  const int bits = prctl(PR_SET_SECUREBITS, 1 << 2 | 1 << 4) == 0;
  const int merge = prctl(67 /* PR_SET_MEMORY_MERGE */, 1, 0, 0, 0) == 0;
  prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0);
  const int speculation = prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);
  ready_and_wait();
  char name[16] = "";
  int v = 0;
  CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "my-name") == 0);
  CHECK(prctl(PR_GET_PDEATHSIG, &v) == 0 && v == SIGUSR2);
  CHECK(prctl(PR_GET_CHILD_SUBREAPER, &v) == 0 && v == 1);
  CHECK(prctl(PR_GET_TIMERSLACK) == 77777 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
  CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == huge && huge & 1 && prctl(77, 2, 0, 0, 0) == numbers);
  CHECK(prctl(PR_GET_KEEPCAPS) == 1);
  CHECK(personality(0xffffffff) == (PER_LINUX | ADDR_NO_RANDOMIZE));
  CHECK(umask(0) == 0137);
  CHECK(getrlimit(RLIMIT_CORE, &now) == 0 && now.rlim_cur == 12345 && now.rlim_max == 1234567);
  CHECK(getrlimit(RLIMIT_STACK, &now) == 0 && now.rlim_cur == 4 << 20 && now.rlim_max == stack.rlim_max);
  CHECK(number("/proc/self/oom_score_adj") == 321);
  CHECK(number("/proc/self/coredump_filter") == 0x3e);
  CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_EARLY);
  CHECK(prctl(66, 0, 0, 0, 0) == deny);
  CHECK(!bits || prctl(PR_GET_SECUREBITS) == (1 << 2 | 1 << 4));
  CHECK(!merge || prctl(68 /* PR_GET_MEMORY_MERGE */, 0, 0, 0, 0) == 1);
  CHECK(prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0) == speculation);
  CHECK(syscall(SYS_ioprio_get, 1, 0) == ((2 << 13) | 6));
  CHECK(getpriority(PRIO_PROCESS, 0) == nicer);
  return survived();
}
