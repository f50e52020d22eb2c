// large MIB: fills that much memory, waits, checks every byte of it. For memory_limit_test.py.
#include "../feature.h"
static uint64_t next(uint64_t* x) {
  *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
  return *x;
}
int main(int argc, char** argv) {
  const size_t words = argc == 2 ? (size_t)atol(argv[1]) << 17 : 0;
  uint64_t *memory = malloc(words * 8), seed = 88172645463325252ull;
  CHECK(words && memory);
  for (size_t i = 0; i < words; ++i) memory[i] = next(&seed);
  ready_and_wait();
  seed = 88172645463325252ull;
  for (size_t i = 0; i < words; ++i) CHECK(memory[i] == next(&seed));
  return survived();
}
