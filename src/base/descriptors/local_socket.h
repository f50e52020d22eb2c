// Abstract Unix sockets between processes of ours, by raw calls: the kernel names them, with five
// hexadecimal digits, and descriptors travel with messages (SOCK_SEQPACKET).
//
// Owner: the caller closes what it is given. Threads: any. Errors: -errno, or false.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt {

// A listening socket and its name; -errno.
long local_listen(uint32_t* name);
// To the socket of that name; -errno.
long local_connect(uint32_t name);
// Which process is at the other end, as the kernel noted when it connected or listened.
bool local_peer(int socket, int* pid);
// The same; and it is this user's, or root's.
bool local_trusted(int socket, int* pid);

inline constexpr size_t kLocalDescriptors = 3;  // the most that travel with one message
bool local_send(int socket, const void* message, size_t bytes, const int* fds, size_t count);
// Bytes received, 0: the end, -errno. Never waits. `fds`: -1 where none came.
long local_receive(int socket, void* message, size_t bytes, int (&fds)[kLocalDescriptors]);

}  // namespace gpuckpt
