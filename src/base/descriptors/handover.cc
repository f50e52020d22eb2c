#include "base/descriptors/handover.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>

#include "base/descriptors/local_socket.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "gpuckpt/wire.h"

namespace gpuckpt {
namespace {

constinit std::atomic<int> offers[kMostOffers] = {};       // descriptor + 1; 0: free
constinit std::atomic<uint64_t> takers[kMostOffers] = {};  // number << 32 | process; 0: free
constinit std::atomic<uint64_t> identity = 0;
constinit std::atomic<bool> paused = false;
constexpr int kNeverOffered = kMostOffers - 1;  // is never offered
constexpr uint64_t kAskAgainUs = 5000, kAskRarelyUs = 200000;

bool note_taker(int number, int pid) {
  const uint64_t taker = static_cast<uint64_t>(number) << 32 | static_cast<uint32_t>(pid);
  for (auto& slot : takers) {
    uint64_t free = 0;
    if (slot.compare_exchange_strong(free, taker) || free == taker) return true;
  }
  return false;
}

// From the process that was asked, and from no other.
long accept_from(int listener, int pid, uint64_t expected) {
  const long socket = sys::call(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC);
  if (sys::failed(socket)) return socket;
  int peer = 0, fds[kLocalDescriptors] = {-1, -1, -1};
  uint64_t answerer = 0;
  pollfd wait = {static_cast<int>(socket), POLLIN, 0};
  bool answered = false;
  if (local_trusted(static_cast<int>(socket), &peer) && peer == pid)
    if (!sys::failed(sys::call(SYS_poll, sys::ptr(&wait), 1, 1000)))
      answered = local_receive(static_cast<int>(socket), &answerer, sizeof answerer, fds) ==
                 sizeof answerer;
  sys::close(static_cast<int>(socket));
  for (size_t i = 0; i < kLocalDescriptors; ++i)
    if (fds[i] >= 0 && (i || answerer != expected)) sys::close(fds[i]);
  if (!answered) return -EBADF;
  if (answerer != expected) return -ESTALE;
  return fds[0] >= 0 ? fds[0] : -ENOENT;
}

}  // namespace

namespace {
struct WakeInfo {
  int signo, error, code, pad;
  int pid;
  uint32_t uid;
  uint64_t value;
  char rest[128 - 32];
};
WakeInfo wake_info(uint64_t value) {
  WakeInfo info{};
  info.signo = wire::kWakeSignal;
  info.code = SI_QUEUE;
  info.pid = sys::getpid();
  info.uid = static_cast<uint32_t>(sys::call(SYS_getuid));
  info.value = value;
  return info;
}
}  // namespace

void send_wake(int pid, uint64_t value) {
  WakeInfo info = wake_info(value);
  sys::call(SYS_rt_sigqueueinfo, pid, wire::kWakeSignal, sys::ptr(&info));
}

void send_wake_to_thread(int pid, int tid, uint64_t value) {
  WakeInfo info = wake_info(value);
  sys::call(SYS_rt_tgsigqueueinfo, pid, tid, wire::kWakeSignal, sys::ptr(&info));
}

uint64_t handover_identity() {
  uint64_t known = identity.load();
  if (!known) {
    // Several processes may begin in one tick of the clock.
    constexpr int kPidBits = 22;
    const uint64_t pid = static_cast<uint64_t>(sys::getpid());
    known = 1ull << 63 | start_time_of(static_cast<int>(pid)) << kPidBits | pid;
    identity.store(known);
  }
  return known;
}

int handover_offer(int fd) {
  for (int i = 0; i < kNeverOffered; ++i) {
    int free = 0;
    if (offers[i].compare_exchange_strong(free, fd + 1)) return i;
  }
  return -1;
}

void handover_withdraw(int number) {
  if (number < 0 || number >= kMostOffers) return;
  offers[number].store(0);
  for (auto& slot : takers)
    if (uint64_t taker = slot.load(); taker >> 32 == static_cast<uint64_t>(number)) slot.store(0);
}

bool handover_each_taker(void* context, bool (*one)(void* context, int number, int pid)) {
  for (auto& slot : takers)
    if (uint64_t taker = slot.load())
      if (!one(context, static_cast<int>(taker >> 32), static_cast<int>(taker & 0xffffffff)))
        return false;
  return true;
}

void handover_forget() {
  paused = true;
  for (auto& slot : offers) slot.store(0);
  for (auto& slot : takers) slot.store(0);
}
void handover_offer_again(int number, int fd) { offers[number].store(fd + 1); }
void handover_resume() { paused = false; }

void handover_serve(uint64_t value, int from_pid) {
  const int number = value >> 20 & (kMostOffers - 1);
  const int fd = offers[number].load() - 1;
  if (fd < 0 && paused) return;  // it asks again
  const long socket = local_connect(static_cast<uint32_t>(value & 0xfffff));
  if (sys::failed(socket)) return;
  int peer = 0;
  if (local_trusted(static_cast<int>(socket), &peer) && peer == from_pid) {
    const uint64_t ours = handover_identity();
    const bool give = fd >= 0 && note_taker(number, from_pid);
    local_send(static_cast<int>(socket), &ours, sizeof ours, &fd, give);
  }
  sys::close(static_cast<int>(socket));
}

long handover_fetch(int pid, uint64_t expected, int number, uint64_t patience_us) {
  if (number < 0 || number >= kMostOffers) return -EINVAL;
  uint32_t name = 0;
  const long listener = local_listen(&name);
  if (sys::failed(listener)) return listener;
  const uint64_t value = kGiveCookie | static_cast<uint64_t>(number) << 20 | name;
  const uint64_t end = sys::now_us() + patience_us;
  uint64_t pause = kAskAgainUs;
  long got = -ETIMEDOUT;
  do {
    // A process without a handler would be ended by the signal.
    bool ended = false;
    if (catches_signal(pid, wire::kWakeSignal, &ended)) send_wake(pid, value);
    if (ended) {
      got = -ESRCH;
      break;
    }
    pollfd wait = {static_cast<int>(listener), POLLIN, 0};
    if (sys::call(SYS_poll, sys::ptr(&wait), 1, static_cast<long>(pause / 1000)) > 0)
      got = accept_from(static_cast<int>(listener), pid, expected);
    if (pause < kAskRarelyUs) pause *= 2;
  } while ((got == -ETIMEDOUT || got == -EBADF) && sys::now_us() < end);
  sys::close(static_cast<int>(listener));
  return got;
}

bool handover_await(int pid, uint64_t patience_us) {
  // A process that has not resumed does not answer when it is asked for what it does not offer.
  const long got = handover_fetch(pid, 0, kNeverOffered, patience_us);
  return got == -ESTALE || got == -ENOENT;
}

}  // namespace gpuckpt
