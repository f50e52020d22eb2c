// socketpair of all types with queued data and messages, buffer sizes, one side shut down or closed.
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  int stream[2], dgram[2], packet[2], half[2], closed[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, dgram) == 0);
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packet) == 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, half) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, closed) == 0);
  int size = 300000, on = 1;
  CHECK(setsockopt(stream[0], SOL_SOCKET, SO_SNDBUF, &size, 4) == 0);
  CHECK(setsockopt(packet[1], SOL_SOCKET, SO_PASSCRED, &on, 4) == 0);
  static char block[100000], back[100000];
  for (size_t i = 0; i < sizeof(block); ++i) block[i] = (char)(i * 13 + i / 97);
  CHECK(write(stream[0], block, sizeof(block)) == sizeof(block) && write(stream[1], "back", 4) == 4);
  CHECK(send(dgram[0], "one", 3, 0) == 3 && send(dgram[0], "", 0, 0) == 0 && send(dgram[0], "three", 5, 0) == 5);
  CHECK(send(packet[0], "packet", 6, 0) == 6 && send(packet[0], block, 5000, 0) == 5000);
  CHECK(write(half[0], "bye", 3) == 3 && shutdown(half[0], SHUT_WR) == 0);
  CHECK(write(closed[0], "left", 4) == 4);
  close(closed[0]);
  ready_and_wait();
  size_t at = 0;
  while (at < sizeof(back)) {
    long n = read(stream[1], back + at, sizeof(back) - at);
    CHECK(n > 0);
    at += (size_t)n;
  }
  CHECK(memcmp(block, back, sizeof(back)) == 0);
  CHECK(read(stream[0], back, 100) == 4 && memcmp(back, "back", 4) == 0);
  CHECK(recv(dgram[1], back, 100, 0) == 3 && recv(dgram[1], back, 100, 0) == 0 && recv(dgram[1], back, 100, 0) == 5);
  CHECK(recv(dgram[1], back, 100, 0) == -1 && errno == EAGAIN);
  CHECK(recv(packet[1], back, 100, 0) == 6 && recv(packet[1], back, sizeof(back), 0) == 5000);
  CHECK(read(half[1], back, 100) == 3 && read(half[1], back, 100) == 0);
  CHECK(write(half[1], "yes", 3) == 3 && read(half[0], back, 100) == 3);
  signal(SIGPIPE, SIG_IGN);
  CHECK(write(half[0], "no", 2) == -1 && errno == EPIPE);
  CHECK(read(closed[1], back, 100) == 4 && read(closed[1], back, 100) == 0);
  CHECK(write(closed[1], "x", 1) == -1 && errno == EPIPE);
  unsigned len = 4;
  CHECK(getsockopt(stream[0], SOL_SOCKET, SO_SNDBUF, &size, &len) == 0 && size >= 300000);
  CHECK(getsockopt(packet[1], SOL_SOCKET, SO_PASSCRED, &on, &len) == 0 && on == 1);
  return survived();
}
