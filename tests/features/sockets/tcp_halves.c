// TCP connections of which one half is shut down, one end or both are closed, or which the other end has reset, with and without
// unread bytes.
#include "tcp.h"
int main(void) {
  signal(SIGPIPE, SIG_IGN);
  struct Connection half = connection(kIpv4), other_half = connection(kIpv6), deaf = connection(kIpv4);
  send_text(half.client, "before the end");
  CHECK(shutdown(half.client, SHUT_WR) == 0);
  send_text(other_half.client, "x");
  send_text(other_half.server, "before the end");
  CHECK(shutdown(other_half.server, SHUT_WR) == 0);
  CHECK(shutdown(deaf.client, SHUT_RD) == 0);

  struct Connection left = connection(kIpv4), left_by_server = connection(kMapped), ended = connection(kIpv4);
  send_text(left.client, "last words");
  CHECK(close(left.client) == 0);
  CHECK(close(left_by_server.server) == 0);
  send_text(ended.client, "read me");
  CHECK(shutdown(ended.client, SHUT_WR) == 0);
  send_text(ended.server, "me too");
  CHECK(shutdown(ended.server, SHUT_WR) == 0);

  struct Connection reset = connection(kIpv4);
  struct linger hard = {1, 0};
  send_text(reset.client, "still there");
  sleep_ms(20);
  CHECK(setsockopt(reset.client, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)) == 0 && close(reset.client) == 0);
  sleep_ms(50);

  ready_and_wait();

  char byte;
  check_names(&half);
  check_names(&other_half);
  CHECK(events_of(half.server) == (POLLIN | POLLOUT | POLLRDHUP) && events_of(half.client) == POLLOUT);
  expect_text(half.server, "before the end");
  CHECK(recv(half.server, &byte, 1, 0) == 0);
  CHECK(send(half.client, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
  send_text(half.server, "answer");
  expect_text(half.client, "answer");
  expect_silence(half.client);

  expect_text(other_half.client, "before the end");
  CHECK(recv(other_half.client, &byte, 1, 0) == 0);
  expect_text(other_half.server, "x");
  send_text(other_half.client, "answer");
  expect_text(other_half.server, "answer");
  CHECK(send(other_half.server, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);

  CHECK(recv(deaf.client, &byte, 1, 0) == 0);
  send_text(deaf.client, "speaks");
  expect_text(deaf.server, "speaks");

  CHECK(events_of(left.server) == (POLLIN | POLLOUT | POLLRDHUP));
  expect_text(left.server, "last words");
  CHECK(recv(left.server, &byte, 1, 0) == 0);
  CHECK(recv(left_by_server.client, &byte, 1, 0) == 0);
  CHECK(send(left_by_server.client, "x", 1, MSG_NOSIGNAL) == 1);
  sleep_ms(50);
  CHECK(send(left_by_server.client, "x", 1, MSG_NOSIGNAL) == -1 && (errno == EPIPE || errno == ECONNRESET));

  CHECK(events_of(ended.server) == (POLLIN | POLLOUT | POLLRDHUP | POLLHUP));
  expect_text(ended.server, "read me");
  CHECK(recv(ended.server, &byte, 1, 0) == 0);
  expect_text(ended.client, "me too");
  CHECK(recv(ended.client, &byte, 1, 0) == 0);
  CHECK(send(ended.client, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);

  CHECK(events_of(reset.server) & POLLERR);
  expect_text(reset.server, "still there");
  CHECK(recv(reset.server, &byte, 1, 0) == -1 && errno == ECONNRESET);
  CHECK(recv(reset.server, &byte, 1, 0) == 0);
  return survived();
}
