// malloc and free of kernels: blocks do not overlap, freed room comes back, exhaustion is null, a
// double free is an error.
#include <set>
#include "tests/catch.h"

#include "harness.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

const std::string kText = R"(.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.visible .entry take(.param .u64 po, .param .u64 pn) {
.reg .b64 %o, %n, %a; .reg .b32 %i, %g, %s; .reg .pred %p;
ld.param.u64 %o, [po]; ld.param.u64 %n, [pn];
mov.u32 %i, %tid.x; mov.u32 %g, %ctaid.x; mov.u32 %s, %ntid.x; mad.lo.u32 %i, %g, %s, %i;
{ .param .b64 x; .param .b64 r; st.param.b64 [x], %n; call.uni (r), malloc, (x); ld.param.b64 %a, [r]; }
mad.wide.u32 %o, %i, 8, %o; st.global.u64 [%o], %a;
setp.eq.u64 %p, %a, 0; @%p bra done; st.u32 [%a], %i;
done: ret; }
.visible .entry give(.param .u64 po) {
.reg .b64 %o, %a; .reg .b32 %i, %g, %s;
ld.param.u64 %o, [po]; mov.u32 %i, %tid.x; mov.u32 %g, %ctaid.x; mov.u32 %s, %ntid.x;
mad.lo.u32 %i, %g, %s, %i; mad.wide.u32 %o, %i, 8, %o; ld.global.u64 %a, [%o];
{ .param .b64 x; st.param.b64 [x], %a; call.uni free, (x); }
ret; }
)";

class HeapMemory : public Memory {
 public:
  HeapMemory(Memory& flat, uint64_t at, uint64_t bytes) : flat_(flat), at_(at), bytes_(bytes) {}
  bool find(uint64_t address, Segment* out) override { return flat_.find(address, out); }
  bool heap(uint64_t* address, uint64_t* bytes) override {
    *address = at_;
    *bytes = bytes_;
    return true;
  }

 private:
  Memory& flat_;
  const uint64_t at_, bytes_;
};

}  // namespace

TEST_CASE("blocks of many threads do not overlap and come back when freed", "[heap]") {
  Gpu gpu(8 << 20);
  REQUIRE(gpu.load(kText));
  const uint64_t bytes = 1 << 20;
  HeapMemory memory(gpu.memory_, gpu.zeros(bytes), bytes);
  const uint64_t out = gpu.zeros(1024 * 8);
  auto launch = [&](const char* name, std::vector<Arg> args) {
    Launch l = gpu.prepare(name, 8, 128, args);
    l.memory = &memory;
    return run(pool(), l).outcome;
  };
  for (int round = 0; round < 3; ++round) {
    REQUIRE(launch("take", {out, uint64_t(100)}) == Outcome::kDone);
    std::set<uint64_t> seen;
    for (uint64_t a : gpu.read<uint64_t>(out, 1024)) {
      REQUIRE(a != 0);
      CHECK(a % 16 == 0);
      auto next = seen.lower_bound(a);
      if (next != seen.end()) CHECK(*next - a >= 100);
      if (next != seen.begin()) CHECK(a - *std::prev(next) >= 100);
      seen.insert(a);
    }
    REQUIRE(launch("give", {out}) == Outcome::kDone);
    // All is one piece again: nearly the whole heap can be had by one thread.
    Launch l = gpu.prepare("take", 1, 1, {out, bytes - 4096});
    l.memory = &memory;
    REQUIRE(run(pool(), l).outcome == Outcome::kDone);
    REQUIRE(gpu.read<uint64_t>(out, 1)[0] != 0);
    l = gpu.prepare("give", 1, 1, {out});
    l.memory = &memory;
    REQUIRE(run(pool(), l).outcome == Outcome::kDone);
    CHECK(run(pool(), l).outcome == Outcome::kIllegalAddress);  // twice
  }
}

TEST_CASE("a full heap gives null, and so does none", "[heap]") {
  Gpu gpu(8 << 20);
  REQUIRE(gpu.load(kText));
  const uint64_t out = gpu.zeros(64 * 8);
  REQUIRE(gpu.run("take", 1, 32, {out, uint64_t(16)}).outcome == Outcome::kDone);
  for (uint64_t a : gpu.read<uint64_t>(out, 32)) CHECK(a == 0);
  HeapMemory memory(gpu.memory_, gpu.zeros(4096), 4096);
  Launch l = gpu.prepare("take", 1, 32, {out, uint64_t(500)});
  l.memory = &memory;
  REQUIRE(run(pool(), l).outcome == Outcome::kDone);
  unsigned given = 0;
  for (uint64_t a : gpu.read<uint64_t>(out, 32)) given += a != 0;
  CHECK(given == 7);
}
