// What a sleeping thread was seen to be may be taken for what it is only as long as it has not run.
#include "snapshot/park/seen_threads.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/text/text.h"
#include "tests/catch.h"

namespace gpuckpt {

// Stands for that of the library, which needs all of it.
ThreadStatus parse_status(const char* text, const char*) {
  ThreadStatus status{};
  const char* uid = status_field(text, "Uid:");
  status.known = true;
  status.uid[0] = static_cast<uint32_t>(scan_dec(&uid));
  return status;
}

namespace {

// Waits for a byte each time, in one and the same call.
struct Sleeper {
  int ends[2] = {-1, -1};
  std::atomic<int> tid{0}, turns{0};
  std::atomic<bool> spin{false};
  pthread_t thread{};

  Sleeper() {
    REQUIRE(pipe(ends) == 0);
    REQUIRE(pthread_create(&thread, nullptr, run, this) == 0);
    while (!tid) usleep(1000);
    fall_asleep();
  }
  ~Sleeper() {
    spin = false;
    close(ends[1]);
    pthread_join(thread, nullptr);
    close(ends[0]);
  }
  static void* run(void* argument) {
    Sleeper* s = static_cast<Sleeper*>(argument);
    s->tid = static_cast<int>(syscall(SYS_gettid));
    for (char byte; read(s->ends[0], &byte, 1) == 1;) {
      ++s->turns;
      while (s->spin) continue;
    }
    return nullptr;
  }
  void wake() {
    const int before = turns;
    REQUIRE(write(ends[1], "x", 1) == 1);
    while (turns == before) usleep(100);
  }
  void fall_asleep() {
    ProcFolder tasks{"/proc/self/task"};
    for (SyscallState now{}; !read_syscall(&tasks, tid, &now) || now.nr != SYS_read;) usleep(1000);
    usleep(20000);
  }
};

TEST_CASE("a thread that sleeps is known") {
  Sleeper sleeper;
  SeenThreads seen;
  const int own[1] = {static_cast<int>(syscall(SYS_gettid))};
  seen.look(own, 1);
  const SeenThread* t = seen.of(sleeper.tid);
  REQUIRE(t);
  CHECK(t->call.nr == SYS_read);
  CHECK(t->call.argument[0] == static_cast<uint64_t>(sleeper.ends[0]));
  CHECK(t->status.known);
  CHECK(t->status.uid[0] == getuid());
  CHECK_FALSE(seen.of(own[0]));
  seen.forget();
  CHECK_FALSE(seen.of(sleeper.tid));
}

TEST_CASE("a thread that has run since is not known, although it sleeps in the same call again") {
  Sleeper sleeper;
  SeenThreads seen;
  const int own[1] = {static_cast<int>(syscall(SYS_gettid))};
  seen.look(own, 1);
  REQUIRE(seen.of(sleeper.tid));
  sleeper.wake();
  sleeper.fall_asleep();
  CHECK_FALSE(seen.of(sleeper.tid));
  seen.forget();
}

TEST_CASE("a thread that runs is not known") {
  Sleeper sleeper;
  SeenThreads seen;
  const int own[1] = {static_cast<int>(syscall(SYS_gettid))};
  sleeper.spin = true;
  sleeper.wake();
  seen.look(own, 1);
  CHECK_FALSE(seen.of(sleeper.tid));
  seen.forget();
}

}  // namespace
}  // namespace gpuckpt
