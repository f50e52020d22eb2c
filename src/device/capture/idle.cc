#include "device/capture/idle.h"

#include "base/syscall.h"
#include "device/objects/green_contexts.h"
#include "intercept/generated/real_driver.h"

namespace gpuckpt::device {
namespace {

bool capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return real().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Of a stream's work, or what of it lies before `mark`. One that is gone, or being captured, has
// none.
CUresult ask(CUstream stream, CUevent mark) {
  if (captures_active && capturing(stream)) return CUDA_SUCCESS;
  CUresult result = mark ? real().cuEventQuery(mark) : real().cuStreamQuery(stream);
  bool gone = result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return gone ? CUDA_SUCCESS : result;
}

}  // namespace

IdleWatch::IdleWatch(uint64_t context) : context_(context), generation_(generation()) {
  if (captures_active) return;  // the legacy stream must not be touched now
  WithContext with(context);
  if (!with) return;
  if (real().cuEventCreate(&mark_, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    mark_ = nullptr;
    return;
  }
  if (real().cuEventRecord(mark_, CU_STREAM_LEGACY) != CUDA_SUCCESS) {
    real().cuEventDestroy_v2(mark_);
    mark_ = nullptr;
  }
}

IdleWatch::~IdleWatch() {
  if (generation_ != generation()) return;
  if (mark_) real().cuEventDestroy_v2(mark_);
  for (size_t i = 0; i < pending_.size(); ++i)
    if (pending_[i].mark) real().cuEventDestroy_v2(pending_[i].mark);
}

// Streams of `context` that the application made. Names are copied: queries need no registry lock.
static void list_streams(uint64_t context, Vector<uint64_t>* out) {
  Registry& all = registry();
  MutexLock guard(all.lock);
  for (Object* o = all.first(); o; o = o->next)
    if (o->type == ObjectType::kStream && o->context == context) out->push(o->name);
}

static CUevent record_mark(CUstream stream) {
  CUevent mark = nullptr;
  if (real().cuEventCreate(&mark, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
  if (real().cuEventRecord(mark, stream) == CUDA_SUCCESS) return mark;
  real().cuEventDestroy_v2(mark);
  return nullptr;
}

CUresult IdleWatch::poll_marks() {
  if (!listed_) {
    Vector<uint64_t> streams;
    list_streams(context_, &streams);
    for (uint64_t name : streams) pending_.push({name, nullptr});
    listed_ = true;
  }
  for (size_t i = 0; i < pending_.size();) {
    Pending& p = pending_[i];
    auto stream = real_of<CUstream>(Kind::kStream, p.stream);
    CUresult result = ask(stream, p.mark);
    if (result == CUDA_ERROR_NOT_READY) {
      if (!p.mark && !captures_active) p.mark = record_mark(stream);
      busy_ = p.stream;
      ++i;
      continue;
    }
    if (result != CUDA_SUCCESS) return result;
    if (p.mark) real().cuEventDestroy_v2(p.mark);
    pending_.swap_remove(i);
  }
  return pending_.size() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult IdleWatch::poll(bool marked_only) {
  WithContext with(context_);
  if (!with) return CUDA_SUCCESS;  // gone
  uint64_t suspect = busy_;
  busy_ = 0;
  bool ready = true;  // of the default streams; a busy stream of the program's own is named first
  if (mark_ && generation_ == generation()) {
    CUresult result = real().cuEventQuery(mark_);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
    ready = result == CUDA_SUCCESS;
  }
  if (marked_only && generation_ == generation()) {
    if (CUresult result = captures_active ? CUDA_SUCCESS : query_green_streams(context_))
      return result;
    CUresult result = poll_marks();
    return result == CUDA_SUCCESS && !ready ? CUDA_ERROR_NOT_READY : result;
  }
  if (!captures_active) {
    CUresult result = real().cuStreamQuery(CU_STREAM_LEGACY);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
    ready = ready && result == CUDA_SUCCESS;
    result = query_green_streams(context_);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
    ready = ready && result == CUDA_SUCCESS;
  }
  Vector<uint64_t> streams;
  list_streams(context_, &streams);
  // The one that was busy the last time first: what keeps being busy is named in the end, not what
  // has work just now.
  for (size_t i = 1; i < streams.size(); ++i)
    if (streams[i] == suspect) {
      streams[i] = streams[0];
      streams[0] = suspect;
    }
  for (uint64_t name : streams) {
    CUresult result = ask(real_of<CUstream>(Kind::kStream, name), nullptr);
    if (result == CUDA_ERROR_NOT_READY) busy_ = name;
    if (result != CUDA_SUCCESS) return result;
  }
  return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult wait_idle(uint64_t context) {
  IdleWatch watch(context);
  for (uint64_t pause = 0;; pause = pause < 500 ? pause + 10 : 500) {
    CUresult result = watch.poll(true);
    if (result != CUDA_ERROR_NOT_READY) return result;
    if (pause < 50) {
      sys::call(SYS_sched_yield);
    } else {
      GateOutside outside;
      sys::sleep_us(pause);
    }
  }
}

}  // namespace gpuckpt::device
