// Sends an unread datagram to a socket of the program again, so that it comes from the address it
// came from the first time.
//
// Owner: the caller's descriptors. Threads: one for each socket. Errors: false when the datagram
// has not arrived.
#pragma once

#include "restore/preflight/image.h"

namespace gpuckpt::restore {

// Has this socket of the program's the address that the datagram came from?
bool is_from(const Image::Message&, const process::Socket&);

// Sends it by that socket. `target`: the descriptor of socket `to`. True: it has arrived.
bool send_udp_from(int fd, const Image::Message&, int target, const Image::Socket& to);

// Sends it with the sender's address: by a raw socket, which root may do, or by a socket of our own
// that has the sender's address, where that is free.
bool send_udp(const Image::Message&, int target, const Image::Socket& to);

}  // namespace gpuckpt::restore
