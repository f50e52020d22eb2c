// A capturing stream executes nothing; forbidden calls fail and invalidate, with the right errors.
#include "check.h"

static void capture(CUstream s, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  OK(cuStreamBeginCapture(s, mode));
}
static CUstreamCaptureStatus status(CUstream s) {
  CUstreamCaptureStatus st;
  OK(cuStreamIsCapturing(s, &st));
  return st;
}

int main() {
  start();
  CUstream s, other;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr d, more;
  OK(cuMemAlloc(&d, 64));
  OK(cuMemsetD8(d, 1, 64));
  OK(cuCtxSynchronize());
  CUgraph graph;

  capture(s);
  CHECK(status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE &&
        status(other) == CU_STREAM_CAPTURE_STATUS_NONE);
  OK(cuMemsetD8Async(d, 2, 64, s));
  OK(cuStreamEndCapture(s, &graph));
  CHECK(graph && status(s) == CU_STREAM_CAPTURE_STATUS_NONE);
  OK(cuGraphDestroy(graph));
  unsigned char v;
  OK(cuMemcpyDtoH(&v, d, 1));
  CHECK(v == 1);

  capture(s);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
  CHECK(status(s) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(d, 2, 64, s));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
  OK(cuStreamSynchronize(s));

  capture(s);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&more, 64));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));

  capture(s, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuMemAlloc(&more, 64));
  OK(cuMemFree(more));
  OK(cuStreamEndCapture(s, &graph));
  OK(cuGraphDestroy(graph));

  // Another stream joins by an event; the event may not be asked meanwhile.
  CUevent e;
  OK(cuEventCreate(&e, 0));
  capture(s);
  OK(cuEventRecord(e, s));
  OK(cuStreamWaitEvent(other, e, 0));
  CHECK(status(other) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
  CHECK(status(other) == CU_STREAM_CAPTURE_STATUS_NONE);
  capture(s);
  OK(cuEventRecord(e, s));
  EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));

  // What another stream did must be joined before the end; what no graph holds cannot be waited
  // for.
  capture(s);
  OK(cuEventRecord(e, s));
  OK(cuStreamWaitEvent(other, e, 0));
  OK(cuMemsetD8Async(d, 3, 64, other));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &graph));
  CHECK(!graph && status(other) == CU_STREAM_CAPTURE_STATUS_NONE);
  CUevent outside;
  OK(cuEventCreate(&outside, 0));
  OK(cuEventRecord(outside, other));
  capture(s);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, outside, 0));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
  capture(s, CU_STREAM_CAPTURE_MODE_RELAXED);
  capture(other, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuEventRecord(e, s));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(other, e, 0));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(other, &graph));
  EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamUpdateCaptureDependencies(
                                       s, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));

  // The legacy stream may not be made to depend on a blocking stream that captures.
  CUstream blocking;
  OK(cuStreamCreate(&blocking, 0));
  capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async(d, 2, 64, nullptr));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
  EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
         cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &graph));
  return ok();
}
