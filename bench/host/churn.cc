// The process that bench/host/run.py snapshots: N GiB of half compressible memory in 4 KiB pages,
// threads that dirty a share of it each second, and one that spins on the clock and remembers the
// longest time it could not.
//
//   churn GIB THREADS PERCENT      then commands on stdin, one answer each on stdout:
//     reset        forget the longest gap               gap          longest gap since, us, and the
//                                                                    longest for which the thread
//                                                                    was not just out of turn
//     map          the longest time in which memory was mapped and unmapped since, us, without
//                                                                    that time
//     fork         a bare fork(2) of this process, us   cpu MS       CPU time of the dirtying
//     threads
//                                                                    in the next MS ms, us, and
//                                                                    pages
//     dump FILE    all memory with write(2), us         sum          a digest of all memory
//     rate PERCENT of the pages dirtied per second from now on       (threads held)
//     share MIB    has so much shared memory, too; a copy of it into memory that is there, us
//   churn read FILE THREADS PAGES  reads FILE into fresh memory with so many threads, us; PAGES:
//                                  small (4 KiB) or huge
//
// Plain C++ and libc: it knows nothing of gpuckpt.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

constexpr size_t kPage = 4096;

uint64_t now_us(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000 + static_cast<uint64_t>(t.tv_nsec) / 1000;
}

uint64_t next(uint64_t* state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return *state;
}

uint8_t* memory;
size_t pages;
std::atomic<uint64_t> longest{0}, longest_held{0}, longest_map{0}, dirtied{0};
std::atomic<uint64_t> cpu_us[64];
std::atomic<bool> hold{false};
std::atomic<int> held{0};

// Microseconds that this thread has been ready and had no processor.
uint64_t queued_us() {
  static thread_local const int fd = open("/proc/thread-self/schedstat", O_RDONLY);
  char text[128] = "";
  unsigned long long ran, queued = 0;
  if (fd >= 0 && pread(fd, text, sizeof(text) - 1, 0) > 0) sscanf(text, "%llu %llu", &ran, &queued);
  return queued / 1000;
}

void* spin(void*) {
  constexpr uint64_t kWorthALook = 300;
  uint64_t queued = queued_us();
  for (uint64_t last = now_us();;) {
    uint64_t t = now_us();
    if (t - last > kWorthALook) {
      const uint64_t before = queued;
      queued = queued_us();
      const uint64_t gap = t - last, waited = queued - before < gap ? queued - before : gap;
      if (gap > longest) longest = gap;
      if (gap - waited > longest_held) longest_held = gap - waited;
    }
    last = t;
  }
}

// A change of the process's mappings waits for any process that reads them.
void* map(void*) {
  for (;; usleep(500)) {
    const uint64_t queued = queued_us(), t = now_us();
    void* p = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p, kPage);
    const uint64_t took = now_us() - t;
    if (took <= longest_map) continue;
    const uint64_t waited = queued_us() - queued;
    if (took > waited && took - waited > longest_map) longest_map = took - waited;
  }
}

std::atomic<double> per_second{0};  // pages, each thread

struct Work {
  int index;
};
void* dirty(void* argument) {
  Work w = *static_cast<Work*>(argument);
  uint64_t state = 88172645463325252ull + static_cast<uint64_t>(w.index) * 7919;
  double owed = 0;
  for (uint64_t last = now_us();;) {
    if (hold) {
      ++held;
      while (hold) usleep(100);
      --held;
    }
    usleep(10000);
    uint64_t t = now_us();
    owed += per_second * static_cast<double>(t - last) / 1e6;
    last = t;
    for (; owed >= 1; owed -= 1) {
      *reinterpret_cast<uint64_t*>(memory + next(&state) % pages * kPage + 64) += state;
      ++dirtied;
    }
    cpu_us[w.index] = now_us(CLOCK_THREAD_CPUTIME_ID);
  }
}

// Half of the bytes are random.
void fill(uint8_t* at, size_t bytes) {
  uint64_t state = 42;
  for (size_t i = 0; i < bytes / 8; ++i)
    reinterpret_cast<uint64_t*>(at)[i] = next(&state) & 0xffffffffull;
}

// The second copy is timed: the first one makes the pages.
uint64_t share(size_t bytes) {
  void* shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  void* copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || copy == MAP_FAILED) _exit(1);
  fill(static_cast<uint8_t*>(shared), bytes);
  memcpy(copy, shared, bytes);
  uint64_t t0 = now_us();
  memcpy(copy, shared, bytes);
  const uint64_t us = now_us() - t0;
  munmap(copy, bytes);
  return us;
}

uint64_t total_cpu(int threads) {
  uint64_t sum = 0;
  for (int i = 0; i < threads; ++i) sum += cpu_us[i];
  return sum;
}

uint64_t digest() {
  uint64_t sum = 0;
  for (size_t i = 0; i < pages * kPage / 8; ++i)
    sum = (sum ^ reinterpret_cast<uint64_t*>(memory)[i]) * 0x9E3779B97F4A7C15ull;
  return sum;
}

int read_file(const char* path, int threads, bool huge) {
  int fd = open(path, O_RDONLY);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) return 1;
  size_t bytes = static_cast<size_t>(st.st_size), part = bytes / static_cast<size_t>(threads);
  uint64_t t0 = now_us();
  auto* to = static_cast<char*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  madvise(to, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i)
    pool.emplace_back([=] {
      size_t at = part * static_cast<size_t>(i), end = i + 1 == threads ? bytes : at + part;
      while (at < end) {
        ssize_t n =
            pread(fd, to + at, end - at < 4 << 20 ? end - at : 4 << 20, static_cast<off_t>(at));
        if (n <= 0) _exit(1);
        at += static_cast<size_t>(n);
      }
    });
  for (std::thread& t : pool) t.join();
  printf("%llu\n", static_cast<unsigned long long>(now_us() - t0));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && strcmp(argv[1], "read") == 0)
    return read_file(argv[2], atoi(argv[3]), !strcmp(argv[4], "huge"));
  if (argc != 4) return 2;
  pages = static_cast<size_t>(atof(argv[1]) * (1ull << 30) / kPage);
  int threads = atoi(argv[2]);
  auto set_rate = [&](double percent) {
    per_second = static_cast<double>(pages) * percent / 100 / threads;
  };
  set_rate(atof(argv[3]));
  memory = static_cast<uint8_t*>(
      mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  madvise(memory, pages * kPage, MADV_NOHUGEPAGE);
  fill(memory, pages * kPage);
  pthread_t t;
  static Work work[64];
  for (int i = 0; i < threads && i < 64; ++i) {
    work[i] = {i};
    pthread_create(&t, nullptr, dirty, &work[i]);
  }
  pthread_create(&t, nullptr, spin, nullptr);
  pthread_create(&t, nullptr, map, nullptr);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  printf("ready\n");
  char line[4096];
  while (fgets(line, sizeof(line), stdin)) {
    line[strcspn(line, "\n")] = 0;
    unsigned long long answer = 0, more = 0;
    if (!strcmp(line, "reset")) {
      longest = longest_held = longest_map = 0;
    } else if (!strcmp(line, "gap")) {
      answer = longest;
      more = longest_held;
    } else if (!strcmp(line, "map")) {
      answer = longest_map;
    } else if (!strncmp(line, "rate ", 5)) {
      set_rate(atof(line + 5));
    } else if (!strncmp(line, "share ", 6)) {
      answer = share(static_cast<size_t>(atoi(line + 6)) << 20);
    } else if (!strcmp(line, "fork")) {
      uint64_t t0 = now_us();
      pid_t pid = fork();
      if (pid == 0) _exit(0);
      answer = now_us() - t0;
      waitpid(pid, nullptr, 0);
    } else if (!strncmp(line, "cpu ", 4)) {
      uint64_t before = total_cpu(threads), d = dirtied;
      usleep(static_cast<useconds_t>(atoi(line + 4)) * 1000);
      answer = total_cpu(threads) - before;
      more = dirtied - d;
    } else if (!strncmp(line, "dump ", 5)) {
      int fd = open(line + 5, O_CREAT | O_TRUNC | O_WRONLY, 0600);
      uint64_t t0 = now_us();
      for (size_t at = 0; at < pages * kPage;) {
        size_t n = pages * kPage - at < 8 << 20 ? pages * kPage - at : 8 << 20;
        ssize_t w = write(fd, memory + at, n);
        if (w <= 0) break;
        at += static_cast<size_t>(w);
      }
      fdatasync(fd);
      answer = now_us() - t0;
      close(fd);
    } else if (!strcmp(line, "sum")) {
      hold = true;
      while (held < threads) usleep(1000);
      answer = digest();
      hold = false;
      while (held > 0) usleep(100);
    } else if (!strcmp(line, "quit")) {
      _exit(0);
    }
    printf("%llu %llu\n", answer, more);
  }
}
