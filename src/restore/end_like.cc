#include "restore/end_like.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace gpuckpt::restore {

void end_like(int code, int status) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (code == CLD_EXITED) _exit(status);
  prctl(PR_SET_DUMPABLE, code == CLD_DUMPED);
  signal(status, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, status);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  kill(getpid(), status);
  _exit(128 + status);
}

}  // namespace gpuckpt::restore
