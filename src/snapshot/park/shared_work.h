// Work on many things at once, while the application is parked and waits for it: pieces of it are
// done by this thread and by threads of ours on the other processors that this one may use. These
// share everything with it, the table of descriptors too, and have ended when share_work() returns.
// Where no thread can be started, this one does all of it.
//
// Owner: the caller, who waits. Threads: one calls; the body runs on several at once: raw calls
// only, no static buffers, nothing of Capture or Records. Errors: none of its own.
#pragma once

#include <cstdint>

namespace gpuckpt {

// How many processors this thread may use.
uint32_t allowed_processors();

// Calls body(context, begin, end) for pieces of [0, count) of at most `size`.
void share_work(uint32_t count, uint32_t size, void* context,
                void (*body)(void* context, uint32_t begin, uint32_t end));
template <typename Body>
void share_work(uint32_t count, uint32_t size, Body body) {
  share_work(count, size, &body, [](void* context, uint32_t begin, uint32_t end) {
    (*static_cast<Body*>(context))(begin, end);
  });
}

// Calls body(at, end) for parts of the memory, or of the offsets, [begin, end).
template <typename Body>
void share_parts(uint64_t begin, uint64_t end, Body body) {
  constexpr uint64_t kPart = 4ull << 20;
  const auto parts = static_cast<uint32_t>((end - begin + kPart - 1) / kPart);
  share_work(parts, 1, [&](uint32_t part, uint32_t) {
    const uint64_t at = begin + part * kPart;
    body(at, end - at < kPart ? end : at + kPart);
  });
}

}  // namespace gpuckpt
