// The threads that hash, compress and store what is in the rings.
//
// While a snapshot is written the program runs, and may have a better use for the processors. With
// GPUCKPT_WRITER_NICE the work begins at that low priority (nice), so that a program that leaves a
// processor free is not slowed. Where that gets less than half a processor for two seconds there is
// none to spare, and threads of the usual priority take over, or a snapshot would take ten times as
// long, and the program would write faster than its memory is read. (A thread that has lowered its
// priority may not raise it again: hence two sets.)
//
// Owner: the writer. Threads: add(), failure(), wait() and stop() from one. Errors: the first one
// of any piece of work; the rest of the work is told to be skipped then.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "store/status.h"

namespace gpuckpt::writer {

class Workers {
 public:
  // `skip`: another piece has failed; only what the piece holds is to be given back.
  using Piece = std::function<store::Status(bool skip)>;

  ~Workers() { stop(); }
  // As many as `memory` bytes and the limits of this process allow: one will do. `hurried`: at the
  // usual priority from the beginning.
  store::Status start(uint64_t memory, bool hurried);
  void add(Piece);
  store::Status failure();
  store::Status wait();  // until all is done, or something has failed
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  bool start_threads(unsigned count, int nice);
  void work(int nice);
  void note_pace(std::chrono::nanoseconds processor_time);
  void hurry();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  unsigned busy_ = 0;
  bool stop_ = false, hurried_ = false;
  store::Status failure_;
  std::vector<std::thread> threads_;
  // Since there has been something to do without a break, at most kLook ago.
  Clock::time_point busy_since_;
  std::chrono::nanoseconds used_{0};
};

}  // namespace gpuckpt::writer
