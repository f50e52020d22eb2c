// Unread urgent bytes (MSG_OOB): before, in and behind the unread bytes of a connection, in line and out of line.
#include <sys/ioctl.h>
#include "tcp.h"
int main(void) {
  struct Connection alone = connection(kIpv4), between = connection(kIpv4), in_line = connection(kIpv6);
  const int on = 1;
  CHECK(send(alone.client, "!", 1, MSG_OOB) == 1);
  send_text(between.client, "before");
  CHECK(send(between.client, "!", 1, MSG_OOB) == 1);
  send_text(between.client, "after");
  CHECK(setsockopt(in_line.server, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)) == 0);
  send_text(in_line.client, "be");
  CHECK(send(in_line.client, "?", 1, MSG_OOB) == 1);
  send_text(in_line.client, "hind");
  sleep_ms(50);

  ready_and_wait();

  char byte = 0, text[16] = "";
  CHECK(events_of(alone.server) & POLLPRI);
  CHECK(sockatmark(alone.server) == 1);
  CHECK(recv(alone.server, &byte, 1, MSG_OOB) == 1 && byte == '!');
  expect_silence(alone.server);

  CHECK(events_of(between.server) & POLLPRI);
  CHECK(sockatmark(between.server) == 0);
  CHECK(recv(between.server, text, sizeof(text), 0) == 6 && memcmp(text, "before", 6) == 0);
  CHECK(sockatmark(between.server) == 1);
  CHECK(recv(between.server, &byte, 1, MSG_OOB) == 1 && byte == '!');
  expect_text(between.server, "after");

  CHECK(recv(in_line.server, text, sizeof(text), 0) == 2);
  CHECK(sockatmark(in_line.server) == 1);
  expect_text(in_line.server, "?hind");
  return survived();
}
