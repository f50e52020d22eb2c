#include "restore/preflight/process_ids.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gpuckpt::restore {
namespace {

bool write_text(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const bool ok =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  return ok;
}

// The exit status of a child that ends at once; -1: a signal ended it.
int status_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Returns 0, or the error with which a process with a chosen number is refused.
int choose_an_id() {
  for (pid_t pid = 30000; pid > 29900; --pid) {
    if (kill(pid, 0) == 0 || errno != ESRCH) continue;
    const pid_t child = fork_as(pid, 0);
    if (child == 0) _exit(0);
    if (child > 0) return status_of(child) == 0 ? 0 : ECHILD;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

constexpr int kUnusable = 255;  // as the status of a probing process; else an error

}  // namespace

pid_t fork_as(pid_t pid, uint64_t flags) {
  struct clone_args a {};
  a.flags = flags;
  a.exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD;  // (0: as the calling process's)
  if (pid) {
    a.set_tid = reinterpret_cast<uint64_t>(&pid);
    a.set_tid_size = 1;
  }
  long r = syscall(SYS_clone3, &a, sizeof(a));
  if (r < 0 && errno == ENOSYS && !pid) r = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
  return static_cast<pid_t>(r);
}

std::string map_ids_and_mount_proc(bool user_namespace, uid_t uid, gid_t gid) {
  auto map = [](unsigned id) { return std::to_string(id) + " " + std::to_string(id) + " 1"; };
  if (user_namespace) {
    write_text("/proc/self/setgroups", "deny");
    if (!write_text("/proc/self/gid_map", map(gid)) || !write_text("/proc/self/uid_map", map(uid)))
      return "user namespaces are not usable here";
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    return "/proc cannot be mounted in a namespace here";
  return "";
}

std::string why_no_ids_here() {
  const int error = choose_an_id();
  return error ? std::string("process ids cannot be chosen: ") + strerror(error) : "";
}

std::string why_no_ids_in_namespace() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  bool user = false;
  pid_t child = fork_as(0, CLONE_NEWPID | CLONE_NEWNS);
  if (child < 0) {
    user = true;
    child = fork_as(0, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS);
  }
  if (child == 0) {
    if (!map_ids_and_mount_proc(user, uid, gid).empty()) _exit(kUnusable);
    _exit(choose_an_id());
  }
  if (child < 0) return std::string("namespaces are not allowed: ") + strerror(errno);
  const int status = status_of(child);
  if (status == 0) return "";
  return status == kUnusable || status < 0
             ? "namespaces are not usable"
             : std::string("process ids cannot be chosen: ") + strerror(status);
}

std::string why_no_job_ids() {
  std::string why = why_no_ids_in_namespace();
  if (why.empty() || geteuid() != 0) return why;
  const std::string here = why_no_ids_here();
  return here.empty() ? "" : why + "; " + here;
}

}  // namespace gpuckpt::restore
