// How the process behind a pidfd ended, which its descriptor tells from Linux 6.15 on, also when it
// was waited for.
//
// Owner: none. Threads: any; no allocation, raw calls only. Errors: -1: not known, or not ended.
#pragma once

#include <cstdint>

#include "base/syscall.h"

namespace gpuckpt {

// struct pidfd_info of linux/pidfd.h as of version 0, and what it is asked by.
struct PidfdInfo {
  uint64_t mask, group;
  uint32_t numbers[3], ids[8];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);

// As wait reports it. Waits for the end for as long as `patience_us`.
inline int ended_status(int pidfd, uint64_t patience_us) {
  constexpr long kGetInfo = 0xc040ff0b;  // PIDFD_GET_INFO
  constexpr uint64_t kExit = 1 << 3;     // PIDFD_INFO_EXIT
  for (const uint64_t until = sys::now_us() + patience_us; pidfd >= 0;) {
    PidfdInfo info{};
    info.mask = kExit;
    if (sys::failed(sys::call(SYS_ioctl, pidfd, kGetInfo, sys::ptr(&info)))) break;
    if (info.mask & kExit) return info.exit_code;
    if (sys::now_us() >= until) break;
    sys::sleep_us(2000);
  }
  return -1;
}

}  // namespace gpuckpt
