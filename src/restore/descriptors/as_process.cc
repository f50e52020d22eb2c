#include "restore/descriptors/as_process.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <new>

#include "restore/preflight/process_ids.h"

namespace gpuckpt::restore {

namespace {

struct Answer {
  bool done, ok;
  int error;
  int out[2];
};

// Sets only the ids by which the kernel identifies the caller; its rights stay. (Raw calls, for one
// thread only.)
bool take_ids(const Credentials& process) {
  return (process.gid == getegid() || syscall(SYS_setresgid, -1, process.gid, -1) == 0) &&
         (process.uid == geteuid() || syscall(SYS_setresuid, -1, process.uid, -1) == 0);
}

bool is_us(const Credentials& process) {
  return process.pid <= 0 ||
         (process.pid == getpid() && process.uid == geteuid() && process.gid == getegid());
}

// Calls `body` with other ids, which are changed back afterwards.
bool with_ids(const Credentials& process, const std::function<bool(int*)>& body, int* out) {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  const bool taken = take_ids(process);
  const bool ok = taken && body(out);
  const int error = errno;
  syscall(SYS_setresuid, -1, uid, -1);
  syscall(SYS_setresgid, -1, gid, -1);
  errno = error;
  return taken ? ok : body(out);
}

}  // namespace

bool as_process(const Credentials& process, const std::function<bool(int*)>& body, int (&out)[2]) {
  out[0] = out[1] = -1;
  if (is_us(process)) return body(out);
  if (process.pid == getpid()) return with_ids(process, body, out);
  void* shared =
      mmap(nullptr, sizeof(Answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return body(out);
  auto* answer = new (shared) Answer{};
  const pid_t pid = fork_as(process.pid, CLONE_FILES);
  if (pid == 0) {
    if (!take_ids(process)) _exit(0);
    answer->ok = body(answer->out);
    answer->error = errno;
    answer->done = true;
    _exit(0);
  }
  while (pid > 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  const Answer got = *answer;
  munmap(shared, sizeof(Answer));
  if (!got.done) return body(out);
  out[0] = got.out[0], out[1] = got.out[1];
  errno = got.error;
  return got.ok;
}

}  // namespace gpuckpt::restore
