// A snapshot of several processes at one moment (wire.h, "Between the processes of a job").
//
// The root of the job leads. Its writer takes what all of them send, and publishes one manifest
// when all have sent everything: that is what makes the snapshot one. What makes it of one moment
// are meetings, at which each process waits for all others: when all have sent what they send of
// their memory before the stop, before parking, when all are parked, when all have listed their
// descriptors, and when all are captured. When all are parked the leader searches once more for
// processes: with all parents parked no process can be forked, so those that it does not know were
// forked before, and they are asked to join while the others stay parked. It searches at the first
// meeting, too, because those that join there keep no process standing.
// (Before these, they meet with their devices at rest, because memory of one can be mapped in
// another.) A process that fails, ends or does not answer fails the attempt for all, except that a
// process may end until it is parked.
//
// Owner: one per process, made for each attempt. Threads: the I/O thread, in whose descriptor table
// the sockets are. Errors: its own failure, which becomes the snapshot's.
#pragma once

#include "base/heap.h"
#include "base/text/failure.h"
#include "gpuckpt/wire.h"
#include "snapshot/job/membership.h"
#include "snapshot/job/shared_state.h"

namespace gpuckpt {

class IoThread;

enum class Children : uint32_t {
  kAll,     // all of them, or no snapshot
  kAble,    // those without the library are left out
  kIgnore,  // a snapshot of this process alone
};

class JobBarrier : public Failure {
 public:
  enum class Role { kAlone, kLeader, kMember };
  Role role() const { return role_; }
  bool active() const { return role_ != Role::kAlone; }
  // Whether any other process takes part. (A leader can have left out all that it found.)
  bool has_others() const { return role_ == Role::kMember || (active() && count_ > 0); }
  uint32_t number() const { return number_; }
  // It joined when the others had met at kJobFrozen.
  bool late() const { return role_ == Role::kMember && (call_.flags & wire::kCtlLate); }
  // Whether this process may take its time to send memory while it runs.
  bool may_precopy() const { return !active() || !(call_.flags & wire::kCtlNoPrecopy); }
  // How many processes take part, as far as they are known.
  uint32_t processes() const { return active() ? shared_state()->relative_count + 1 : 1; }
  // Of a leader: the others.
  uint32_t others() const { return static_cast<uint32_t>(count_); }
  // Whether the process, living or ended, comes back with a restore. (Once all are parked.)
  bool has_process(int pid) const;
  SharedJobState* shared_state() const {
    return reinterpret_cast<SharedJobState*>(shared_state_.data());
  }

  // --- Leader. Calls all processes together; true when all have joined. Otherwise code and text
  // say why not.
  struct Call {
    Children children;
    uint64_t deadline_us;
    uint32_t flags;
    int stop_status;
    const char *store, *tag;
  };
  bool lead(IoThread*, const Call&);

  // --- Member. Connects to the leader that called; then `call` is what shall be done.
  struct Join {
    int leader;
    uint32_t listener;  // local_connect's number of the leader's socket
    wire::JobMsg call;
  };
  bool join(IoThread*, Join*);
  // Gives the leader what the writer needs; the descriptors stay the caller's.
  bool opened(const int (&fds)[3]);

  // --- Leader and members. Waits until all processes are at `step`. False: it will not be; code
  // and text say why, and all others hear it as well.
  bool meet(IoThread*, wire::JobStep step);
  // The deadline has moved by the time that something took while the program ran.
  void set_deadline(uint64_t deadline_us) { call_.deadline_us = deadline_us; }
  void call_off(int code, const char* text);
  void finish();  // closes; role is kAlone then

  // In a forked child and in a restored process: forgets the parent's barrier.
  void forget() {
    role_ = Role::kAlone;
    shared_state_ = {};
    listener_ = shared_state_fd_ = leader_socket_ = -1;
    count_ = pending_count_ = 0;
  }

 private:
  struct Member {
    int pid, socket;
    uint32_t number, reached;  // JobStep
    uint64_t since_us, asked_us;
    bool orphan;     // membership.h
    bool stopped;    // is continued when all others are parked (stopped_children.h)
    bool looked_at;  // may_be_stopped (obstacles.h)
  };
  bool look_for_more(bool* found);
  bool invite(wire::JobStep step);
  // What becomes of a member that was looked at: it stays in the list, leaves it, or there is no
  // snapshot (the failure says why).
  enum class Invited { kStays, kLeaves, kFails };
  Invited invite_one(Member*, uint64_t now);
  Invited check_not_stopped(const Member&);
  bool may_be_invited(Member*, const Relative&);
  bool wake_member(const Member&, const Relative&, uint64_t now);
  Invited without_library(const Member&, const Relative&, uint64_t now);
  bool list_stopped(Member*, const Relative&);
  bool listed_as_stopped(int pid) const;
  bool find_newcomer(Relative* out);
  bool wake_stopped_members();
  bool wake(const Member&);
  bool may_have_its_user(int pid);
  bool left_out(int pid) const;
  void leave_out(int pid);
  bool introduce(int socket);
  void close_listener();
  bool fail_late();
  bool listen_once(IoThread*, int ms);
  bool hear(IoThread*, size_t i);
  bool meet_as_member(wire::JobStep step);
  bool invite_more(wire::JobStep step, bool* found);
  void wait_while_memory_is_sent();
  bool all_at(uint32_t step) const;
  class EndFinder;
  bool check_ends();
  bool check_device_memory();
  bool check_watches();
  void say(int socket, uint32_t step, int code, const char* text);
  void remove(IoThread*, size_t i);

  static constexpr size_t kMost = 1024;
  Role role_ = Role::kAlone;
  Call call_{};
  uint32_t number_ = 0, next_number_ = 1, level_ = 0;
  uint64_t sent_seen_ = 0;
  bool warned_of_users_ = false;
  int listener_ = -1, shared_state_fd_ = -1, leader_socket_ = -1;
  uint32_t listener_name_ = 0;
  Region shared_state_;
  Member members_[kMost]{};
  size_t count_ = 0;
  int pending_[64]{};  // connected, not yet introduced
  size_t pending_count_ = 0;
  int left_out_[256]{};
  size_t left_out_count_ = 0;
};
extern JobBarrier job_barrier;

}  // namespace gpuckpt
