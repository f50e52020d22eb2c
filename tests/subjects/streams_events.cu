// Several streams whose work depends on each other's through events: in every phase a stream mixes
// its own array with its neighbour's of the phase before. A blocking stream and the default stream
// take part.
#include "subject.h"

constexpr int kStreams = 5;
constexpr int kPhases = 4;
constexpr int kCount = 2048;

__global__ void combine(const uint32_t* own, const uint32_t* neighbour, uint32_t* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = mix(own[i] + 3 * neighbour[(i + 17) % kCount]);
}

int main(int argc, char** argv) {
  Steps steps(argc, argv);
  cudaStream_t streams[kStreams];
  cudaEvent_t ready[2][kStreams];
  uint32_t* arrays[2][kStreams];
  std::vector<uint32_t> reference[2][kStreams];
  for (int s = 0; s < kStreams; ++s) {
    int least, greatest;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (s == 0) {
      CHECK(cudaStreamCreate(&streams[s]));  // synchronises with the default stream
    } else {
      CHECK(cudaStreamCreateWithPriority(&streams[s], cudaStreamNonBlocking,
                                         s % 2 ? least : greatest));
    }
    for (int side = 0; side < 2; ++side) {
      CHECK(cudaEventCreateWithFlags(&ready[side][s], cudaEventDisableTiming));
      CHECK(cudaMalloc(&arrays[side][s], kCount * sizeof(uint32_t)));
      reference[side][s].resize(kCount);
    }
    for (int i = 0; i < kCount; ++i) reference[0][s][i] = mix(s * kCount + i);
    CHECK(cudaMemcpy(arrays[0][s], reference[0][s].data(), kCount * sizeof(uint32_t),
                     cudaMemcpyHostToDevice));
    CHECK(cudaEventRecord(ready[0][s], streams[s]));
  }
  int side = 0;
  Digest digest;
  std::vector<uint32_t> host(kCount);
  for (int step = 1; step <= steps.count(); ++step) {
    for (int phase = 0; phase < kPhases; ++phase, side ^= 1) {
      for (int s = 0; s < kStreams; ++s) {
        int neighbour = (s + 1) % kStreams, reader = (s + kStreams - 1) % kStreams;
        CHECK(cudaStreamWaitEvent(streams[s], ready[side][neighbour]));
        CHECK(
            cudaStreamWaitEvent(streams[s], ready[side][reader]));  // it has read what we overwrite
        combine<<<kCount / 128, 128, 0, streams[s]>>>(arrays[side][s], arrays[side][neighbour],
                                                      arrays[side ^ 1][s]);
        for (int i = 0; i < kCount; ++i) {
          reference[side ^ 1][s][i] =
              mix(reference[side][s][i] + 3 * reference[side][neighbour][(i + 17) % kCount]);
        }
      }
      for (int s = 0; s < kStreams; ++s) CHECK(cudaEventRecord(ready[side ^ 1][s], streams[s]));
    }
    for (int s = 0; s < kStreams; ++s) {
      CHECK(cudaMemcpyAsync(host.data(), arrays[side][s], kCount * sizeof(uint32_t),
                            cudaMemcpyDeviceToHost, streams[s]));
      CHECK(cudaStreamSynchronize(streams[s]));
      EXPECT(host == reference[side][s]);
      digest.add(host);
    }
    steps.report(step, digest);
  }
  for (int s = 0; s < kStreams; ++s) {
    CHECK(cudaStreamDestroy(streams[s]));
    for (int i = 0; i < 2; ++i) {
      CHECK(cudaEventDestroy(ready[i][s]));
      CHECK(cudaFree(arrays[i][s]));
    }
  }
  return steps.finish(digest);
}
