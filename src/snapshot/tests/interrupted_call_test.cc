// Fear: a signal of the program comes while our handler runs for something else, its handler runs
// before the interrupted call begins again, and `alarm(1); pause();` waits for ever.
#include "snapshot/park/interrupted_call.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/syscall.h"
#include "snapshot/calls/app_signals.h"
#include "snapshot/control/state.h"

namespace gpuckpt {
Library library{};
bool is_listened(int) { return false; }
bool is_for_program(int, const siginfo_t*) { return true; }
}  // namespace gpuckpt

using namespace gpuckpt;

namespace {

constexpr int kOurs = SIGUSR1, kProgram = SIGUSR2;
int ours, of_program, sent_in_ours;

void our_handler(int, siginfo_t* info, void* context) {
  ++ours;
  for (int i = 0; i < sent_in_ours; ++i) kill(getpid(), kProgram);
  continue_call(static_cast<ucontext_t*>(context), info);
}

// Our signal comes 20 ms after the call's beginning. `program_flags`: of the program's handler.
void prepare(int sent, int program_flags) {
  library.pid = getpid();
  ours = of_program = 0;
  sent_in_ours = sent;
  struct sigaction a = {};
  a.sa_sigaction = our_handler;
  a.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&a.sa_mask);
  sigaction(kOurs, &a, nullptr);
  a = {};
  a.sa_handler = [](int) { ++of_program; };
  a.sa_flags = program_flags;
  sigaction(kProgram, &a, nullptr);
  static timer_t timer = [] {
    timer_t made;
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL, event.sigev_signo = kOurs;
    REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &made) == 0);
    return made;
  }();
  itimerspec soon{};
  soon.it_value.tv_nsec = 20000000;
  REQUIRE(timer_settime(timer, 0, &soon, nullptr) == 0);
}

int pipe_with(char byte, int after_ms) {
  static int ends[2];
  static int wait_ms;
  REQUIRE(pipe(ends) == 0);
  wait_ms = after_ms;
  static char value;
  value = byte;
  pthread_t t;
  auto write_later = [](void*) -> void* {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    poll(nullptr, 0, wait_ms);
    (void)!write(ends[1], &value, 1);
    return nullptr;
  };
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  REQUIRE(pthread_create(&t, nullptr, write_later, nullptr) == 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_detach(t);
  return ends[0];
}

}  // namespace

TEST_CASE("a call that no handler restarts ends by a signal that came in our handler") {
  prepare(1, 0);
  CHECK(poll(nullptr, 0, 3000) == -1);
  CHECK(errno == EINTR);
  CHECK((ours == 1 && of_program == 1));
  prepare(1, SA_RESTART);
  CHECK(poll(nullptr, 0, 3000) == -1);
  CHECK((ours == 1 && of_program == 1));
}

TEST_CASE("it goes on where none came, and where the program has blocked it") {
  prepare(0, 0);
  CHECK(poll(nullptr, 0, 100) == 0);
  CHECK((ours == 1 && of_program == 0));
  sigset_t one;
  sigemptyset(&one), sigaddset(&one, kProgram);
  pthread_sigmask(SIG_BLOCK, &one, nullptr);
  prepare(1, 0);
  CHECK(poll(nullptr, 0, 100) == 0);
  CHECK((ours == 1 && of_program == 0));
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  CHECK(of_program == 1);
}

TEST_CASE("a read ends by a handler without SA_RESTART, and by no other") {
  char byte = 0;
  prepare(1, 0);
  CHECK(read(pipe_with('a', 1000), &byte, 1) == -1);
  CHECK(errno == EINTR);
  CHECK((ours == 1 && of_program == 1));
  prepare(1, SA_RESTART);
  CHECK(read(pipe_with('b', 200), &byte, 1) == 1);
  CHECK((byte == 'b' && ours == 1 && of_program == 1));
}
