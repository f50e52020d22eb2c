#include "device/sharing/shareable.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/descriptors/handover.h"
#include "base/descriptors/local_socket.h"
#include "base/syscall.h"
#include "intercept/generated/real_driver.h"
#include "intercept/realm/realm.h"

namespace gpuckpt::device {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

constexpr int kHighDescriptor = 500;
constexpr char kMagic[16] = {'g', 'p', 'u', 'c', 'k', 'p', 't', ' ',
                             's', 'h', 'a', 'r', 'e', '1', '\n'};

uint64_t file_of(int fd) {
  struct stat st;
  return sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st))) ? 0 : st.st_ino;
}

bool readable_within(int fd, uint64_t patience_us) {
  pollfd p = {fd, POLLIN, 0};
  return sys::call(SYS_poll, sys::ptr(&p), 1, static_cast<long>(patience_us / 1000)) > 0 &&
         (p.revents & POLLIN);
}

}  // namespace

CUresult export_memory(CUmemGenericAllocationHandle memory, int* fd) {
  CUresult result = real().cuMemExportToShareableHandle(fd, memory, kDescriptor, 0);
  if (result == CUDA_SUCCESS) realm_disown_fd(*fd);
  return result;
}
CUresult import_memory(int fd, CUmemGenericAllocationHandle* out) {
  return real().cuMemImportFromShareableHandle(
      out, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kDescriptor);
}

SharedName new_shared_name() {
  static uint32_t last;
  SharedName name;
  name.pid = sys::getpid();
  name.number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
  name.identity = handover_identity();
  return name;
}

Shareable make_shareable(Shareable::Kind kind, const SharedName& name, int device) {
  Shareable s;
  __builtin_memcpy(s.magic, kMagic, sizeof kMagic);
  s.kind = kind;
  s.name = name;
  real().cuDeviceGetUuid_v2(&s.device, device);
  return s;
}

int device_with(const CUuuid& wanted) {
  int count = 0;
  if (real().cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (int device = 0; device < count; ++device) {
    CUuuid uuid;
    if (real().cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS &&
        !__builtin_memcmp(&uuid, &wanted, sizeof uuid))
      return device;
  }
  return -1;
}

bool OwnFd::is_open() const { return fd >= 0 && file_of(fd) == file; }
void OwnFd::close() {
  if (is_open()) sys::close(fd);
  fd = -1;
}
void OwnFd::restored() { file = file_of(fd); }
OwnFd duplicate_high(int fd) {
  const long high = sys::call(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (sys::failed(high)) return {};
  return {static_cast<int>(high), file_of(static_cast<int>(high))};
}
OwnFd keep_high(int fd) {
  OwnFd high = duplicate_high(fd);
  if (high.fd < 0) return {fd, file_of(fd)};
  sys::close(fd);
  return high;
}

bool share_again(const Shareable& what, int real, const OwnFd& end) {
  return end.is_open() && local_send(end.fd, &what, sizeof what, &real, real >= 0);
}

int share(const Shareable& what, int real, OwnFd* end) {
  int ends[2];
  if (sys::failed(
          sys::call(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sys::ptr(ends))))
    return -1;
  *end = keep_high(ends[1]);
  if (share_again(what, real, *end)) return ends[0];
  end->close();
  sys::close(ends[0]);
  return -1;
}

bool closed_everywhere(const OwnFd& end) {
  if (!end.is_open()) return true;
  pollfd p = {end.fd, 0, 0};
  return sys::call(SYS_poll, sys::ptr(&p), 1, 0) > 0 && (p.revents & POLLHUP);
}

bool look_at_shareable(int descriptor, uint64_t patience_us, Shareable* what, int* real) {
  *real = -1;
  if (patience_us && !readable_within(descriptor, patience_us)) return false;
  iovec io{what, sizeof *what};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr m{};
  m.msg_iov = &io, m.msg_iovlen = 1;
  m.msg_control = control, m.msg_controllen = sizeof control;
  const long n =
      sys::call(SYS_recvmsg, descriptor, sys::ptr(&m), MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* c = n > 0 ? CMSG_FIRSTHDR(&m) : nullptr;
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
    __builtin_memcpy(real, CMSG_DATA(c), sizeof *real);
  if (n > 0 && is_shareable(what, static_cast<uint64_t>(n))) return true;
  if (*real >= 0) sys::close(*real);
  return false;
}

bool is_shareable(const void* message, uint64_t bytes) {
  return bytes == sizeof(Shareable) && !__builtin_memcmp(message, kMagic, sizeof kMagic);
}

}  // namespace gpuckpt::device
