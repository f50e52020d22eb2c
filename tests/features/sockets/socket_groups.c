// Multicast groups, with wanted and unwanted sources, of IPv4 and IPv6; what a packet socket asked
// for. The kernel is asked for each group before and after.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "feature.h"
struct filter {
  struct group_filter head;
  struct sockaddr_storage more[7];
};
static unsigned lo;
static struct sockaddr_storage address(const char* text) {
  struct sockaddr_storage out = {0};
  int six = strchr(text, ':') != NULL;
  out.ss_family = six ? AF_INET6 : AF_INET;
  CHECK(inet_pton(out.ss_family, text, (char*)&out + (six ? 8 : 4)) == 1);
  return out;
}
static int level(const char* text) { return strchr(text, ':') ? IPPROTO_IPV6 : IPPROTO_IP; }
static void join(int fd, const char* group) {
  struct group_req r = {lo, address(group)};
  CHECK(setsockopt(fd, level(group), MCAST_JOIN_GROUP, &r, sizeof(r)) == 0);
}
static void source(int fd, int what, const char* group, const char* from) {
  struct group_source_req r = {lo, address(group), address(from)};
  CHECK(setsockopt(fd, level(group), what, &r, sizeof(r)) == 0);
}
static int ask(int fd, const char* group, struct filter* f) {
  memset(f, 0, sizeof(*f));
  f->head.gf_interface = lo, f->head.gf_group = address(group), f->head.gf_numsrc = 8;
  socklen_t n = sizeof(*f);
  return getsockopt(fd, level(group), MCAST_MSFILTER, f, &n);
}
int main(void) {
  lo = if_nametoindex("lo");
  int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
  int six = socket(AF_INET6, SOCK_DGRAM, 0);
  join(a, "239.1.2.3"), join(a, "239.1.2.4");
  source(a, MCAST_BLOCK_SOURCE, "239.1.2.4", "127.0.0.9");
  source(b, MCAST_JOIN_SOURCE_GROUP, "232.1.2.3", "127.0.0.1");
  source(b, MCAST_JOIN_SOURCE_GROUP, "232.1.2.3", "127.0.0.2");
  if (six >= 0) join(six, "ff15::7"), source(six, MCAST_JOIN_SOURCE_GROUP, "ff35::8", "::1");
  int packet = getuid() ? -1 : socket(AF_PACKET, SOCK_RAW, 0);
  struct packet_mreq promiscuous = {(int)lo, PACKET_MR_PROMISC, 0, {0}};
  if (packet >= 0)
    CHECK(setsockopt(packet, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) == 0);
  static const struct {
    int socket;
    const char* group;
  } all[] = {{0, "239.1.2.3"}, {0, "239.1.2.4"}, {1, "232.1.2.3"}, {2, "ff15::7"}, {2, "ff35::8"},
             {1, "239.1.2.3"}, {0, "239.1.2.9"}};
  int fds[] = {a, b, six};
  struct filter before[7], now;
  int known[7];
  for (int i = 0; i < 7; ++i) known[i] = ask(fds[all[i].socket], all[i].group, &before[i]);
  CHECK(known[0] == 0 && known[1] == 0 && known[2] == 0 && known[5] == -1 && known[6] == -1);
  CHECK(before[1].head.gf_numsrc == 1 && before[2].head.gf_numsrc == 2);
  ready_and_wait();
  for (int i = 0; i < 7; ++i) {
    CHECK(ask(fds[all[i].socket], all[i].group, &now) == known[i]);
    if (known[i]) continue;
    CHECK(now.head.gf_fmode == before[i].head.gf_fmode && now.head.gf_numsrc == before[i].head.gf_numsrc);
    CHECK(!memcmp(now.head.gf_slist, before[i].head.gf_slist,
                  before[i].head.gf_numsrc * sizeof(struct sockaddr_storage)));
  }
  if (packet >= 0)
    CHECK(setsockopt(packet, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &promiscuous, sizeof promiscuous) == 0);
  return survived();
}
