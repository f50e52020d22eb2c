// The program that bench/host/restore.py snapshots and restores: memory of one kind, and nothing
// else.
//
//   restore_fill MIB KIND PAGES [FILE]
//                                    KIND: random, floats (12 random bits of a float's 24, 2.3 :
//   1), weights (bf16, normal),
//                                    text (words, 3 : 1); says "ready", then a digest of its memory
//                                    for each line of stdin. PAGES: small (4 KiB) or huge. FILE
//                                    gets the same bytes, for the baseline.
//
// Plain C++ and libc: it knows nothing of gpuckpt.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace {

uint64_t next(uint64_t* state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return *state;
}

double uniform(uint64_t* state) { return (static_cast<double>(next(state) >> 11) + 0.5) * 0x1p-53; }

uint16_t weight(uint64_t* state) {
  const double normal = sqrt(-2 * log(uniform(state))) * cos(6.283185307179586 * uniform(state));
  const float value = static_cast<float>(0.02 * normal);
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

void fill_words(uint8_t* to, size_t bytes, uint64_t* state) {
  static const char* const kWords[] = {
      "the ", "of ", "checkpoint ", "memory ", "process ", "a ",  "restores ", "page ",
      "and ", "is ", "store ",      "while ",  "device ",  "in ", "copy ",     "snapshot "};
  for (size_t at = 0; at < bytes;) {
    const uint64_t r = next(state);
    char number[16];
    const char* word = r % 8 ? kWords[r >> 8 & 15] : number;
    if (word == number)
      snprintf(number, sizeof(number), "%05u ", static_cast<unsigned>(r >> 16 & 65535));
    for (; *word && at < bytes; ++word) to[at++] = static_cast<uint8_t>(*word);
  }
}

void fill(uint8_t* to, size_t bytes, const char* kind) {
  uint64_t state = 88172645463325252ull;
  if (!strcmp(kind, "text")) return fill_words(to, bytes, &state);
  if (!strcmp(kind, "weights")) {
    // Normal numbers are slow to make: a megabyte of them, scaled by powers of two, which leaves
    // all but the exponent.
    static uint16_t some[1 << 19];
    for (uint16_t& w : some) w = weight(&state);
    for (size_t i = 0; i < bytes / 2; ++i)
      reinterpret_cast<uint16_t*>(to)[i] =
          static_cast<uint16_t>(some[next(&state) & ((1 << 19) - 1)]);
    return;
  }
  const bool floats = !strcmp(kind, "floats");
  for (size_t i = 0; i < bytes / 8; ++i) {
    const uint64_t r = next(&state);
    if (!floats) {
      reinterpret_cast<uint64_t*>(to)[i] = r;
      continue;
    }
    const float pair[2] = {static_cast<float>(r & 4095) / 4096,
                           static_cast<float>(r >> 32 & 4095) / 4096};
    memcpy(to + i * 8, pair, 8);
  }
}

uint64_t digest(const uint8_t* at, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes / 8; ++i)
    sum = (sum ^ reinterpret_cast<const uint64_t*>(at)[i]) * 0x9E3779B97F4A7C15ull;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const size_t bytes = static_cast<size_t>(atol(argv[1])) << 20;
  uint8_t* memory = static_cast<uint8_t*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) return 1;
  madvise(memory, bytes, strcmp(argv[3], "huge") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  fill(memory, bytes, argv[2]);
  if (argc > 4) {
    FILE* f = fopen(argv[4], "w");
    if (!f || fwrite(memory, 1, bytes, f) != bytes || fclose(f) != 0) return 1;
  }
  puts("ready");
  fflush(stdout);
  char line[64];
  while (fgets(line, sizeof(line), stdin)) {
    printf("%016llx\n", static_cast<unsigned long long>(digest(memory, bytes)));
    fflush(stdout);
  }
  return 0;
}
