#include "restore/descriptors/tcp_reconnect.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "restore/descriptors/fd_maker.h"
#include "restore/descriptors/socket_names.h"
#include "restore/descriptors/socket_options.h"
#include "restore/descriptors/stale_connections.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLocalPortRange = 51;         // IP_LOCAL_PORT_RANGE, Linux 6.3
constexpr int kHandshakePatienceMs = 5000;  // between sockets of one machine
// The kernel gives a port whose connection has just ended (TIME_WAIT) away again after a second.
constexpr auto kStalePortPatience = std::chrono::milliseconds(1500);
// An acknowledgement can come 40 ms late, a packet that was dropped is sent again after 200 ms.
constexpr auto kFlowPatience = std::chrono::seconds(2);
constexpr int kBacklog = 64;

bool is_mapped(const SocketAddress& a) {
  return a.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6*>(&a.storage)->sin6_addr);
}

bool waits_for(int fd, short events, int ms) {
  pollfd p{fd, events, 0};
  int n;
  while ((n = poll(&p, 1, ms)) < 0 && errno == EINTR) {
  }
  return n > 0;
}

// Returns 0 or an error number.
int error_of(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void set(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// Closes a connection that is not needed by a reset, so that it leaves no trace (TIME_WAIT).
void discard(int fd) {
  if (fd < 0) return;
  linger hard{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  close(fd);
}

// How a client's port is chosen.
enum class PortBy {
  kConnect,         // by connect(), address included, as if the kernel had chosen it
  kConnectAddress,  // by connect(), from a given address
  kBind,
  kAny,  // another port may be used
};

int client_socket(const Image::Socket& entry, const SocketAddress& local, PortBy way) {
  const Socket& s = entry.head;
  const int fd = socket(s.domain, SOCK_STREAM | SOCK_NONBLOCK, s.protocol);
  if (fd < 0) return fd;
  apply_binding_options(fd, entry);
  set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  SocketAddress from = local;
  if (way == PortBy::kConnect || way == PortBy::kConnectAddress) {
    const int range = local.port() << 16 | local.port();
    if (setsockopt(fd, IPPROTO_IP, kLocalPortRange, &range, sizeof(range)) != 0) {
      close(fd);
      return -1;
    }
    set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  }
  if (way != PortBy::kBind) from.set_port(0);
  if (way == PortBy::kConnect || bind(fd, from.get(), from.bytes) == 0) return fd;
  close(fd);
  return -1;
}

// Connects within the time limit; -1 with errno.
int connect_client(const Image::Socket& entry, const SocketAddress& local,
                   const SocketAddress& server, PortBy way) {
  const int fd = client_socket(entry, local, way);
  if (fd < 0) return -1;
  int why = 0;
  if (connect(fd, server.get(), server.bytes) != 0) {
    why = errno;
    if (why == EINPROGRESS)
      why = waits_for(fd, POLLOUT, kHandshakePatienceMs) ? error_of(fd) : ETIMEDOUT;
  }
  if (!why && way != PortBy::kAny && SocketAddress::of(fd).end() != local.end())
    why = EADDRNOTAVAIL;
  if (!why) {
    // Closes the sockets that were made only to reserve the port.
    if (way == PortBy::kConnect || way == PortBy::kConnectAddress)
      set(fd, IPPROTO_IP, kLocalPortRange, 0);
    return fd;
  }
  discard(fd);
  errno = why;
  return -1;
}

// Accepts the connection of `client`; connections of other processes, which find the port open, are
// closed.
int accept_from(int listener, int client) {
  const EndAddress wanted = SocketAddress::of(client).end();
  const auto patience = Clock::now() + std::chrono::milliseconds(kHandshakePatienceMs);
  while (Clock::now() < patience && waits_for(listener, POLLIN, kHandshakePatienceMs)) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
    if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return -1;
    if (fd >= 0 && SocketAddress::peer_of(fd).end() == wanted) return fd;
    discard(fd);
  }
  errno = ETIMEDOUT;
  return -1;
}

}  // namespace

EndAddress end_address(const uint8_t* bytes, uint32_t count) {
  EndAddress out{};
  sa_family_t family = AF_UNSPEC;
  if (count >= sizeof(family)) memcpy(&family, bytes, sizeof(family));
  if (family == AF_INET && count >= 8) {
    out[10] = out[11] = 0xff;
    memcpy(&out[12], bytes + 4, 4);
  } else if (family == AF_INET6 && count >= 24) {
    memcpy(out.data(), bytes + 8, 16);
  } else {
    return out;
  }
  memcpy(&out[16], bytes + 2, 2);
  return out;
}

SocketAddress SocketAddress::from(const uint8_t* bytes, uint32_t count) {
  SocketAddress out;
  out.bytes = static_cast<socklen_t>(std::min<size_t>(count, sizeof(out.storage)));
  memcpy(&out.storage, bytes, out.bytes);
  return out;
}
SocketAddress SocketAddress::of(int fd) {
  SocketAddress out;
  out.bytes = sizeof(out.storage);
  if (getsockname(fd, out.get(), &out.bytes) != 0) out.bytes = 0;
  return out;
}
SocketAddress SocketAddress::peer_of(int fd) {
  SocketAddress out;
  out.bytes = sizeof(out.storage);
  if (getpeername(fd, out.get(), &out.bytes) != 0) out.bytes = 0;
  return out;
}
SocketAddress SocketAddress::loopback(int family) {
  SocketAddress out;
  out.storage.ss_family = static_cast<sa_family_t>(family);
  out.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (family == AF_INET)
    reinterpret_cast<sockaddr_in*>(&out.storage)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  else
    reinterpret_cast<sockaddr_in6*>(&out.storage)->sin6_addr = IN6ADDR_LOOPBACK_INIT;
  return out;
}
// The port has the same offset in both families.
uint16_t SocketAddress::port() const {
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}
void SocketAddress::set_port(uint16_t port) {
  reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
}

SocketAddress SocketAddress::in_family(int family) const {
  SocketAddress out;
  const EndAddress address = end();
  if (family == AF_INET && is_mapped(*this)) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    memcpy(&v4.sin_addr, &address[12], sizeof(v4.sin_addr));
    memcpy(&out.storage, &v4, out.bytes = sizeof(v4));
  } else if (family == AF_INET6 && storage.ss_family == AF_INET) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    memcpy(&v6.sin6_addr, address.data(), sizeof(v6.sin6_addr));
    memcpy(&out.storage, &v6, out.bytes = sizeof(v6));
  } else {
    return *this;
  }
  out.set_port(port());
  return out;
}

bool is_tcp_end(const Socket& s) {
  return is_network(s) && s.type == SOCK_STREAM &&
         (s.state == kSocketConnection || s.state == kSocketPeerGone || s.state == kSocketReset ||
          s.state == kSocketWaiting || s.state == kSocketConnecting);
}

namespace {

// Finds ends of connections by their addresses.
class Ends {
 public:
  explicit Ends(const Image& image) {
    for (const Image::Socket& o : image.sockets)
      if (o.head.state == kSocketConnection && is_network(o.head))
        ends_.emplace(std::pair(local(o.head), remote(o.head)), o.head.index);
  }
  // The index of the socket that is the other end of `s`.
  std::optional<uint32_t> other_end_of(const Socket& s) const {
    const auto found = ends_.find({remote(s), local(s)});
    return found == ends_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  static EndAddress local(const Socket& s) { return end_address(s.name, s.name_bytes); }
  static EndAddress remote(const Socket& s) { return end_address(s.peer_name, s.peer_name_bytes); }
  std::map<std::pair<EndAddress, EndAddress>, uint32_t> ends_;
};

SocketAddress local_of(const Socket& s) { return SocketAddress::from(s.name, s.name_bytes); }
SocketAddress remote_of(const Socket& s) {
  return SocketAddress::from(s.peer_name, s.peer_name_bytes);
}

// Makes the replacement of an end that was closed, or is outside of the job.
Image::Socket stand_in_for_peer(const Socket& s) {
  Image::Socket out;
  out.head = s;
  out.head.index = ~0u;
  out.head.protocol = 0;
  const SocketAddress at = s.state == kSocketPeerGone && s.peer_name_bytes
                               ? remote_of(s)
                               : SocketAddress::loopback(s.domain);
  memcpy(out.head.name, &at.storage, sizeof(out.head.name));
  out.head.name_bytes = at.bytes;
  return out;
}

}  // namespace

// Sockets that listen at addresses of the program's connections while these are made.
class ConnectionListeners {
 public:
  explicit ConnectionListeners(std::function<int(const Image::Socket&, bool)> make)
      : make_(std::move(make)) {}
  ~ConnectionListeners() {
    for (const auto& [address, fd] : fds_) close(fd);
  }
  ConnectionListeners(const ConnectionListeners&) = delete;
  ConnectionListeners& operator=(const ConnectionListeners&) = delete;

  // Returns a socket that listens at the local address of `server`, or, when that address is taken,
  // at another one, which is reported by `told`. -1: at none.
  int at(const Image::Socket& server, bool told) {
    const EndAddress address = end_address(server.head.name, server.head.name_bytes);
    const auto key = std::make_pair(server.head.domain, address);
    const auto known = fds_.find(key);
    if (known != fds_.end()) return known->second;
    const int fd = make_(server, told);
    if (fd >= 0) fds_[key] = fd;
    return fd;
  }

 private:
  std::function<int(const Image::Socket&, bool)> make_;
  std::map<std::pair<int, EndAddress>, int> fds_;
};

// The program's own listening socket is bound later, so its port is shared until then.
int FdMaker::listen_for(const Image::Socket& server, bool told) {
  Image::Socket entry;
  entry.options = server.options;
  entry.head = server.head;
  entry.head.index = static_cast<uint32_t>(image_.sockets.size());
  entry.head.state = kSocketListening;
  entry.head.backlog = kBacklog;
  auto fresh = [&] {
    const int fd = socket(server.head.domain, SOCK_STREAM | SOCK_NONBLOCK, server.head.protocol);
    apply_binding_options(fd, entry);
    // An address of the other family reaches it only so.
    if (is_mapped(local_of(server.head))) set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    return fd;
  };
  int fd = fresh();
  const bool listens =
      std::any_of(image_.sockets.begin(), image_.sockets.end(), [&](const Image::Socket& o) {
        return o.head.state == kSocketListening && is_network(o.head) &&
               local_of(o.head).port() == local_of(server.head).port();
      });
  if (fd < 0 || (told ? bind_patiently(fd, entry, !listens) : bind_any(fd, entry))) return fd;
  const std::string why = strerror(errno);
  for (SocketAddress at : {local_of(server.head), SocketAddress::loopback(server.head.domain)}) {
    at.set_port(0);
    close(fd);
    fd = fresh();
    if (bind(fd, at.get(), at.bytes) != 0 || listen(fd, kBacklog) != 0) continue;
    if (told)
      warn("connections of the program to " + shown(server.head) + " come back with port " +
           std::to_string(SocketAddress::of(fd).port()) + " (" + why + ")");
    return fd;
  }
  close(fd);
  return -1;
}

// Whether the socket was accepted. The kernel gives an accepted socket the TTL of the first packet
// for its multicasts; other sockets have 1.
bool FdMaker::was_accepted(const Image::Socket& entry) {
  constexpr int kIpv4 = 33 /* IP_MULTICAST_TTL */, kIpv6 = 18 /* IPV6_MULTICAST_HOPS */;
  return option_value(entry, IPPROTO_IP, kIpv4, 1) > 1 ||
         option_value(entry, IPPROTO_IPV6, kIpv6, 1) > 1;
}

namespace {

// What `attempt` gives, a socket or -1 with errno; called again while nothing but connections that
// have ended holds `port`.
template <typename F>
int when_port_is_free(uint16_t port, F attempt) {
  const auto patience = Clock::now() + kStalePortPatience;
  do {
    const int fd = attempt();
    if (fd >= 0) return fd;
    if (errno != EADDRNOTAVAIL && errno != EADDRINUSE) break;
    if (end_stale_connections({port})) continue;
    if (!only_stale_connections(port)) break;
    usleep(50'000);
  } while (Clock::now() < patience);
  return -1;
}

}  // namespace

// Connects to `server` from the end's own address and port if they are free.
int FdMaker::connect_from(const Image::Socket& entry, const SocketAddress& server, bool tell) {
  const SocketAddress local = local_of(entry.head);
  int fd = when_port_is_free(local.port(), [&] {
    for (PortBy way : {PortBy::kConnect, PortBy::kConnectAddress, PortBy::kBind}) {
      const int made = connect_client(entry, local, server, way);
      if (made >= 0) return made;
    }
    return -1;
  });
  if (fd >= 0) return fd;
  const std::string why = strerror(errno);
  for (const SocketAddress& from : {local, SocketAddress::loopback(entry.head.domain)})
    if (fd < 0) fd = connect_client(entry, from, server, PortBy::kAny);
  if (fd >= 0 && tell)
    warn("a connection of the program comes back with the local port " +
         std::to_string(SocketAddress::of(fd).port()) + " instead of " +
         std::to_string(local.port()) + " (" + why + ")");
  return fd;
}

// Connects a socket to itself: both ends are one socket. `at`: its address; port 0: any.
int FdMaker::connect_to_itself_at(const Image::Socket& entry, const SocketAddress& at) {
  const int fd = client_socket(entry, at, PortBy::kBind);
  if (fd < 0) return fd;
  const SocketAddress own = SocketAddress::of(fd);
  if (connect(fd, own.get(), own.bytes) == 0 ||
      (errno == EINPROGRESS && waits_for(fd, POLLOUT, kHandshakePatienceMs) && !error_of(fd)))
    return fd;
  const int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

// At its address if that is free; the connection of the killed program may still be there.
int FdMaker::connect_to_itself(const Image::Socket& entry) {
  const SocketAddress local = local_of(entry.head);
  const int there =
      when_port_is_free(local.port(), [&] { return connect_to_itself_at(entry, local); });
  if (there >= 0) return there;
  const std::string why = strerror(errno);
  for (SocketAddress at : {local, SocketAddress::loopback(entry.head.domain)}) {
    at.set_port(0);
    const int fd = connect_to_itself_at(entry, at);
    if (fd < 0) continue;
    warn("a connection of a socket to itself comes back with the port " +
         std::to_string(SocketAddress::of(fd).port()) + " instead of " +
         std::to_string(local.port()) + " (" + why + ")");
    return fd;
  }
  return -1;
}

bool FdMaker::prepare_connections() {
  ConnectionListeners listeners(
      [this](const Image::Socket& server, bool told) { return listen_for(server, told); });
  const Ends ends(image_);
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    if (s.state != kSocketConnection || sockets_[s.index] >= 0) continue;
    const std::optional<uint32_t> other = ends.other_end_of(s);
    if (!other) return fail("the other end of a connection is not part of the snapshot");
    connection_peer_[s.index] = *other;
    connection_peer_[*other] = s.index;
    errno = 0;
    if (*other == s.index) {
      if ((sockets_[s.index] = up(connect_to_itself(entry))) < 0)
        return fail("a connection of a socket to itself cannot be made again");
      continue;
    }
    const bool server_first = was_accepted(entry);
    const Image::Socket& server = server_first ? entry : image_.sockets[*other];
    const Image::Socket& client = server_first ? image_.sockets[*other] : entry;
    if (!connect_ends(client, server, listeners.at(server, true), true))
      return fail("the connection of the program from " + shown(client.head) + " to " +
                  shown(server.head) + " cannot be made again");
  }
  for (const Image::Socket& entry : image_.sockets)
    if (is_tcp_end(entry.head) &&
        (entry.head.state == kSocketPeerGone || entry.head.state == kSocketReset))
      prepare_left_end(entry, &listeners);
  return true;
}

bool FdMaker::connect_ends(const Image::Socket& client, const Image::Socket& server, int listener,
                           bool tell) {
  if (listener < 0) return false;
  const SocketAddress at = SocketAddress::of(listener).in_family(client.head.domain);
  const int from = connect_from(client, at, tell);
  if (from < 0) return false;
  const int to = accept_from(listener, from);
  if (to < 0) {
    discard(from);
    return false;
  }
  set(from, IPPROTO_TCP, TCP_NODELAY, 1);
  set(to, IPPROTO_TCP, TCP_NODELAY, 1);
  (client.head.index < sockets_.size() ? sockets_[client.head.index]
                                       : other_ends_[static_cast<int>(server.head.index)]) =
      up(from);
  (server.head.index < sockets_.size() ? sockets_[server.head.index]
                                       : other_ends_[static_cast<int>(client.head.index)]) = up(to);
  return true;
}

// Restores a connection whose other end was closed, or is outside: a temporary other end is made,
// with its old address where that is possible.
void FdMaker::prepare_left_end(const Image::Socket& entry, ConnectionListeners* listeners) {
  const Socket& s = entry.head;
  const Image::Socket other = stand_in_for_peer(s);
  errno = 0;
  if (s.state == kSocketPeerGone && s.peer_name_bytes && was_accepted(entry)
          ? connect_ends(other, entry, listeners->at(entry, true), false)
          : connect_ends(entry, other, listeners->at(other, false), false))
    return;
  warn("a network connection of the program comes back as never connected (no loopback here)");
  sockets_[s.index] = up(socket(s.domain, SOCK_STREAM, s.protocol));
}

// Connects to one of the program's listening sockets, which has not accepted the connection.
bool FdMaker::prepare_not_accepted() {
  std::vector<const Image::Socket*> all;
  for (const Image::Socket& entry : image_.sockets)
    if (is_tcp_end(entry.head) && entry.head.state == kSocketWaiting) all.push_back(&entry);
  // The socket with the smaller number was made, and most likely connected, first.
  std::sort(all.begin(), all.end(), [](const Image::Socket* a, const Image::Socket* b) {
    return a->head.ino < b->head.ino;
  });
  for (const Image::Socket* entry : all) {
    const Socket& s = entry->head;
    const int fd = connect_from(*entry, remote_of(s), true);
    if (fd < 0)
      return fail("a connection of the program that waits to be accepted cannot be made again");
    sockets_[s.index] = up(fd);
  }
  return true;
}

// Begins the program's unfinished connect() again.
void FdMaker::begin_connecting() {
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    if (!is_tcp_end(s) || s.state != kSocketConnecting) continue;
    const int fd = sockets_[s.index], flags = fcntl(fd, F_GETFL);
    const SocketAddress to = remote_of(s);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    (void)!connect(fd, to.get(), to.bytes);  // the program sees how it ends
    fcntl(fd, F_SETFL, flags);
  }
}

bool FdMaker::send_stream(const Image::Message& m) {
  const auto peer = connection_peer_.find(m.socket);
  const auto other = other_ends_.find(static_cast<int>(m.socket));
  const int to = sockets_[m.socket];
  const int from = peer != connection_peer_.end() ? sockets_[peer->second]
                   : other != other_ends_.end()   ? other->second
                                                  : -1;
  if (from < 0) return true;  // it is restored as never connected, which was reported
  const LargeBuffer receiver(to, SO_RCVBUF, SO_RCVBUFFORCE, m.bytes.size());
  const LargeBuffer sender(from, SO_SNDBUF, SO_SNDBUFFORCE, m.bytes.size());
  const int urgent = m.flags & kMessageUrgent ? MSG_OOB : 0;
  auto patience = Clock::now() + kFlowPatience;
  for (size_t at = 0; at < m.bytes.size();) {
    const ssize_t n =
        send(from, m.bytes.data() + at, m.bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT | urgent);
    if (n > 0) at += static_cast<size_t>(n), patience = Clock::now() + kFlowPatience;
    if (n > 0) continue;
    if (errno != EAGAIN || Clock::now() > patience)
      return fail("the " + std::to_string(m.bytes.size()) +
                  " unread bytes of a TCP connection do not fit (net.core.rmem_max and wmem_max)");
    waits_for(from, POLLOUT, 10);
  }
  return true;
}

// All sent bytes are in place: now restores errors, ends of file, and halves that the program has
// shut down.
void FdMaker::finish_connections() {
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    const auto other = other_ends_.find(static_cast<int>(s.index));
    if (!is_tcp_end(s) || other == other_ends_.end()) continue;
    if (s.state == kSocketReset)
      discard(other->second);
    else
      close(other->second);
    other_ends_.erase(other);
  }
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    if (!is_tcp_end(s) || (s.state != kSocketConnection && s.state != kSocketPeerGone)) continue;
    const int fd = sockets_[s.index];
    const bool ended = s.state == kSocketPeerGone && !s.peer_name_bytes;
    if (s.shut_down & 2 || ended) shutdown(fd, SHUT_WR);
    const auto peer = connection_peer_.find(s.index);
    const bool by_peer =
        peer == connection_peer_.end() || image_.sockets[peer->second].head.shut_down & 2;
    if (s.shut_down & 1 && !by_peer) shutdown(fd, SHUT_RD);
  }
}

}  // namespace gpuckpt::restore
