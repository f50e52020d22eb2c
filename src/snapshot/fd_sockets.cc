// Sockets: who they are, what is set, what waits in them unread, and who is at the other end.
//
// Inside the program everything comes back: pairs, named Unix sockets, messages with their
// boundaries and the descriptors on their way in them. Listening and bound network sockets are
// bound again. A network connection to another process cannot go on and comes back as reset by the
// peer; a Unix connection to another process is refused, or with GPUCKPT_SOCKETS=drop comes back
// closed at the other end.

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/syscall.h"
#include "common/text.h"
#include "snapshot/descriptors.h"
#include "snapshot/device_plugin.h"
#include "snapshot/inherited.h"
#include "snapshot/state.h"
#include "snapshot/team.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr uint64_t kUnknownPeer = ~0ull;
constexpr uint64_t kRoom = 4 << 20;  // for one message

const struct {
  int level, name;
} kOptions[] = {
    {SOL_SOCKET, SO_REUSEADDR},
    {SOL_SOCKET, SO_REUSEPORT},
    {SOL_SOCKET, SO_KEEPALIVE},
    {SOL_SOCKET, SO_BROADCAST},
    {SOL_SOCKET, SO_SNDBUF},
    {SOL_SOCKET, SO_RCVBUF},
    {SOL_SOCKET, SO_RCVLOWAT},
    {SOL_SOCKET, SO_PRIORITY},
    {SOL_SOCKET, SO_OOBINLINE},
    {SOL_SOCKET, SO_DONTROUTE},
    {SOL_SOCKET, SO_PASSCRED},
    {SOL_SOCKET, SO_PASSSEC},
    {SOL_SOCKET, SO_TIMESTAMP},
    {SOL_SOCKET, SO_TIMESTAMPNS},
    {SOL_SOCKET, SO_LINGER},
    {SOL_SOCKET, SO_RCVTIMEO},
    {SOL_SOCKET, SO_SNDTIMEO},
    {SOL_SOCKET, SO_RXQ_OVFL},
    {SOL_SOCKET, SO_BUSY_POLL},
    {SOL_SOCKET, SO_ZEROCOPY},
    {SOL_SOCKET, SO_MARK},
    {SOL_SOCKET, SO_PEEK_OFF},
    {IPPROTO_TCP, TCP_NODELAY},
    {IPPROTO_TCP, TCP_CORK},
    {IPPROTO_TCP, TCP_KEEPIDLE},
    {IPPROTO_TCP, TCP_KEEPINTVL},
    {IPPROTO_TCP, TCP_KEEPCNT},
    {IPPROTO_TCP, TCP_SYNCNT},
    {IPPROTO_TCP, TCP_LINGER2},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT},
    {IPPROTO_TCP, TCP_USER_TIMEOUT},
    {IPPROTO_TCP, TCP_FASTOPEN},
    {IPPROTO_TCP, TCP_CONGESTION},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT},
    {IPPROTO_TCP, TCP_WINDOW_CLAMP},
    {IPPROTO_IP, IP_TOS},
    {IPPROTO_IP, IP_TTL},
    {IPPROTO_IP, IP_MULTICAST_TTL},
    {IPPROTO_IP, IP_MULTICAST_LOOP},
    {IPPROTO_IP, IP_PKTINFO},
    {IPPROTO_IP, IP_FREEBIND},
    {IPPROTO_IP, IP_RECVERR},
    {IPPROTO_IP, IP_MTU_DISCOVER},
    {IPPROTO_IPV6, IPV6_V6ONLY},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS},
    {IPPROTO_IPV6, IPV6_TCLASS},
    {IPPROTO_IPV6, IPV6_RECVPKTINFO},
    {IPPROTO_IPV6, IPV6_MULTICAST_HOPS},
    {IPPROTO_IP, IP_HDRINCL},
    {SOL_RAW, 1 /* ICMP_FILTER */},
    {IPPROTO_ICMPV6, 1 /* ICMPV6_FILTER */},
    {SOL_NETLINK, NETLINK_PKTINFO},
    {SOL_NETLINK, NETLINK_BROADCAST_ERROR},
    {SOL_NETLINK, NETLINK_NO_ENOBUFS},
    {SOL_NETLINK, NETLINK_LISTEN_ALL_NSID},
    {SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS},
    {SOL_NETLINK, NETLINK_CAP_ACK},
    {SOL_NETLINK, NETLINK_EXT_ACK},
    {SOL_NETLINK, NETLINK_GET_STRICT_CHK},
    {SOL_PACKET, PACKET_AUXDATA},
    {SOL_PACKET, PACKET_ORIGDEV},
    {SOL_PACKET, PACKET_VERSION},
    {SOL_PACKET, PACKET_RESERVE},
    {SOL_PACKET, PACKET_LOSS},
    {SOL_PACKET, PACKET_VNET_HDR},
    {SOL_PACKET, PACKET_TIMESTAMP},
};

bool applies(int level, const Socket& s) {
  const bool net = s.domain == AF_INET || s.domain == AF_INET6;
  if (level == IPPROTO_TCP) return net && s.type == SOCK_STREAM;
  if (level == IPPROTO_IP) return net;
  if (level == IPPROTO_IPV6) return s.domain == AF_INET6;
  if (level == SOL_RAW) return s.domain == AF_INET && s.type == SOCK_RAW;
  if (level == IPPROTO_ICMPV6) return s.domain == AF_INET6 && s.type == SOCK_RAW;
  if (level == SOL_NETLINK) return s.domain == AF_NETLINK;
  if (level == SOL_PACKET) return s.domain == AF_PACKET;
  return true;
}

long get_option(int fd, int level, int name, void* to, uint32_t* size) {
  return sys::call(SYS_getsockopt, fd, level, name, sys::ptr(to), sys::ptr(size));
}
int int_option(int fd, int level, int name) {
  int value = 0;
  uint32_t size = sizeof(value);
  return sys::failed(get_option(fd, level, name, &value, &size)) ? 0 : value;
}

uint32_t address(long call, int fd, uint8_t* to) {
  uint32_t size = 128;
  return sys::failed(sys::call(call, fd, sys::ptr(to), sys::ptr(&size))) ? 0
         : size < 128                                                    ? size
                                                                         : 128;
}

// What the kernel keeps for such a socket, and cannot be asked for.
const char* special(int fd, const Socket& s) {
  if (s.domain == AF_NETLINK)
    return s.protocol == NETLINK_ROUTE || s.protocol == NETLINK_SOCK_DIAG ||
                   s.protocol == NETLINK_USERSOCK || s.protocol == NETLINK_KOBJECT_UEVENT ||
                   s.protocol == NETLINK_GENERIC
               ? nullptr
               : "a netlink socket of a kind that cannot be put back";
  if (s.domain == AF_PACKET)
    return int_option(fd, SOL_PACKET, PACKET_FANOUT) ? "a packet socket of a group (fanout)"
                                                     : nullptr;
  return s.domain == AF_UNIX || s.domain == AF_INET || s.domain == AF_INET6
             ? nullptr
             : "a socket of an address family that cannot be put back";
}

bool network(const Socket& s) { return s.domain == AF_INET || s.domain == AF_INET6; }

// A port that was given or asked for.
bool has_name(const Socket& s) {
  if (s.domain == AF_UNIX) return s.name_bytes > 2;
  if (network(s)) return s.name_bytes >= 4 && (s.name[2] || s.name[3]);
  sockaddr_storage empty{};
  empty.ss_family = static_cast<sa_family_t>(s.domain);
  return s.name_bytes > 2 &&
         __builtin_memcmp(s.name + 2, reinterpret_cast<char*>(&empty) + 2, s.name_bytes - 2) != 0;
}

// A closed connection is shut down both ways, a fresh socket is not.
bool was_connected(int fd) {
  pollfd p{fd, POLLRDHUP, 0};
  sys::Timespec none{0, 0};
  return sys::call(SYS_ppoll, sys::ptr(&p), 1, sys::ptr(&none), 0, 8) > 0 &&
         (p.revents & POLLRDHUP);
}

// A packet filter. False: one that cannot be read (BPF).
bool put_filter(FdTable* t, const FdTable::SocketSeen& seen) {
  uint32_t count = 0;
  const long r = get_option(seen.fd, SOL_SOCKET, SO_GET_FILTER, nullptr, &count);
  if (!sys::failed(r) && !count) return true;
  static sock_filter filter[4096];
  if (sys::failed(r) || count > 4096 ||
      sys::failed(get_option(seen.fd, SOL_SOCKET, SO_GET_FILTER, filter, &count)))
    return t->c->refuse(
        "descriptor %d is a socket with a packet filter that cannot be read; detach it or close it",
        seen.fd);
  SocketFilter head{seen.s.index,
                    static_cast<uint32_t>(int_option(seen.fd, SOL_SOCKET, SO_LOCK_FILTER))};
  t->r->begin(kRecFilter, count);
  t->r->add(&head, sizeof(head));
  t->r->add(filter, count * sizeof(filter[0]));
  t->r->end();
  return true;
}

// An answer of the kernel's that nobody has read will not come again.
bool is_quiet(FdTable* t, const FdTable::SocketSeen& seen) {
  if (seen.s.domain != AF_NETLINK) return true;
  char byte;
  const long n =
      sys::call(SYS_recvfrom, seen.fd, sys::ptr(&byte), 1, MSG_PEEK | MSG_DONTWAIT, 0, 0);
  return sys::failed(n) ||
         t->c->refuse_for_now("descriptor %d is a netlink socket with unread messages", seen.fd);
}

void put_socket(FdTable* t, const FdTable::SocketSeen& seen) {
  t->r->begin(kRecSocket);
  t->r->add(&seen.s, sizeof(seen.s));
  uint32_t n = 0;
  for (const auto& o : kOptions) {
    if (!applies(o.level, seen.s)) continue;
    SocketOption out{o.level, o.name, sizeof(out.value), {}};
    if (sys::failed(get_option(seen.fd, o.level, o.name, out.value, &out.bytes))) continue;
    t->r->add(&out, sizeof(out));
    ++n;
  }
  t->r->end(n);
}

// --- what is queued
// ----------------------------------------------------------------------------------------------------

// A look at message after message without taking any (SO_PEEK_OFF). Peeking at passed descriptors
// makes duplicates of them here: they are captured like all others, marked as in flight, and closed
// when the capture is over.
bool put_queue(FdTable* t, FdTable::SocketSeen* seen, char* room) {
  int fd = seen->fd;
  int before = -1, start = 0;
  uint32_t size = 4;
  get_option(fd, SOL_SOCKET, SO_PEEK_OFF, &before, &size);
  if (sys::failed(sys::call(SYS_setsockopt, fd, SOL_SOCKET, SO_PEEK_OFF, sys::ptr(&start), 4)))
    return t->c->refuse("the unread data of descriptor %d (unix socket) cannot be read", fd);
  bool ok = true;
  for (int n = 0; ok; ++n) {
    iovec io{room, kRoom};
    alignas(cmsghdr) static char control[2048];
    msghdr m{};
    m.msg_iov = &io, m.msg_iovlen = 1;
    m.msg_control = control, m.msg_controllen = sizeof(control);
    char sender[128];
    if (seen->s.type == SOCK_DGRAM) m.msg_name = sender, m.msg_namelen = sizeof(sender);
    long got = sys::call(SYS_recvmsg, fd, sys::ptr(&m), MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 || (got == 0 && seen->s.type == SOCK_STREAM)) break;
    // End of file of a sequenced socket looks like an empty message.
    if (got == 0 && seen->s.type == SOCK_SEQPACKET && (seen->shut_down & 1) && !m.msg_controllen)
      break;
    if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || n > 100000) {
      ok = t->c->refuse("descriptor %d is a unix socket with a message that is too large to keep",
                        fd);
      break;
    }
    int passed[256];
    uint32_t count = 0;
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        for (size_t at = CMSG_LEN(0); at + 4 <= c->cmsg_len && count < 256; at += 4)
          __builtin_memcpy(&passed[count++], reinterpret_cast<char*>(c) + at, 4);
    if (device_plugin && device_plugin->shareable(room, static_cast<uint64_t>(got))) {
      for (uint32_t i = 0; i < count; ++i) sys::close(passed[i]);
      if (ok && seen->peer == 0)
        ok = t->c->refuse(
            "descriptor %d is a shareable handle (cuMemExportToShareableHandle) of a process that "
            "has ended; close it",
            fd);
      continue;
    }
    for (uint32_t i = 0; i < count; ++i) {
      if (const Descriptor* owner = t->owner_of(passed[i])) {
        sys::close(passed[i]);
        passed[i] = owner->description;
      } else if (ok) {
        ok = capture_fd(t, passed[i], kFdInFlight);
        if (ok) passed[i] = t->all[t->count - 1].description;
      }
    }
    const uint32_t name_bytes = m.msg_namelen > 2 ? m.msg_namelen : 0;
    Message out{seen->s.index, static_cast<uint32_t>(got), count, name_bytes};
    t->r->begin(kRecMessage);
    t->r->add(&out, sizeof(out));
    t->r->add(passed, count * sizeof(passed[0]));
    t->r->add(sender, name_bytes);
    t->r->add(room, static_cast<uint64_t>(got));
    t->r->end();
  }
  sys::call(SYS_setsockopt, fd, SOL_SOCKET, SO_PEEK_OFF, sys::ptr(&before), 4);
  return ok;
}

// --- who is at the other end
// -------------------------------------------------------------------------------------------

template <typename T>
T load(const char* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(value));
  return value;
}

// Those that have connected to listening socket `listener` and are not accepted yet, in order.
void note_waiting(FdTable* t, uint32_t listener, const char* inodes, uint32_t count) {
  uint32_t lost = count;
  for (uint32_t place = 0; place < count; ++place)
    for (uint32_t i = 0; i < t->sockets; ++i)
      if (t->socket[i].ino == load<uint32_t>(inodes + size_t{place} * 4) &&
          t->socket[i].s.domain == AF_UNIX) {
        t->socket[i].waits = listener + 1, t->socket[i].place = place;
        --lost;
      }
  if (lost)
    log_line(LogLevel::kWarn,
             "%u connections to descriptor %d, not accepted yet, come from other processes or were "
             "closed: a restore has them not",
             lost, t->socket[listener].fd);
}

// Only sock_diag tells: which unix sockets are each other's peers, what is shut down, backlogs.
void ask_diag(FdTable* t) {
  long s = sys::call(SYS_socket, 16 /* AF_NETLINK */, SOCK_RAW | SOCK_CLOEXEC,
                     4 /* NETLINK_SOCK_DIAG */);
  if (sys::failed(s)) return;
  struct {
    uint32_t len;
    uint16_t type, flags;
    uint32_t seq, pid;
    uint8_t family, protocol;
    uint16_t pad;
    uint32_t states, ino, show, cookie[2];
  } request{40,        20, 0x301, 1, 0, AF_UNIX, 0, 0, ~0u, 0, 4 | 8 | 16 /* PEER, ICONS, RQLEN */,
            {~0u, ~0u}};
  sys::call(SYS_sendto, s, sys::ptr(&request), sizeof(request), 0, 0, 0);
  static char buffer[32768];
  bool more = true;
  while (more) {
    long n = sys::call(SYS_recvfrom, s, sys::ptr(buffer), sizeof(buffer), 0, 0, 0);
    if (n <= 0) break;
    for (long at = 0; at + 16 <= n;) {
      uint32_t len = load<uint32_t>(buffer + at);
      uint16_t type = load<uint16_t>(buffer + at + 4);
      if (len < 16 || type == 3 || type == 2) {
        more = false;
        break;
      }
      uint32_t ino = load<uint32_t>(buffer + at + 16 + 4);
      for (uint32_t i = 0; i < t->sockets; ++i) {
        FdTable::SocketSeen& seen = t->socket[i];
        if (seen.ino != ino || seen.s.domain != AF_UNIX) continue;
        for (long a = at + 16 + 16; a + 4 <= at + len;) {
          uint16_t alen = load<uint16_t>(buffer + a), atype = load<uint16_t>(buffer + a + 2);
          if (alen < 4) break;
          if (atype == 2 /* PEER */) seen.peer = load<uint32_t>(buffer + a + 4);
          if (atype == 3 /* ICONS */) note_waiting(t, i, buffer + a + 4, (alen - 4u) / 4);
          if (atype == 4 /* RQLEN */ && seen.s.state == kSocketListening)
            seen.s.backlog = static_cast<int>(load<uint32_t>(buffer + a + 8));
          if (atype == 6 /* SHUTDOWN */) seen.shut_down = load<uint8_t>(buffer + a + 4);
          a += (alen + 3) & ~3;
        }
      }
      at += (len + 3) & ~3u;
    }
  }
  sys::close(static_cast<int>(s));
}

// What it has sent lies where only accept() leads.
bool join_waiting(FdTable* t, FdTable::SocketSeen* seen) {
  int unread = 0;
  sys::call(SYS_ioctl, seen->fd, 0x5411 /* SIOCOUTQ */, sys::ptr(&unread));
  if (unread)
    return t->c->refuse_for_now(
        "descriptor %d has sent to %s, which has not accepted it yet; try again when it has",
        seen->fd,
        seen->s.peer_name[2] ? reinterpret_cast<char*>(seen->s.peer_name) + 2
                             : "a listening socket");
  seen->s.state = kSocketWaiting;
  seen->s.accepted = static_cast<int>(seen->waits) - 1;
  seen->s.peer = seen->place;
  return true;
}

bool join_unix(FdTable* t, FdTable::SocketSeen* seen) {
  Socket& s = seen->s;
  s.shut_down = seen->shut_down;
  if (s.state != kSocketPair) return true;
  for (uint32_t j = 0; j < t->sockets; ++j)
    if (t->socket[j].ino == seen->peer && t->socket[j].s.state == kSocketPair) {
      s.peer = j;
      note_end(t, seen->fd, Board::kSocket, seen->ino, seen->peer, false);
      // One end of a connection has the name of the listening socket it came out of.
      s.accepted = -1;
      for (uint32_t k = 0; k < t->sockets && s.name_bytes > 2; ++k)
        if (t->socket[k].s.state == kSocketListening && t->socket[k].s.name_bytes == s.name_bytes &&
            __builtin_memcmp(t->socket[k].s.name, s.name, s.name_bytes) == 0)
          s.accepted = static_cast<int>(k);
      return true;
    }
  const bool not_accepted = seen->peer == 0 && s.type != SOCK_DGRAM && !(seen->shut_down & 1);
  if (not_accepted && seen->waits && !t->drop_outside) return join_waiting(t, seen);
  if (seen->peer == 0 && (!not_accepted || t->drop_outside)) {
    s.state = kSocketPeerGone;
    return true;
  }
  if (s.type == SOCK_DGRAM && s.peer_name_bytes > 2) {  // syslog
    s.state = kSocketConnected;
    return true;
  }
  const bool accepted =
      t->drop_outside || inherited(seen->fd, seen->ino, team.has_others() ? nullptr : "socket");
  if (seen->peer != kUnknownPeer &&
      note_end(t, seen->fd, Board::kSocket, seen->ino, seen->peer, !accepted)) {
    if (accepted) s.state = kSocketPeerGone;  // unless the other end turns up
    t->r->put(kRecPeer, SocketPeer{s.index, 0, seen->peer});
    return true;
  }
  if (accepted) {
    s.state = kSocketPeerGone;
    return true;
  }
  t->c->refuse(
      "descriptor %d is a unix socket%s%s whose other end is in another process or not accepted "
      "yet; close it, or set GPUCKPT_SOCKETS=drop: then a restore finds it closed at the other end",
      seen->fd, s.peer_name_bytes > 3 && s.peer_name[2] ? " connected to " : "",
      s.peer_name_bytes > 3 && s.peer_name[2] ? reinterpret_cast<const char*>(s.peer_name) + 2
                                              : "");
  if (not_accepted) t->c->code = kRefusedForNow;
  return false;
}

}  // namespace

bool capture_socket(FdTable* t, Descriptor* d) {
  d->kind = kFdSocket;
  for (uint32_t i = 0; i < t->sockets; ++i)
    if (t->socket[i].ino == d->ino) {
      d->object = static_cast<int>(i);
      return true;
    }
  if (t->sockets == sizeof(t->socket) / sizeof(t->socket[0]))
    return t->c->refuse("more than %u sockets are open", t->sockets);
  FdTable::SocketSeen& seen = t->socket[t->sockets];
  Socket& s = seen.s;
  seen.ino = s.ino = d->ino;
  seen.peer = kUnknownPeer;
  seen.fd = d->fd;
  s.index = t->sockets;
  s.peer = ~0u;
  s.accepted = -1;
  s.domain = int_option(d->fd, SOL_SOCKET, SO_DOMAIN);
  s.type = int_option(d->fd, SOL_SOCKET, SO_TYPE);
  s.protocol = int_option(d->fd, SOL_SOCKET, SO_PROTOCOL);
  s.name_bytes = address(SYS_getsockname, d->fd, s.name);
  s.peer_name_bytes = address(SYS_getpeername, d->fd, s.peer_name);
  if (const char* what = special(d->fd, s))
    return t->c->refuse("descriptor %d is %s (family %d, protocol %d); close it", d->fd, what,
                        s.domain, s.protocol);
  // Of a netlink socket that is not connected, too, the kernel says that it is.
  if (s.domain == AF_NETLINK && !load<uint64_t>(reinterpret_cast<char*>(s.peer_name) + 4))
    s.peer_name_bytes = 0;
  tcp_info info{};
  uint32_t size = sizeof(info);
  const bool tcp = network(s) && s.type == SOCK_STREAM &&
                   !sys::failed(get_option(d->fd, IPPROTO_TCP, TCP_INFO, &info, &size));
  if (int_option(d->fd, SOL_SOCKET, SO_ACCEPTCONN)) {
    s.state = kSocketListening;
    s.backlog = tcp ? static_cast<int>(info.tcpi_sacked) : 128;
  } else if (tcp && (info.tcpi_state != TCP_CLOSE || was_connected(d->fd))) {
    s.state = kSocketReset;
    log_line(LogLevel::kInfo, "descriptor %d is a connection to outside; a restore finds it reset",
             d->fd);
  } else if (s.domain == AF_UNIX && s.peer_name_bytes) {
    s.state = kSocketPair;
  } else if (s.peer_name_bytes) {
    s.state = kSocketConnected;
  } else {
    s.state = has_name(s) ? kSocketBound : kSocketFresh;
  }
  if (s.domain == AF_UNIX && s.name_bytes > 3 && s.name[2]) {
    struct stat st;
    if (!sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(s.name + 2), sys::ptr(&st), 0)))
      s.mode = st.st_mode;
  }
  d->object = static_cast<int>(t->sockets++);
  return true;
}

bool put_sockets(FdTable* t) {
  if (!t->sockets) return true;
  ask_diag(t);
  Region room = scratch_map(kRoom);
  if (!room) return t->c->refuse("no memory for the contents of sockets");
  bool ok = true;
  // The list grows when sockets are themselves on their way.
  for (uint32_t i = 0; ok && i < t->sockets; ++i) {
    FdTable::SocketSeen& seen = t->socket[i];
    if (seen.s.domain != AF_UNIX || seen.s.state == kSocketListening ||
        seen.s.state == kSocketFresh)
      continue;
    uint32_t before = t->sockets;
    ok = put_queue(t, &seen, room.data());
    if (ok && t->sockets != before) ask_diag(t);
  }
  for (uint32_t i = 0; ok && i < t->sockets; ++i)
    if (t->socket[i].s.domain == AF_UNIX) ok = join_unix(t, &t->socket[i]);
  for (uint32_t i = 0; ok && i < t->sockets; ++i) {
    ok = is_quiet(t, t->socket[i]);
    put_socket(t, t->socket[i]);
    ok = ok && put_filter(t, t->socket[i]);
  }
  scratch_unmap(&room);
  return ok;
}

}  // namespace gpuckpt
