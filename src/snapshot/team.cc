#include "snapshot/team.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/handover.h"
#include "common/local_socket.h"
#include "common/log.h"
#include "common/proc.h"
#include "common/syscall.h"
#include "common/text.h"
#include "gpuckpt/exit_codes.h"
#include "snapshot/capture.h"
#include "snapshot/courier.h"
#include "snapshot/device_plugin.h"
#include "snapshot/hold.h"
#include "snapshot/inherited.h"
#include "snapshot/kin.h"
#include "snapshot/state.h"

namespace gpuckpt {

constinit Team team;

namespace {

constexpr uint64_t kAskAgainUs = 100000;
constexpr uint64_t kStartPatienceUs = 1000000;  // for a process that has not come so far yet
constexpr uint64_t kBornPatienceUs = 2000000;   // the same, while the others stand
constexpr uint64_t kAnswerPatienceUs = 10000000;
constexpr uint64_t kMeetPatienceUs = 30000000;

// Receives one message with at most three descriptors (-1: none came). 1, 0: nothing yet, -1: gone.
int receive(int socket, wire::TeamMsg* m, int (&fds)[3]) {
  const long n = local_receive(socket, m, sizeof(*m), fds);
  if (n == -11 || n == -4) return 0;
  m->text[sizeof(m->text) - 1] = m->tag[sizeof(m->tag) - 1] = 0;
  return n == sizeof(*m) && m->magic == wire::kMagic && m->version == wire::kWireVersion ? 1 : -1;
}

wire::TeamMsg make(uint32_t step, uint32_t number) {
  wire::TeamMsg m;
  __builtin_memset(&m, 0, sizeof(m));
  m.magic = wire::kMagic;
  m.version = wire::kWireVersion;
  m.step = step;
  m.number = number;
  m.pid = library.pid;
  return m;
}

}  // namespace

bool Team::fail(int why, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  vformat(text, sizeof(text), pattern, args);
  va_end(args);
  code = why;
  return false;
}

bool Team::has_process(int pid) const {
  if (role_ == Role::kAlone) return false;
  if (role_ == Role::kMember && pid == library.leader) return true;
  const Board* b = board();
  for (uint32_t i = 0; i < b->relative_count; ++i)
    if (b->relative[i].pid == pid) return true;
  return false;
}

void Team::say(int socket, uint32_t step, int why, const char* words) {
  wire::TeamMsg m = make(step, number_);
  m.code = why;
  if (words) copy(m.text, sizeof(m.text), words);
  local_send(socket, &m, sizeof(m), nullptr, 0);
}

void Team::call_off(int why, const char* words) {
  if (role_ == Role::kMember && leader_socket_ >= 0)
    say(leader_socket_, wire::kTeamFailed, why, words);
  for (size_t i = 0; role_ == Role::kLeader && i < count_; ++i)
    if (members_[i].socket >= 0) say(members_[i].socket, wire::kTeamFailed, why, words);
}

void Team::finish() {
  for (size_t i = 0; i < count_; ++i)
    if (members_[i].socket >= 0) sys::close(members_[i].socket);
  for (size_t i = 0; i < pending_count_; ++i) sys::close(pending_[i]);
  for (int* fd : {&door_, &board_fd_, &leader_socket_}) {
    if (*fd >= 0) sys::close(*fd);
    *fd = -1;
  }
  scratch_unmap(&board_);
  count_ = pending_count_ = left_out_count_ = 0;
  role_ = Role::kAlone;
  number_ = 0;
}

// --- the leader
// ---------------------------------------------------------------------------------------------------------

bool Team::lead(Courier* c, const Call& call) {
  role_ = Role::kLeader;
  call_ = call;
  code = 0;
  number_ = level_ = 0;
  count_ = pending_count_ = left_out_count_ = 0;
  long fd = sys::call(SYS_memfd_create, sys::ptr("gpuckpt-board"), 1 /* MFD_CLOEXEC */);
  if (!sys::failed(fd)) board_fd_ = static_cast<int>(fd);
  if (sys::failed(fd) || sys::failed(sys::call(SYS_ftruncate, fd, sizeof(Board))) ||
      !(board_ = scratch_map(sizeof(Board), board_fd_)))
    return fail(kExitError, "no memory for what the processes of the job tell each other");
  fd = local_listen(&door_name_);
  if (sys::failed(fd))
    return fail(kExitError, "no socket for the processes of the job (error %ld)", -fd);
  door_ = static_cast<int>(fd);
  bool found;
  if (!look_for_more(&found)) return false;
  while (!all_at(wire::kTeamOpened)) {
    if (!invite() || !listen_once(c, 20)) return false;
  }
  return true;
}

// Adds processes that are not known yet. `found`: there are some, or some ended.
bool Team::look_for_more(bool* found) {
  *found = false;
  Region memory = scratch_map(Board::kMostRelatives * sizeof(Relative));
  if (!memory) return fail(kExitError, "no memory for the list of processes");
  Relative* all = reinterpret_cast<Relative*>(memory.data());
  size_t n = find_job(library.pid, all, Board::kMostRelatives);
  Board* b = board();
  b->relative_count = 0;
  bool ok = n < Board::kMostRelatives || fail(kExitRefused, "the job has too many processes");
  for (size_t i = 0; ok && i < n; ++i) {
    const Relative& r = all[i];
    if (left_out(r.ppid)) {
      leave_out(r.pid);
      continue;
    }
    if (left_out(r.pid)) continue;
    b->relative[b->relative_count++] = {r.pid, r.ppid, r.pgid, r.sid, r.state == 'Z'};
    if (r.state == 'Z' || r.state == 'X') continue;
    bool known = false;
    for (size_t k = 0; k < count_ && !known; ++k) known = members_[k].pid == r.pid;
    if (known) continue;
    if (count_ == kMost) ok = fail(kExitRefused, "the job has more than %lu processes", kMost);
    if (ok) members_[count_++] = {r.pid, -1, 0, 0, sys::now_us(), 0, r.orphan};
    *found = true;
  }
  scratch_unmap(&memory);
  return ok;
}

bool Team::left_out(int pid) const {
  for (size_t i = 0; i < left_out_count_; ++i)
    if (left_out_[i] == pid) return true;
  return false;
}
void Team::leave_out(int pid) {
  if (!left_out(pid) && left_out_count_ < sizeof(left_out_) / sizeof(left_out_[0]))
    left_out_[left_out_count_++] = pid;
}

// Wakes who has not come yet.
bool Team::invite() {
  const uint64_t now = sys::now_us();
  for (size_t i = 0; i < count_;) {
    Member& m = members_[i];
    if (m.reached || now - m.asked_us < kAskAgainUs) {
      ++i;
      continue;
    }
    m.asked_us = now;
    Relative r;
    if (!look_at(m.pid, &r) || r.state == 'Z' || r.state == 'X') {  // ended by itself
      if (m.socket >= 0) sys::close(m.socket);
      m = members_[--count_];
      continue;
    }
    ++i;
    if (r.state == 't')
      return fail(kExitRefused, "process %d (%s) of the job is stopped by a debugger", m.pid,
                  r.name);
    const bool born = level_ >= wire::kTeamStaged;
    if (listens(m.pid)) {
      const bool patient = now - m.since_us <= (born ? kBornPatienceUs : kAnswerPatienceUs);
      if (!patient && sys::call(SYS_kcmp, m.pid, r.ppid, 1 /* KCMP_VM */, 0, 0) == 0)
        return fail(kExitRefused,
                    "process %d (%s) of the job has its memory in common with process %d "
                    "(clone(CLONE_VM), vfork)",
                    m.pid, r.name, r.ppid);
      if (!patient)
        return fail(kExitTimeout, "process %d (%s) of the job does not answer", m.pid, r.name);
      if (r.state == 'T')
        wake_stopped(m.pid, door_name_);
      else
        send_wake(m.pid, wire::kJoinCookie | door_name_);
      continue;
    }
    const bool before_us = inherited_child(m.pid);
    if (!before_us && now - m.since_us < kStartPatienceUs) continue;
    if (before_us || call_.children == Children::kAble) {
      log_line(LogLevel::kWarn,
               "process %d (%s) runs without gpuckpt's library: it and its children are not part "
               "of the snapshot",
               m.pid, r.name);
      leave_out(m.pid);
      m = members_[--count_];
      continue;
    }
    return fail(kExitRefused,
                "process %d (%s), a child of the program, runs without gpuckpt's library; let it "
                "end first, or set GPUCKPT_CHILDREN=able (a snapshot without such children) or "
                "ignore (without any child)",
                m.pid, r.name);
  }
  return true;
}

bool Team::all_at(uint32_t step) const {
  for (size_t i = 0; i < count_; ++i)
    if (members_[i].reached < step) return false;
  return true;
}

void Team::remove(Courier* c, size_t i) {
  Member& m = members_[i];
  if (m.socket >= 0) sys::close(m.socket);
  if (m.reached >= wire::kTeamOpened) c->send(c->socket_, wire::kMsgGone, m.number, nullptr);
  m = members_[--count_];
}

// Who knocked says who it is.
bool Team::introduce(int socket) {
  wire::TeamMsg in;
  int fds[3], pid = 0;
  int got = receive(socket, &in, fds);
  if (!got) return false;
  Member* m = nullptr;
  if (got > 0 && in.step == wire::kTeamJoin && local_trusted(socket, &pid))
    for (size_t i = 0; i < count_; ++i)
      if (members_[i].pid == pid && members_[i].socket < 0) m = &members_[i];
  if (!m) {
    sys::close(socket);
    return true;
  }
  if (m->orphan && !equal(in.tag, family_name())) {
    // It only looked as if it were of this job.
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
  m->reached = wire::kTeamJoin;
  wire::TeamMsg out = make(wire::kTeamWelcome, m->number);
  out.flags = call_.flags | (level_ >= wire::kTeamFrozen ? wire::kCtlLate : 0u);
  out.stop_status = call_.stop_status;
  out.deadline_us = call_.deadline_us;
  copy(out.text, sizeof(out.text), call_.store);
  copy(out.tag, sizeof(out.tag), call_.tag);
  local_send(socket, &out, sizeof(out), &board_fd_, 1);
  return true;
}

// What member `i` says. False: the attempt is over.
bool Team::hear(Courier* c, size_t i) {
  Member& m = members_[i];
  wire::TeamMsg in;
  int fds[3];
  int got = receive(m.socket, &in, fds);
  if (!got) return true;
  if (got < 0) {
    if (m.reached >= wire::kTeamParked)
      return fail(kExitTimeout, "process %d of the job ended while the snapshot was taken", m.pid);
    remove(c, i);
    return true;
  }
  if (in.step == wire::kTeamFailed)
    return fail(in.code ? in.code : kExitError, "process %d of the job: %s", m.pid, in.text);
  if (in.step == wire::kTeamOpened) {
    static wire::Msg out;
    __builtin_memset(&out, 0, sizeof(out));
    out.magic = wire::kMagic, out.version = wire::kWireVersion;
    out.type = wire::kMsgMember, out.slot = m.number;
    bool ok = fds[2] >= 0 && local_send(c->socket_, &out, sizeof(out), fds, 3);
    for (int fd : fds)
      if (fd >= 0) sys::close(fd);
    if (!ok) return fail(kExitError, "the writer is gone");
  }
  m.reached = in.step;
  if (in.step > wire::kTeamOpened && in.step <= level_)
    say(m.socket, in.step, 0, nullptr);  // the others are there already
  return true;
}

// Names who kept the others waiting.
bool Team::fail_late() {
  static const char* const done[] = {"has not answered",
                                     "has only joined",
                                     "has only joined",
                                     "has only reached the writer",
                                     "has only closed its gate",
                                     "has only copied its devices' memory",
                                     "has only stopped its threads"};
  const Member* last = nullptr;
  for (size_t i = 0; i < count_; ++i)
    if (!last || members_[i].reached < last->reached) last = &members_[i];
  if (!last || last->reached >= sizeof(done) / sizeof(done[0]))
    return fail(kExitTimeout, "the processes of the job could not be stopped in time");
  Relative r;
  return fail(kExitTimeout, "process %d (%s) of the job could not be stopped in time: it %s",
              last->pid, look_at(last->pid, &r) ? r.name : "?", done[last->reached]);
}

bool Team::listen_once(Courier* c, int ms) {
  if (sys::now_us() > call_.deadline_us) return fail_late();
  static pollfd polls[kMost + 64 + 2];
  size_t n = 0;
  polls[n++] = {door_, POLLIN, 0};
  polls[n++] = {c->socket_, POLLIN, 0};
  const size_t first_pending = n, first_member = n + pending_count_;
  for (size_t i = 0; i < pending_count_; ++i) polls[n++] = {pending_[i], POLLIN, 0};
  const size_t members = count_;
  for (size_t i = 0; i < members; ++i) polls[n++] = {members_[i].socket, POLLIN, 0};
  if (sys::call(SYS_poll, sys::ptr(polls), static_cast<long>(n), ms) <= 0) return true;
  if (polls[1].revents && !c->last.type) c->receive(&c->last, 0);
  if (c->writer_gone)
    return fail(c->last.type ? c->last.code : kExitError, "%s",
                c->last.type ? c->last.text : "the writer ended");
  // From behind: who leaves is replaced by the last one.
  for (size_t i = members; i-- > 0;)
    if (polls[first_member + i].revents && !hear(c, i)) return false;
  for (size_t i = first_member - first_pending; i-- > 0;)
    if (polls[first_pending + i].revents && introduce(pending_[i]))
      pending_[i] = pending_[--pending_count_];
  if (polls[0].revents && pending_count_ < sizeof(pending_) / sizeof(pending_[0])) {
    long s = sys::call(SYS_accept4, door_, 0, 0, SOCK_CLOEXEC);
    if (!sys::failed(s)) pending_[pending_count_++] = static_cast<int>(s);
  }
  return true;
}

// A pipe or socket whose other end nobody has is open to the outside.
bool Team::check_ends() {
  const Board* b = board();
  for (uint32_t i = 0; i < b->end_count; ++i) {
    const Board::End& e = b->end[i];
    bool found = !e.needed;
    for (uint32_t k = 0; k < b->end_count && !found; ++k) {
      const Board::End& o = b->end[k];
      found = e.have == Board::kSocket
                  ? o.have == Board::kSocket && o.ino == e.peer && o.peer == e.ino
                  : o.have != Board::kSocket && o.ino == e.ino && (o.have & ~e.have);
    }
    if (!found && e.have == Board::kSocket && !e.peer)
      return fail(kRefusedForNow,
                  "descriptor %d of process %d is a unix socket that another process has not "
                  "accepted yet; try again when it has, or close it",
                  e.fd, e.pid);
    if (!found)
      return fail(kExitRefused,
                  "descriptor %d of process %d is a %s to a process that is not part of the "
                  "snapshot; close it, let that process end first, or set GPUCKPT_SOCKETS=drop: "
                  "then a restore finds it closed at the other end",
                  e.fd, e.pid, e.have == Board::kSocket ? "unix socket" : "pipe");
  }
  return true;
}

// Memory of a device that its owner no longer hands out could not be had again.
bool Team::check_device_memory() {
  const Board* b = board();
  for (uint32_t i = 0; i < b->device_memory_count; ++i) {
    const Board::DeviceMemory& m = b->device_memory[i];
    bool found = m.offered;
    for (uint32_t k = 0; k < b->device_memory_count; ++k) {
      const Board::DeviceMemory& o = b->device_memory[k];
      if (k == i || !o.offered || o.owner != m.owner || o.number != m.number) continue;
      found = true;
      if (m.offered)
        return fail(kExitRefused,
                    "processes %d and %d share memory of process %d, which has ended "
                    "(cuMemImportFromShareableHandle)",
                    o.pid, m.pid, m.owner);
    }
    if (!found)
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

// What nobody has cannot be watched again.
bool Team::check_watches() {
  const Board* b = board();
  for (uint32_t i = 0; i < b->watch_count; ++i)
    if (const Board::Watch& w = b->watch[i]; !w.found)
      return fail(kExitRefused,
                  "descriptor %d (epoll) of process %d watches something registered as %d that is "
                  "open in no process of the job; remove it from the set",
                  w.epoll, w.pid, w.fd);
  return true;
}

// --- a member
// -----------------------------------------------------------------------------------------------------------

bool Team::join(Courier*, Join* j) {
  role_ = Role::kMember;
  code = 0;
  count_ = pending_count_ = 0;
  int peer = 0;
  const long fd = local_connect(j->door);
  leader_socket_ = sys::failed(fd) ? -1 : static_cast<int>(fd);
  if (sys::failed(fd) || !local_trusted(leader_socket_, &peer) || peer != j->leader)
    return fail(kExitAbsent, "nobody leads a snapshot any more");
  wire::TeamMsg m = make(wire::kTeamJoin, library.last_number);
  copy(m.text, sizeof(m.text), library.last_snapshot);
  copy(m.tag, sizeof(m.tag), family_name());
  local_send(leader_socket_, &m, sizeof(m), nullptr, 0);
  int fds[3];
  pollfd p{leader_socket_, POLLIN, 0};
  sys::call(SYS_poll, sys::ptr(&p), 1, 10000);
  if (receive(leader_socket_, &j->call, fds) <= 0 || j->call.step != wire::kTeamWelcome ||
      fds[0] < 0)
    return fail(kExitAbsent, "the leader of the snapshot did not answer");
  board_fd_ = fds[0];
  board_ = scratch_map(sizeof(Board), board_fd_);
  if (!board_)
    return fail(kExitError, "no memory for what the processes of the job tell each other");
  number_ = j->call.number;
  call_.deadline_us = j->call.deadline_us;
  call_.flags = j->call.flags;
  return true;
}

bool Team::opened(const int (&fds)[3]) {
  wire::TeamMsg m = make(wire::kTeamOpened, number_);
  return local_send(leader_socket_, &m, sizeof(m), fds, 3) ||
         fail(kExitError, "the leader is gone");
}

// --- everybody
// -----------------------------------------------------------------------------------------------------------

bool Team::meet_as_member(wire::TeamStep step) {
  say(leader_socket_, step, 0, nullptr);
  const uint64_t patience = sys::now_us() + kMeetPatienceUs;
  for (;;) {
    pollfd p{leader_socket_, POLLIN, 0};
    sys::call(SYS_poll, sys::ptr(&p), 1, 1000);
    wire::TeamMsg in;
    int fds[3];
    int got = receive(leader_socket_, &in, fds);
    if (got < 0) return fail(kExitError, "the process that led the snapshot ended");
    if (got > 0 && in.step == wire::kTeamFailed) return fail(in.code, "%s", in.text);
    if (got > 0 && in.step == step) return true;
    if (sys::now_us() > patience && sys::now_us() > call_.deadline_us)
      return fail(kExitTimeout, "the process that leads the snapshot does not go on");
  }
}

bool Team::meet(Courier* c, wire::TeamStep step) {
  if (role_ == Role::kAlone) return true;
  if (role_ == Role::kMember) return meet_as_member(step);
  for (;;) {
    if (!all_at(step)) {
      if (!invite() || !listen_once(c, 10)) return false;
      continue;
    }
    // With all parents parked nobody is born any more: who is unknown now was born before.
    bool found = false;
    if (step == wire::kTeamParked && !look_for_more(&found)) return false;
    if (!found) break;
  }
  if (step == wire::kTeamCaptured && !(check_ends() && check_device_memory() && check_watches()))
    return false;
  level_ = step;
  for (size_t i = 0; i < count_; ++i) say(members_[i].socket, step, 0, nullptr);
  return true;
}

}  // namespace gpuckpt
