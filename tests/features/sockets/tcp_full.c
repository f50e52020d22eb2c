// Connections whose receiver does not read: what it has no room for lies in the sender, and nothing of it may be lost or come
// twice. One of them with a thread that waits for room, one with a receive buffer of the program's own choice.
#include "tcp.h"
static uint64_t sent[3];
static int writer_fd;
static uint8_t at(uint64_t i) { return (uint8_t)(i * 7 + i / 251); }
static uint64_t fill(int fd) {
  uint8_t piece[4096];
  uint64_t done = 0;
  for (;;) {
    for (int i = 0; i < 4096; ++i) piece[i] = at(done + (uint64_t)i);
    const ssize_t n = send(fd, piece, sizeof(piece), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0) return done;
    done += (uint64_t)n;
  }
}
static void* writer(void* a) {
  uint8_t piece[4096];
  for (int k = 0; k < 100; ++k) {
    for (int i = 0; i < 4096; ++i) piece[i] = at(sent[2] + (uint64_t)i);
    for (size_t done = 0; done < sizeof(piece);) {
      const ssize_t n = send(writer_fd, piece + done, sizeof(piece) - done, MSG_NOSIGNAL);
      CHECK(n > 0);
      done += (size_t)n;
    }
    sent[2] += sizeof(piece);
  }
  CHECK(shutdown(writer_fd, SHUT_WR) == 0);
  return a;
}
static uint64_t drain(int fd, uint64_t most) {
  uint8_t piece[65536];
  uint64_t got = 0;
  while (got < most) {
    const ssize_t n = recv(fd, piece, sizeof(piece), 0);
    CHECK(n >= 0);
    if (n == 0) break;
    for (ssize_t i = 0; i < n; ++i) CHECK(piece[i] == at(got + (uint64_t)i));
    got += (uint64_t)n;
  }
  return got;
}
int main(void) {
  struct Connection c[3] = {connection(kIpv4), connection(kIpv6), connection(kIpv4)};
  const int small = 20000;
  CHECK(close(c[1].client) == 0 && close(c[1].server) == 0);
  CHECK(setsockopt(c[1].listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
  c[1].client = socket(AF_INET6, SOCK_STREAM, 0);
  CHECK(connect(c[1].client, (struct sockaddr*)&c[1].name[1], sizeof(struct sockaddr_in6)) == 0);
  CHECK((c[1].server = accept(c[1].listener, NULL, NULL)) >= 0);
  for (int i = 0; i < 2; ++i) sent[i] = fill(c[i].client);
  sent[2] = fill(c[2].client);
  int room = 0, after = 0;
  socklen_t size = sizeof(room);
  CHECK(getsockopt(c[1].server, SOL_SOCKET, SO_RCVBUF, &room, &size) == 0);
  writer_fd = c[2].client;
  pthread_t thread = start_thread(writer, NULL);
  sleep_ms(50);

  ready_and_wait();

  CHECK(getsockopt(c[1].server, SOL_SOCKET, SO_RCVBUF, &after, &size) == 0 && after == room);
  for (int i = 0; i < 2; ++i) {
    send_text(c[i].server, "and the other way");
    expect_text(c[i].client, "and the other way");
    CHECK(shutdown(c[i].client, SHUT_WR) == 0);
    CHECK(drain(c[i].server, ~0ull) == sent[i]);
  }
  const uint64_t got = drain(c[2].server, ~0ull);
  CHECK(pthread_join(thread, NULL) == 0 && got == sent[2]);
  return survived();
}
