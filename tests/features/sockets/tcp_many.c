// Hundreds of connections to one port, each with bytes on both sides, and each comes back with its own.
#include "tcp.h"
enum { kCount = 400 };
static struct Connection c[kCount];
int main(void) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  struct sockaddr_storage at;
  const int listener = new_listener(kIpv4, &at);
  for (int i = 0; i < kCount; ++i) {
    char text[32];
    c[i].client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(c[i].client, (struct sockaddr*)&at, sizeof(struct sockaddr_in)) == 0);
    CHECK((c[i].server = accept(listener, NULL, NULL)) >= 0);
    note_names(c[i].client, &c[i].name[0], &c[i].peer[0]);
    note_names(c[i].server, &c[i].name[1], &c[i].peer[1]);
    snprintf(text, sizeof(text), "client %d", i);
    send_text(c[i].client, text);
    snprintf(text, sizeof(text), "server %d", i);
    send_text(c[i].server, text);
  }
  ready_and_wait();
  for (int i = 0; i < kCount; ++i) {
    char text[32];
    check_names(&c[i]);
    snprintf(text, sizeof(text), "client %d", i);
    expect_text(c[i].server, text);
    snprintf(text, sizeof(text), "server %d", i);
    expect_text(c[i].client, text);
    expect_silence(c[i].client);
    expect_silence(c[i].server);
  }
  return survived();
}
