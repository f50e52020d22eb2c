// Names and heap against simple models.
#include "tests/catch.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "base/address.h"
#include "intercept/realm/realm.h"
#include "intercept/realm/realm_internal.h"
#include "intercept/spec/abi_table.h"
#include "intercept/translate/translate.h"

using namespace gpuckpt;

TEST_CASE("names: bound, dropped, never another's") {
  gate_new_generation();
  gate_open();
  std::mt19937_64 random(7);
  std::map<uint64_t, uint64_t> model;
  for (int i = 0; i < 20000; i++) {
    uint64_t name = 0x1000 + random() % 3000 * 16;
    switch (random() % 3) {
      case 0:
      case 1: {
        uint64_t now = 0x800000 + static_cast<uint64_t>(i) * 16;
        drop(Kind::kEvent, name);
        bind(Kind::kEvent, name, now);
        model[name] = now;
        break;
      }
      default:
        drop(Kind::kEvent, name);
        model.erase(name);
    }
  }
  for (uint64_t name = 0x1000; name < 0x1000 + 3000 * 16; name += 16) {
    auto it = model.find(name);
    REQUIRE(now_of(Kind::kEvent, name) == (it == model.end() ? name : it->second));
    if (it != model.end()) REQUIRE(name_of(Kind::kEvent, it->second) == name);
    REQUIRE(name_bound(Kind::kEvent, name) == (it != model.end()));
  }
  for (uint64_t magic : {0, 1, 2}) REQUIRE(now_of(Kind::kEvent, magic) == magic);
  REQUIRE(now_of(Kind::kStream, 0x1000) == 0x1000);  // kinds are worlds apart

  // A new object whose value is a live object's name gets a name of its own.
  bind(Kind::kModule, 0x5000, 0x6000);
  uint64_t name = name_new(Kind::kModule, 0x5000);
  REQUIRE(name != 0x5000);
  REQUIRE(now_of(Kind::kModule, name) == 0x5000);
  REQUIRE(name_new(Kind::kModule, 0x5000) == name);
  REQUIRE(now_of(Kind::kModule, 0x5000) == 0x6000);
  REQUIRE(name_new(Kind::kModule, 0x7000) == 0x7000);
  translate_forget_all();
  REQUIRE(now_of(Kind::kModule, 0x5000) == 0x5000);
}

TEST_CASE("names: readers never see a wrong value while tables grow") {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  bind(Kind::kKernel, 0x10000, 0x90000);
  std::thread reader([&] {
    while (!stop)
      if (now_of(Kind::kKernel, 0x10000) != 0x90000) wrong++;
  });
  for (uint64_t i = 1; i < 50000; i++) bind(Kind::kKernel, 0x10000 + i * 16, 0x90000000 + i * 16);
  stop = true;
  reader.join();
  REQUIRE(wrong == 0);
}

TEST_CASE("heap: blocks do not overlap, are aligned, survive") {
  std::mt19937_64 random(3);
  struct Block {
    unsigned char* at;
    size_t bytes;
    unsigned char fill;
  };
  std::vector<Block> blocks;
  for (int i = 0; i < 30000; i++) {
    if (blocks.size() < 500 || random() % 2) {
      size_t bytes = random() % 3 ? random() % 300 : random() % 20000;
      if (random() % 100 == 0) bytes = 300000 + random() % 1000000;
      size_t align = random() % 4 ? 16 : 16u << (random() % 9);
      auto* p = static_cast<unsigned char*>(random() % 5 ? realm_heap::allocate(bytes, align)
                                                         : realm_heap::allocate_zeroed(bytes));
      if (!p) FAIL("no memory");
      REQUIRE(realm_heap::contains(p));
      REQUIRE(reinterpret_cast<uint64_t>(p) % 16 == 0);
      REQUIRE(realm_heap::usable(p) >= bytes);
      auto fill = static_cast<unsigned char>(random());
      memset(p, fill, realm_heap::usable(p));
      blocks.push_back({p, realm_heap::usable(p), fill});
    } else {
      size_t k = random() % blocks.size();
      Block b = blocks[k];
      for (size_t n = 0; n < b.bytes; n += 97)
        if (b.at[n] != b.fill) FAIL("a block changed");
      realm_heap::release(b.at);
      blocks[k] = blocks.back();
      blocks.pop_back();
    }
  }
  for (size_t align : {64u, 4096u, 1u << 20}) {
    void* p = realm_heap::allocate(100, align);
    REQUIRE(reinterpret_cast<uint64_t>(p) % align == 0);
    realm_heap::release(p);
  }
  auto* zeroed = static_cast<unsigned char*>(realm_heap::allocate_zeroed(1000));
  for (int i = 0; i < 1000; i++) REQUIRE(zeroed[i] == 0);
  uint64_t high = realm_heap_high_water();
  REQUIRE(realm_heap_bytes() < 8 * high);
  realm_heap::new_generation();
  REQUIRE(reinterpret_cast<uint64_t>(realm_heap::allocate(10)) >= kRealmHeapBase + high);
}

TEST_CASE("heap: a program that is restored many times does not grow by the driver's big blocks") {
  constexpr size_t kBig = 1 << 20, kSmall = 1000;
  struct Generation {
    unsigned char *big, *small;
  } made[4];
  realm_heap::allocate(kSmall);
  realm_heap::new_generation();  // what the first generation leaves stays whole
  for (int i = 0; i < 4; ++i) {
    realm_heap::new_generation();
    made[i] = {static_cast<unsigned char*>(realm_heap::allocate(kBig)),
               static_cast<unsigned char*>(realm_heap::allocate(kSmall))};
    memset(made[i].big, 'b', kBig);
    memset(made[i].small, 's', kSmall);
  }
  for (int i = 0; i < 4; ++i) {
    unsigned char resident;
    auto* middle = reinterpret_cast<unsigned char*>(
        page_down(reinterpret_cast<uint64_t>(made[i].big + kBig / 2)));
    REQUIRE(mincore(middle, 1, &resident) == 0);
    REQUIRE((resident & 1) == (i == 3));  // the living one
    // The program may hold pointers into small ones.
    REQUIRE((made[i].small[0] == 's' && made[i].small[kSmall - 1] == 's'));
  }
}

// Threads that this program creates while it holds them back begin when the test calls them.
namespace {
struct HeldThread {
  void* (*start)(void*);
  void* arg;
};
std::atomic<HeldThread*> g_held{nullptr};  // where the next thread is put; null: it starts at once
}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*start)(void*),
                              void* arg) noexcept {
  if (HeldThread* held = g_held.exchange(nullptr)) {
    *held = {start, arg};
    return 0;
  }
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attr, start, arg);
}

TEST_CASE("threads: one that starts after a restore does not run the routine of another") {
  gate_open();
  auto create_held = [](std::atomic<int>& runs) {
    HeldThread held{};
    g_held = &held;
    pthread_t thread;
    REQUIRE(realm_threads::create(
                &thread, nullptr,
                [](void* counter) -> void* {
                  ++*static_cast<std::atomic<int>*>(counter);
                  return nullptr;
                },
                &runs) == 0);
    REQUIRE(held.start);
    return held;
  };
  auto begin = [](const HeldThread& t) {
    std::atomic<bool> ended{false};
    std::thread([&] {
      t.start(t.arg);
      ended = true;
    }).detach();
    while (!ended) std::this_thread::yield();
  };

  std::atomic<int> before{0}, after{0}, later{0};
  HeldThread starting = create_held(before);  // as the snapshot finds it
  realm_threads::rewind();
  gate_new_generation();
  gate_open();
  HeldThread fresh = create_held(after);
  begin(starting);
  CHECK(before == 0);  // its driver is gone
  CHECK(after == 0);
  begin(fresh);
  CHECK(after == 1);

  // Its record is of use again.
  CHECK(create_held(later).arg == starting.arg);
}

TEST_CASE("maps: pieces split and join") {
  constexpr int kFlags = 0x22;  // MAP_PRIVATE | MAP_ANONYMOUS
  auto* p = static_cast<char*>(realm_maps::map(nullptr, 16 * 4096, 3, kFlags, -1, 0));
  auto at = reinterpret_cast<uint64_t>(p);
  REQUIRE(realm_maps::owns(at, 1));
  REQUIRE(realm_maps::unmap(p + 4 * 4096, 4096) == 0);
  REQUIRE(!realm_maps::owns(at + 4 * 4096, 4096));
  REQUIRE(realm_maps::owns(at + 3 * 4096, 4096));
  REQUIRE(realm_maps::owns(at + 5 * 4096, 4096));
  REQUIRE(realm_maps::map(p + 4 * 4096, 4096, 3, kFlags | 0x10, -1, 0) == p + 4 * 4096);
  REQUIRE(realm_maps::owns(at + 4 * 4096, 4096));
  auto* moved = static_cast<char*>(realm_maps::remap(p, 16 * 4096, 64 * 4096, 1, nullptr));
  REQUIRE(realm_maps::owns(reinterpret_cast<uint64_t>(moved), 64 * 4096));
  REQUIRE(realm_maps::unmap(moved, 64 * 4096) == 0);
  REQUIRE(!realm_maps::owns(at, 16 * 4096));
  REQUIRE(!realm_maps::owns(reinterpret_cast<uint64_t>(moved), 64 * 4096));
}

TEST_CASE("maps: what the kernel merged with a mapping of the driver is not the driver's") {
  constexpr int kFlags = 0x22;  // MAP_PRIVATE | MAP_ANONYMOUS
  auto* p = static_cast<char*>(realm_maps::map(nullptr, 4 * 4096, 3, kFlags, -1, 0));
  const auto at = reinterpret_cast<uint64_t>(p), end = at + 4 * 4096;
  uint64_t until;
  REQUIRE(!realm_maps::owns_first(at - 4096, end + 4096, &until));
  REQUIRE(until == at);
  REQUIRE(realm_maps::owns_first(at, end + 4096, &until));
  REQUIRE(until == end);
  REQUIRE(!realm_maps::owns_first(end, end + 4096, &until));
  REQUIRE(until == end + 4096);
  REQUIRE(realm_maps::owns_first(at + 4096, at + 2 * 4096, &until));
  REQUIRE(until == at + 2 * 4096);
  REQUIRE(realm_maps::unmap(p, 4 * 4096) == 0);
}

TEST_CASE("maps: a new generation gets the reservations of the old one") {
  constexpr int kReserve = 0x4022;      // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
  constexpr int kNoReplace = 0x100000;  // MAP_FIXED_NOREPLACE
  constexpr size_t kSize = 8 << 20;
  auto reserve = [&](void* hint, int more = 0) {
    return static_cast<char*>(realm_maps::map(hint, kSize, 0, kReserve | more, -1, 0));
  };
  // Far from where the kernel puts what has no hint: it likes the ends that are given back below.
  auto far = [](uint64_t n) { return reinterpret_cast<char*>(0x3b0000000000 + (n << 36)); };
  char* first = reserve(far(0));
  char* gone = reserve(far(1));
  char* second = reserve(far(2));
  REQUIRE(realm_maps::unmap(gone, kSize) == 0);
  // Aligned by giving back both ends.
  REQUIRE(realm_maps::unmap(second, 1 << 20) == 0);
  REQUIRE(realm_maps::unmap(second + (7 << 20), 1 << 20) == 0);
  char* arena = reserve(reinterpret_cast<char*>(0x3a0000000000), kNoReplace);
  REQUIRE(arena == reinterpret_cast<char*>(0x3a0000000000));
  // Part of a reservation in use, and memory of its own.
  REQUIRE(realm_maps::map(first + 4096, 4096, 3, 0x32, -1, 0) == first + 4096);
  auto* backing = static_cast<char*>(realm_maps::map(nullptr, kSize, 3, 0x22, -1, 0));
  realm_maps::rewind();
  auto at = [](char* p) { return reinterpret_cast<uint64_t>(p); };
  REQUIRE(!realm_maps::owns(at(backing), kSize));
  REQUIRE(realm_maps::owns(at(first), kSize));  // blocked
  REQUIRE(mmap(first, 4096, 3, 0x22 | kNoReplace, -1, 0) == MAP_FAILED);
  // A mapping of other kind and length does not get in.
  REQUIRE(realm_maps::map(nullptr, kSize, 3, 0x22, -1, 0) != first);
  REQUIRE(realm_maps::map(first, 2 * kSize, 0, kReserve, -1, 0) != first);
  // By length in order, whatever the hint; by address where it is demanded.
  REQUIRE(reserve(arena, kNoReplace) == arena);
  REQUIRE(reserve(arena, kNoReplace) == MAP_FAILED);
  REQUIRE(reserve(first + (1 << 30)) == first);
  REQUIRE(reserve(nullptr) == second);
  char* fresh = reserve(nullptr);
  REQUIRE(fresh != first);
  REQUIRE(realm_maps::release_placeholders());
  REQUIRE(realm_maps::owns(at(first), kSize));
}

namespace {

constexpr size_t kWanted = 64 << 20, kAligned = 32 << 20, kMiB = 1 << 20;
constexpr int kReserving = 0x4022;       // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
constexpr int kPrivateFixed = 0x32;      // MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED
constexpr int kDoNotReplace = 0x100000;  // MAP_FIXED_NOREPLACE

uint64_t driver_maps(uint64_t at, size_t bytes, int prot, int flags) {
  return reinterpret_cast<uint64_t>(
      realm_maps::map(reinterpret_cast<void*>(at), bytes, prot, flags, -1, 0));
}
int driver_gives_back(uint64_t at, size_t bytes) {
  return realm_maps::unmap(reinterpret_cast<void*>(at), bytes);
}
// What a driver does to get an aligned range: it gives back 16 MiB on both sides.
void align(uint64_t reserved) {
  REQUIRE(driver_gives_back(reserved, 16 * kMiB) == 0);
  REQUIRE(driver_gives_back(reserved + 48 * kMiB, 16 * kMiB) == 0);
}
// Memory of the program with a word in it.
uint32_t* program_memory(uint64_t at) {
  void* p = mmap(reinterpret_cast<void*>(at), kMiB, 3, kPrivateFixed | kDoNotReplace, -1, 0);
  REQUIRE(reinterpret_cast<uint64_t>(p) == at);
  *static_cast<uint32_t*>(p) = 0x600d;
  return static_cast<uint32_t*>(p);
}

}  // namespace

TEST_CASE("maps: the program's memory beside an aligned reservation neither moves it nor is lost") {
  const uint64_t reserved = driver_maps(0x3c0000000000, kWanted, 0, kReserving);
  align(reserved);
  uint32_t* before = program_memory(reserved + 2 * kMiB);
  uint32_t* after = program_memory(reserved + 60 * kMiB);
  // The next reservation of the driver lies in what the first gave back.
  const uint64_t inner = driver_maps(reserved + 50 * kMiB, 4 * kMiB, 0, kReserving | kDoNotReplace);
  REQUIRE(inner == reserved + 50 * kMiB);
  realm_maps::rewind();
  REQUIRE(driver_maps(0, kWanted, 0, kReserving) == reserved);
  align(reserved);
  REQUIRE(*before == 0x600d);
  REQUIRE(*after == 0x600d);
  REQUIRE(driver_maps(0, 4 * kMiB, 0, kReserving) == inner);
  const uint64_t used = driver_maps(reserved + 16 * kMiB, kAligned, 3, kPrivateFixed);
  REQUIRE(used == reserved + 16 * kMiB);
  *reinterpret_cast<uint32_t*>(used) = 1;
  REQUIRE(realm_maps::release_placeholders());
  REQUIRE(!realm_maps::owns(reserved + 2 * kMiB, kMiB));
  REQUIRE(*before == 0x600d);
  REQUIRE(driver_gives_back(used, kAligned) == 0);
  REQUIRE(driver_gives_back(inner, 4 * kMiB) == 0);
}

TEST_CASE("maps: a driver that keeps addresses of the program's memory is refused") {
  const uint64_t reserved = driver_maps(0x3d0000000000, kWanted, 0, kReserving);
  align(reserved);
  uint32_t* before = program_memory(reserved + 2 * kMiB);
  realm_maps::rewind();
  REQUIRE(driver_maps(0, kWanted, 0, kReserving) == reserved);
  // It gives back less than the former generation did.
  REQUIRE(driver_gives_back(reserved + 48 * kMiB, 16 * kMiB) == 0);
  REQUIRE(driver_maps(reserved + 2 * kMiB, kMiB, 3, kPrivateFixed) == ~0ull);
  REQUIRE(*before == 0x600d);
  REQUIRE(!realm_maps::release_placeholders());
  REQUIRE(*before == 0x600d);
  REQUIRE(driver_gives_back(reserved, 48 * kMiB) == 0);
  REQUIRE(*before == 0x600d);
}

TEST_CASE(
    "maps: a driver that keeps what the former generation gave back gets it when it is free") {
  const uint64_t reserved = driver_maps(0x3e0000000000, kWanted, 0, kReserving);
  align(reserved);
  realm_maps::rewind();
  REQUIRE(driver_maps(0, kWanted, 0, kReserving) == reserved);
  const uint64_t used = driver_maps(reserved + 2 * kMiB, kMiB, 3, kPrivateFixed);
  REQUIRE(used == reserved + 2 * kMiB);
  *reinterpret_cast<uint32_t*>(used) = 1;
  REQUIRE(realm_maps::release_placeholders());
  REQUIRE(realm_maps::owns(reserved + 60 * kMiB, kMiB));
  REQUIRE(driver_gives_back(reserved, kWanted) == 0);
}

TEST_CASE("imports: reviewed lists") {
  bool reviewed;
  REQUIRE(realm_hooks::replacement("malloc", &reviewed));
  REQUIRE(realm_hooks::replacement("getline", &reviewed));
  REQUIRE(realm_hooks::replacement("memfd_create", &reviewed));
  REQUIRE(realm_hooks::replacement("dlmopen", &reviewed));
  REQUIRE(!realm_hooks::replacement("memcpy", &reviewed));
  REQUIRE(reviewed);
  REQUIRE(!realm_hooks::replacement("io_uring_setup", &reviewed));
  REQUIRE(!reviewed);
}

TEST_CASE("spec: versions and flavours") {
  auto name = [](const char* base, uint32_t version, bool thread) {
    int i = abi_lookup(base, version, thread);
    return std::string(i < 0 ? "" : kAbi[i].symbol);
  };
  REQUIRE(name("cuMemAlloc", 3020, false) == "cuMemAlloc_v2");
  REQUIRE(name("cuMemAlloc", 3010, false) == "cuMemAlloc");
  REQUIRE(name("cuMemcpy", 7000, true) == "cuMemcpy_ptds");
  REQUIRE(name("cuMemcpy", 6000, true).empty());
  REQUIRE(name("cuInit", 13000, true) == "cuInit");
}
