// Work that is shared is done once, all of it, by threads that are gone afterwards; and by the
// caller alone where no other thread can be started.
#include "snapshot/park/shared_work.h"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace gpuckpt;

void check(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "%s is not so\n", what);
  exit(1);
}

int threads() {
  int out = 0;
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) out += entry->d_name[0] != '.';
  closedir(folder);
  return out;
}

// How many threads took part.
uint32_t work(uint32_t count, uint32_t size, bool wait_for_two) {
  std::vector<std::atomic<uint32_t>> done(count);
  std::atomic<int> first{0}, other{0};
  share_work(count, size, [&](uint32_t begin, uint32_t end) {
    check(begin < end && end <= count && end - begin <= size, "a piece is as large as was asked");
    for (uint32_t i = begin; i < end; ++i) ++done[i];
    int none = 0;
    const int self = gettid();
    if (!first.compare_exchange_strong(none, self) && first != self) other = self;
    for (int tries = 0; wait_for_two && !other && tries < 5000; ++tries) usleep(1000);
  });
  for (uint32_t i = 0; i < count; ++i) check(done[i] == 1, "everything is done once");
  return (first ? 1u : 0u) + (other ? 1u : 0u);
}

// (A thread is in /proc for a moment after it has ended.)
bool alone_again() {
  for (int tries = 0; tries < 2000; ++tries, usleep(1000))
    if (threads() == 1) return true;
  return false;
}

}  // namespace

int main() {
  for (const auto& [count, size] : {std::pair{0u, 8u}, {1u, 8u}, {8u, 8u}, {9u, 8u}, {5000u, 3u}})
    work(count, size, false);
  check(alone_again(), "threads are gone");
  cpu_set_t set;
  sched_getaffinity(0, sizeof(set), &set);
  if (CPU_COUNT(&set) > 1) check(work(64, 1, true) == 2, "other threads take part");
  check(alone_again(), "threads are gone");
  if (getuid() == 0) check(setuid(65534) == 0, "this is an ordinary user");
  const rlimit none{1, 1};
  setrlimit(RLIMIT_NPROC, &none);
  check(work(100, 1, false) == 1, "this thread does all of it where there is no other");
  puts("done");
}
