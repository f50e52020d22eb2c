// Fears: the writer takes the processors from a program that wants them; it gets none and never
// ends; a piece of work is lost, or done when another has failed.
#include "workers.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/catch.h"

using gpuckpt::store::Status;
using gpuckpt::writer::Workers;

namespace {

constexpr uint64_t kMuchMemory = 1ull << 40;

int priority_of_thread() { return getpriority(PRIO_PROCESS, 0); }

// Threads of other programs that want the one processor that this one may use.
class Crowd {
 public:
  explicit Crowd(int count) {
    CPU_ZERO(&before_);
    REQUIRE(sched_getaffinity(0, sizeof(before_), &before_) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        while (!stop_) ++spun_;
      });
  }
  ~Crowd() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    sched_setaffinity(0, sizeof(before_), &before_);
  }

 private:
  cpu_set_t before_;
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> spun_{0};
  std::vector<std::thread> threads_;
};

void compute_for(std::chrono::milliseconds time) {
  const auto own = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  for (const auto end = own() + time; own() < end;) continue;
}

// The priorities at which pieces of work are done.
template <typename Work>
std::vector<int> priorities_of_pieces(bool hurried, int count, Work work) {
  Workers workers;
  std::mutex mutex;
  std::vector<int> seen;
  REQUIRE(workers.start(kMuchMemory, hurried).ok());
  for (int i = 0; i < count; ++i)
    workers.add([&](bool) {
      work();
      std::lock_guard guard(mutex);
      seen.push_back(priority_of_thread());
      return Status::Ok();
    });
  REQUIRE(workers.wait().ok());
  workers.stop();
  REQUIRE(seen.size() == static_cast<size_t>(count));
  return seen;
}

void compute() { compute_for(std::chrono::milliseconds(5)); }

}  // namespace

TEST_CASE("with GPUCKPT_WRITER_NICE=0 the work is done at the usual priority") {
  setenv("GPUCKPT_WRITER_THREADS", "2", 1);
  setenv("GPUCKPT_WRITER_NICE", "0", 1);
  for (int seen : priorities_of_pieces(false, 8, compute)) CHECK(seen == priority_of_thread());
}

TEST_CASE("work begins at a low priority, and a starved writer goes on at the usual one") {
  setenv("GPUCKPT_WRITER_THREADS", "2", 1);
  unsetenv("GPUCKPT_WRITER_NICE");
  const int usual = priority_of_thread();
  const Crowd crowd(2);
  const std::vector<int> seen = priorities_of_pieces(false, 60, compute);
  CHECK(seen.front() > usual);
  // Not the last one: it may have been begun at the low priority, and wait until all others end.
  CHECK(std::count(seen.begin(), seen.end(), usual) > 30);
}

TEST_CASE("a writer that waits for its disk is not starved") {
  setenv("GPUCKPT_WRITER_THREADS", "2", 1);
  unsetenv("GPUCKPT_WRITER_NICE");
  using namespace std::chrono_literals;
  const int usual = priority_of_thread();
  // On a busy machine it waits for a processor, too, and may take it: that says nothing.
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::atomic<int64_t> late_ns{0};
    const std::vector<int> seen = priorities_of_pieces(false, 160, [&] {
      const auto begin = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(20ms);
      const std::chrono::nanoseconds late = std::chrono::steady_clock::now() - begin - 20ms;
      late_ns += late.count();
    });
    if (late_ns > std::chrono::nanoseconds(250ms).count()) continue;
    for (int priority : seen) CHECK(priority > usual);
    return;
  }
  WARN("not checked: other work kept the machine busy all the time");
}

TEST_CASE("work for a program that waits is done at the usual priority") {
  setenv("GPUCKPT_WRITER_THREADS", "2", 1);
  unsetenv("GPUCKPT_WRITER_NICE");
  for (int seen : priorities_of_pieces(true, 8, compute)) CHECK(seen == priority_of_thread());
}

TEST_CASE("all pieces are done, and those behind a failure are only given back") {
  setenv("GPUCKPT_WRITER_THREADS", "3", 1);
  for (const bool hurried : {false, true}) {
    Workers workers;
    std::atomic<int> done{0}, skipped{0};
    REQUIRE(workers.start(kMuchMemory, hurried).ok());
    const auto piece = [&](bool skip) {
      ++(skip ? skipped : done);
      return Status::Ok();
    };
    for (int i = 0; i < 1000; ++i) workers.add(piece);
    REQUIRE(workers.wait().ok());
    CHECK(done == 1000);
    workers.add([](bool) { return Status::Error("the disk is full"); });
    while (workers.failure().ok()) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) workers.add(piece);
    while (skipped < 100) std::this_thread::yield();
    CHECK(done == 1000);
    CHECK(workers.wait().text() == "the disk is full");
  }
}

TEST_CASE("a writer that stops gives no piece away that it has not begun") {
  setenv("GPUCKPT_WRITER_THREADS", "1", 1);
  std::atomic<int> begun{0};
  Workers workers;
  REQUIRE(workers.start(kMuchMemory, false).ok());
  for (int i = 0; i < 100; ++i)
    workers.add([&](bool) {
      ++begun;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return Status::Ok();
    });
  workers.stop();
  CHECK(begun <= 2);
}
