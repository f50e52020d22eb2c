// How fd_sockets.cc and its helpers capture sockets together. Not for others.
//
//   fd_sockets.cc      who a socket is, its state, and which socket is at the other end
//   socket_diag.cc     what only sock_diag tells: peers, backlogs, shut down halves, inodes of
//   names socket_options.cc  options (gpuckpt/socket_options.h), packet filters, multicast groups
//   socket_queues.cc   unread messages of Unix and UDP sockets
#pragma once

#include "snapshot/descriptors/descriptors.h"

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

// Does poll tell any of these events? (To read would take a pending error from the program.)
bool polls(int fd, short events);

// "127.0.0.1:80", "[::1]:80", a path, "@name".
struct ShownAddress {
  char text[140];
};
ShownAddress show_address(const uint8_t* address, uint32_t bytes);

// Completes FdTable::SocketSeen of all sockets; called again when the table has grown.
void ask_unix_diag(FdTable*);
void ask_inet_diag(FdTable*);
// The groups of a packet socket. False: refused.
bool put_packet_groups(FdTable*, const FdTable::SocketSeen&);

bool put_socket(FdTable*, const FdTable::SocketSeen&);  // with its options
bool put_filter(FdTable*, const FdTable::SocketSeen&);
bool put_groups(FdTable*, const FdTable::SocketSeen&);

// `room`: kMessageRoom bytes. Messages with descriptors make the table grow.
inline constexpr uint64_t kMessageRoom = 4 << 20;
bool put_unix_queue(FdTable*, FdTable::SocketSeen*, char* room);
bool put_udp_queue(FdTable*, const FdTable::SocketSeen&, char* room);

}  // namespace gpuckpt
