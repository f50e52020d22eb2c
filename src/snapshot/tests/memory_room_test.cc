// The memory that control groups leave, of both hierarchies, from folders made here.
#include "snapshot/control/memory_budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <string>

#include "gpuckpt/wire.h"
#include "tests/catch.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A folder of this test's.
struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/gpuckpt-room-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { (void)!system(("rm -rf " + path).c_str()); }
  void make(const std::string& name) { REQUIRE(mkdir((path + "/" + name).c_str(), 0700) == 0); }
  void write(const std::string& name, const std::string& text) {
    FILE* f = fopen((path + "/" + name).c_str(), "w");
    REQUIRE(f);
    fputs(text.c_str(), f);
    fclose(f);
  }
  void group(const std::string& name, const char* limit, const char* usage, std::string max,
             uint64_t used) {
    write(name + "/" + limit, max + "\n");
    write(name + "/" + usage, std::to_string(used) + "\n");
  }
  MemoryRoom room() { return memory_room((path + "/cgroup").c_str(), path.c_str()); }
};

TEST_CASE("the parent's limit counts where the own group has none") {
  Folder f;
  f.make("job"), f.make("job/step");
  f.group("job", "memory.max", "memory.current", std::to_string(100 * kMiB), 80 * kMiB);
  f.group("job/step", "memory.max", "memory.current", "max", 70 * kMiB);
  f.write("job/memory.stat",
          "anon 1\nfile_mapped 1048576\nfile_dirty 1048576\nfile_writeback 0\n"
          "inactive_file 3145728\nactive_file 3145728\n");
  f.write("cgroup", "0::/job/step\n");
  const MemoryRoom r = f.room();
  CHECK(r.all == 100 * kMiB);
  CHECK(r.left == 24 * kMiB);
  CHECK(std::string(r.group) == f.path + "/job");
  CHECK_FALSE(r.tight());
}

TEST_CASE("the old hierarchy, and a path of outside the container") {
  Folder f;
  f.make("memory");
  f.group("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", std::to_string(64 * kMiB),
          63 * kMiB);
  f.write("memory/memory.stat", "inactive_file 1048576\ntotal_inactive_file 0\n");
  f.write("cgroup", "5:cpu,memory:/docker/0123/456\n0::/\n");
  const MemoryRoom r = f.room();
  CHECK(r.all == 64 * kMiB);
  CHECK(r.left == kMiB);
  CHECK(r.tight());
}

TEST_CASE("no limit is the machine") {
  Folder f;
  f.make("memory");
  f.group("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "9223372036854771712", 5);
  f.write("cgroup", "4:memory:/\n");
  CHECK(f.room().group[0] == 0);
  CHECK(f.room().all == machine_room().all);
}

TEST_CASE("a snapshot takes less where there is less") {
  MemoryRoom room;
  room.all = 1024 * kMiB;
  room.left = 1000 * kMiB;
  CHECK(memory_budget(room, false).bytes == ~0ull);
  CHECK(memory_budget(room, false).ring_slots == wire::kRingSlots);
  CHECK_FALSE(memory_budget(room, false).while_stopped);
  CHECK(memory_budget(room, true).while_stopped);
  room.left = 40 * kMiB;
  const MemoryBudget b = memory_budget(room, false);
  CHECK(b.enough());
  CHECK(b.while_stopped);
  CHECK(b.ring_slots >= 2);
  CHECK(b.ring_slots * wire::kSlotBytes <= 8 * kMiB);
  room.left = 11 * kMiB;
  CHECK_FALSE(memory_budget(room, false).enough());
}

}  // namespace
}  // namespace gpuckpt
