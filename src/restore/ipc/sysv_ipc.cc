#include "restore/ipc/sysv_ipc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <set>

#include "restore/ipc/ipc_numbers.h"
#include "store/io/printable.h"
#include "store/io/process_identity.h"

namespace gpuckpt::restore {

using process::MessageQueue;
using process::SemaphoreSet;
using store::Status;

namespace {

using Messages = std::vector<Image::TypedMessage>;
using Values = std::vector<uint16_t>;

constexpr size_t kTypeBytes = offsetof(msgbuf, mtext);

// --- what is there

std::string name_of(const SemaphoreSet& s) {
  return "the System V semaphore set " + std::to_string(s.id);
}
std::string name_of(const MessageQueue& q) {
  return "the System V message queue " + std::to_string(q.id);
}

bool state_of(const SemaphoreSet& s, semid_ds* out) { return semctl(s.id, 0, IPC_STAT, out) == 0; }
bool state_of(const MessageQueue& q, msqid_ds* out) { return msgctl(q.id, IPC_STAT, out) == 0; }

// (Without a key it does not outlive the machine's start.)
bool is_that(const SemaphoreSet& s, const semid_ds& now, bool same_start) {
  return now.sem_perm.__key == s.key && now.sem_nsems == s.count && (s.key || same_start);
}
bool is_that(const MessageQueue& q, const msqid_ds& now, bool same_start) {
  return now.msg_perm.__key == q.key && (q.key || same_start);
}

int number_by_key(const SemaphoreSet& s) { return semget(s.key, 0, 0); }
int number_by_key(const MessageQueue& q) { return msgget(q.key, 0); }

template <typename Object, typename State>
std::string obstacle(const Object& o, bool same_start) {
  State now;
  if (state_of(o, &now))
    return is_that(o, now, same_start)
               ? ""
               : name_of(o) + " is another one now: its number was given out again";
  if (errno == EACCES) return name_of(o) + " cannot be read by this user";
  const int other = o.key == IPC_PRIVATE ? -1 : number_by_key(o);
  char key[16];
  snprintf(key, sizeof(key), "0x%x", static_cast<unsigned>(o.key));
  return other < 0 ? ""
                   : name_of(o) + " is gone, and its key " + key + " is that of number " +
                         std::to_string(other) + " now: remove it (ipcrm) when no program needs it";
}

// --- whose it is

bool lives(int pid) { return pid > 0 && store::start_time(pid) != 0; }

// A living process that was the last to change one of the semaphores; 0: none.
int other_user(const SemaphoreSet& s, const Values& now, const Values& values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (now[i] != values[i])
      if (const int pid = semctl(s.id, static_cast<int>(i), GETPID); lives(pid)) return pid;
  return 0;
}

int other_user(const msqid_ds& now) {
  return lives(now.msg_lspid) ? now.msg_lspid : lives(now.msg_lrpid) ? now.msg_lrpid : 0;
}

template <typename Object>
void tell_left(const Object& o, int pid) {
  store::say(
      "gpuckpt: warning: %s changed since the snapshot, and stays as it is: process %d, which "
      "runs, "
      "uses it\n",
      name_of(o).c_str(), pid);
}

template <typename Object>
Status failed(const Object& o) {
  const char* why = strerror(errno);
  return Status::Incompatible(name_of(o) + " cannot be put back: " + why);
}

// --- messages

// The message at `place`, which stays, or the first one (-1), which is taken out.
std::optional<Image::TypedMessage> receive(int queue, size_t most, int place) {
  auto room = std::make_unique<char[]>(kTypeBytes + most);
  auto* message = reinterpret_cast<msgbuf*>(room.get());
  const ssize_t got = msgrcv(queue, message, most, place < 0 ? 0 : place,
                             IPC_NOWAIT | MSG_NOERROR | (place < 0 ? 0 : MSG_COPY));
  if (got < 0) return {};
  const auto* text = reinterpret_cast<const uint8_t*>(room.get()) + kTypeBytes;
  return Image::TypedMessage{message->mtype, {text, text + got}};
}

Messages messages_in(int queue, const msqid_ds& state, bool take) {
  Messages out;
  while (auto m = receive(queue, state.__msg_cbytes, take ? -1 : static_cast<int>(out.size())))
    out.push_back(std::move(*m));
  return out;
}

bool send_all(int queue, const Messages& messages) {
  for (const Image::TypedMessage& m : messages) {
    auto room = std::make_unique<char[]>(kTypeBytes + m.bytes.size());
    auto* message = reinterpret_cast<msgbuf*>(room.get());
    message->mtype = m.type;
    memcpy(room.get() + kTypeBytes, m.bytes.data(), m.bytes.size());
    if (msgsnd(queue, message, m.bytes.size(), IPC_NOWAIT) != 0) return false;
  }
  return true;
}

// --- making

template <typename Object>
Status check_number(const Object& o, int made) {
  if (made == o.id) return Status::Ok();
  if (made < 0)
    return Status::Incompatible(name_of(o) + " cannot be made again: " + strerror(errno));
  return Status::Incompatible(name_of(o) +
                              " is gone, and its number is behind those that the kernel gives out "
                              "now: only root can ask for it; or restore in a container, or under "
                              "`unshare -ci`, where the kernel begins anew");
}

// The owner and the permissions that it had, as far as this user may give them.
template <typename Object, typename Set>
void give_permissions(const Object& o, ipc_perm* perm, Set set) {
  perm->mode = static_cast<decltype(perm->mode)>(o.mode & 0777);
  set();
  perm->uid = o.uid, perm->gid = o.gid;
  set();
}

}  // namespace

std::vector<std::string> check_sysv_ipc(const Tree& tree) {
  std::set<std::string> out;  // several processes know one
  const bool same_start = store::boot_id() == tree.root().image.head.boot_id;
  for (const auto& m : tree.members) {
    for (const auto& [set, values] : m->image.semaphores)
      out.insert(obstacle<SemaphoreSet, semid_ds>(set, same_start));
    for (const auto& [queue, messages] : m->image.message_queues)
      out.insert(obstacle<MessageQueue, msqid_ds>(queue, same_start));
  }
  out.erase("");
  return {out.begin(), out.end()};
}

Status SysvPutBack::put(const SemaphoreSet& set, const Values& values) {
  semid_ds state{};
  if (state_of(set, &state)) {
    Values now(values.size());
    if (semctl(set.id, 0, GETALL, now.data()) != 0) return failed(set);
    if (now == values) return Status::Ok();
    if (const int pid = other_user(set, now, values)) return tell_left(set, pid), Status::Ok();
    undo_.push_back({false, set.id, false, now, {}});
  } else {
    const int made = make_with_number(IpcKind::kSemaphores, set.id, true, [&] {
      return semget(set.key, static_cast<int>(set.count), IPC_CREAT | IPC_EXCL | 0600);
    });
    if (made >= 0) undo_.push_back({false, made, true, {}, {}});
    if (Status s = check_number(set, made); !s.ok()) return s;
    if (!state_of(set, &state)) return failed(set);
    give_permissions(set, &state.sem_perm, [&] { semctl(set.id, 0, IPC_SET, &state); });
  }
  return semctl(set.id, 0, SETALL, values.data()) == 0 ? Status::Ok() : failed(set);
}

Status SysvPutBack::put(const MessageQueue& queue, const Messages& messages) {
  msqid_ds state{};
  if (state_of(queue, &state)) {
    const Messages now = messages_in(queue.id, state, false);
    if (now == messages) return Status::Ok();
    if (const int pid = other_user(state)) return tell_left(queue, pid), Status::Ok();
    undo_.push_back({true, queue.id, false, {}, now});
    messages_in(queue.id, state, true);
  } else {
    const int made = make_with_number(IpcKind::kQueue, queue.id, true, [&] {
      return msgget(queue.key, IPC_CREAT | IPC_EXCL | 0600);
    });
    if (made >= 0) undo_.push_back({true, made, true, {}, {}});
    if (Status s = check_number(queue, made); !s.ok()) return s;
    if (!state_of(queue, &state)) return failed(queue);
    const auto allowed = state.msg_qbytes;
    state.msg_qbytes = queue.most_bytes;
    if (msgctl(queue.id, IPC_SET, &state) != 0) state.msg_qbytes = allowed;  // (more needs root)
    give_permissions(queue, &state.msg_perm, [&] { msgctl(queue.id, IPC_SET, &state); });
  }
  return send_all(queue.id, messages) ? Status::Ok() : failed(queue);
}

Status SysvPutBack::run(const Tree& tree) {
  std::set<int> sets, queues;
  for (const auto& m : tree.members) {
    for (const auto& [set, values] : m->image.semaphores)
      if (sets.insert(set.id).second)
        if (Status s = put(set, values); !s.ok()) return s;
    for (const auto& [queue, messages] : m->image.message_queues)
      if (queues.insert(queue.id).second)
        if (Status s = put(queue, messages); !s.ok()) return s;
  }
  return Status::Ok();
}

SysvPutBack::~SysvPutBack() {
  for (auto u = undo_.rbegin(); u != undo_.rend(); ++u) {
    if (u->made) {
      if (u->queue)
        msgctl(u->id, IPC_RMID, nullptr);
      else
        semctl(u->id, 0, IPC_RMID);
    } else if (u->queue) {
      msqid_ds state{};
      if (msgctl(u->id, IPC_STAT, &state) == 0) messages_in(u->id, state, true);
      send_all(u->id, u->messages);
    } else {
      semctl(u->id, 0, SETALL, u->values.data());
    }
  }
}

}  // namespace gpuckpt::restore
