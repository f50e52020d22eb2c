// A parent that has written MIB of memory and PROCESSES - 1 children, each of which wrote one page
// in a hundred of it. When a line comes, all of them sum what they have; the parent prints a
// digest.
//
//     bench_family MIB PROCESSES [shared]    shared: mapped MAP_SHARED, not in common by fork
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr size_t kPage = 4096, kWords = kPage / 8;

uint64_t next(uint64_t* state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return *state;
}

void write_pages(uint64_t* memory, size_t pages, size_t first, size_t step, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (size_t p = first; p < pages; p += step)
    for (size_t i = 0; i < kWords; ++i) memory[p * kWords + i] = next(&state);
}

uint64_t sum(const uint64_t* memory, size_t pages) {
  uint64_t all = 0;
  for (size_t i = 0; i < pages * kWords; ++i) all = all * 31 + memory[i];
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const size_t pages = static_cast<size_t>(atol(argv[1])) << 20 >> 12;
  const int processes = atoi(argv[2]);
  const int kind = argc > 3 && !strcmp(argv[3], "shared") ? MAP_SHARED : MAP_PRIVATE;
  auto* memory = static_cast<uint64_t*>(
      mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) return 1;
  write_pages(memory, pages, 0, 1, 1);
  int go[2], sums[2], born[2];
  if (pipe(go) != 0 || pipe(sums) != 0 || pipe(born) != 0) return 1;
  for (int i = 1; i < processes; ++i) {
    if (fork() != 0) continue;
    char c;
    write_pages(memory, pages, static_cast<size_t>(i), 100, static_cast<uint64_t>(i) + 1);
    if (write(born[1], "b", 1) != 1 || read(go[0], &c, 1) != 1) _exit(1);
    const uint64_t own = sum(memory, pages);
    _exit(write(sums[1], &own, sizeof(own)) != sizeof(own));
  }
  char line[16];
  for (int i = 1; i < processes; ++i)
    if (read(born[0], line, 1) != 1) return 1;
  for (;;) {
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin)) return 0;
    uint64_t all = sum(memory, pages);
    for (int i = 1; i < processes; ++i) {
      uint64_t one = 0;
      if (write(go[1], "g", 1) != 1 || read(sums[0], &one, sizeof(one)) != sizeof(one)) return 1;
      all += one;
    }
    while (wait(nullptr) > 0) {
    }
    printf("%016lx\n", static_cast<unsigned long>(all));
    fflush(stdout);
  }
}
