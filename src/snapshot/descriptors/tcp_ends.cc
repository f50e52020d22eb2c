#include "snapshot/descriptors/tcp_ends.h"

#include <linux/inet_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <initializer_list>

#include "base/hash/hash_index.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/sockets.h"
#include "snapshot/job/barrier.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

// Between processes of one machine everything arrives at once, unless a packet was dropped because
// memory was short: its sender tries again after its own time-out, from 200 ms up, and we wait for
// that while it is short.
constexpr uint64_t kArrivalPatienceUs = 100000, kFlowPatienceUs = 800000;

InetAddress any_address(const InetAddress& like, bool v4) {
  InetAddress out{};
  if (v4) out.ip[10] = out.ip[11] = 0xff;
  __builtin_memcpy(out.port, like.port, sizeof(out.port));
  return out;
}

bool is_loopback(const InetAddress& a) {
  if (a.is_ipv4()) return a.ip[12] == 127;
  for (int i = 0; i < 15; ++i)
    if (a.ip[i]) return false;
  return a.ip[15] == 1;
}

// A connection between these addresses does not leave the machine.
bool stays_here(const InetAddress& a, const InetAddress& b) {
  return is_loopback(a) || __builtin_memcmp(a.ip, b.ip, sizeof(a.ip)) == 0;
}

InetAddress local_of(const Socket& s) { return InetAddress::from(s.name, s.name_bytes); }
InetAddress remote_of(const Socket& s) { return InetAddress::from(s.peer_name, s.peer_name_bytes); }

// What the program wrote and the kernel holds back for more of it to come (Nagle, TCP_CORK) goes.
void send_what_is_held_back(int fd) {
  for (int name : {TCP_CORK, TCP_NODELAY}) {
    const int before = int_option(fd, IPPROTO_TCP, name), push = name == TCP_NODELAY;
    if (before == push && name == TCP_CORK) continue;
    set_option(fd, IPPROTO_TCP, name, push);
    set_option(fd, IPPROTO_TCP, name, before);
  }
}

// It sends nothing after this: what was sent may still be on its way.
bool has_sent_end(uint8_t state) {
  return state == kFinWait1 || state == kFinWait2 || state == kLastAck || state == kClosing ||
         state == kTimeWait || state == kClosed;
}

// (What the program had written when it was listed is all: it is parked.)
bool list_end(FdTable* t, FdTable::SocketSeen* seen) {
  ConnectionEnd end{};
  end.local = local_of(seen->s);
  if (seen->s.state == kSocketConnection) {
    end.remote = remote_of(seen->s);
    if (!end.remote.is_set()) return true;
    if (seen->tcp.not_sent) {
      send_what_is_held_back(seen->fd);
      if (!seen->tcp.look(seen->fd)) return true;
    }
    end.retry_us = seen->tcp.retry_us;
    end.written = seen->tcp.written;
    end.ends = has_sent_end(seen->tcp.state);
  }
  return t->connections->add(end) ||
         t->c->refuse("the processes of the job have more than %u TCP sockets",
                      ConnectionTable::kMost);
}

// What sock_diag knows of the other end of a connection that no process of the snapshot has open.
struct OtherEnd {
  enum { kUnknown, kForeign, kClosed, kNotAccepted } what = kUnknown;
  uint32_t unread = 0;  // of kNotAccepted
};

OtherEnd other_end(const inet_diag_msg& m) {
  if (m.idiag_inode) return {OtherEnd::kForeign, 0};
  // (With TCP_DEFER_ACCEPT it is half open until there is something to read.)
  if (m.idiag_state == kEstablished || m.idiag_state == kCloseWait || m.idiag_state == kSynReceived)
    return {OtherEnd::kNotAccepted, m.idiag_rqueue};
  return {OtherEnd::kClosed, 0};
}

InetAddress address_of(uint8_t family, const __be32 (&ip)[4], __be16 port) {
  InetAddress out{};
  if (family == AF_INET) {
    out.ip[10] = out.ip[11] = 0xff;
    __builtin_memcpy(out.ip + 12, ip, 4);
  } else {
    __builtin_memcpy(out.ip, ip, 16);
  }
  __builtin_memcpy(out.port, &port, sizeof(port));
  return out;
}

// The kernel's list of this machine's TCP sockets: asked for when an end has no other one among the
// snapshot's. It has gaps when other processes make and close sockets while it is read.
class MachineConnections {
 public:
  MachineConnections() = default;
  ~MachineConnections() { forget(); }
  MachineConnections(const MachineConnections&) = delete;
  MachineConnections& operator=(const MachineConnections&) = delete;

  OtherEnd find(const InetAddress& local, const InetAddress& remote) {
    ask();
    const uint32_t i = by_addresses_.find(combined_hash(local, remote), [&](uint32_t k) {
      return known()[k].local == local && known()[k].remote == remote;
    });
    if (i != HashIndex::kNone) return known()[i].end;
    // It may be in a gap of the list.
    inet_diag_msg m;
    return stays_here(local, remote) && ask_tcp_socket(local, remote, &m) ? other_end(m)
                                                                          : OtherEnd{};
  }
  // The kernel tells the program of a socket that connects where to only when it is there.
  InetAddress remote_of(uint64_t ino) {
    for (int reads = 0; reads < kMostReads; ++reads) {
      ask();
      for (uint32_t i = 0; i < count_; ++i)
        if (known()[i].ino == ino) return known()[i].remote;
      forget();
    }
    return {};
  }
  // How many not yet accepted ones lead to the listening address, and come from no socket in
  // `table`?
  uint32_t strangers_waiting(const InetAddress& listening, ConnectionTable& table) {
    ask();
    uint32_t out = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      const Known& k = known()[i];
      out += k.end.what == OtherEnd::kNotAccepted && is_for(k.local, listening) &&
             !table.find(k.remote, k.local);
    }
    return out;
  }

 private:
  struct Known {
    InetAddress local, remote;
    uint64_t ino;
    OtherEnd end;
  };
  static constexpr uint32_t kMost = 65536;
  static constexpr int kMostReads = 4;

  static bool is_for(const InetAddress& local, const InetAddress& listening) {
    return local == listening || any_address(local, true) == listening ||
           any_address(local, false) == listening;
  }
  void forget() {
    if (memory_) scratch_unmap(&memory_);
    count_ = 0;
  }
  Known* known() { return reinterpret_cast<Known*>(memory_.data()); }
  void ask() {
    constexpr uint64_t kTable = sizeof(Known) * kMost;
    if (memory_ || !(memory_ = scratch_map(kTable + HashIndex::bytes_for(2 * kMost)))) return;
    by_addresses_ = HashIndex(reinterpret_cast<uint32_t*>(memory_.data() + kTable), 2 * kMost);
    each_tcp_socket([this](const inet_diag_msg& m) {
      if (count_ == kMost || m.idiag_state == kListen) return;
      Known& k = known()[count_];
      k = {address_of(m.idiag_family, m.id.idiag_src, m.id.idiag_sport),
           address_of(m.idiag_family, m.id.idiag_dst, m.id.idiag_dport), m.idiag_inode,
           other_end(m)};
      by_addresses_.add(combined_hash(k.local, k.remote), count_++);
    });
  }

  Region memory_;
  HashIndex by_addresses_;
  uint32_t count_ = 0;
};

// Which halves are shut down: 1 for receiving, 2 for sending. Both questions in one call.
uint8_t halves(FdTable::SocketSeen* seen) {
  const short events = poll_now(seen->fd, POLLRDHUP | POLLPRI);
  seen->tcp.urgent = events & POLLPRI;
  seen->tcp.error = events & POLLERR;  // (asked for or not)
  return static_cast<uint8_t>((events & POLLRDHUP ? 1 : 0) |
                              (has_sent_end(seen->tcp.state) ? 2 : 0));
}

uint64_t largest_receive_buffer() {
  char text[32];
  const char* at = text;
  return read_file("/proc/sys/net/core/rmem_max", text, sizeof(text)) > 0 ? scan_dec(&at) : 0;
}

// A larger receive buffer opens the window of the other end, which has more than fits. What an
// ordinary user may ask for can be less than what the kernel chose by itself; then nothing changes.
class OpenWindow {
 public:
  explicit OpenWindow(int fd) : fd_(fd) {
    locked_ = int_option(fd, SOL_SOCKET, kBufferLock);
    before_ = int_option(fd, SOL_SOCKET, SO_RCVBUF);
    quick_ = int_option(fd, IPPROTO_TCP, TCP_QUICKACK);
    clamp_ = int_option(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP);
    changed_ = !sys::failed(set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, kLarge)) ||
               (2 * largest_receive_buffer() > static_cast<uint64_t>(before_) &&
                !sys::failed(set_option(fd, SOL_SOCKET, SO_RCVBUF, kLarge)));
  }
  ~OpenWindow() {
    set_option(fd_, IPPROTO_TCP, TCP_QUICKACK, quick_);
    if (!changed_) return;
    // The kernel shows sizes doubled.
    if (sys::failed(set_option(fd_, SOL_SOCKET, SO_RCVBUFFORCE, before_ / 2)))
      set_option(fd_, SOL_SOCKET, SO_RCVBUF, before_ / 2);
    set_option(fd_, SOL_SOCKET, kBufferLock, locked_);
    // It had grown with the buffer (Linux 6.12 and later).
    if (int_option(fd_, IPPROTO_TCP, TCP_WINDOW_CLAMP) != clamp_)
      set_option(fd_, IPPROTO_TCP, TCP_WINDOW_CLAMP, clamp_);
  }
  OpenWindow(const OpenWindow&) = delete;
  OpenWindow& operator=(const OpenWindow&) = delete;

  // A look at the queue makes the kernel tell the other end of the room that there is now. What
  // arrives is acknowledged at once, not after 40 ms.
  void announce() const {
    char byte;
    set_option(fd_, IPPROTO_TCP, TCP_QUICKACK, 1);
    if (!polls(fd_, POLLERR))
      sys::call(SYS_recvfrom, fd_, sys::ptr(&byte), 1, MSG_PEEK | MSG_DONTWAIT, 0, 0);
  }

 private:
  static constexpr int kLarge = 512 << 20, kBufferLock = 72;  // SO_BUF_LOCK
  int fd_, before_, locked_, quick_, clamp_;
  bool changed_;
};

uint64_t received(int fd) {
  ConnectionState now;
  return now.look(fd) ? now.received : 0;
}

// Waits until `arrived` says so; with more than fits, makes room first.
template <typename Arrived>
bool await_arrival(int fd, uint64_t retry_us, Arrived arrived) {
  if (arrived()) return true;
  const OpenWindow window(fd);
  const uint64_t last = sys::now_us() + kFlowPatienceUs;
  uint64_t patience = sys::now_us() + kArrivalPatienceUs + retry_us, pause = 0, before = 0;
  while (!arrived()) {
    const uint64_t now = sys::now_us(), there = received(fd);
    if (there != before) before = there, patience = now + kArrivalPatienceUs + retry_us, pause = 0;
    if (now > patience || now > last) return false;
    window.announce();
    if (pause)
      sys::sleep_us(pause);
    else
      sys::call(SYS_sched_yield);
    pause = pause * 2 + 20;
  }
  return true;
}

struct Names {
  ShownAddress local, remote;
  explicit Names(const Socket& s)
      : local(show_address(s.name, s.name_bytes)),
        remote(show_address(s.peer_name, s.peer_name_bytes)) {}
};

bool refuse_undelivered(FdTable* t, const FdTable::SocketSeen& seen) {
  const Names names(seen.s);
  return t->c->refuse_for_now(
      "descriptor %d is a TCP connection from %s to %s whose other end has sent more than there is "
      "room for; try again when some of it has been read",
      seen.fd, names.local.text, names.remote.text);
}

// Kernel TLS and the like, where the kernel has any.
bool uses_upper_protocol(FdTable* t, int fd) {
  if (t->upper_protocols == FdTable::Known::kUnknown) {
    char names[256];
    const long n = read_file("/proc/sys/net/ipv4/tcp_available_ulp", names, sizeof(names));
    // (MPTCP's is of sockets that no program sees.)
    const bool none = n >= 0 && (!names[0] || equal(names, "\n") || equal(names, "mptcp\n"));
    t->upper_protocols = none ? FdTable::Known::kNo : FdTable::Known::kYes;
  }
  char name[16] = "";
  uint32_t size = sizeof(name);
  return t->upper_protocols == FdTable::Known::kYes &&
         !sys::failed(get_option(fd, IPPROTO_TCP, TCP_ULP, name, &size)) && size && name[0];
}

bool join_inside(FdTable* t, FdTable::SocketSeen* seen, const ConnectionEnd& other) {
  if (uses_upper_protocol(t, seen->fd))
    return t->c->refuse(
        "descriptor %d is a TCP connection that the kernel encrypts (TCP_ULP), whose keys cannot "
        "be read; close it, or switch kernel TLS off",
        seen->fd);
  seen->s.state = kSocketConnection;
  if (seen->elsewhere || seen->tcp.received >= other.written) return true;
  if (!await_arrival(seen->fd, other.retry_us, [&] { return received(seen->fd) >= other.written; }))
    return refuse_undelivered(t, *seen);
  seen->tcp.urgent = polls(seen->fd, POLLPRI);
  return true;
}

// The other end is closed for good; what it sent before may still be on its way.
bool join_left(FdTable* t, FdTable::SocketSeen* seen) {
  seen->s.state = seen->fd <= 2 ? kSocketStandard : kSocketPeerGone;
  if (seen->elsewhere || seen->fd <= 2) return true;
  return await_arrival(seen->fd, 0, [&] { return polls(seen->fd, POLLRDHUP); }) ||
         refuse_undelivered(t, *seen);
}

bool join_not_accepted(FdTable* t, FdTable::SocketSeen* seen, uint32_t unread) {
  const Names names(seen->s);
  // What it has sent lies where only accept() leads.
  if (unread)
    return t->c->refuse_for_now(
        "descriptor %d is a TCP connection from %s that has sent to %s, which has not accepted it "
        "yet; try again when it has",
        seen->fd, names.local.text, names.remote.text);
  seen->s.state = kSocketWaiting;
  return true;
}

bool join_outside(FdTable* t, FdTable::SocketSeen* seen) {
  if (seen->fd <= 2) {
    seen->s.state = kSocketStandard;
    return true;
  }
  const Names names(seen->s);
  if (t->outside == OutsideConnections::kRefuse)
    return t->c->refuse(
        "descriptor %d is a TCP connection from %s to %s, which is not part of the snapshot "
        "(GPUCKPT_SOCKETS=refuse); close it, or allow that a restore finds it reset",
        seen->fd, names.local.text, names.remote.text);
  const bool drop = t->outside == OutsideConnections::kDrop;
  seen->s.state = drop ? kSocketPeerGone : kSocketReset;
  if (!seen->elsewhere)
    add_warning("descriptor %d is a TCP connection from %s to %s; a restore finds it %s", seen->fd,
                names.local.text, names.remote.text, drop ? "closed by the other end" : "reset");
  return true;
}

// Both ends have closed it, or it ended with an error that the program does not know yet.
bool join_ended(FdTable::SocketSeen* seen) {
  if (seen->fd <= 2) {
    seen->s.state = kSocketStandard;
    return true;
  }
  if (polls(seen->fd, POLLERR)) {
    seen->s.state = kSocketReset;
    if (!seen->elsewhere)
      add_warning("descriptor %d is a TCP connection that has failed; a restore finds it reset",
                  seen->fd);
    return true;
  }
  seen->s.state = kSocketPeerGone;
  return true;
}

bool join_connecting(FdTable* t, FdTable::SocketSeen* seen, const InetAddress& remote) {
  if (!remote.is_set()) return join_outside(t, seen);
  Socket& s = seen->s;
  s.state = kSocketConnecting;
  s.peer_name_bytes = s.name_bytes;
  __builtin_memset(s.peer_name, 0, sizeof(s.peer_name));
  __builtin_memcpy(s.peer_name, s.name, 2);
  __builtin_memcpy(s.peer_name + 2, remote.port, sizeof(remote.port));
  if (s.domain == AF_INET)
    __builtin_memcpy(s.peer_name + 4, remote.ip + 12, 4);
  else
    __builtin_memcpy(s.peer_name + 8, remote.ip, sizeof(remote.ip));
  return true;
}

// Nothing was on its way to it when it was listed, and nothing is sent since.
bool is_settled(const ConnectionState& at, const ConnectionEnd* other) {
  return other && at.state == kEstablished && !other->ends && at.received >= other->written;
}

bool join_one(FdTable* t, FdTable::SocketSeen* seen, MachineConnections* machine) {
  Socket& s = seen->s;
  const InetAddress local = local_of(s), remote = remote_of(s);
  const ConnectionEnd* end = t->connections->find(remote, local);
  if (s.protocol != IPPROTO_TCP) return join_outside(t, seen);
  if (!is_settled(seen->tcp, end) && !seen->tcp.look(seen->fd)) return join_outside(t, seen);
  const uint8_t state = seen->tcp.state;
  if (state == kClosed) return join_ended(seen);
  s.shut_down = halves(seen);
  if (state == kSynSent) return join_connecting(t, seen, machine->remote_of(seen->ino));
  if (end) return join_inside(t, seen, *end);
  const OtherEnd other = machine->find(remote, local);
  if (other.what == OtherEnd::kNotAccepted && t->connections->listening(remote))
    return join_not_accepted(t, seen, other.unread);
  // The kernel forgets an end that was closed a minute ago.
  const bool forgotten =
      other.what == OtherEnd::kUnknown && s.shut_down & 1 && stays_here(remote, local);
  if (other.what == OtherEnd::kClosed || forgotten) return join_left(t, seen);
  return join_outside(t, seen);
}

// Clients that wait in the accept queue come back with their own process, or not at all.
void warn_of_strangers(FdTable* t, const FdTable::SocketSeen& seen, MachineConnections* machine) {
  if (seen.elsewhere || !seen.tcp.not_accepted) return;
  const uint32_t strangers = machine->strangers_waiting(local_of(seen.s), *t->connections);
  if (strangers)
    add_warning(
        "%u connections to descriptor %d (%s) are not accepted yet; a restore finds them reset",
        strangers, seen.fd, show_address(seen.s.name, seen.s.name_bytes).text);
}

}  // namespace

bool ConnectionState::look(int fd) {
  *this = {};
  tcp_info info{};
  uint32_t size = sizeof(info);
  if (sys::failed(get_option(fd, IPPROTO_TCP, TCP_INFO, &info, &size))) return false;
  state = info.tcpi_state;
  if (state == kListen) {  // which uses the fields of a connection
    backlog = info.tcpi_sacked;
    not_accepted = info.tcpi_unacked;
    return true;
  }
  not_sent = info.tcpi_notsent_bytes;
  retry_us = info.tcpi_unacked && info.tcpi_retransmits ? info.tcpi_rto : 0;
  written = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
  received = info.tcpi_bytes_received;
  return true;
}

bool InetAddress::is_ipv4() const {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return __builtin_memcmp(ip, kMapped, sizeof(kMapped)) == 0;
}

InetAddress InetAddress::from(const uint8_t* sockaddr, uint32_t bytes) {
  InetAddress out{};
  uint16_t family = 0;
  if (bytes >= sizeof(family)) __builtin_memcpy(&family, sockaddr, sizeof(family));
  if (family == AF_INET && bytes >= 8) {
    out.ip[10] = out.ip[11] = 0xff;
    __builtin_memcpy(out.ip + 12, sockaddr + 4, 4);
  } else if (family == AF_INET6 && bytes >= 24) {
    __builtin_memcpy(out.ip, sockaddr + 8, 16);
  } else {
    return out;
  }
  __builtin_memcpy(out.port, sockaddr + 2, 2);
  return out;
}

bool ConnectionTable::add(const ConnectionEnd& e) {
  if (count == kMost) return false;
  HashIndex(slot, kSlots).add(combined_hash(e.local, e.remote), count);
  end[count++] = e;
  return true;
}

const ConnectionEnd* ConnectionTable::find(const InetAddress& local, const InetAddress& remote) {
  const uint32_t i = HashIndex(slot, kSlots).find(combined_hash(local, remote), [&](uint32_t k) {
    return end[k].local == local && end[k].remote == remote;
  });
  return i == HashIndex::kNone ? nullptr : &end[i];
}

const ConnectionEnd* ConnectionTable::listening(const InetAddress& local) {
  for (const InetAddress& at : {local, any_address(local, true), any_address(local, false)})
    if (const ConnectionEnd* e = find(at, InetAddress{})) return e;
  return nullptr;
}

bool list_connections(FdTable* t) {
  for (uint32_t i = 0; i < t->sockets; ++i) {
    FdTable::SocketSeen& seen = t->socket[i];
    if (is_tcp(seen.s) && !seen.elsewhere &&
        (seen.s.state == kSocketListening || seen.s.state == kSocketConnection) &&
        !list_end(t, &seen))
      return false;
  }
  return true;
}

bool join_connections(FdTable* t) {
  MachineConnections machine;
  for (uint32_t i = 0; i < t->sockets; ++i) {
    FdTable::SocketSeen& seen = t->socket[i];
    if (!is_tcp(seen.s)) continue;
    if (seen.s.state == kSocketListening) warn_of_strangers(t, seen, &machine);
    if (seen.s.state == kSocketConnection && !join_one(t, &seen, &machine)) return false;
  }
  return true;
}

}  // namespace gpuckpt
