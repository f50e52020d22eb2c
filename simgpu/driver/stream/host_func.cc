// Host functions and callbacks: on the stream's thread, where driver calls are not permitted.
#include "driver/stream/action.h"

namespace simgpu {
namespace {

class InCallback {
 public:
  InCallback() { thread()->in_callback = true; }
  ~InCallback() { thread()->in_callback = false; }
};

// Called with the error, too, when the context failed before its turn.
class Callback : public Work {
 public:
  Callback(CUstream s, CUstreamCallback f, void* d) : stream_(s), function_(f), data_(d) {}
  CUresult execute(Context&) override {
    call(CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  void skipped(CUresult r) override { call(r); }
  const char* name() const override { return "callback"; }

 private:
  void call(CUresult r) {
    InCallback guard;
    function_(stream_, r, data_);
  }
  const CUstream stream_;
  const CUstreamCallback function_;
  void* const data_;
};

}  // namespace

CUresult HostAction::execute(Context&) {
  InCallback guard;
  function(data);
  return CUDA_SUCCESS;
}

}  // namespace simgpu

using namespace simgpu;

SIMGPU_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  ENTER(cuLaunchHostFunc);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  return enqueue(*s, Ref<Action>::adopt(new HostAction(function, data)));
}

SIMGPU_API cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data,
                               unsigned flags) {
  ENTER(cuStreamAddCallback);
  if (!function || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Ref<Stream> s;
  if (CUresult r = resolve(stream, &s); r != CUDA_SUCCESS) return r;
  if (CUresult r = forbid_capture(*s); r != CUDA_SUCCESS) return r;
  s->submit(new Callback(stream, function, data));
  return CUDA_SUCCESS;
}
