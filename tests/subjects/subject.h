// What the subjects of the snapshot tests have in common. A subject is a CUDA program that runs for
// as many steps as asked and computes something that depends on every step before, so that a
// snapshot that loses or doubles anything changes all later output:
//
//   SUBJECT [STEPS [PACE_MS]]     prints "step N DIGEST" after each step and "done DIGEST" at the
//   end
//
// The output depends on the number of steps alone, never on timing. Subjects check themselves
// against the CPU where that is cheap and exit with 1 and a message when something is wrong.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <vector>

#define CHECK(call)                                                                             \
  do {                                                                                          \
    auto error_ = (call);                                                                       \
    if (error_ != 0) {                                                                          \
      fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, static_cast<int>(error_)); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

// One round of mixing, the same on the CPU and on the GPU.
__host__ __device__ inline uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// A hash that grows: feed it in a fixed order.
class Digest {
 public:
  void add(const void* data, size_t bytes) {
    const unsigned char* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) value_ = (value_ ^ p[i]) * 0x100000001b3ull;
  }
  void add(uint64_t number) { add(&number, sizeof(number)); }
  template <typename T>
  void add(const std::vector<T>& data) {
    add(data.data(), data.size() * sizeof(T));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

class Steps {
 public:
  Steps(int argc, char** argv, int default_steps = 20)
      : count_(argc > 1 ? atoi(argv[1]) : default_steps), pace_ms_(argc > 2 ? atoi(argv[2]) : 0) {
    setvbuf(stdout, nullptr, _IOLBF, 1024);
  }
  int count() const { return count_; }

  void report(int step, const Digest& digest) const {
    printf("step %d %016llx\n", step, static_cast<unsigned long long>(digest.value()));
    if (pace_ms_ > 0) {
      timespec time{pace_ms_ / 1000, pace_ms_ % 1000 * 1000000L};
      nanosleep(&time, nullptr);
    }
  }
  int finish(const Digest& digest) const {
    printf("done %016llx\n", static_cast<unsigned long long>(digest.value()));
    return 0;
  }

 private:
  int count_, pace_ms_;
};
