// Fear: a child is forked between the making of a descriptor and the note of it, and keeps it. The
// forks of several threads and the pauses of one never overlap, and both come to their turn.
#include "snapshot/calls/fork_pause.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace gpuckpt;

namespace {

std::atomic<int> forking, pausing;
std::atomic<bool> stop;
std::atomic<unsigned> forks;

void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

void fork_again_and_again(unsigned rest_us) {
  while (!stop) {
    fork_begins();
    ++forking;
    if (pausing) fail("a fork in the middle of a pause");
    ++forks;
    --forking;
    fork_ends();
    if (rest_us) usleep(rest_us);
  }
}

double seconds_of_a_pause() {
  const auto begin = std::chrono::steady_clock::now();
  ForkPause pause;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main() {
  std::vector<std::thread> threads;
  for (unsigned rest : {20u, 50u, 100u}) threads.emplace_back(fork_again_and_again, rest);
  unsigned last = 0;
  for (int i = 0; i < 500; ++i) {
    {
      ForkPause pause;
      ++pausing;
      if (forking) fail("a pause in the middle of a fork");
      usleep(20);
      if (forking) fail("a fork began in the middle of a pause");
      --pausing;
    }
    usleep(100);
    if (i == 250) last = forks;
  }
  if (forks == last) fail("no thread forks any more");
  stop = true;
  for (std::thread& t : threads) t.join();

  // One that takes too long is not waited for, and finds its way out afterwards.
  fork_begins();
  const double waited = seconds_of_a_pause();
  if (waited < 0.9 || waited > 10) fail("a fork that does not end");
  fork_ends();
  if (seconds_of_a_pause() > 0.5) fail("a fork that has ended");
  fork_begins();
  fork_pause_after_fork();  // as its child
  if (seconds_of_a_pause() > 0.5) fail("a child that thinks that it forks");
  printf("ok, %u forks\n", forks.load());
}
