#include "base/descriptors/aio_dummies.h"

#include <fcntl.h>
#include <poll.h>

#include "base/syscall.h"

namespace gpuckpt {

AioDummies::~AioDummies() {
  if (fd_ >= 0) sys::close(fd_);
}

bool AioDummies::open() {
  fd_ = static_cast<int>(sys::call(SYS_eventfd2, 0, O_CLOEXEC));
  return fd_ >= 0;
}

uint32_t AioDummies::submit(uint32_t n, uint16_t poll_for) {
  request_.aio_lio_opcode = IOCB_CMD_POLL;
  request_.aio_fildes = static_cast<uint32_t>(fd_);
  request_.aio_buf = poll_for;
  constexpr uint32_t kAtOnce = 64;
  iocb* list[kAtOnce];
  for (iocb*& r : list) r = &request_;
  uint32_t done = 0;
  while (done < n) {
    const long r = sys::call(SYS_io_submit, sys::ptr(ring_),
                             n - done < kAtOnce ? n - done : kAtOnce, sys::ptr(list));
    if (sys::failed(r) || !r) break;
    done += static_cast<uint32_t>(r);
  }
  return done;
}

// Each processor has some of the room to itself.
uint32_t AioDummies::submit_anywhere(uint32_t n, uint16_t poll_for) {
  uint32_t done = submit(n, poll_for);
  if (done == n) return done;
  static uint64_t own[128], allowed[128], one[128];
  const long bytes = sys::call(SYS_sched_getaffinity, 0, sizeof(own), sys::ptr(own));
  if (sys::failed(bytes)) return done;
  __builtin_memset(allowed, 255, sizeof(allowed));
  sys::call(SYS_sched_setaffinity, 0, bytes, sys::ptr(allowed));
  sys::call(SYS_sched_getaffinity, 0, sizeof(allowed), sys::ptr(allowed));
  for (long cpu = 0; cpu < bytes * 8 && done < n; ++cpu) {
    if (!(allowed[cpu / 64] >> (cpu % 64) & 1)) continue;
    __builtin_memset(one, 0, sizeof(one));
    one[cpu / 64] = 1ull << (cpu % 64);
    sys::call(SYS_sched_setaffinity, 0, bytes, sys::ptr(one));
    done += submit(n - done, poll_for);
  }
  sys::call(SYS_sched_setaffinity, 0, bytes, sys::ptr(own));
  return done;
}

uint32_t AioDummies::complete(uint32_t n) { return submit_anywhere(n, POLLOUT); }

uint32_t AioDummies::hold_all() { return submit_anywhere(ring_->nr, POLLIN); }

void AioDummies::let_go() {
  uint64_t one = 1;
  sys::write(fd_, &one, sizeof(one));
}

}  // namespace gpuckpt
