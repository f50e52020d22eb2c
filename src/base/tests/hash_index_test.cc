// What was added is found, the first of equals first, whatever else has the same hash; what was not
// added is not.
#include "base/hash/hash_index.h"

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

struct Key {
  uint64_t hash, value;
};

void finds_all(const std::vector<Key>& keys, uint32_t slots) {
  std::vector<uint32_t> memory(slots);
  HashIndex index(memory.data(), slots);
  auto find = [&](const Key& key) {
    return index.find(key.hash, [&](uint32_t i) { return keys[i].value == key.value; });
  };
  for (uint32_t i = 0; i < keys.size(); ++i) {
    check(find(keys[i]) == HashIndex::kNone, "nothing is found before it is added");
    index.add(keys[i].hash, i);
  }
  for (uint32_t i = 0; i < keys.size(); ++i) check(find(keys[i]) == i, "each is found");
}

}  // namespace

int main() {
  std::vector<Key> different, alike, full;
  for (uint64_t i = 0; i < 10000; ++i) {
    different.push_back({combined_hash(i), i});
    if (i < 100) alike.push_back({7, i});
    if (i < 15) full.push_back({i, i});
  }
  finds_all(different, 32768);
  finds_all(alike, 128);
  finds_all(full, 16);

  uint32_t memory[8] = {};
  HashIndex index(memory, 8);
  index.add(1, 4), index.add(1, 2);
  check(index.find(1, [](uint32_t) { return true; }) == 4, "the first of equals is found");
  check(HashIndex().find(1, [](uint32_t) { return true; }) == HashIndex::kNone,
        "an index without memory has nothing");
  const uint64_t a = 1, b = 2;
  check(combined_hash(a, b) != combined_hash(b, a), "the order of values makes a difference");
  puts("found");
}
