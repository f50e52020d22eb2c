// Fears: the writer takes the processors from a program that wants them; it gets none and never
// ends; a piece of work is lost, or done when another has failed.
#include "workers.h"

#include <stdlib.h>
#include <sys/resource.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "tests/catch.h"

using gpuckpt::store::Status;
using gpuckpt::writer::Workers;

namespace {

constexpr uint64_t kMuchMemory = 1ull << 40;

int priority_of_thread() { return getpriority(PRIO_PROCESS, 0); }

// Pieces that wait and use no processor, as if other programs had all of them.
std::vector<int> priorities_of_starved_pieces(bool hurried, int count) {
  Workers workers;
  std::mutex mutex;
  std::vector<int> seen;
  REQUIRE(workers.start(kMuchMemory, hurried).ok());
  for (int i = 0; i < count; ++i)
    workers.add([&](bool) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::lock_guard guard(mutex);
      seen.push_back(priority_of_thread());
      return Status::Ok();
    });
  REQUIRE(workers.wait().ok());
  workers.stop();
  return seen;
}

}  // namespace

TEST_CASE("without a wish the work is done at the usual priority") {
  setenv("GPUCKPT_WRITER_THREADS", "2", 1);
  unsetenv("GPUCKPT_WRITER_NICE");
  for (int seen : priorities_of_starved_pieces(false, 8)) CHECK(seen == priority_of_thread());
}

TEST_CASE("work begins at a low priority, and a starved writer goes on at the usual one") {
  setenv("GPUCKPT_WRITER_THREADS", "2", 1);
  setenv("GPUCKPT_WRITER_NICE", "10", 1);
  const int usual = priority_of_thread();
  const std::vector<int> seen = priorities_of_starved_pieces(false, 160);
  REQUIRE(seen.size() == 160);
  CHECK(seen.front() > usual);
  CHECK(seen.back() == usual);
}

TEST_CASE("work for a program that waits is done at the usual priority") {
  setenv("GPUCKPT_WRITER_THREADS", "2", 1);
  setenv("GPUCKPT_WRITER_NICE", "10", 1);
  for (int seen : priorities_of_starved_pieces(true, 8)) CHECK(seen == priority_of_thread());
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
