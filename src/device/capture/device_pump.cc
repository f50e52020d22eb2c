#include "device/capture/device_pump.h"

#include <sys/mman.h>

#include "base/heap.h"
#include "base/syscall.h"
#include "device/base/lock_order.h"
#include "gpuckpt/wire.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

bool is_zero(const uint8_t* bytes, uint64_t size) {
  uint64_t i = 0;
  for (; i + 64 <= size; i += 64) {
    uint64_t w[8];
    __builtin_memcpy(w, bytes + i, 64);
    if (w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7]) return false;
  }
  uint8_t any = 0;
  for (; i < size; ++i) any |= bytes[i];
  return !any;
}

// Bytes without names: cut where zero blocks begin and end.
bool send_unnamed(CaptureSink* sink, uint64_t space, uint64_t address, const uint8_t* bytes,
                  uint64_t size) {
  for (uint64_t at = 0; at < size;) {
    bool zero = false;
    uint64_t end = at;
    while (end < size) {
      uint64_t block = kChunkBytes - (address + end) % kChunkBytes;
      if (block > size - end) block = size - end;
      bool block_zero = is_zero(bytes + end, block);
      if (end == at) zero = block_zero;
      if (block_zero != zero) break;
      end += block;
    }
    bool sent = zero ? sink->zero(sink, space, address + at, end - at)
                     : sink->data(sink, space, address + at, bytes + at, end - at);
    if (!sent) return false;
    at = end;
  }
  return true;
}

bool pin(void* memory, uint64_t bytes) {
  return real().cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
}

// The sink's memory, registered once for all pumps: those of several devices work side by side.
struct SinkPin {
  Mutex lock{kSinkPinLock};
  int users = 0;
};
SinkPin* sink_pin;

bool pin_sink(const CaptureSink* sink) {
  SinkPin& one = made_once(&sink_pin);
  MutexLock guard(one.lock);
  if (!one.users && !pin(sink->memory, sink->memory_bytes)) return false;
  ++one.users;
  return true;
}
// A context that is gone took the registration with it.
void unpin_sink(const CaptureSink* sink, bool gone) {
  SinkPin& one = made_once(&sink_pin);
  MutexLock guard(one.lock);
  if (!--one.users && !gone) real().cuMemHostUnregister(sink->memory);
}

uint64_t chunks_of(const Piece& piece) { return chunks_in(piece.address, piece.size); }

}  // namespace

Pump::Pump(CUcontext context, CaptureSink* sink, uint64_t space, const Leave* leave)
    : with_(context), sink_(sink), leave_(leave), space_(space) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  real().cuThreadExchangeStreamCaptureMode(&mode);
  if (!with_) return;
  sink_registered_ = sink_->acquire && pin_sink(sink_);
  int low = 0, high = 0;
  real().cuCtxGetStreamPriorityRange(&low, &high);
  result_ = real().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, low);
  for (Batch& b : batch_)
    if (result_ == CUDA_SUCCESS) result_ = real().cuEventCreate(&b.done, CU_EVENT_DISABLE_TIMING);
  ok_ = result_ == CUDA_SUCCESS;
}

Pump::~Pump() {
  MutexLock guard(leave_ ? *leave_->lock : own_lock_);
  const bool gone = leave_ && *leave_->gone;
  if (with_ && !gone) {
    if (stream_) real().cuStreamSynchronize(stream_);
    for (Batch& b : batch_)
      if (b.done) real().cuEventDestroy_v2(b.done);
    if (stream_) real().cuStreamDestroy_v2(stream_);
    if (registered_) real().cuMemHostUnregister(own_);
  }
  if (sink_registered_) unpin_sink(sink_, gone);
  if (own_) sys::munmap(bits(own_), kOwnBytes);
}

uint8_t* Pump::own(int i) {
  if (!own_) {
    long at = sys::mmap(own_address(kOwnBytes), kOwnBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS);
    if (sys::failed(at)) return nullptr;
    own_ = reinterpret_cast<uint8_t*>(at);
    registered_ = pin(own_, kOwnBytes);
  }
  return own_ + static_cast<uint64_t>(i) * kPumpBytes;
}

// Large enough that the call is worth it.
bool Pump::fits_block(const Piece& piece) const {
  return sink_registered_ && piece.names && piece.size >= 4 * kChunkBytes;
}

size_t Pump::batch(const Piece* pieces, size_t count) const {
  size_t n = 1;
  if (fits_block(pieces[0])) return n;
  while (n < count && !fits_block(pieces[n]) &&
         pieces[n].offset + pieces[n].size - pieces[0].offset <= kPumpBytes)
    ++n;
  return n;
}

bool Pump::make_room() { return flush(turn_); }

bool Pump::start_copies(uint8_t* to, const Piece* pieces, size_t count, uint64_t stage) {
  const Piece &first = pieces[0], &last = pieces[count - 1];
  failed_at_ = first.address;
  if (stage) {
    result_ = real().cuMemcpyDtoHAsync_v2(to, stage + first.offset,
                                          last.offset + last.size - first.offset, stream_);
    return result_ == CUDA_SUCCESS;
  }
  for (size_t i = 0; i < count; ++i) {
    failed_at_ = pieces[i].address;
    result_ = real().cuMemcpyDtoHAsync_v2(to + (pieces[i].offset - first.offset), pieces[i].address,
                                          pieces[i].size, stream_);
    if (result_ != CUDA_SUCCESS) return false;
  }
  return true;
}

bool Pump::take(const Piece* pieces, size_t count, uint64_t stage) {
  Batch& b = batch_[turn_];
  b.block = {};
  if (fits_block(pieces[0]) &&
      !sink_->acquire(sink_, pieces[0].size, chunks_of(pieces[0]), &b.block))
    b.block = {};
  auto* to = b.block.bytes ? static_cast<uint8_t*>(b.block.bytes) : own(turn_);
  if (!to) result_ = CUDA_ERROR_OUT_OF_MEMORY;
  if (!to || !start_copies(to, pieces, count, stage)) return false;
  result_ = real().cuEventRecord(b.done, stream_);
  if (result_ != CUDA_SUCCESS) return false;
  b.first = pieces;
  b.count = count;
  turn_ = (turn_ + 1) % kBuffers;
  return true;
}

bool Pump::send_host(const Piece& piece, const uint8_t* bytes) {
  writer_gone_ |=
      !(piece.names && sink_->sealed
            ? sink_->sealed(sink_, space_, piece.address, bytes, piece.size, piece.names)
            : send_unnamed(sink_, space_, piece.address, bytes, piece.size));
  return !writer_gone_;
}

bool Pump::finish() {
  for (int i = 0; i < kBuffers; ++i)
    if (!flush((turn_ + i) % kBuffers)) return false;
  return true;
}

CUresult Pump::await(CUevent event) {
  if (!leave_) return real().cuEventSynchronize(event);
  // Others are on their way meanwhile: pauses of about three copies are short enough, and shorter
  // ones would only slow the thread that copies.
  for (int looks = 0;; ++looks, sys::sleep_us(pause_us_)) {
    MutexLock guard(*leave_->lock);
    if (*leave_->gone) return CUDA_SUCCESS;  // the thread that destroyed it waited for our copies
    CUresult result = real().cuEventQuery(event);
    if (result == CUDA_ERROR_NOT_READY) continue;
    if (!looks && pause_us_ > kShortestPauseUs) pause_us_ -= pause_us_ / 8;
    if (looks && pause_us_ < kLongestPauseUs) pause_us_ += pause_us_ / 2;
    return result;
  }
}

bool Pump::flush(int i) {
  Batch& b = batch_[i];
  size_t count = b.count;
  b.count = 0;
  if (!count) return true;
  const Piece& first = *b.first;
  failed_at_ = first.address;
  if ((result_ = await(b.done)) != CUDA_SUCCESS) return false;
  if (b.block.bytes) {
    writer_gone_ |= !sink_->commit_block(sink_, b.block, space_, first.address, first.size,
                                         first.names, chunks_of(first));
    return !writer_gone_;
  }
  for (size_t k = 0; k < count; ++k)
    if (!send_host(b.first[k], own(i) + (b.first[k].offset - first.offset))) return false;
  return true;
}

}  // namespace gpuckpt::device
