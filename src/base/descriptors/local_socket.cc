#include "base/descriptors/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {

constexpr uint32_t kBareAddress = 2, kNamedAddress = 2 + 6;

void set_name(uint32_t name, sockaddr_un* a) {
  __builtin_memset(a, 0, sizeof(*a));
  a->sun_family = AF_UNIX;
  for (int i = 0; i < 5; ++i) a->sun_path[5 - i] = "0123456789abcdef"[name >> (4 * i) & 15];
}

long new_socket() { return sys::call(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); }

}  // namespace

long local_listen(uint32_t* name) {
  const long fd = new_socket();
  if (sys::failed(fd)) return fd;
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  uint32_t size = sizeof(a);
  long r = sys::call(SYS_bind, fd, sys::ptr(&a), kBareAddress);
  if (!sys::failed(r)) r = sys::call(SYS_listen, fd, 128);
  if (!sys::failed(r)) r = sys::call(SYS_getsockname, fd, sys::ptr(&a), sys::ptr(&size));
  if (sys::failed(r)) {
    sys::close(static_cast<int>(fd));
    return r;
  }
  char digits[8] = "";
  __builtin_memcpy(digits, a.sun_path + 1, 5);
  const char* s = digits;
  *name = static_cast<uint32_t>(scan_hex(&s));
  return fd;
}

long local_connect(uint32_t name) {
  const long fd = new_socket();
  if (sys::failed(fd)) return fd;
  sockaddr_un a;
  set_name(name, &a);
  const long r = sys::call(SYS_connect, fd, sys::ptr(&a), kNamedAddress);
  if (!sys::failed(r)) return fd;
  sys::close(static_cast<int>(fd));
  return r;
}

namespace {
struct Peer {
  int32_t pid;
  uint32_t uid, gid;
};
bool peer_of(int socket, Peer* peer) {
  uint32_t size = sizeof(*peer);
  return !sys::failed(
      sys::call(SYS_getsockopt, socket, SOL_SOCKET, SO_PEERCRED, sys::ptr(peer), sys::ptr(&size)));
}
}  // namespace

bool local_peer(int socket, int* pid) {
  Peer peer{};
  if (!peer_of(socket, &peer)) return false;
  *pid = peer.pid;
  return true;
}

bool local_trusted(int socket, int* pid) {
  Peer peer{};
  if (!peer_of(socket, &peer)) return false;
  *pid = peer.pid;
  return peer.uid == 0 || peer.uid == static_cast<uint32_t>(sys::call(SYS_geteuid));
}

bool local_send(int socket, const void* message, size_t bytes, const int* fds, size_t count) {
  iovec io{const_cast<void*>(message), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kLocalDescriptors * sizeof(int))];
  msghdr h{};
  h.msg_iov = &io, h.msg_iovlen = 1;
  if (count) {
    h.msg_control = control, h.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&h);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    __builtin_memcpy(CMSG_DATA(c), fds, count * sizeof(int));
  }
  return !sys::failed(sys::call(SYS_sendmsg, socket, sys::ptr(&h), MSG_NOSIGNAL));
}

long local_receive(int socket, void* message, size_t bytes, int (&fds)[kLocalDescriptors]) {
  iovec io{message, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))];
  msghdr h{};
  h.msg_iov = &io, h.msg_iovlen = 1;
  h.msg_control = control, h.msg_controllen = sizeof(control);
  for (int& fd : fds) fd = -1;
  const long n = sys::call(SYS_recvmsg, socket, sys::ptr(&h), MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  for (cmsghdr* c = n > 0 ? CMSG_FIRSTHDR(&h) : nullptr; c; c = CMSG_NXTHDR(&h, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len <= CMSG_LEN(sizeof(fds)))
      __builtin_memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
  return n;
}

}  // namespace gpuckpt
