#include "device/pump.h"

#include <sys/mman.h>

#include "common/syscall.h"
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

}  // namespace

Pump::Pump(CUcontext context, CaptureSink* sink, int device, const Leave* leave)
    : with_(context),
      sink_(sink),
      leave_(leave),
      space_(wire::kSpaceDeviceBase + static_cast<uint64_t>(device)) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  real().cuThreadExchangeStreamCaptureMode(&mode);
  long at = sys::mmap(0, 2 * kPumpBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (!with_ || sys::failed(at)) return;
  buffer_[0] = reinterpret_cast<uint8_t*>(at);
  buffer_[1] = buffer_[0] + kPumpBytes;
  registered_ = real().cuMemHostRegister_v2(buffer_[0], 2 * kPumpBytes,
                                            CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  int low = 0, high = 0;
  real().cuCtxGetStreamPriorityRange(&low, &high);
  result_ = real().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, low);
  for (CUevent& event : done_)
    if (result_ == CUDA_SUCCESS) result_ = real().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  ok_ = result_ == CUDA_SUCCESS;
}

Pump::~Pump() {
  Guard guard(leave_ ? *leave_->lock : own_lock_);
  if (with_ && !(leave_ && *leave_->gone)) {
    if (stream_) real().cuStreamSynchronize(stream_);
    for (CUevent event : done_)
      if (event) real().cuEventDestroy_v2(event);
    if (stream_) real().cuStreamDestroy_v2(stream_);
    if (registered_) real().cuMemHostUnregister(buffer_[0]);
  }
  if (buffer_[0]) sys::munmap(bits(buffer_[0]), 2 * kPumpBytes);
}

size_t Pump::batch(const Piece* pieces, size_t count) {
  size_t n = 1;
  while (n < count && pieces[n].offset + pieces[n].size - pieces[0].offset <= kPumpBytes) ++n;
  return n;
}

bool Pump::make_room() { return flush(turn_); }

bool Pump::start_copies(const Piece* pieces, size_t count, uint64_t stage) {
  const Piece &first = pieces[0], &last = pieces[count - 1];
  uint8_t* to = buffer_[turn_];
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
  if (!start_copies(pieces, count, stage)) return false;
  result_ = real().cuEventRecord(done_[turn_], stream_);
  if (result_ != CUDA_SUCCESS) return false;
  full_[turn_] = {pieces, count};
  turn_ ^= 1;
  return true;
}

bool Pump::send_host(const Piece& piece, const uint8_t* bytes) {
  writer_gone_ |=
      !(piece.names && sink_->sealed
            ? sink_->sealed(sink_, space_, piece.address, bytes, piece.size, piece.names)
            : send_unnamed(sink_, space_, piece.address, bytes, piece.size));
  return !writer_gone_;
}

bool Pump::finish() { return flush(turn_) && flush(turn_ ^ 1); }

CUresult Pump::await(CUevent event) {
  if (!leave_) return real().cuEventSynchronize(event);
  for (;; sys::sleep_us(30)) {
    Guard guard(*leave_->lock);
    if (*leave_->gone) return CUDA_SUCCESS;  // who destroyed it saw our copies to their end
    CUresult result = real().cuEventQuery(event);
    if (result != CUDA_ERROR_NOT_READY) return result;
  }
}

bool Pump::flush(int i) {
  Batch batch = full_[i];
  full_[i] = {};
  if (!batch.count) return true;
  failed_at_ = batch.first->address;
  if ((result_ = await(done_[i])) != CUDA_SUCCESS) return false;
  for (size_t k = 0; k < batch.count; ++k)
    if (!send_host(batch.first[k], buffer_[i] + (batch.first[k].offset - batch.first->offset)))
      return false;
  return true;
}

}  // namespace gpuckpt::device
