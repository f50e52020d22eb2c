// gate_test HOW: closing, waiting, giving up, forking.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "control.h"

static const TestControl* control;
static CUresult (*init)(unsigned);
static CUresult (*query)(CUstream);
static CUresult (*create)(CUstream*, unsigned);
static CUresult (*set_current)(CUcontext);
static CUresult (*get_current)(CUcontext*);
static CUresult (*synchronize)();

static uint64_t in_ms(uint64_t ms) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec) +
         ms * 1000000;
}

static bool close_gate(uint64_t ms, const char** function = nullptr) {
  int tid;
  const char* f = nullptr;
  bool closed = control->gate_close(in_ms(ms), &tid, &f);
  if (function) *function = f;
  return closed;
}

// 8 threads call without a pause. While the gate is closed not one call ends.
static void hammer() {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        CHECK(query(nullptr) == CUDA_SUCCESS);
        calls.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (int round = 0; round < 40; round++) {
    CHECK(close_gate(5000));
    CHECK(control->gate_closed());
    usleep(100);  // calls that had left the driver may still be counted
    uint64_t before = calls.load();
    for (int k = 0; k < 20; k++) sched_yield();
    uint64_t after = calls.load();
    CHECK(after - before <= 8);
    control->gate_open();
    if (round % 10 == 0) usleep(1000);
  }
  uint64_t at = calls.load();
  while (calls.load() < at + 1000) usleep(100);
  stop = true;
  for (auto& t : threads) t.join();
}

// A call that takes longer than the deadline is named, and the gate is open again.
static void deadline() {
  std::thread sleeper([] { CHECK(synchronize() == CUDA_SUCCESS); });
  usleep(100000);
  const char* function = nullptr;
  CHECK(!close_gate(100, &function));
  CHECK(function && !strcmp(function, "cuCtxSynchronize"));
  CHECK(!control->gate_closed());
  CHECK(query(nullptr) == CUDA_SUCCESS);
  CHECK(close_gate(5000));  // waits for its end
  control->gate_open();
  sleeper.join();
}

static void forked() {
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    while (!stop) query(nullptr);
  });
  for (int i = 0; i < 10; i++) {
    CHECK(close_gate(5000));
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      // Alone, and the gate is open.
      if (query(nullptr) != CUDA_SUCCESS) _exit(1);
      if (!close_gate(1000)) _exit(2);
      control->gate_open();
      _exit(query(nullptr) == CUDA_SUCCESS ? 0 : 3);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    control->gate_open();
  }
  stop = true;
  caller.join();
}

// Threads that find the gate closed wait outside it and go on when it opens.
static void waiters() {
  CHECK(close_gate(1000));
  std::atomic<int> through{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) {
    threads.emplace_back([&] {
      query(nullptr);
      through++;
    });
  }
  usleep(100000);
  CHECK(through == 0);
  CHECK(close_gate(100));  // closing again finds no thread inside
  control->gate_open();
  for (auto& t : threads) t.join();
  CHECK(through == 8);
}

// A thread that waited across a restore translates after the wait, and its contexts are established
// first.
static std::atomic<int> established{0};
static void generation() {
  CUstream old_name, now;
  CHECK(create(&old_name, 0) == CUDA_SUCCESS && create(&now, 0) == CUDA_SUCCESS);
  CHECK(set_current(reinterpret_cast<CUcontext>(0x1000)) == CUDA_SUCCESS);
  control->set_establish([](uint32_t count, void** context) {
    if (count == 1 && context[0] == reinterpret_cast<void*>(0x1000)) established++;
  });
  CUstream wild = reinterpret_cast<CUstream>(&established);  // the fake driver: not a stream
  CHECK(query(wild) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(close_gate(1000));
  CUresult waited = CUDA_ERROR_UNKNOWN;
  std::thread waiter([&] { waited = query(wild); });
  usleep(50000);
  control->new_generation();
  control->bind_stream(wild, now);
  control->gate_open();
  waiter.join();
  CHECK(waited == CUDA_SUCCESS);
  CHECK(control->generation() == 1);
  CHECK(established == 0);  // the waiter had no context
  CHECK(query(old_name) == CUDA_SUCCESS);
  CHECK(established == 1);
  CHECK(query(old_name) == CUDA_SUCCESS);
  CHECK(established == 1);
}

// Many short threads do not leave many records behind; one that dies inside does not hold the gate
// for ever.
static void exit_threads() {
  for (int i = 0; i < 2000; i++) std::thread([] { query(nullptr); }).join();
  CHECK(control->records() <= 128);
  std::thread([] {
    std::thread canceller([t = pthread_self()] {
      usleep(50000);
      pthread_cancel(t);
    });
    canceller.detach();
    synchronize();  // usleep inside is a cancellation point
  }).detach();
  usleep(300000);
  CHECK(close_gate(3000));
  control->gate_open();
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  control = static_cast<const TestControl*>(dlsym(RTLD_DEFAULT, "gpuckpt_test_control"));
  CHECK(control);
  auto load = [](auto& f, const char* name) {
    f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(RTLD_DEFAULT, name));
    CHECK(f);
  };
  load(init, "cuInit");
  load(query, "cuStreamQuery");
  load(create, "cuStreamCreate");
  load(set_current, "cuCtxSetCurrent");
  load(get_current, "cuCtxGetCurrent");
  load(synchronize, "cuCtxSynchronize");
  CHECK(init(0) == CUDA_SUCCESS);
  std::string how = argv[1];
  if (how == "hammer")
    hammer();
  else if (how == "deadline")
    deadline();
  else if (how == "fork")
    forked();
  else if (how == "waiters")
    waiters();
  else if (how == "generation")
    generation();
  else if (how == "exit_threads")
    exit_threads();
  else
    return 2;
  return 0;
}
