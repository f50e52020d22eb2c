// Is the device still working for us? Asked by queries only (never a blocking call), never touching
// a stream that is being captured.
//
// Owner: the caller; a watch ends its marks. Threads: one per watch. Errors: the driver's own
// result.
#pragma once

#include "device/base/registry.h"

namespace gpuckpt::device {

// Watches one context: all streams the application made there, and the blocking ones (per-thread
// default streams, too) through an event recorded in the legacy default stream at construction.
class IdleWatch {
 public:
  explicit IdleWatch(uint64_t context);
  ~IdleWatch();
  IdleWatch(const IdleWatch&) = delete;
  IdleWatch& operator=(const IdleWatch&) = delete;

  // CUDA_SUCCESS: idle. CUDA_ERROR_NOT_READY: `busy()` names a stream. Else the context's own
  // error. With `marked_only`, only what was enqueued before the first poll counts, so that a
  // program that never lets its streams run dry cannot keep us waiting: a stream that is busy at
  // the first poll gets an event of ours behind its work, and is done when that event is.
  CUresult poll(bool marked_only = false);
  uint64_t busy() const { return busy_; }  // name of a stream; 0: the default streams

 private:
  uint64_t context_;
  uint32_t generation_;
  struct Pending {
    uint64_t stream;
    CUevent mark;  // null: not recorded (yet, or not possible)
  };
  CUresult poll_marks();

  CUevent mark_ = nullptr;
  Vector<Pending> pending_;
  bool listed_ = false;
  uint64_t busy_ = 0;
};

// Inside a hook: waits, outside the gate where it takes long, until `context` is idle (cuMemFree
// and friends).
CUresult wait_idle(uint64_t context);

}  // namespace gpuckpt::device
