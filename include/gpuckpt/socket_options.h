// Every option of a socket that can be both read and set: one row each. The capture reads what is
// listed here, a restore sets what differs from a fresh socket's and compares all of it in the end,
// and the test (tests/features/sockets/socket_options.c) sets the sample values and reads back
// every number there is, so that a row that is missing here shows as a difference.
//
// What the kernel lets a program set but not read is in snapshot/descriptors/unreadable_options.cc.
// Numbers instead of names, because older headers lack some. Plain C: the test program includes it,
// too.
#pragma once

enum OptionFamily {
  kOfUnix = 1,
  kOfIpv4 = 2,
  kOfIpv6 = 4,
  kOfNetlink = 8,
  kOfPacket = 16,
  kOfInet = kOfIpv4 | kOfIpv6,
  kOfAll = 31
};
enum OptionType {
  kOfTcp = 1,  // SOCK_STREAM of the internet families
  kOfUdp = 2,  // and ping sockets
  kOfRaw = 4,
  kOfUdpLite = 8,
  kOfDatagrams = 14,  // what the kernel refuses to set for a stream
  kOfAny = 15
};
// When a restore sets it.
enum OptionTime {
  kBeforeBind = 0,
  kAfterData = 1,   // it would change how what is queued gets there, or what that carries
  kBuffer = 2,      // a size, which the kernel shows doubled; after the data
  kMemberships = 3  // NETLINK_LIST_MEMBERSHIPS: a bit for each group
};

struct OptionRow {
  int level, name;
  const char* text;
  unsigned families, types, time;
  int sample;  // for the test: something a fresh socket does not have; 0: not a plain number
};

// In the order in which they are set: what follows may depend on what is above.
static const struct OptionRow kSocketOptions[] = {
    // ip(7). IP_TOS sets SO_PRIORITY, too. Those of AF_INET6 sockets hold for IPv4 peers.
    {0, 1, "IP_TOS", kOfInet, kOfAny, kBeforeBind, 8},
    {0, 2, "IP_TTL", kOfInet, kOfAny, kBeforeBind, 33},
    {0, 3, "IP_HDRINCL", kOfIpv4, kOfRaw, kAfterData, 1},
    {0, 4, "IP_OPTIONS", kOfInet, kOfAny, kAfterData, 0},
    {0, 6, "IP_RECVOPTS", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 7, "IP_RETOPTS", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 8, "IP_PKTINFO", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 10, "IP_MTU_DISCOVER", kOfInet, kOfAny, kAfterData, 3},
    {0, 11, "IP_RECVERR", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 12, "IP_RECVTTL", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 13, "IP_RECVTOS", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 15, "IP_FREEBIND", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 18, "IP_PASSSEC", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 19, "IP_TRANSPARENT", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 20, "IP_RECVORIGDSTADDR", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 21, "IP_MINTTL", kOfInet, kOfAny, kAfterData, 3},
    {0, 22, "IP_NODEFRAG", kOfIpv4, kOfRaw, kBeforeBind, 1},
    {0, 23, "IP_CHECKSUM", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 24, "IP_BIND_ADDRESS_NO_PORT", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 25, "IP_RECVFRAGSIZE", kOfInet, kOfDatagrams, kBeforeBind, 1},
    {0, 26, "IP_RECVERR_RFC4884", kOfInet, kOfAny, kBeforeBind, 1},
    {0, 32, "IP_MULTICAST_IF", kOfInet, kOfDatagrams, kBeforeBind, 0},
    // (Of a stream that was accepted, the next one is the TTL that its first packet came with.)
    {0, 33, "IP_MULTICAST_TTL", kOfInet, kOfAny, kBeforeBind, 5},
    {0, 34, "IP_MULTICAST_LOOP", kOfInet, kOfAny, kBeforeBind, 0},
    {0, 49, "IP_MULTICAST_ALL", kOfInet, kOfAny, kBeforeBind, 0},
    {0, 50, "IP_UNICAST_IF", kOfInet, kOfAny, kBeforeBind, 0},
    {0, 51, "IP_LOCAL_PORT_RANGE", kOfInet, kOfAny, kBeforeBind, 60000 << 16 | 20000},
    // ipv6(7)
    {41, 2, "IPV6_2292PKTINFO", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 3, "IPV6_2292HOPOPTS", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 4, "IPV6_2292DSTOPTS", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 5, "IPV6_2292RTHDR", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 7, "IPV6_CHECKSUM", kOfIpv6, kOfRaw, kBeforeBind, 2},
    {41, 8, "IPV6_2292HOPLIMIT", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 11, "IPV6_FLOWINFO", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 16, "IPV6_UNICAST_HOPS", kOfIpv6, kOfAny, kBeforeBind, 34},
    {41, 17, "IPV6_MULTICAST_IF", kOfIpv6, kOfDatagrams, kBeforeBind, 1},
    {41, 18, "IPV6_MULTICAST_HOPS", kOfIpv6, kOfAny, kBeforeBind, 6},
    {41, 19, "IPV6_MULTICAST_LOOP", kOfIpv6, kOfAny, kBeforeBind, 0},
    {41, 23, "IPV6_MTU_DISCOVER", kOfIpv6, kOfAny, kAfterData, 2},
    {41, 25, "IPV6_RECVERR", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 26, "IPV6_V6ONLY", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 29, "IPV6_MULTICAST_ALL", kOfIpv6, kOfAny, kBeforeBind, 0},
    {41, 30, "IPV6_ROUTER_ALERT_ISOLATE", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 31, "IPV6_RECVERR_RFC4884", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 33, "IPV6_FLOWINFO_SEND", kOfIpv6, kOfAny, kAfterData, 1},
    {41, 36, "IPV6_HDRINCL", kOfIpv6, kOfRaw, kAfterData, 1},
    {41, 49, "IPV6_RECVPKTINFO", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 51, "IPV6_RECVHOPLIMIT", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 53, "IPV6_RECVHOPOPTS", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 54, "IPV6_HOPOPTS", kOfIpv6, kOfAny, kAfterData, 0},
    {41, 55, "IPV6_RTHDRDSTOPTS", kOfIpv6, kOfAny, kAfterData, 0},
    {41, 56, "IPV6_RECVRTHDR", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 57, "IPV6_RTHDR", kOfIpv6, kOfAny, kAfterData, 0},
    {41, 58, "IPV6_RECVDSTOPTS", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 59, "IPV6_DSTOPTS", kOfIpv6, kOfAny, kAfterData, 0},
    {41, 60, "IPV6_RECVPATHMTU", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 62, "IPV6_DONTFRAG", kOfIpv6, kOfAny, kAfterData, 1},
    {41, 66, "IPV6_RECVTCLASS", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 67, "IPV6_TCLASS", kOfIpv6, kOfAny, kBeforeBind, 12},
    {41, 70, "IPV6_AUTOFLOWLABEL", kOfIpv6, kOfAny, kBeforeBind, 0},
    {41, 72, "IPV6_ADDR_PREFERENCES", kOfIpv6, kOfAny, kBeforeBind, 2},
    {41, 73, "IPV6_MINHOPCOUNT", kOfIpv6, kOfAny, kAfterData, 4},
    {41, 74, "IPV6_RECVORIGDSTADDR", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 75, "IPV6_TRANSPARENT", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 76, "IPV6_UNICAST_IF", kOfIpv6, kOfAny, kBeforeBind, 0},
    {41, 77, "IPV6_RECVFRAGSIZE", kOfIpv6, kOfAny, kBeforeBind, 1},
    {41, 78, "IPV6_FREEBIND", kOfIpv6, kOfAny, kBeforeBind, 1},
    // tcp(7)
    {6, 1, "TCP_NODELAY", kOfInet, kOfTcp, kBeforeBind, 1},
    {6, 2, "TCP_MAXSEG", kOfInet, kOfTcp, kBeforeBind, 1000},
    {6, 3, "TCP_CORK", kOfInet, kOfTcp, kBeforeBind, 1},
    {6, 4, "TCP_KEEPIDLE", kOfInet, kOfTcp, kBeforeBind, 77},
    {6, 5, "TCP_KEEPINTVL", kOfInet, kOfTcp, kBeforeBind, 11},
    {6, 6, "TCP_KEEPCNT", kOfInet, kOfTcp, kBeforeBind, 3},
    {6, 7, "TCP_SYNCNT", kOfInet, kOfTcp, kBeforeBind, 2},
    {6, 8, "TCP_LINGER2", kOfInet, kOfTcp, kBeforeBind, 9},
    {6, 9, "TCP_DEFER_ACCEPT", kOfInet, kOfTcp, kBeforeBind, 7},
    {6, 10, "TCP_WINDOW_CLAMP", kOfInet, kOfTcp, kBeforeBind, 40000},
    {6, 12, "TCP_QUICKACK", kOfInet, kOfTcp, kAfterData, 0},
    {6, 13, "TCP_CONGESTION", kOfInet, kOfTcp, kBeforeBind, 0},
    {6, 16, "TCP_THIN_LINEAR_TIMEOUTS", kOfInet, kOfTcp, kBeforeBind, 1},
    {6, 18, "TCP_USER_TIMEOUT", kOfInet, kOfTcp, kBeforeBind, 12345},
    {6, 23, "TCP_FASTOPEN", kOfInet, kOfTcp, kBeforeBind, 6},
    {6, 25, "TCP_NOTSENT_LOWAT", kOfInet, kOfTcp, kBeforeBind, 5000},
    {6, 27, "TCP_SAVE_SYN", kOfInet, kOfTcp, kBeforeBind, 1},
    {6, 30, "TCP_FASTOPEN_CONNECT", kOfInet, kOfTcp, kBeforeBind, 1},
    {6, 33, "TCP_FASTOPEN_KEY", kOfInet, kOfTcp, kBeforeBind, 0},
    {6, 34, "TCP_FASTOPEN_NO_COOKIE", kOfInet, kOfTcp, kBeforeBind, 1},
    {6, 36, "TCP_INQ", kOfInet, kOfTcp, kBeforeBind, 1},
    {6, 37, "TCP_TX_DELAY", kOfInet, kOfTcp, kBeforeBind, 100},
    {6, 44, "TCP_RTO_MAX_MS", kOfInet, kOfTcp, kBeforeBind, 5000},
    {6, 45, "TCP_RTO_MIN_US", kOfInet, kOfTcp, kBeforeBind, 50000},
    {6, 46, "TCP_DELACK_MAX_US", kOfInet, kOfTcp, kBeforeBind, 30000},
    // udp(7), udplite(7)
    {17, 1, "UDP_CORK", kOfInet, kOfUdp | kOfUdpLite, kAfterData, 1},
    {17, 100, "UDP_ENCAP", kOfInet, kOfUdp | kOfUdpLite, kAfterData, 2},
    {17, 101, "UDP_NO_CHECK6_TX", kOfInet, kOfUdp | kOfUdpLite, kBeforeBind, 1},
    {17, 102, "UDP_NO_CHECK6_RX", kOfInet, kOfUdp | kOfUdpLite, kBeforeBind, 1},
    {17, 103, "UDP_SEGMENT", kOfInet, kOfUdp | kOfUdpLite, kAfterData, 500},
    {17, 104, "UDP_GRO", kOfInet, kOfUdp | kOfUdpLite, kAfterData, 1},
    {136, 10, "UDPLITE_SEND_CSCOV", kOfInet, kOfUdpLite, kAfterData, 10},
    {136, 11, "UDPLITE_RECV_CSCOV", kOfInet, kOfUdpLite, kAfterData, 12},
    // raw(7), icmp(7)
    {255, 1, "ICMP_FILTER", kOfIpv4, kOfRaw, kAfterData, 8},
    {58, 1, "ICMPV6_FILTER", kOfIpv6, kOfRaw, kAfterData, 0},
    // packet(7)
    {263, 8, "PACKET_AUXDATA", kOfPacket, kOfAny, kBeforeBind, 1},
    {263, 9, "PACKET_ORIGDEV", kOfPacket, kOfAny, kBeforeBind, 1},
    {263, 10, "PACKET_VERSION", kOfPacket, kOfAny, kBeforeBind, 1},
    {263, 12, "PACKET_RESERVE", kOfPacket, kOfAny, kBeforeBind, 16},
    {263, 14, "PACKET_LOSS", kOfPacket, kOfAny, kBeforeBind, 1},
    {263, 15, "PACKET_VNET_HDR", kOfPacket, kOfAny, kBeforeBind, 1},
    {263, 17, "PACKET_TIMESTAMP", kOfPacket, kOfAny, kBeforeBind, 16},
    {263, 19, "PACKET_TX_HAS_OFF", kOfPacket, kOfAny, kBeforeBind, 1},
    {263, 20, "PACKET_QDISC_BYPASS", kOfPacket, kOfAny, kBeforeBind, 1},
    {263, 23, "PACKET_IGNORE_OUTGOING", kOfPacket, kOfAny, kBeforeBind, 1},
    {263, 24, "PACKET_VNET_HDR_SZ", kOfPacket, kOfAny, kBeforeBind, 12},
    // netlink(7)
    {270, 3, "NETLINK_PKTINFO", kOfNetlink, kOfAny, kBeforeBind, 1},
    {270, 4, "NETLINK_BROADCAST_ERROR", kOfNetlink, kOfAny, kBeforeBind, 1},
    {270, 5, "NETLINK_NO_ENOBUFS", kOfNetlink, kOfAny, kBeforeBind, 1},
    {270, 8, "NETLINK_LISTEN_ALL_NSID", kOfNetlink, kOfAny, kBeforeBind, 1},
    {270, 9, "NETLINK_LIST_MEMBERSHIPS", kOfNetlink, kOfAny, kMemberships, 0},
    {270, 10, "NETLINK_CAP_ACK", kOfNetlink, kOfAny, kBeforeBind, 1},
    {270, 11, "NETLINK_EXT_ACK", kOfNetlink, kOfAny, kBeforeBind, 1},
    {270, 12, "NETLINK_GET_STRICT_CHK", kOfNetlink, kOfAny, kBeforeBind, 1},
    // socket(7), unix(7). Each kind of time stamps clears the others.
    {1, 1, "SO_DEBUG", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 2, "SO_REUSEADDR", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 5, "SO_DONTROUTE", kOfAll, kOfAny, kAfterData, 1},
    {1, 6, "SO_BROADCAST", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 9, "SO_KEEPALIVE", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 10, "SO_OOBINLINE", kOfAll, kOfAny, kAfterData, 1},
    {1, 11, "SO_NO_CHECK", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 12, "SO_PRIORITY", kOfAll, kOfAny, kBeforeBind, 4},
    {1, 13, "SO_LINGER", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 15, "SO_REUSEPORT", kOfInet, kOfAny, kBeforeBind, 1},
    {1, 16, "SO_PASSCRED", kOfAll, kOfAny, kAfterData, 1},
    {1, 18, "SO_RCVLOWAT", kOfAll, kOfAny, kBeforeBind, 17},
    {1, 20, "SO_RCVTIMEO", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 21, "SO_SNDTIMEO", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 25, "SO_BINDTODEVICE", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 29, "SO_TIMESTAMP_OLD", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 34, "SO_PASSSEC", kOfAll, kOfAny, kAfterData, 1},
    {1, 35, "SO_TIMESTAMPNS_OLD", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 63, "SO_TIMESTAMP_NEW", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 64, "SO_TIMESTAMPNS_NEW", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 37, "SO_TIMESTAMPING_OLD", kOfAll, kOfAny, kBeforeBind, 24},
    {1, 65, "SO_TIMESTAMPING_NEW", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 36, "SO_MARK", kOfAll, kOfAny, kAfterData, 71},
    {1, 40, "SO_RXQ_OVFL", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 41, "SO_WIFI_STATUS", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 42, "SO_PEEK_OFF", kOfUnix | kOfInet, kOfAny, kAfterData, 0},
    {1, 43, "SO_NOFCS", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 45, "SO_SELECT_ERR_QUEUE", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 46, "SO_BUSY_POLL", kOfAll, kOfAny, kBeforeBind, 3},
    {1, 47, "SO_MAX_PACING_RATE", kOfAll, kOfAny, kBeforeBind, 1000000},
    {1, 49, "SO_INCOMING_CPU", kOfInet, kOfAny, kAfterData, 0},
    {1, 60, "SO_ZEROCOPY", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 61, "SO_TXTIME", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 69, "SO_PREFER_BUSY_POLL", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 70, "SO_BUSY_POLL_BUDGET", kOfAll, kOfAny, kBeforeBind, 6},
    {1, 73, "SO_RESERVE_MEM", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 74, "SO_TXREHASH", kOfAll, kOfAny, kBeforeBind, 0},
    {1, 75, "SO_RCVMARK", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 76, "SO_PASSPIDFD", kOfAll, kOfAny, kAfterData, 1},
    {1, 82, "SO_RCVPRIORITY", kOfAll, kOfAny, kBeforeBind, 1},
    {1, 83, "SO_PASSRIGHTS", kOfAll, kOfAny, kAfterData, 0},
    {1, 84, "SO_INQ", kOfUnix, kOfAny, kBeforeBind, 1},
    {1, 7, "SO_SNDBUF", kOfAll, kOfAny, kBuffer, 30000},
    {1, 8, "SO_RCVBUF", kOfAll, kOfAny, kBuffer, 31000},
    {1, 72, "SO_BUF_LOCK", kOfAll, kOfAny, kAfterData, 0},
    // What was filtered or locked stays so: the filter itself is a record of its own.
    {1, 44, "SO_LOCK_FILTER", kOfAll, kOfAny, kAfterData, 0},
};
enum { kSocketOptionCount = sizeof(kSocketOptions) / sizeof(kSocketOptions[0]) };
