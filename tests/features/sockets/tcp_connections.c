// A TCP connection inside the program comes back connected: names, unread bytes in both directions, options, a thread that is
// blocked in it, a listening socket that was closed.
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include "tcp.h"
static int blocked;
static char blocked_read;
static void* reader(void* a) {
  CHECK(recv(blocked, &blocked_read, 1, 0) == 1);
  return a;
}
int main(void) {
  struct Connection c[4];
  for (int i = 0; i < 3; ++i) c[i] = connection((enum Family)i);
  c[3] = connection(kIpv4);
  close(c[3].listener);
  for (int i = 0; i < 4; ++i) {
    send_text(c[i].client, "from the client");
    send_text(c[i].server, "from the server, ");
    send_text(c[i].server, "in two pieces");
  }
  const int on = 1, off = 0, idle = 77, timeout = 12345;
  CHECK(setsockopt(c[0].client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
  CHECK(setsockopt(c[0].client, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0);
  CHECK(setsockopt(c[0].client, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) == 0);
  CHECK(setsockopt(c[0].server, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout)) == 0);
  // Held back by the kernel until more comes: it is in no receive queue.
  CHECK(setsockopt(c[1].client, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)) == 0);
  send_text(c[1].client, ", corked");
  struct Connection quiet = connection(kIpv4);
  blocked = quiet.client;
  pthread_t thread = start_thread(reader, NULL);
  const int epoll = epoll_create1(0);
  struct epoll_event e = {EPOLLIN | EPOLLRDHUP, {.u32 = 5}};
  CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, c[2].server, &e) == 0);
  CHECK(fcntl(c[2].client, F_SETFL, O_NONBLOCK) == 0);
  sleep_ms(20);

  ready_and_wait();

  for (int i = 0; i < 4; ++i) check_names(&c[i]);
  check_names(&quiet);
  CHECK(fcntl(c[2].client, F_GETFL) & O_NONBLOCK);
  CHECK(!(fcntl(c[2].server, F_GETFL) & O_NONBLOCK));
  int value = 0;
  socklen_t size = sizeof(value);
  CHECK(getsockopt(c[0].client, IPPROTO_TCP, TCP_NODELAY, &value, &size) == 0 && value == 1);
  CHECK(getsockopt(c[0].server, IPPROTO_TCP, TCP_NODELAY, &value, &size) == 0 && value == 0);
  CHECK(getsockopt(c[0].client, SOL_SOCKET, SO_KEEPALIVE, &value, &size) == 0 && value == 1);
  CHECK(getsockopt(c[0].client, IPPROTO_TCP, TCP_KEEPIDLE, &value, &size) == 0 && value == idle);
  CHECK(getsockopt(c[0].server, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size) == 0 && value == timeout);
  CHECK(getsockopt(c[1].client, IPPROTO_TCP, TCP_CORK, &value, &size) == 0 && value == 1);
  CHECK(setsockopt(c[1].client, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)) == 0);
  struct epoll_event got = {0, {.u32 = 0}};
  CHECK(epoll_wait(epoll, &got, 1, 0) == 1 && got.data.u32 == 5 && got.events == EPOLLIN);
  for (int i = 0; i < 4; ++i) {
    CHECK(ioctl(c[i].server, FIONREAD, &value) == 0 && value == (i == 1 ? 23 : 15));
    expect_text(c[i].server, i == 1 ? "from the client, corked" : "from the client");
    expect_text(c[i].client, "from the server, in two pieces");
    expect_silence(c[i].client);
    expect_silence(c[i].server);
    send_text(c[i].client, "and on");
    expect_text(c[i].server, "and on");
    send_text(c[i].server, "and back");
    expect_text(c[i].client, "and back");
  }
  send_text(quiet.server, "!");
  CHECK(pthread_join(thread, NULL) == 0 && blocked_read == '!');
  // The listening socket accepts as before, and the port of the closed one is free.
  struct sockaddr_storage at = c[0].name[1];
  const int another = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(another, (struct sockaddr*)&at, sizeof(struct sockaddr_in)) == 0);
  CHECK(accept(c[0].listener, NULL, NULL) >= 0);
  const int refused = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(refused, (struct sockaddr*)&c[3].name[1], sizeof(struct sockaddr_in)) == -1 && errno == ECONNREFUSED);
  CHECK(close(c[0].client) == 0 && recv(c[0].server, &value, 1, 0) == 0);
  return survived();
}
