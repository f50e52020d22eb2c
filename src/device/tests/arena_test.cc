#include "device/arena/arena.h"

#include <cuda.h>

#include <map>
#include <random>
#include <set>
#include <vector>
#include "tests/catch.h"

using namespace gpuckpt::device;

namespace {

// Memory of a device of `room` bytes; checks that commits never overlap and that decommits match.
class FakeBacking : public Backing {
 public:
  explicit FakeBacking(uint64_t room) : room_(room) {}
  int reserve(uint64_t bytes, uint64_t* address, uint64_t* got) override {
    ++reservations;
    *got = bytes > kReservation ? bytes : kReservation;
    *address = next_;
    next_ += *got + kBlockBytes;  // a hole: reservations do not join
    return 0;
  }
  int commit(uint64_t address, uint64_t bytes, uint64_t* handle) override {
    REQUIRE(address % kBlockBytes == 0);
    REQUIRE(bytes % kBlockBytes == 0);
    if (used + bytes > room_) return CUDA_ERROR_OUT_OF_MEMORY;
    auto after = committed.lower_bound(address);
    if (after != committed.end()) REQUIRE(address + bytes <= after->first);
    if (after != committed.begin()) {
      auto before = std::prev(after);
      REQUIRE(before->first + before->second <= address);
    }
    committed[address] = bytes;
    used += bytes;
    ++commits;
    *handle = address ^ 0x5555;
    return 0;
  }
  void decommit(uint64_t address, uint64_t bytes, uint64_t handle) override {
    REQUIRE(handle == (address ^ 0x5555));
    REQUIRE(committed.count(address));
    REQUIRE(committed[address] == bytes);
    committed.erase(address);
    used -= bytes;
  }
  bool holds(uint64_t address, uint64_t bytes) const {
    auto it = committed.upper_bound(address);
    if (it == committed.begin()) return false;
    --it;
    while (bytes) {
      if (it == committed.end() || it->first > address || it->first + it->second <= address)
        return false;
      uint64_t part = std::min(bytes, it->first + it->second - address);
      address += part;
      bytes -= part;
      ++it;
    }
    return true;
  }
  static constexpr uint64_t kReservation = 1ull << 40;
  uint64_t used = 0;
  int commits = 0, reservations = 0;
  std::map<uint64_t, uint64_t> committed;

 private:
  uint64_t room_, next_ = 0x100000000000;
};

}  // namespace

TEST_CASE("random allocations agree with a model") {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    FakeBacking backing(uint64_t{8} << 30);
    Arena arena;
    arena.init(&backing);
    std::mt19937_64 random(seed);
    std::map<uint64_t, uint64_t> model;
    std::set<uint64_t> ids;
    for (int step = 0; step < 6000; ++step) {
      if (model.empty() || random() % 100 < 55) {
        unsigned shift = static_cast<unsigned>(random() % 25);
        uint64_t bytes = 1 + random() % (uint64_t{1} << shift);
        uint64_t align = random() % 4 ? 256 : 4096;
        Allocation* a = nullptr;
        int error = arena.allocate(bytes, align, &a);
        if (error) {
          REQUIRE(error == CUDA_ERROR_OUT_OF_MEMORY);
          continue;
        }
        REQUIRE(a->begin % align == 0);
        if (bytes >= 512) REQUIRE(a->begin % 512 == 0);
        REQUIRE(backing.holds(a->begin, bytes));
        REQUIRE(ids.insert(a->id).second);
        auto after = model.lower_bound(a->begin);
        if (after != model.end()) REQUIRE(a->begin + bytes <= after->first);
        if (after != model.begin()) {
          auto before = std::prev(after);
          REQUIRE(before->first + before->second <= a->begin);
        }
        model[a->begin] = bytes;
      } else {
        auto it = model.lower_bound(
            std::next(model.begin(), random() % std::min<size_t>(model.size(), 32))->first);
        Allocation* a = arena.starting(it->first);
        REQUIRE(a);
        REQUIRE(a->size == it->second);
        REQUIRE(arena.covering(it->first + it->second - 1) == a);
        arena.free(a);
        model.erase(it);
      }
      REQUIRE(arena.count() == model.size());
    }
    uint64_t total = 0;
    for (auto& [address, bytes] : model) total += bytes;
    REQUIRE(arena.allocated_bytes() == total);
    REQUIRE(arena.committed_bytes() == backing.used);
    for (auto& [address, bytes] : model) arena.free(arena.starting(address));
    arena.trim();
    REQUIRE(backing.used == 0);
    REQUIRE(arena.first() == nullptr);
    REQUIRE(arena.first_chunk() == nullptr);
  }
}

TEST_CASE("allocate until full wastes little") {
  struct Case {
    uint64_t bytes;
    double least;  // share of the device that ends up in allocations
  } cases[]        // from 2 MiB on no worse than native, which rounds up to 2 MiB
      = {{1024, 0.99},
         {1 << 20, 0.99},
         {3 << 20, 0.74},
         {(5 << 20) + 12345, 0.83},
         {uint64_t{1} << 30, 0.99},
         {512, 0.99}};
  for (auto [bytes, least] : cases) {
    uint64_t room = bytes < 4096 ? uint64_t{256} << 20 : uint64_t{16} << 30;
    FakeBacking backing(room);
    Arena arena;
    arena.init(&backing);
    uint64_t count = 0;
    Allocation* a;
    while (!arena.allocate(bytes, 256, &a)) ++count;
    INFO(bytes);
    REQUIRE(double(count * bytes) >= least * double(room));
  }
}

TEST_CASE("large allocations have few chunks") {
  FakeBacking backing(uint64_t{64} << 30);
  Arena arena;
  arena.init(&backing);
  Allocation* a;
  REQUIRE(arena.allocate(uint64_t{10} << 30, 256, &a) == 0);
  REQUIRE(backing.commits == 1);
  REQUIRE(arena.allocate((uint64_t{10} << 30) + 7, 256, &a) == 0);
  REQUIRE(backing.commits == 2);
  REQUIRE(arena.allocate((3 << 20), 256, &a) == 0);  // 2 MiB and a shared page
  REQUIRE(backing.commits == 4);
  REQUIRE(arena.allocate((1 << 20), 256, &a) == 0);  // fits beside the tail
  REQUIRE(backing.commits == 4);
}

TEST_CASE("an empty block is kept once and given back when memory is short") {
  FakeBacking backing(4 << 20);
  Arena arena;
  arena.init(&backing);
  Allocation *a, *b;
  REQUIRE(arena.allocate(100, 256, &a) == 0);
  arena.free(a);
  REQUIRE(arena.cached_bytes() == kBlockBytes);
  REQUIRE(backing.used == kBlockBytes);
  REQUIRE(arena.allocate(4 << 20, 256, &b) == 0);  // needs the cached block's memory
  REQUIRE(arena.cached_bytes() == 0);
  REQUIRE(arena.allocate(1, 256, &a) == CUDA_ERROR_OUT_OF_MEMORY);
  arena.free(b);
  REQUIRE(backing.used == 0);
}

TEST_CASE("occupied says where the content counts") {
  FakeBacking backing(64 << 20);
  Arena arena;
  arena.init(&backing);
  Allocation *a, *b;
  REQUIRE(arena.allocate(1000, 256, &a) == 0);
  REQUIRE(arena.allocate(1000, 256, &b) == 0);
  REQUIRE(arena.occupied(a->begin, 1));
  REQUIRE(arena.occupied(a->begin + 1000, 24 + 1));  // reaches b
  REQUIRE_FALSE(arena.occupied(b->begin + 65536, 65536));
}

TEST_CASE("range tree finds floor, ceiling, first fit") {
  RangeTree tree;
  std::vector<RangeNode> nodes(1000);
  std::map<uint64_t, RangeNode*> model;
  std::mt19937 random(7);
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].begin = (i * 7919 % 1000) * 100;
    nodes[i].size = random() % 100 + 1;
    tree.insert(&nodes[i]);
    model[nodes[i].begin] = &nodes[i];
  }
  for (int step = 0; step < 3000; ++step) {
    uint64_t at = random() % 100000;
    auto after = model.lower_bound(at);
    REQUIRE(tree.ceiling(at) == (after == model.end() ? nullptr : after->second));
    auto upper = model.upper_bound(at);
    REQUIRE(tree.floor(at) == (upper == model.begin() ? nullptr : std::prev(upper)->second));
    uint64_t want = random() % 110;
    RangeNode* fit = nullptr;
    for (auto& [begin, node] : model)
      if (node->size >= want) {
        fit = node;
        break;
      }
    REQUIRE(tree.first_fit(want) == fit);
    if (step % 5 == 0 && model.size() > 10) {
      auto victim = std::next(model.begin(), random() % model.size());
      tree.erase(victim->second);
      model.erase(victim);
    }
  }
}

TEST_CASE("hash map agrees with a model") {
  HashMap<uint64_t> map;
  std::map<uint64_t, uint64_t> model;
  std::mt19937_64 random(3);
  for (int step = 0; step < 50000; ++step) {
    uint64_t key = (random() % 2000 + 1) * 64;
    if (random() % 2) {
      REQUIRE(map.put(key, step));
      model[key] = step;
    } else {
      REQUIRE(map.erase(key) == (model.erase(key) == 1));
    }
    uint64_t probe = (random() % 2000 + 1) * 64;
    uint64_t* found = map.find(probe);
    REQUIRE((found != nullptr) == (model.count(probe) == 1));
    if (found) REQUIRE(*found == model[probe]);
  }
  REQUIRE(map.size() == model.size());
}
