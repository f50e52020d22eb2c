#include "restore/descriptors/socket_options.h"

#include "restore/descriptors/tcp_reconnect.h"

#include "gpuckpt/socket_options.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace gpuckpt::restore {

namespace {

constexpr int kBufferLock = 72, kPeekOffset = 42;  // SO_BUF_LOCK, SO_PEEK_OFF

const OptionRow* row_of(const Image::SocketOption& o) {
  for (const OptionRow& row : kSocketOptions)
    if (row.level == o.level && row.name == o.name) return &row;
  return nullptr;
}

int int_of(const std::vector<uint8_t>& value) {
  int v = 0;
  std::copy_n(value.begin(), std::min(value.size(), sizeof(v)), reinterpret_cast<uint8_t*>(&v));
  return v;
}

bool is_set(int fd, const Image::SocketOption& o) {
  std::vector<uint8_t> now(std::max<size_t>(o.value.size(), 512));
  socklen_t size = static_cast<socklen_t>(now.size());
  return getsockopt(fd, o.level, o.name, now.data(), &size) == 0 && size == o.value.size() &&
         std::equal(o.value.begin(), o.value.end(), now.begin());
}

// The kernel shows sizes doubled.
void set_buffer(int fd, const Image::SocketOption& o) {
  const int half = int_of(o.value) / 2;
  const int force = o.name == SO_SNDBUF ? SO_SNDBUFFORCE : SO_RCVBUFFORCE;
  if (setsockopt(fd, SOL_SOCKET, force, &half, sizeof(half)) != 0)
    setsockopt(fd, SOL_SOCKET, o.name, &half, sizeof(half));
}

void join_netlink_groups(int fd, const Image::SocketOption& o) {
  for (int group = 0; group < static_cast<int>(o.value.size()) * 8; ++group) {
    const int number = group + 1;
    if (o.value[static_cast<size_t>(group) / 8] >> group % 8 & 1)
      setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &number, sizeof(number));
  }
}

void apply(int fd, const Image::SocketOption& o, const OptionRow& row) {
  if (o.level == SOL_SOCKET && o.name == kPeekOffset && int_of(o.value) < 0) return;
  if (is_set(fd, o)) return;
  if (row.time == kBuffer) return set_buffer(fd, o);
  if (row.time == kMemberships) return join_netlink_groups(fd, o);
  setsockopt(fd, o.level, o.name, o.value.data(), static_cast<socklen_t>(o.value.size()));
}

// The value that the kernel chooses itself unless the program sets one.
bool is_kernels_choice(const Image::Socket& s, const OptionRow& row) {
  // Of a connection: the segment size, and the TTL of the first packet.
  constexpr std::pair<int, int> kOfConnections[] = {
      {IPPROTO_TCP, 2 /* TCP_MAXSEG */},
      {IPPROTO_IP, 33 /* IP_MULTICAST_TTL */},
      {IPPROTO_IPV6, 18 /* IPV6_MULTICAST_HOPS */},
  };
  for (const auto& [level, name] : kOfConnections)
    if (row.level == level && row.name == name && is_tcp_end(s.head)) return true;
  if (row.time != kBuffer) return false;
  const int lock = option_value(s, SOL_SOCKET, kBufferLock, 0);
  return !(lock & (row.name == SO_SNDBUF ? 1 : 2));
}

sockaddr_storage group_address(uint32_t family, const uint8_t* bytes) {
  sockaddr_storage out{};
  out.ss_family = static_cast<sa_family_t>(family);
  memcpy(reinterpret_cast<uint8_t*>(&out) + (family == AF_INET ? 4 : 8), bytes,
         family == AF_INET ? 4 : 16);
  return out;
}

bool join_packet_group(int fd, const process::GroupMembership& g) {
  struct {
    int interface;
    unsigned short type, bytes;
    unsigned char address[32];
  } request{static_cast<int>(g.interface),
            static_cast<unsigned short>(g.kind),
            static_cast<unsigned short>(g.bytes),
            {}};
  memcpy(request.address, g.address, g.bytes);
  return setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request,
                    g.bytes > 8 ? sizeof(request) : sizeof(packet_mreq)) == 0;
}

bool join_group(int fd, const Image::GroupMembership& g) {
  const int level = g.head.kind == AF_INET ? static_cast<int>(IPPROTO_IP) : IPPROTO_IPV6;
  group_req group{g.head.interface, group_address(g.head.kind, g.head.address)};
  if (g.head.exclude && setsockopt(fd, level, MCAST_JOIN_GROUP, &group, sizeof(group)) != 0 &&
      errno != EADDRINUSE)
    return false;
  for (const std::vector<uint8_t>& source : g.sources) {
    group_source_req one{g.head.interface, group.gr_group,
                         group_address(g.head.kind, source.data())};
    if (setsockopt(fd, level, g.head.exclude ? MCAST_BLOCK_SOURCE : MCAST_JOIN_SOURCE_GROUP, &one,
                   sizeof(one)) != 0)
      return false;
  }
  return true;
}

}  // namespace

int option_value(const Image::Socket& s, int level, int name, int otherwise) {
  for (const Image::SocketOption& o : s.options)
    if (o.level == level && o.name == name) return int_of(o.value);
  return otherwise;
}

void apply_options(int fd, const Image::Socket& s, OptionMoment moment) {
  for (const Image::SocketOption& o : s.options) {
    const OptionRow* row = row_of(o);
    if (row &&
        (moment == OptionMoment::kAtLast || row->time == kBeforeBind || row->time == kMemberships))
      apply(fd, o, *row);
  }
}

void apply_binding_options(int fd, const Image::Socket& s) {
  constexpr std::pair<int, int> kOfAddresses[] = {
      {IPPROTO_IP, 15 /* IP_FREEBIND */},     {IPPROTO_IP, 19 /* IP_TRANSPARENT */},
      {IPPROTO_IPV6, 26 /* IPV6_V6ONLY */},   {IPPROTO_IPV6, 75 /* IPV6_TRANSPARENT */},
      {IPPROTO_IPV6, 78 /* IPV6_FREEBIND */}, {SOL_SOCKET, 25 /* SO_BINDTODEVICE */},
  };
  for (const Image::SocketOption& o : s.options)
    for (const auto& [level, name] : kOfAddresses)
      if (const OptionRow* row = o.level == level && o.name == name ? row_of(o) : nullptr)
        apply(fd, o, *row);
}

std::string option_differences(int fd, const Image::Socket& s) {
  std::string out;
  for (const Image::SocketOption& o : s.options) {
    const OptionRow* row = row_of(o);
    if (row && !is_kernels_choice(s, *row) && !is_set(fd, o))
      out += (out.empty() ? "" : ", ") + std::string(row->text);
  }
  return out;
}

LargeBuffer::LargeBuffer(int fd, int name, int force, size_t content)
    : fd_(fd), name_(name), force_(force) {
  constexpr size_t kUsual = 8 << 20, kMost = 512 << 20;
  socklen_t size = sizeof(before_);
  getsockopt(fd, SOL_SOCKET, name, &before_, &size);
  set(static_cast<int>(std::clamp(content * 2, kUsual, kMost)));
}
LargeBuffer::~LargeBuffer() { set(before_ / 2); }  // the kernel shows it doubled

void LargeBuffer::set(int bytes) const {
  if (setsockopt(fd_, SOL_SOCKET, force_, &bytes, sizeof(bytes)) != 0)
    setsockopt(fd_, SOL_SOCKET, name_, &bytes, sizeof(bytes));
}

bool join_groups(int fd, const Image::Socket& s) {
  for (const Image::GroupMembership& g : s.groups)
    if (!(s.head.domain == AF_PACKET ? join_packet_group(fd, g.head) : join_group(fd, g)))
      return false;
  return true;
}

}  // namespace gpuckpt::restore
