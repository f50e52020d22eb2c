#include "snapshot/process/sysv_ipc.h"

#include <errno.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include "base/heap.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/process_format.h"
#include "snapshot/calls/semaphore_undo.h"
#include "snapshot/calls/sysv_calls.h"
#include "snapshot/process/capture.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

struct Put {
  Capture* c;
  Records* r;
};

// False: it cannot be read, and may not be there.
bool put_semaphores(Records* r, int id) {
  semid_ds state;
  const long looked = sys::call(SYS_semctl, id, 0, IPC_STAT, sys::ptr(&state));
  if (looked == -EINVAL || looked == -EIDRM) return true;
  if (sys::failed(looked)) return false;
  const SemaphoreSet set{id,
                         state.sem_perm.__key,
                         state.sem_perm.uid,
                         state.sem_perm.gid,
                         state.sem_perm.mode,
                         static_cast<uint32_t>(state.sem_nsems)};
  r->begin(kRecSemaphores);
  r->add(&set, sizeof(set));
  void* values = r->reserve(set.count * sizeof(uint16_t));
  const bool read = values && !sys::failed(sys::call(SYS_semctl, id, 0, GETALL, sys::ptr(values)));
  bool set_since = false;
  for (uint32_t i = 0; read && i < set.count; ++i) {
    const int semaphore = static_cast<int>(i);
    const auto undo = static_cast<int16_t>(undo_of(id, semaphore));
    r->add(&undo, sizeof(undo));
    set_since |= set_since_undo(id, semaphore, state.sem_ctime);
  }
  if (!read && !r->full) return r->drop(), false;
  r->end();
  if (set_since)
    add_warning(
        "the System V semaphores %d have been set since an operation with SEM_UNDO, perhaps by "
        "another process: whether the kernel would still undo that is not known, and a restore "
        "makes it undo that",
        id);
  return true;
}

// False: it cannot be read. MSG_COPY names a message by its place and leaves it in the queue.
bool put_messages(Records* r, int queue, const msqid_ds& state) {
  const MessageQueue head{
      queue, state.msg_perm.__key, state.msg_perm.uid, state.msg_perm.gid, state.msg_perm.mode,
      0,     state.msg_qbytes};
  r->begin(kRecMessageQueue);
  r->add(&head, sizeof(head));
  // One message is no longer than all of them may be.
  Region room = scratch_map(sizeof(msgbuf) + state.__msg_cbytes);
  if (!room) return false;
  auto* message = reinterpret_cast<msgbuf*>(room.data());
  const auto bytes = static_cast<long>(state.__msg_cbytes);
  uint32_t count = 0;
  for (; count < state.msg_qnum && !r->full; ++count) {
    const long got = sys::call(SYS_msgrcv, queue, sys::ptr(message), bytes, count,
                               MSG_COPY | IPC_NOWAIT | MSG_NOERROR);
    if (sys::failed(got)) break;
    const TypedMessage m{message->mtype, static_cast<uint32_t>(got), 0};
    r->add(&m, sizeof(m));
    r->add(message->mtext, static_cast<uint64_t>(got));
    r->pad();
  }
  scratch_unmap(&room);
  if (count < state.msg_qnum && !r->full) return false;
  r->end(count);
  return true;
}

bool put_queue(Records* r, int id) {
  msqid_ds state;
  const long looked = sys::call(SYS_msgctl, id, IPC_STAT, sys::ptr(&state), 0);
  if (looked == -EINVAL || looked == -EIDRM) return true;
  if (sys::failed(looked)) return false;
  return put_messages(r, id, state) || (r->drop(), false);
}

bool put_one(void* context, SysvKind kind, int id) {
  Records* r = static_cast<Put*>(context)->r;
  if (kind == SysvKind::kSemaphores ? put_semaphores(r, id) : put_queue(r, id)) return true;
  add_warning("the System V %s %d cannot be read: a restore finds %s as they are then",
              kind == SysvKind::kSemaphores ? "semaphores" : "message queue", id,
              kind == SysvKind::kSemaphores ? "their values" : "its messages");
  return true;
}

}  // namespace

bool put_sysv_ipc(Capture* c, Records* r) {
  if (!look_at_undo_calls())
    add_warning(
        "a signal handler has interrupted semop with SEM_UNDO: if that has just happened, the "
        "kernel does not undo it at the end of the restored process");
  Put put{c, r};
  each_sysv_number(&put, put_one);
  if (more_undos_than_noted())
    add_warning(
        "many System V semaphores were changed with SEM_UNDO: a kill undoes that, and a restore "
        "does not do it again");
  if (more_sysv_than_noted())
    return c->refuse(
        "the program has used more than 4,096 System V semaphore sets and message queues");
  return true;
}

}  // namespace gpuckpt
