// TCP connections of the tests: both ends in one process.
#pragma once
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include "feature.h"

// Families of the two ends. kMapped: an IPv6 socket that has an IPv4 address.
enum Family { kIpv4, kIpv6, kMapped };

struct Connection {
  int client, server, listener;
  struct sockaddr_storage name[2], peer[2];  // of client and server
};

static inline socklen_t loopback(enum Family family, struct sockaddr_storage* a) {
  memset(a, 0, sizeof(*a));
  if (family == kIpv4) {
    struct sockaddr_in* v4 = (struct sockaddr_in*)a;
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof(*v4);
  }
  struct sockaddr_in6* v6 = (struct sockaddr_in6*)a;
  v6->sin6_family = AF_INET6;
  v6->sin6_addr = in6addr_loopback;
  if (family == kMapped) {
    static const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
    memcpy(&v6->sin6_addr, mapped, sizeof(mapped));
  }
  return sizeof(*v6);
}

static inline int new_listener(enum Family family, struct sockaddr_storage* at) {
  socklen_t n = loopback(family, at), size = sizeof(*at);
  const int l = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  CHECK(l >= 0 && setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
  CHECK(bind(l, (struct sockaddr*)at, n) == 0 && listen(l, 64) == 0);
  CHECK(getsockname(l, (struct sockaddr*)at, &size) == 0);
  return l;
}

static inline void note_names(int fd, struct sockaddr_storage* name,
                              struct sockaddr_storage* peer) {
  socklen_t n = sizeof(*name), p = sizeof(*peer);
  memset(name, 0, sizeof(*name));
  memset(peer, 0, sizeof(*peer));
  CHECK(getsockname(fd, (struct sockaddr*)name, &n) == 0 &&
        getpeername(fd, (struct sockaddr*)peer, &p) == 0);
}

static inline struct Connection connection(enum Family family) {
  struct Connection c;
  struct sockaddr_storage at;
  c.listener = new_listener(family, &at);
  c.client = socket(at.ss_family, SOCK_STREAM, 0);
  CHECK(connect(c.client, (struct sockaddr*)&at, sizeof(at)) == 0);
  CHECK((c.server = accept(c.listener, NULL, NULL)) >= 0);
  note_names(c.client, &c.name[0], &c.peer[0]);
  note_names(c.server, &c.name[1], &c.peer[1]);
  return c;
}

static inline void check_names(const struct Connection* c) {
  struct sockaddr_storage name, peer;
  note_names(c->client, &name, &peer);
  CHECK(memcmp(&name, &c->name[0], sizeof(name)) == 0 &&
        memcmp(&peer, &c->peer[0], sizeof(peer)) == 0);
  note_names(c->server, &name, &peer);
  CHECK(memcmp(&name, &c->name[1], sizeof(name)) == 0 &&
        memcmp(&peer, &c->peer[1], sizeof(peer)) == 0);
}

static inline void send_text(int fd, const char* text) {
  CHECK(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

static inline void expect_text(int fd, const char* text) {
  char got[256] = "";
  CHECK(recv(fd, got, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text) &&
        strcmp(got, text) == 0);
}

static inline short events_of(int fd) {
  struct pollfd p = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
  CHECK(poll(&p, 1, 0) >= 0);
  return p.revents;
}

// Nothing is to be read, and the connection is there.
static inline void expect_silence(int fd) {
  char byte;
  CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
}
