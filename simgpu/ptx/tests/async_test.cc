// Asynchronous barriers and bulk copies, as libcu++ uses them on compute capability 9.0.
#include "tests/catch.h"

#include "ptx/tensor_map.h"
#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

const char* kHead90 = ".version 8.7\n.target sm_90\n.address_size 64\n";

}  // namespace

TEST_CASE("no launch is cancelled in favour of a block that runs", "[async]") {
  std::string error;
  const auto got = lanes<uint32_t>(R"(
.shared .align 8 .b64 told; .shared .align 16 .b8 answer[16]; .reg .b128 %answer; .reg .pred %lead;
setp.eq.u32 %lead, %lane, 0;
@%lead st.shared.v4.u32 [answer], {1, 2, 3, 4};
@%lead mbarrier.init.shared.b64 [told], 1;
@%lead mbarrier.arrive.expect_tx.shared.b64 _, [told], 16;
bar.sync 0;
@%lead clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [answer], [told];
wait: mbarrier.try_wait.parity.shared.b64 %q0, [told], 0; @!%q0 bra wait;
ld.shared.b128 %answer, [answer];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %q1, %answer;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%t0, %t1, %t2, _}, %answer;
clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %t3, %answer;
selp.u32 %d, 1, 2, %q1;
)",
                                   {0}, {}, {}, &error);
  REQUIRE(error == "");
  for (uint32_t v : got) CHECK(v == 2);
}

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

TEST_CASE("a bulk copy arrives before a thread that waits for its bytes continues", "[async]") {
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

TEST_CASE("a reducing bulk copy adds, compares or combines each element", "[async]") {
  // Each of 16 blocks fills 16 words with its number plus the word's, and reduces them into memory.
  auto run_all = [](const std::string& what, const std::string& value, uint32_t before) {
    const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 po) {
.reg .b32 %i, %b, %n, %a; .reg .f32 %f; .reg .b64 %o; .reg .pred %p; .shared .align 16 .b8 data[64];
ld.param.u64 %o, [po]; mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; add.u32 %n, %i, %b;
)" + value + R"(
mov.u32 %a, data; mad.lo.u32 %a, %i, 4, %a; st.shared.u32 [%a], %n; bar.sync 0;
setp.ne.u32 %p, %i, 0; @%p bra done; mov.u32 %n, 64; fence.proxy.async.shared::cta;
cp.reduce.async.bulk.global.shared::cta.bulk_group.)" +
                          what + R"( [%o], [data], %n;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
done: ret; })";
    Gpu gpu(1 << 20);
    const bool loaded = gpu.load(s);
    INFO(gpu.error);
    REQUIRE(loaded);
    const uint64_t out = gpu.array(std::vector<uint32_t>(16, before));
    const Result r = gpu.run("k", 16, 16, {out});
    REQUIRE(std::string(r.text) == "");
    return gpu.read<uint32_t>(out, 16);
  };
  const auto sums = run_all("add.u32", "", 5),
             largest = run_all("max.s32", "sub.u32 %n, 0, %n;", -9),
             bits = run_all("xor.b32", "", 0), counts = run_all("inc.u32", "mov.u32 %n, 20;", 10);
  const auto reals = run_all("add.f32", "cvt.rn.f32.u32 %f, %n; mov.b32 %n, %f;", 0);
  // 1.0 and 2.0, in halves.
  const auto halves = run_all("add.noftz.f16", "mov.u32 %n, 0x40003c00;", 0);
  for (uint32_t k = 0; k < 16; ++k) {
    uint32_t mixed = 0;
    for (uint32_t b = 0; b < 16; ++b) mixed ^= k + b;
    CHECK(sums[k] == 5 + 16 * k + 120);
    CHECK((int32_t)largest[k] == (k > 9 ? -9 : -(int32_t)k));
    CHECK(bits[k] == mixed);
    CHECK(counts[k] == 5);  // 10 ... 20, 0 ... 5
    float f;
    memcpy(&f, &reals[k], 4);
    CHECK(f == (float)(16 * k + 120));
    CHECK(halves[k] == 0x50004c00u);  // 16 and 32
  }
}

TEST_CASE("a reducing bulk copy into shared memory tells the barrier", "[async]") {
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 po) {
.reg .b32 %n, %z; .reg .b64 %o, %t; .reg .pred %p;
.shared .align 16 .b8 from[16]; .shared .align 16 .b8 to[16]; .shared .align 8 .b64 bar;
ld.param.u64 %o, [po]; mov.u32 %z, 0; mov.u32 %n, 1; mbarrier.init.shared::cta.b64 [bar], %n;
mov.u32 %n, 7; st.shared.u32 [from], %n; st.shared.u32 [from+4], %n; st.shared.u32 [from+8], %n;
st.shared.u32 [from+12], %n; mov.u32 %n, 12; st.shared.u32 [to+4], %n; mov.u32 %n, 16;
mbarrier.arrive.expect_tx.shared::cta.b64 %t, [bar], %n;
cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.and.b32 [to], [from], %n, [bar];
wait: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], %z; @!%p bra wait;
ld.shared.u32 %n, [to]; st.global.u32 [%o], %n; ld.shared.u32 %n, [to+4]; st.global.u32 [%o+4], %n; ret; })";
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  const uint64_t out = gpu.zeros(8);
  const Result r = gpu.run("k", 1, 1, {out});
  REQUIRE(std::string(r.text) == "");
  CHECK(gpu.read<uint32_t>(out, 2) == std::vector<uint32_t>{0, 4});
}

TEST_CASE("asynchronous stores and reductions reach another block and tell its barrier",
          "[async]") {
  // Block 0 of a cluster of 2 writes into block 1, which waits for 4 x 16 and 4 x 4 bytes.
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 po) .reqnctapercluster 2, 1, 1 {
.reg .b32 %n, %z, %r, %i, %to, %b; .reg .b64 %o, %t; .reg .pred %p;
.shared .align 16 .b8 data[64]; .shared .align 8 .b64 bar; .shared .b32 sum;
ld.param.u64 %o, [po]; mov.u32 %r, %cluster_ctarank; mov.u32 %z, 0; mov.u32 %i, %tid.x;
setp.ne.u32 %p, %i, 0; @%p bra ready; mov.u32 %n, 1; mbarrier.init.shared::cta.b64 [bar], %n;
mov.u32 %n, 100; st.shared.u32 [sum], %n; mov.u32 %n, 80;
mbarrier.arrive.expect_tx.shared::cta.b64 %t, [bar], %n;
ready: barrier.cluster.arrive; barrier.cluster.wait;
setp.ne.u32 %p, %r, 0; @%p bra wait;
mov.u32 %n, 1; mov.u32 %to, data; mad.lo.u32 %to, %i, 16, %to; mapa.shared::cluster.u32 %to, %to, %n;
mov.u32 %b, bar; mapa.shared::cluster.u32 %b, %b, %n;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%to], {%i, %n, %z, %i}, [%b];
mov.u32 %to, sum; mapa.shared::cluster.u32 %to, %to, %n;
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%to], %i, [%b];
bra done;
wait: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], %z; @!%p bra wait;
mov.u32 %to, data; mad.lo.u32 %to, %i, 16, %to; mad.wide.u32 %o, %i, 8, %o;
ld.shared.u32 %n, [%to+12]; st.global.u32 [%o], %n; ld.shared.u32 %n, [sum]; st.global.u32 [%o+4], %n;
done: barrier.cluster.arrive; barrier.cluster.wait; ret; })";
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  const uint64_t out = gpu.zeros(32);
  Launch l = gpu.prepare("k", 2, 4, {out});
  l.cluster[0] = 2;
  const Result r = run(pool(), l);
  REQUIRE(std::string(r.text) == "");
  CHECK(gpu.read<uint32_t>(out, 8) == std::vector<uint32_t>{0, 106, 1, 106, 2, 106, 3, 106});
}

TEST_CASE("a bulk store writes zeros and nothing beside them", "[async]") {
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 po) {
.reg .b32 %a, %n; .reg .b64 %o, %size; .shared .align 16 .b8 data[32];
ld.param.u64 %o, [po]; mov.u32 %n, 7; mov.u32 %a, data; mov.u64 %size, 8;
st.shared.v4.u32 [data], {%n, %n, %n, %n}; st.shared.v4.u32 [data+16], {%n, %n, %n, %n};
st.bulk.weak.shared::cta [%a+8], %size, 0;
ld.shared.u32 %n, [data+4]; st.global.u32 [%o], %n; ld.shared.u32 %n, [data+8]; st.global.u32 [%o+4], %n;
ld.shared.u32 %n, [data+12]; st.global.u32 [%o+8], %n; ld.shared.u32 %n, [data+16]; st.global.u32 [%o+12], %n;
ret; })";
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  const uint64_t out = gpu.zeros(16);
  const Result r = gpu.run("k", 1, 1, {out});
  REQUIRE(std::string(r.text) == "");
  CHECK(gpu.read<uint32_t>(out, 4) == std::vector<uint32_t>{7, 0, 0, 7});
}

TEST_CASE("cp.async reads nothing where a predicate says so", "[async]") {
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 pi, .param .u64 po) {
.reg .b32 %i, %a, %n; .reg .b64 %in, %o; .reg .pred %p; .shared .align 16 .b8 data[64];
ld.param.u64 %in, [pi]; ld.param.u64 %o, [po]; mov.u32 %i, %tid.x; mov.u32 %a, data;
mad.lo.u32 %a, %i, 4, %a; mad.wide.u32 %in, %i, 4, %in; mad.wide.u32 %o, %i, 4, %o;
mov.u32 %n, 99; st.shared.u32 [%a], %n; setp.gt.u32 %p, %i, 3;
cp.async.ca.shared.global [%a], [%in], 4, %p; cp.async.wait_all;
ld.shared.u32 %n, [%a]; st.global.u32 [%o], %n; ret; })";
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  const uint64_t out = gpu.zeros(32);
  const Result r =
      gpu.run("k", 1, 8, {gpu.array(std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}), out});
  REQUIRE(std::string(r.text) == "");
  CHECK(gpu.read<uint32_t>(out, 8) == std::vector<uint32_t>{1, 2, 3, 4, 0, 0, 0, 0});
}

TEST_CASE("a reducing tensor copy adds what lies inside", "[async]") {
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 pm) {
.reg .b32 %n, %i, %a; .reg .b64 %map; .reg .pred %p; .shared .align 128 .b8 box[64];
ld.param.u64 %map, [pm]; mov.u32 %i, %tid.x; mov.u32 %a, box; mad.lo.u32 %a, %i, 4, %a;
add.u32 %n, %i, 1; st.shared.u32 [%a], %n; bar.sync 0; setp.ne.u32 %p, %i, 0; @%p bra done;
mov.u32 %n, 2; cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%map, {%n, %n}], [box];
done: ret; })";
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  TensorMap m{};
  m.magic = TensorMap::kMagic;
  m.type = 2;  // CU_TENSOR_MAP_DATA_TYPE_UINT32
  m.element_bytes = 4;
  m.dimensions = 2;
  m.last[0] = m.last[1] = 3;
  m.strides[0] = 16;
  m.box[0] = m.box[1] = 4;
  m.step[0] = m.step[1] = 1;
  m.address = gpu.array(std::vector<uint32_t>(16, 100));
  const Result r = gpu.run("k", 1, 16, {gpu.array(std::vector<TensorMap>{m})});
  REQUIRE(std::string(r.text) == "");
  const auto got = gpu.read<uint32_t>(m.address, 16);
  for (uint32_t y = 0; y < 4; ++y)
    for (uint32_t x = 0; x < 4; ++x)
      CHECK(got[y * 4 + x] == 100 + (x < 2 || y < 2 ? 0 : (y - 2) * 4 + x - 2 + 1));
}

TEST_CASE("a bulk copy to many blocks of a cluster tells each one's barrier", "[async]") {
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 pi, .param .u64 po) .reqnctapercluster 4, 1, 1 {
.reg .b32 %n, %z, %r; .reg .b16 %m; .reg .b64 %o, %in, %t; .reg .pred %p;
.shared .align 16 .b8 data[16]; .shared .align 8 .b64 bar;
ld.param.u64 %in, [pi]; ld.param.u64 %o, [po]; mov.u32 %r, %cluster_ctarank; mov.u32 %z, 0;
mov.u32 %n, 1; mbarrier.init.shared::cta.b64 [bar], %n; st.shared.u32 [data], 99;
mov.u32 %n, 16; setp.eq.u32 %p, %r, 1; @%p mov.u32 %n, 0;
mbarrier.arrive.expect_tx.shared::cta.b64 %t, [bar], %n;
barrier.cluster.arrive; barrier.cluster.wait;
setp.ne.u32 %p, %r, 2; @%p bra wait; mov.u32 %n, 16; mov.b16 %m, 13;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [data], [%in], %n, [bar], %m;
wait: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], %z; @!%p bra wait;
ld.shared.u32 %n, [data]; mad.wide.u32 %o, %r, 4, %o; st.global.u32 [%o], %n;
barrier.cluster.arrive; barrier.cluster.wait; ret; })";
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  const uint64_t out = gpu.zeros(16);
  Launch l = gpu.prepare("k", 4, 1, {gpu.array(std::vector<uint32_t>{7, 8, 9, 10}), out});
  l.cluster[0] = 4;
  const Result r = run(pool(), l);
  REQUIRE(std::string(r.text) == "");
  CHECK(gpu.read<uint32_t>(out, 4) == std::vector<uint32_t>{7, 99, 7, 7});
}

namespace {

// One load of a box of up to 1 KiB: `copy` with the map in %map, a box `box` and a barrier `bar`.
std::string tensor_load(const std::string& copy, unsigned bytes) {
  return std::string(kHead90) + R"(
.visible .entry k(.param .u64 pm, .param .u64 po) {
.reg .b32 %n, %i, %z; .reg .b16 %h<4>; .reg .b64 %map, %o, %t; .reg .pred %p;
.shared .align 1024 .b8 box[1024]; .shared .align 8 .b64 bar;
ld.param.u64 %map, [pm]; ld.param.u64 %o, [po]; mov.u32 %z, 0;
mov.u32 %n, 1; mbarrier.init.shared::cta.b64 [bar], %n; mov.u32 %n, )" +
         std::to_string(bytes) + R"(;
mbarrier.arrive.expect_tx.shared::cta.b64 %t, [bar], %n;
)" + copy +
         R"(
wait: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], %z; @!%p bra wait;
mov.u32 %i, box;
next: ld.shared.u32 %z, [%i]; st.global.u32 [%o], %z; add.u32 %i, %i, 4; add.u64 %o, %o, 4;
sub.u32 %n, %n, 4; setp.ne.u32 %p, %n, 0; @%p bra next; ret; })";
}

}  // namespace

// The columns of a convolution of a 5 x 4 image of 4 channels with a 3 x 3 filter and a border of
// zeros, twice: two images.
TEST_CASE("im2col gives a convolution its columns", "[async]") {
  constexpr int kC = 4, kW = 5, kH = 4, kN = 2, kPixels = 24;
  std::vector<float> image(kC * kW * kH * kN);
  for (size_t k = 0; k < image.size(); ++k) image[k] = (float)k + 1;
  for (int s = 0; s < 3; ++s)
    for (int r = 0; r < 3; ++r) {
      Gpu gpu(1 << 20);
      const std::string copy =
          "mov.b16 %h0, " + std::to_string(s) + "; mov.b16 %h1, " + std::to_string(r) +
          "; cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
          "[box], [%map, {0, -1, -1, 0}], [bar], {%h0, %h1};";
      const bool loaded = gpu.load(tensor_load(copy, kPixels * kC * 4));
      INFO(gpu.error);
      REQUIRE(loaded);
      TensorMap m{};
      m.magic = TensorMap::kMagic;
      m.element_bytes = 4;
      m.dimensions = 4;
      m.mode = TensorMap::kIm2col;
      m.address = gpu.array(image);
      const uint32_t extent[] = {kC, kW, kH, kN};
      uint64_t stride = 4;
      for (int d = 0; d < 4; ++d) {
        m.last[d] = extent[d] - 1;
        if (d > 0) m.strides[d - 1] = stride;
        stride *= extent[d];
        m.step[d] = 1;
      }
      m.box[0] = kC;
      m.box[1] = kPixels;
      for (int k = 0; k < 2; ++k) m.lower[k] = m.upper[k] = -1;  // border 1, filter 3
      const uint64_t out = gpu.zeros(kPixels * kC * 4);
      const Result result = gpu.run("k", 1, 1, {gpu.array(std::vector<TensorMap>{m}), out});
      REQUIRE(std::string(result.text) == "");
      const auto got = gpu.read<float>(out, kPixels * kC);
      for (int pixel = 0; pixel < kPixels; ++pixel)
        for (int channel = 0; channel < kC; ++channel) {
          const int x = pixel % kW + s - 1, y = pixel / kW % kH + r - 1, n = pixel / kW / kH;
          const bool inside = x >= 0 && x < kW && y >= 0 && y < kH;
          const float want = inside ? image[(size_t)(((n * kH + y) * kW + x) * kC + channel)] : 0;
          CHECK(got[(size_t)(pixel * kC + channel)] == want);
        }
    }
}

namespace {

// A map of a matrix of `rows` rows of 8 words, whose box is one row of 4.
TensorMap row_map(Gpu& gpu, uint32_t rows, const std::vector<uint32_t>& words) {
  TensorMap m{};
  m.magic = TensorMap::kMagic;
  m.type = 2;  // CU_TENSOR_MAP_DATA_TYPE_UINT32
  m.element_bytes = 4;
  m.dimensions = 2;
  m.last[0] = 7;
  m.last[1] = rows - 1;
  m.strides[0] = 32;
  m.box[0] = 4;
  m.box[1] = 1;
  m.step[0] = m.step[1] = 1;
  m.address = gpu.array(words);
  return m;
}
std::vector<uint32_t> counted(uint32_t count) {
  std::vector<uint32_t> v(count);
  for (uint32_t k = 0; k < count; ++k) v[k] = 1000 + k;
  return v;
}

}  // namespace

TEST_CASE("a gathering tensor copy reads four rows in their order", "[async]") {
  Gpu gpu(1 << 20);
  const std::string copy =
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes "
      "[box], [%map, {2, 5, 0, 9, 5}], [bar];";
  const bool loaded = gpu.load(tensor_load(copy, 64));
  INFO(gpu.error);
  REQUIRE(loaded);
  const TensorMap m = row_map(gpu, 6, counted(48));
  const uint64_t out = gpu.zeros(64);
  const Result result = gpu.run("k", 1, 1, {gpu.array(std::vector<TensorMap>{m}), out});
  REQUIRE(std::string(result.text) == "");
  const auto got = gpu.read<uint32_t>(out, 16);
  const uint32_t row[4] = {5, 0, 9, 5};  // 9 lies outside: zeros
  for (uint32_t r = 0; r < 4; ++r)
    for (uint32_t c = 0; c < 4; ++c)
      CHECK(got[r * 4 + c] == (row[r] < 6 ? 1000 + row[r] * 8 + 2 + c : 0));

  TensorMap wide = m;
  wide.box[1] = 4;
  CHECK(gpu.run("k", 1, 1, {gpu.array(std::vector<TensorMap>{wide}), out}).outcome ==
        Outcome::kIllegalInstruction);
}

TEST_CASE("a scattering tensor copy writes four rows and nothing else", "[async]") {
  Gpu gpu(1 << 20);
  const std::string s = std::string(kHead90) + R"(
.visible .entry k(.param .u64 pm) {
.reg .b32 %n, %i, %a; .reg .b64 %map; .reg .pred %p; .shared .align 128 .b8 box[64];
ld.param.u64 %map, [pm]; mov.u32 %i, %tid.x; mov.u32 %a, box; mad.lo.u32 %a, %i, 4, %a;
add.u32 %n, %i, 1; st.shared.u32 [%a], %n; bar.sync 0; setp.ne.u32 %p, %i, 0; @%p bra done;
mov.u32 %n, 6; cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%map, {%n, 3, 1, -1, 4}], [box];
done: ret; })";
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  const TensorMap m = row_map(gpu, 6, counted(48));
  const Result r = gpu.run("k", 1, 16, {gpu.array(std::vector<TensorMap>{m})});
  REQUIRE(std::string(r.text) == "");
  std::vector<uint32_t> want = counted(48);
  const int row[4] = {3, 1, -1, 4};
  for (int k = 0; k < 4; ++k)
    for (int c = 0; c < 2 && row[k] >= 0; ++c)  // columns 6 and 7; what is beyond is not written
      want[(size_t)(row[k] * 8 + 6 + c)] = (uint32_t)(k * 4 + c + 1);
  CHECK(gpu.read<uint32_t>(m.address, 48) == want);
}

TEST_CASE("wrong use of a tensor map is an error with its address", "[async]") {
  TensorMap m{};
  m.magic = TensorMap::kMagic;
  m.element_bytes = 4;
  m.dimensions = 2;
  m.last[0] = m.last[1] = 7;
  m.strides[0] = 32;
  m.box[0] = m.box[1] = 4;
  m.step[0] = m.step[1] = 1;
  auto outcome = [&](const std::string& copy, auto change) {
    Gpu gpu(1 << 20);
    const bool loaded = gpu.load(tensor_load(copy, 64));
    INFO(gpu.error);
    REQUIRE(loaded);
    TensorMap changed = m;
    changed.address = gpu.zeros(256);
    change(changed);
    return gpu.run("k", 1, 1, {gpu.array(std::vector<TensorMap>{changed}), gpu.zeros(1024)})
        .outcome;
  };
  const std::string two =
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [box], [%map, "
      "{0, "
      "0}], [bar];";
  const std::string three =
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [box], [%map, "
      "{0, "
      "0, 0}], [bar];";
  const std::string odd =
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [box+64], "
      "[%map, "
      "{0, 0}], [bar];";
  auto same = [](TensorMap&) {};
  CHECK(outcome(two, same) == Outcome::kDone);
  CHECK(outcome(three, same) == Outcome::kIllegalInstruction);
  CHECK(outcome(odd, same) == Outcome::kMisaligned);
  CHECK(outcome(two, [](TensorMap& t) { t.magic = 0; }) == Outcome::kIllegalInstruction);
  CHECK(outcome(two, [](TensorMap& t) { t.address = 16; }) == Outcome::kIllegalAddress);
  CHECK(outcome(two, [](TensorMap& t) { t.mode = TensorMap::kIm2col; }) ==
        Outcome::kIllegalInstruction);
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
