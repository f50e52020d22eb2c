#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "restore/fd_maker.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

// Torch's loaders look every five seconds whether their parent lives.
constexpr int kTries = 40;  // of 200 ms: 8 s

bool network(const Socket& s) { return s.domain == AF_INET || s.domain == AF_INET6; }

const sockaddr* as_address(const uint8_t* bytes) {
  return reinterpret_cast<const sockaddr*>(bytes);
}

std::string shown(const Socket& s) {
  if (s.domain == AF_UNIX)
    return s.name[2] ? std::string(reinterpret_cast<const char*>(s.name) + 2)
                     : "@" + std::string(reinterpret_cast<const char*>(s.name) + 3,
                                         s.name_bytes > 3 ? s.name_bytes - 3 : 0);
  if (s.domain == AF_NETLINK) return "the address of a netlink socket";
  if (s.domain == AF_PACKET) return "the network interface of a packet socket";
  if (s.type == SOCK_RAW) return "the address of a raw socket";
  return (s.type == SOCK_STREAM ? "TCP port " : "UDP port ") +
         std::to_string(s.name[2] * 256 + s.name[3]);
}

int int_value(const SocketOption& o) {
  int v = 0;
  memcpy(&v, o.value, std::min<size_t>(o.bytes, sizeof(v)));
  return v;
}

// Only what a fresh socket does not have by itself. The kernel shows buffers doubled.
void apply(int fd, const std::vector<SocketOption>& options, bool buffers_too) {
  for (const SocketOption& o : options) {
    const bool buffer = o.level == SOL_SOCKET && (o.name == SO_SNDBUF || o.name == SO_RCVBUF);
    if ((buffer && o.name == SO_SNDBUF && !buffers_too) ||
        (o.level == SOL_SOCKET && o.name == SO_PEEK_OFF && int_value(o) < 0))
      continue;
    uint8_t now[sizeof(o.value)] = {};
    socklen_t size = sizeof(now);
    if (getsockopt(fd, o.level, o.name, now, &size) == 0 && size == o.bytes &&
        memcmp(now, o.value, size) == 0)
      continue;
    if (buffer) {
      int half = int_value(o) / 2;
      if (setsockopt(fd, SOL_SOCKET, o.name == SO_SNDBUF ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, &half,
                     sizeof(half)) != 0)
        setsockopt(fd, SOL_SOCKET, o.name, &half, sizeof(half));
    } else if (o.level == SOL_NETLINK && o.name == NETLINK_LIST_MEMBERSHIPS) {
      for (int group = 0; group < static_cast<int>(o.bytes) * 8; ++group) {
        const int number = group + 1;
        if (o.value[group / 8] >> group % 8 & 1)
          setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &number, sizeof(number));
      }
    } else {
      setsockopt(fd, o.level, o.name, o.value, o.bytes);
    }
  }
}

}  // namespace

// Children of the killed program may have cleaned up after it, as Python's do.
bool FdMaker::make_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return false;
  const std::string folder = path.substr(0, slash);
  if (mkdir(folder.c_str(), 0700) != 0 &&
      !(errno == ENOENT && make_folder_of(folder) && mkdir(folder.c_str(), 0700) == 0))
    return false;
  warn(folder + ", in which the program had a socket, was not there any more; it is made again");
  return true;
}

// The socket file of the killed program is still there. One that somebody answers at stays.
bool FdMaker::bind_unix(int fd, const Socket& s) {
  struct stat st;
  const char* path = reinterpret_cast<const char*>(s.name) + offsetof(sockaddr_un, sun_path);
  if (*path && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
    int probe = socket(AF_UNIX, s.type | SOCK_NONBLOCK, 0);
    bool dead = connect(probe, as_address(s.name), s.name_bytes) != 0 && errno == ECONNREFUSED;
    close(probe);
    if (dead) unlink(path);
  }
  if (bind(fd, as_address(s.name), s.name_bytes) != 0 &&
      !(*path && errno == ENOENT && make_folder_of(path) &&
        bind(fd, as_address(s.name), s.name_bytes) == 0))
    return false;
  if (*path && s.mode) chmod(path, s.mode & 07777);
  return true;
}

// What the killed program left in TIME_WAIT must not stand in the way.
bool FdMaker::bind_network(int fd, const Socket& s) {
  int before = 0, on = 1;
  socklen_t size = sizeof(before);
  getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &before, &size);
  if (s.type == SOCK_STREAM) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, as_address(s.name), s.name_bytes) != 0) return false;
  if (s.state == kSocketListening && listen(fd, s.backlog) != 0) return false;
  if (!before) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &before, sizeof(before));
  return true;
}

bool FdMaker::bind_any(int fd, const Socket& s) {
  if (network(s)) return bind_network(fd, s);
  if (s.domain == AF_UNIX) return bind_unix(fd, s);
  const socklen_t bytes = s.domain == AF_PACKET ? sizeof(sockaddr_ll) : s.name_bytes;
  return bind(fd, as_address(s.name), bytes) == 0;
}

bool FdMaker::prepare_named(const Socket& s, const Options& options) {
  errno = 0;
  int fd = up(socket(s.domain, s.type, s.protocol));
  if (fd < 0) return fail("no socket of family " + std::to_string(s.domain) + " can be made");
  sockets_[s.index] = fd;
  apply(fd, options, true);
  const bool named = network(s)            ? s.name_bytes >= 4 && (s.name[2] || s.name[3])
                     : s.domain == AF_UNIX ? s.name_bytes > 2
                                           : s.state != kSocketFresh;
  // Children of a program that was killed a moment ago, restored itself perhaps, hold it still.
  for (int tries = 0; named && !bind_any(fd, s); ++tries) {
    if (errno != EADDRINUSE || tries == kTries)
      return fail(shown(s) + ", which the program had, cannot be taken here");
    if (!tries) warn("waited for " + shown(s) + ", which another process had");
    usleep(200'000);
  }
  if (s.domain == AF_UNIX && s.state == kSocketListening && listen(fd, s.backlog) != 0)
    return fail(shown(s));
  if (s.state == kSocketConnected && connect(fd, as_address(s.peer_name), s.peer_name_bytes) != 0)
    warn("a datagram socket of the program has nobody at its peer address any more");
  return true;
}

bool FdMaker::prepare_pair(const Socket& s) {
  int ends[2] = {-1, -1};
  errno = 0;
  if (s.state == kSocketPair && s.accepted >= 0) {
    const Socket& server = image_.sockets[static_cast<size_t>(s.accepted)].first;
    ends[1] = socket(AF_UNIX, s.type, 0);
    if (connect(ends[1], as_address(server.name), server.name_bytes) != 0 ||
        (ends[0] = accept(sockets_[server.index], nullptr, nullptr)) < 0)
      return fail("a connection inside the program by " + shown(server) + " cannot be made again");
  } else if (socketpair(AF_UNIX, s.type, 0, ends) != 0) {
    return fail("no socket pair can be made");
  }
  sockets_[s.index] = up(ends[0]);
  (s.state == kSocketPair ? sockets_[s.peer] : other_ends_[static_cast<int>(s.index)]) =
      up(ends[1]);
  return true;
}

// Connected to one of our listening sockets, in the order in which that will accept them.
bool FdMaker::prepare_waiting() {
  std::vector<const std::pair<Socket, Options>*> all;
  for (const auto& entry : image_.sockets)
    if (entry.first.state == kSocketWaiting) all.push_back(&entry);
  std::sort(all.begin(), all.end(),
            [](const auto* a, const auto* b) { return a->first.peer < b->first.peer; });
  for (const auto* entry : all) {
    const Socket& s = entry->first;
    if (!prepare_named(s, entry->second)) return false;
    const Socket& server = image_.sockets[static_cast<size_t>(s.accepted)].first;
    if (connect(sockets_[s.index], as_address(server.name), server.name_bytes) != 0)
      return fail("a connection inside the program to " + shown(server) + " cannot be made again");
  }
  return true;
}

// A connection of our own over the loopback, ended by the other side the hard way.
int FdMaker::make_reset(const Socket& s) {
  int server = socket(s.domain, SOCK_STREAM, 0);
  int fd = socket(s.domain, SOCK_STREAM, s.protocol);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  sockaddr_storage address{};
  socklen_t size = s.domain == AF_INET ? sizeof(v4) : sizeof(v6);
  memcpy(&address, s.domain == AF_INET ? static_cast<void*>(&v4) : &v6, size);
  auto* a = reinterpret_cast<sockaddr*>(&address);
  int peer = -1;
  if (bind(server, a, size) == 0 && listen(server, 1) == 0 && getsockname(server, a, &size) == 0 &&
      connect(fd, a, size) == 0 && (peer = accept(server, nullptr, nullptr)) >= 0) {
    linger hard{1, 0};
    setsockopt(peer, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(peer);
  } else {
    warn("a network connection of the program comes back as never connected (no loopback here)");
  }
  close(server);
  return up(fd);
}

bool FdMaker::prepare_sockets() {
  sockets_.assign(image_.sockets.size(), -1);
  for (const auto& [s, options] : image_.sockets)
    if (s.state == kSocketListening && !prepare_named(s, options)) return false;
  // Ends that came out of a listening socket first: their peers get the other end of theirs.
  for (bool accepted : {true, false})
    for (const auto& [s, options] : image_.sockets)
      if ((s.state == kSocketPair || s.state == kSocketPeerGone) && sockets_[s.index] < 0 &&
          (s.accepted >= 0) == accepted && !prepare_pair(s))
        return false;
  if (!prepare_waiting()) return false;
  for (const auto& [s, options] : image_.sockets) {
    if (s.state == kSocketReset) sockets_[s.index] = make_reset(s);
    if (sockets_[s.index] < 0 && !prepare_named(s, options)) return false;
    if (s.state == kSocketPair || s.state == kSocketPeerGone)
      apply(sockets_[s.index], options, false);
    if (s.state == kSocketReset) apply(sockets_[s.index], options, true);
  }
  return true;
}

// The program's socket that has the sender's name, -1: none.
int FdMaker::sender_of(const Image::Message& m) {
  for (const auto& [s, options] : image_.sockets)
    if (s.domain == AF_UNIX && s.type == SOCK_DGRAM && !m.sender.empty() &&
        s.name_bytes == m.sender.size() && memcmp(s.name, m.sender.data(), s.name_bytes) == 0)
      return sockets_[s.index];
  return -1;
}

bool FdMaker::send(const Image::Message& m) {
  const Socket& to = image_.sockets[m.socket].first;
  int fd = -1, own = -1;
  if (to.state == kSocketPair)
    fd = sockets_[to.peer];
  else if (auto it = other_ends_.find(static_cast<int>(m.socket)); it != other_ends_.end())
    fd = it->second;
  else if ((fd = sender_of(m)) < 0)
    fd = own = socket(AF_UNIX, to.type, 0);
  const bool by_name = to.state != kSocketPair && !other_ends_.count(static_cast<int>(m.socket));
  int room = 8 << 20, before = 0;
  socklen_t size = sizeof(before);
  getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &before, &size);
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) != 0)
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
  std::vector<char> control(CMSG_SPACE(m.descriptions.size() * sizeof(int)));
  bool ok = true;
  size_t at = 0;
  do {
    iovec io{const_cast<uint8_t*>(m.bytes.data()) + at, m.bytes.size() - at};
    msghdr h{};
    h.msg_iov = &io, h.msg_iovlen = 1;
    if (by_name) {
      h.msg_name = const_cast<uint8_t*>(to.name);
      h.msg_namelen = to.name_bytes;
    }
    if (at == 0 && !m.descriptions.empty()) {
      h.msg_control = control.data(), h.msg_controllen = control.size();
      cmsghdr* c = CMSG_FIRSTHDR(&h);
      c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(m.descriptions.size() * sizeof(int));
      for (size_t i = 0; i < m.descriptions.size(); ++i)
        memcpy(CMSG_DATA(c) + i * sizeof(int), &made_[m.descriptions[i]], sizeof(int));
    }
    ssize_t n = sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
    ok = n >= 0;
    if (ok) at += static_cast<size_t>(n);
  } while (ok && at < m.bytes.size());
  before /= 2;  // the kernel shows it doubled
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &before, sizeof(before));
  if (own >= 0) close(own);
  return ok;
}

bool FdMaker::attach_filter(int fd, const SocketFilter& f, const std::vector<uint8_t>& program) {
  sock_fprog p{static_cast<unsigned short>(program.size() / sizeof(sock_filter)),
               reinterpret_cast<sock_filter*>(const_cast<uint8_t*>(program.data()))};
  const int locked = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof(p)) != 0 ||
      (f.locked && setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &locked, sizeof(locked)) != 0))
    return fail("the packet filter of a socket cannot be attached");
  return true;
}

bool FdMaker::send_messages() {
  for (const Image::Message& m : image_.messages) {
    errno = 0;
    if (!send(m)) return fail("the unread data of a unix socket cannot be put back");
  }
  for (auto& [socket, fd] : other_ends_) close(fd);
  for (const auto& [f, program] : image_.filters)
    if (!attach_filter(sockets_[f.socket], f, program)) return false;
  for (const auto& [s, options] : image_.sockets)  // names that were given up
    if (s.domain == AF_UNIX && s.name_bytes > 3 && s.name[2] && !s.mode && s.accepted < 0)
      unlink(reinterpret_cast<const char*>(s.name) + 2);
  for (const auto& [s, options] : image_.sockets) {
    if (s.state != kSocketPair && s.state != kSocketPeerGone) continue;
    apply(sockets_[s.index], options, true);
    if (s.shut_down & 2) shutdown(sockets_[s.index], SHUT_WR);
    // The peer's shutdown for sending does this too; here it was the program's own.
    if ((s.shut_down & 1) && s.state == kSocketPair &&
        !(image_.sockets[s.peer].first.shut_down & 2))
      shutdown(sockets_[s.index], SHUT_RD);
  }
  return true;
}

}  // namespace gpuckpt::restore
