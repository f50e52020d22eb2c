// Addresses of the program's sockets.
//
// Owner: none. Threads: pure functions. Errors: none.
#pragma once

#include <sys/socket.h>

#include <string>

#include "restore/image/image.h"

namespace gpuckpt::restore {

inline bool is_network(const process::Socket& s) {
  return s.domain == AF_INET || s.domain == AF_INET6;
}
inline const sockaddr* as_address(const uint8_t* bytes) {
  return reinterpret_cast<const sockaddr*>(bytes);
}

// The name of an end of a connection, which is only shown.
inline bool is_connection(const process::Socket& s) {
  return s.domain == AF_UNIX && s.type != SOCK_DGRAM &&
         (s.state == process::kSocketPair || s.state == process::kSocketPeerGone);
}

// The address as messages show it: "TCP port 80", "/run/x", "@x".
std::string shown(const process::Socket&);

}  // namespace gpuckpt::restore
