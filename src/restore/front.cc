#include "restore/front.h"

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
#include <fstream>
#include <memory>
#include <thread>

#include "gpuckpt/exit_codes.h"
#include "restore/checks.h"
#include "restore/device_feed.h"
#include "restore/huge_pages.h"
#include "restore/image.h"
#include "restore/leftovers.h"
#include "restore/pager.h"
#include "restore/plan.h"
#include "restore/plan_builder.h"
#include "restore/start.h"
#include "restore/tree.h"
#include "restore/written_files.h"
#include "store/process_identity.h"

namespace gpuckpt::restore {

using namespace process;
using store::SnapshotReader;
using store::Status;

namespace {

std::atomic<pid_t> program{0};

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string json_string(const std::string& s) {
  std::string out = "\"";
  for (unsigned char c : s) {
    char hex[8];
    if (c == '"' || c == '\\')
      out += '\\', out += static_cast<char>(c);
    else if (c < 32)
      snprintf(hex, sizeof(hex), "\\u%04x", c), out += hex;
    else
      out += static_cast<char>(c);
  }
  return out + "\"";
}

// A file that readers see whole or not at all.
void replace_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::string temporary = path + ".tmp";
  std::ofstream(temporary) << text;
  if (rename(temporary.c_str(), path.c_str()) != 0)
    fprintf(stderr, "gpuckpt: warning: %s: %s\n", path.c_str(), strerror(errno));
}

void write_status(const Options& o, const std::string& state, int code, const std::string& text,
                  const std::string& id, pid_t pid, int exit_status, double seconds) {
  char numbers[160];
  snprintf(numbers, sizeof(numbers),
           ",\"code\":%d,\"pid\":%d,\"exit_status\":%d,\"restore_ms\":%.1f", code, pid, exit_status,
           seconds * 1000);
  replace_file(o.status_file, "{\"state\":\"" + state + "\"" + numbers + ",\"id\":" +
                                  json_string(id) + ",\"text\":" + json_string(text) + "}\n");
}

int give_up(const Options& o, const SnapshotReader& reader, int code, const std::string& text) {
  fprintf(stderr, "gpuckpt: restore: %s\n", text.c_str());
  write_status(o, "failed", code, text, reader.id(), 0, -1, 0);
  return o.dry_run ? code : kExitLauncher;
}

std::string find_launcher(const Options& o) {
  if (!o.launcher.empty()) return o.launcher;
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
  std::string self(path, n > 0 ? static_cast<size_t>(n) : 0);
  return self.substr(0, self.rfind('/') + 1) + "gpuckpt-launch";
}

// --- being the parent
// -----------------------------------------------------------------------------------------------------

// Signals sent to us by somebody are meant for the program. Those of the terminal reach it by
// themselves: it is in our process group.
void forward(int sig, siginfo_t* info, void*) {
  int saved = errno;
  pid_t pid = program;
  if (pid > 0 && info->si_code <= 0) kill(pid, sig);
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
  int code = kExitError;
  std::string text;
  pid_t pid = 0;
};

// What is behind a process that runs while its memory still comes.
struct LazyPages {
  pid_t pager = -1;
  Fd uffd;
};
using AllLazyPages = std::vector<LazyPages>;  // of the members, the last one's at the end

// Small mappings now, large ones by the pager. Refused: not here.
Status give_pages_lazily(const Image& image, const SnapshotReader& reader, const Options& o,
                         pid_t pid, AllLazyPages* lazy) {
  std::vector<LazyRange> ranges = lazy_ranges(image, reader);
  if (ranges.empty()) return Status::Refused("");
  if (Status s = fill_all_but(reader, ranges, pid); !s.ok()) return s;
  // A pager holds nobody else's userfaultfd: holes are open when the last one who has it lets go.
  std::vector<int> others;
  for (LazyPages& l : *lazy)
    if (&l != &lazy->back() && l.uffd) others.push_back(l.uffd.get());
  return start_pager(reader, ranges, o.threads, lazy->back().uffd, others, &lazy->back().pager);
}

// The new process has mapped everything and waits for its pages. `why_not`: the reason why it
// cannot be lazy.
Status give_pages(const Image& image, const SnapshotReader& reader, const Options& o,
                  Memory* memory, pid_t pid, int socket, const std::string& why_not,
                  AllLazyPages* lazy) {
  const char* way = getenv("GPUCKPT_FILL");
  Report filled{};
  filled.type = kReportFilled;
  Status status = Status::Refused(why_not);
  if (o.lazy && lazy->back().uffd) status = give_pages_lazily(image, reader, o, pid, lazy);
  if (o.lazy && status.code() == kExitRefused && !status.text().empty())
    fprintf(stderr,
            "gpuckpt: warning: --lazy is not possible here (%s); reading all of the memory first\n",
            status.text().c_str());
  if (status.code() == kExitRefused)
    status = way && strcmp(way, "file") == 0 ? Status::Refused("as asked")
                                             : fill_process(reader, o.threads, pid);
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
    while (waitpid(lazy.pager, &status, 0) < 0 && errno == EINTR) {
    }
    if (status == 0) return;
    fprintf(stderr,
            "gpuckpt: restore: the rest of the program's memory cannot be had (the store is "
            "damaged, or gpuckpt-pager was killed): ending the program\n");
    for (pid_t pid : members) kill(pid, SIGKILL);
  }).detach();
}

// Everybody ends who has not been told to run.
// Whoever waits for our word ends. Returns when all have, and nothing of theirs (ids, names of
// sockets) is in the way of another attempt; after five seconds in any case.
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

// Receives what a member has to say next. False: it is no good; `out` says why.
bool expect(Member* m, Report* r, Outcome* out, Fd* passed = nullptr) {
  int got = receive(m->report.get(), r, &m->pid, 600000, passed);
  if (got == 1 && r->type != kReportFailed) return true;
  if (got == 1) {
    out->code = r->code;
    out->text = r->text;
  } else {
    out->text = got == 0 ? "the restored process did not come up within ten minutes"
                         : "the restored process ended while it was being put together";
  }
  return false;
}

// The same of everybody who has not `reached` it, in the order in which they come: one may wait for
// another, and who fails first has the reason.
bool expect_of_all(Tree* tree, uint32_t type, std::vector<uint32_t>* reached, Outcome* out) {
  for (;;) {
    std::vector<pollfd> polls;
    for (size_t i = 0; i < reached->size(); ++i)
      polls.push_back({(*reached)[i] == type ? -1 : tree->members[i]->report.get(), POLLIN, 0});
    if (std::all_of(polls.begin(), polls.end(), [](const pollfd& p) { return p.fd < 0; }))
      return true;
    const int ready = poll(polls.data(), polls.size(), 600000);
    if (ready < 0 && errno == EINTR) continue;
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].fd < 0 || (ready > 0 && !polls[i].revents)) continue;
      Report r{};
      if (!expect(tree->members[i].get(), &r, out)) return false;
      (*reached)[i] = r.type;
      if (r.type != type) return false;
    }
  }
}

// Has what it maps filled. `reached`: what it reports where that was not needed.
bool fill(Member* m, const Options& o, Ids ids, Outcome* out, AllLazyPages* lazy,
          uint32_t* reached) {
  Report r{};
  lazy->emplace_back();
  if (!expect(m, &r, out, &lazy->back().uffd)) return false;
  if (r.type != kReportMapped) {
    *reached = r.type;
    return true;
  }
  const std::string why_not =
      ids == Ids::kNew ? "the thread ids are new, and all memory is searched for the old ones"
                       : std::string("userfaultfd: ") + strerror(r.code);
  Status filled =
      give_pages(m->image, *m->reader, o, &m->memory, m->pid, m->report.get(), why_not, lazy);
  if (filled.ok()) return true;
  out->code = filled.code();
  out->text = filled.text();
  return false;
}

bool let_go(Member* m, const SnapshotReader& reader, uint64_t family) {
  Report go{};
  go.type = kReportGo;
  go.us[0] = family;
  go.host_pid = m->pid;
  go.host_start_time = store::start_time(m->pid);
  snprintf(go.text, sizeof(go.text), "%s", reader.id().c_str());
  return send(m->report.get(), &go, sizeof(go), MSG_NOSIGNAL) == sizeof(go);
}

bool bring_up(Tree* tree, const SnapshotReader& reader, const Options& o, Ids ids, Outcome* out,
              AllLazyPages* lazy) {
  std::vector<uint32_t> reached(tree->members.size());
  for (size_t i = 0; i < reached.size(); ++i)
    if (!fill(tree->members[i].get(), o, ids, out, lazy, &reached[i])) return false;
  if (tree->several()) {
    if (!expect_of_all(tree, kReportThreads, &reached, out)) return false;
    Report r{};
    r.type = kReportDriver;
    for (auto& m : tree->members) send(m->report.get(), &r, sizeof(r), MSG_NOSIGNAL);
  }
  if (!expect_of_all(tree, kReportReady, &reached, out)) return false;
  for (auto& m : tree->members) {
    Status tails = o.keep_files ? Status::Ok() : set_tails_aside(m->image);
    if (tails.ok()) continue;
    out->code = tails.code();
    out->text = tails.text();
    return false;
  }
  program = out->pid = tree->root().pid;
  replace_file(o.pid_file, o.pid_file.empty() ? "" : std::to_string(out->pid) + "\n");
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  const uint64_t family = (static_cast<uint64_t>(t.tv_sec) << 30 | static_cast<uint64_t>(t.tv_nsec))
                              << 16 ^
                          static_cast<uint64_t>(getpid());
  // Children first: the root may look for them.
  for (size_t i = tree->members.size(); i-- > 0;)
    if (!let_go(tree->members[i].get(), reader, family)) {
      out->text = "the restored process ended before it could run";
      return false;
    }
  return out->running = true;
}

using Feeds = std::vector<std::unique_ptr<DeviceFeed>>;

// The first thing that one of them could not read.
Status end_all(Feeds* feeds) {
  Status first;
  for (auto& feed : *feeds)
    if (Status read = feed->end(); !read.ok() && first.ok()) first = read;
  return first;
}

Outcome try_start(Tree* tree, const SnapshotReader& reader, const Options& o, Ids ids, Started* s,
                  Feeds* feeds) {
  Outcome out;
  for (auto& m : tree->members)
    feeds->push_back(std::make_unique<DeviceFeed>(*m->reader, m->memory, o.threads));
  if (!start_program(tree, find_launcher(o), ids, s, &out.text)) {
    out.code = kExitRefused;
    return out;
  }
  for (auto& feed : *feeds) feed->start();
  AllLazyPages lazy;
  if (bring_up(tree, reader, o, ids, &out, &lazy)) {
    std::vector<pid_t> members;
    for (const auto& m : tree->members) members.push_back(m->pid);
    for (LazyPages& l : lazy)
      if (l.pager > 0) watch_pager(std::move(l), members);
    return out;
  }
  if (s->child > 0 && (tree->several() || out.text.find("ten minutes") != std::string::npos))
    kill(s->child, SIGKILL);
  hang_up(tree);
  if (Status read = end_all(feeds); !read.ok() && out.code == kExitError) {
    out.code = read.code();
    out.text = read.text();
  }
  int status = 0;
  for (const LazyPages& l : lazy)
    if (l.pager > 0) {
      kill(l.pager, SIGKILL);
      waitpid(l.pager, nullptr, 0);
    }
  while (s->child > 0 && waitpid(s->child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
    out.text += " (signal " + std::to_string(WTERMSIG(status)) + ")";
  return out;
}

bool namespaces_allowed(const Options& o) {
  const char* v = getenv("GPUCKPT_NAMESPACES");
  return o.namespaces && !(v && strcmp(v, "0") == 0);
}

}  // namespace

std::vector<std::string> check(const Tree& tree, const Options& o) {
  std::vector<std::string> wrong = check_machine(tree.root().image);
  for (const auto& m : tree.members)
    for (const std::string& w : check_files(m->image, o))
      if (std::find(wrong.begin(), wrong.end(), w) == wrong.end()) wrong.push_back(w);
  if (!tree.wrong.empty()) wrong.push_back(tree.wrong);
  for (std::string& w : check_huge_pages(tree)) wrong.push_back(std::move(w));
  if (access(find_launcher(o).c_str(), X_OK) != 0)
    wrong.push_back(find_launcher(o) + " cannot be executed");
  return wrong;
}

std::vector<std::string> check_snapshot(const SnapshotReader& reader, const Options& o) {
  Tree tree;
  if (Status s = read_tree(reader, &tree); !s.ok()) return {s.text()};
  return check(tree, o);
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
  return Status::Ok();
}

int restore_snapshot(const SnapshotReader& reader, const Options& o) {
  const double t0 = now();
  Tree tree;
  if (Status s = read_tree(reader, &tree); !s.ok()) return give_up(o, reader, s.code(), s.text());
  std::vector<std::string> wrong = check(tree, o);
  if (!wrong.empty()) {
    std::string text = "this snapshot cannot be restored here:";
    for (const std::string& w : wrong) text += "\n  - " + w;
    return give_up(o, reader, kExitIncompatible, text);
  }
  if (o.dry_run) {
    const Image& image = tree.root().image;
    fprintf(stderr,
            "gpuckpt: %s can be restored here (%zu processes; the first: %zu threads, %zu "
            "mappings, %zu descriptors)\n",
            reader.id().c_str(), tree.members.size(), image.threads.size(), image.vmas.size(),
            image.fds.size());
    write_status(o, "checked", 0, "", reader.id(), 0, -1, now() - t0);
    return kExitOk;
  }
  if (Status s = load(&tree, o); !s.ok()) return give_up(o, reader, s.code(), s.text());

  wait_for_leftovers(tree);
  forward_signals();
  std::vector<Ids> ways;
  if ((namespaces_allowed(o) || tree.several()) && geteuid() == 0 && all_ids_free(tree))
    ways.push_back(Ids::kHere);
  if (namespaces_allowed(o)) ways.push_back(Ids::kNamespace);
  // Processes know each other by their ids.
  if (!tree.several()) ways.push_back(Ids::kNew);
  Outcome outcome;
  outcome.code = kExitRefused;
  outcome.text = needs_ids("namespaces are turned off");
  std::string before;  // why the ways did not do that were tried before
  for (const Ids& ids : ways) {
    Started started;
    Feeds feeds;
    outcome = try_start(&tree, reader, o, ids, &started, &feeds);
    if (outcome.running) {
      let_segments_go();
      if (ids == Ids::kNew && namespaces_allowed(o))
        fprintf(stderr,
                "gpuckpt: warning: the program has new process and thread ids (no namespaces "
                "here); programs that keep native thread ids may notice\n");
      const double seconds = now() - t0;
      write_status(o, "running", 0, "", reader.id(), outcome.pid, -1, seconds);
      int status = wait_for_end(&started);
      if (Status read = end_all(&feeds); !read.ok())
        return give_up(o, reader, read.code(), "the program has ended: " + read.text());
      write_status(o, "ended", 0, "", reader.id(), outcome.pid, status, seconds);
      return status;
    }
    // Refused or taken ids: the next way may do. Everything else would fail again.
    if ((outcome.code != kExitRefused && outcome.code != kExitLocked) || &ids == &ways.back())
      break;
    before += " (tried before" + std::string(ids == Ids::kHere ? ", without namespaces" : "") +
              ": " + outcome.text + ")";
  }
  return give_up(o, reader, outcome.code, outcome.text + before);
}

}  // namespace gpuckpt::restore
