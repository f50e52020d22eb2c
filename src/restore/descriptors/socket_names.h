// Addresses of the program's sockets.
//
// Owner: none. Threads: pure functions. Errors: none.
#pragma once

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

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

// What a Unix socket is bound to, which ends with a zero only where there is room for one.
inline const char* path_of(const process::Socket& s) {
  return reinterpret_cast<const char*>(s.name) + offsetof(sockaddr_un, sun_path);
}
// The same if it is a path, relative ones too; else empty.
inline std::string file_name(const process::Socket& s) {
  constexpr size_t kBegin = offsetof(sockaddr_un, sun_path);
  if (s.domain != AF_UNIX || s.name_bytes <= kBegin) return {};
  return {path_of(s), strnlen(path_of(s), s.name_bytes - kBegin)};
}

// The address as messages show it: "TCP port 80", "/run/x", "@x".
std::string shown(const process::Socket&);

}  // namespace gpuckpt::restore
