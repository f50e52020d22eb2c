#include "device/replay/upload.h"

#include <algorithm>

#include "device/capture/capture.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

constexpr size_t kInFlight = 8;  // pieces; fewer than the source has room for

// What one device's copies go through.
struct Lane {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUevent done[kInFlight] = {};
};

class Upload {
 public:
  Upload(RestoreSource* source, const Vector<UploadTarget>& targets, DeviceReport* report)
      : source_(source), targets_(targets), report_(report) {}
  ~Upload();
  bool run();

 private:
  Lane* lane_of(int device);
  bool start(const RestorePiece& piece);
  CUresult copy(const RestorePiece& piece, CUstream stream);
  bool finish_oldest();
  bool failed(int device, uint64_t address, CUresult result);

  RestoreSource* source_;
  const Vector<UploadTarget>& targets_;
  DeviceReport* report_;
  Lane lanes_[kMaxDevices];
  CUcontext pinned_in_ = nullptr;
  struct {
    RestorePiece piece;
    int device;
  } flying_[kInFlight];
  size_t started_ = 0, finished_ = 0;
};

bool Upload::failed(int device, uint64_t address, CUresult result) {
  const char* text = nullptr;
  real().cuGetErrorName(result, &text);
  return report_->fail(kExitError, "device %d: memory at 0x%lx cannot be filled: %s (%d)", device,
                       address, text ? text : "error", static_cast<int>(result));
}

Lane* Upload::lane_of(int device) {
  if (device < 0 || device >= kMaxDevices) return nullptr;
  Lane& lane = lanes_[device];
  if (lane.stream) return &lane;
  lane.context = any_context(device);
  WithContext with(lane.context);
  if (!with || real().cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    return nullptr;
  for (CUevent& e : lane.done)
    if (real().cuEventCreate(&e, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
  // Without that the copies are right as well.
  if (!pinned_in_ && source_->memory &&
      real().cuMemHostRegister_v2(source_->memory, source_->memory_bytes,
                                  CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
    pinned_in_ = lane.context;
  return &lane;
}

Upload::~Upload() {
  while (finished_ < started_ && finish_oldest()) {
  }
  for (Lane& lane : lanes_) {
    if (!lane.context) continue;
    WithContext with(lane.context);
    if (lane.stream) real().cuStreamSynchronize(lane.stream);
    for (CUevent e : lane.done)
      if (e) real().cuEventDestroy_v2(e);
    if (lane.stream) real().cuStreamDestroy_v2(lane.stream);
  }
  if (!pinned_in_) return;
  WithContext with(pinned_in_);
  real().cuMemHostUnregister(source_->memory);
}

CUresult Upload::copy(const RestorePiece& piece, CUstream stream) {
  size_t low = 0;
  for (size_t high = targets_.size(); low < high;) {
    const size_t middle = (low + high) / 2;
    if (targets_[middle].begin + targets_[middle].size <= piece.address)
      low = middle + 1;
    else
      high = middle;
  }
  const uint64_t end = piece.address + piece.length;
  CUresult result = CUDA_SUCCESS;
  for (; low < targets_.size() && targets_[low].begin < end && result == CUDA_SUCCESS; ++low) {
    const UploadTarget& t = targets_[low];
    const uint64_t to = t.begin > piece.address ? t.begin : piece.address;
    const uint64_t length = (t.begin + t.size < end ? t.begin + t.size : end) - to;
    const auto* from = static_cast<const uint8_t*>(piece.bytes);
    result = from ? real().cuMemcpyHtoDAsync_v2(to, from + (to - piece.address), length, stream)
                  : real().cuMemsetD8Async(to, 0, length, stream);
    report_->device_bytes += length;
  }
  return result;
}

bool Upload::start(const RestorePiece& piece) {
  const int device = static_cast<int>(piece.space - wire::kSpaceDeviceBase);
  Lane* lane = lane_of(device);
  if (!lane) return failed(device, piece.address, CUDA_ERROR_INVALID_CONTEXT);
  WithContext with(lane->context);
  const size_t slot = started_ % kInFlight;
  CUresult result = copy(piece, lane->stream);
  if (result == CUDA_SUCCESS) result = real().cuEventRecord(lane->done[slot], lane->stream);
  if (result != CUDA_SUCCESS) return failed(device, piece.address, result);
  flying_[slot] = {piece, device};
  ++started_;
  return true;
}

bool Upload::finish_oldest() {
  const size_t slot = finished_++ % kInFlight;
  const auto& [piece, device] = flying_[slot];
  WithContext with(lanes_[device].context);
  CUresult result = real().cuEventSynchronize(lanes_[device].done[slot]);
  source_->done(source_, piece);
  return result == CUDA_SUCCESS || failed(device, piece.address, result);
}

bool Upload::run() {
  for (;;) {
    RestorePiece piece = {};
    switch (source_->next(source_, &piece)) {
      case RestoreSource::kPiece:
        if (started_ - finished_ == kInFlight && !finish_oldest()) return false;
        if (!start(piece)) return false;
        break;
      case RestoreSource::kEnd:
        while (finished_ < started_)
          if (!finish_oldest()) return false;
        return true;
      case RestoreSource::kBroken:
        return report_->fail(kExitError, "the device's memory cannot be read from the snapshot");
    }
  }
}

}  // namespace

bool upload_contents(RestoreSource* source, Vector<UploadTarget>* targets, DeviceReport* report) {
  std::sort(targets->begin(), targets->end(),
            [](const UploadTarget& a, const UploadTarget& b) { return a.begin < b.begin; });
  return Upload(source, *targets, report).run();
}

}  // namespace gpuckpt::device
