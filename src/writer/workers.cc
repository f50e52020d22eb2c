#include "workers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

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
constexpr std::chrono::seconds kLook{2};

// Desktops weigh sessions against each other (sched_autogroup_enabled), and the writer has one of
// its own. Unlike a thread's priority this one may be raised again.
void set_session_priority(int nice) {
  if (FILE* file = fopen("/proc/self/autogroup", "we")) {
    fprintf(file, "%d", nice);
    fclose(file);
  }
}

std::chrono::nanoseconds processor_time_of_thread() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// Of nice(2): 0 is the usual priority, 10 a tenth of its weight, 19 the lowest.
int wanted_nice() {
  const char* text = getenv("GPUCKPT_WRITER_NICE");
  return text ? std::clamp(atoi(text), 0, 19) : 0;
}

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
    const auto before = processor_time_of_thread();
    Status status = piece(skip);
    piece = nullptr;
    const auto used = processor_time_of_thread() - before;
    lock.lock();
    --busy_;
    if (!status.ok() && failure_.ok()) failure_ = status;
    note_pace(used);
    changed_.notify_all();
  }
}

void Workers::note_pace(std::chrono::nanoseconds processor_time) {
  used_ += processor_time;
  const auto passed = Clock::now() - busy_since_;
  if (hurried_ || queue_.empty() || passed < kLook) return;
  if (used_ < passed / 2) hurry();
  busy_since_ = Clock::now();
  used_ = {};
}

void Workers::hurry() {
  set_session_priority(0);
  hurried_ = true;
  changed_.notify_all();
}

void Workers::add(Piece piece) {
  std::lock_guard guard(mutex_);
  if (queue_.empty()) {
    busy_since_ = Clock::now();
    used_ = {};
  }
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
