// Device memory to the sink through two pinned buffers: one fills while the other is sent.
//
// Works in a context of the application, on a stream of its own that waits for nobody (lowest
// priority, not blocking); the calling thread's capture mode becomes relaxed for good. The buffers
// are plain memory of ours, so that they outlive a context which the application destroys
// meanwhile.
#pragma once

#include "device/names.h"
#include "device/registry.h"
#include "snapshot/device_plugin.h"

namespace gpuckpt::device {

inline constexpr uint64_t kPumpBytes = 4 << 20;  // what travels in one go

// A piece of device memory on its way. `offset`: where its copy lies, in the stage or, of pieces
// that are not staged, counted as if they were.
struct Piece {
  uint64_t address, size, offset;
  const ChunkName* names;  // of its chunks; null: not known
};

// The context may go while we work in it. Whoever destroys it sets `gone` with the lock held, after
// our copies are done; from then on the driver is not called for it any more.
struct Leave {
  Lock* lock;
  const bool* gone;
};

class Pump {
 public:
  // Without `leave` nobody can destroy the context (the gate is closed).
  Pump(CUcontext context, CaptureSink* sink, int device, const Leave* leave = nullptr);
  ~Pump();
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  bool ok() const { return ok_; }
  CUstream stream() const { return stream_; }

  // How many of `count` pieces one buffer takes (at least one).
  static size_t batch(const Piece* pieces, size_t count);
  // Sends what is in the next buffer, so that it is free. Waits for the sink.
  bool make_room();
  // Starts the copy of a batch into it: from the stage, or (0) from where each piece lives. The
  // pieces stay the caller's, unchanged until they are sent. With `leave`: its lock is held.
  bool take(const Piece* pieces, size_t count, uint64_t stage);
  bool send_host(const Piece& piece, const uint8_t* bytes);
  bool finish();

  // What stopped it.
  bool writer_gone() const { return writer_gone_; }
  CUresult result() const { return result_; }
  uint64_t failed_at() const { return failed_at_; }

 private:
  struct Batch {
    const Piece* first;
    size_t count;
  };
  bool flush(int i);
  CUresult await(CUevent event);
  bool start_copies(const Piece* pieces, size_t count, uint64_t stage);

  WithContext with_;
  CaptureSink* sink_;
  const Leave* leave_;
  uint64_t space_;
  Lock own_lock_;
  CUstream stream_ = nullptr;
  uint8_t* buffer_[2] = {};
  CUevent done_[2] = {};
  Batch full_[2] = {};
  int turn_ = 0;
  CUresult result_ = CUDA_SUCCESS;
  uint64_t failed_at_ = 0;
  bool ok_ = false, writer_gone_ = false, registered_ = false;
};

}  // namespace gpuckpt::device
