#include "restore/descriptors/udp_sender.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/descriptors/fd.h"
#include "restore/descriptors/control_messages.h"

namespace gpuckpt::restore {

using process::Socket;

namespace {

constexpr int kMemoryInfo = 55, kMemoryWords = 9;  // SO_MEMINFO: the first is what is unread

// An address of either family, IPv4 ones in their mapped form.
struct Endpoint {
  in6_addr address{};
  uint16_t port = 0;  // in network order
  bool is_v4() const { return IN6_IS_ADDR_V4MAPPED(&address); }
  bool is_any() const {
    static const in6_addr none{};
    return is_v4() ? !memcmp(address.s6_addr + 12, &none, 4) : !memcmp(&address, &none, 16);
  }
};

Endpoint endpoint_of(const uint8_t* bytes, size_t count) {
  Endpoint out;
  sa_family_t family = 0;
  if (count >= sizeof(sockaddr_in)) memcpy(&family, bytes, sizeof(family));
  if (family == AF_INET) {
    sockaddr_in a;
    memcpy(&a, bytes, sizeof(a));
    out.port = a.sin_port;
    out.address.s6_addr[10] = out.address.s6_addr[11] = 0xff;
    memcpy(out.address.s6_addr + 12, &a.sin_addr, 4);
  } else if (family == AF_INET6 && count >= sizeof(sockaddr_in6)) {
    sockaddr_in6 a;
    memcpy(&a, bytes, sizeof(a));
    out.port = a.sin6_port, out.address = a.sin6_addr;
  }
  return out;
}

// The address that it was sent to; the loopback where that is not known.
Endpoint destination(const Image::Message& m, const Socket& to, bool v4) {
  Endpoint out = endpoint_of(m.to.data(), m.to.size());
  if (!out.port) out = endpoint_of(to.name, to.name_bytes);
  const uint16_t port = out.port;
  if (out.is_any() || out.is_v4() != v4) {
    out.address = in6addr_loopback;
    if (v4) {
      sockaddr_in loopback{};
      loopback.sin_family = AF_INET, loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      out = endpoint_of(reinterpret_cast<uint8_t*>(&loopback), sizeof(loopback));
    }
    out.port = port;
  }
  return out;
}

struct Address {
  sockaddr_storage storage{};
  socklen_t size;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address address_of(const Endpoint& e, int family) {
  Address out;
  if (family == AF_INET) {
    sockaddr_in a{};
    a.sin_family = AF_INET, a.sin_port = e.port;
    memcpy(&a.sin_addr, e.address.s6_addr + 12, 4);
    memcpy(&out.storage, &a, out.size = sizeof(a));
  } else {
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6, a.sin6_port = e.port, a.sin6_addr = e.address;
    memcpy(&out.storage, &a, out.size = sizeof(a));
  }
  return out;
}

uint32_t unread(int target) {
  uint32_t info[kMemoryWords] = {};
  socklen_t size = sizeof(info);
  return getsockopt(target, SOL_SOCKET, kMemoryInfo, info, &size) == 0 ? info[0] : 0;
}

// A datagram arrives over the loopback as soon as it is sent; on a busy machine, a moment later.
template <typename Send>
bool arrives(int target, Send send) {
  const uint32_t before = unread(target);
  if (!send()) return false;
  for (int tries = 0; tries < 300; ++tries) {
    if (unread(target) != before) return true;
    usleep(1000);
  }
  return false;
}

uint64_t sum_words(const void* bytes, size_t count, uint64_t sum) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  for (size_t i = 0; i < count; ++i) sum += i % 2 ? at[i] : uint64_t{at[i]} << 8;
  return sum;
}

uint16_t folded(uint64_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  const uint16_t out = static_cast<uint16_t>(~sum);
  return htons(out ? out : 0xffff);
}

std::vector<uint8_t> packet(const Endpoint& from, const Endpoint& to, uint8_t protocol,
                            const std::vector<uint8_t>& data) {
  const size_t length = sizeof(udphdr) + data.size();
  udphdr udp{};
  udp.source = from.port, udp.dest = to.port;
  // Of UDP-Lite this is how much the sum covers: all.
  udp.len = htons(protocol == IPPROTO_UDPLITE ? 0 : static_cast<uint16_t>(length));
  const size_t skip = to.is_v4() ? 12 : 0;
  uint64_t sum = sum_words(from.address.s6_addr + skip, 16 - skip, 0);
  sum = sum_words(to.address.s6_addr + skip, 16 - skip, sum) + protocol + length;
  sum = sum_words(&udp, sizeof(udp), sum);
  udp.check = folded(sum_words(data.data(), data.size(), sum));
  std::vector<uint8_t> out;
  auto add = [&](const void* bytes, size_t n) {
    out.insert(out.end(), static_cast<const uint8_t*>(bytes),
               static_cast<const uint8_t*>(bytes) + n);
  };
  if (to.is_v4()) {
    iphdr ip{};
    ip.version = 4, ip.ihl = 5, ip.ttl = 64, ip.protocol = protocol;
    ip.tot_len = htons(static_cast<uint16_t>(sizeof(ip) + length));
    memcpy(&ip.saddr, from.address.s6_addr + 12, 4);
    memcpy(&ip.daddr, to.address.s6_addr + 12, 4);
    add(&ip, sizeof(ip));  // (the kernel sets its sum)
  } else {
    ip6_hdr ip{};
    ip.ip6_flow = htonl(6u << 28);
    ip.ip6_plen = htons(static_cast<uint16_t>(length));
    ip.ip6_nxt = protocol, ip.ip6_hlim = 64;
    ip.ip6_src = from.address, ip.ip6_dst = to.address;
    add(&ip, sizeof(ip));
  }
  add(&udp, sizeof(udp));
  add(data.data(), data.size());
  return out;
}

bool send_raw(const Image::Message& m, const Endpoint& from, int target, const Image::Socket& to) {
  const bool v4 = from.is_v4();
  const Endpoint there = destination(m, to.head, v4);
  Fd raw(socket(v4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  if (!raw) return false;
  const std::vector<uint8_t> bytes =
      packet(from, there, static_cast<uint8_t>(to.head.protocol), m.bytes);
  Endpoint route = there;
  route.port = 0;
  const Address address = address_of(route, v4 ? AF_INET : AF_INET6);
  return arrives(target, [&] {
    return sendto(raw.get(), bytes.data(), bytes.size(), 0, address.get(), address.size) ==
           static_cast<ssize_t>(bytes.size());
  });
}

// The source address is given explicitly, for a socket that is bound to all addresses.
bool send_by(int fd, int family, const Image::Message& m, int target, const Image::Socket& to) {
  const Endpoint from = endpoint_of(m.sender.data(), m.sender.size());
  const Address address = address_of(destination(m, to.head, from.is_v4()), family);
  Control control;
  if (family == AF_INET) {
    in_pktinfo source{};
    memcpy(&source.ipi_spec_dst, from.address.s6_addr + 12, 4);
    control.add(IPPROTO_IP, IP_PKTINFO, &source, sizeof(source));
  } else {
    const in6_pktinfo source{from.address, 0};
    control.add(IPPROTO_IPV6, IPV6_PKTINFO, &source, sizeof(source));
  }
  iovec io{const_cast<uint8_t*>(m.bytes.data()), m.bytes.size()};
  msghdr message{};
  message.msg_iov = &io, message.msg_iovlen = 1;
  message.msg_name = const_cast<sockaddr*>(address.get()), message.msg_namelen = address.size;
  control.set(&message);
  return arrives(target, [&] {
    return sendmsg(fd, &message, MSG_DONTWAIT) == static_cast<ssize_t>(m.bytes.size());
  });
}

}  // namespace

SentFrom is_from(const Image::Message& m, const Socket& s) {
  const Endpoint from = endpoint_of(m.sender.data(), m.sender.size());
  const Endpoint own = endpoint_of(s.name, s.name_bytes);
  if (!from.port || own.port != from.port) return SentFrom::kElsewhere;
  if (!memcmp(&own.address, &from.address, 16)) return SentFrom::kItsAddress;
  // An IPv6 socket can send to IPv4 addresses as well.
  const bool any = own.is_any() && (from.is_v4() || !own.is_v4());
  return any ? SentFrom::kAnyAddress : SentFrom::kElsewhere;
}

bool send_udp_from(int fd, const Image::Message& m, int target, const Image::Socket& to) {
  int family = AF_INET;
  socklen_t size = sizeof(family);
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
  return send_by(fd, family, m, target, to);
}

bool may_send_raw() {
  return static_cast<bool>(Fd(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)));
}

UdpSender sender_of_udp(const Image::Message& m) {
  UdpSender out;
  Endpoint from = endpoint_of(m.sender.data(), m.sender.size());
  if (!from.port) return out;
  out.port = ntohs(from.port);
  from.port = 0;
  const int family = from.is_v4() ? AF_INET : AF_INET6;
  const Address address = address_of(from, family);
  const Fd own(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  out.is_of_this_machine = own && bind(own.get(), address.get(), address.size) == 0;
  char text[INET6_ADDRSTRLEN] = "";
  if (getnameinfo(address.get(), address.size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
    out.text = (from.is_v4() ? std::string(text) : "[" + std::string(text) + "]") + ":" +
               std::to_string(out.port);
  return out;
}

bool send_udp(const Image::Message& m, int target, const Image::Socket& to) {
  const Endpoint from = endpoint_of(m.sender.data(), m.sender.size());
  if (!from.port) return false;
  // The packet does not arrive by the loopback at a socket that is bound to another interface.
  char device[16] = "";
  socklen_t bytes = sizeof(device);
  const bool bound = getsockopt(target, SOL_SOCKET, SO_BINDTODEVICE, device, &bytes) == 0 &&
                     *device && setsockopt(target, SOL_SOCKET, SO_BINDTODEVICE, "", 0) == 0;
  bool sent = send_raw(m, from, target, to);
  if (!sent) {
    const int family = from.is_v4() ? AF_INET : AF_INET6, on = 1;
    Fd own(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, to.head.protocol));
    setsockopt(own.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const Address address = address_of(from, family);
    sent = own && bind(own.get(), address.get(), address.size) == 0 &&
           send_by(own.get(), family, m, target, to);
  }
  if (bound) setsockopt(target, SOL_SOCKET, SO_BINDTODEVICE, device, sizeof(device));
  return sent;
}

}  // namespace gpuckpt::restore
