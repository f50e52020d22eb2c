// The program that bench/host/slowdown.py measures: MIB of memory in 4 KiB pages, and THREADS that
// compute and write RATE MiB of random pages a second among them.
//
//   work MIB THREADS RATE      says "ready", then for each line of stdin how many pieces of work
//                              have been done, by all threads
//
// Plain C++ and libc: it knows nothing of gpuckpt.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

constexpr size_t kPage = 4096;

struct alignas(64) Counter {
  std::atomic<uint64_t> pieces{0};
};

uint64_t next(uint64_t* state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return *state;
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// A piece takes some 4 us. Pages are written when it is time, as many as are due.
void work(uint8_t* memory, size_t pages, uint64_t seed, double pages_per_second, Counter* counter) {
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1, written = 0;
  const double begin = now();
  for (;;) {
    for (int i = 0; i < 2000; ++i) next(&state);
    const uint64_t done = ++counter->pieces;
    if (done % 16) continue;
    const auto due = static_cast<uint64_t>((now() - begin) * pages_per_second);
    for (; written < due; ++written) ++memory[next(&state) % pages * kPage];
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const size_t pages = static_cast<size_t>(atol(argv[1])) << 20 >> 12;
  const auto threads = static_cast<unsigned>(atoi(argv[2]));
  void* got =
      mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED || !threads) return 1;
  madvise(got, pages * kPage, MADV_NOHUGEPAGE);
  uint64_t state = 1;
  auto* words = static_cast<uint64_t*>(got);
  for (size_t i = 0; i < pages * kPage / 8; ++i) words[i] = next(&state) & (i % 2 ? ~0ull : 0xffff);
  std::vector<Counter> counters(threads);
  for (unsigned i = 0; i < threads; ++i)
    std::thread(work, static_cast<uint8_t*>(got), pages, i + 1, atof(argv[3]) * 256 / threads,
                &counters[i])
        .detach();
  puts("ready");
  fflush(stdout);
  for (char line[16]; fgets(line, sizeof(line), stdin);) {
    uint64_t all = 0;
    for (const Counter& c : counters) all += c.pieces;
    printf("%lu\n", static_cast<unsigned long>(all));
    fflush(stdout);
  }
  _exit(0);
}
