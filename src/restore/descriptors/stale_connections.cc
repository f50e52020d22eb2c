#include "restore/descriptors/stale_connections.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>
#include <vector>

#include "base/descriptors/fd.h"

namespace gpuckpt::restore {

namespace {

constexpr int kSockDestroy = 21;

struct Request {
  nlmsghdr head;
  inet_diag_req_v2 body;
};

Request request_for(int family, int type, int flags) {
  Request r{};
  r.head.nlmsg_len = sizeof(r);
  r.head.nlmsg_type = static_cast<uint16_t>(type);
  r.head.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  r.body.sdiag_family = static_cast<uint8_t>(family);
  r.body.sdiag_protocol = IPPROTO_TCP;
  r.body.idiag_states = ~0u;
  return r;
}

// All TCP sockets with these local ports.
std::vector<inet_diag_msg> sockets_of(int diag, int family, const std::set<uint16_t>& ports) {
  std::vector<inet_diag_msg> out;
  Request request = request_for(family, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP);
  if (send(diag, &request, sizeof(request), 0) < 0) return out;
  alignas(nlmsghdr) char buffer[32768];
  for (;;) {
    ssize_t left = recv(diag, buffer, sizeof(buffer), 0);
    if (left <= 0) return out;
    for (auto* h = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(h, left);
         h = NLMSG_NEXT(h, left)) {
      if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR) return out;
      inet_diag_msg m;
      memcpy(&m, NLMSG_DATA(h), sizeof(m));
      if (ports.contains(ntohs(m.id.idiag_sport))) out.push_back(m);
    }
  }
}

// Whether no process has a descriptor of it any more, or of a listener that it waits at to be
// accepted.
bool is_stale(const inet_diag_msg& m) {
  return m.idiag_inode == 0 && m.idiag_state != TCP_SYN_RECV && m.idiag_state != TCP_LISTEN &&
         m.idiag_state != TCP_ESTABLISHED && m.idiag_state != TCP_CLOSE_WAIT;
}

template <typename Each>
void each_of(const std::set<uint16_t>& ports, Each each) {
  Fd diag(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!diag) return;
  for (int family : {AF_INET, AF_INET6})
    for (const inet_diag_msg& m : sockets_of(diag.get(), family, ports)) each(diag.get(), m);
}

bool destroy(int diag, const inet_diag_msg& m) {
  Request request = request_for(m.idiag_family, kSockDestroy, NLM_F_ACK);
  request.body.id = m.id;
  struct {
    nlmsghdr head;
    nlmsgerr error;
  } answer{};
  return send(diag, &request, sizeof(request), 0) > 0 &&
         recv(diag, &answer, sizeof(answer), 0) >= static_cast<ssize_t>(sizeof(answer.head)) &&
         answer.error.error == 0;
}

socklen_t address_bytes(const inet_diag_msg& m) {
  return m.idiag_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

sockaddr_storage address(const inet_diag_msg& m, const __be32 (&host)[4], __be16 port) {
  sockaddr_storage out{};
  if (m.idiag_family == AF_INET) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = port;
    v4.sin_addr.s_addr = host[0];
    memcpy(&out, &v4, sizeof(v4));
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = port;
    memcpy(&v6.sin6_addr, host, sizeof(v6.sin6_addr));
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) v6.sin6_scope_id = m.id.idiag_if;
    memcpy(&out, &v6, sizeof(v6));
  }
  return out;
}

// Makes a socket at the address of the other end. Where that is in TIME_WAIT as well (both ended at
// the same moment), its port cannot be bound; but a second later, on the loopback, a new connection
// between the same two addresses may replace it, when the kernel chooses the port.
Fd socket_at_other_end(const inet_diag_msg& m, bool chosen_by_kernel) {
  constexpr int kLocalPortRange = 51;  // IP_LOCAL_PORT_RANGE, Linux 6.3
  const int on = 1, off = 0;
  Fd fd(socket(m.idiag_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (m.idiag_family == AF_INET6)
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (chosen_by_kernel) {
    const int port = ntohs(m.id.idiag_dport), range = port << 16 | port;
    if (setsockopt(fd.get(), IPPROTO_IP, kLocalPortRange, &range, sizeof(range)) != 0) return Fd();
    setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
  }
  const sockaddr_storage at = address(m, m.id.idiag_dst, chosen_by_kernel ? 0 : m.id.idiag_dport);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), address_bytes(m)) != 0) return Fd();
  return fd;
}

// Begins a connection from the address of the other end, whose socket is gone. A socket in
// TIME_WAIT answers with an acknowledgement of what it saw last. That fits nothing the new socket
// has sent, so the kernel sends a reset with exactly the expected number, and a reset ends
// TIME_WAIT ("assassination", RFC 1337; not where net.ipv4.tcp_rfc1337 is set). No packet between
// two ends on one machine can be under way any more.
bool end_by_reset(const inet_diag_msg& m) {
  if (m.idiag_state != TCP_TIME_WAIT && m.idiag_state != TCP_FIN_WAIT2) return false;
  const sockaddr_storage to = address(m, m.id.idiag_src, m.id.idiag_sport);
  for (bool chosen_by_kernel : {false, true}) {
    const Fd fd = socket_at_other_end(m, chosen_by_kernel);
    if (!fd) continue;
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), address_bytes(m)) != 0 &&
        errno != EINPROGRESS && errno != ECONNREFUSED)
      continue;
    usleep(200);  // most often all of it has happened within connect()
    return true;
  }
  return false;
}

}  // namespace

bool end_stale_connections(const std::set<uint16_t>& ports, OtherEnd other) {
  // A connection in TIME_WAIT can occupy the port from which another one is to be ended.
  constexpr int kRounds = 3;
  size_t first = 0, left = 0;
  for (int round = 0; round <= kRounds; ++round) {
    std::vector<inet_diag_msg> stale;
    std::set<uint16_t> listening;
    bool tried = false;
    each_of(ports, [&](int, const inet_diag_msg& m) {
      if (is_stale(m) && (other == OtherEnd::kAnywhere || ports.contains(ntohs(m.id.idiag_dport))))
        stale.push_back(m);
      if (m.idiag_state == TCP_LISTEN) listening.insert(m.id.idiag_sport);
    });
    left = stale.size();
    if (round == 0) first = left;
    if (!left || round == kRounds) break;
    const Fd diag(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    for (const inet_diag_msg& m : stale)
      // (A listener at the port would be given the new connection.)
      tried |= destroy(diag.get(), m) || (!listening.contains(m.id.idiag_sport) && end_by_reset(m));
    if (!tried) break;
  }
  return left < first;
}

bool only_stale_connections(uint16_t port) {
  bool some = false, others = false;
  each_of({port}, [&](int, const inet_diag_msg& m) {
    some |= is_stale(m);
    // Connections from here to elsewhere by this port do not occupy it for long either.
    others |= !is_stale(m) && m.idiag_state == TCP_LISTEN;
  });
  return some && !others;
}

}  // namespace gpuckpt::restore
