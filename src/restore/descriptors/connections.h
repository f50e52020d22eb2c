// TCP connections between the program's own sockets are made again as programs make them: a socket
// listens at the address of one end for a moment, the other end connects from its own.
//
// Owner: none, they are values. Threads: the process that makes the descriptors. Errors: an empty
// address (`bytes` 0) where the kernel gives none.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

#include "restore/preflight/image.h"

namespace gpuckpt::restore {

// Address and port, an IPv4 address as the IPv6 address that it is mapped to.
using EndAddress = std::array<uint8_t, 18>;
EndAddress end_address(const uint8_t* sockaddr, uint32_t bytes);

// The address of a socket, or of its peer, as the kernel takes it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  static SocketAddress from(const uint8_t* bytes, uint32_t count);
  static SocketAddress of(int fd);
  static SocketAddress peer_of(int fd);
  static SocketAddress loopback(int family);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  EndAddress end() const { return end_address(reinterpret_cast<const uint8_t*>(&storage), bytes); }
  uint16_t port() const;
  void set_port(uint16_t);
  // As a socket of that family names it. An IPv6 address stays one.
  SocketAddress in_family(int family) const;
};

// An end of a connection by TCP, or what was one.
bool is_tcp_end(const process::Socket&);

}  // namespace gpuckpt::restore
