#include "restore/driver/stale_connections.h"

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

#include "restore/preflight/plan_builder.h"

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

// All TCP sockets of a local port.
std::vector<inet_diag_msg> sockets_of(int diag, int family, uint16_t port) {
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
      if (ntohs(m.id.idiag_sport) == port) out.push_back(m);
    }
  }
}

// Nobody has a descriptor of it any more. (Nor has anybody of one that waits to be accepted, which
// is its listener's.)
bool lingers(const inet_diag_msg& m) {
  return m.idiag_inode == 0 && m.idiag_state != TCP_SYN_RECV && m.idiag_state != TCP_LISTEN &&
         m.idiag_state != TCP_ESTABLISHED && m.idiag_state != TCP_CLOSE_WAIT;
}

template <typename Each>
void each_of(uint16_t port, Each each) {
  Fd diag(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!diag) return;
  for (int family : {AF_INET, AF_INET6})
    for (const inet_diag_msg& m : sockets_of(diag.get(), family, port)) each(diag.get(), m);
}

}  // namespace

bool end_stale_connections(uint16_t port) {
  bool ended = false;
  each_of(port, [&](int diag, const inet_diag_msg& m) {
    if (!lingers(m)) return;
    Request request = request_for(m.idiag_family, kSockDestroy, NLM_F_ACK);
    request.body.id = m.id;
    struct {
      nlmsghdr head;
      nlmsgerr error;
    } answer{};
    ended |= send(diag, &request, sizeof(request), 0) > 0 &&
             recv(diag, &answer, sizeof(answer), 0) >= static_cast<ssize_t>(sizeof(answer.head)) &&
             answer.error.error == 0;
  });
  return ended;
}

bool only_stale_connections(uint16_t port) {
  bool some = false, others = false;
  each_of(port, [&](int, const inet_diag_msg& m) {
    some |= lingers(m);
    // What is connected from here to elsewhere by this port is not in the way for long either.
    others |= !lingers(m) && m.idiag_state == TCP_LISTEN;
  });
  return some && !others;
}

}  // namespace gpuckpt::restore
