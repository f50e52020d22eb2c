// Puts unread messages back into the program's sockets, with their senders, and then sets what must
// come after them: the last options, filters, halves that are shut down.

#include <errno.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <vector>

#include "restore/descriptors/as_process.h"
#include "restore/descriptors/control_messages.h"
#include "restore/descriptors/fd_maker.h"
#include "restore/descriptors/socket_names.h"
#include "restore/descriptors/socket_options.h"
#include "restore/descriptors/udp_sender.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

bool send_all(int fd, const Image::Message& m, const Socket* by_name, Control control) {
  size_t at = 0;
  do {
    iovec io{const_cast<uint8_t*>(m.bytes.data()) + at, m.bytes.size() - at};
    msghdr h{};
    h.msg_iov = &io, h.msg_iovlen = 1;
    if (by_name) {
      h.msg_name = const_cast<uint8_t*>(by_name->name);
      h.msg_namelen = by_name->name_bytes;
    }
    if (at == 0) control.set(&h);
    const int urgent = m.flags & kMessageUrgent ? MSG_OOB : 0;
    const ssize_t n = sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT | urgent);
    if (n < 0) return false;
    at += static_cast<size_t>(n);
  } while (at < m.bytes.size());
  return true;
}

// Sends a byte with MSG_OOB that was received already: it ends what one call reads. False: errno.
bool put_mark(int from, int to) {
  const int off = 0;
  int in_line = 0;
  socklen_t size = sizeof(in_line);
  getsockopt(to, SOL_SOCKET, SO_OOBINLINE, &in_line, &size);
  setsockopt(to, SOL_SOCKET, SO_OOBINLINE, &off, sizeof(off));
  char byte = 0;
  const bool ok = send(from, &byte, 1, MSG_OOB | MSG_NOSIGNAL | MSG_DONTWAIT) == 1 &&
                  recv(to, &byte, 1, MSG_OOB | MSG_DONTWAIT) == 1;
  setsockopt(to, SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof(in_line));
  return ok;
}

}  // namespace

// The program's socket that has the sender's name; -1: there is none.
int FdMaker::sender_of(const Image::Message& m) {
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    if (s.domain == AF_UNIX && s.type == SOCK_DGRAM && !m.sender.empty() &&
        s.name_bytes == m.sender.size() && memcmp(s.name, m.sender.data(), s.name_bytes) == 0)
      return sockets_[s.index];
  }
  return -1;
}

// Makes a temporary socket that has the sender's name, or represents it: -1 with errno.
int FdMaker::make_sender(const Image::Message& m, int type) {
  const int fd = socket(AF_UNIX, type, 0);
  if (fd < 0 || m.sender.size() <= 2) return fd;
  Socket s{};
  s.domain = AF_UNIX, s.type = type, s.index = ~0u;
  s.name_bytes = static_cast<uint32_t>(m.sender.size());
  memcpy(s.name, m.sender.data(), m.sender.size());
  const bool has_path = s.name_bytes > 3 && s.name[2];
  if (!(has_path ? bind_aside(fd, s) : bind(fd, as_address(s.name), s.name_bytes) == 0))
    warn("an unread datagram comes back without the name of its sender, " + shown(s) + " (" +
         strerror(errno) + ")");
  return fd;
}

bool FdMaker::send_unix(const Image::Message& m) {
  const Image::Socket& entry = image_.sockets[m.socket];
  const Socket& to = entry.head;
  const auto other = other_ends_.find(static_cast<int>(m.socket));
  int fd = -1, own = -1;
  bool by_name = false;
  if (to.type == SOCK_DGRAM && m.sender.size() > 2) fd = sender_of(m), by_name = true;
  if (fd < 0 && !by_name && has_peer_in_image(to) && to.flags & kSocketTwoWay)
    fd = sockets_[to.peer];
  if (fd < 0 && !by_name && other != other_ends_.end()) fd = other->second;
  if (fd < 0) fd = own = make_sender(m, to.type), by_name = true;
  if (fd < 0) return false;
  // A connected sender needs no name, and may not be able to have it.
  const bool connected = fd == own ? false : [&] {
    for (const Image::Socket& s : image_.sockets)
      if (sockets_[s.head.index] == fd) return has_peer_in_image(s.head) && s.head.peer == m.socket;
    return true;
  }();
  by_name &= !connected;
  std::vector<int> passed;
  for (int32_t d : m.descriptions) passed.push_back(made_[d]);
  const ucred from{m.pid, m.uid, m.gid};
  auto send_with = [&](bool credentials) {
    Control control;
    if (!passed.empty())
      control.add(SOL_SOCKET, SCM_RIGHTS, passed.data(), passed.size() * sizeof(int));
    if (credentials) control.add(SOL_SOCKET, SCM_CREDENTIALS, &from, sizeof(from));
    return by_name ? at_name(entry, [&] { return send_all(fd, m, &to, control); })
                   : send_all(fd, m, nullptr, control);
  };
  LargeBuffer room(fd, SO_SNDBUF, SO_SNDBUFFORCE);
  if (m.flags & kMessageMarked && !put_mark(fd, sockets_[m.socket])) return false;
  const bool has_credentials = m.flags & kMessageHasCredentials;
  bool ok = send_with(has_credentials);
  int none[2];
  if (!ok && has_credentials && (errno == ESRCH || errno == EPERM))
    ok = as_process(
        {m.pid, m.uid, m.gid}, [&](int*) { return send_with(true); }, none);
  if (!ok && has_credentials && (errno == ESRCH || errno == EPERM)) {
    warn("an unread message of process " + std::to_string(m.pid) + " in " +
         (to.name_bytes > 2 ? shown(to) : "a unix socket") +
         " comes back as one of the program itself (SCM_CREDENTIALS)");
    ok = send_with(false);
  }
  if (own >= 0) close(own);
  return ok;
}

bool FdMaker::send_datagram(const Image::Message& m) {
  const Image::Socket& to = image_.sockets[m.socket];
  for (const SentFrom how : {SentFrom::kItsAddress, SentFrom::kAnyAddress})
    for (const Image::Socket& s : image_.sockets)
      if (is_network(s.head) && s.head.type == SOCK_DGRAM && s.head.protocol == to.head.protocol &&
          is_from(m, s.head) == how &&
          send_udp_from(sockets_[s.head.index], m, sockets_[m.socket], to))
        return true;
  return send_udp(m, sockets_[m.socket], to);
}

bool FdMaker::attach_filters() {
  for (const auto& [f, program] : image_.filters) {
    sock_fprog p{static_cast<unsigned short>(program.size() / sizeof(sock_filter)),
                 reinterpret_cast<sock_filter*>(const_cast<uint8_t*>(program.data()))};
    if (setsockopt(sockets_[f.socket], SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof(p)) != 0)
      return fail("the packet filter of a socket cannot be attached");
  }
  return true;
}

// Shuts down halves, and makes the errors that connections have.
void FdMaker::finish_pairs() {
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    const int fd = sockets_[s.index];
    if (s.flags & kSocketResetByPeer) (void)!send(fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  for (auto& [socket, fd] : other_ends_) close(fd);
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    const int fd = sockets_[s.index];
    if (is_network(s) && s.type == SOCK_DGRAM && s.shut_down)
      shutdown(fd, s.shut_down == 3 ? SHUT_RDWR : s.shut_down == 2 ? SHUT_WR : SHUT_RD);
    if (s.domain != AF_UNIX || s.state == kSocketListening) continue;
    if (s.shut_down & 2) shutdown(fd, SHUT_WR);
    // The peer's shutdown for sending does this too; here it was the program's own.
    const bool by_peer =
        s.type != SOCK_DGRAM && has_peer_in_image(s) && image_.sockets[s.peer].head.shut_down & 2;
    if (s.shut_down & 1 && !by_peer) shutdown(fd, SHUT_RD);
  }
}

// What is sent here was sent before: no socket tells the program of it. Options that are applied at
// last bring the others back, and count from 0.
void FdMaker::silence_sent_time_stamps() {
  constexpr int kOfReceived = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RX_SOFTWARE |
                              SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
  for (const Image::Socket& entry : image_.sockets) {
    const int flags = option_value(entry, SOL_SOCKET, SO_TIMESTAMPING, 0),
              rest = flags & kOfReceived;
    if (flags != rest)
      setsockopt(sockets_[entry.head.index], SOL_SOCKET, SO_TIMESTAMPING, &rest, sizeof(rest));
  }
}

bool FdMaker::send_messages() {
  silence_sent_time_stamps();
  for (const Image::Message& m : image_.messages) {
    errno = 0;
    const Socket& to = image_.sockets[m.socket].head;
    if (is_network(to) && to.type == SOCK_STREAM) {
      if (!send_stream(m)) return false;
    } else if (is_network(to))
      lost_datagrams_[m.socket] += !send_datagram(m);
    else if (!send_unix(m))
      return fail("the unread data of a unix socket cannot be put back");
  }
  for (const auto& [socket, count] : lost_datagrams_)
    if (count)
      warn(std::to_string(count) + " unread datagrams of " + shown(image_.sockets[socket].head) +
           " cannot be put back: their senders' addresses cannot be bound here");
  finish_connections();
  if (!attach_filters()) return false;
  finish_pairs();
  begin_connecting();
  for (const Image::Socket& entry : image_.sockets) {
    const int fd = sockets_[entry.head.index];
    if (!join_groups(fd, entry)) {
      warn("a multicast group of " + shown(entry.head) +
           " cannot be joined here: " + strerror(errno));
    }
    // Called twice, because some options change others.
    apply_options(fd, entry, OptionMoment::kAtLast);
    apply_options(fd, entry, OptionMoment::kAtLast);
  }
  check_options();
  forget_asides();
  return true;
}

}  // namespace gpuckpt::restore
