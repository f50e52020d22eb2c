// POSIX message queues. One that has a name stays what it is in the kernel, with its messages, and
// is opened again. One without a name goes with its last descriptor: its messages are taken out,
// written down and put back, in their order, while every thread that could notice is parked.

#include <fcntl.h>
#include <mqueue.h>

#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/descriptors.h"

namespace gpuckpt {

using namespace process;

namespace {

long send(int fd, const char* text, uint32_t bytes, uint32_t priority) {
  return sys::call(SYS_mq_timedsend, fd, sys::ptr(text), bytes, priority, 0);
}

// `fd` may do everything with the queue.
bool put_messages(FdTable* t, const Descriptor& d, int fd) {
  const uint64_t room = d.value[1];
  Region memory = scratch_map(room);
  if (!memory) return t->c->refuse("no memory for the messages of descriptor %d", d.fd);
  t->r->begin(kRecQueue);
  Queue head{d.dev, d.ino};
  t->r->add(&head, sizeof(head));
  uint32_t count = 0;
  const uint64_t first = t->r->size();
  for (QueueMessage m; !t->r->full; ++count) {
    const long got = sys::call(SYS_mq_timedreceive, fd, memory.start, static_cast<long>(room),
                               sys::ptr(&m.priority), 0);
    if (sys::failed(got)) break;
    m.bytes = static_cast<uint32_t>(got);
    t->r->add(&m, sizeof(m));
    t->r->add(memory.data(), m.bytes);
  }
  const char* at = t->r->data() + first;
  bool ok = !t->r->full;
  for (uint32_t i = 0; i < count; ++i) {
    QueueMessage m;
    __builtin_memcpy(&m, at, sizeof(m));
    ok &= !sys::failed(send(fd, at + sizeof(m), m.bytes, m.priority));
    at += sizeof(m) + m.bytes;
  }
  t->r->end(count);
  scratch_unmap(&memory);
  return ok || t->c->refuse("the messages of descriptor %d, a queue without a name, cannot be kept",
                            d.fd);
}

// Does the queue tell this process of its next message (mq_notify)? The kernel does not report the
// notification's details. "QSIZE:5  NOTIFY:0  SIGNO:10  NOTIFY_PID:1234"
bool tells_us(int fd) {
  char text[160];
  const long got = sys::pread(fd, text, sizeof(text) - 1, 0);
  if (got <= 0) return false;
  text[got] = 0;
  constexpr char kOwner[] = "NOTIFY_PID:";
  for (const char* s = text; *s; ++s)
    if (starts_with(s, kOwner)) {
      s += sizeof(kOwner) - 1;
      return static_cast<int>(scan_dec(&s)) == library.pid;
    }
  return false;
}

}  // namespace

bool capture_queue(FdTable* t, Descriptor* d, const FdFacts& f) {
  d->kind = kFdQueue;
  mq_attr a{};
  if (sys::failed(sys::call(SYS_mq_getsetattr, d->fd, 0, sys::ptr(&a))))
    return t->c->refuse("descriptor %d (%s) is a message queue that does not tell its size", d->fd,
                        f.path);
  if (tells_us(d->fd))
    return t->c->refuse(
        "descriptor %d (%s) is a message queue that tells this process of new messages "
        "(mq_notify), which cannot be asked for again; end it first",
        d->fd, f.path);
  d->value[0] = static_cast<uint64_t>(a.mq_maxmsg);
  d->value[1] = static_cast<uint64_t>(a.mq_msgsize);
  d->value[2] = f.deleted;
  d->value[3] = static_cast<uint64_t>(a.mq_curmsgs);
  d->offset = 0;
  return true;
}

bool put_queues(FdTable* t) {
  for (size_t i = 0; i < t->count; ++i) {
    const Descriptor& d = t->all[i];
    if (d.kind != kFdQueue || !d.value[2]) continue;
    bool seen = false;
    for (size_t k = 0; k < i; ++k)
      seen |= t->all[k].kind == kFdQueue && t->all[k].ino == d.ino && t->all[k].dev == d.dev;
    if (seen) continue;
    char path[64];
    format(path, sizeof(path), "/proc/thread-self/fd/%d", d.fd);
    const int fd = sys::open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
      return t->c->refuse(
          "descriptor %d is a message queue without a name that may not be both read and written "
          "(error %d); close it",
          d.fd, -fd);
    const bool ok = put_messages(t, d, fd);
    sys::close(fd);
    if (!ok) return false;
  }
  return true;
}

}  // namespace gpuckpt
