// What becomes of each TCP connection. With both ends in the snapshot: which belong together, and
// when all that one has sent lies in the other's queue. Others: as OutsideConnections says.
//
// Nothing is consumed: when all processes stand, each lists its ends with how much was written into
// them; then they meet (wire::kJobListed); then each waits until its own ends have received what
// theirs have written, and looks at the queue. A snapshot that fails has changed nothing.
//
// Everything here is used while PARKED and, in a job, under the lock of the shared state.
//
// Owner: the job's shared state, or the FdTable of a process alone. Threads: PARKED, the
// coordinator. Errors: the Capture's failure.
#pragma once

#include <cstdint>

namespace gpuckpt {

struct FdTable;

// An IPv4 address is kept as the IPv6 address that it is mapped to: a connection can have an end of
// each family.
struct InetAddress {
  uint8_t ip[16];
  uint8_t port[2];  // in network byte order

  static InetAddress from(const uint8_t* sockaddr, uint32_t bytes);
  bool operator==(const InetAddress&) const = default;
  bool is_set() const { return port[0] || port[1]; }
  bool is_ipv4() const;
};

// The states of a connection, the kernel's own, which <linux/tcp.h> does not have.
enum TcpState : uint8_t {
  kEstablished = 1,
  kSynSent = 2,
  kSynReceived = 3,
  kFinWait1 = 4,
  kFinWait2 = 5,
  kTimeWait = 6,
  kClosed = 7,
  kCloseWait = 8,
  kLastAck = 9,
  kListen = 10,
  kClosing = 11,
};

// What the kernel tells of a TCP socket (TCP_INFO).
struct ConnectionState {
  uint8_t state;          // the kernel's number
  uint32_t backlog;       // of a listening one
  uint32_t not_accepted;  // of a listening one
  uint32_t not_sent;      // bytes that are held back
  uint32_t retry_us;      // ConnectionEnd
  uint64_t written, received;
  // Of a connection inside: it has an unread byte that was sent with MSG_OOB; its error queue is
  // not empty.
  bool urgent, error;

  // Returns false if the kernel does not tell (MPTCP).
  bool look(int fd);
};

// One end, or a listening socket, whose remote address is empty.
struct ConnectionEnd {
  InetAddress local, remote;
  uint64_t written;   // bytes that the program has written into it since it was connected
  uint32_t retry_us;  // the kernel waits this long to send again what was dropped; 0: nothing was
  bool ends;          // it sends no more: what arrives last is its end
};

// All ends of all processes of the snapshot. Zero at first.
struct ConnectionTable {
  static constexpr uint32_t kMost = 32768, kSlots = 2 * kMost;
  uint32_t count;
  uint32_t slot[kSlots];  // HashIndex by both addresses
  ConnectionEnd end[kMost];

  bool add(const ConnectionEnd&);
  const ConnectionEnd* find(const InetAddress& local, const InetAddress& remote);
  // A listening socket that has, or would have, accepted what is connected to `local`.
  const ConnectionEnd* listening(const InetAddress& local);
};

// Lists the ends that this process has. False: refused.
bool list_connections(FdTable*);
// When all processes have: decides what becomes of each TCP socket, and waits for what is on its
// way. False: refused.
bool join_connections(FdTable*);

}  // namespace gpuckpt
