#include "restore/supervisor/start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include <atomic>
#include <map>
#include <new>

#include "base/procfs/namespaces.h"
#include "base/procfs/proc.h"
#include "gpuckpt/exit_codes.h"
#include "restore/descriptors/fds.h"
#include "restore/descriptors/open_numbers.h"
#include "restore/memory/common_memory.h"
#include "restore/memory/plan_builder.h"
#include "restore/preflight/checks.h"
#include "restore/preflight/preflight.h"
#include "restore/supervisor/control_groups.h"
#include "restore/supervisor/process_placement.h"
#include "store/io/printable.h"
#include "store/io/process_identity.h"

namespace gpuckpt::restore {
namespace {

bool write_text(const char* path, const std::string& text) {
  Fd fd(open(path, O_WRONLY | O_CLOEXEC));
  return fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

int highest_open_fd() {
  int highest = 2;
  each_open_number([&](int fd) { highest = std::max(highest, fd); });
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

// Sets the program's supplementary groups, which the launcher inherits.
bool has_groups_of(const Image& image) {
  std::vector<gid_t> own(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
  own.resize(static_cast<size_t>(std::max(0, getgroups(static_cast<int>(own.size()), own.data()))));
  std::vector<gid_t> wanted(image.groups.begin(), image.groups.end());
  std::sort(own.begin(), own.end()), std::sort(wanted.begin(), wanted.end());
  return own == wanted;
}

// Whether any thread needs credentials that it does not inherit from this process.
bool needs_other_ids(const Image& image) {
  return image.has_thread_groups || !has_groups_of(image) ||
         std::any_of(image.threads.begin(), image.threads.end(), [](const process::Thread& t) {
           return !(t.flags & process::kThreadZombieLeader) &&
                  (differs(t.uid, geteuid()) || differs(t.gid, getegid()));
         });
}

std::string list_groups(const std::vector<uint32_t>& groups) {
  std::string text;
  for (uint32_t g : groups) text += (text.empty() ? "" : ", ") + std::to_string(g);
  return text.empty() ? "none" : text;
}

// The program's own standard error may already be descriptor 2.
void warn(int report, const std::string& warning) {
  Report r{};
  r.type = kReportWarning;
  strncpy(r.text, warning.c_str(), sizeof(r.text) - 1);
  (void)!send(report, &r, sizeof(r), MSG_NOSIGNAL);
}

// Whether it is a pseudo terminal that the program made. `terminal`: Head::terminal.
bool made_anew(const Tree& tree, int terminal) {
  for (const auto& m : tree.members)
    for (const Image::Terminal& t : m->image.terminals)
      if (static_cast<int>(t.head.number) + 1 == terminal) return true;
  return false;
}

// Makes what several processes share; called by the first of them.
void make_common(Start* s) {
  if (!s->tree.several() || s->common_made) return;
  const int report = s->tree.root().their_report.get();
  std::string error = make_common_descriptors(
      s->tree, highest_open_fd() + 1, [&](const std::string& w) { warn(report, w); }, &s->common);
  if (error.empty() && !s->pidfds.prepare(s->tree)) error = strerror(errno);
  if (!error.empty()) fail(*s, report, kExitIncompatible, error);
  s->common_made = true;
}

void raise_descriptor_limit() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_max = std::max<rlim_t>(files.rlim_max, raised_descriptor_limit());
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// The first number above all descriptors, open now or the program's.
int number_above_all(const Image& image) {
  int base = highest_open_fd();
  for (const auto& [d, path] : image.fds) base = std::max(base, d.fd);
  return base + 1;
}

// Descriptors that the launcher needs, at numbers from `next` up, where the program has none.
struct LauncherFds {
  PlanFds plan;
  int program = -1;  // the launcher itself
};
LauncherFds move_launcher_fds(const Start& s, const Member& member, int next) {
  const Memory& memory = member.memory;
  int report = member.their_report.get();
  LauncherFds out;
  PlanFds& fds = out.plan;
  auto move = [&](int fd) {
    int high = fcntl(fd, F_DUPFD, next);
    if (high < 0)
      fail(report, kExitError,
           "no descriptor number is free above " + std::to_string(next) +
               ": raise the limit (ulimit -n)");
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
  for (const auto& [i, f] : memory.files_to_write) fds.files_to_write[i] = move(f.get());
  for (const auto& [i, f] : memory.shared_to_read) fds.shared_to_read[i] = move(f.get());
  Fd exe(open(member.image.exe.c_str(), O_RDONLY | O_CLOEXEC));
  if (exe) fds.exe = move(exe.get());
  Fd program(open(s.launcher.c_str(), O_RDONLY | O_CLOEXEC));
  if (!program) fail(report, kExitError, s.launcher + ": " + strerror(errno));
  out.program = move(program.get());
  fcntl(out.program, F_SETFD, FD_CLOEXEC);
  Fd plan_file(memfd_create("gpuckpt-plan", 0));
  fds.plan = move(plan_file.get());
  return out;
}

uint32_t plan_flags(const Start& s, size_t i, int report) {
  const Image& image = s.tree.members[i]->image;
  const Memory& memory = s.tree.members[i]->memory;
  uint32_t flags = 0;
  if (s.ids != Ids::kNew) flags |= kSameIds;
  if (!memory.pages_loaded) flags |= kFillBySupervisor;
  if (s.ids == Ids::kHere) flags |= kKeepPages;
  if (memory.lazy && s.ids != Ids::kNew) flags |= kLazy;
  if (memory.steps) flags |= kStep;
  if (s.tree.several()) flags |= kSeveral;
  if (s.tree.runs_first(i)) flags |= kRunsFirst;
  if (made_anew(s.tree, image.head.terminal)) flags |= kOwnTerminal;
  const bool may_set_ids = geteuid() == 0 && !s.user_namespace;
  if (may_set_ids && needs_other_ids(image)) flags |= kSetIds;
  if (!may_set_ids && !has_groups_of(image))
    warn(report, "process " + std::to_string(image.head.pid) + " had other supplementary groups (" +
                     list_groups(image.groups) +
                     ") than this user has here, and only root may set them; it continues with "
                     "those of the restore");
  if (s.user_namespace && i == 0)
    warn(report,
         "the program has its old process ids in a user namespace, because this user may "
         "choose none elsewhere: files of other users look like user 65534's, and sudo "
         "and su give it no rights (--no-namespaces: new process ids)");
  return flags;
}

void write_plan(const Start& s, size_t i, const PlanFds& fds) {
  const Member& member = *s.tree.members[i];
  std::string error;
  std::vector<uint8_t> plan =
      build_plan(member.image, member.memory, fds, plan_flags(s, i, fds.report), &error);
  if (!error.empty()) fail(fds.report, kExitIncompatible, error);
  auto* head = reinterpret_cast<Plan*>(plan.data());
  head->restorer = s.restorer;
  struct stat st;
  for (int fd = 0; fd < 3; ++fd)
    head->standard[fd] = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) ? st.st_ino : 0;
  if (pwrite(fds.plan, plan.data(), plan.size(), 0) != static_cast<ssize_t>(plan.size()))
    fail(fds.report, kExitError, "no memory for the plan");
}

// Properties that /proc shows of a process and that exec keeps.
void set_process_settings(const Start& s, const Image& image, int report) {
  for (const std::string& warning : enter_control_groups(image.control_groups))
    warn(report, warning);
  write_text("/proc/self/oom_score_adj", std::to_string(image.head.oom_score_adj));
  if (image.head.coredump_filter)
    write_text("/proc/self/coredump_filter", std::to_string(image.head.coredump_filter));
  if (s.user_namespace) keep_capabilities_over_exec();
  for (int sig = 1; sig <= 64; ++sig) signal(sig, SIG_DFL);
}

[[noreturn]] void start_launcher(const Start& s, size_t i, const LauncherFds& fds) {
  const int report = fds.plan.report;
  if (!s.tree.members[i]->memory.inherited.empty()) {
    const int reason = launch_in_place(s.tree, i, fds.program, fds.plan.plan);
    fail(report, kExitError, s.launcher + " cannot be loaded: " + strerror(reason));
  }
  std::string number = std::to_string(fds.plan.plan);
  const char* argv[] = {"gpuckpt-launch", number.c_str(), nullptr};
  const char* environment[] = {nullptr};
  syscall(SYS_execveat, fds.program, "", argv, environment, AT_EMPTY_PATH);
  fail(report, kExitError, s.launcher + " cannot be executed: " + strerror(errno));
}

// In the process that becomes member `i` of the program.
[[noreturn]] void become(Start* s, size_t i) {
  const Member& member = *s->tree.members[i];
  const Image& image = member.image;
  int report = member.their_report.get();
  raise_descriptor_limit();
  begin_step(report, "making the descriptors of all processes", 180);
  make_common(s);
  begin_step(report, "entering its session and process group", 60);
  enter_session_and_group(s, i, report);
  keep_inherited_memory(s->tree, i);
  begin_step(report, "planning its memory", 60);
  std::map<int, int> common;
  const bool several = s->tree.several();
  if (several && !s->pidfds.exchange(i, &common))
    fail(*s, report, kExitIncompatible,
         std::string("a pidfd of the job cannot be made again: ") + strerror(errno));
  const int base = number_above_all(image);
  const LauncherFds fds = move_launcher_fds(*s, member, base);
  report = fds.plan.report;
  write_plan(*s, i, fds.plan);

  if ((image.cwd_gone ? fchdir(member.memory.folders->at(image.cwd_folder).get())
                      : chdir(image.cwd.c_str())) != 0)
    fail(report, kExitIncompatible, image.cwd + ": " + strerror(errno));
  for (auto it = s->common.lower_bound({i, INT_MIN}); it != s->common.end() && it->first.first == i;
       ++it)
    common[it->first.second] = it->second;
  begin_step(report, "making its descriptors", 180);
  const std::string error =
      make_descriptors(image, member.memory, base, several ? &common : nullptr,
                       [&](const std::string& w) { warn(report, w); });
  if (!error.empty()) fail(report, kExitIncompatible, error);
  set_process_settings(*s, image, report);
  begin_step(report, "mapping its memory", 120);
  start_launcher(*s, i, fds);
}

// Lets the clocks that count from the machine's start go on where they stopped, once: processes
// that are forked from here on inherit them. Whatever waits with a timeout would else find that the
// time between snapshot and restore has passed, on this machine as after its next start.
void set_clocks(const Image& image, int report) {
  static bool done = false;
  if (done) return;
  constexpr int64_t kSecond = 1000000000, kWorthATold = 60;
  keep_clock_offsets();
  const ClockOffsets ours = clock_offsets();
  // To the nanosecond, because half a second too little would make a clock go back.
  auto ahead = [](uint64_t then_us, clockid_t clock, int64_t offset) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<int64_t>(then_us) * 1000 + 999 - (now.tv_sec * kSecond + now.tv_nsec) +
           offset;
  };
  int64_t mono = ahead(image.head.monotonic_us, CLOCK_MONOTONIC, ours.monotonic);
  int64_t boot = ahead(image.head.boottime_us, CLOCK_BOOTTIME, ours.boottime);
  // Whole ticks of the clock by which processes' start times are told (start_time in
  // base/procfs/proc.h); the two clocks keep their distance.
  const int64_t up = (kClockTickNs - boot % kClockTickNs) % kClockTickNs;
  mono += up, boot += up;
  auto text = [](int64_t ns) {
    const int64_t seconds = ns / kSecond - (ns % kSecond < 0);
    return std::to_string(seconds) + " " + std::to_string(ns - seconds * kSecond);
  };
  done = syscall(SYS_unshare, 0x80 /* CLONE_NEWTIME */) == 0 &&
         write_text("/proc/self/timens_offsets",
                    "monotonic " + text(mono) + "\nboottime " + text(boot) + "\n");
  if (done) return;
  const int error = errno;
  const int64_t jump = (ours.monotonic - mono) / kSecond;
  if (store::boot_id() == image.head.boot_id && jump < kWorthATold) return;
  warn(report,
       "the clocks that count from the machine's start (CLOCK_MONOTONIC, CLOCK_BOOTTIME) jump by " +
           std::to_string(jump) + " s, and what waits with a timeout may find it over: time " +
           "namespaces are not allowed here (" + strerror(error) + ")");
}

// The process before the first: the root is its sibling, and its children become orphans when it
// ends.
[[noreturn]] void be_intermediate_forker(Start* s) {
  make_common(s);
  make_root_and_orphans(s);
  _exit(0);
}

// Process 1 of the program's pid namespace: waits for orphans, and outlives the program only for
// them.
[[noreturn]] void be_init(Start* s, uid_t uid, gid_t gid, int status) {
  const Image& image = s->tree.root().image;
  const int report = s->tree.root().their_report.get();
  prctl(PR_SET_NAME, "gpuckpt-init");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::string why = map_ids_and_mount_proc(s->user_namespace, uid, gid); !why.empty())
    fail(report, kExitRefused, why);
  set_clocks(image, report);
  const bool prelude = s->tree.has_prelude();
  const pid_t root = image.head.pid;
  pid_t pid = fork_as(prelude ? s->spares.back() : root, 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, 0);
    close(status);
    if (prelude) be_intermediate_forker(s);
    become(s, 0);
  }
  if (pid < 0)
    fail(report, kExitRefused,
         std::string("process ids cannot be chosen here: ") + strerror(errno));
  drop_common_memory(s->tree);
  let_segments_go();  // (the process that has forked this one holds them as well)
  // Closes all other descriptors, in particular the report socket, so that its end is the program's
  // end.
  int keep = dup2(status, 3);
  syscall(SYS_close_range, 4, ~0u, 0);
  for (;;) {
    int result;
    pid_t ended = waitpid(-1, &result, 0);
    if (ended == root) {
      prctl(PR_SET_PDEATHSIG, 0);
      (void)!write(keep, &result, sizeof(result));
      close(keep);
      close(0), close(1), close(2);
    }
    if (ended < 0 && errno == ECHILD) _exit(0);
  }
}

// The program was process 1 of its pid namespace, as in a container, and is so again: it waits for
// its own orphans, and all others end with it. (Its clocks are those of this process from its exec
// on.)
[[noreturn]] void become_init(Start* s, uid_t uid, gid_t gid) {
  const int report = s->tree.root().their_report.get();
  if (std::string why = map_ids_and_mount_proc(s->user_namespace, uid, gid); !why.empty())
    fail(report, kExitRefused, why);
  if (s->tree.has_prelude())
    fail(report, kExitRefused, "no process can be forked before process 1 of a pid namespace");
  set_clocks(s->tree.root().image, report);
  become(s, 0);
}

bool ended_well(pid_t pid) {
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

// The program under an init in namespaces of its own. `status`, `end`: the pipe by which init says
// how it ended. Returns the child, or -1.
pid_t start_in_namespaces(Start* s, Fd* status, int end) {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  const pid_t root = s->tree.root().image.head.pid;
  pid_t child = fork_as(0, CLONE_NEWPID | CLONE_NEWNS);
  if (child < 0) {
    s->user_namespace = true;
    child = fork_as(0, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS);
  }
  if (child == 0) {
    for (auto& m : s->tree.members) m->report.reset();
    status->reset();
    if (root == 1) become_init(s, uid, gid);
    be_init(s, uid, gid, end);
  }
  if (root == 1) status->reset();  // the program is our child
  return child;
}

// The program beside this process. Returns the child, 0 where it failed and has reported that, or
// -1.
pid_t start_here(Start* s) {
  const pid_t root = s->tree.root().image.head.pid;
  const bool old_ids = s->ids == Ids::kHere;
  const bool prelude = old_ids && s->tree.has_prelude();
  set_clocks(s->tree.root().image, s->tree.root().their_report.get());
  const pid_t child = fork_as(old_ids && !prelude ? root : 0, 0);
  if (child == 0) {
    for (auto& m : s->tree.members) m->report.reset();
    if (prelude) be_intermediate_forker(s);
    become(s, 0);
  }
  if (child <= 0 || !prelude) return child;
  const pid_t helper = root_helper(*s);
  const bool made = ended_well(child) && (!helper || ended_well(helper));
  return made ? root : 0;
}

}  // namespace

bool start_program(Tree* tree, const std::string& launcher, Ids ids, Started* out,
                   std::string* error) {
  auto give_up = [&] {
    *error = strerror(errno);
    return false;
  };
  for (auto& m : tree->members) {
    int sockets[2], on = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return give_up();
    setsockopt(sockets[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    m->report = Fd(sockets[0]);
    m->their_report = Fd(sockets[1]);
  }
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return give_up();
  int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
  if (terminal >= 0) close(terminal);
  Start s{.tree = *tree,
          .launcher = launcher,
          .ids = ids,
          .user_namespace = false,
          .terminal = terminal >= 0,
          .common_made = false,
          .common = {},
          .pidfds = {},
          .spares = find_spares(*tree, ids),
          .become = become,
          .restorer = namespaces_of("self"),
          .progress = new (shared) Start::Progress{}};
  pid_t child;
  Fd end;
  if (ids == Ids::kNamespace) {
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) return give_up();
    out->status = Fd(pipe_ends[0]);
    end = Fd(pipe_ends[1]);
    child = start_in_namespaces(&s, &out->status, end.get());
    end.reset();
  } else {
    child = start_here(&s);
  }
  if (child < 0) {
    *error = std::string(ids == Ids::kNamespace ? "namespaces are not allowed here: "
                                                : "no process can be made: ") +
             strerror(errno);
    if (ids == Ids::kNamespace && tree->several()) *error = needs_ids(*error);
  }
  for (auto& m : tree->members) m->their_report.reset();
  munmap(shared, 4096);
  out->child = child > 0 ? child : -1;
  return child >= 0;
}

}  // namespace gpuckpt::restore
