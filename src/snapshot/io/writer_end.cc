#include "snapshot/io/writer_end.h"

#include <signal.h>

#include <cstdint>

#include "base/syscall.h"
#include "base/text.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kPatienceUs = 200000;

// struct pidfd_info of linux/pidfd.h as of version 0, and what it is asked by.
struct PidfdInfo {
  uint64_t mask, group;
  uint32_t numbers[3], ids[8];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr long kGetInfo = 0xc040ff0b;  // PIDFD_GET_INFO
constexpr uint64_t kExit = 1 << 3;     // PIDFD_INFO_EXIT

// A status as wait reports it; -1: not known.
int status_of(int pidfd) {
  for (const uint64_t until = sys::now_us() + kPatienceUs; pidfd >= 0;) {
    PidfdInfo info{};
    info.mask = kExit;
    if (sys::failed(sys::call(SYS_ioctl, pidfd, kGetInfo, sys::ptr(&info)))) break;
    if (info.mask & kExit) return info.exit_code;
    if (sys::now_us() > until) break;
    sys::sleep_us(2000);
  }
  return -1;
}

}  // namespace

void describe_end(int pidfd, char* to, size_t room) {
  const int status = status_of(pidfd), signal = status & 0x7f;
  if (status < 0)
    copy(to, room,
         "why is not known here: the kernel's log tells of a lack of memory; `gpuckpt doctor` and "
         "bin/gpuckpt-writer, run by hand, of what it does not find");
  else if (signal == SIGKILL)
    copy(to, room, "it was killed by signal 9, as the kernel does when memory runs out");
  else if (signal)
    format(to, room, "it was killed by signal %d", signal);
  else if (status >> 8 == 127)
    copy(to, room, "it could not start (status 127): does it find its libraries?");
  else
    format(to, room, "it exited with status %d", status >> 8);
}

}  // namespace gpuckpt
