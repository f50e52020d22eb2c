// TCP connections between the program's own sockets are made again in the way in which programs
// make them: a temporary socket listens at the address of one end, and the other end connects from
// its own address.
// Owner: none, they are values. Threads: the process that makes the descriptors. Errors: an empty
// address (`bytes` 0) where the kernel gives none.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

#include "restore/image/image.h"

namespace gpuckpt::restore {

// Address and port; an IPv4 address in its form mapped to IPv6.
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
  // In the form of a socket of that family. An IPv6 address stays one.
  SocketAddress in_family(int family) const;
};

// An end of a TCP connection, or of one that has ended.
bool is_tcp_end(const process::Socket&);

}  // namespace gpuckpt::restore
