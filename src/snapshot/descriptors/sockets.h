// How fd_sockets.cc and its helpers capture sockets together. Not for others.
//
//   fd_sockets.cc      a socket's identity, its state, and which socket is at the other end
//   socket_diag.cc     what only sock_diag tells: peers, backlogs, shut down halves, names' inodes
//   socket_options.cc  options (gpuckpt/socket_options.h), packet filters, multicast groups
//   socket_unread.cc   unread messages of Unix and UDP sockets, unread bytes of TCP connections
//   tcp_ends.cc        which TCP sockets are each other's ends, and what becomes of the others
//
// Owner: the FdTable. Threads: PARKED, the coordinator; ask_options() by several. Errors: the
// Capture's failure.
#pragma once

#include <sys/socket.h>

#include "base/syscall.h"
#include "snapshot/descriptors/descriptors.h"

struct inet_diag_msg;

namespace gpuckpt {

long get_option(int fd, int level, int name, void* to, uint32_t* size);
long set_option(int fd, int level, int name, int value);
int int_option(int fd, int level, int name);

inline bool is_network(const process::Socket& s) {
  return s.domain == 2 /* AF_INET */ || s.domain == 10 /* AF_INET6 */;
}
inline bool is_udp(const process::Socket& s) {
  return is_network(s) && s.type == 2 /* SOCK_DGRAM */ &&
         (s.protocol == 17 /* UDP */ || s.protocol == 136 /* UDP-Lite */);
}
inline bool is_tcp(const process::Socket& s) { return is_network(s) && s.type == SOCK_STREAM; }

// An option that has another value while this lives.
class SwitchedOption {
 public:
  SwitchedOption(int fd, int level, int name, int value) : fd_(fd), level_(level), name_(name) {
    uint32_t size = sizeof(before_);
    ok = !sys::failed(get_option(fd, level, name, &before_, &size)) &&
         !sys::failed(set_option(fd, level, name, value));
  }
  ~SwitchedOption() {
    if (ok) set_option(fd_, level_, name_, before_);
  }
  SwitchedOption(const SwitchedOption&) = delete;
  SwitchedOption& operator=(const SwitchedOption&) = delete;
  bool ok;

 private:
  int fd_, level_, name_, before_ = 0;
};

// What poll tells of these events. (To read would take a pending error from the program.)
short poll_now(int fd, short events);
inline bool polls(int fd, short events) { return poll_now(fd, events) & events; }

// "127.0.0.1:80", "[::1]:80", a path, "@name".
struct ShownAddress {
  char text[140];
};
ShownAddress show_address(const uint8_t* address, uint32_t bytes);

// Completes FdTable::SocketSeen of all sockets; called again when the table has grown.
void ask_unix_diag(FdTable*);
void ask_inet_diag(FdTable*);
// Calls each(message) for every TCP socket of the machine, of any process.
void each_tcp_socket(void* context, void (*each)(void* context, const inet_diag_msg&));
template <typename Each>
void each_tcp_socket(Each each) {
  each_tcp_socket(&each, [](void* context, const inet_diag_msg& message) {
    (*static_cast<Each*>(context))(message);
  });
}
// The TCP socket of the machine that has these addresses. False: there is none.
bool ask_tcp_socket(const InetAddress& local, const InetAddress& remote, inet_diag_msg* out);
// The groups of a packet socket. False: refused.
bool put_packet_groups(FdTable*, const FdTable::SocketSeen&);

// The options of one socket, as the record has them.
struct SocketOptions {
  static constexpr uint32_t kMostBytes = 8192;
  char* data;
  uint32_t count, bytes;
  bool whole;   // false: more than there is room for
  bool filter;  // it has a packet filter
};
// Fills room[kMostBytes] and all but `data`; of many sockets side by side.
void ask_options(const FdTable::SocketSeen&, char* room, SocketOptions*);
// Returns false if the snapshot is refused. Warns of an option whose state cannot be kept.
bool put_socket(FdTable*, const FdTable::SocketSeen&, const SocketOptions&);
// Records the socket's packet filter. Returns false for one that cannot be read (BPF).
bool put_filter(FdTable*, const FdTable::SocketSeen&);
bool put_groups(FdTable*, const FdTable::SocketSeen&);

// `room`: kMessageRoom bytes. Messages with descriptors make the table grow.
inline constexpr uint64_t kMessageRoom = 4 << 20;
bool put_unix_queue(FdTable*, FdTable::SocketSeen*, char* room);
bool put_udp_queue(FdTable*, const FdTable::SocketSeen&, char* room);
bool put_tcp_queue(FdTable*, FdTable::SocketSeen*);
// The bytes of those for which put_tcp_queue() has only made room. False: refused.
bool read_tcp_queues(FdTable*);

}  // namespace gpuckpt
