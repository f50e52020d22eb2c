// Failed allocations. Inside the store they are std::bad_alloc, also where a C library reports them
// in its own way; the public functions of the store turn them into a Status like any other failure.
// They must never count as damage, because `repair` drops what is damaged.
//
// Owner: none. Threads: any; run_together() starts and joins its own. Errors: std::bad_alloc, and a
// Status from guarded().
#pragma once

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include "store/status.h"

namespace gpuckpt::store {

// Returns the answer of zstd, or throws bad_alloc.
inline size_t with_memory(size_t answer) {
  if (ZSTD_isError(answer) && ZSTD_getErrorCode(answer) == ZSTD_error_memory_allocation)
    throw std::bad_alloc();
  return answer;
}
template <typename T>
T* with_memory(T* made) {
  if (!made) throw std::bad_alloc();
  return made;
}

template <typename Work>
Status guarded(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status::Error("out of memory: nothing that was in the store is lost; try again");
  }
}

// Runs `work` in this thread and in up to threads - 1 others (fewer where no more can be started),
// and returns when all have ended. A failed allocation in one of them is thrown from here.
template <typename Work>
void run_together(unsigned threads, const Work& work) {
  std::atomic<bool> memory_was_short{false};
  auto one = [&] {
    try {
      work();
    } catch (const std::bad_alloc&) {
      memory_was_short = true;
    }
  };
  std::vector<std::thread> others;
  try {
    others.reserve(threads);
    while (others.size() + 1 < threads) others.emplace_back(one);
  } catch (const std::exception&) {
    // Fewer threads than asked for are enough.
  }
  one();
  for (std::thread& thread : others) thread.join();
  if (memory_was_short) throw std::bad_alloc();
}

// Calls `work(i)` for every i below `count`, begun in this order, by at most `threads` at once.
template <typename Work>
void run_over(unsigned threads, size_t count, const Work& work) {
  std::atomic<size_t> next{0};
  run_together(static_cast<unsigned>(std::min<size_t>(threads, count)), [&] {
    for (size_t i; (i = next++) < count;) work(i);
  });
}

}  // namespace gpuckpt::store
