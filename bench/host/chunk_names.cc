// How fast chunks are named, beside XXH3-128 by turns: chunk_names [MiB [ROUNDS]]. Medians in GB/s,
// from memory that no cache holds and from memory that one does.
#include <time.h>
#include <xxh_x86dispatch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "base/hash/chunk_hash.h"
#include "store/format/chunk_lanes.h"

using namespace gpuckpt;

namespace {

HashTable table;
uint64_t result;

void by_xxh3(const uint8_t* at, size_t length) { result += XXH3_128bits(at, length).low64; }

// Of this process: what others take away is not in it.
double cpu() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <typename Name>
double rate(const std::vector<uint8_t>& memory, size_t chunk, int times, const Name& name) {
  const double start = cpu();
  for (int i = 0; i < times; ++i)
    for (size_t at = 0; at < memory.size(); at += chunk) name(&memory[at], chunk);
  const double took = cpu() - start;
  return static_cast<double>(memory.size()) * times / took / 1e9;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const size_t large = (argc > 1 ? strtoull(argv[1], nullptr, 10) : 512) << 20;
  const int rounds = argc > 2 ? atoi(argv[2]) : 9;
  expand_hash_key({{1, 2, 3}}, &table);
  for (const size_t bytes : {size_t{256} << 10, large}) {
    std::vector<uint8_t> memory(bytes);
    std::mt19937_64 random(1);
    for (size_t i = 0; i < bytes; i += 8) {
      const uint64_t word = random();
      memcpy(&memory[i], &word, 8);
    }
    const int times = static_cast<int>(std::max<size_t>(1, (size_t{256} << 20) / bytes));
    for (const size_t chunk : {size_t{4096}, size_t{65536}}) {
      size_t count;
      const store::NamedLanes* all = store::all_lanes(&count);
      std::vector<std::vector<double>> rates(count + 1);
      for (int round = 0; round < rounds; ++round) {
        rates[0].push_back(rate(memory, chunk, times, by_xxh3));
        for (size_t i = 0; i < count; ++i)
          rates[i + 1].push_back(rate(memory, chunk, times, [&](const uint8_t* at, size_t length) {
            uint8_t name[16];
            hash_chunk(table, all[i].lanes, at, length, name);
            result += name[0];
          }));
      }
      printf("%6zu KiB in pieces of %2zu KiB: XXH3-128 %5.1f GB/s", bytes >> 10, chunk >> 10,
             median(rates[0]));
      for (size_t i = 0; i < count; ++i)
        printf("   %s %5.1f (%.2f)", all[i].name, median(rates[i + 1]),
               median(rates[i + 1]) / median(rates[0]));
      printf("\n");
    }
  }
  return result == 0;
}
