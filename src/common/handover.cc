#include "common/handover.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>

#include "common/local_socket.h"
#include "common/syscall.h"
#include "gpuckpt/wire.h"

namespace gpuckpt {
namespace {

constinit std::atomic<int> offers[kMostOffers] = {};  // descriptor + 1; 0: free
constexpr uint64_t kAskAgainUs = 200000;

// From the process that was asked, and from no other.
long accept_from(int door, int pid) {
  const long socket = sys::call(SYS_accept4, door, 0, 0, SOCK_CLOEXEC);
  if (sys::failed(socket)) return socket;
  int peer = 0, fds[kLocalDescriptors] = {-1, -1, -1};
  char byte = 0;
  pollfd wait = {static_cast<int>(socket), POLLIN, 0};
  if (local_trusted(static_cast<int>(socket), &peer) && peer == pid)
    if (!sys::failed(sys::call(SYS_poll, sys::ptr(&wait), 1, 1000)))
      local_receive(static_cast<int>(socket), &byte, 1, fds);
  sys::close(static_cast<int>(socket));
  for (size_t i = 1; i < kLocalDescriptors; ++i)
    if (fds[i] >= 0) sys::close(fds[i]);
  return fds[0] >= 0 ? fds[0] : -EBADF;
}

}  // namespace

void send_wake(int pid, uint64_t value) {
  struct {
    int signo, error, code, pad;
    int pid;
    uint32_t uid;
    uint64_t value;
    char rest[128 - 32];
  } info{};
  info.signo = wire::kWakeSignal;
  info.code = SI_QUEUE;
  info.pid = sys::getpid();
  info.uid = static_cast<uint32_t>(sys::call(SYS_getuid));
  info.value = value;
  sys::call(SYS_rt_sigqueueinfo, pid, wire::kWakeSignal, sys::ptr(&info));
}

int handover_offer(int fd) {
  for (int i = 0; i < kMostOffers; ++i) {
    int free = 0;
    if (offers[i].compare_exchange_strong(free, fd + 1)) return i;
  }
  return -1;
}

void handover_withdraw(int number) {
  if (number >= 0 && number < kMostOffers) offers[number].store(0);
}

void handover_serve(uint64_t value, int from_pid) {
  const int fd = offers[value >> 20 & (kMostOffers - 1)].load() - 1;
  if (fd < 0) return;
  const long socket = local_connect(static_cast<uint32_t>(value & 0xfffff));
  if (sys::failed(socket)) return;
  int peer = 0;
  if (local_trusted(static_cast<int>(socket), &peer) && peer == from_pid)
    local_send(static_cast<int>(socket), "d", 1, &fd, 1);
  sys::close(static_cast<int>(socket));
}

long handover_fetch(int pid, int number, uint64_t patience_us) {
  if (number < 0 || number >= kMostOffers) return -EINVAL;
  uint32_t name = 0;
  const long door = local_listen(&name);
  if (sys::failed(door)) return door;
  const uint64_t value = kGiveCookie | static_cast<uint64_t>(number) << 20 | name;
  const uint64_t end = sys::now_us() + patience_us;
  long got = -ETIMEDOUT;
  do {
    if (sys::failed(sys::call(SYS_kill, pid, 0))) {
      got = -ESRCH;
      break;
    }
    send_wake(pid, value);
    pollfd wait = {static_cast<int>(door), POLLIN, 0};
    if (sys::call(SYS_poll, sys::ptr(&wait), 1, static_cast<long>(kAskAgainUs / 1000)) > 0)
      got = accept_from(static_cast<int>(door), pid);
  } while (got == -ETIMEDOUT && sys::now_us() < end);
  sys::close(static_cast<int>(door));
  return got;
}

}  // namespace gpuckpt
