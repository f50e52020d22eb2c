#include "restore/start.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "gpuckpt/exit_codes.h"
#include "restore/fds.h"

namespace gpuckpt::restore {
namespace {

[[noreturn]] void fail(int report, int code, const std::string& text) {
  Report r{};
  r.type = kReportFailed;
  r.code = code;
  strncpy(r.text, text.c_str(), sizeof(r.text) - 1);
  (void)!send(report, &r, sizeof(r), MSG_NOSIGNAL);
  _exit(kExitLauncher);
}

// fork with a chosen process id (0: any).
pid_t fork_as(pid_t pid, uint64_t flags) {
  struct clone_args a {};
  a.flags = flags;
  a.exit_signal = SIGCHLD;
  if (pid) {
    a.set_tid = reinterpret_cast<uint64_t>(&pid);
    a.set_tid_size = 1;
  }
  long r = syscall(SYS_clone3, &a, sizeof(a));
  if (r < 0 && errno == ENOSYS && !pid) r = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
  return static_cast<pid_t>(r);
}

bool write_text(const char* path, const std::string& text) {
  Fd fd(open(path, O_WRONLY | O_CLOEXEC));
  return fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

int highest_open_fd() {
  int highest = 2;
  if (DIR* d = opendir("/proc/self/fd")) {
    while (dirent* e = readdir(d)) highest = std::max(highest, atoi(e->d_name));
    closedir(d);
  }
  return highest;
}

// Capabilities survive the exec of the launcher only as ambient ones.
void keep_capabilities_over_exec() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data) != 0) return;
  data[0].inheritable = data[0].permitted, data[1].inheritable = data[1].permitted;
  syscall(SYS_capset, &header, data);
  for (int cap = 0; cap <= 40; ++cap) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0);
}

bool differs(const uint32_t (&ids)[4], uint32_t own) {
  for (uint32_t id : ids)
    if (id != own) return true;
  return false;
}

// In the process that becomes the program.
[[noreturn]] void become(const Image& image, const Memory& memory, const std::string& launcher,
                         Ids ids, bool user_namespace, int report) {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  int base = highest_open_fd();
  for (const auto& [d, path] : image.fds) base = std::max(base, d.fd);
  base += 1;
  PlanFds fds;
  int next = base;
  auto move = [&](int fd) {
    int high = fcntl(fd, F_DUPFD, next);
    if (high < 0) fail(report, kExitError, "not enough descriptors (ulimit -n)");
    fds.highest = next = high;
    ++next;
    return high;
  };
  fds.report = move(report);
  report = fds.report;
  fds.pages = move(memory.pages.get());
  if (memory.device) fds.device = move(memory.device.get());
  for (const Fd& f : memory.files) fds.files.push_back(move(f.get()));
  for (const Fd& f : memory.shared) fds.shared.push_back(move(f.get()));
  Fd exe(open(image.exe.c_str(), O_RDONLY | O_CLOEXEC));
  if (exe) fds.exe = move(exe.get());
  Fd program(open(launcher.c_str(), O_RDONLY | O_CLOEXEC));
  if (!program) fail(report, kExitError, launcher + ": " + strerror(errno));
  int program_fd = move(program.get());
  fcntl(program_fd, F_SETFD, FD_CLOEXEC);
  Fd plan_file(memfd_create("gpuckpt-plan", 0));
  fds.plan = move(plan_file.get());

  std::string error;
  uint32_t flags = 0;
  if (ids != Ids::kNew) flags |= kSameIds;
  if (!memory.pages_loaded) flags |= kFillByFront;
  if (ids == Ids::kHere) flags |= kKeepPages;
  if (memory.lazy && ids != Ids::kNew) flags |= kLazy;
  if (memory.steps) flags |= kStep;
  if (geteuid() == 0 && !user_namespace &&
      (differs(image.head.uid, geteuid()) || differs(image.head.gid, getegid())))
    flags |= kSetIds;
  std::vector<uint8_t> plan = build_plan(image, memory, fds, flags, &error);
  if (!error.empty()) fail(report, kExitIncompatible, error);
  if (pwrite(fds.plan, plan.data(), plan.size(), 0) != static_cast<ssize_t>(plan.size()))
    fail(report, kExitError, "no memory for the plan");

  // With a terminal the program stays in the launcher's session, else it could not use it.
  int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
  if (terminal >= 0)
    close(terminal);
  else if (image.head.sid == image.head.pid)
    setsid();
  else if (image.head.pgid == image.head.pid)
    setpgid(0, 0);
  if (chdir(image.cwd.c_str()) != 0)
    fail(report, kExitIncompatible, image.cwd + ": " + strerror(errno));
  std::vector<std::string> warnings;
  error = make_descriptors(image, memory, base, &warnings);
  if (!error.empty()) fail(report, kExitIncompatible, error);
  for (const std::string& w : warnings) {
    std::string line = "gpuckpt: warning: " + w + "\n";
    (void)!write(2, line.data(), line.size());
  }
  write_text("/proc/self/oom_score_adj", std::to_string(image.head.oom_score_adj));
  if (user_namespace) keep_capabilities_over_exec();
  for (int sig = 1; sig <= 64; ++sig) signal(sig, SIG_DFL);
  std::string number = std::to_string(fds.plan);
  const char* argv[] = {"gpuckpt-launch", number.c_str(), nullptr};
  const char* environment[] = {nullptr};
  syscall(SYS_execveat, program_fd, "", argv, environment, AT_EMPTY_PATH);
  fail(report, kExitError, launcher + " cannot be executed: " + strerror(errno));
}

// A clock that was ahead of this machine's goes on from where it was.
void set_clocks(const Image& image) {
  timespec mono{}, boot{};
  clock_gettime(CLOCK_MONOTONIC, &mono);
  clock_gettime(CLOCK_BOOTTIME, &boot);
  std::ifstream f("/proc/sys/kernel/random/boot_id");
  std::string id;
  f >> id;
  if (id == image.head.boot_id || syscall(SYS_unshare, 0x80 /* CLONE_NEWTIME */) != 0) return;
  int64_t m = static_cast<int64_t>(image.head.monotonic_us / 1000000) - mono.tv_sec;
  int64_t b = static_cast<int64_t>(image.head.boottime_us / 1000000) - boot.tv_sec;
  write_text("/proc/self/timens_offsets",
             "monotonic " + std::to_string(m) + " 0\nboottime " + std::to_string(b) + " 0\n");
}

// Process 1 of the program's pid namespace: reaps, and outlives the program only for its orphans.
[[noreturn]] void be_init(const Image& image, const Memory& memory, const std::string& launcher,
                          bool user_namespace, uid_t uid, gid_t gid, int report, int status) {
  prctl(PR_SET_NAME, "gpuckpt-init");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (user_namespace) {
    write_text("/proc/self/setgroups", "deny");
    if (!write_text("/proc/self/gid_map", std::to_string(gid) + " " + std::to_string(gid) + " 1") ||
        !write_text("/proc/self/uid_map", std::to_string(uid) + " " + std::to_string(uid) + " 1"))
      fail(report, kExitRefused, "user namespaces are not usable here");
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    fail(report, kExitRefused, "/proc cannot be mounted in a namespace here");
  set_clocks(image);
  pid_t pid = fork_as(image.head.pid, 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, 0);
    close(status);
    become(image, memory, launcher, Ids::kNamespace, user_namespace, report);
  }
  if (pid < 0)
    fail(report, kExitRefused,
         std::string("process ids cannot be chosen here: ") + strerror(errno));
  // Everything else goes; the report socket in particular, so that its end is the program's end.
  int keep = dup2(status, 3);
  syscall(SYS_close_range, 4, ~0u, 0);
  for (;;) {
    int result;
    pid_t ended = waitpid(-1, &result, 0);
    if (ended == pid) {
      prctl(PR_SET_PDEATHSIG, 0);
      (void)!write(keep, &result, sizeof(result));
      close(keep);
      close(0), close(1), close(2);
    }
    if (ended < 0 && errno == ECHILD) _exit(0);
  }
}

}  // namespace

bool all_ids_free(const Image& image) {
  for (const auto& t : image.threads)
    if (kill(t.tid, 0) == 0 || errno != ESRCH) return false;
  return true;
}

bool start_program(const Image& image, const Memory& memory, const std::string& launcher, Ids ids,
                   Started* out, std::string* error) {
  int sockets[2], pipe_ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    *error = strerror(errno);
    return false;
  }
  fcntl(sockets[1], F_SETFD, 0);
  int on = 1;
  setsockopt(sockets[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  out->report = Fd(sockets[0]);
  Fd theirs(sockets[1]);
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  pid_t child = -1;
  if (ids == Ids::kNamespace) {
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
      *error = strerror(errno);
      return false;
    }
    out->status = Fd(pipe_ends[0]);
    Fd end(pipe_ends[1]);
    bool user_namespace = false;
    child = fork_as(0, CLONE_NEWPID | CLONE_NEWNS);
    if (child < 0) {
      user_namespace = true;
      child = fork_as(0, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS);
    }
    if (child == 0) {
      out->report.reset();
      out->status.reset();
      be_init(image, memory, launcher, user_namespace, uid, gid, theirs.get(), end.get());
    }
  } else {
    child = fork_as(ids == Ids::kHere ? image.head.pid : 0, 0);
    if (child == 0) {
      out->report.reset();
      become(image, memory, launcher, ids, false, theirs.get());
    }
  }
  if (child < 0) {
    *error = strerror(errno);
    return false;
  }
  out->child = child;
  return true;
}

}  // namespace gpuckpt::restore
