// The threads that hash, compress and store what is in the rings.
//
// While a snapshot is written the program runs, and has a better use for the processors. The work
// begins at the lowest priority (nice 19, or GPUCKPT_WRITER_NICE), so that a program that leaves a
// processor free is not slowed. Where the threads wait for a processor more than three times as
// long as they have one, there is none to spare, and threads of the usual priority take over, or a
// snapshot would take ten times as long, and the program would write faster than its memory is
// read. (A thread that has lowered its priority may not raise it again: hence two sets.)
//
// Owner: the writer. Threads: add(), failure(), wait() and stop() from one. Errors: the first one
// of any piece of work; the rest of the work is told to be skipped then.
#pragma once

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
  // Of the processors.
  struct Pace {
    int64_t used_ns = 0, waited_ns = 0;
  };

  ~Workers() { stop(); }
  // As many as `memory` bytes and the limits of this process allow: one will do. `hurried`: at the
  // usual priority from the beginning.
  store::Status start(uint64_t memory, bool hurried);
  void add(Piece);
  store::Status failure();
  store::Status wait();  // until all is done, or something has failed
  void stop();

 private:
  bool start_threads(unsigned count, int nice);
  void work(int nice);
  void note(const Pace&);
  void hurry();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  unsigned busy_ = 0;
  bool stop_ = false, hurried_ = false;
  store::Status failure_;
  std::vector<std::thread> threads_;
  Pace pace_;  // of the threads in the background, since it was looked at
};

}  // namespace gpuckpt::writer
