// What waits unread in Unix and UDP sockets: looked at message after message without taking any
// (MSG_PEEK with SO_PEEK_OFF), with its sender. Every thread that could notice is parked, so
// options that make the kernel tell more are on for that long.

#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <atomic>

#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/descriptors/sockets.h"
#include "snapshot/park/shared_work.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr int kMostMessages = 100000;
constexpr int kPassed = 256;  // SCM_MAX_FD is 253

struct Peeked {
  long bytes;  // <= 0: nothing
  uint32_t flags;
  char sender[128];
  uint32_t sender_bytes;
  int passed[kPassed];
  uint32_t passed_count;
  bool has_credentials;
  int32_t credentials[3];  // struct ucred
  char to[28];
  uint32_t to_bytes;
  uint32_t segment;  // UDP_GRO: datagrams of this size in one
  bool has_control;
};

void read_control(msghdr* m, Peeked* p) {
  for (cmsghdr* c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
    const char* data = reinterpret_cast<const char*>(CMSG_DATA(c));
    const size_t bytes = c->cmsg_len - CMSG_LEN(0);
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
      for (size_t at = 0; at + 4 <= bytes && p->passed_count < kPassed; at += 4)
        __builtin_memcpy(&p->passed[p->passed_count++], data + at, 4);
      p->has_control = true;
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
      __builtin_memcpy(p->credentials, data, sizeof(p->credentials));
      p->has_credentials = p->credentials[0] > 0;
      p->has_control |= p->has_credentials;
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == 4 /* SCM_PIDFD */) {
      int fd;
      __builtin_memcpy(&fd, data, sizeof(fd));
      if (fd >= 0) sys::close(fd);
    } else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == 20 /* IP_ORIGDSTADDR */) ||
               (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == 74 /* IPV6_ORIGDSTADDR */)) {
      p->to_bytes = static_cast<uint32_t>(bytes < sizeof(p->to) ? bytes : sizeof(p->to));
      __builtin_memcpy(p->to, data, p->to_bytes);
    } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == 104 /* UDP_GRO */) {
      __builtin_memcpy(&p->segment, data, sizeof(p->segment));
    }
  }
}

// The next message, from where the last look ended.
void peek(int fd, const Socket& s, char* room, Peeked* p) {
  *p = {};
  iovec io{room, kMessageRoom};
  alignas(cmsghdr) char control[4096];
  msghdr m{};
  m.msg_iov = &io, m.msg_iovlen = 1;
  m.msg_control = control, m.msg_controllen = sizeof(control);
  if (s.type == SOCK_DGRAM) m.msg_name = p->sender, m.msg_namelen = sizeof(p->sender);
  p->bytes = sys::call(SYS_recvmsg, fd, sys::ptr(&m), MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (p->bytes < 0) return;
  p->flags = static_cast<uint32_t>(m.msg_flags);
  p->sender_bytes = m.msg_namelen > 2 ? m.msg_namelen : 0;
  read_control(&m, p);
}

// A message without bytes that was looked at once is passed over by the next look, and nothing
// tells whether it is still there. So the sockets that had one are remembered until they are empty.
class EmptyMessages {
 public:
  bool had(uint64_t ino) const {
    for (uint32_t i = 0; i < count_; ++i)
      if (ino_[i] == ino) return true;
    return false;
  }
  void note(uint64_t ino) {
    if (!had(ino) && count_ < kMost) ino_[count_++] = ino;
  }
  void forget(uint64_t ino) {
    for (uint32_t i = 0; i < count_; ++i)
      if (ino_[i] == ino) ino_[i] = ino_[--count_];
  }

 private:
  static constexpr uint32_t kMost = 256;
  uint64_t ino_[kMost]{};
  uint32_t count_ = 0;
};
constinit EmptyMessages empty_messages;

// Returns false if the snapshot is refused for now.
bool has_no_hidden_message(FdTable* t, const FdTable::SocketSeen& seen) {
  if (!empty_messages.had(seen.ino)) return true;
  if (!polls(seen.fd, POLLIN)) {
    empty_messages.forget(seen.ino);
    return true;
  }
  return t->c->refuse_for_now(
      "descriptor %d is a socket with unread messages, one without bytes among them, which the "
      "kernel shows only once; try again when they are read",
      seen.fd);
}

// To look at messages takes a pending error away, before the messages (datagrams) or after the last
// of them (connections). `left`: how many bytes may be looked at. False: refused for now.
bool spares_error(FdTable* t, const FdTable::SocketSeen& seen, uint64_t* left) {
  *left = ~0ull;
  if (!polls(seen.fd, POLLERR)) return true;
  int unread = 0;
  if (seen.s.type != SOCK_DGRAM)
    sys::call(SYS_ioctl, seen.fd, 0x541B /* SIOCINQ */, sys::ptr(&unread));
  *left = static_cast<uint64_t>(unread);
  return seen.s.type != SOCK_DGRAM || !polls(seen.fd, POLLIN) ||
         t->c->refuse_for_now(
             "descriptor %d is a socket with unread messages and a pending error, which only the "
             "program may take (SO_ERROR)",
             seen.fd);
}

// Peeking at passed descriptors makes duplicates of them here: they are captured like all others,
// marked as in flight, and closed when the capture is over.
bool capture_passed(FdTable* t, Peeked* p) {
  bool ok = true;
  for (uint32_t i = 0; i < p->passed_count; ++i) {
    if (const Descriptor* owner = t->owner_of(p->passed[i])) {
      sys::close(p->passed[i]);
      p->passed[i] = owner->description;
    } else if (ok) {
      const size_t before = t->count;
      ok = capture_fd(t, p->passed[i], kFdInFlight);
      if (ok && t->count == before)
        ok = t->c->refuse(
            "a descriptor on its way in a unix socket cannot be kept (it is the "
            "driver's); try again when it has been received");
      if (ok) p->passed[i] = t->all[t->count - 1].description;
    } else {
      sys::close(p->passed[i]);
    }
  }
  return ok;
}

void put_message(FdTable* t, uint32_t socket, const Peeked& p, const char* bytes, uint64_t count,
                 uint32_t flags) {
  Message out{};
  out.socket = socket;
  out.bytes = static_cast<uint32_t>(count);
  out.descriptions = p.passed_count;
  out.name_bytes = p.sender_bytes;
  out.to_bytes = p.to_bytes;
  out.flags = flags | (p.has_credentials ? kMessageHasCredentials : 0u);
  out.pid = p.credentials[0];
  out.uid = static_cast<uint32_t>(p.credentials[1]);
  out.gid = static_cast<uint32_t>(p.credentials[2]);
  t->r->begin(kRecMessage);
  t->r->add(&out, sizeof(out));
  t->r->add(p.passed, p.passed_count * sizeof(p.passed[0]));
  t->r->add(p.sender, p.sender_bytes);
  t->r->add(p.to, p.to_bytes);
  t->r->add(bytes, count);
  t->r->end();
}

// Is the byte at `position` of a stream one that was sent with MSG_OOB? A look that starts before
// it ends there, whatever else is alike.
bool urgent_byte(int fd, char* byte) {
  const long n =
      sys::call(SYS_recvfrom, fd, sys::ptr(byte), 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT, 0, 0);
  return n == 1;
}

// Was what a stream's next byte comes after a byte sent with MSG_OOB that has been received? It
// still ends what one call reads.
bool is_at_mark(int fd) {
  int at = 0;
  return !sys::failed(sys::call(SYS_ioctl, fd, 0x8905 /* SIOCATMARK */, sys::ptr(&at))) && at;
}

// Unread bytes, up to an urgent one that is not in line.
uint64_t unread_bytes(int fd) {
  int out = 0;
  return sys::failed(sys::call(SYS_ioctl, fd, 0x541B /* SIOCINQ */, sys::ptr(&out))) || out < 0
             ? 0
             : static_cast<uint64_t>(out);
}

// A message with room for `count` bytes. Null: it does not fit, which is told at the end.
void* put_room(FdTable* t, const FdTable::SocketSeen& seen, uint64_t count) {
  Message out{};
  out.socket = seen.s.index;
  out.bytes = static_cast<uint32_t>(count);
  t->r->begin(kRecMessage);
  t->r->add(&out, sizeof(out));
  void* room = t->r->reserve(count);
  t->r->end();
  return room;
}

long peek_bytes(int fd, void* room, uint64_t count) {
  return sys::call(SYS_recvfrom, fd, sys::ptr(room), static_cast<long>(count),
                   MSG_PEEK | MSG_DONTWAIT, 0, 0);
}

bool refuse_short(FdTable* t, const FdTable::SocketSeen& seen) {
  return t->c->refuse_for_now(
      "the unread data of descriptor %d (TCP) cannot be read as a whole; try again", seen.fd);
}

// `count` unread bytes from where a look begins.
bool put_bytes(FdTable* t, const FdTable::SocketSeen& seen, uint64_t count) {
  void* room = put_room(t, seen, count);
  if (!room) return true;
  return peek_bytes(seen.fd, room, count) == static_cast<long>(count) || refuse_short(t, seen);
}

// Where a look begins; -1: at the first byte (as without the option, before Linux 6.9).
int begin_of_look(int fd) {
  int begins = -1;
  uint32_t size = sizeof(begins);
  return sys::failed(get_option(fd, SOL_SOCKET, SO_PEEK_OFF, &begins, &size)) ? -1 : begins;
}

// From `offset` on (-1: from the first one).
bool put_stream(FdTable* t, const FdTable::SocketSeen& seen, int offset, uint64_t count) {
  if (!count) return true;
  if (begin_of_look(seen.fd) == offset) return put_bytes(t, seen, count);
  SwitchedOption position(seen.fd, SOL_SOCKET, SO_PEEK_OFF, offset);
  if (!position.ok)
    return t->c->refuse_for_now(
        "descriptor %d is a TCP connection with unread bytes behind an urgent one (MSG_OOB), which "
        "this kernel does not show; try again when they are read",
        seen.fd);
  return put_bytes(t, seen, count);
}

bool put_urgent(FdTable* t, const FdTable::SocketSeen& seen) {
  const int fd = seen.fd;
  char urgent;
  uint64_t before, all;
  bool has_urgent;
  {
    SwitchedOption out_of_line(fd, SOL_SOCKET, SO_OOBINLINE, 0);
    before = unread_bytes(fd);
    has_urgent = urgent_byte(fd, &urgent);
  }
  SwitchedOption in_line(fd, SOL_SOCKET, SO_OOBINLINE, 1);
  all = unread_bytes(fd);
  if (!has_urgent || before >= all) return put_stream(t, seen, -1, all);
  if (!put_stream(t, seen, -1, before)) return false;
  Message out{};
  out.socket = seen.s.index;
  out.bytes = 1;
  out.flags = kMessageUrgent;
  t->r->begin(kRecMessage);
  t->r->add(&out, sizeof(out));
  t->r->add(&urgent, 1);
  t->r->end();
  return put_stream(t, seen, static_cast<int>(before) + 1, all - before - 1);
}

// Has it data that is not sent? A device takes a moment.
bool holds_back(int fd) {
  int waiting = 0;
  for (int tries = 0; tries < 20; ++tries) {
    if (sys::failed(sys::call(SYS_ioctl, fd, 0x5411 /* SIOCOUTQ */, sys::ptr(&waiting))) ||
        !waiting)
      return false;
    sys::sleep_us(500);
  }
  return true;
}

}  // namespace

uint64_t expected_socket_records() {
  constexpr uint64_t kOfOne = 2048;        // with its options
  constexpr int kMostAbsentInARow = 1024;  // numbers of descriptors
  uint64_t out = 0;
  for (int fd = 0, absent = 0; absent < kMostAbsentInARow; ++fd) {
    struct stat st;
    const bool there = !sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st)));
    absent = there ? 0 : absent + 1;
    if (there && S_ISSOCK(st.st_mode)) out += kOfOne + unread_bytes(fd);
  }
  return out;
}

// Of two messages of a stream, one after the other: only a byte that is or was urgent ends the
// first one where all else is alike.
static bool would_be_read_at_once(const Peeked& a, const Peeked& b) {
  return !a.passed_count && !b.passed_count && static_cast<uint64_t>(a.bytes) < kMessageRoom &&
         a.credentials[0] == b.credentials[0] && a.credentials[1] == b.credentials[1] &&
         a.credentials[2] == b.credentials[2];
}

bool put_unix_queue(FdTable* t, FdTable::SocketSeen* seen, char* room) {
  const int fd = seen->fd;
  if (!has_no_hidden_message(t, *seen)) return false;
  uint64_t left;
  if (!spares_error(t, *seen, &left)) return false;
  // Whether there is an urgent byte is told only while it is not part of the stream, and where it
  // is only while it is: then it begins a message.
  char urgent = 0;
  bool has_urgent = false;
  if (seen->s.type == SOCK_STREAM && left) {
    SwitchedOption out_of_line(fd, SOL_SOCKET, SO_OOBINLINE, 0);
    has_urgent = urgent_byte(fd, &urgent);
  }
  SwitchedOption position(fd, SOL_SOCKET, SO_PEEK_OFF, 0);
  if (!position.ok)
    return t->c->refuse("the unread data of descriptor %d (unix socket) cannot be read", fd);
  const bool stream = seen->s.type == SOCK_STREAM;
  bool marked = stream && left && !has_urgent && is_at_mark(fd);
  SwitchedOption in_line(fd, SOL_SOCKET, SO_OOBINLINE, 1);
  SwitchedOption credentials(fd, SOL_SOCKET, SO_PASSCRED, 1);
  Peeked p, last{};
  bool ok = true;
  for (int n = 0; ok && left; ++n) {
    peek(fd, seen->s, room, &p);
    if (p.bytes < 0 || (p.bytes == 0 && seen->s.type == SOCK_STREAM)) break;
    // End of file of a sequenced socket looks like an empty message.
    if (p.bytes == 0 && seen->s.type == SOCK_SEQPACKET && (seen->shut_down & 1) && !p.has_control)
      break;
    if ((p.flags & (MSG_TRUNC | MSG_CTRUNC)) || n > kMostMessages) {
      ok = t->c->refuse("descriptor %d is a unix socket with a message that is too large to keep",
                        fd);
      break;
    }
    if (p.bytes == 0) empty_messages.note(seen->ino);
    left -= static_cast<uint64_t>(p.bytes) < left ? static_cast<uint64_t>(p.bytes) : left;
    if (device_plugin && device_plugin->shareable(room, static_cast<uint64_t>(p.bytes))) {
      for (uint32_t i = 0; i < p.passed_count; ++i) sys::close(p.passed[i]);
      if (ok && seen->peer == 0)
        ok = t->c->refuse(
            "descriptor %d is a shareable handle (cuMemExportToShareableHandle) of a process that "
            "has ended; close it",
            fd);
      continue;
    }
    if (!capture_passed(t, &p)) {
      ok = false;
      break;
    }
    const bool is_urgent = has_urgent && *room == urgent && !last.passed_count &&
                           (n == 0 || (last.credentials[0] == p.credentials[0] &&
                                       last.credentials[1] == p.credentials[1]));
    marked |= stream && n && would_be_read_at_once(last, p) && !is_urgent;
    uint64_t done = 0;
    if (is_urgent) {
      has_urgent = false;
      put_message(t, seen->s.index, p, room, 1, kMessageUrgent);
      p.passed_count = 0;
      done = 1;
    }
    if (!done || p.bytes > 1)
      put_message(t, seen->s.index, p, room + done, static_cast<uint64_t>(p.bytes) - done,
                  marked && !done ? kMessageMarked + 0u : 0u);
    marked = false;
    last = p;
  }
  return ok;
}

bool put_tcp_queue(FdTable* t, FdTable::SocketSeen* seen_here) {
  const FdTable::SocketSeen& seen = *seen_here;
  const Socket& s = seen.s;
  if (s.state != kSocketConnection && s.state != kSocketPeerGone && s.state != kSocketReset)
    return true;
  const bool urgent = s.state == kSocketConnection ? seen.tcp.urgent : polls(seen.fd, POLLPRI);
  if (urgent) return put_urgent(t, seen);
  const uint64_t count = unread_bytes(seen.fd);
  if (!count || begin_of_look(seen.fd) != -1) return put_stream(t, seen, -1, count);
  seen_here->unread_room = put_room(t, seen, count);
  seen_here->unread = count;
  return true;
}

// Not before the stop, when it would cost the program no time: if the program takes the last byte
// and a reset arrives just before a look, the look takes the error, and the program sees a clean
// end.
bool read_tcp_queues(FdTable* t) {
  std::atomic<uint32_t> failed{~0u};
  share_work(t->sockets, 8, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const FdTable::SocketSeen& seen = t->socket[i];
      if (seen.unread_room &&
          peek_bytes(seen.fd, seen.unread_room, seen.unread) != static_cast<long>(seen.unread))
        failed = i;
    }
  });
  const uint32_t i = failed;
  return i == ~0u || refuse_short(t, t->socket[i]);
}

bool put_udp_queue(FdTable* t, const FdTable::SocketSeen& seen, char* room) {
  const int fd = seen.fd;
  if (holds_back(fd))
    return t->c->refuse_for_now(
        "descriptor %d is a UDP socket with data that is held back (UDP_CORK, MSG_MORE) or on its "
        "way to a device; try again when it is sent",
        fd);
  uint64_t left;
  if (!has_no_hidden_message(t, seen) || !spares_error(t, seen, &left)) return false;
  if (!left) return true;
  SwitchedOption position(fd, SOL_SOCKET, SO_PEEK_OFF, 0);
  if (!position.ok) {
    if (polls(fd, POLLIN))
      add_warning("descriptor %d is a UDP socket; a restore drops its unread datagrams", fd);
    return true;
  }
  SwitchedOption v4(fd, IPPROTO_IP, 20 /* IP_RECVORIGDSTADDR */, 1);
  SwitchedOption v6(fd, IPPROTO_IPV6, 74 /* IPV6_RECVORIGDSTADDR */, 1);
  Peeked p;
  for (int n = 0; n < kMostMessages; ++n) {
    peek(fd, seen.s, room, &p);
    if (p.bytes < 0) break;
    if (p.bytes == 0) empty_messages.note(seen.ino);
    const uint64_t bytes = static_cast<uint64_t>(p.bytes), step = p.segment ? p.segment : bytes;
    uint64_t at = 0;
    do {
      const uint64_t part = bytes - at < step ? bytes - at : step;
      put_message(t, seen.s.index, p, room + at, part, 0);
      at += part;
    } while (at < bytes);
  }
  return true;
}

}  // namespace gpuckpt
