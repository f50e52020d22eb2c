#include "gpuckpt/socket_options.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "snapshot/descriptors/sockets.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

uint32_t family_bit(const Socket& s) {
  switch (s.domain) {
    case AF_UNIX:
      return kOfUnix;
    case AF_INET:
      return kOfIpv4;
    case AF_INET6:
      return kOfIpv6;
    case AF_NETLINK:
      return kOfNetlink;
    default:
      return kOfPacket;
  }
}

uint32_t type_bit(const Socket& s) {
  if (!is_network(s)) return kOfAny;
  if (s.type == SOCK_STREAM) return kOfTcp;
  if (s.type == SOCK_RAW) return kOfRaw;
  return s.protocol == IPPROTO_UDPLITE ? kOfUdpLite : kOfUdp;
}

uint64_t padded(uint64_t n) { return (n + 7) & ~7ull; }

uint8_t hex_digit(char c) { return static_cast<uint8_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10); }

// A group that some socket of this network namespace is a member of: is this one?
bool put_group(FdTable* t, const FdTable::SocketSeen& seen, int family, uint32_t interface,
               const uint8_t* address) {
  constexpr int kGroupFilter = 48;  // MCAST_MSFILTER
  auto& filter = t->c->scratch->multicast;
  constexpr uint32_t kMostSources = sizeof(filter.sources) / sizeof(filter.sources[0]);
  uint8_t sources[kMostSources][16];
  __builtin_memset(&filter, 0, sizeof(filter));
  filter.interface = interface;
  filter.count = kMostSources;
  const size_t at = family == AF_INET ? 4 : 8, bytes = family == AF_INET ? 4 : 16;
  const uint16_t domain = static_cast<uint16_t>(family);
  __builtin_memcpy(filter.group, &domain, sizeof(domain));
  __builtin_memcpy(filter.group + at, address, bytes);
  uint32_t size = sizeof(filter);
  if (sys::failed(get_option(seen.fd, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, kGroupFilter,
                             &filter, &size)))
    return true;
  if (filter.count > kMostSources)
    return t->c->refuse("descriptor %d has more than %u sources in a multicast filter", seen.fd,
                        kMostSources);
  GroupMembership g{};
  g.socket = seen.s.index;
  g.exclude = filter.mode == 0;  // MCAST_EXCLUDE
  g.interface = interface;
  g.kind = static_cast<uint32_t>(family);
  g.bytes = static_cast<uint32_t>(bytes);
  __builtin_memcpy(g.address, address, bytes);
  for (uint32_t i = 0; i < filter.count; ++i)
    __builtin_memcpy(sources[i], filter.sources[i] + at, bytes);
  t->r->begin(kRecGroup, filter.count);
  t->r->add(&g, sizeof(g));
  t->r->add(sources, filter.count * sizeof(sources[0]));
  t->r->end();
  return true;
}

// "1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0"
bool put_ipv4_groups(FdTable* t, const FdTable::SocketSeen& seen) {
  char buffer[4096];
  LineReader lines("/proc/thread-self/net/igmp", buffer, sizeof(buffer));
  uint32_t interface = 0;
  while (char* line = lines.next()) {
    const char* s = line;
    if (*s >= '0' && *s <= '9') interface = static_cast<uint32_t>(scan_dec(&s));
    if (*s != '\t' || s != line || !interface) continue;
    while (*s == '\t' || *s == ' ') ++s;
    const uint32_t address = static_cast<uint32_t>(scan_hex(&s));
    if (!put_group(t, seen, AF_INET, interface, reinterpret_cast<const uint8_t*>(&address)))
      return false;
  }
  return true;
}

// "1    lo              ff020000000000000000000000000001     1 0000000C 0"
bool put_ipv6_groups(FdTable* t, const FdTable::SocketSeen& seen) {
  char buffer[4096];
  LineReader lines("/proc/thread-self/net/igmp6", buffer, sizeof(buffer));
  while (char* line = lines.next()) {
    const char* s = line;
    const uint32_t interface = static_cast<uint32_t>(scan_dec(&s));
    while (*s == ' ') ++s;
    while (*s && *s != ' ') ++s;
    while (*s == ' ') ++s;
    uint8_t address[16];
    for (uint8_t& byte : address) {
      if (!s[0] || !s[1]) return true;
      byte = static_cast<uint8_t>(hex_digit(s[0]) << 4 | hex_digit(s[1]));
      s += 2;
    }
    if (!put_group(t, seen, AF_INET6, interface, address)) return false;
  }
  return true;
}

}  // namespace

long get_option(int fd, int level, int name, void* to, uint32_t* size) {
  return sys::call(SYS_getsockopt, fd, level, name, sys::ptr(to), sys::ptr(size));
}
long set_option(int fd, int level, int name, int value) {
  return sys::call(SYS_setsockopt, fd, level, name, sys::ptr(&value), sizeof(value));
}
int int_option(int fd, int level, int name) {
  int value = 0;
  uint32_t size = sizeof(value);
  return sys::failed(get_option(fd, level, name, &value, &size)) ? 0 : value;
}

void ask_options(const FdTable::SocketSeen& seen, char* room, SocketOptions* o) {
  constexpr uint32_t kMostOfOne = 512;
  const uint32_t family = family_bit(seen.s), type = type_bit(seen.s);
  *o = {};
  o->whole = true;
  for (const OptionRow& row : kSocketOptions) {
    if (!(row.families & family) || !(row.types & type)) continue;
    SocketOption head{row.level, row.name, kMostOfOne, 0};
    o->whole &= o->bytes + sizeof(head) + kMostOfOne <= SocketOptions::kMostBytes;
    if (!o->whole) return;
    char* value = room + o->bytes + sizeof(head);
    __builtin_memset(value, 0, 64);
    if (sys::failed(get_option(seen.fd, row.level, row.name, value, &head.bytes))) continue;
    o->whole &= head.bytes <= kMostOfOne;
    if (!o->whole) return;
    __builtin_memcpy(room + o->bytes, &head, sizeof(head));
    __builtin_memset(value + head.bytes, 0, padded(head.bytes) - head.bytes);
    o->bytes += static_cast<uint32_t>(sizeof(head) + padded(head.bytes));
    ++o->count;
  }
  uint32_t filters = 0;
  o->filter =
      sys::failed(get_option(seen.fd, SOL_SOCKET, SO_GET_FILTER, nullptr, &filters)) || filters;
}

// The kernel counts what was sent, and tells of each by its number; a new socket begins at 0.
void warn_of_counters(const FdTable::SocketSeen& seen, const SocketOptions& options) {
  constexpr int kZeroCopy = 60, kTimestamping = 37, kNewTimestamping = 65;
  constexpr uint32_t kNumbered = 1 << 7;  // SOF_TIMESTAMPING_OPT_ID
  if (is_tcp(seen.s) && seen.s.state != kSocketConnection) return;
  bool counts = false;
  const char* at = options.data;
  for (uint32_t i = 0; i < options.count; ++i) {
    SocketOption o;
    uint32_t value = 0;
    __builtin_memcpy(&o, at, sizeof(o));
    if (o.bytes >= sizeof(value)) __builtin_memcpy(&value, at + sizeof(o), sizeof(value));
    counts |= o.level == SOL_SOCKET && o.name == kZeroCopy && value;
    counts |= o.level == SOL_SOCKET && (o.name == kTimestamping || o.name == kNewTimestamping) &&
              value & kNumbered;
    at += sizeof(o) + padded(o.bytes);
  }
  if (counts)
    add_warning(
        "descriptor %d is a socket that numbers its notifications (MSG_ZEROCOPY, "
        "SOF_TIMESTAMPING_OPT_ID); in a restored process they begin at 0 again",
        seen.fd);
}

bool put_socket(FdTable* t, const FdTable::SocketSeen& seen, const SocketOptions& options) {
  t->r->begin(kRecSocket);
  t->r->add(&seen.s, sizeof(seen.s));
  t->r->add(options.data, options.bytes);
  t->r->end(options.count);
  if (options.whole) warn_of_counters(seen, options);
  return options.whole ||
         t->c->refuse("descriptor %d is a socket with an option that is too large to keep",
                      seen.fd);
}

bool put_filter(FdTable* t, const FdTable::SocketSeen& seen) {
  uint32_t count = 0;
  const long r = get_option(seen.fd, SOL_SOCKET, SO_GET_FILTER, nullptr, &count);
  sock_filter filter[4096];
  if (sys::failed(r) || count > 4096 ||
      sys::failed(get_option(seen.fd, SOL_SOCKET, SO_GET_FILTER, filter, &count)))
    return t->c->refuse(
        "descriptor %d is a socket with a packet filter that cannot be read; detach it or close it",
        seen.fd);
  SocketFilter head{seen.s.index, 0};
  t->r->begin(kRecFilter, count);
  t->r->add(&head, sizeof(head));
  t->r->add(filter, count * sizeof(filter[0]));
  t->r->end();
  return true;
}

bool put_groups(FdTable* t, const FdTable::SocketSeen& seen) {
  if (seen.s.domain == AF_PACKET) return put_packet_groups(t, seen);
  if (!is_network(seen.s) || is_tcp(seen.s)) return true;  // TCP has none
  return put_ipv4_groups(t, seen) && (seen.s.domain == AF_INET || put_ipv6_groups(t, seen));
}

}  // namespace gpuckpt
