// The program that bench/scale/scale.py snapshots: N of one kind of thing, and nothing else.
//
//   grow KIND N    KIND: memory (MiB in 4 KiB pages), device (MiB of a device's memory), mappings,
//                  descriptors, threads, processes, allocations (of a device, 4 KiB each); says
//                  "ready", then for each line of stdin how many of them are there as they were
//                  made.
//
// Plain C++, libc and the driver's interface by name: it knows nothing of gpuckpt.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

namespace {

constexpr size_t kPage = 4096;

[[noreturn]] void fail(const char* what) {
  perror(what);
  _exit(1);
}

uint8_t* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail("mmap");
  madvise(p, bytes, MADV_NOHUGEPAGE);
  return static_cast<uint8_t*>(p);
}

using Count = std::function<size_t()>;

// A quarter of the bytes is random: a machine has room for the program and what is stored of it.
Count memory(size_t mib) {
  const size_t pages = mib << 8;
  uint64_t* at = reinterpret_cast<uint64_t*>(map(pages * kPage));
  uint64_t state = 88172645463325252ull;
  for (size_t i = 0; i < pages * kPage / 8; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    at[i] = i % 512 ? state & 0xffff : i;
  }
  return [=] {
    size_t right = 0;
    for (size_t i = 0; i < pages; ++i) right += at[i * 512] == i * 512;
    return right >> 8;
  };
}

// Neighbours of different rights, which the kernel cannot join.
Count mappings(size_t n) {
  uint8_t* at = map(n * kPage);
  for (size_t i = 0; i < n; ++i) at[i * kPage] = static_cast<uint8_t>(i * 7 + 1);
  for (size_t i = 0; i < n; i += 2)
    if (mprotect(at + i * kPage, kPage, PROT_READ)) fail("mprotect");
  return [=] {
    size_t right = 0;
    for (size_t i = 0; i < n; ++i) right += at[i * kPage] == static_cast<uint8_t>(i * 7 + 1);
    return right;
  };
}

// Files, eventfds, and some pipes with a byte in them (a snapshot takes a thousand).
Count descriptors(size_t n) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  auto* fds = new std::vector<int>;
  while (fds->size() < n) {
    int pair[2];
    if (fds->size() % 4 == 2 && fds->size() < 1000 && fds->size() + 2 <= n) {
      if (pipe(pair) || write(pair[1], "x", 1) != 1) fail("pipe");
      fds->push_back(pair[0]);
      fds->push_back(pair[1]);
      continue;
    }
    fds->push_back(fds->size() % 2 ? eventfd(1, EFD_NONBLOCK) : open("/proc/self/exe", O_RDONLY));
    if (fds->back() < 0) fail("open, eventfd");
  }
  return [=] {
    size_t right = 0;
    struct stat st;
    for (int fd : *fds) right += fstat(fd, &st) == 0;
    return right;
  };
}

Count threads(size_t n) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t turn = PTHREAD_COND_INITIALIZER, back = PTHREAD_COND_INITIALIZER;
  static size_t asked = 0, answered = 0;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  for (size_t i = 0; i < n; ++i) {
    pthread_t t;
    auto wait = [](void*) -> void* {
      pthread_mutex_lock(&mutex);
      for (size_t seen = 0;;) {
        while (seen == asked) pthread_cond_wait(&turn, &mutex);
        seen = asked;
        ++answered;
        pthread_cond_signal(&back);
      }
    };
    if (pthread_create(&t, &attributes, wait, nullptr)) fail("pthread_create");
  }
  return [=] {
    pthread_mutex_lock(&mutex);
    answered = 0;
    ++asked;
    pthread_cond_broadcast(&turn);
    while (answered < n) pthread_cond_wait(&back, &mutex);
    const size_t right = answered;
    pthread_mutex_unlock(&mutex);
    return right;
  };
}

// Each has a pipe to ask and one to be answered by.
Count processes(size_t n) {
  auto* ends = new std::vector<std::pair<int, int>>;
  for (size_t i = 1; i < n; ++i) {
    int to[2], from[2];
    if (pipe(to) || pipe(from)) fail("pipe");
    const pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
      close(to[1]);
      close(from[0]);
      for (auto [a, b] : *ends) close(a), close(b);
      uint8_t* own = map(64 * kPage);
      memset(own, static_cast<int>(i), 64 * kPage);
      char byte;
      while (read(to[0], &byte, 1) == 1) {
        byte = own[17 * kPage] == static_cast<uint8_t>(i);
        if (write(from[1], &byte, 1) != 1) break;
      }
      _exit(0);
    }
    close(to[0]);
    close(from[1]);
    ends->emplace_back(to[1], from[0]);
  }
  return [=] {
    size_t right = 1;
    for (auto [to, from] : *ends) {
      char byte = 0;
      if (write(to, "?", 1) == 1 && read(from, &byte, 1) == 1) right += byte;
    }
    return right;
  };
}

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (!library_) fail("libcuda.so.1");
    void* context;
    call("cuInit", 0u);
    call("cuDevicePrimaryCtxRetain", &context, 0);
    call("cuCtxSetCurrent", context);
  }
  template <typename... A>
  void call(const char* name, A... a) const {
    auto f = reinterpret_cast<int (*)(A...)>(dlsym(library_, name));
    if (const int error = f ? f(a...) : -1) {
      fprintf(stderr, "%s: %d\n", name, error);
      _exit(1);
    }
  }
  unsigned long long allocate(size_t bytes) const {
    unsigned long long at;
    call("cuMemAlloc_v2", &at, bytes);
    return at;
  }
  unsigned word(unsigned long long at) const {
    unsigned value = 0;
    call("cuMemcpyDtoH_v2", static_cast<void*>(&value), at, sizeof(value));
    return value;
  }

 private:
  void* library_;
};

// Half of the bytes are random.
Count device(size_t mib) {
  constexpr size_t kMib = 1 << 20;
  const auto* driver = new Driver;
  const unsigned long long at = driver->allocate(mib * kMib);
  std::vector<uint64_t> some(kMib / 8);
  uint64_t state = 88172645463325252ull;
  for (size_t i = 0; i < mib; ++i) {
    for (uint64_t& word : some) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      word = state & 0xffffffff;
    }
    some[0] = i;
    driver->call("cuMemcpyHtoD_v2", at + i * kMib, static_cast<const void*>(some.data()), kMib);
  }
  return [=] {
    size_t right = 0;
    for (size_t i = 0; i < mib; ++i) right += driver->word(at + i * kMib) == i;
    return right;
  };
}

Count allocations(size_t n) {
  const auto* driver = new Driver;
  auto* at = new std::vector<unsigned long long>(n);
  for (size_t i = 0; i < n; ++i) {
    (*at)[i] = driver->allocate(4096);
    if (i % 1024 == 0)
      driver->call("cuMemsetD32_v2", (*at)[i], static_cast<unsigned>(i), size_t{1024});
  }
  return [=] {
    for (size_t i = 0; i < n; i += 1024)
      if (driver->word((*at)[i]) != i) return i;
    return n;
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const struct {
    const char* name;
    Count (*make)(size_t);
  } kinds[] = {{"memory", memory},           {"device", device},   {"mappings", mappings},
               {"descriptors", descriptors}, {"threads", threads}, {"processes", processes},
               {"allocations", allocations}};
  for (const auto& kind : kinds) {
    if (strcmp(kind.name, argv[1])) continue;
    const Count count = kind.make(static_cast<size_t>(atol(argv[2])));
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
      printf("%zu\n", count());
      fflush(stdout);
    }
    // The end of all, so that a restore finds their ids free.
    syscall(SYS_close_range, 3u, ~0u, 0u);
    while (wait(nullptr) > 0) {
    }
    return 0;
  }
  return 2;
}
