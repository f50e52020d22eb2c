// A program that does everything to its memory that a tracker of dirty pages could get wrong, at
// random, and always knows what every page must hold.
//
//   wild SEED STEP_FILE [PROCESSES]
//
// Threads own regions. Several processes are forked when there are regions already, so that they
// have pages in common which each then writes by itself. The books (which version each page must
// have) are ordinary memory of the same process, so a snapshot that mixed old pages with new books,
// or the other way round, is found out. STEP_FILE has the number of steps done, as 8 bytes written
// through a shared mapping: a snapshot that is old as a whole is found out by the runner. On
// SIGUSR2 to the first process each thread of all checks all its pages; the exit status is 0 when
// all was well. A page whose version is 0 must be zero.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <vector>

namespace {

constexpr size_t kPage = 4096;
constexpr int kThreads = 3;
constexpr size_t kMaxPages = 4000;  // of one thread

struct Region {
  uint8_t* at;
  size_t pages;
  uint64_t id;
  bool shared, locked_out;        // locked_out: PROT_NONE just now
  bool split;                     // into several mappings, perhaps
  std::vector<uint32_t> version;  // of each page; 0: zero
};

std::atomic<uint64_t> steps{0};
std::atomic<bool>* check_now;  // of all processes
std::atomic<int> checked{0}, wrong{0};
volatile uint64_t* step_file;

uint64_t mix(uint64_t x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 33;
}

// What version `v` of a page looks like. Only some words differ between versions, so that a page
// that was written in parts is noticed too.
void make_page(uint8_t* to, uint64_t id, size_t page, uint32_t v) {
  uint64_t* w = reinterpret_cast<uint64_t*>(to);
  for (size_t i = 0; i < kPage / 8; ++i)
    w[i] = i % 64 == 7 ? mix(id * 1000003 + page * 31 + v * 7 + i) : i % 64 == 8 ? id : w[i];
}

bool page_is(const uint8_t* at, uint64_t id, size_t page, uint32_t v) {
  const uint64_t* w = reinterpret_cast<const uint64_t*>(at);
  for (size_t i = 0; i < kPage / 8; ++i) {
    uint64_t want = !v            ? 0
                    : i % 64 == 7 ? mix(id * 1000003 + page * 31 + v * 7 + i)
                    : i % 64 == 8 ? id
                                  : 0;
    if (w[i] != want) return false;
  }
  return true;
}

struct Walker {
  uint64_t state;
  std::vector<Region> regions;
  size_t total = 0;
  uint64_t next_id;
  int pipe_ends[2];

  Walker(uint64_t seed, uint64_t index) : state(mix(seed * 77 + index) | 1) {
    next_id = 1 + (index << 32);
    if (pipe(pipe_ends) != 0) abort();
  }

  // In a forked process: goes another way from here. What is shared stays the first one's.
  void part(uint64_t seed) {
    state = mix(state + seed) | 1;
    for (int end : pipe_ends) close(end);
    if (pipe(pipe_ends) != 0) abort();
    for (size_t i = regions.size(); i-- > 0;) {
      if (!regions[i].shared) continue;
      munmap(regions[i].at, regions[i].pages * kPage);
      total -= regions[i].pages;
      regions.erase(regions.begin() + static_cast<long>(i));
    }
  }

  uint64_t random(uint64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % n;
  }

  void fail(const char* what, const Region& r, size_t page) {
    fprintf(stderr, "MISMATCH %s: region %llu page %zu at %p version %u step %llu\n", what,
            static_cast<unsigned long long>(r.id), page, static_cast<void*>(r.at + page * kPage),
            r.version[page], static_cast<unsigned long long>(steps.load()));
    ++wrong;
  }

  bool check(const char* what, Region& r, size_t page) {
    if (page_is(r.at + page * kPage, r.id, page, r.version[page])) return true;
    fail(what, r, page);
    return false;
  }

  void check_all() {
    for (Region& r : regions) {
      if (r.locked_out) mprotect(r.at, r.pages * kPage, PROT_READ | PROT_WRITE);
      r.locked_out = false;
      for (size_t i = 0; i < r.pages && wrong < 10; ++i) check("at the end", r, i);
    }
  }

  // Where a whole page table begins: mremap moves that from one such place to another as it is.
  uint8_t* aligned_room(size_t pages) {
    constexpr size_t kTable = 512;
    const size_t bytes = (pages + kTable) * kPage;
    void* got = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return nullptr;
    uint8_t* at = static_cast<uint8_t*>(got);
    const size_t before = -reinterpret_cast<uintptr_t>(at) % (kTable * kPage);
    if (before) munmap(at, before);
    munmap(at + before + pages * kPage, kTable * kPage - before);
    return at + before;
  }

  void add(uint8_t* fixed, size_t pages) {
    Region r{};
    r.pages = pages ? pages : 1 + random(random(4) ? 64 : 600);
    if (!fixed && random(5) == 0) r.pages = 512 + random(88), fixed = aligned_room(r.pages);
    r.shared = !fixed && random(8) == 0;
    int flags = (r.shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | (fixed ? MAP_FIXED : 0) |
                (random(4) ? 0 : MAP_NORESERVE);
    r.at =
        static_cast<uint8_t*>(mmap(fixed, r.pages * kPage, PROT_READ | PROT_WRITE, flags, -1, 0));
    if (r.at == MAP_FAILED) return;
    r.id = next_id++;
    r.version.assign(r.pages, 0);
    total += r.pages;
    regions.push_back(std::move(r));
  }

  // What mlock has split into several mappings moves as one since Linux 6.17 only, and never with a
  // userfaultfd on it: the call would fail, perhaps with a part moved.
  void move(Region& r, uint8_t* to) {
    const size_t step = r.split ? 1 : r.pages;
    for (size_t i = 0; i < r.pages; i += step)
      if (mremap(r.at + i * kPage, step * kPage, step * kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
                 to + i * kPage) == MAP_FAILED)
        perror("mremap"), abort();
  }

  void write(Region& r, size_t page) {
    uint32_t v = r.version[page] + 1;
    uint8_t* at = r.at + page * kPage;
    // The kernel's writes count as ours: through read(2), process_vm_writev.
    alignas(4096) static thread_local uint8_t scratch[kPage];
    switch (random(6)) {
      case 0: {
        memcpy(scratch, at, kPage);
        make_page(scratch, r.id, page, v);
        if (::write(pipe_ends[1], scratch, kPage) != static_cast<ssize_t>(kPage))
          perror("pipe"), abort();
        for (size_t got = 0; got < kPage;) {
          ssize_t n = ::read(pipe_ends[0], at + got, kPage - got);
          if (n > 0) got += static_cast<size_t>(n);
        }
        break;
      }
      case 1: {
        memcpy(scratch, at, kPage);
        make_page(scratch, r.id, page, v);
        iovec local{scratch, kPage}, remote{at, kPage};
        if (process_vm_writev(getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(kPage))
          make_page(at, r.id, page, v);
        break;
      }
      default:
        make_page(at, r.id, page, v);
    }
    r.version[page] = v;
  }

  void step() {
    if (total < kMaxPages / 2 || (regions.empty())) {
      add(nullptr, 0);
      return;
    }
    size_t k = random(regions.size());
    Region& r = regions[k];
    if (r.locked_out) {
      if (random(3)) return;
      mprotect(r.at, r.pages * kPage, PROT_READ | PROT_WRITE);
      r.locked_out = false;
    }
    size_t page = random(r.pages), n = 1 + random(r.pages - page);
    switch (random(24)) {
      case 0:
        if (total < kMaxPages) add(nullptr, 0);
        break;
      case 1:  // unmap
        if (random(3)) break;
        munmap(r.at, r.pages * kPage);
        total -= r.pages;
        regions.erase(regions.begin() + static_cast<long>(k));
        break;
      case 2: {  // another mapping at the same address
        uint8_t* at = r.at;
        size_t pages = r.pages;
        total -= pages;
        regions.erase(regions.begin() + static_cast<long>(k));
        add(at, pages);
        break;
      }
      case 3:  // pages become zero
      case 4:
        if (r.shared) break;
        munlock(r.at, r.pages * kPage);  // locked memory refuses, in the middle of the range
        if (madvise(r.at + page * kPage, n * kPage, MADV_DONTNEED) == 0)
          for (size_t i = page; i < page + n; ++i) r.version[i] = 0;
        break;
      case 5: {  // grow, shrink, move
        if (r.shared) break;
        size_t pages = 1 + random(r.pages * 2);
        void* to = mremap(r.at, r.pages * kPage, pages * kPage, MREMAP_MAYMOVE);
        if (to == MAP_FAILED) break;
        total += pages - r.pages;
        r.at = static_cast<uint8_t*>(to);
        r.pages = pages;
        r.version.resize(pages, 0);
        break;
      }
      case 6: {  // move over another region
        if (r.shared || regions.size() < 2) break;
        size_t other = random(regions.size());
        if (other == k || regions[other].pages < r.pages) break;
        uint8_t* to = regions[other].at;
        move(r, to);
        if (regions[other].pages > r.pages)
          munmap(to + r.pages * kPage, (regions[other].pages - r.pages) * kPage);
        r.at = to;
        total -= regions[other].pages;
        regions.erase(regions.begin() + static_cast<long>(other));
        break;
      }
      case 7:
        mprotect(r.at, r.pages * kPage, PROT_NONE);
        r.locked_out = true;
        break;
      case 8:
        madvise(r.at, r.pages * kPage, random(2) ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
        break;
      case 9:
        r.split = true;
        if (random(2))
          mlock(r.at + page * kPage, n * kPage);
        else
          munlock(r.at, r.pages * kPage);
        break;
      case 10: {  // a child writes to its copy and looks at it
        if (random(8)) break;
        pid_t pid = fork();
        if (pid == 0) {
          for (Region& c : regions)
            if (!c.shared && !c.locked_out)
              for (size_t i = 0; i < c.pages; i += 3) {
                make_page(c.at + i * kPage, c.id, i, c.version[i] + 1);
                if (!page_is(c.at + i * kPage, c.id, i, c.version[i] + 1)) _exit(1);
              }
          _exit(0);
        }
        int status = 0;
        if (pid > 0 && waitpid(pid, &status, 0) == pid && status != 0) fail("in a child", r, 0);
        break;
      }
      case 11:  // reads map the zero page
        for (size_t i = page; i < page + n; ++i) check("by chance", r, i);
        break;
      default:
        for (size_t i = page; i < page + n && i < page + 20; ++i) {
          if (!check("before a write", r, i)) break;
          write(r, i);
        }
    }
  }
};

void* walk(void* walker) {
  auto* w = static_cast<Walker*>(walker);
  for (;;) {
    if (*check_now || wrong) {
      w->check_all();
      ++checked;
      for (;;) pause();
    }
    w->step();
    ++steps;
    if (step_file) *step_file = steps;
    if (w->random(4) == 0) usleep(200);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  const uint64_t seed = strtoull(argv[1], nullptr, 10);
  const int processes = argc == 4 ? atoi(argv[3]) : 1;
  int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, kPage) != 0) return 2;
  step_file =
      static_cast<uint64_t*>(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  check_now = static_cast<std::atomic<bool>*>(
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  signal(SIGUSR2, [](int) { *check_now = true; });
  std::vector<Walker*> walkers;
  for (uint64_t i = 0; i < kThreads; ++i) walkers.push_back(new Walker(seed, i));
  for (int i = 0; processes > 1 && i < 2000; ++i)
    for (Walker* w : walkers) w->step();
  std::vector<pid_t> children;
  for (int i = 1; i < processes && step_file; ++i) {
    const pid_t pid = fork();
    if (pid < 0) abort();
    if (pid > 0) {
      children.push_back(pid);
      continue;
    }
    children.clear();
    step_file = nullptr;
    for (Walker* w : walkers) w->part(static_cast<uint64_t>(i));
  }
  for (Walker* w : walkers) {
    pthread_t t;
    pthread_create(&t, nullptr, walk, w);
  }
  while (checked < kThreads) usleep(1000);
  for (pid_t pid : children) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0) ++wrong;
  }
  printf("%llu\n", static_cast<unsigned long long>(steps.load()));
  fflush(stdout);
  _exit(wrong ? 1 : 0);
}
