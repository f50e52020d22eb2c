#include "restore/supervisor/supervisor.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/files/new_file.h"
#include "gpuckpt/exit_codes.h"
#include "restore/files/file_sums.h"
#include "restore/files/files_put_back.h"
#include "restore/files/foreign_leases.h"
#include "restore/files/removed_files.h"
#include "restore/files/written_files.h"
#include "restore/image/image.h"
#include "restore/image/tree.h"
#include "restore/ipc/sysv_ipc.h"
#include "restore/memory/common_memory.h"
#include "restore/memory/fill.h"
#include "restore/memory/memory_loader.h"
#include "restore/pager/pager.h"
#include "restore/preflight/preflight.h"
#include "restore/protocol/plan.h"
#include "restore/supervisor/device_feed.h"
#include "restore/supervisor/launcher_terminal.h"
#include "restore/supervisor/stale_processes.h"
#include "restore/supervisor/start.h"
#include "store/io/printable.h"
#include "store/io/process_identity.h"

namespace gpuckpt::restore {

using namespace process;
using store::SnapshotReader;
using store::Status;

namespace {

std::atomic<pid_t> program{0};           // 0: it does not run yet
std::atomic<uint64_t> early_signals{0};  // a bit each: came before the program ran

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Warns when it cannot be written: the program runs all the same.
void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  const long error = replace_file(path.c_str(), text.data(), text.size());
  if (error)
    store::say("gpuckpt: warning: cannot write %s: %s\n", path.c_str(),
               strerror(static_cast<int>(-error)));
}

void write_status(const Options& o, const std::string& state, int code, const std::string& text,
                  const std::string& id, pid_t pid, int exit_status, double seconds) {
  const nlohmann::ordered_json status = {{"state", state},
                                         {"code", code},
                                         {"pid", pid},
                                         {"exit_status", exit_status},
                                         {"restore_ms", std::round(seconds * 10000) / 10},
                                         {"id", id},
                                         {"text", text}};
  write_file(o.status_file,
             status.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

int give_up(const Options& o, const SnapshotReader& reader, int code, const std::string& text) {
  remove_segments();
  store::say("gpuckpt: restore: %s\n", text.c_str());
  write_status(o, "failed", code, text, reader.id(), 0, -1, 0);
  return o.dry_run ? code : kExitLauncher;
}

// --- the parent of the program

// Safe in a handler, and on several threads at once: each signal is sent by the one that takes its
// bit.
void send_early_signals() {
  const pid_t pid = program;
  if (pid <= 0) return;
  const uint64_t signals = early_signals.exchange(0);
  for (int sig = 1; sig < 64; ++sig)
    if (signals >> sig & 1) kill(pid, sig);
}

// Forwards signals that another process sends to this one, because they are meant for the program.
// Signals of the terminal reach the program anyway: it is in the same process group.
void forward(int sig, siginfo_t* info, void*) {
  int saved = errno;
  if (info->si_code <= 0) {
    early_signals |= uint64_t{1} << sig;
    send_early_signals();
  }
  errno = saved;
}

void forward_signals() {
  struct sigaction a {};
  a.sa_sigaction = forward;
  a.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&a.sa_mask);
  for (int sig : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGWINCH,
                  SIGURG, SIGIO})
    sigaction(sig, &a, nullptr);
}

// Receives one report with the sender's pid as it is called here.
int receive(int fd, Report* r, pid_t* sender, int timeout_ms, Fd* passed = nullptr) {
  pollfd p{fd, POLLIN, 0};
  int ready;
  do ready = poll(&p, 1, timeout_ms);
  while (ready < 0 && errno == EINTR);
  if (ready <= 0) return 0;
  iovec io{r, sizeof(*r)};
  alignas(cmsghdr) char control[256];
  msghdr m{};
  m.msg_iov = &io, m.msg_iovlen = 1;
  m.msg_control = control, m.msg_controllen = sizeof(control);
  ssize_t n;
  do n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n != sizeof(*r)) return -1;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
      ucred cred;
      memcpy(&cred, CMSG_DATA(c), sizeof(cred));
      *sender = cred.pid;
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
      int got;
      memcpy(&got, CMSG_DATA(c), sizeof(got));
      Fd file(got);
      if (passed) *passed = std::move(file);
    }
  return 1;
}

int decode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int wait_for_end(Started* s) {
  int status = 0;
  if (s->status) {
    ssize_t n;
    do n = read(s->status.get(), &status, sizeof(status));
    while (n < 0 && errno == EINTR);
    if (n == sizeof(status)) return decode(status);
  }
  while (waitpid(s->child, &status, 0) < 0 && errno == EINTR) {
  }
  return decode(status);
}

struct Outcome {
  bool running = false;
  bool hung = false;  // a step did not end: the process in it must be killed
  int code = kExitError;
  std::string text;
  pid_t pid = 0;
};

// The state of lazy pages while the program runs.
struct LazyPages {
  Pager pager;
  Fd uffd;
};
struct AllLazyPages {
  std::vector<LazyPages> members;  // the last one's at the end
  ProcessesMissing missing;
  std::vector<int> reports;  // the supervisor's sockets to the processes
};

// Fills small mappings now, and leaves large ones to the pager. Refused: it cannot be done here.
Status give_pages_lazily(const Image& image, const SnapshotReader& reader, const Options& o,
                         pid_t pid, bool kernel_waits, AllLazyPages* lazy) {
  std::vector<AddressRange> ranges = ranges_for_userfaultfd(image, reader);
  if (ranges.empty()) return Status::Refused("");
  if (Status s = fill_all_but(reader, ranges, ProcessMemory(pid)); !s.ok()) return s;
  // A pager holds no other process's userfaultfd: its holes are open when the last holder closes
  // it. Nor does it hold the sockets by which processes notice that the restore has ended.
  std::vector<int> others = lazy->reports;
  LazyPages& last = lazy->members.back();
  for (LazyPages& l : lazy->members) {
    if (&l != &last && l.uffd) others.push_back(l.uffd.get());
    if (l.pager.control) others.push_back(l.pager.control.get());
  }
  return start_pager({pid, image, last.uffd, kernel_waits}, reader, ranges, o.threads,
                     lazy->missing, others, &last.pager);
}

// The new process has mapped everything and waits for its pages. `why_not`: the reason why it
// cannot be lazy; null: it can. `there`: the ranges that it has already.
Status give_pages(const Image& image, const SnapshotReader& reader,
                  const std::vector<AddressRange>& there, const Options& o, Memory* memory,
                  pid_t pid, int socket, const char* why_not, bool kernel_waits,
                  AllLazyPages* lazy) {
  const char* way = getenv("GPUCKPT_FILL");
  auto asked = [&](const char* name) { return way && strcmp(way, name) == 0; };
  Report filled{};
  filled.type = kReportFilled;
  Status status = Status::Refused(why_not ? why_not : "");
  if (o.lazy && !why_not) status = give_pages_lazily(image, reader, o, pid, kernel_waits, lazy);
  if (o.lazy && status.code() == kExitRefused && !status.text().empty())
    store::say(
        "gpuckpt: warning: --lazy is not possible here (%s); reading all of the memory first\n",
        status.text().c_str());
  if (status.code() == kExitRefused) {
    Fd userfaultfd = std::move(lazy->members.back().uffd);
    if (asked("write")) userfaultfd.reset();
    status = asked("file")
                 ? Status::Refused("as asked")
                 : fill_process(reader, there, o.threads,
                                ProcessMemory(pid, std::move(userfaultfd), image, reader));
  }
  if (status.code() == kExitRefused) {
    status = load_pages(reader, o.threads, memory);
    filled.code = 1;
  }
  if (status.ok() && send(socket, &filled, sizeof(filled), MSG_NOSIGNAL) != sizeof(filled))
    return Status::Error("the restored process ended while it was being filled");
  return status;
}

// Waits for the pager beside the program.
void watch_pager(LazyPages lazy, std::vector<pid_t> members) {
  std::thread([lazy = std::move(lazy), members = std::move(members)] {
    int status = 0;
    while (waitpid(lazy.pager.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (status == 0) return;
    store::say(
        "gpuckpt: restore: the rest of the program's memory cannot be read (the store is "
        "damaged, or gpuckpt-pager was killed): ending the program\n");
    for (pid_t pid : members) kill(pid, SIGKILL);
  }).detach();
}

// Ends every process that was not permitted to run: a process that waits for a message of the
// supervisor ends. Returns when all have ended, and nothing of theirs (ids, names of sockets)
// prevents another attempt; after five seconds in any case.
void hang_up(Tree* tree) {
  const double begin = now();
  for (auto& m : tree->members) {
    m->their_report.reset();
    shutdown(m->report.get(), SHUT_WR);
  }
  for (auto& m : tree->members) {
    char rest[sizeof(Report)];
    pollfd p{m->report.get(), POLLIN, 0};
    while (m->report) {
      const int left = static_cast<int>((begin + 5 - now()) * 1000);
      if (left <= 0 || poll(&p, 1, left) <= 0 || recv(p.fd, rest, sizeof(rest), 0) <= 0)
        m->report.reset();
    }
  }
}

// How long a step may take (kReportStep); GPUCKPT_STEP_LIMIT: so long instead.
double patience(const Member& m, int seconds) {
  constexpr double kSlowest = 16 << 20;  // bytes a second that the slowest store delivers
  double out = seconds;
  if (seconds == 0) {
    uint64_t bytes = 0;
    for (uint64_t space : m.reader->spaces())
      for (const store::Extent& e : m.reader->extents(space)) bytes += e.zero ? 0 : e.length;
    out = 120 + static_cast<double>(bytes) / kSlowest;
  }
  const char* limit = getenv("GPUCKPT_STEP_LIMIT");
  const double chosen = limit ? atof(limit) : 0;
  return chosen > 0 ? chosen : out;
}

void start_step(Member* m, const char* name, int seconds) {
  m->step = name;
  m->deadline = now() + patience(*m, seconds);
}

void give_up_on(const Member& m, Outcome* out) {
  out->hung = true;
  out->code = kExitTimeout;
  out->text = "process " + std::to_string(m.image.head.pid) + " (" + m.image.command.substr(0, 60) +
              ") hangs while " + m.step + ", and is ended";
}

int left_of(const Member& m) {
  return std::max(0, static_cast<int>((m.deadline - now()) * 1000) + 1);
}

enum class Heard { kReport, kStep, kFailed };

// Receives the next report of a member, within the time of the step that it is at. kFailed: the
// member cannot continue; `out` says why.
Heard hear(Member* m, Report* r, Outcome* out, Fd* passed = nullptr) {
  const int got = receive(m->report.get(), r, &m->pid, left_of(*m), passed);
  if (got == 1 && r->type == kReportStep) {
    r->text[sizeof(r->text) - 1] = 0;
    start_step(m, r->text, r->code);
    return Heard::kStep;
  }
  if (got == 1 && r->type == kReportWarning) {
    r->text[sizeof(r->text) - 1] = 0;
    store::say("gpuckpt: warning: %s\n", r->text);
    return Heard::kStep;
  }
  if (got == 1 && r->type != kReportFailed) return Heard::kReport;
  if (got == 1) {
    out->code = r->code;
    out->text = r->text;
  } else if (got == 0) {
    give_up_on(*m, out);
  } else {
    out->text = "the restored process ended while " + m->step;
  }
  return Heard::kFailed;
}

bool expect(Member* m, Report* r, Outcome* out, Fd* passed = nullptr) {
  Heard heard;
  do heard = hear(m, r, out, passed);
  while (heard == Heard::kStep);
  return heard == Heard::kReport;
}

// Receives a report of every process that has not `reached` the step, in the order in which reports
// arrive: one process may wait for another, and the first that fails has the reason.
bool expect_of_all(Tree* tree, uint32_t type, std::vector<uint32_t>* reached, Outcome* out) {
  for (;;) {
    std::vector<pollfd> polls;
    Member* first = nullptr;  // the one whose step must end first
    for (size_t i = 0; i < reached->size(); ++i) {
      Member* m = tree->members[i].get();
      const bool waits = (*reached)[i] != type;
      polls.push_back({waits ? m->report.get() : -1, POLLIN, 0});
      if (waits && (!first || m->deadline < first->deadline)) first = m;
    }
    if (!first) return true;
    const int ready = poll(polls.data(), polls.size(), left_of(*first));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      give_up_on(*first, out);
      return false;
    }
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].fd < 0 || !polls[i].revents) continue;
      Report r{};
      const Heard heard = hear(tree->members[i].get(), &r, out);
      if (heard == Heard::kStep) continue;
      if (heard == Heard::kFailed) return false;
      (*reached)[i] = r.type;
      if (r.type != type) return false;
    }
  }
}

// Fills what the process maps. `reached`: the report that it sends where that was not needed.
bool fill(Tree* tree, size_t i, const Options& o, Ids ids, Outcome* out, AllLazyPages* lazy,
          uint32_t* reached) {
  Member* m = tree->members[i].get();
  Report r{};
  lazy->members.emplace_back();
  if (!expect(m, &r, out, &lazy->members.back().uffd)) return false;
  if (r.type != kReportMapped) {
    *reached = r.type;
    return true;
  }
  const char* why_not = ids == Ids::kNew
                            ? "the thread ids are new, and all memory is searched for the old ones"
                        : r.code ? strerrorname_np(r.code)
                                 : nullptr;
  static const std::vector<AddressRange> nothing;
  const CommonPages& common = tree->common;
  Status filled =
      give_pages(m->image, *m->reader, common.members.empty() ? nothing : common.members[i].equal,
                 o, &m->memory, m->pid, m->report.get(), why_not, !r.user_only, lazy);
  start_step(m, "completing its memory", 120);
  if (filled.ok()) return true;
  out->code = filled.code();
  out->text = filled.text();
  return false;
}

// A restore without a given run: two jobs still must not have one name.
uint64_t any_run() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (static_cast<uint64_t>(t.tv_sec) << 30 | static_cast<uint64_t>(t.tv_nsec)) << 16 ^
         static_cast<uint64_t>(getpid());
}

bool let_go(Member* m, const Tree& tree, const SnapshotReader& reader, uint64_t run) {
  Report go{};
  go.type = kReportGo;
  go.us[0] = run;
  go.us[1] = tree.several() ? static_cast<uint64_t>(tree.root().image.head.pid) : 0;
  go.host_pid = m->pid;
  go.host_start_time = store::start_time(m->pid);
  snprintf(go.text, sizeof(go.text), "%s", reader.id().c_str());
  return send(m->report.get(), &go, sizeof(go), MSG_NOSIGNAL) == sizeof(go);
}

// Every process has the files and folders without a name that it needs: they get their owners,
// modes and times, and only the program's own descriptors of all files stay open (leases require
// that).
void finish_files(Tree* tree) {
  for (auto& m : tree->members) {
    auto give = [&](FileKey key, int fd, const std::string& path) {
      auto a = m->image.attributes.find(key);
      if (a != m->image.attributes.end()) give_attributes(a->second, fd, path);
    };
    for (const auto& [d, path] : m->image.fds)
      for (const auto& [number, file] : m->memory.unlinked)
        if (d.kind == kFdMemory && d.fd == number) give({d.dev, d.ino}, file.get(), path);
    for (const auto& [key, folder] : *m->memory.folders) give(key, folder.get(), "a folder");
  }
  for (auto& m : tree->members) {
    m->memory.files.clear();
    m->memory.shared.clear();
    m->memory.unlinked.clear();
    m->memory.folders.reset();
  }
}

// Refused to a pager: the program has all of its memory already, only later.
Status trace_programs(Tree* tree, AllLazyPages* lazy) {
  for (size_t i = 0; i < lazy->members.size(); ++i) {
    start_step(tree->members[i].get(), "reading its memory", 600);
    Pager& pager = lazy->members[i].pager;
    Status traced = trace_program(pager);
    if (traced.code() == kExitRefused) {
      store::say(
          "gpuckpt: warning: --lazy is not possible here (%s); all of the memory was read first\n",
          traced.text().c_str());
      while (waitpid(pager.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      pager.pid = -1;
      traced = Status::Ok();
    }
    if (!traced.ok()) return traced;
  }
  return Status::Ok();
}

bool bring_up(Tree* tree, const SnapshotReader& reader, const Options& o, Ids ids, Outcome* out,
              AllLazyPages* lazy, LauncherTerminal* terminal) {
  std::vector<uint32_t> reached(tree->members.size());
  for (const auto& m : tree->members) lazy->reports.push_back(m->report.get());
  for (size_t i = 0; i < reached.size(); ++i)
    if (!fill(tree, i, o, ids, out, lazy, &reached[i])) return false;
  if (tree->several()) {
    if (!expect_of_all(tree, kReportThreads, &reached, out)) return false;
    Report r{};
    r.type = kReportDriver;
    for (auto& m : tree->members) {
      start_step(m.get(), "setting its clocks", 60);
      send(m->report.get(), &r, sizeof(r), MSG_NOSIGNAL);
    }
  }
  if (!expect_of_all(tree, kReportReady, &reached, out)) return false;
  for (auto& m : tree->members) {
    Status written = write_named_files(*m->reader, o.threads, &m->memory);
    if (written.ok()) continue;
    out->code = written.code();
    out->text = written.text();
    return false;
  }
  std::vector<const Image*> images;
  for (const auto& m : tree->members) images.push_back(&m->image);
  if (Status tails = o.keep_files ? Status::Ok() : set_tails_aside(images); !tails.ok()) {
    out->code = tails.code();
    out->text = tails.text();
    return false;
  }
  finish_files(tree);
  drop_common_memory(*tree);  // from now on it is the program's alone
  if (Status traced = trace_programs(tree, lazy); !traced.ok()) {
    out->code = traced.code();
    out->text = traced.text();
    return false;
  }
  out->pid = tree->root().pid;
  const uint64_t run = o.run ? o.run : any_run();
  terminal->give_to(*tree);
  // Children first, because the root may look for them.
  for (size_t i = tree->members.size(); i-- > 0;)
    if (!let_go(tree->members[i].get(), *tree, reader, run)) {
      out->text = "the restored process ended before it could run";
      return false;
    }
  program = out->pid;
  // The program does not need this process any more: the user who sees the number may end it.
  write_file(o.pid_file, o.pid_file.empty() ? "" : std::to_string(out->pid) + "\n");
  send_early_signals();
  return out->running = true;
}

using Feeds = std::vector<std::unique_ptr<DeviceFeed>>;

// The first reason why a process could not read its device memory.
Status end_all(Feeds* feeds) {
  Status first;
  for (auto& feed : *feeds)
    if (Status read = feed->end(); !read.ok() && first.ok()) first = read;
  return first;
}

Outcome try_start(Tree* tree, const SnapshotReader& reader, const Options& o, Ids ids, Started* s,
                  Feeds* feeds, LauncherTerminal* terminal) {
  Outcome out;
  for (auto& m : tree->members)
    feeds->push_back(std::make_unique<DeviceFeed>(*m->reader, m->memory, o.threads));
  if (!start_program(tree, find_launcher(o), ids, s, &out.text)) {
    out.code = kExitRefused;
    return out;
  }
  for (auto& feed : *feeds) feed->start();
  for (auto& m : tree->members) start_step(m.get(), "being made", 120);
  AllLazyPages lazy;
  if (bring_up(tree, reader, o, ids, &out, &lazy, terminal)) {
    std::vector<pid_t> members;
    for (const auto& m : tree->members) members.push_back(m->pid);
    for (LazyPages& l : lazy.members) l.pager.control.reset();
    for (LazyPages& l : lazy.members)
      if (l.pager.pid > 0) watch_pager(std::move(l), members);
    return out;
  }
  if (s->child > 0 && (tree->several() || out.hung)) kill(s->child, SIGKILL);
  hang_up(tree);
  if (Status read = end_all(feeds); !read.ok() && out.code == kExitError) {
    out.code = read.code();
    out.text = read.text();
  }
  int status = 0;
  for (const LazyPages& l : lazy.members)
    if (l.pager.pid > 0) {
      kill(l.pager.pid, SIGKILL);
      waitpid(l.pager.pid, nullptr, 0);
    }
  while (s->child > 0 && waitpid(s->child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
    out.text += " (signal " + std::to_string(WTERMSIG(status)) + ")";
  return out;
}

// Others write to them as well (written_files.h).
std::vector<std::string> shared_logs(const Tree& tree) {
  std::vector<std::string> out;
  for (const auto& m : tree.members)
    for (const auto& [d, path] : m->image.fds)
      if (d.kind == kFdFile && d.value[0]) out.push_back(path);
  return out;
}

Status load(Tree* tree, const Options& o) {
  for (auto& m : tree->members) {
    m->memory.lazy = o.lazy;
    m->memory.steps = o.steps;
  }
  if (Status s = load_tree(tree, o.threads); !s.ok()) return s;
  for (auto& m : tree->members)
    if (!o.gpu_map.empty())
      m->memory.blobs.emplace_back(
          "gpu_map",
          std::vector<uint8_t>(o.gpu_map.c_str(), o.gpu_map.c_str() + o.gpu_map.size() + 1));
  return load_common_memory(tree, o.threads);
}

int refuse(const Options& o, const SnapshotReader& reader, const Preflight& p) {
  std::string text = "this snapshot cannot be restored here:";
  for (const auto* list : {&p.never, &p.here})
    for (const std::string& w : *list) text += "\n  - " + w;
  return give_up(o, reader, kExitIncompatible, text);
}

// What --dry-run says of a snapshot that can be restored.
void tell_checked(const SnapshotReader& reader, const Tree& tree, const Preflight& p) {
  for (const std::string& text : p.differs) store::say("gpuckpt: warning: %s\n", text.c_str());
  const Image& image = tree.root().image;
  store::say(
      "gpuckpt: %s can be restored here (%zu processes; the first: %zu threads, %zu "
      "mappings, %zu descriptors)\n",
      reader.id().c_str(), tree.members.size(), image.threads.size(), image.vmas.size(),
      image.fds.size());
}

// The ways in which the processes can get their ids, the best one first.
std::vector<Ids> ways_to_ids(const Options& o, const Tree& tree) {
  std::vector<Ids> ways;
  if ((namespaces_allowed(o) || tree.several()) && geteuid() == 0 && all_ids_free(tree))
    ways.push_back(Ids::kHere);
  if (namespaces_allowed(o)) ways.push_back(Ids::kNamespace);
  // Processes know each other by their ids, so they are needed.
  if (!tree.several()) ways.push_back(Ids::kNew);
  return ways;
}

void tell_new_ids(const std::string& why_not) {
  store::say(
      "gpuckpt: warning: the program has new process and thread ids (no namespaces "
      "here%s); programs that keep native thread ids may notice\n",
      why_not.empty() ? "" : (": " + why_not).c_str());
}

// Stays beside the program until it has ended. Returns its exit status.
int attend(pid_t pid, const SnapshotReader& reader, const Options& o, double seconds, Started* s,
           Feeds* feeds, LauncherTerminal* terminal) {
  if (o.on_running) o.on_running(pid);
  write_status(o, "running", 0, "", reader.id(), pid, -1, seconds);
  const int status = wait_for_end(s);
  terminal->take_back();
  if (Status read = end_all(feeds); !read.ok())
    return give_up(o, reader, read.code(), "the program has ended: " + read.text());
  write_status(o, "ended", 0, "", reader.id(), pid, status, seconds);
  return status;
}

// Starts the processes, in one way after the other until they run, and attends to them.
int start_and_attend(Tree* tree, const SnapshotReader& reader, const Options& o, double begin,
                     FilesPutBack* files, SysvPutBack* sysv, bool* ran) {
  Outcome outcome;
  outcome.code = kExitRefused;
  outcome.text = needs_ids("namespaces are turned off");
  std::string before, why_not;  // why earlier ways did not work; the last one
  const std::vector<Ids> ways = ways_to_ids(o, *tree);
  for (const Ids& ids : ways) {
    Started started;
    Feeds feeds;
    LauncherTerminal terminal;
    outcome = try_start(tree, reader, o, ids, &started, &feeds, &terminal);
    if (outcome.running) {
      if (ran) *ran = true;
      files->keep();
      sysv->keep();
      let_segments_go();
      if (ids == Ids::kNew && namespaces_allowed(o)) tell_new_ids(why_not);
      return attend(outcome.pid, reader, o, now() - begin, &started, &feeds, &terminal);
    }
    // Ids that are refused or taken: another way may work. All other failures would occur again.
    if ((outcome.code != kExitRefused && outcome.code != kExitLocked) || &ids == &ways.back())
      break;
    why_not = outcome.text;
    before += " (tried before" + std::string(ids == Ids::kHere ? ", without namespaces" : "") +
              ": " + outcome.text + ")";
  }
  return give_up(o, reader, outcome.code, outcome.text + before);
}

}  // namespace

int restore_snapshot(const SnapshotReader& reader, const Options& o, bool* ran) {
  if (ran) *ran = false;
  const double begin = now();
  Tree tree;
  if (Status s = read_tree(reader, &tree); !s.ok()) return give_up(o, reader, s.code(), s.text());
  if (!o.lazy && common_pages_wanted()) tree.common = find_common_pages(tree);
  // What the preflight reads of a file, another process's lease would keep from it as well.
  if (!o.dry_run)
    if (Status s = end_foreign_leases(tree); !s.ok()) return give_up(o, reader, s.code(), s.text());
  const Preflight p = preflight(tree, o);
  if (!p.ok()) return refuse(o, reader, p);
  for (const std::string& text : p.doubts) store::say("gpuckpt: warning: %s\n", text.c_str());
  if (o.dry_run) {
    tell_checked(reader, tree, p);
    write_status(o, "checked", 0, "", reader.id(), 0, -1, now() - begin);
    return kExitOk;
  }
  // A stale process of the old job may still write to its files, and files are restored before
  // memory, because some are mapped.
  wait_for_stale_processes(tree);
  FilesPutBack files;
  if (!o.keep_files) {
    Status s = files.run(reader, read_files_blob(reader), shared_logs(tree));
    if (!s.ok()) return give_up(o, reader, s.code(), s.text());
  }
  SysvPutBack sysv;
  if (Status s = sysv.run(tree); !s.ok()) return give_up(o, reader, s.code(), s.text());
  if (Status s = load(&tree, o); !s.ok()) return give_up(o, reader, s.code(), s.text());
  forward_signals();
  return start_and_attend(&tree, reader, o, begin, &files, &sysv, ran);
}

}  // namespace gpuckpt::restore
