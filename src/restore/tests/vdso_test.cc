// A vdso of another kernel: a copy of this one's in which a byte that means nothing differs.
#include "restore/memory/vdso.h"

#include <dlfcn.h>
#include <elf.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/catch.h"

namespace {

using namespace gpuckpt;
using namespace gpuckpt::restore;

const uint64_t here = getauxval(AT_SYSINFO_EHDR);

// What a snapshot has of it: whole pages.
std::vector<uint8_t> own_bytes() {
  const auto* head = reinterpret_cast<const Elf64_Ehdr*>(here);
  size_t size = head->e_shoff + size_t{head->e_shnum} * head->e_shentsize;
  size = (size + 4095) & ~size_t{4095};
  const auto* bytes = reinterpret_cast<const uint8_t*>(here);
  return {bytes, bytes + size};
}

Image of_another_kernel() {
  Image image;
  strcpy(image.head.kernel, "5.15.0");
  image.vdso_bytes = own_bytes();
  image.vdso.vdso_start = 0x7fff00000000, image.vdso.vdso_end = 0x7fff00002000;
  reinterpret_cast<Elf64_Ehdr*>(image.vdso_bytes.data())->e_flags ^= 1;
  return image;
}

uint64_t offset_of(const char* name) {
  void* vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
  REQUIRE(vdso);
  void* function = dlsym(vdso, name);
  REQUIRE(function);
  return reinterpret_cast<uint64_t>(function) - here;
}

struct Mapped {
  explicit Mapped(const std::vector<uint8_t>& bytes) : size(bytes.size()) {
    at = static_cast<char*>(
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(at != MAP_FAILED);
    memcpy(at, bytes.data(), size);
    REQUIRE(mprotect(at, size, PROT_READ | PROT_EXEC) == 0);
  }
  ~Mapped() { munmap(at, size); }
  template <typename Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(at + offset_of(name));
  }
  char* at;
  size_t size;
};

TEST_CASE("this kernel's vdso is known as such") {
  Image image;
  image.vdso_bytes = own_bytes();
  CHECK(same_vdso(image));
  CHECK(vdso_mismatch(image).empty());
  CHECK_FALSE(same_vdso(of_another_kernel()));
}

TEST_CASE("old functions tell this kernel's time") {
  const Image image = of_another_kernel();
  REQUIRE(vdso_mismatch(image).empty());
  const Mapped old(vdso_of_jumps(image, here));
  auto get_time = old.function<int (*)(clockid_t, timespec*)>("__vdso_clock_gettime");
  for (clockid_t clock :
       {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_COARSE}) {
    timespec before, then, after;
    clock_gettime(clock, &before);
    REQUIRE(get_time(clock, &then) == 0);
    clock_gettime(clock, &after);
    auto ns = [](const timespec& t) { return t.tv_sec * 1000000000ll + t.tv_nsec; };
    CHECK(ns(before) <= ns(then));
    CHECK(ns(then) <= ns(after));
  }
  unsigned cpu = ~0u;
  CHECK(old.function<long (*)(unsigned*, unsigned*, void*)>("__vdso_getcpu")(&cpu, nullptr,
                                                                             nullptr) == 0);
  CHECK(cpu != ~0u);
  const time_t now = time(nullptr);
  CHECK(old.function<time_t (*)(time_t*)>("__vdso_time")(nullptr) >= now);
}

TEST_CASE("a thread that was inside the old vdso is refused by its number") {
  Image image = of_another_kernel();
  process::Thread t{};
  t.tid = 4711, t.flags = process::kThreadInVdso;
  image.threads.push_back(t);
  CHECK_THAT(vdso_mismatch(image), contains("4711") && contains("5.15.0"));
  image.vdso_bytes = own_bytes();
  CHECK(vdso_mismatch(image).empty());
}

TEST_CASE("damaged bytes of a vdso are refused, wherever the damage is") {
  const Image whole = of_another_kernel();
  for (size_t keep = 0; keep < whole.vdso_bytes.size(); keep += 61) {
    Image image = whole;
    image.vdso_bytes.resize(keep);
    vdso_mismatch(image);
  }
  uint64_t random = 1;
  for (int i = 0; i < 20000; ++i) {
    Image image = whole;
    for (int k = 0; k < 4; ++k) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      const auto* head = reinterpret_cast<const Elf64_Ehdr*>(whole.vdso_bytes.data());
      // Mostly where the tables are.
      const size_t at =
          random >> 63 ? head->e_shoff + (random >> 33) % 1024 : (random >> 33) % 2048;
      if (at < image.vdso_bytes.size()) image.vdso_bytes[at] = static_cast<uint8_t>(random >> 55);
    }
    vdso_mismatch(image);
  }
  Image none = whole;
  none.vdso_bytes.clear();
  CHECK_THAT(vdso_mismatch(none), contains("restore on that kernel"));
  none.vdso.vdso_end = none.vdso.vdso_start;  // the program has given it up
  CHECK(vdso_mismatch(none).empty());
}

}  // namespace
