// A sink that keeps what it gets, and the steps of a snapshot on threads of their own, for tests of
// the device side.
//
// Owner: the test. Threads: the sink one at a time; the steps start and join their own. Errors:
// false once `room` is used up.
#pragma once

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "snapshot/api/device_plugin.h"

namespace kept {

struct Sink : gpuckpt::CaptureSink {
  std::map<uint64_t, std::vector<uint8_t>> pieces;
  uint64_t room = ~0ull;  // bytes until the writer is gone
  uint64_t pause_us = 0;
};
inline bool take(Sink* s, uint64_t address, std::vector<uint8_t> bytes) {
  if (s->pause_us) usleep(static_cast<useconds_t>(s->pause_us));
  if (s->room < bytes.size()) return false;
  s->room -= bytes.size();
  s->pieces[address] = std::move(bytes);
  return true;
}
inline Sink make_sink() {
  Sink sink;
  sink.data = [](gpuckpt::CaptureSink* s, uint64_t, uint64_t address, const void* bytes,
                 uint64_t n) {
    auto* b = static_cast<const uint8_t*>(bytes);
    return take(static_cast<Sink*>(s), address, std::vector<uint8_t>(b, b + n));
  };
  sink.zero = [](gpuckpt::CaptureSink* s, uint64_t, uint64_t address, uint64_t n) {
    return take(static_cast<Sink*>(s), address, std::vector<uint8_t>(n, 0));
  };
  sink.blob = [](gpuckpt::CaptureSink*, const char*, const void*, uint64_t) { return true; };
  return sink;
}
inline bool holds(const Sink& sink, uint64_t address, uint64_t size, uint8_t value) {
  uint64_t at = address;
  while (at < address + size) {
    auto it = sink.pieces.upper_bound(at);
    if (it == sink.pieces.begin()) return false;
    --it;
    if (at >= it->first + it->second.size()) return false;
    uint64_t end = std::min<uint64_t>(address + size, it->first + it->second.size());
    for (; at < end; ++at)
      if (it->second[at - it->first] != value) return false;
  }
  return true;
}

template <typename F>
bool on_thread(F work) {
  bool ok = false;
  std::thread([&] { ok = work(); }).join();
  return ok;
}
inline uint64_t now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
}

inline gpuckpt::DeviceReport report;

inline bool freeze(uint64_t patience_ms) {
  report = {};
  return on_thread(
      [&] { return gpuckpt::device_plugin->freeze(100, now_ms() + patience_ms, &report); });
}
// A whole snapshot.
inline bool snapshot(Sink* sink, uint64_t patience_ms) {
  if (!freeze(patience_ms)) return false;
  bool ok = on_thread([&] { return gpuckpt::device_plugin->stage(sink, &report); });
  gpuckpt::device_plugin->resume();
  ok = ok && on_thread([&] { return gpuckpt::device_plugin->drain(sink, &report); });
  gpuckpt::device_plugin->abort_attempt();
  return ok;
}

}  // namespace kept
