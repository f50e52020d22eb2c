// Asynchronous barriers and bulk copies, as libcu++ uses them on compute capability 9.0.
#include <catch2/catch.hpp>

#include "harness.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

const char* kHead90 = ".version 8.7\n.target sm_90\n.address_size 64\n";

}  // namespace

TEST_CASE("every warp waits at an mbarrier until all have arrived, phase by phase", "[async]") {
  // Each thread adds its number in each of 4 phases; after each wait it must see all 128 of them.
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 po) {
.reg .b32 %i, %s, %n, %phase, %bad, %want; .reg .b64 %o, %t; .reg .pred %p, %q;
.shared .align 8 .b64 bar; .shared .b32 sum;
mov.u32 %i, %tid.x; setp.ne.u32 %p, %i, 0; mov.u32 %bad, 0; mov.u32 %phase, 0;
@%p bra ready;
mov.u32 %n, 128; mbarrier.init.shared.b64 [bar], %n;
ready: bar.sync 0;
loop:
red.shared.add.u32 [sum], 1;
and.b32 %n, %phase, 1; setp.eq.u32 %q, %n, 0;
@%q bra parity;
mbarrier.arrive.shared.b64 %t, [bar];
wait: mbarrier.try_wait.shared.b64 %p, [bar], %t; @!%p bra wait;
bra over;
parity: mbarrier.arrive.shared.b64 _, [bar]; and.b32 %n, %phase, 1;
wait2: mbarrier.test_wait.parity.shared.b64 %p, [bar], %n; @!%p bra wait2;
over:
ld.shared.u32 %s, [sum]; add.u32 %phase, %phase, 1; mul.lo.u32 %want, %phase, 128;
setp.lt.u32 %p, %s, %want; @%p add.u32 %bad, %bad, 1;
bar.sync 0;
setp.lt.u32 %p, %phase, 4; @%p bra loop;
ld.param.u64 %o, [po]; mad.wide.u32 %o, %i, 4, %o; st.global.u32 [%o], %bad; ret; })";
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(s));
  const uint64_t out = gpu.zeros(512);
  const Result r = gpu.run("k", 1, 128, {out});
  REQUIRE(std::string(r.text) == "");
  for (uint32_t v : gpu.read<uint32_t>(out, 128)) CHECK(v == 0);
}

TEST_CASE("a bulk copy arrives before who waits for its bytes goes on", "[async]") {
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 pi, .param .u64 po) {
.reg .b32 %i, %n, %a, %z; .reg .b64 %o, %in, %t, %g; .reg .pred %p;
.shared .align 16 .b8 data[256]; .shared .align 8 .b64 bar;
ld.param.u64 %in, [pi]; ld.param.u64 %o, [po]; cvta.to.global.u64 %g, %in;
mov.u32 %i, %tid.x; setp.ne.u32 %p, %i, 0; mov.u32 %z, 0;
@%p bra ready;
mov.u32 %n, 1; mbarrier.init.shared::cta.b64 [bar], %n; fence.mbarrier_init.release.cluster;
mov.u32 %n, 256; mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %t, [bar], %n;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%g], %n, [bar];
ready: bar.sync 0;
wait: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], %z; @!%p bra wait;
mov.u32 %a, data; mad.lo.u32 %a, %i, 4, %a; ld.shared.u32 %n, [%a]; add.u32 %n, %n, 1;
st.shared.u32 [%a], %n;
bar.sync 0; setp.ne.u32 %p, %i, 0; @%p bra done;
mov.u32 %n, 256; fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%o], [data], %n;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
done: ret; })";
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  std::vector<uint32_t> in(64);
  for (uint32_t k = 0; k < 64; ++k) in[k] = k * 7;
  const uint64_t out = gpu.zeros(256);
  const Result r = gpu.run("k", 1, 64, {gpu.array(in), out});
  REQUIRE(std::string(r.text) == "");
  const auto got = gpu.read<uint32_t>(out, 64);
  for (uint32_t k = 0; k < 64; ++k) CHECK(got[k] == k * 7 + 1);
}

TEST_CASE("wrong use of an mbarrier is an error with its address", "[async]") {
  auto outcome = [](const std::string& body) {
    Gpu gpu(1 << 20);
    REQUIRE(gpu.load(std::string(kHead90) + ".visible .entry k() { .reg .b64 %t; .reg .b32 %n;\n" +
                     ".shared .align 8 .b64 bar; mov.u32 %n, 1;\n" + body + "ret; }"));
    return gpu.run("k", 1, 1, {}).outcome;
  };
  CHECK(outcome("mbarrier.arrive.shared.b64 %t, [bar];") == Outcome::kIllegalInstruction);
  CHECK(outcome("mbarrier.init.shared.b64 [bar], 0;") == Outcome::kIllegalInstruction);
  CHECK(outcome("mbarrier.init.shared.b64 [bar+4], %n;") == Outcome::kMisaligned);
  CHECK(outcome("mbarrier.init.shared.b64 [bar], %n; mbarrier.arrive.shared.b64 %t, [bar], 2;") ==
        Outcome::kIllegalInstruction);
}
