// Sends an unread datagram to a socket of the program again, with the sender's address that it had
// the first time.
//
// Owner: the caller's descriptors. Threads: one for each socket. Errors: false when the datagram
// has not arrived.
#pragma once

#include <cstdint>
#include <string>

#include "restore/image/image.h"

namespace gpuckpt::restore {

// Whether the datagram may have come from this socket of the program. A socket that is bound to all
// addresses of its port sends from each of them.
enum class SentFrom { kElsewhere, kAnyAddress, kItsAddress };
SentFrom is_from(const Image::Message&, const process::Socket&);

// Sends it from that socket. `target`: the descriptor of socket `to`. True: it has arrived.
bool send_udp_from(int fd, const Image::Message&, int target, const Image::Socket& to);

// Whether the sender's address can be used although no socket of the program has it.
bool may_send_raw();
struct UdpSender {
  std::string text;   // "127.0.0.1:53"
  uint16_t port = 0;  // 0: not known
  bool is_of_this_machine = false;
};
UdpSender sender_of_udp(const Image::Message&);

// Sends it with the sender's address: by a raw socket, which root may do, or by a socket of our own
// that has the sender's address, where that is free.
bool send_udp(const Image::Message&, int target, const Image::Socket& to);

}  // namespace gpuckpt::restore
