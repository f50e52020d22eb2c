// What only the kernel's sock_diag tells about sockets: which Unix sockets are each other's peers
// and wait to be accepted, which halves are shut down, which inode a name belongs to, and what a
// packet socket asked for. Without sock_diag (some containers) these stay unknown.

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/packet_diag.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <initializer_list>

#include "base/syscall.h"
#include "snapshot/descriptors/sockets.h"
#include "snapshot/descriptors/tcp_ends.h"

namespace gpuckpt {

using namespace process;

namespace {

template <typename T>
T load(const char* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof(value));
  return value;
}

// Sends a request to sock_diag; calls each(message, end) with what follows the netlink header of
// each answer: with NLM_F_DUMP of all sockets of a family, else of the one that is asked for.
template <typename Request, typename Each>
void ask(const Request& request, uint16_t flags, Each each) {
  const long s =
      sys::call(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 4 /* NETLINK_SOCK_DIAG */);
  if (sys::failed(s)) return;
  struct {
    nlmsghdr head;
    Request request;
  } out{{sizeof(out), SOCK_DIAG_BY_FAMILY, static_cast<uint16_t>(NLM_F_REQUEST | flags), 1, 0},
        request};
  sys::call(SYS_sendto, s, sys::ptr(&out), sizeof(out), 0, 0, 0);
  char buffer[32768];
  for (bool more = true; more;) {
    const long n = sys::call(SYS_recvfrom, s, sys::ptr(buffer), sizeof(buffer), 0, 0, 0);
    if (n <= 0) break;
    for (long at = 0; at + static_cast<long>(sizeof(nlmsghdr)) <= n && more;) {
      const nlmsghdr head = load<nlmsghdr>(buffer + at);
      more = head.nlmsg_len >= sizeof(head) && head.nlmsg_type != NLMSG_DONE &&
             head.nlmsg_type != NLMSG_ERROR;
      if (more) each(buffer + at + sizeof(head), buffer + at + head.nlmsg_len);
      if (!(flags & NLM_F_DUMP)) more = false;  // one answer, without an end
      at += (head.nlmsg_len + 3) & ~3u;
    }
  }
  sys::close(static_cast<int>(s));
}

template <typename Request, typename Each>
void dump(const Request& request, Each each) {
  ask(request, NLM_F_DUMP, each);
}

// The kernel's list has gaps when other processes make and close sockets while it is read. So it
// is read again while misses() says that a socket of the process is not in it.
template <typename Request, typename Each, typename Misses>
void dump_whole(const Request& request, Each each, Misses misses) {
  constexpr int kMostDumps = 8;
  for (int i = 0; i == 0 || (i < kMostDumps && misses()); ++i) dump(request, each);
}

// Calls each(type, bytes, length) for the attributes in [at, end).
template <typename Each>
void attributes(const char* at, const char* end, Each each) {
  while (at + 4 <= end) {
    const uint16_t length = load<uint16_t>(at), type = load<uint16_t>(at + 2);
    if (length < 4) break;
    each(type, at + 4, length - 4u);
    at += (length + 3) & ~3;
  }
}

FdTable::SocketSeen* unix_socket(FdTable* t, uint32_t inode) {
  FdTable::SocketSeen* out = inode ? t->socket_of(inode) : nullptr;
  return out && out->s.domain == AF_UNIX ? out : nullptr;
}

// Those that have connected to listening socket `listener` and are not accepted yet, in order.
void note_waiting(FdTable* t, uint32_t listener, const char* inodes, uint32_t count) {
  FdTable::SocketSeen& seen = t->socket[listener];
  seen.left_behind = 0, seen.strangers = count;
  for (uint32_t place = 0; place < count; ++place)
    if (FdTable::SocketSeen* one = unix_socket(t, load<uint32_t>(inodes + size_t{place} * 4))) {
      one->waits = listener + 1, one->place = place;
      --seen.strangers;
    }
  for (uint32_t place = 0; place < count; ++place)
    seen.left_behind += load<uint32_t>(inodes + size_t{place} * 4) == 0;
  seen.strangers -= seen.left_behind;
}

void note_unix(FdTable* t, uint32_t i, uint16_t type, const char* value, uint32_t bytes) {
  FdTable::SocketSeen& seen = t->socket[i];
  switch (type) {
    case UNIX_DIAG_PEER:
      seen.peer = load<uint32_t>(value);
      break;
    case UNIX_DIAG_VFS:
      seen.name_ino = load<uint32_t>(value);
      seen.name_dev = load<uint32_t>(value + 4);
      break;
    case UNIX_DIAG_ICONS:
      note_waiting(t, i, value, bytes / 4);
      break;
    case UNIX_DIAG_RQLEN:
      if (seen.s.state == kSocketListening)
        seen.s.backlog = static_cast<int>(load<uint32_t>(value + 4));
      break;
    case UNIX_DIAG_SHUTDOWN:
      seen.shut_down = load<uint8_t>(value);
      break;
    default:
      break;
  }
}

inet_diag_req_v2 inet_request(int family, int protocol) {
  inet_diag_req_v2 request{};
  request.sdiag_family = static_cast<uint8_t>(family);
  request.sdiag_protocol = static_cast<uint8_t>(protocol);
  request.idiag_states = ~0u;
  request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return request;
}

bool is_udp_of(const Socket& s, int family, int protocol) {
  return is_udp(s) && s.domain == family && s.protocol == protocol;
}

// The kernel lists those that have a port.
bool is_listed(const Socket& s) { return InetAddress::from(s.name, s.name_bytes).is_set(); }

// Shut down halves of UDP sockets, which poll does not show one by one.
void ask_udp(FdTable* t, int family, int protocol) {
  const auto note = [&](const char* message, const char* end) {
    const auto head = load<inet_diag_msg>(message);
    FdTable::SocketSeen* seen = head.idiag_inode ? t->socket_of(head.idiag_inode) : nullptr;
    if (!seen || !is_udp(seen->s)) return;
    seen->asked = true;
    attributes(message + sizeof(head), end, [&](uint16_t type, const char* value, uint32_t) {
      if (type == INET_DIAG_SHUTDOWN) seen->shut_down = load<uint8_t>(value);
    });
  };
  dump_whole(inet_request(family, protocol), note, [&] {
    for (uint32_t i = 0; i < t->sockets; ++i) {
      const FdTable::SocketSeen& seen = t->socket[i];
      if (is_udp_of(seen.s, family, protocol) && is_listed(seen.s) && !seen.asked) return true;
    }
    return false;
  });
}

bool misses_unix_sockets(const FdTable& t) {
  for (uint32_t i = 0; i < t.sockets; ++i)
    if (t.socket[i].s.domain == AF_UNIX && !t.socket[i].asked) return true;
  return false;
}

}  // namespace

void ask_unix_diag(FdTable* t) {
  unix_diag_req request{};
  request.sdiag_family = AF_UNIX;
  request.udiag_states = ~0u;
  request.udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS | UDIAG_SHOW_RQLEN | UDIAG_SHOW_VFS;
  request.udiag_cookie[0] = request.udiag_cookie[1] = ~0u;
  const auto note = [&](const char* message, const char* end) {
    const auto head = load<unix_diag_msg>(message);
    FdTable::SocketSeen* seen = unix_socket(t, head.udiag_ino);
    if (!seen) return;
    seen->asked = true;
    attributes(message + sizeof(head), end, [&](uint16_t type, const char* value, uint32_t n) {
      note_unix(t, seen->s.index, type, value, n);
    });
  };
  dump_whole(request, note, [&] { return misses_unix_sockets(*t); });
}

void each_tcp_socket(void* context, void (*each)(void* context, const inet_diag_msg&)) {
  for (int family : {AF_INET, AF_INET6})
    dump(inet_request(family, IPPROTO_TCP),
         [&](const char* message, const char*) { each(context, load<inet_diag_msg>(message)); });
}

bool ask_tcp_socket(const InetAddress& local, const InetAddress& remote, inet_diag_msg* out) {
  const bool v4 = local.is_ipv4() && remote.is_ipv4();
  inet_diag_req_v2 request = inet_request(v4 ? AF_INET : AF_INET6, IPPROTO_TCP);
  const auto put = [v4](const InetAddress& address, __be32(&ip)[4], __be16* port) {
    __builtin_memcpy(ip, address.ip + (v4 ? 12 : 0), v4 ? 4 : 16);
    __builtin_memcpy(port, address.port, sizeof(*port));
  };
  put(local, request.id.idiag_src, &request.id.idiag_sport);
  put(remote, request.id.idiag_dst, &request.id.idiag_dport);
  bool known = false;
  ask(request, 0, [&](const char* message, const char*) {
    *out = load<inet_diag_msg>(message);
    known = out->idiag_state != kListen;  // which would accept such a connection
  });
  return known;
}

void ask_inet_diag(FdTable* t) {
  for (int family : {AF_INET, AF_INET6})
    for (int protocol : {17 /* UDP */, 136 /* UDP-Lite */})
      for (uint32_t i = 0; i < t->sockets; ++i)
        if (is_udp_of(t->socket[i].s, family, protocol)) {
          ask_udp(t, family, protocol);
          break;
        }
}

bool put_packet_groups(FdTable* t, const FdTable::SocketSeen& seen) {
  packet_diag_req request{};
  request.sdiag_family = AF_PACKET;
  request.pdiag_show = PACKET_SHOW_MCLIST | PACKET_SHOW_RING_CFG;
  request.pdiag_cookie[0] = request.pdiag_cookie[1] = ~0u;
  bool ring = false;
  dump(request, [&](const char* message, const char* end) {
    const auto head = load<packet_diag_msg>(message);
    if (head.pdiag_ino != seen.ino) return;
    attributes(message + sizeof(head), end, [&](uint16_t type, const char* value, uint32_t bytes) {
      ring |= type == PACKET_DIAG_RX_RING || type == PACKET_DIAG_TX_RING;
      if (type != PACKET_DIAG_MCLIST) return;
      for (uint32_t at = 0; at + sizeof(packet_diag_mclist) <= bytes;
           at += sizeof(packet_diag_mclist)) {
        const auto entry = load<packet_diag_mclist>(value + at);
        GroupMembership g{};
        g.socket = seen.s.index;
        g.interface = entry.pdmc_index;
        g.kind = entry.pdmc_type;
        g.bytes = entry.pdmc_alen;
        __builtin_memcpy(g.address, entry.pdmc_addr, sizeof(g.address));
        for (uint32_t i = 0; i < entry.pdmc_count; ++i) {
          t->r->begin(kRecGroup, 0);
          t->r->add(&g, sizeof(g));
          t->r->end();
        }
      }
    });
  });
  return !ring || t->c->refuse(
                      "descriptor %d is a packet socket with a ring (PACKET_RX_RING, "
                      "PACKET_TX_RING), which cannot be put back; close it",
                      seen.fd);
}

}  // namespace gpuckpt
