// A test program's life over several generations, in one test process: it is captured as a snapshot
// does, and continues in a forked child whose driver is rewound and replayed. For tests that need
// the simulated driver in GPUCKPT_DRIVER.
//
// Owner: the test. Threads: the test's main thread, and one for each step. Errors: the program
// exits with 1.
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "device/tests/check.h"
#include "device/tests/map_source.h"
#include "gpuckpt/exit_codes.h"
#include "intercept/gate/gate.h"
#include "intercept/spec/cuda_types.h"
#include "snapshot/api/device_plugin.h"

// Every device's thread gives what it copied.
struct Sink : gpuckpt::CaptureSink {
  Extents* all;
  std::mutex mutex;
  void put(uint64_t space, uint64_t address, std::vector<uint8_t> bytes) {
    std::lock_guard lock(mutex);
    (*all)[space][address] = std::move(bytes);
  }
};
inline bool keep(gpuckpt::CaptureSink* s, uint64_t space, uint64_t address, const void* bytes,
                 uint64_t n) {
  auto* b = static_cast<const uint8_t*>(bytes);
  static_cast<Sink*>(s)->put(space, address, std::vector<uint8_t>(b, b + n));
  return true;
}
inline bool keep_zero(gpuckpt::CaptureSink* s, uint64_t space, uint64_t address, uint64_t n) {
  static_cast<Sink*>(s)->put(space, address, std::vector<uint8_t>(n, 0));
  return true;
}
inline bool ignore_blob(gpuckpt::CaptureSink*, const char*, const void*, uint64_t) { return true; }
inline uint64_t now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
}

// What `gpuckpt restore --gpu-map` was given; null: nothing.
inline const char* gpu_map;
inline const void* give_blob(gpuckpt::RestoreSource*, const char* name, uint64_t* bytes) {
  if (!gpu_map || strcmp(name, "gpu_map")) return nullptr;
  *bytes = strlen(gpu_map) + 1;
  return gpu_map;
}

// A restored process finds its shareable handles (device/sharing/shareable.h) without what waited
// in them.
inline void empty_sockets() {
  char byte;
  for (int fd = 3; fd < 1024; ++fd)
    while (recv(fd, &byte, 1, MSG_DONTWAIT) > 0) {
    }
}

// The program goes on in a child that is a restore of it: returns there. With `refusal` the restore
// is one that must fail, and say that; the program then goes on where it was.
inline void next_generation(const char* refusal = nullptr) {
  Extents all;
  Sink sink;
  sink.data = keep;
  sink.zero = keep_zero;
  sink.blob = ignore_blob;
  sink.all = &all;
  MapSource source(&all);
  source.blob = give_blob;
  const gpuckpt::DevicePlugin* plugin = gpuckpt::device_plugin;
  gpuckpt::DeviceReport report = {};
  auto worker = [&](auto step, const char* what) {
    bool ok = false;
    std::thread([&] { ok = step(); }).join();
    if (!ok) {
      fprintf(stderr, "generation %u: %s: %s (%d)\n", gpuckpt::generation(), what, report.text,
              report.code);
      _exit(1);
    }
  };
  set("GPUCKPT_STAGE", "off");
  worker([&] { return plugin->freeze(500, now_ms() + 5000, &report); }, "freeze");
  worker([&] { return plugin->stage(&sink, &report); }, "stage");
  worker([&] { return plugin->drain(&sink, &report); }, "drain");
  // A thread of the driver may be in the middle of something, for a moment.
  for (int i = 0; plugin->park_obstacle(); ++i) {
    CHECK(i < 2000);
    usleep(1000);
  }
  fflush(nullptr);
  pid_t child = fork();
  if (child != 0) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!refusal || status) _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    plugin->resume();
    return;
  }
  plugin->rewind(true);
  report = {};
  if (!refusal) empty_sockets();
  if (!refusal) return worker([&] { return plugin->restore(&source, &report); }, "restore");
  bool ok = true;
  std::thread([&] { ok = plugin->restore(&source, &report); }).join();
  if (!ok && report.code == gpuckpt::kExitIncompatible && strstr(report.text, refusal)) _exit(0);
  fprintf(stderr, "a restore gave %d '%s', not '%s'\n", report.code, report.text, refusal);
  _exit(1);
}

// A snapshot now is refused, and the reason has `word` in it.
inline void refused(int code, const char* word) {
  gpuckpt::DeviceReport report = {};
  bool ok = true;
  std::thread([&] { ok = gpuckpt::device_plugin->freeze(100, now_ms() + 300, &report); }).join();
  if (ok || report.code != code || !strstr(report.text, word)) {
    fprintf(stderr, "generation %u: a snapshot gave %d '%s', not %d with '%s'\n",
            gpuckpt::generation(), report.code, report.text, code, word);
    _exit(1);
  }
  CHECK(!gpuckpt::gate_closed());
}
