#include "workers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace gpuckpt::writer {

using store::Status;

namespace {

// The memory that a worker usually takes for compression.
constexpr uint64_t kWorkerMemory = 32ull << 20;
constexpr int kBackgroundNice = 19;
// Starved threads wait for a processor this many times as long as they have one, and they are
// looked at when they have wanted one for so long.
constexpr int64_t kStarvedWait = 3;
constexpr int64_t kLookNs = 500'000'000;

bool sessions_are_weighed() {
  FILE* file = fopen("/proc/sys/kernel/sched_autogroup_enabled", "re");
  const bool is = file && fgetc(file) == '1';
  if (file) fclose(file);
  return is;
}

// Desktops weigh sessions against each other (sched_autogroup_enabled), and the writer has one of
// its own. Unlike a thread's priority this one may be raised again. It is not tried twice: the
// kernel allows ordinary users ten changes a second, all together.
void set_session_priority(int nice) {
  if (!sessions_are_weighed()) return;
  if (FILE* file = fopen("/proc/self/autogroup", "we")) {
    fprintf(file, "%d", nice);
    fclose(file);
  }
}

int64_t nanoseconds_of_thread(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// Of nice(2): 0 is the usual priority, 10 a tenth of its weight, 19 the lowest.
int wanted_nice() {
  const char* text = getenv("GPUCKPT_WRITER_NICE");
  return text ? std::clamp(atoi(text), 0, 19) : kBackgroundNice;
}

// What the calling thread has got of the processors, and how long it has waited for one.
class OwnPace {
 public:
  OwnPace() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) { look(); }
  ~OwnPace() {
    if (file_ >= 0) close(file_);
  }
  OwnPace(const OwnPace&) = delete;
  OwnPace& operator=(const OwnPace&) = delete;

  // Since the last call.
  Workers::Pace pace() {
    const Workers::Pace before = total_;
    look();
    return {total_.used_ns - before.used_ns, total_.waited_ns - before.waited_ns};
  }

 private:
  void look() {
    total_.used_ns = nanoseconds_of_thread(CLOCK_THREAD_CPUTIME_ID);
    char text[96];
    const ssize_t n = file_ >= 0 ? pread(file_, text, sizeof(text) - 1, 0) : -1;
    if (n > 0) {  // "USED WAITED TIMES"
      text[n] = 0;
      char* waited = strchr(text, ' ');
      total_.waited_ns = waited ? strtoll(waited, nullptr, 10) : 0;
    } else {  // (a kernel without CONFIG_SCHED_INFO; waiting for the disk is the same then)
      total_.waited_ns = nanoseconds_of_thread(CLOCK_MONOTONIC) - total_.used_ns;
    }
  }

  int file_;
  Workers::Pace total_;
};

unsigned count_for(uint64_t memory) {
  if (const char* text = getenv("GPUCKPT_WRITER_THREADS"))
    return static_cast<unsigned>(std::clamp(atoi(text), 1, 64));
  const unsigned n = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  return static_cast<unsigned>(std::clamp<uint64_t>(memory / kWorkerMemory, 1, n));
}

}  // namespace

Status Workers::start(uint64_t memory, bool hurried) {
  const unsigned count = count_for(memory);
  const int nice = hurried ? 0 : wanted_nice();
  const bool all = start_threads(count, 0);
  if (threads_.empty())
    return Status::Error(
        fmt::format("the writer cannot start a thread ({}): the control group has as many "
                    "processes as it may (pids.max), or the user (RLIMIT_NPROC, `ulimit -u`)",
                    strerror(EAGAIN)));
  const bool background = nice && all && start_threads(count, nice);
  if (background) set_session_priority(nice);
  std::lock_guard guard(mutex_);
  hurried_ = !background;
  changed_.notify_all();
  return Status::Ok();
}

bool Workers::start_threads(unsigned count, int nice) {
  try {
    for (unsigned i = 0; i < count; ++i) threads_.emplace_back([=, this] { work(nice); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

// A worker: until there is nothing more to do, or, in the background, until others take over.
void Workers::work(int nice) {
  const bool background = nice > 0;
  if (background) setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + nice);
  OwnPace own;
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [&] {
      return stop_ || (background ? hurried_ || !queue_.empty() : hurried_ && !queue_.empty());
    });
    if (queue_.empty() || (background && hurried_)) return;
    Piece piece = std::move(queue_.front());
    queue_.pop_front();
    ++busy_;
    const bool skip = !failure_.ok();
    lock.unlock();
    own.pace();
    Status status = piece(skip);
    piece = nullptr;
    const Pace pace = own.pace();
    lock.lock();
    --busy_;
    if (!status.ok() && failure_.ok()) failure_ = status;
    if (background) note(pace);
    changed_.notify_all();
  }
}

void Workers::note(const Pace& pace) {
  pace_.used_ns += pace.used_ns;
  pace_.waited_ns += pace.waited_ns;
  if (hurried_ || pace_.used_ns + pace_.waited_ns < kLookNs) return;
  if (pace_.waited_ns > kStarvedWait * pace_.used_ns) hurry();
  pace_ = {};
}

void Workers::hurry() {
  set_session_priority(0);
  hurried_ = true;
  changed_.notify_all();
}

void Workers::add(Piece piece) {
  std::lock_guard guard(mutex_);
  queue_.push_back(std::move(piece));
  changed_.notify_all();
}

Status Workers::failure() {
  std::lock_guard guard(mutex_);
  return failure_;
}

Status Workers::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return (queue_.empty() && busy_ == 0) || !failure_.ok(); });
  return failure_;
}

void Workers::stop() {
  {
    std::lock_guard guard(mutex_);
    queue_.clear();
    stop_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace gpuckpt::writer
