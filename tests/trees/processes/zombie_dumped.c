// A child that has ended with a core dump and was not waited for: its signal comes back, and the
// snapshot says that the dump is not told of again.
#include <sys/resource.h>
#include "tree.h"
int main(void) {
  const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_CORE, &all) != 0) absent("RLIMIT_CORE");
  CHECK(mkdir("dump", 0700) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    if (chdir("dump") == 0) raise(SIGSEGV);
    _exit(1);
  }
  siginfo_t info;
  CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
  if (info.si_code != CLD_DUMPED) absent("core dumps");
  ready_and_wait();
  int status;
  CHECK(waitpid(child, &status, WNOHANG) == child && WTERMSIG(status) == SIGSEGV);
  CHECK(!WCOREDUMP(status) == (access("was_restored", F_OK) == 0));
  return survived();
}
