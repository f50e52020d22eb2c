// Device memory to the sink: some buffers fill while others are sent. Where the sink lends memory
// (the ring) the device writes into it, and nothing is copied again; small pieces, pieces without
// names, and what finds no room there go through pinned buffers of ours.
//
// Works in a context of the application, on a stream of its own that waits for no other (lowest
// priority, not blocking); the calling thread's capture mode becomes relaxed for good. The buffers
// are plain memory, so that they outlive a context which the application destroys meanwhile.
//
// Owner: the caller. Threads: one of ours at a time. Errors: false; failed_at() says where.
#pragma once

#include "device/base/lock_order.h"
#include "device/base/registry.h"
#include "device/capture/chunk_names.h"
#include "snapshot/api/device_plugin.h"

namespace gpuckpt::device {

inline constexpr uint64_t kPumpBytes = CaptureSink::kBlockBytes;  // what travels in one go

// A piece of device memory on its way. `offset`: where its copy lies, in the stage or, of pieces
// that are not staged, counted as if they were.
struct Piece {
  uint64_t address, size, offset;
  const ChunkName* names;  // of its chunks; null: not known
};

// The context may go while we work in it. The thread that destroys it sets `gone` with the lock
// held, after our copies are done; from then on the driver is not called for it any more.
struct Leave {
  Mutex* lock;
  const bool* gone;
};

class Pump {
 public:
  // Without `leave` no thread can destroy the context (the gate is closed).
  Pump(CUcontext context, CaptureSink* sink, uint64_t space, const Leave* leave = nullptr);
  ~Pump();
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  bool ok() const { return ok_; }
  CUstream stream() const { return stream_; }

  // How many of `count` pieces travel together (at least one).
  size_t batch(const Piece* pieces, size_t count) const;
  // Sends what is in the next buffer, so that it is free. Waits for the sink.
  bool make_room();
  // Starts the copy of a batch: from the stage, or (0) from where each piece lives. The
  // pieces stay the caller's, unchanged until they are sent. With `leave`: its lock is held.
  bool take(const Piece* pieces, size_t count, uint64_t stage);
  bool send_host(const Piece& piece, const uint8_t* bytes);
  bool finish();

  // After a failure: what stopped the pump.
  bool writer_gone() const { return writer_gone_; }
  CUresult result() const { return result_; }
  uint64_t failed_at() const { return failed_at_; }

 private:
  static constexpr int kBuffers = 16;
  static constexpr uint64_t kShortestPauseUs = 20, kLongestPauseUs = 600;
  static constexpr uint64_t kOwnBytes = kBuffers * kPumpBytes;
  struct Batch {
    const Piece* first = nullptr;
    size_t count = 0;
    CaptureSink::Block block = {};  // bytes null: in the buffer of ours
    CUevent done = nullptr;
  };
  bool fits_block(const Piece& piece) const;
  uint8_t* own(int i);
  bool flush(int i);
  CUresult await(CUevent event);
  bool start_copies(uint8_t* to, const Piece* pieces, size_t count, uint64_t stage);

  WithContext with_;
  CaptureSink* sink_;
  const Leave* leave_;
  uint64_t space_;
  Mutex own_lock_{kPumpLock};
  CUstream stream_ = nullptr;
  uint8_t* own_ = nullptr;  // made when it is first needed
  Batch batch_[kBuffers];
  int turn_ = 0;
  uint64_t pause_us_ = kShortestPauseUs;
  CUresult result_ = CUDA_SUCCESS;
  uint64_t failed_at_ = 0;
  bool ok_ = false, writer_gone_ = false;
  bool registered_ = false, sink_registered_ = false;
};

}  // namespace gpuckpt::device
