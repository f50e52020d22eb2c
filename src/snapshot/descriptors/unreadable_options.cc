#include "snapshot/descriptors/unreadable_options.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>

#include "base/syscall.h"
#include "snapshot/calls/libc_wrappers.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/descriptors.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {
namespace {

enum class Outcome : uint8_t { kRefused, kWarned };

// Numbers, because older headers lack some.
struct UnreadableOption {
  int level, name;
  const char* text;
  Outcome outcome;
};
constexpr UnreadableOption kUnreadable[] = {
    {IPPROTO_TCP, 14, "TCP_MD5SIG", Outcome::kRefused},
    {IPPROTO_TCP, 32, "TCP_MD5SIG_EXT", Outcome::kRefused},
    {IPPROTO_TCP, 38, "TCP_AO_ADD_KEY", Outcome::kRefused},
    {IPPROTO_IP, 5, "IP_ROUTER_ALERT", Outcome::kRefused},
    {IPPROTO_IP, 16, "IP_IPSEC_POLICY", Outcome::kRefused},
    {IPPROTO_IP, 17, "IP_XFRM_POLICY", Outcome::kRefused},
    {IPPROTO_IP, 32, "IP_MULTICAST_IF with the number of an interface", Outcome::kWarned},
    {IPPROTO_IPV6, 22, "IPV6_ROUTER_ALERT", Outcome::kRefused},
    {IPPROTO_IPV6, 24, "IPV6_MTU", Outcome::kWarned},
    {IPPROTO_IPV6, 27, "IPV6_JOIN_ANYCAST", Outcome::kRefused},
    {IPPROTO_IPV6, 32, "IPV6_FLOWLABEL_MGR", Outcome::kRefused},
    {IPPROTO_IPV6, 34, "IPV6_IPSEC_POLICY", Outcome::kRefused},
    {IPPROTO_IPV6, 35, "IPV6_XFRM_POLICY", Outcome::kRefused},
    {IPPROTO_IPV6, 50, "IPV6_PKTINFO", Outcome::kWarned},
    {SOL_SOCKET, 51, "SO_ATTACH_REUSEPORT_CBPF", Outcome::kRefused},
    {SOL_SOCKET, 52, "SO_ATTACH_REUSEPORT_EBPF", Outcome::kRefused},
    {263 /* SOL_PACKET */, 7, "PACKET_COPY_THRESH", Outcome::kWarned},
};
constexpr uint32_t kUnreadableCount = sizeof(kUnreadable) / sizeof(kUnreadable[0]);

// The option that undoes another one.
struct Undoing {
  int level, name, undone;
};
constexpr Undoing kUndoing[] = {
    {IPPROTO_IPV6, 28 /* IPV6_LEAVE_ANYCAST */, 27},
    {SOL_SOCKET, 68 /* SO_DETACH_REUSEPORT_BPF */, 51},
    {SOL_SOCKET, 68, 52},
};

// One bit for each option, by socket.
struct Noted {
  std::atomic<uint64_t> socket;
  std::atomic<uint32_t> options;
};
constexpr uint32_t kMostNoted = 512;
constinit Noted noted[kMostNoted]{};
constinit std::atomic<uint32_t> used{
    0};  // entries; more of them than kMostNoted: there was no room

// Inodes of sockets have 32 bits. A restore gives others, and has left out what was noted.
uint64_t key_of(uint64_t inode) { return inode | uint64_t{library.generation + 1} << 32; }

Noted* find(uint64_t socket) {
  const uint32_t count = used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count && i < kMostNoted; ++i)
    if (noted[i].socket.load(std::memory_order_acquire) == socket) return &noted[i];
  return nullptr;
}

Noted* find_or_add(uint64_t socket) {
  if (Noted* known = find(socket)) return known;
  const uint32_t free = used.fetch_add(1);
  if (free >= kMostNoted) return nullptr;
  noted[free].socket = socket;
  return &noted[free];
}

uint64_t inode_of(int fd) {
  struct stat st;
  return sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st))) ? 0 : st.st_ino;
}

int int_at(const void* value, socklen_t bytes, size_t at) {
  int out = 0;
  if (bytes >= at + sizeof(out))
    __builtin_memcpy(&out, static_cast<const char*>(value) + at, sizeof(out));
  return out;
}

bool has_bit(const void* value, socklen_t bytes) {
  for (socklen_t i = 0; i < bytes; ++i)
    if (static_cast<const uint8_t*>(value)[i]) return true;
  return false;
}

enum class Effect : uint8_t { kNone, kSet, kUndone };

// Of a call that the kernel accepted. Where a socket can have several (keys, labels), to take one
// back proves nothing.
Effect effect_of(const UnreadableOption& o, const void* value, socklen_t bytes) {
  if (o.level == IPPROTO_TCP && o.name != 38)  // tcpm_keylen
    return int_at(value, bytes, 128) >> 16 ? Effect::kSet : Effect::kNone;
  if (o.level == IPPROTO_IPV6 && o.name == 32)  // flr_action: IPV6_FL_A_GET
    return (int_at(value, bytes, 20) & 255) == 0 ? Effect::kSet : Effect::kNone;
  bool sets = true;
  if (o.level == IPPROTO_IP && o.name == 32) sets = int_at(value, bytes, 8) != 0;  // imr_ifindex
  if (o.level == IPPROTO_IPV6 && o.name == 22) sets = int_at(value, bytes, 0) >= 0;
  if ((o.level == IPPROTO_IPV6 && (o.name == 24 || o.name == 50)) ||
      (o.level == IPPROTO_IP && o.name == 5) || o.level == 263)
    sets = has_bit(value, bytes);
  return sets ? Effect::kSet : Effect::kUndone;
}

void note(int fd, uint32_t option, Effect effect) {
  const uint64_t inode = effect == Effect::kNone ? 0 : inode_of(fd);
  if (!inode) return;
  const uint32_t bit = 1u << option;
  if (effect == Effect::kSet) {
    if (Noted* n = find_or_add(key_of(inode))) n->options.fetch_or(bit);
  } else if (Noted* n = find(key_of(inode))) {
    n->options.fetch_and(~bit);
  }
}

void note_call(int fd, int level, int name, const void* value, socklen_t bytes) {
  for (uint32_t i = 0; i < kUnreadableCount; ++i)
    if (kUnreadable[i].level == level && kUnreadable[i].name == name)
      note(fd, i, effect_of(kUnreadable[i], value, bytes));
  for (const Undoing& u : kUndoing)
    for (uint32_t i = 0; u.level == level && u.name == name && i < kUnreadableCount; ++i)
      if (kUnreadable[i].level == level && kUnreadable[i].name == u.undone)
        note(fd, i, Effect::kUndone);
}

}  // namespace

bool allows_unreadable_options(FdTable* t, int fd, uint64_t inode) {
  const Noted* n = find(key_of(inode));
  if (!n) return true;
  for (uint32_t i = 0; i < kUnreadableCount; ++i) {
    if (!(n->options.load() >> i & 1)) continue;
    if (kUnreadable[i].outcome == Outcome::kRefused)
      return t->c->refuse(
          "descriptor %d is a socket with %s, which the kernel does not show; close it, or set the "
          "option after the snapshot",
          fd, kUnreadable[i].text);
    add_warning(
        "descriptor %d is a socket with %s, which the kernel does not show; a restore leaves it "
        "out",
        fd, kUnreadable[i].text);
  }
  return true;
}

void warn_of_forgotten_options() {
  const uint32_t count = used.load();
  if (count > kMostNoted)
    add_warning(
        "%u more sockets were given options that the kernel does not show than could be noted; a "
        "restore leaves these out",
        count - kMostNoted);
}

}  // namespace gpuckpt

extern "C" __attribute__((visibility("default"))) int setsockopt(int fd, int level, int name,
                                                                 const void* value,
                                                                 socklen_t bytes) noexcept {
  const int r = gpuckpt_real_setsockopt(fd, level, name, value, bytes);
  if (r == 0) gpuckpt::note_call(fd, level, name, value, bytes);
  return r;
}

// By syscall(3) (libc_wrappers.cc).
extern "C" long gpuckpt_setsockopt(long, int fd, int level, int name, const void* value,
                                   socklen_t bytes) {
  return setsockopt(fd, level, name, value, bytes);
}
