// A listening socket with a key for signed segments (TCP_MD5SIG), which no call reads: a restored one would accept
// unsigned connections, so it is refused by name.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
int main(void) {
  struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, ""};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0 && bind(fd, (void*)&a, sizeof(a)) == 0 && listen(fd, 3) == 0);
  struct tcp_md5sig key = {.tcpm_keylen = 6};
  memcpy(&key.tcpm_addr, &a, sizeof(a));
  memcpy(key.tcpm_key, "secret", 6);
  if (setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &key, sizeof(key)) != 0) absent("no TCP_MD5SIG");
  ready_and_wait();
  CHECK(fcntl(fd, F_GETFD) >= 0);
  return survived();
}
