// Clients that were not accepted yet keep their place in the queue, connect() that has not come to an end goes on, and a socket
// that is connected to itself stays so.
#include "tcp.h"
int main(void) {
  struct sockaddr_storage at, full_at, name[3], peer;
  const int listener = new_listener(kIpv4, &at);
  int client[3];
  for (int i = 0; i < 3; ++i) {
    client[i] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(client[i], (struct sockaddr*)&at, sizeof(struct sockaddr_in)) == 0);
    note_names(client[i], &name[i], &peer);
  }
  // A queue of one is soon full: the next ones are half open, or have no answer.
  const int full = new_listener(kIpv4, &full_at);
  CHECK(listen(full, 0) == 0);
  int waiting[3];
  for (int i = 0; i < 3; ++i) {
    waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(connect(waiting[i], (struct sockaddr*)&full_at, sizeof(struct sockaddr_in)) == 0 || errno == EINPROGRESS);
  }
  sleep_ms(20);
  // To itself.
  struct sockaddr_storage own;
  socklen_t n = loopback(kIpv4, &own), size = sizeof(own);
  const int itself = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(itself, (struct sockaddr*)&own, n) == 0 && getsockname(itself, (struct sockaddr*)&own, &size) == 0);
  CHECK(connect(itself, (struct sockaddr*)&own, n) == 0);
  send_text(itself, "myself");

  ready_and_wait();

  for (int i = 0; i < 3; ++i) {
    struct sockaddr_storage from;
    memset(&from, 0, sizeof(from));
    size = sizeof(from);
    const int server = accept(listener, (struct sockaddr*)&from, &size);
    CHECK(server >= 0 && memcmp(&from, &name[i], sizeof(from)) == 0);
    send_text(client[i], "hello");
    expect_text(server, "hello");
  }
  // (A first byte makes the kernel notice that there is room again.)
  for (int i = 0; i < 3; ++i) {
    const int server = accept(full, NULL, NULL);
    CHECK(server >= 0);
    for (int k = 0; i == 0 && k < 3; ++k) {
      struct pollfd p = {waiting[k], POLLOUT, 0};
      CHECK(k == 2 || poll(&p, 1, 10000) == 1);
      if (k < 2) send_text(waiting[k], "early");
    }
    if (i == 1) {
      struct pollfd p = {waiting[2], POLLOUT, 0};
      CHECK(poll(&p, 1, 20000) == 1);
      send_text(waiting[2], "early");
    }
    expect_text(server, "early");
    send_text(server, "late");
  }
  for (int i = 0; i < 3; ++i) expect_text(waiting[i], "late");
  expect_text(itself, "myself");
  send_text(itself, "again");
  expect_text(itself, "again");
  return survived();
}
