// Streams run by themselves and in order; the legacy default stream waits for blocking streams and
// they for it; events, queries, priorities, host functions.
#include <unistd.h>

#include <atomic>

#include "conformance.h"

std::atomic<bool> open_gate{false};
std::atomic<int> order{0};

void waitForGate(void*) {
  while (!open_gate) usleep(500);
}
void note(void* place) { *static_cast<int*>(place) = ++order; }
void noteStatus(cudaStream_t, cudaError_t status, void* place) {
  if (status == cudaSuccess) *static_cast<int*>(place) = ++order;
}

__global__ void store(int* p, int value) { *p = value; }
__global__ void addTo(int* p, int value) { *p = *p * 10 + value; }

int main() {
  cudaStream_t blocking, free_running, urgent;
  int least, greatest;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(cudaStreamCreate(&blocking));
  CHECK(cudaStreamCreateWithFlags(&free_running, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
  int priority;
  unsigned flags;
  unsigned long long id1, id2;
  CHECK(cudaStreamGetPriority(urgent, &priority));
  EXPECT(priority == greatest);
  CHECK(cudaStreamGetFlags(free_running, &flags));
  EXPECT(flags == cudaStreamNonBlocking);
  CHECK(cudaStreamGetId(blocking, &id1));
  CHECK(cudaStreamGetId(urgent, &id2));
  EXPECT(id1 != id2);

  // A stream held up does not hold up the caller or others; queries and events say so.
  cudaEvent_t before, after;
  CHECK(cudaEventCreate(&before));
  CHECK(cudaEventCreate(&after));
  EXPECT(cudaEventQuery(before) == cudaSuccess);  // never recorded
  int places[4] = {};
  int *a, *b;
  CHECK(cudaMalloc(&a, sizeof(int)));
  CHECK(cudaMalloc(&b, sizeof(int)));
  CHECK(cudaMemset(a, 0, sizeof(int)));
  CHECK(cudaMemset(b, 0, sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaEventRecord(before, free_running));
  CHECK(cudaLaunchHostFunc(free_running, waitForGate, nullptr));
  addTo<<<1, 1, 0, free_running>>>(a, 1);
  CHECK(cudaEventRecord(after, free_running));
  EXPECT(cudaStreamQuery(free_running) == cudaErrorNotReady);
  EXPECT(cudaEventQuery(after) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady ? cudaSuccess : cudaErrorUnknown);
  CHECK(cudaStreamWaitEvent(urgent, after));
  addTo<<<1, 1, 0, urgent>>>(a, 2);  // must come second
  store<<<1, 1, 0, blocking>>>(b, 7);
  CHECK(cudaStreamSynchronize(blocking));
  int value = 0;
  CHECK(cudaMemcpy(&value, b, sizeof(int),
                   cudaMemcpyDeviceToHost));  // the default stream is not held up either
  EXPECT(value == 7 && cudaStreamQuery(free_running) == cudaErrorNotReady);
  (void)cudaGetLastError();
  usleep(20000);
  open_gate = true;
  CHECK(cudaStreamSynchronize(urgent));
  CHECK(cudaMemcpy(&value, a, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(value == 12);
  CHECK(cudaEventSynchronize(after));
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, before, after));
  EXPECT(ms >= 15 && ms < 60000);

  // Legacy default stream: between work on a blocking stream, in the order of the calls.
  open_gate = false;
  CHECK(cudaMemset(a, 0, sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaLaunchHostFunc(blocking, waitForGate, nullptr));
  addTo<<<1, 1, 0, blocking>>>(a, 1);
  addTo<<<1, 1>>>(a, 2);
  addTo<<<1, 1, 0, blocking>>>(a, 3);
  addTo<<<1, 1>>>(a, 4);
  EXPECT(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  (void)cudaGetLastError();
  open_gate = true;
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&value, a, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(value == 1234);

  // Host functions and callbacks keep their places.
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaLaunchHostFunc(urgent, note, &places[2 * i]));
    CHECK(cudaStreamAddCallback(urgent, noteStatus, &places[2 * i + 1], 0));
  }
  CHECK(cudaStreamSynchronize(urgent));
  for (int i = 0; i < 4; ++i) EXPECT(places[i] == i + 1);

  // A stream destroyed with work in it finishes that work.
  store<<<1, 1, 0, free_running>>>(b, 99);
  CHECK(cudaStreamDestroy(free_running));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&value, b, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(value == 99);
  cudaEvent_t untimed;
  CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  CHECK(cudaEventRecord(untimed));
  CHECK(cudaEventSynchronize(untimed));
  EXPECT_ERROR(cudaEventElapsedTime(&ms, before, untimed), cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(untimed));
  return passed();
}
