// The program's sockets. Order: TCP connections (tcp_reconnect.cc). Then all other sockets are
// made, with the options that must be set before they have names. Then all get their names, then
// listen, then are connected. When their unread messages are in place (socket_messages.cc), the
// remaining options are set.

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "restore/descriptors/as_process.h"
#include "restore/descriptors/fd_maker.h"
#include "restore/descriptors/socket_names.h"
#include "restore/descriptors/socket_options.h"
#include "restore/descriptors/stale_connections.h"
#include "restore/descriptors/tcp_reconnect.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

bool same_name(const Socket& a, const Socket& b) {
  return a.type == b.type && a.name_bytes == b.name_bytes && a.name_bytes > 2 &&
         memcmp(a.name, b.name, a.name_bytes) == 0;
}

Credentials peer_credentials(const Socket& s) { return {s.peer_pid, s.peer_uid, s.peer_gid}; }

}  // namespace

// The listening socket of the program that a connection's end came out of. Null: there is none.
const Image::Socket* FdMaker::listener_of(const Socket& s) const {
  if (!is_connection(s)) return nullptr;
  for (const Image::Socket& l : image_.sockets)
    if (l.head.state == kSocketListening && l.head.domain == AF_UNIX && same_name(l.head, s))
      return &l;
  for (const Image::Socket& l : former_listeners_)
    if (same_name(l.head, s)) return &l;
  return nullptr;
}

// Several connections were accepted by a listening socket that is closed now, and have its name: a
// temporary one is made for them.
bool FdMaker::make_former_listeners() {
  for (const Image::Socket& a : image_.sockets)
    for (const Image::Socket& b : image_.sockets) {
      if (b.head.index <= a.head.index || !is_connection(a.head) || !is_connection(b.head) ||
          !same_name(a.head, b.head) || listener_of(a.head))
        continue;
      Image::Socket& l = former_listeners_.emplace_back();
      l.head.index = static_cast<uint32_t>(sockets_.size());
      l.head.domain = AF_UNIX, l.head.type = a.head.type, l.head.state = kSocketListening;
      l.head.name_bytes = a.head.name_bytes;
      memcpy(l.head.name, a.head.name, sizeof(l.head.name));
      l.folder = a.folder;
      sockets_.push_back(up(socket(AF_UNIX, l.head.type, 0)));
      if (!name_socket(l) || listen(sockets_.back(), 16) != 0) return fail(shown(l.head));
    }
  return true;
}

bool FdMaker::has_peer_in_image(const Socket& s) const {
  return s.state == kSocketPair && s.peer < image_.sockets.size();
}

// Makes all sockets but those that are made in pairs.
bool FdMaker::make_socket(const Image::Socket& entry) {
  const Socket& s = entry.head;
  if (sockets_[s.index] >= 0) return true;
  errno = 0;
  sockets_[s.index] = up(socket(s.domain, s.type, s.protocol));
  if (sockets_[s.index] < 0)
    return fail("no socket of family " + std::to_string(s.domain) + " can be made");
  return true;
}

bool FdMaker::make_pair(const Image::Socket& entry) {
  const Socket& s = entry.head;
  int ends[2] = {-1, -1};
  errno = 0;
  const bool made = as_process(
      peer_credentials(s), [&](int* out) { return socketpair(AF_UNIX, s.type, 0, out) == 0; },
      ends);
  if (!made) return fail("no socket pair can be made");
  sockets_[s.index] = up(ends[0]);
  (has_peer_in_image(s) ? sockets_[s.peer] : other_ends_[static_cast<int>(s.index)]) = up(ends[1]);
  return true;
}

// Makes one end of a connection through the listening socket; the other end exists, or is made here
// to be closed later.
bool FdMaker::connect_pair(const Image::Socket& entry, const Image::Socket& listener) {
  const Socket& s = entry.head;
  int client = has_peer_in_image(s) ? sockets_[s.peer] : up(socket(AF_UNIX, s.type, 0));
  int none[2];
  errno = 0;
  const bool connected = as_process(
      peer_credentials(s), [&](int*) { return connect_by_name(client, listener); }, none);
  if (!connected ||
      (sockets_[s.index] = up(accept(sockets_[listener.head.index], nullptr, nullptr))) < 0)
    return fail("a connection inside the program by " + shown(listener.head) +
                " cannot be made again");
  if (!has_peer_in_image(s)) other_ends_[static_cast<int>(s.index)] = client;
  return true;
}

// Connects to one of the program's listening sockets, in the order in which they will be accepted.
bool FdMaker::prepare_waiting() {
  std::vector<const Socket*> all;
  for (const Image::Socket& entry : image_.sockets)
    if (entry.head.domain == AF_UNIX && entry.head.state == kSocketWaiting)
      all.push_back(&entry.head);
  std::sort(all.begin(), all.end(),
            [](const Socket* a, const Socket* b) { return a->peer < b->peer; });
  for (const Socket* s : all) {
    const Image::Socket& server = image_.sockets[static_cast<size_t>(s->accepted)];
    if (!connect_by_name(sockets_[s->index], server))
      return fail("a connection inside the program to " + shown(server.head) +
                  " cannot be made again");
  }
  return true;
}

bool FdMaker::name_sockets() {
  // A name from which a socket's file was moved may be another socket's by now.
  for (const bool moved : {true, false})
    for (const Image::Socket& entry : image_.sockets)
      if (moved != entry.moved_to.empty() && !listener_of(entry.head) && !is_tcp_end(entry.head) &&
          !name_socket(entry))
        return false;
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    int none[2];
    // (Network sockets listen as soon as they have their ports.)
    if (s.domain == AF_UNIX && s.state == kSocketListening &&
        !as_process(
            peer_credentials(s), [&](int*) { return listen(sockets_[s.index], s.backlog) == 0; },
            none))
      return fail(shown(s));
  }
  return true;
}

// No socket can connect to a datagram socket that is connected to another one: the first of such a
// chain connects first.
std::vector<const Image::Socket*> FdMaker::datagram_chain() const {
  std::vector<const Image::Socket*> out;
  std::vector<bool> seen(image_.sockets.size());
  for (const Image::Socket& first : image_.sockets) {
    std::vector<const Image::Socket*> chain;
    for (const Image::Socket* s = &first; s->head.domain == AF_UNIX && s->head.type == SOCK_DGRAM &&
                                          has_peer_in_image(s->head) && !seen[s->head.index];
         s = &image_.sockets[s->head.peer]) {
      seen[s->head.index] = true;
      chain.push_back(s);
    }
    out.insert(out.begin(), chain.begin(), chain.end());
  }
  return out;
}

// Datagram sockets: each has a peer address.
bool FdMaker::connect_sockets() {
  for (const Image::Socket* entry : datagram_chain()) {
    const Socket& s = entry->head;
    const Image::Socket& peer = image_.sockets[s.peer];
    if (s.flags & kSocketTwoWay && s.peer != s.index) continue;
    if (!connect_by_name(sockets_[s.index], peer))
      return fail("a datagram socket of the program cannot be connected to " + shown(peer.head));
  }
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    if (s.state == kSocketConnected &&
        connect(sockets_[s.index], as_address(s.peer_name), s.peer_name_bytes) != 0)
      warn("a datagram socket of the program has no socket at its peer address any more");
  }
  return true;
}

// Ends the stale connections that the killed program left. Later, listening sockets occupy the
// ports from which an ordinary user can end them.
void FdMaker::end_own_stale_connections() {
  std::set<uint16_t> ports;
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    if (is_network(s) && s.type == SOCK_STREAM && s.name_bytes >= 4)
      ports.insert(SocketAddress::from(s.name, s.name_bytes).port());
  }
  ports.erase(0);
  if (!ports.empty()) end_stale_connections(ports, OtherEnd::kAmongThese);
}

bool FdMaker::prepare_sockets() {
  sockets_.assign(image_.sockets.size(), -1);
  end_own_stale_connections();
  // While no socket listens at the program's ports yet.
  if (!prepare_connections() || !make_former_listeners()) return false;
  // Ends that were accepted by a listening socket are left out: accept makes them.
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    if (is_tcp_end(s) && s.state != kSocketConnecting) continue;
    const bool comes_by_name =
        listener_of(s) &&
        !(has_peer_in_image(s) && listener_of(image_.sockets[s.peer].head) && s.peer < s.index);
    const bool peer_comes = has_peer_in_image(s) && listener_of(image_.sockets[s.peer].head);
    if (comes_by_name) continue;
    const bool pair = (is_connection(s) && !peer_comes) ||
                      (s.domain == AF_UNIX && s.type == SOCK_DGRAM && s.state == kSocketPair &&
                       s.flags & kSocketTwoWay && s.peer != s.index) ||
                      (s.domain == AF_UNIX && s.state == kSocketPeerGone);
    if (pair && sockets_[s.index] < 0 && !make_pair(entry)) return false;
    if (!make_socket(entry)) return false;
    apply_options(sockets_[s.index], entry, OptionMoment::kBeforeBind);
  }
  if (!name_sockets()) return false;
  for (const Image::Socket& entry : image_.sockets)
    if (sockets_[entry.head.index] < 0 && !is_tcp_end(entry.head)) {
      if (!connect_pair(entry, *listener_of(entry.head))) return false;
      apply_options(sockets_[entry.head.index], entry, OptionMoment::kBeforeBind);
    }
  for (size_t i = image_.sockets.size(); i < sockets_.size(); ++i) close(sockets_[i]);
  sockets_.resize(image_.sockets.size());
  return connect_sockets() && prepare_waiting() && prepare_not_accepted();
}

// Reports the options that could not be set, by name.
void FdMaker::check_options() {
  for (const Image::Socket& entry : image_.sockets) {
    const Socket& s = entry.head;
    if (s.state == kSocketReset) continue;
    std::string names = option_differences(sockets_[s.index], entry);
    if (names.empty()) continue;
    std::string socket_name = "a socket";
    for (const auto& [d, path] : image_.fds)
      if (d.kind == kFdSocket && d.object == static_cast<int>(s.index))
        socket_name = "descriptor " + std::to_string(d.fd) + ", a socket";
    if (s.name_bytes > 2) socket_name += " (" + shown(s) + ")";
    warn(socket_name + ", has options that cannot be set here as they were: " + names);
  }
}

}  // namespace gpuckpt::restore
