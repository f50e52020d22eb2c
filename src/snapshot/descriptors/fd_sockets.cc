// Sockets: their identity, their options, their unread data, and the socket at the other end.
//
// Inside the snapshot everything comes back: pairs, named Unix sockets, messages with their
// boundaries and the descriptors on their way in them, TCP connections (tcp_ends.h). Listening
// and bound network sockets are bound again. What becomes of connections to other processes is the
// user's choice (OutsideConnections).

#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <atomic>

#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/hard_link.h"
#include "snapshot/descriptors/sockets.h"
#include "snapshot/descriptors/tcp_ends.h"
#include "snapshot/descriptors/unreadable_options.h"
#include "snapshot/job/barrier.h"
#include "snapshot/park/shared_work.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr uint64_t kUnknownPeer = ~0ull;
constexpr int kMptcp = 262;

uint32_t address(long call, int fd, uint8_t* to) {
  uint32_t size = 128;
  return sys::failed(sys::call(call, fd, sys::ptr(to), sys::ptr(&size))) ? 0
         : size < 128                                                    ? size
                                                                         : 128;
}

template <typename T>
T load(const uint8_t* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(value));
  return value;
}

bool known_protocol(const Socket& s) {
  switch (s.type) {
    case SOCK_STREAM:
      return s.protocol == IPPROTO_TCP || s.protocol == kMptcp;
    case SOCK_DGRAM:
      return s.protocol == IPPROTO_UDP || s.protocol == IPPROTO_UDPLITE ||
             s.protocol == IPPROTO_ICMP || s.protocol == IPPROTO_ICMPV6;
    default:
      return s.type == SOCK_RAW;
  }
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
  if (is_network(s) && !known_protocol(s)) return "a socket of a protocol that cannot be put back";
  return s.domain == AF_UNIX || is_network(s)
             ? nullptr
             : "a socket of an address family that cannot be put back";
}

// An address or a port that was given or asked for (IP_BIND_ADDRESS_NO_PORT leaves the port 0).
bool has_name(const Socket& s) {
  if (s.domain == AF_UNIX) return s.name_bytes > 2;
  sockaddr_storage empty{};
  empty.ss_family = static_cast<sa_family_t>(s.domain);
  return s.name_bytes > 2 &&
         __builtin_memcmp(s.name + 2, reinterpret_cast<char*>(&empty) + 2, s.name_bytes - 2) != 0;
}

// A closed connection is shut down both ways, a fresh socket is not.
bool was_connected(int fd) { return polls(fd, POLLRDHUP); }

// What is unread or pending and cannot be kept: an answer of the kernel's will not come again;
// packets and errors are dropped, as a network may do, and the user is told.
bool note_lost(FdTable* t, const FdTable::SocketSeen& seen) {
  const Socket& s = seen.s;
  const bool raw = s.domain == AF_PACKET || s.domain == AF_NETLINK ||
                   (is_network(s) && s.type != SOCK_STREAM && !is_udp(s));
  const bool unread = raw && polls(seen.fd, POLLIN);
  if (unread && s.domain == AF_NETLINK)
    return t->c->refuse_for_now("descriptor %d is a netlink socket with unread messages", seen.fd);
  if (unread)
    add_warning("descriptor %d is a %s socket with unread packets; a restore drops them", seen.fd,
                s.domain == AF_PACKET ? "packet" : "raw");
  if (is_network(s) && s.type != SOCK_STREAM && polls(seen.fd, POLLERR))
    add_warning(
        "descriptor %d is a %s socket with a pending error (SO_ERROR, MSG_ERRQUEUE); a restore "
        "drops it",
        seen.fd, is_udp(s) ? "UDP" : "raw");
  if (s.state == kSocketConnection && seen.tcp.error)
    add_warning(
        "descriptor %d is a TCP connection with notifications that are not read (MSG_ERRQUEUE); a "
        "restore drops them",
        seen.fd);
  return true;
}

void note_credentials(int fd, Socket* s) {
  struct {
    int32_t pid;
    uint32_t uid, gid;
  } peer{};
  uint32_t size = sizeof(peer);
  if (s->domain != AF_UNIX || sys::failed(get_option(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)))
    return;
  s->peer_pid = peer.pid, s->peer_uid = peer.uid, s->peer_gid = peer.gid;
}

bool file_at(const char* path, struct stat* st) {
  return !sys::failed(
      sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(st), AT_SYMLINK_NOFOLLOW));
}

// A server that others may not find half ready binds a name of its own, and gives the file its name
// when it listens (haproxy).
bool find_moved(FdTable* t, FdTable::SocketSeen* seen, struct stat* st) {
  constexpr uint32_t kMostSearches = 32;  // 2 ms of the stop each, where nothing is found
  const Socket& s = seen->s;
  const bool is_end =
      s.type != SOCK_DGRAM && s.state != kSocketListening && s.state != kSocketBound;
  if (is_end || !seen->name_ino || !seen->name_dev || t->moved_names++ >= kMostSearches)
    return false;
  char path[4097], folder[3800] = "";
  const auto* name = reinterpret_cast<const char*>(s.name) + 2;
  if (*name != '/' &&
      (sys::failed(sys::call(SYS_getcwd, sys::ptr(folder), sizeof(folder))) || folder[0] != '/'))
    return false;
  format(path, sizeof(path), "%s%s%s", folder, folder[0] ? "/" : "", name);
  // The kernel's own form of the device's numbers.
  struct stat file {};
  file.st_ino = seen->name_ino;
  file.st_dev = makedev(seen->name_dev >> 20, seen->name_dev & 0xfffff);
  if (!find_hard_link(path, sizeof(path), file, LinkSearch::kNumber) || !file_at(path, st) ||
      !S_ISSOCK(st->st_mode) || length(path) >= sizeof(seen->moved_to))
    return false;
  copy(seen->moved_to, sizeof(seen->moved_to), path);
  return true;
}

// Whose file is at the place that the name says? Another one when the name was removed and given
// again.
void note_file(FdTable* t, FdTable::SocketSeen* seen) {
  Socket& s = seen->s;
  s.mode = 0;
  seen->moved_to[0] = 0;
  if (s.domain != AF_UNIX || s.name_bytes <= 3 || !s.name[2]) return;
  struct stat st;
  const bool there = file_at(reinterpret_cast<const char*>(s.name) + 2, &st) &&
                     (!seen->name_ino || seen->name_ino == static_cast<uint32_t>(st.st_ino));
  if (!there && !find_moved(t, seen, &st)) return;
  s.mode = st.st_mode, s.owner = st.st_uid, s.group = st.st_gid;
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

// A connection that was not accepted and whose other end is closed: what it has sent, bytes and
// descriptors, lies where only accept() leads.
bool nothing_lies_unseen(FdTable* t, const FdTable::SocketSeen& seen) {
  if (t->drop_outside) return true;
  if (seen.asked ? seen.left_behind : polls(seen.fd, POLLIN))
    return t->c->refuse_for_now(
        "descriptor %d is a listening unix socket with a connection that is not accepted yet and "
        "closed at its other end; try again when it is accepted",
        seen.fd);
  if (seen.strangers && !job_barrier.has_others())
    add_warning(
        "%u connections to descriptor %d, a listening unix socket, are not accepted yet and come "
        "from other processes: a restored process does not have them",
        seen.strangers, seen.fd);
  return true;
}

uint64_t hash_of_name(const Socket& s) { return fnv(kFnvBasis, s.name, s.name_bytes); }

void index_listeners(FdTable* t) {
  for (uint32_t i = 0; i < t->sockets; ++i)
    if (t->socket[i].s.state == kSocketListening)
      t->listener_by_name.add(hash_of_name(t->socket[i].s), i);
}

// One end of a connection has the name of the listening socket it came out of.
int listener_of(const FdTable& t, const Socket& s) {
  if (s.name_bytes <= 2) return -1;
  const uint32_t k = t.listener_by_name.find(hash_of_name(s), [&](uint32_t i) {
    return t.socket[i].s.name_bytes == s.name_bytes &&
           __builtin_memcmp(t.socket[i].s.name, s.name, s.name_bytes) == 0;
  });
  return k == HashIndex::kNone ? -1 : static_cast<int>(k);
}

// A datagram socket is connected one way; its peer may be connected to it, to another one, to none.
bool join_datagram(FdTable* t, FdTable::SocketSeen* seen, const FdTable::SocketSeen& peer) {
  Socket& s = seen->s;
  s.peer = peer.s.index;
  if (peer.peer == seen->ino)
    s.flags |= kSocketTwoWay;
  else if (peer.s.name_bytes <= 2)
    return t->c->refuse(
        "descriptor %d is a datagram socket connected to descriptor %d, which has no name and is "
        "connected to another one; close it",
        seen->fd, peer.fd);
  return true;
}

bool join_unix(FdTable* t, FdTable::SocketSeen* seen) {
  Socket& s = seen->s;
  s.shut_down = seen->shut_down;
  note_file(t, seen);
  if (s.state == kSocketListening) return nothing_lies_unseen(t, *seen);
  if (s.state != kSocketPair) return true;
  const FdTable::SocketSeen* peer = seen->peer ? t->socket_of(seen->peer) : nullptr;
  if (peer && s.type == SOCK_DGRAM) {
    note_end(t, seen->fd, SharedJobState::kSocket, seen->ino, seen->peer, false);
    return join_datagram(t, seen, *peer);
  }
  if (peer && peer->s.state == kSocketPair) {
    s.peer = peer->s.index;
    s.flags |= kSocketTwoWay;
    note_end(t, seen->fd, SharedJobState::kSocket, seen->ino, seen->peer, false);
    s.accepted = listener_of(*t, s);
    return true;
  }
  if (seen->fd <= 2) {
    s.state = kSocketStandard;  // unless another process of the job has the other end
    if (seen->peer && seen->peer != kUnknownPeer &&
        note_end(t, seen->fd, SharedJobState::kSocket, seen->ino, seen->peer, false))
      t->r->put(kRecPeer, SocketPeer{s.index, 0, seen->peer});
    return true;
  }
  const bool not_accepted = seen->peer == 0 && s.type != SOCK_DGRAM && !(seen->shut_down & 1);
  if (not_accepted && seen->waits && !t->drop_outside) return join_waiting(t, seen);
  if (seen->peer == 0 && (!not_accepted || t->drop_outside)) {
    s.state = kSocketPeerGone;
    if (s.type != SOCK_DGRAM && polls(seen->fd, POLLERR)) s.flags |= kSocketResetByPeer;
    return true;
  }
  if (s.type == SOCK_DGRAM && s.peer_name_bytes > 2) {  // syslog
    s.state = kSocketConnected;
    return true;
  }
  const bool warned = !t->drop_outside && inherited(seen->ino),
             accepted = t->drop_outside || warned;
  if (warned && !job_barrier.active()) warn_of_inherited(seen->fd, "socket", sys::getpid(), 0);
  if (seen->peer != kUnknownPeer &&
      note_end(t, seen->fd, SharedJobState::kSocket, seen->ino, seen->peer, !accepted, warned)) {
    if (accepted) s.state = kSocketPeerGone;  // unless the other end turns up
    t->r->put(kRecPeer, SocketPeer{s.index, 0, seen->peer});
    return true;
  }
  if (t->c->code) return false;  // there was no room to note it
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

// Could another socket be bound to the address of this one? One may keep an address that the
// machine has no more, or that it got by IP_FREEBIND while that was on.
bool is_far(int fd, const Socket& s) {
  const bool v4 = s.domain == AF_INET;
  if (!has_name(s) || (!v4 && s.domain != AF_INET6)) return false;
  const uint8_t* address = s.name + (v4 ? 4 : 8);
  const bool mapped = !v4 && IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(address));
  if (v4 || mapped) {
    const uint8_t first = address[mapped ? 12 : 0];
    if (first == 0 || first == 127) return false;  // any address, or the loopback's
  } else if (IN6_IS_ADDR_UNSPECIFIED(reinterpret_cast<const in6_addr*>(address)) ||
             IN6_IS_ADDR_LOOPBACK(reinterpret_cast<const in6_addr*>(address))) {
    return false;
  }
  if (v4 ? int_option(fd, IPPROTO_IP, IP_FREEBIND)
         : int_option(fd, IPPROTO_IPV6, 78 /* IPV6_FREEBIND */))
    return false;
  const long probe = sys::call(SYS_socket, s.domain, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (sys::failed(probe)) return false;
  uint8_t name[sizeof(s.name)];
  __builtin_memcpy(name, s.name, sizeof(name));
  name[2] = name[3] = 0;  // any port
  const long r = sys::call(SYS_bind, probe, sys::ptr(name), s.name_bytes);
  sys::close(static_cast<int>(probe));
  return r == -EADDRNOTAVAIL;
}

}  // namespace

bool is_connection(int fd) {
  uint8_t peer[128];
  const int domain = int_option(fd, SOL_SOCKET, SO_DOMAIN);
  return int_option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM &&
         (domain == AF_UNIX || domain == AF_INET || domain == AF_INET6) &&
         address(SYS_getpeername, fd, peer);
}

bool capture_socket(FdTable* t, Descriptor* d) {
  d->kind = kFdSocket;
  if (const FdTable::SocketSeen* known = t->socket_of(d->ino)) {
    d->object = static_cast<int>(known->s.index);
    return true;
  }
  if (t->sockets == FdTable::kMostSockets)
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
  if (s.domain == AF_NETLINK && !load<uint64_t>(s.peer_name + 4)) s.peer_name_bytes = 0;
  const bool tcp = is_tcp(s) && seen.tcp.look(d->fd);
  if (tcp && int_option(d->fd, IPPROTO_TCP, TCP_REPAIR))
    return t->c->refuse(
        "descriptor %d is a TCP socket in repair mode (TCP_REPAIR), which cannot be put back; "
        "leave the mode or close it",
        d->fd);
  if (int_option(d->fd, SOL_SOCKET, SO_ACCEPTCONN)) {
    s.state = kSocketListening;
    s.backlog = tcp ? static_cast<int>(seen.tcp.backlog) : 128;
  } else if (tcp && (seen.tcp.state != TCP_CLOSE || was_connected(d->fd))) {
    s.state = kSocketConnection;  // or what join_connections() finds
  } else if (s.domain == AF_UNIX && s.peer_name_bytes) {
    s.state = kSocketPair;
  } else if (s.peer_name_bytes) {
    s.state = kSocketConnected;
  } else {
    s.state = has_name(s) ? kSocketBound : kSocketFresh;
  }
  if (s.state != kSocketConnection && is_far(d->fd, s)) s.flags |= kSocketFarAddress;
  note_credentials(d->fd, &s);
  t->socket_by_inode.add(seen.ino, t->sockets);
  d->object = static_cast<int>(t->sockets++);
  return true;
}

FdTable::SocketSeen* FdTable::socket_of(uint64_t inode) {
  const uint32_t i =
      socket_by_inode.find(inode, [&](uint32_t k) { return socket[k].ino == inode; });
  return i == HashIndex::kNone ? nullptr : &socket[i];
}

namespace {

bool put_place(FdTable* t, const FdTable::SocketSeen& seen) {
  if (!seen.moved_to[0]) return true;
  const SocketPlace head{seen.s.index, 0};
  t->r->begin(kRecSocketPlace);
  t->r->add(&head, sizeof(head));
  t->r->add_text(seen.moved_to);
  t->r->end();
  return true;
}

bool put_one(FdTable* t, const FdTable::SocketSeen& seen, const SocketOptions& options) {
  return allows_unreadable_options(t, seen.fd, seen.ino) && note_lost(t, seen) &&
         put_socket(t, seen, options) && put_place(t, seen) &&
         (!options.filter || put_filter(t, seen)) && put_groups(t, seen);
}

// A socket has about a hundred options, each to be asked for by itself.
bool put_all(FdTable* t) {
  if (!t->sockets) return true;
  t->options = scratch_map(t->sockets * (sizeof(SocketOptions) + SocketOptions::kMostBytes));
  if (!t->options) return t->c->refuse("no memory for the options of sockets");
  auto* options = reinterpret_cast<SocketOptions*>(t->options.data());
  char* bytes = reinterpret_cast<char*>(options + t->sockets);
  std::atomic<uint64_t> used{0};
  share_work(t->sockets, 8, [&](uint32_t begin, uint32_t end) {
    char asked[SocketOptions::kMostBytes];
    for (uint32_t i = begin; i < end; ++i) {
      ask_options(t->socket[i], asked, &options[i]);
      options[i].data = bytes + used.fetch_add(options[i].bytes);
      __builtin_memcpy(options[i].data, asked, options[i].bytes);
    }
  });
  for (uint32_t i = 0; i < t->sockets; ++i)
    if (!put_one(t, t->socket[i], options[i])) return false;
  return true;
}

bool put_unread(FdTable* t, uint32_t i, char* room) {
  FdTable::SocketSeen& seen = t->socket[i];
  if (seen.elsewhere) return true;
  if (is_udp(seen.s)) return put_udp_queue(t, seen, room);
  if (seen.s.domain != AF_UNIX || seen.s.state == kSocketListening || seen.s.state == kSocketFresh)
    return true;
  const uint32_t before = t->sockets;
  const bool ok = put_unix_queue(t, &seen, room);
  if (ok && t->sockets != before) ask_unix_diag(t);
  return ok;
}

}  // namespace

bool list_sockets(FdTable* t) {
  if (!t->sockets) return true;
  ask_unix_diag(t);
  Region room = scratch_map(kMessageRoom);
  if (!room) return t->c->refuse("no memory for the contents of sockets");
  bool ok = true;
  // The list grows when sockets are themselves on their way.
  for (uint32_t i = 0; ok && i < t->sockets; ++i) ok = put_unread(t, i, room.data());
  scratch_unmap(&room);
  return ok && list_connections(t);
}

bool put_sockets(FdTable* t) {
  if (!join_connections(t)) return false;
  index_listeners(t);
  ask_inet_diag(t);
  if (t->sockets) warn_of_forgotten_options();
  for (uint32_t i = 0; i < t->sockets; ++i) {
    FdTable::SocketSeen& seen = t->socket[i];
    if (is_udp(seen.s)) seen.s.shut_down = seen.shut_down;
    if (is_tcp(seen.s) && !seen.elsewhere && !put_tcp_queue(t, &seen)) return false;
    if (seen.s.domain == AF_UNIX && !join_unix(t, &seen)) return false;
  }
  return read_tcp_queues(t) && put_all(t);
}

short poll_now(int fd, short events) {
  pollfd p{fd, events, 0};
  sys::Timespec none{0, 0};
  return sys::call(SYS_ppoll, sys::ptr(&p), 1, sys::ptr(&none), 0, 8) > 0 ? p.revents : short{0};
}

ShownAddress show_address(const uint8_t* a, uint32_t bytes) {
  ShownAddress out;
  const uint16_t family = bytes >= 2 ? load<uint16_t>(a) : 0;
  if (family == AF_INET && bytes >= 8) {
    format(out.text, sizeof(out.text), "%u.%u.%u.%u:%u", a[4], a[5], a[6], a[7],
           a[2] * 256u + a[3]);
  } else if (family == AF_INET6 && bytes >= 24) {
    Text text(out.text, sizeof(out.text));
    text.add("[");
    for (int i = 0; i < 8; ++i) text.add(i ? ":%x" : "%x", a[8 + i * 2] * 256u + a[9 + i * 2]);
    text.add("]:%u", a[2] * 256u + a[3]);
  } else if (family == AF_UNIX && bytes > 2) {
    const uint32_t n = bytes - 2 < 108 ? bytes - 2 : 108;
    __builtin_memcpy(out.text, a + 2, n);
    out.text[n] = 0;
    if (!a[2]) out.text[0] = '@';
  } else {
    copy(out.text, sizeof(out.text), "an unknown address");
  }
  return out;
}

}  // namespace gpuckpt
