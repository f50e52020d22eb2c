#include "snapshot/job/barrier.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <initializer_list>

#include "base/descriptors/handover.h"
#include "base/descriptors/local_socket.h"
#include "base/hash/hash_index.h"
#include "base/procfs/namespaces.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/control/control_groups.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/io/io_thread.h"
#include "snapshot/job/comparison.h"
#include "snapshot/job/job_name.h"
#include "snapshot/park/stopped_children.h"
#include "snapshot/park/stopped_process.h"
#include "snapshot/process/capture.h"
#include "snapshot/process/limits.h"
#include "snapshot/trigger/obstacles.h"
#include "snapshot/trigger/refusal_note.h"

namespace gpuckpt {

// The process takes part in one snapshot at a time; other parts ask it for the job's processes.
constinit JobBarrier job_barrier;

namespace {

constexpr uint64_t kAskAgainUs = 100000;
constexpr uint64_t kStartPatienceUs = 1000000;  // for a process that has not come so far yet
constexpr uint64_t kBornPatienceUs = 2000000;   // the same, while the others stand
constexpr uint64_t kAnswerPatienceUs = 10000000;
constexpr uint64_t kMeetPatienceUs = 30000000;
constexpr uint64_t kSendPatienceUs = 30000000;  // while no process sends any memory
constexpr uint64_t kVforkPatienceUs = 1000000;  // for a child of vfork that is about to exec

// Receives one message with at most three descriptors (-1: none came). 1: a message, 0: none yet,
// -1: the socket is closed.
int receive(int socket, wire::JobMsg* m, int (&fds)[3]) {
  const long n = local_receive(socket, m, sizeof(*m), fds);
  if (n == -11 || n == -4) return 0;
  m->text[sizeof(m->text) - 1] = m->tag[sizeof(m->tag) - 1] = 0;
  return n == sizeof(*m) && m->magic == wire::kMagic && m->version == wire::kWireVersion ? 1 : -1;
}

wire::JobMsg make(uint32_t step, uint32_t number) {
  wire::JobMsg m;
  __builtin_memset(&m, 0, sizeof(m));
  m.magic = wire::kMagic;
  m.version = wire::kWireVersion;
  m.step = step;
  m.number = number;
  m.pid = library.pid;
  return m;
}

}  // namespace

bool JobBarrier::has_process(int pid) const {
  if (role_ == Role::kAlone) return false;
  if (role_ == Role::kMember && pid == library.leader) return true;
  const SharedJobState* b = shared_state();
  for (uint32_t i = 0; i < b->relative_count; ++i)
    if (b->relative[i].pid == pid) return true;
  return false;
}

void JobBarrier::say(int socket, uint32_t step, int why, const char* words) {
  wire::JobMsg m = make(step, number_);
  m.code = why;
  if (words) copy(m.text, sizeof(m.text), words);
  local_send(socket, &m, sizeof(m), nullptr, 0);
}

void JobBarrier::call_off(int why, const char* words) {
  if (role_ == Role::kMember && leader_socket_ >= 0)
    say(leader_socket_, wire::kJobFailed, why, words);
  if (role_ != Role::kLeader) return;
  for (size_t i = 0; i < count_; ++i)
    if (members_[i].socket >= 0) say(members_[i].socket, wire::kJobFailed, why, words);
  close_listener();  // a process that comes now learns at once that it is over
}

void JobBarrier::close_listener() {
  for (size_t i = 0; i < pending_count_; ++i) sys::close(pending_[i]);
  pending_count_ = 0;
  if (listener_ >= 0) sys::close(listener_);
  listener_ = -1;
}

void JobBarrier::finish() {
  for (size_t i = 0; i < count_; ++i)
    if (members_[i].socket >= 0) sys::close(members_[i].socket);
  close_listener();
  for (int* fd : {&shared_state_fd_, &leader_socket_}) {
    if (*fd >= 0) sys::close(*fd);
    *fd = -1;
  }
  scratch_unmap(&shared_state_);
  count_ = left_out_count_ = 0;
  role_ = Role::kAlone;
  number_ = 0;
}

// --- the leader
// ---------------------------------------------------------------------------------------------------------

bool JobBarrier::lead(IoThread* c, const Call& call) {
  role_ = Role::kLeader;
  call_ = call;
  code = 0;
  warned_of_users_ = false;
  number_ = level_ = 0;
  sent_seen_ = 0;
  count_ = pending_count_ = left_out_count_ = 0;
  long fd = sys::call(SYS_memfd_create, sys::ptr("gpuckpt-job"), 1 /* MFD_CLOEXEC */);
  if (!sys::failed(fd)) shared_state_fd_ = static_cast<int>(fd);
  if (sys::failed(fd) || sys::failed(set_memory_size(shared_state_fd_, sizeof(SharedJobState))) ||
      !(shared_state_ = scratch_map(sizeof(SharedJobState), shared_state_fd_)))
    return fail(kExitError, "no memory for what the processes of the job tell each other");
  fd = local_listen(&listener_name_);
  if (sys::failed(fd))
    return fail(kExitError, "no socket for the processes of the job (error %ld)", -fd);
  listener_ = static_cast<int>(fd);
  shared_state()->leaders_namespaces = namespaces_of("thread-self");
  copy_first_control_groups(shared_state()->leaders_control_groups,
                            sizeof(shared_state()->leaders_control_groups));
  bool found;
  if (!look_for_more(&found)) return false;
  while (!all_at(wire::kJobOpened)) {
    if (!invite(wire::kJobOpened) || !listen_once(c, 20)) return false;
  }
  return true;
}

// Adds processes that are not known yet. `found`: there are some, or some ended.
bool JobBarrier::look_for_more(bool* found) {
  *found = false;
  Region memory = scratch_map(SharedJobState::kMostRelatives * sizeof(Relative));
  if (!memory) return fail(kExitError, "no memory for the list of processes");
  Relative* all = reinterpret_cast<Relative*>(memory.data());
  size_t n = find_job(library.pid, all, SharedJobState::kMostRelatives);
  SharedJobState* b = shared_state();
  b->relative_count = 0;
  bool ok =
      n < SharedJobState::kMostRelatives ||
      fail(kExitRefused, "the job has %zu processes or more, and a snapshot has room for fewer",
           SharedJobState::kMostRelatives);
  for (size_t i = 0; ok && i < n; ++i) {
    const Relative& r = all[i];
    if (left_out(r.ppid)) {
      leave_out(r.pid);
      continue;
    }
    if (left_out(r.pid)) continue;
    b->relative[b->relative_count++] = {r.pid, r.ppid, r.pgid, r.sid, r.state == 'Z', false};
    if (r.state == 'Z' || r.state == 'X') continue;
    bool known = false;
    for (size_t k = 0; k < count_ && !known; ++k) known = members_[k].pid == r.pid;
    if (known) continue;
    if (count_ == kMost) ok = fail(kExitRefused, "the job has more than %lu processes", kMost);
    if (ok) members_[count_++] = {r.pid, -1, 0, 0, sys::now_us(), 0, r.orphan, false, false};
    *found = true;
  }
  scratch_unmap(&memory);
  return ok;
}

bool JobBarrier::left_out(int pid) const {
  for (size_t i = 0; i < left_out_count_; ++i)
    if (left_out_[i] == pid) return true;
  return false;
}
void JobBarrier::leave_out(int pid) {
  if (!left_out(pid) && left_out_count_ < sizeof(left_out_) / sizeof(left_out_[0]))
    left_out_[left_out_count_++] = pid;
}

// What a process says of itself is put back by root with root's rights: a process of another user
// could get from a restore what it may not have. A process that may not compare its descriptors
// with that process's cannot know which ones both have.
bool JobBarrier::may_have_its_user(int pid) {
  char users[sizeof(text)];
  if (!runs_as_another(pid, users, sizeof(users))) return true;
  const OtherUsers allowed = library.config.users;
  if (sys::call(SYS_geteuid) != 0 || !may_compare_all())
    return fail(kExitRefused,
                "%s: only root can take processes of several users together. Start all of it as "
                "one user, or set GPUCKPT_CHILDREN=ignore (a snapshot without children)",
                users);
  if (allowed == OtherUsers::kRefuse)
    return fail(kExitRefused,
                "%s: processes of other users are refused here (GPUCKPT_USERS=refuse)", users);
  if (allowed == OtherUsers::kWarn && !warned_of_users_)
    add_job_warning(
        "%s: a restore gives each what it says of itself, with root's rights (GPUCKPT_USERS=trust "
        "if you trust them all, or refuse)",
        users);
  return warned_of_users_ = true;
}

// Wakes each member that has not joined yet. One that has, and is stopped before `step`, would keep
// all others waiting: the next attempt takes it as one that is stopped.
bool JobBarrier::invite(wire::JobStep step) {
  const uint64_t now = sys::now_us();
  for (size_t i = 0; i < count_;) {
    Member& m = members_[i];
    if (m.reached >= step || now - m.asked_us < kAskAgainUs) {
      ++i;
      continue;
    }
    m.asked_us = now;
    switch (m.reached ? check_not_stopped(m) : invite_one(&m, now)) {
      case Invited::kStays:
        ++i;
        break;
      case Invited::kLeaves:
        m = members_[--count_];
        break;
      case Invited::kFails:
        return false;
    }
  }
  return true;
}

JobBarrier::Invited JobBarrier::check_not_stopped(const Member& m) {
  Relative r;
  if (!look_at(m.pid, &r) || r.state != 'T') return Invited::kStays;
  fail(kExitTimeout, "process %d (%s) of the job has just been stopped", m.pid, r.name);
  return Invited::kFails;
}

JobBarrier::Invited JobBarrier::invite_one(Member* m, uint64_t now) {
  Relative r;
  if (!look_at(m->pid, &r) || r.state == 'Z' || r.state == 'X') {  // ended by itself
    if (m->socket >= 0) sys::close(m->socket);
    return Invited::kLeaves;
  }
  m->stopped = r.state == 'T' && level_ < wire::kJobStaged;
  if (m->stopped) return list_stopped(m, r) ? Invited::kStays : Invited::kFails;
  if (!may_be_invited(m, r)) return Invited::kFails;
  if (listens(m->pid)) return wake_member(*m, r, now) ? Invited::kStays : Invited::kFails;
  return without_library(*m, r, now);
}

bool JobBarrier::may_be_invited(Member* m, const Relative& r) {
  if (!m->looked_at) {
    m->looked_at = true;
    const auto takes_part = [](int pid) {
      return pid == library.pid || job_barrier.has_process(pid);
    };
    char why[sizeof(text)];
    take_refusal_note(m->pid, why, sizeof(why));  // of another time
    if (!may_be_stopped(m->pid, takes_part, why, sizeof(why))) return fail(kExitRefused, "%s", why);
  }
  return r.state != 't' || may_be_stopped_by_pager(m->pid) ||
         fail(kExitRefused, "process %d (%s) of the job is stopped by a debugger", m->pid, r.name);
}

// Wakes a process that has the library, and whose constructor has run.
bool JobBarrier::wake_member(const Member& m, const Relative& r, uint64_t now) {
  // The question is asked again and again, because the process may drop its privileges at any time.
  if (!may_have_its_user(m.pid)) return false;
  const bool asked = now - m.since_us >= kAskAgainUs;  // and has not answered
  if (char why[256]; asked && take_refusal_note(m.pid, why, sizeof(why)))
    return fail(kExitError, "process %d (%s) of the job: %s", m.pid, r.name, why);
  if (now - m.since_us > kVforkPatienceUs && waits_for_vfork(m.pid))
    return fail(kRefusedForNow,
                "process %d (%s) of the job waits for a child that it started with vfork, and "
                "takes no signals until then",
                m.pid, r.name);
  const bool born = level_ >= wire::kJobStaged;
  const bool patient = now - m.since_us <= (born ? kBornPatienceUs : kAnswerPatienceUs);
  if (!patient && sys::call(SYS_kcmp, m.pid, r.ppid, 1 /* KCMP_VM */, 0, 0) == 0)
    return fail(kExitRefused,
                "process %d (%s) of the job has its memory in common with process %d "
                "(clone(CLONE_VM), vfork)",
                m.pid, r.name, r.ppid);
  if (!patient)
    return fail(kExitTimeout, "process %d (%s) of the job does not answer", m.pid, r.name);
  if (r.state == 'T' && !wake(m))
    return fail(kExitTimeout, "process %d (%s) of the job has just been stopped", m.pid, r.name);
  if (r.state != 'T') send_wake(m.pid, wire::kJoinCookie | listener_name_);
  return true;
}

// What becomes of a process that runs without the library, has not begun to run its own code, or is
// exiting.
JobBarrier::Invited JobBarrier::without_library(const Member& m, const Relative& r, uint64_t now) {
  const bool born = level_ >= wire::kJobStaged;
  const bool before_us = inherited_child(m.pid);
  const bool ends = !before_us && is_ending(m.pid);
  const bool starts = !before_us && !ends && has_library(m.pid);
  const uint64_t patience = !starts && !ends ? kStartPatienceUs
                            : born           ? kBornPatienceUs
                                             : kAnswerPatienceUs;
  if (!before_us && now - m.since_us < patience) return Invited::kStays;
  if (ends) {
    fail(kExitTimeout, "process %d (%s) of the job is exiting and has not ended in time", m.pid,
         r.name);
    return Invited::kFails;
  }
  if (!starts && (before_us || call_.children == Children::kAble)) {
    add_job_warning(
        "process %d (%s) runs without gpuckpt's library: it and its children are not part of the "
        "snapshot",
        m.pid, r.name);
    leave_out(m.pid);
    return Invited::kLeaves;
  }
  if (starts)
    fail(kExitTimeout,
         "process %d (%s) of the job was started and has not begun to run its own code", m.pid,
         r.name);
  else
    fail(kExitRefused,
         "process %d (%s), a child of the program, runs without gpuckpt's library; let it end "
         "first, or set GPUCKPT_CHILDREN=able (a snapshot without such children) or ignore "
         "(without any child)",
         m.pid, r.name);
  return Invited::kFails;
}

bool JobBarrier::all_at(uint32_t step) const {
  for (size_t i = 0; i < count_; ++i)
    if (members_[i].reached < step && !members_[i].stopped) return false;
  return true;
}

bool JobBarrier::listed_as_stopped(int pid) const {
  const SharedJobState* b = shared_state();
  for (uint32_t i = 0; i < b->stopped_count; ++i)
    if (b->stopped[i].pid == pid) return true;
  return false;
}

// The parent of the stopped process reads this list when it is parked.
bool JobBarrier::list_stopped(Member* m, const Relative& r) {
  SharedJobState* b = shared_state();
  if (listed_as_stopped(m->pid)) return true;
  if (b->stopped_count == SharedJobState::kMostStopped)
    return fail(
        kExitRefused,
        "more than %zu processes of the job are stopped (SIGSTOP, job control): continue some",
        SharedJobState::kMostStopped);
  SharedJobState::Stopped& s = b->stopped[b->stopped_count];
  s.pid = m->pid, s.ppid = r.ppid, s.signal = 0, s.woken = 0;
  ++b->stopped_count;
  return true;
}

// With all others parked, their parents among them, the stopped ones are continued and join. False:
// there are none.
bool JobBarrier::wake_stopped_members() {
  bool any = false;
  for (size_t i = 0; i < count_; ++i) {
    if (!members_[i].stopped) continue;
    members_[i].stopped = false;
    members_[i].since_us = sys::now_us();
    members_[i].asked_us = 0;
    any = true;
  }
  return any;
}

// Returns false if the member's parent, which is parked, does not know yet that it is stopped: it
// has just been started, or was the last to be continued.
bool JobBarrier::wake(const Member& m) {
  SharedJobState* b = shared_state();
  for (uint32_t i = 0; i < b->stopped_count; ++i) {
    SharedJobState::Stopped& s = b->stopped[i];
    if (s.pid != m.pid) continue;
    if (!s.woken && !stands_as_noted(s)) return false;
    s.woken = 1;
    wake_stopped(m.pid, listener_name_);
    return true;
  }
  return false;
}

void JobBarrier::remove(IoThread* c, size_t i) {
  Member& m = members_[i];
  if (m.socket >= 0) sys::close(m.socket);
  if (m.reached >= wire::kJobOpened) c->send(c->socket_, wire::kMsgGone, m.number, nullptr);
  m = members_[--count_];
}

// Reads from the process that connected which one it is.
bool JobBarrier::introduce(int socket) {
  wire::JobMsg in;
  int fds[3], pid = 0;
  int got = receive(socket, &in, fds);
  if (!got) return false;
  Member* m = nullptr;
  if (got > 0 && in.step == wire::kJobJoin && local_peer(socket, &pid))
    for (size_t i = 0; i < count_; ++i)
      if (members_[i].pid == pid && members_[i].socket < 0) m = &members_[i];
  if (!m) {
    sys::close(socket);
    return true;
  }
  if (m->orphan && !equal(in.tag, job_name())) {
    // The process only looked as if it belonged to this job.
    sys::close(socket);
    leave_out(m->pid);
    *m = members_[--count_];
    return true;
  }
  bool same = library.last_snapshot[0] && equal(in.text, library.last_snapshot) && in.number;
  for (size_t i = 0; i < count_ && same; ++i) same = members_[i].number != in.number;
  m->number = same ? in.number : 0;
  if (!same) m->number = next_number_ < wire::kMaxMembers ? next_number_ : 1;
  for (size_t i = 0; i < count_; ++i)  // (wrapped around: take one that is free)
    if (&members_[i] != m && members_[i].number == m->number) m->number = m->number + 1, i = ~0ull;
  if (m->number >= next_number_) next_number_ = m->number + 1;
  m->socket = socket;
  m->reached = wire::kJobJoin;
  wire::JobMsg out = make(wire::kJobWelcome, m->number);
  // (One that is stopped does nothing that the others' devices could notice.)
  const bool late = level_ >= wire::kJobFrozen && !listed_as_stopped(m->pid);
  const bool waited_for = level_ >= wire::kJobSent;
  out.flags = call_.flags | (late ? wire::kCtlLate : 0u) | (waited_for ? wire::kCtlNoPrecopy : 0u);
  out.stop_status = call_.stop_status;
  out.deadline_us = call_.deadline_us;
  copy(out.text, sizeof(out.text), call_.store);
  copy(out.tag, sizeof(out.tag), call_.tag);
  local_send(socket, &out, sizeof(out), &shared_state_fd_, 1);
  return true;
}

// What member `i` says. False: the attempt is over.
bool JobBarrier::hear(IoThread* c, size_t i) {
  Member& m = members_[i];
  wire::JobMsg in;
  int fds[3];
  int got = receive(m.socket, &in, fds);
  if (!got) return true;
  if (got < 0) {
    if (m.reached >= wire::kJobParked)
      return fail(kExitTimeout, "process %d of the job ended while the snapshot was taken", m.pid);
    remove(c, i);
    return true;
  }
  if (in.step == wire::kJobFailed)
    return fail(in.code ? in.code : kExitError, "process %d of the job: %s", m.pid, in.text);
  if (in.step == wire::kJobOpened) {
    wire::Msg out{};
    out.magic = wire::kMagic, out.version = wire::kWireVersion;
    out.type = wire::kMsgMember, out.slot = m.number;
    bool ok = fds[2] >= 0 && local_send(c->socket_, &out, sizeof(out), fds, 3);
    for (int fd : fds)
      if (fd >= 0) sys::close(fd);
    if (!ok) return fail(kExitError, "the writer process ended before the snapshot was stored");
  }
  m.reached = in.step;
  if (in.step > wire::kJobOpened && in.step <= level_)
    say(m.socket, in.step, 0, nullptr);  // the others are there already
  return true;
}

// Names the process that kept the others waiting.
bool JobBarrier::fail_late() {
  static const char* const done[] = {"has not answered",
                                     "has only joined",
                                     "has only joined",
                                     "has only reached the writer",
                                     "has only sent its memory",
                                     "has only closed its gate",
                                     "has only copied its devices' memory",
                                     "has only stopped its threads"};
  const Member* last = nullptr;
  for (size_t i = 0; i < count_; ++i)
    if (!members_[i].stopped && (!last || members_[i].reached < last->reached)) last = &members_[i];
  if (!last || last->reached >= sizeof(done) / sizeof(done[0]))
    return fail(kExitTimeout, "the processes of the job could not be stopped in time");
  Relative r;
  const bool seen = look_at(last->pid, &r);
  return fail(kExitTimeout, "process %d (%s) of the job could not be stopped in time: it %s%s",
              last->pid, seen ? r.name : "?", done[last->reached],
              seen && r.state == 'D' ? ", and waits inside the kernel (state D): a disk or a "
                                       "network file system that does not answer?"
                                     : "");
}

bool JobBarrier::listen_once(IoThread* c, int ms) {
  if (sys::now_us() > call_.deadline_us) return fail_late();
  pollfd polls[kMost + 64 + 2];
  size_t n = 0;
  polls[n++] = {listener_, POLLIN, 0};
  polls[n++] = {c->socket_, POLLIN, 0};
  const size_t first_pending = n, first_member = n + pending_count_;
  for (size_t i = 0; i < pending_count_; ++i) polls[n++] = {pending_[i], POLLIN, 0};
  const size_t members = count_;
  for (size_t i = 0; i < members; ++i) polls[n++] = {members_[i].socket, POLLIN, 0};
  if (sys::call(SYS_poll, sys::ptr(polls), static_cast<long>(n), ms) <= 0) return true;
  if (polls[1].revents && !c->last.type) c->receive(&c->last, 0);
  // From the end of the list, because a process that leaves is replaced by the last one.
  for (size_t i = members; i-- > 0;)
    if (polls[first_member + i].revents && !hear(c, i)) return false;
  // (A member that gives up tells us first.)
  if (c->writer_gone) {
    const int why = wire::another_attempt_helps(c->last) ? kExitTimeout : c->last.code;
    return fail(c->last.type ? why : kExitError, "%s",
                c->last.type ? c->last.text : "the writer ended");
  }
  for (size_t i = first_member - first_pending; i-- > 0;)
    if (polls[first_pending + i].revents && introduce(pending_[i]))
      pending_[i] = pending_[--pending_count_];
  if (polls[0].revents && pending_count_ < sizeof(pending_) / sizeof(pending_[0])) {
    long s = sys::call(SYS_accept4, listener_, 0, 0, SOCK_CLOEXEC);
    if (!sys::failed(s)) pending_[pending_count_++] = static_cast<int>(s);
  }
  return true;
}

// Finds a process that came to the job after its processes had been listed, as where daemons start
// one another without end: most of them have ended when they are looked for, and are known by their
// session.
bool JobBarrier::find_newcomer(Relative* out) {
  Region memory = scratch_map(SharedJobState::kMostRelatives * sizeof(Relative));
  if (!memory) return false;
  Relative* all = reinterpret_cast<Relative*>(memory.data());
  bool found = false;
  auto look = [&](size_t n) {
    for (size_t i = 0; i < n && !found; ++i)
      if (!has_process(all[i].pid) && !left_out(all[i].pid)) *out = all[i], found = true;
  };
  look(find_job(library.pid, all, SharedJobState::kMostRelatives));
  const SharedJobState* b = shared_state();
  for (uint32_t i = 0; i < b->relative_count && !found; ++i)
    if (b->relative[i].sid == b->relative[i].pid)
      look(find_session(b->relative[i].sid, all, SharedJobState::kMostRelatives));
  scratch_unmap(&memory);
  return found;
}

// Finds the other end of a pipe or socket among those that the processes have listed, without a
// look at each for each.
class JobBarrier::EndFinder {
 public:
  explicit EndFinder(const SharedJobState* b) : state_(b) {
    uint32_t slots = 2;
    while (slots < 2 * b->end_count) slots *= 2;
    memory_ = scratch_map(HashIndex::bytes_for(slots) + b->end_count * sizeof(uint32_t));
    if (!memory_) return;
    uint32_t* const slot = reinterpret_cast<uint32_t*>(memory_.data());
    have_ = slot + slots;
    index_ = HashIndex(slot, slots);
    for (uint32_t i = 0; i < b->end_count; ++i) {
      const SharedJobState::End& e = b->end[i];
      uint32_t first = find(e.have, e.ino, e.peer);
      if (first == HashIndex::kNone) index_.add(hash_of(e.have, e.ino, e.peer), first = i);
      have_[first] |= e.have;
    }
  }
  ~EndFinder() { scratch_unmap(&memory_); }
  EndFinder(const EndFinder&) = delete;
  EndFinder& operator=(const EndFinder&) = delete;

  bool has_room() const { return static_cast<bool>(memory_); }
  bool has_other(const SharedJobState::End& e) const {
    if (e.have == SharedJobState::kSocket) return find(e.have, e.peer, e.ino) != HashIndex::kNone;
    const uint32_t k = find(e.have, e.ino, e.peer);
    return k != HashIndex::kNone && have_[k] & ~e.have;
  }
  bool is_first(uint32_t i) const {
    const SharedJobState::End& e = state_->end[i];
    return find(e.have, e.ino, e.peer) == i;
  }

 private:
  // Of a pipe all ends have one entry, of a socket each has its own.
  uint32_t find(uint32_t have, uint64_t ino, uint64_t peer) const {
    const bool socket = have == SharedJobState::kSocket;
    return index_.find(hash_of(have, ino, peer), [&](uint32_t i) {
      const SharedJobState::End& o = state_->end[i];
      return (o.have == SharedJobState::kSocket) == socket && o.ino == ino &&
             (!socket || o.peer == peer);
    });
  }
  static uint64_t hash_of(uint32_t have, uint64_t ino, uint64_t peer) {
    return have == SharedJobState::kSocket ? combined_hash(ino, peer) : combined_hash(ino);
  }

  const SharedJobState* state_;
  Region memory_;
  HashIndex index_;
  uint32_t* have_ = nullptr;  // by the first one with an inode: which ends all of them have
};

// A pipe or socket whose other end no process of the job has is open to the outside.
bool JobBarrier::check_ends() {
  const SharedJobState* b = shared_state();
  const EndFinder ends(b);
  if (!ends.has_room())
    return fail(kExitError, "no memory to find the other ends of pipes and sockets");
  const SharedJobState::End* alone = nullptr;
  for (uint32_t i = 0; i < b->end_count; ++i) {
    const SharedJobState::End& e = b->end[i];
    const bool found = (!e.needed && !e.inherited) || ends.has_other(e);
    // No process of the job can read what is in the socket: its other end may be on its way to a
    // child that has yet to begin (forkserver of Python).
    if (!found && e.needed && e.have == SharedJobState::kSocket && !e.peer)
      return fail(kRefusedForNow,
                  "descriptor %d of process %d is a unix socket that another process has not "
                  "accepted yet; try again when it has, or close it",
                  e.fd, e.pid);
    if (!found && !e.inherited && !alone) alone = &e;
    if (found || !e.inherited || !ends.is_first(i)) continue;
    const bool socket = e.have == SharedJobState::kSocket;
    uint32_t others = 0;
    for (uint32_t k = i + 1; k < b->end_count; ++k)
      others += b->end[k].ino == e.ino && b->end[k].pid != e.pid;
    warn_of_inherited(e.fd, socket ? "socket" : "pipe", e.pid, others);
  }
  if (!alone) return true;
  const char* what = alone->have == SharedJobState::kSocket ? "unix socket" : "pipe";
  Relative newcomer;
  if (find_newcomer(&newcomer))
    return fail(kRefusedForNow,
                "process %d (%s) of the job came while the others were stopped, and may have the "
                "other end of the %s that is descriptor %d of process %d; processes that start one "
                "another without end cannot all be stopped",
                newcomer.pid, newcomer.name, what, alone->fd, alone->pid);
  // A process that had only just begun, and ended while the others stood, is found no more: what is
  // alone in the next attempt, too, leads outside.
  static uint64_t alone_before = 0;
  const bool again = alone->ino == alone_before;
  alone_before = alone->ino;
  return fail(again ? kExitRefused : kRefusedForNow,
              "descriptor %d of process %d is a %s to a process that is not part of the snapshot; "
              "close it, let that process end first, or set GPUCKPT_SOCKETS=drop: then a restore "
              "finds it closed at the other end",
              alone->fd, alone->pid, what);
}

namespace {

// Who offers which memory of devices.
class OfferFinder {
 public:
  using Memory = SharedJobState::DeviceMemory;
  explicit OfferFinder(const SharedJobState* b) : state_(b) {
    uint32_t slots = 2;
    while (slots < 2 * b->device_memory_count) slots *= 2;
    memory_ = scratch_map(HashIndex::bytes_for(slots));
    if (memory_) index_ = HashIndex(reinterpret_cast<uint32_t*>(memory_.data()), slots);
  }
  ~OfferFinder() { scratch_unmap(&memory_); }
  OfferFinder(const OfferFinder&) = delete;
  OfferFinder& operator=(const OfferFinder&) = delete;

  bool has_room() const { return static_cast<bool>(memory_); }
  void add(uint32_t i) { index_.add(hash_of(state_->device_memory[i]), i); }
  const Memory* find(const Memory& m) const {
    const uint32_t k = index_.find(hash_of(m), [&](uint32_t i) {
      const Memory& o = state_->device_memory[i];
      return o.owner == m.owner && o.number == m.number;
    });
    return k == HashIndex::kNone ? nullptr : &state_->device_memory[k];
  }

 private:
  static uint64_t hash_of(const Memory& m) { return combined_hash(m.owner, m.number); }

  const SharedJobState* state_;
  Region memory_;
  HashIndex index_;
};

}  // namespace

// Memory of a device that its owner no longer offers could not be mapped again.
bool JobBarrier::check_device_memory() {
  using Memory = SharedJobState::DeviceMemory;
  const SharedJobState* b = shared_state();
  if (!b->device_memory_count) return true;
  OfferFinder offers(b);
  if (!offers.has_room())
    return fail(kExitError, "no memory to find out who offers memory of devices");
  for (uint32_t i = 0; i < b->device_memory_count; ++i) {
    const Memory& m = b->device_memory[i];
    if (!m.offered) continue;
    if (const Memory* o = offers.find(m))
      return fail(kExitRefused,
                  "processes %d and %d share memory of process %d, which has ended "
                  "(cuMemImportFromShareableHandle)",
                  m.pid, o->pid, m.owner);
    offers.add(i);
  }
  for (uint32_t i = 0; i < b->device_memory_count; ++i) {
    const Memory& m = b->device_memory[i];
    if (!m.offered && !offers.find(m))
      return fail(
          kExitRefused,
          "process %d has memory of process %d (%s), which that one has freed, or which has "
          "ended or is not part of the snapshot",
          m.pid, m.owner,
          m.number & DeviceShare::kHandle ? "cuMemImportFromShareableHandle"
                                          : "cuIpcOpenMemHandle");
  }
  return true;
}

// A description that no process has any more cannot be watched again by a restored epoll set.
bool JobBarrier::check_watches() {
  const SharedJobState* b = shared_state();
  for (uint32_t i = 0; i < b->watch_count; ++i)
    if (const SharedJobState::Watch& w = b->watch[i]; !w.found)
      return fail(kExitRefused,
                  "descriptor %d (epoll) of process %d watches something registered as %d that is "
                  "open in no process of the job; remove it from the set",
                  w.epoll, w.pid, w.fd);
  return true;
}

// --- a member
// -----------------------------------------------------------------------------------------------------------

bool JobBarrier::join(IoThread*, Join* j) {
  role_ = Role::kMember;
  code = 0;
  sent_seen_ = 0;
  count_ = pending_count_ = 0;
  int peer = 0;
  const long fd = local_connect(j->listener);
  leader_socket_ = sys::failed(fd) ? -1 : static_cast<int>(fd);
  if (sys::failed(fd) || !local_trusted(leader_socket_, &peer) || peer != j->leader)
    return fail(kExitAbsent, "the snapshot of the job that this process was asked to join is over");
  wire::JobMsg m = make(wire::kJobJoin, library.last_number);
  copy(m.text, sizeof(m.text), library.last_snapshot);
  copy(m.tag, sizeof(m.tag), job_name());
  local_send(leader_socket_, &m, sizeof(m), nullptr, 0);
  int fds[3];
  pollfd p{leader_socket_, POLLIN, 0};
  sys::call(SYS_poll, sys::ptr(&p), 1, 10000);
  if (receive(leader_socket_, &j->call, fds) <= 0 || j->call.step != wire::kJobWelcome ||
      fds[0] < 0)
    return fail(kExitAbsent,
                "the process that leads the snapshot of the job did not answer in time");
  shared_state_fd_ = fds[0];
  shared_state_ = scratch_map(sizeof(SharedJobState), shared_state_fd_);
  if (!shared_state_)
    return fail(kExitError, "no memory for what the processes of the job tell each other");
  number_ = j->call.number;
  for (uint32_t i = 0; i < shared_state()->stopped_count; ++i)
    if (shared_state()->stopped[i].pid == library.pid) stop_by(shared_state()->stopped[i].signal);
  call_.deadline_us = j->call.deadline_us;
  call_.flags = j->call.flags;
  return true;
}

bool JobBarrier::opened(const int (&fds)[3]) {
  wire::JobMsg m = make(wire::kJobOpened, number_);
  return local_send(leader_socket_, &m, sizeof(m), fds, 3) ||
         fail(kExitError, "the process that led the snapshot of the job has ended");
}

// --- all processes
// -----------------------------------------------------------------------------------------------------------

// What any process sends of its memory before the stop moves the deadline of all: the program runs
// meanwhile.
void JobBarrier::wait_while_memory_is_sent() {
  const uint64_t sent = shared_state()->precopied.load(), soon = sys::now_us() + kSendPatienceUs;
  if (sent != sent_seen_ && call_.deadline_us < soon) call_.deadline_us = soon;
  sent_seen_ = sent;
}

bool JobBarrier::meet_as_member(wire::JobStep step) {
  say(leader_socket_, step, 0, nullptr);
  const uint64_t patience = sys::now_us() + kMeetPatienceUs;
  for (;;) {
    if (step == wire::kJobSent) wait_while_memory_is_sent();
    pollfd p{leader_socket_, POLLIN, 0};
    sys::call(SYS_poll, sys::ptr(&p), 1, 1000);
    wire::JobMsg in;
    int fds[3];
    int got = receive(leader_socket_, &in, fds);
    if (got < 0) return fail(kExitError, "the process that led the snapshot ended");
    if (got > 0 && in.step == wire::kJobFailed) return fail(in.code, "%s", in.text);
    if (got > 0 && in.step == step) return true;
    if (sys::now_us() > patience && sys::now_us() > call_.deadline_us)
      return fail(kExitTimeout, "the process that leads the snapshot does not go on");
  }
}

// Processes that the leader does not know yet join while the others wait at `step`. With all
// parents parked no process is forked any more: one that is unknown then was forked before. Those
// that were forked while memory was sent are better found while all of them still run: once,
// because others can follow without end.
bool JobBarrier::invite_more(wire::JobStep step, bool* found) {
  const bool parked = step == wire::kJobParked, first_look = step == wire::kJobSent && !*found;
  *found = false;
  return (!parked && !first_look) || look_for_more(found);
}

bool JobBarrier::meet(IoThread* c, wire::JobStep step) {
  if (role_ == Role::kAlone) return true;
  if (role_ == Role::kMember) return meet_as_member(step);
  for (bool found = false;;) {
    if (step == wire::kJobSent) wait_while_memory_is_sent();
    if (!all_at(step)) {
      if (!invite(step) || !listen_once(c, 10)) return false;
      continue;
    }
    if (step == wire::kJobParked && wake_stopped_members()) continue;
    if (!invite_more(step, &found)) return false;
    if (!found) break;
  }
  if (step == wire::kJobCaptured && !(check_ends() && check_device_memory() && check_watches()))
    return false;
  level_ = step;
  for (size_t i = 0; i < count_; ++i) say(members_[i].socket, step, 0, nullptr);
  return true;
}

}  // namespace gpuckpt
