// Every option of every kind of socket: each level and each number that getsockopt knows is read
// before and after, once as the kernel gives it to a fresh socket and once with all of the table set.
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include "feature.h"
#include "gpuckpt/socket_options.h"

enum { kLevels = 11, kNames = 256, kRoom = 64, kMostSockets = 96 };
static const int levels[kLevels] = {1, 0, 41, 6, 17, 136, 255, 58, 263, 270, 284};

struct Answer {
  int error;
  unsigned length;
  unsigned char bytes[kRoom];
};
struct Seen {
  const char* kind;
  int fd, with_options;
  struct Answer answer[kLevels][kNames];
};
static struct Seen* seen;
static int sockets;

// Reading these changes the socket, makes descriptors, or shows something that is never twice the
// same: error, cookies, counters, clocks, process numbers of the outside.
static int is_left_out(int level, int name) {
  static const int out[][2] = {{1, 4},  {1, 55}, {1, 56}, {1, 57}, {1, 71},  {1, 77}, {1, 17},
                               {1, 59}, {6, 11}, {6, 24}, {6, 28}, {6, 35}, {263, 6}, {263, 21}};
  for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); ++i)
    if (out[i][0] == level && out[i][1] == name) return 1;
  return 0;
}

static void ask(int fd, int l, int name, struct Answer* a) {
  memset(a, 0, sizeof(*a));
  if (is_left_out(levels[l], name)) return;
  a->length = kRoom;
  a->error = getsockopt(fd, levels[l], name, a->bytes, &a->length) ? errno : 0;
  if (a->error) a->length = 0, memset(a->bytes, 0, kRoom);
}

static void set_all(int fd, int after_bind) {
  for (int i = 0; i < kSocketOptionCount; ++i) {
    const struct OptionRow* o = &kSocketOptions[i];
    if ((o->time != kBeforeBind) != after_bind || o->time == kMemberships) continue;
    if (o->level == 1 && o->name == 25) setsockopt(fd, 1, 25, "lo", 3);
    if (o->level == 6 && o->name == 13) setsockopt(fd, 6, 13, "reno", 4);
    if (o->level == 6 && o->name == 33) setsockopt(fd, 6, 33, "0123456789abcdef", 16);
    if (o->level == 1 && (o->name == 20 || o->name == 21)) {
      struct timeval t = {o->name, 500000};
      setsockopt(fd, 1, o->name, &t, sizeof(t));
    }
    if (o->level == 1 && o->name == 13) {
      struct linger l = {1, 3};
      setsockopt(fd, 1, 13, &l, sizeof(l));
    }
    if (o->level == 1 && o->name == 61) {
      int txtime[2] = {CLOCK_MONOTONIC, 3};
      setsockopt(fd, 1, 61, txtime, sizeof(txtime));
    }
    if (o->level == 0 && o->name == 32) {
      struct in_addr loopback = {htonl(INADDR_LOOPBACK)};
      setsockopt(fd, 0, 32, &loopback, sizeof(loopback));
    }
    if (o->level == 0 && o->name == 4) setsockopt(fd, 0, 4, "\x07\x07\x04\0\0\0\0\0", 8);
    if (o->level == 58) setsockopt(fd, 58, 1, "abcdefghijklmnopqrstuvwxyzabcdef", 32);
    if ((o->level == 0 && o->name == 50) || (o->level == 41 && o->name == 76)) {
      int index = htonl(1);
      setsockopt(fd, o->level, o->name, &index, sizeof(index));
    }
    int zero = 0;
    if (o->sample)
      setsockopt(fd, o->level, o->name, &o->sample, sizeof(o->sample));
    else if (strstr(o->text, "LOOP") || strstr(o->text, "_ALL") || strstr(o->text, "AUTOFLOW") ||
             strstr(o->text, "REHASH") || strstr(o->text, "QUICKACK"))
      setsockopt(fd, o->level, o->name, &zero, sizeof(zero));
  }
}

static void keep(const char* kind, int fd, int with_options) {
  CHECK(fd >= 0 && sockets < kMostSockets);
  if (with_options) set_all(fd, 1);
  seen[sockets].kind = kind;
  seen[sockets].with_options = with_options;
  seen[sockets++].fd = fd;
}

static int make(int domain, int type, int protocol, int with_options) {
  int fd = socket(domain, type, protocol);
  CHECK(fd >= 0);
  if (with_options) set_all(fd, 0);
  return fd;
}

static void add_inet(int domain, int o) {
  struct sockaddr_in v4 = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  struct sockaddr* a = domain == AF_INET ? (struct sockaddr*)&v4 : (struct sockaddr*)&v6;
  socklen_t n = domain == AF_INET ? sizeof(v4) : sizeof(v6);
  keep("TCP", make(domain, SOCK_STREAM, 0, o), o);
  int s = make(domain, SOCK_STREAM, 0, o);
  CHECK(bind(s, a, n) == 0);
  keep("TCP bound", s, o);
  CHECK(bind(s = make(domain, SOCK_STREAM, 0, o), a, n) == 0 && listen(s, 5) == 0);
  keep("TCP listening", s, o);
  keep("UDP", make(domain, SOCK_DGRAM, 0, o), o);
  CHECK(bind(s = make(domain, SOCK_DGRAM, 0, o), a, n) == 0);
  keep("UDP bound", s, o);
  int peer = socket(domain, SOCK_DGRAM, 0);
  struct sockaddr_storage there;
  socklen_t size = sizeof(there);
  CHECK(bind(peer, a, n) == 0 && getsockname(peer, (struct sockaddr*)&there, &size) == 0);
  CHECK(connect(s = make(domain, SOCK_DGRAM, 0, o), (struct sockaddr*)&there, size) == 0);
  keep("UDP connected", s, o);
  keep("UDP peer", peer, 0);
  if ((s = socket(domain, SOCK_DGRAM, IPPROTO_UDPLITE)) >= 0) {
    if (o) set_all(s, 0);
    CHECK(bind(s, a, n) == 0);
    keep("UDP-Lite bound", s, o);
  }
  if (getuid() == 0) {
    keep("raw", make(domain, SOCK_RAW, domain == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6, o), o);
    keep("raw 253", make(domain, SOCK_RAW, 253, o), o);
    CHECK(bind(s = make(domain, SOCK_RAW, 253, o), a, n) == 0);
    keep("raw bound", s, o);
  }
}

static void add_unix(int o) {
  static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
  static const char* names[] = {"unix stream", "unix datagram", "unix sequenced"};
  for (int i = 0; i < 3; ++i) {
    keep(names[i], make(AF_UNIX, types[i], 0, o), o);
    int pair[2];
    CHECK(socketpair(AF_UNIX, types[i], 0, pair) == 0);
    if (o) set_all(pair[0], 0), set_all(pair[1], 0);
    keep(names[i], pair[0], o), keep(names[i], pair[1], o);
    struct sockaddr_un a = {AF_UNIX, ""};
    sprintf(a.sun_path, "name-%d-%d", i, o);
    int s = make(AF_UNIX, types[i], 0, o);
    CHECK(bind(s, (struct sockaddr*)&a, sizeof(a)) == 0);
    keep(names[i], s, o);
    sprintf(a.sun_path + 1, "sockopt-%d-%d-%d", getpid(), i, o), a.sun_path[0] = 0;
    CHECK(bind(s = make(AF_UNIX, types[i], 0, o), (struct sockaddr*)&a, 40) == 0);
    if (i != 1) CHECK(listen(s, 4) == 0);
    keep(names[i], s, o);
  }
}

int main(void) {
  seen = calloc(kMostSockets, sizeof(*seen));
  int have6 = access("/proc/net/if_inet6", F_OK) == 0;
  for (int o = 0; o < 2; ++o) {
    add_inet(AF_INET, o);
    if (have6) add_inet(AF_INET6, o);
    add_unix(o);
    keep("netlink", make(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, o), o);
    int s = make(AF_NETLINK, SOCK_DGRAM, NETLINK_GENERIC, o);
    struct sockaddr_nl a = {AF_NETLINK, 0, 0, 0};
    CHECK(bind(s, (struct sockaddr*)&a, sizeof(a)) == 0);
    keep("netlink bound", s, o);
    if (getuid() == 0) keep("packet", make(AF_PACKET, SOCK_RAW, 0, o), o);
  }
  for (int i = 0; i < sockets; ++i)
    for (int l = 0; l < kLevels; ++l)
      for (int n = 0; n < kNames; ++n) ask(seen[i].fd, l, n, &seen[i].answer[l][n]);
  ready_and_wait();
  int wrong = 0;
  for (int i = 0; i < sockets; ++i)
    for (int l = 0; l < kLevels; ++l)
      for (int n = 0; n < kNames; ++n) {
        struct Answer now, *then = &seen[i].answer[l][n];
        ask(seen[i].fd, l, n, &now);
        if (!memcmp(&now, then, sizeof(now))) continue;
        int before, after;
        memcpy(&before, then->bytes, 4), memcpy(&after, now.bytes, 4);
        dprintf(1, "%s%s: level %d option %d: %d (error %d, %u bytes) became %d (error %d, %u)\n",
                seen[i].kind, seen[i].with_options ? " with options" : "", levels[l], n, before,
                then->error, then->length, after, now.error, now.length);
        ++wrong;
      }
  CHECK(wrong == 0);
  return survived();
}
