#include "restore/supervisor/process_placement.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/syscall.h"
#include "gpuckpt/exit_codes.h"
#include "restore/end_like.h"

namespace gpuckpt::restore {

[[noreturn]] void fail(int report, int code, const std::string& text) {
  Report r{};
  r.type = kReportFailed;
  r.code = code;
  strncpy(r.text, text.c_str(), sizeof(r.text) - 1);
  (void)!send(report, &r, sizeof(r), MSG_NOSIGNAL);
  _exit(kExitLauncher);
}

void begin_step(int report, const char* name, int seconds) {
  Report r{};
  r.type = kReportStep;
  r.code = seconds;
  strncpy(r.text, name, sizeof(r.text) - 1);
  (void)!send(report, &r, sizeof(r), MSG_NOSIGNAL);
}

[[noreturn]] void fail(const Start& s, int report, int code, const std::string& text) {
  s.progress->failed = 1;
  fail(report, code, text);
}

namespace {

// Waits until all processes have reached the same step.
void await_all(const Start& s, std::atomic<uint32_t>* count, int report) {
  constexpr uint64_t kLookUs = 50'000;  // between checks whether one has failed
  constexpr uint64_t kPatienceUs = 30'000'000;
  const uint32_t all = static_cast<uint32_t>(s.tree.members.size());
  if (++*count == all) {
    sys::futex_wake(count, INT_MAX, true);
    return;
  }
  const uint64_t end = sys::now_us() + kPatienceUs;
  for (uint32_t now; (now = *count) < all;) {
    if (s.progress->failed) _exit(kExitLauncher);
    if (sys::now_us() > end)
      fail(s, report, kExitError,
           std::to_string(now) + " of the job's " + std::to_string(all) +
               " processes were made within " + std::to_string(kPatienceUs / 1'000'000) +
               " s; restore the job again when the machine is less busy");
    sys::futex_wait(count, now, kLookUs, true);
  }
}

[[noreturn]] void no_id(const Start& s, int report) {
  fail(s, report, errno == EEXIST ? kExitLocked : kExitRefused,
       std::string("process ids cannot be chosen here: ") + strerror(errno));
}

const process::Head& head_of(const Start& s, size_t i) { return s.tree.members[i]->image.head; }

// Forks member k, as a child of the calling process, or a sibling (CLONE_PARENT).
void bear(Start* s, size_t k, uint64_t flags, int report) {
  pid_t pid = fork_as(head_of(*s, k).pid, flags);
  if (pid == 0) s->become(s, k);
  if (pid < 0) no_id(*s, report);
}

// Waits for a process that was forked only to fork others.
void await_helper(const Start& s, pid_t pid, int report) {
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return;
  const std::string how = WIFSIGNALED(status)
                              ? "was killed by signal " + std::to_string(WTERMSIG(status))
                              : "ended with exit code " + std::to_string(WEXITSTATUS(status));
  fail(s, report, kExitError, "a process that was to start others of the job " + how);
}

template <typename Each>
void each_born(const Start& s, Birth birth, Each each) {
  for (size_t k = 0; k < s.tree.members.size(); ++k)
    if (s.tree.members[k]->birth == birth) each(k, *s.tree.members[k]);
}

bool root_has_helper(const Start& s) {
  return s.tree.root().birth == Birth::kHelper && !s.terminal && s.ids != Ids::kNew;
}

// The helper leads the session, and forks the processes that were in it. Children of `parent`
// become its own siblings; orphans are its children, until it ends.
[[noreturn]] void help(Start* s, pid_t session, int parent, int report) {
  setsid();
  each_born(*s, Birth::kHelper, [&](size_t k, const Member& m) {
    if (m.session != session || m.parent != parent || (k == 0 && !root_has_helper(*s))) return;
    bear(s, k, s->tree.is_orphan(k) ? 0 : CLONE_PARENT, report);
  });
  _exit(0);
}

// Makes one helper for each session whose leader has ended.
void make_by_helpers(Start* s, int parent, int report) {
  std::set<pid_t> sessions;
  each_born(*s, Birth::kHelper, [&](size_t k, const Member& m) {
    if (k > 0 && m.parent == parent) sessions.insert(m.session);
  });
  if (parent < 0 && root_has_helper(*s)) sessions.erase(s->tree.root().session);
  for (pid_t session : sessions) {
    pid_t pid = fork_as(session, 0);
    if (pid == 0) help(s, session, parent, report);
    if (pid < 0) no_id(*s, report);
    await_helper(*s, pid, report);
  }
}

void make_children(Start* s, size_t i, bool before_session, int report) {
  const int self = static_cast<int>(i);
  const auto own = [](const Member& m) { return m.image.shares_folders ? CLONE_FS : 0u; };
  if (before_session) {
    each_born(*s, Birth::kEarly, [&](size_t k, const Member& m) {
      if (m.parent == self) bear(s, k, own(m), report);
    });
    return;
  }
  each_born(*s, Birth::kDirect, [&](size_t k, const Member& m) {
    if (m.parent == self) bear(s, k, own(m), report);
  });
  each_born(*s, Birth::kSibling, [&](size_t k, const Member& m) {
    if (m.maker == self) bear(s, k, CLONE_PARENT, report);
  });
  each_born(*s, Birth::kDisowned, [&](size_t k, const Member& m) {
    if (m.maker != self) return;
    pid_t pid = fork_as(s->spares[k], 0);
    if (pid == 0) {
      bear(s, k, 0, report);
      _exit(0);
    }
    if (pid < 0) no_id(*s, report);
    await_helper(*s, pid, report);
  });
  make_by_helpers(s, self, report);
}

// Makes a child that had ended and was not waited for: it ends again in the same way.
void fork_zombie(const Start& s, const Image& image, const process::Zombie& z, int report) {
  pid_t pid = fork_as(z.pid, 0);
  if (pid == 0) {
    for (const process::ZombieName& named : image.zombie_names)
      if (named.pid == z.pid) prctl(PR_SET_NAME, named.name);
    if (z.sid == z.pid)
      setsid();
    else
      setpgid(0, z.pgid == z.pid ? 0 : z.pgid);
    end_like(z.code, z.status);
  }
  siginfo_t info;
  if (pid < 0 || waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0)
    no_id(s, report);
}

void fork_zombies(const Start& s, const Image& image, bool leaders, int report) {
  for (const process::Zombie& z : image.zombies)
    if ((z.pgid == z.pid) == leaders) fork_zombie(s, image, z, report);
}

// Joins a group whose leader has ended. A group exists as long as a process is in it, so the leader
// is made again for the moment in which the first one joins.
bool join_group(const process::Head& h) {
  if (getpgid(0) == h.pgid || setpgid(0, h.pgid) == 0) return true;
  int gate[2];
  if (pipe(gate) != 0) return false;
  pid_t pid = fork_as(h.pgid, 0);
  if (pid == 0) {
    char c;
    close(gate[1]);
    setpgid(0, 0);
    _exit(read(gate[0], &c, 1) < 0);
  }
  close(gate[0]);
  bool ok = false;
  for (int tries = 0; tries < 1000 && !ok; ++tries, usleep(200))
    ok = setpgid(0, h.pgid) == 0;  // another process may have been first with the leader
  close(gate[1]);
  if (pid > 0) waitpid(pid, nullptr, 0);
  return ok;
}

// A terminal controls the session leader that takes it and what is forked from then on: no process
// gets it later.
void take_session_terminal(const Start& s, const process::Head& leader) {
  if (leader.terminal <= 0) return;
  for (size_t k = 0; k < s.tree.members.size(); ++k)
    for (const auto& [d, path] : s.tree.members[k]->image.fds) {
      if (d.kind != process::kFdTerminal || d.value[1] != static_cast<uint64_t>(leader.terminal))
        continue;
      auto made = s.common.find({k, d.description});
      if (made != s.common.end() && ioctl(made->second, TIOCSCTTY, 0) == 0) return;
    }
}

// Handles a member that was forked before its session had the terminal, or that has given it up.
void drop_session_terminal(const Start& s, const process::Head& h) {
  if (h.terminal > 0) return;
  for (size_t k = 0; k < s.tree.members.size(); ++k) {
    const process::Head& leader = head_of(s, k);
    if (leader.pid != h.sid || leader.terminal <= 0) continue;
    const int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (terminal < 0) return;
    ioctl(terminal, TIOCNOTTY);
    close(terminal);
  }
}

}  // namespace

std::vector<pid_t> find_spares(const Tree& tree, Ids ids) {
  std::vector<pid_t> spares(tree.members.size() + 1, 0);
  if (ids != Ids::kNamespace) return spares;
  std::set<pid_t> taken;
  for (const auto& m : tree.members) {
    const process::Head& h = m->image.head;
    taken.insert({h.pid, h.pgid, h.sid, m->session});
    for (const auto& t : m->image.threads) taken.insert(t.tid);
    for (const auto& z : m->image.zombies) taken.insert({z.pid, z.pgid, z.sid});
  }
  // Far from the numbers that the kernel chooses in a young namespace.
  pid_t next = 32000;
  for (pid_t& spare : spares) {
    while (taken.count(next)) --next;
    spare = next--;
  }
  return spares;
}

// Sessions, groups, children. With a terminal the program stays in the launcher's session, else it
// could not use it.
void enter_session_and_group(Start* s, size_t i, int report) {
  const Image& image = s->tree.members[i]->image;
  const process::Head& h = image.head;
  const process::Head& root = s->tree.root().image.head;
  const bool stays = i == 0 && s->terminal;
  // Must be set before its descendants are forked.
  if (h.subreaper) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  make_children(s, i, true, report);
  if (!stays && h.sid == h.pid) {
    setsid();
    take_session_terminal(*s, h);
  } else if (!stays && h.pgid == h.pid) {
    setpgid(0, 0);
  }
  fork_zombies(*s, image, true, report);
  make_children(s, i, false, report);
  await_all(*s, &s->progress->leading, report);
  // A root that leads no group of its own is in the launcher's, with all that were in its group.
  const bool launchers = root.pgid != root.pid && !root_has_helper(*s);
  const bool with_root = h.pgid == root.pgid && (launchers || root.pgid == root.pid);
  if (h.pgid != h.pid && !with_root && !join_group(h))
    fail(*s, report, kExitIncompatible,
         "process " + std::to_string(h.pid) + " cannot be in its group " + std::to_string(h.pgid));
  if (i != 0 && h.pgid == root.pgid && root.pgid == root.pid && h.sid == root.sid)
    (void)setpgid(0, getpgid(root.pid));
  fork_zombies(*s, image, false, report);
  drop_session_terminal(*s, h);
  await_all(*s, &s->progress->grouped, report);
}

void make_root_and_orphans(Start* s) {
  const int report = s->tree.root().their_report.get();
  if (root_has_helper(*s)) {
    const pid_t session = s->tree.root().session;
    pid_t pid = fork_as(session, CLONE_PARENT);
    if (pid == 0) help(s, session, -1, report);
    if (pid < 0) no_id(*s, report);
  } else {
    bear(s, 0, CLONE_PARENT, report);
  }
  make_by_helpers(s, -1, report);
  each_born(*s, Birth::kDirect, [&](size_t k, const Member&) {
    if (s->tree.is_orphan(k)) bear(s, k, 0, report);
  });
}

pid_t root_helper(const Start& s) { return root_has_helper(s) ? s.tree.root().session : 0; }

}  // namespace gpuckpt::restore
