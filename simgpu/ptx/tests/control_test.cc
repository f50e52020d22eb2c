// Divergence, barriers, operations across lanes, calls, memory faults, printf, errors.
#include <algorithm>
#include <chrono>
#include <thread>
#include "tests/catch.h"

#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

using Words = std::vector<uint32_t>;

Words iota(uint32_t n = 32, uint32_t first = 0) {
  Words w(n);
  for (uint32_t i = 0; i < n; ++i) w[i] = first + i;
  return w;
}

// A module of one kernel `k(.param .u64 out, .param .u64 in)` with %out, %in loaded.
std::string kernel_text(const std::string& body, const std::string& before = "") {
  return std::string(kHead) + before +
         ".visible .entry k(.param .u64 po, .param .u64 pi) {\n"
         ".reg .b32 %r<32>; .reg .b64 %rd<16>, %out, %in; .reg .pred %p<8>; .reg .f32 %f<8>; .reg "
         ".b16 %h<8>;\n"
         "ld.param.u64 %out, [po]; ld.param.u64 %in, [pi];\n" +
         body + "\nret;\n}\n";
}

}  // namespace

TEST_CASE("lanes that spin on a lock of their own warp get it", "[divergence]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(kernel_text(R"(
TRY:
    atom.global.cas.b32 %r0, [%in], 0, 1;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 bra TRY;
    ld.volatile.global.u32 %r1, [%in+4];
    add.u32 %r1, %r1, 1;
    st.volatile.global.u32 [%in+4], %r1;
    membar.gl;
    atom.global.exch.b32 %r0, [%in], 0;
)")));
  uint64_t in = gpu.zeros(64);
  Result r = gpu.run("k", 4, 128, {in, in});
  CHECK(r.outcome == Outcome::kDone);
  CHECK(gpu.read<uint32_t>(in + 4, 1)[0] == 512);
}

TEST_CASE("a lane waits for a value that another lane writes after the loop", "[divergence]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(kernel_text(R"(
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 5;
    @%p0 bra WRITE;
WAIT:
    ld.volatile.global.u32 %r1, [%in];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra WAIT;
    bra DONE;
WRITE:
    st.volatile.global.u32 [%in], 77;
DONE:
    mad.wide.u32 %rd0, %r0, 4, %out;
    st.global.u32 [%rd0], %r0;
)")));
  uint64_t in = gpu.zeros(64), out = gpu.zeros(4096);
  CHECK(gpu.run("k", 1, 64, {out, in}).outcome == Outcome::kDone);
  CHECK(gpu.read<uint32_t>(out, 64) == iota(64));
}

// What -G makes of a semaphore: each stretch between two calls is shorter than any slice, the
// waiter is always in the deepest frame, and what it reads changes all the time.
TEST_CASE("a lane that waits in a loop of calls lets the others go on", "[divergence]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(kernel_text(R"(
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 5;
    mov.u32 %r4, 0;
    @%p0 bra WORK;
    call (%r2), wait, (%in);
    st.global.u32 [%out], %r2;
    bra DONE;
WORK:
    call step, (%in, %r0);
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, 3;
    @%p1 bra WORK;
DONE:
)",
                               R"(
.func (.reg .u32 v) look(.reg .u64 p) { ld.volatile.global.u32 v, [p]; ret; }
.func (.reg .u32 v) ask(.reg .u64 p) {
  .reg .u32 n;
  atom.global.add.u32 n, [p+8], 1;
  call (v), look, (p);
  ret;
}
.func (.reg .u32 v) wait(.reg .u64 p) {
  .reg .pred early;
AGAIN:
  call (v), ask, (p);
  setp.lt.u32 early, v, 93;
  @early bra AGAIN;
  ret;
}
.func step(.reg .u64 p, .reg .u32 t) { .reg .u32 v; atom.global.add.u32 v, [p], 1; ret; }
)")));
  uint64_t in = gpu.zeros(64);
  Result r = gpu.run("k", 1, 32, {in + 4, in});
  CHECK(r.outcome == Outcome::kDone);
  CHECK(gpu.read<uint32_t>(in, 2) == Words{93, 93});
}

TEST_CASE("divergent loops and early exits meet again", "[divergence]") {
  // Each lane loops tid times, odd lanes leave early by exit; the rest votes together afterwards.
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(kernel_text(R"(
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, 0;
    mov.u32 %r2, 0;
LOOP:
    setp.ge.u32 %p0, %r1, %r0;
    @%p0 bra OUT;
    and.b32 %r3, %r1, 3;
    setp.eq.u32 %p1, %r3, 3;
    @%p1 bra SKIP;
    add.u32 %r2, %r2, %r1;
SKIP:
    add.u32 %r1, %r1, 1;
    bra LOOP;
OUT:
    and.b32 %r3, %r0, 1;
    setp.eq.u32 %p2, %r3, 1;
    @%p2 exit;
    activemask.b32 %r4;
    setp.gt.u32 %p3, %r2, 100;
    vote.sync.ballot.b32 %r5, %p3, 0x55555555;
    mad.wide.u32 %rd0, %r0, 12, %out;
    st.global.u32 [%rd0], %r2;
    st.global.u32 [%rd0+4], %r4;
    st.global.u32 [%rd0+8], %r5;
)")));
  uint64_t out = gpu.zeros(4096);
  REQUIRE(gpu.run("k", 1, 32, {out, out}).outcome == Outcome::kDone);
  auto v = gpu.read<uint32_t>(out, 96);
  uint32_t ballot = 0;
  Words sum(32);
  for (uint32_t t = 0; t < 32; ++t) {
    for (uint32_t i = 0; i < t; ++i)
      if (i % 4 != 3) sum[t] += i;
    if (t % 2 == 0 && sum[t] > 100) ballot |= 1u << t;
  }
  for (uint32_t t = 0; t < 32; t += 2) {
    CHECK(v[3 * t] == sum[t]);
    CHECK(v[3 * t + 1] == 0x55555555);
    CHECK(v[3 * t + 2] == ballot);
  }
}

TEST_CASE("shuffles at their edges", "[warp]") {
  auto shfl = [](const std::string& mode, const std::string& b, const std::string& c) {
    return lanes<uint32_t>("shfl.sync." + mode + ".b32 %t0|%q0, %a, " + b + ", " + c +
                               ", 0xffffffff; selp.u32 %t1, 1000, 0, %q0; add.u32 %d, %t0, %t1;",
                           iota());
  };
  auto up = shfl("up", "3", "0"), down = shfl("down", "3", "0x1f"),
       bfly = shfl("bfly", "16", "0x1f"), idx = shfl("idx", "5", "0x1f"),
       segment = shfl("idx", "1", "0x1c1f"), half = shfl("down", "1", "0x181f");
  for (uint32_t l = 0; l < 32; ++l) {
    CHECK(up[l] == (l >= 3 ? 1000 + l - 3 : l));
    CHECK(down[l] == (l + 3 <= 31 ? 1000 + l + 3 : l));
    CHECK(bfly[l] == 1000 + (l ^ 16));
    CHECK(idx[l] == 1005);
    CHECK(segment[l] == 1000 + (l & 28) + 1);
    CHECK(half[l] == (l % 8 != 7 ? 1000 + l + 1 : l));
  }
}

// Whole warps shuffle by a shorter way than warps of which a lane is missing.
TEST_CASE("shuffles of a whole warp and of all its lanes but one agree", "[warp]") {
  Words value(32), from(32), limits(32);
  uint32_t seed = 7;
  auto random = [&] { return seed = seed * 1664525 + 1013904223, seed >> 8; };
  for (const char* mode : {"up", "down", "bfly", "idx"})
    for (unsigned round = 0; round < 20; ++round) {
      for (uint32_t& v : value) v = random();
      for (uint32_t& v : from) v = round % 2 != 0 ? random() : random() % 4;
      for (uint32_t& v : limits) v = (random() & 31) | (random() & 31) << 8;
      const std::string shuffle = std::string("shfl.sync.") + mode +
                                  ".b32 %a|%q0, %a, %b, %c, -1; selp.u32 %t1, 0x1000000, 0, %q0; "
                                  "add.u32 %d, %a, %t1;";
      const Words whole = lanes<uint32_t>(shuffle, value, from, limits);
      const Words part = lanes<uint32_t>(shuffle, value, from, limits, nullptr, 31);
      const std::string source =
          std::string("shfl.sync.") + mode + ".b32 %t0|%q0, %lane, %b, %c, -1; mov.u32 %d, %t0;";
      const Words where = lanes<uint32_t>(source, value, from, limits);
      INFO(mode);
      for (uint32_t l = 0; l < 31; ++l) {
        if (where[l] != 31) CHECK(whole[l] == part[l]);
        CHECK(whole[l] % 0x1000000 == value[where[l]]);
      }
    }
}

// Eight lanes add up what they have, as the last step of a block's reduction does: the lanes that
// take no part must add nothing, also where the source lies beyond the eight.
TEST_CASE("a shuffle reads zero from a lane that takes no part", "[warp]") {
  auto v = lanes<uint32_t>(R"(
    mov.u32 %d, %a;
    setp.ge.u32 %q0, %a, 8;
    @%q0 bra END;
    shfl.sync.down.b32 %t0|%q1, %d, 16, 0x1f, 0xff;
    add.u32 %d, %d, %t0;
    shfl.sync.down.b32 %t0|%q1, %d, 8, 0x1f, 0xff;
    add.u32 %d, %d, %t0;
    shfl.sync.down.b32 %t0|%q1, %d, 4, 0x1f, 0xff;
    add.u32 %d, %d, %t0;
    shfl.sync.down.b32 %t0|%q1, %d, 2, 0x1f, 0xff;
    add.u32 %d, %d, %t0;
    shfl.sync.down.b32 %t0|%q1, %d, 1, 0x1f, 0xff;
    add.u32 %d, %d, %t0;
END:)",
                           iota());
  REQUIRE(v.size() == 32);
  CHECK(v[0] == 28);
  CHECK(v[8] == 8);
}

TEST_CASE("votes, matches and reductions with partial masks", "[warp]") {
  auto v = lanes<uint32_t>(R"(
    setp.lt.u32 %q0, %a, 8;
    @!%q0 bra HIGH;
    setp.eq.u32 %q1, %a, 3;
    vote.sync.any.pred %q2, %q1, 0xff;
    selp.u32 %t0, 1, 0, %q2;
    vote.sync.all.pred %q2, %q1, 0xff;
    selp.u32 %t1, 2, 0, %q2;
    vote.sync.uni.pred %q2, !%q1, 0xff;
    selp.u32 %t2, 4, 0, %q2;
    add.u32 %d, %t0, %t1;
    add.u32 %d, %d, %t2;
    bra END;
HIGH:
    and.b32 %t3, %a, 1;
    match.any.sync.b32 %d, %t3, 0xffffff00;
    match.all.sync.b32 %t4|%q3, %t3, 0xffffff00;
    @%q3 mov.u32 %d, 0;
    redux.sync.add.s32 %t5, %a, 0xffffff00;
    xor.b32 %d, %d, %t5;
END:)",
                           iota());
  uint32_t sum = 0;
  for (uint32_t l = 8; l < 32; ++l) sum += l;
  for (uint32_t l = 0; l < 32; ++l)
    CHECK(v[l] == (l < 8 ? 1u : ((l & 1 ? 0xaaaaaa00u : 0x55555500u) ^ sum)));
  auto s = lanes<uint32_t>("redux.sync.min.s32 %d, %a, 0xffffffff;", {5, uint32_t(-7), 9});
  CHECK(s[0] == uint32_t(-7));
  auto u = lanes<uint32_t>("redux.sync.max.u32 %d, %a, 0xffffffff;", {5, uint32_t(-7), 9});
  CHECK(u[31] == uint32_t(-7));
  auto e = lanes<uint32_t>("elect.sync %t0|%q0, 0xffffffff; selp.u32 %d, 1, 0, %q0;", {0});
  CHECK(e[0] == 1);
  CHECK(e[1] == 0);
}

TEST_CASE("both arms of a branch may hold the same shuffle", "[warp]") {
  auto v = lanes<uint32_t>(R"(
    setp.lt.u32 %q0, %a, 16;
    @%q0 bra LOW;
    shfl.sync.bfly.b32 %d, %a, 16, 0x1f, 0xffffffff;
    bra END;
LOW:
    shfl.sync.bfly.b32 %d, %a, 16, 0x1f, 0xffffffff;
    add.u32 %d, %d, 100;
END:)",
                           iota());
  for (uint32_t l = 0; l < 32; ++l) CHECK(v[l] == (l ^ 16) + (l < 16 ? 100 : 0));
}

TEST_CASE("each lane may bring its own member mask", "[warp]") {
  auto v = lanes<uint32_t>(
      "and.b32 %t0, %a, 24; shl.b32 %t1, 255, %t0; redux.sync.add.u32 %d, %a, %t1;", iota());
  for (uint32_t l = 0; l < 32; ++l) CHECK(v[l] == (l & 24) * 8 + 28);
}

// Compilers load a vector whose end they do not use; what lies beyond it is an error still.
TEST_CASE("a vector may reach over the end of shared memory, not begin behind it", "[warp]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(std::string(kHead) + R"(
.extern .shared .align 16 .b8 s[];
.visible .entry k(.param .u64 out, .param .u32 at) {
  .reg .b64 %out; .reg .b32 %v<4>, %a, %s;
  ld.param.u64 %out, [out]; ld.param.u32 %a, [at];
  mov.u32 %s, s; add.u32 %s, %s, %a;
  st.shared.u32 [s+24], 7;
  .pragma "used_bytes_mask 0xfff";
  ld.shared.v4.b32 {%v0, %v1, %v2, %v3}, [%s];
  st.global.u32 [%out], %v2;
  ret;
})"));
  uint64_t out = gpu.zeros(64);
  REQUIRE(gpu.run("k", 1, 1, {out, uint32_t(16)}, 28).outcome == Outcome::kDone);
  CHECK(gpu.read<uint32_t>(out, 1)[0] == 7);
  CHECK(gpu.run("k", 1, 1, {out, uint32_t(32)}, 28).outcome == Outcome::kIllegalAddress);
}

// On a GPU 512 warps that spin do so at the same time; one after the other they would take two
// seconds.
TEST_CASE("warps that wait for a number of cycles wait together", "[warp]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(std::string(kHead) + R"(
.visible .entry spin(.param .u64 out) {
  .reg .b64 %out, %first, %now, %passed; .reg .pred %p; .reg .b32 %i, %n, %t;
  ld.param.u64 %out, [out];
  mov.u64 %first, %clock64;
AGAIN:
  mov.u64 %now, %clock64;
  sub.u64 %passed, %now, %first;
  setp.lt.u64 %p, %passed, 10000000;
  @%p bra AGAIN;
  mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x;
  mad.lo.u32 %i, %i, %n, %t; mad.wide.u32 %out, %i, 8, %out; st.global.u64 [%out], %passed;
  ret;
})"));
  constexpr uint32_t kBlocks = 64, kThreads = 256;
  uint64_t out = gpu.zeros(kBlocks * kThreads * 8);
  const uint64_t begin = __builtin_ia32_rdtsc();
  REQUIRE(gpu.run("spin", kBlocks, kThreads, {out}).outcome == Outcome::kDone);
  const uint64_t took = __builtin_ia32_rdtsc() - begin;
  auto passed = gpu.read<uint64_t>(out, kBlocks * kThreads);
  for (uint64_t p : passed) CHECK(p >= 10000000);
  for (uint32_t t = 0; t < kBlocks * kThreads; ++t) CHECK(passed[t] == passed[t & ~31u]);
  CHECK(took < 10000000ull * kBlocks * kThreads / 32 / 4);
}

TEST_CASE("blocks that wait for the global timer wait together", "[warp]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(std::string(kHead) + R"(
.visible .entry wait(.param .u64 out) {
  .reg .b64 %out, %first, %now, %passed; .reg .pred %p; .reg .b32 %i, %n, %t;
  ld.param.u64 %out, [out];
  mov.u64 %first, %globaltimer;
AGAIN:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %first;
  setp.lt.u64 %p, %passed, 10000000;
  @%p bra AGAIN;
  mov.u32 %i, %ctaid.x; mad.wide.u32 %out, %i, 16, %out;
  st.global.u64 [%out], %first; st.global.u64 [%out + 8], %now;
  ret;
})"));
  constexpr uint32_t kBlocks = 512;
  uint64_t out = gpu.zeros(kBlocks * 16);
  REQUIRE(gpu.run("wait", kBlocks, 32, {out}).outcome == Outcome::kDone);
  const auto times = gpu.read<uint64_t>(out, 2 * kBlocks);
  uint64_t first = ~0ull, last = 0, waited = 0;
  for (uint32_t i = 0; i < 2 * kBlocks; i += 2) {
    CHECK(times[i + 1] - times[i] >= 10000000);
    first = std::min(first, times[i]);
    last = std::max(last, times[i + 1]);
    waited += times[i + 1] - times[i];
  }
  // How many wait at once, on average: one after the other, the two threads of the pool make it 2.
  // (Not the time that all take, which on a busy machine is any.)
  CHECK(waited > 4 * (last - first));
}

TEST_CASE("each thread of a warp tells of its failed assertion, apart from what is printed",
          "[warp]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(std::string(kHead) + R"(
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 message[2] = {120, 0};
.visible .entry fails(.param .u64 out) {
  .reg .b64 %a; .reg .b32 %t; .reg .pred %p;
  mov.u64 %a, message; cvta.global.u64 %a, %a;
  { .param .b64 p0; .param .b64 p1; .param .b32 r;
    st.param.b64 [p0], %a; st.param.b64 [p1], 0; call (r), vprintf, (p0, p1); }
  mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 29;
  @%p bra FINE;
  { .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4;
    st.param.b64 [p0], %a; st.param.b64 [p1], %a; st.param.b32 [p2], 7; st.param.b64 [p3], %a;
    st.param.b64 [p4], 1; call __assertfail, (p0, p1, p2, p3, p4); }
FINE:
  ret;
})"));
  Result r = gpu.run("fails", 1, 32, {gpu.zeros(8)});
  CHECK(r.outcome == Outcome::kAssert);
  for (int t = 28; t < 32; ++t) {
    const std::string line =
        "x:7: x: block: [0,0,0], thread: [" + std::to_string(t) + ",0,0] Assertion `x` failed.\n";
    CHECK((gpu.errors.find(line) != std::string::npos) == (t >= 29));
  }
  CHECK(gpu.output == std::string(32, 'x'));

  // So does each other warp of the block that comes to it, also after the first one has failed.
  Result more = gpu.run("fails", 1, 96, {gpu.zeros(8)});
  CHECK(more.outcome == Outcome::kAssert);
  CHECK(std::string(more.text).find("warp 0") != std::string::npos);
  for (int t = 32; t < 96; ++t)
    CHECK(gpu.errors.find("thread: [" + std::to_string(t) + ",0,0]") != std::string::npos);
}

// What compilers leave to NVIDIA's device runtime (numba's cooperative groups): nothing of a block
// may be read by another before all have come.
TEST_CASE("cudaCGSynchronize is a barrier of the grid", "[barrier]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(std::string(kHead) + R"(
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 s);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 f);
.visible .entry meets(.param .u64 out) {
  .reg .b64 %h, %out, %own, %next; .reg .b32 %c, %n, %t, %v, %k, %r; .reg .pred %p;
  ld.param.u64 %out, [out];
  { .param .b32 s; .param .b64 r; st.param.b32 [s], 1; call (r), cudaCGGetIntrinsicHandle, (s);
    ld.param.b64 %h, [r]; }
  mov.u32 %c, %ctaid.x; mov.u32 %n, %nctaid.x; mov.u32 %t, %tid.x;
  mad.wide.u32 %own, %c, 4, %out;
  add.u32 %k, %c, 1; rem.u32 %k, %k, %n; mad.wide.u32 %next, %k, 4, %out;
  mov.u32 %k, 0;
ROUND:
  setp.ne.u32 %p, %t, 0;
  @%p bra WROTE;
  add.u32 %v, %k, %c; st.global.u32 [%own], %v;
WROTE:
  { .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %h; st.param.b32 [f], 0;
    call (r), cudaCGSynchronize, (h, f); ld.param.b32 %r, [r]; }
  ld.volatile.global.u32 %v, [%next];
  { .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %h; st.param.b32 [f], 0;
    call (r), cudaCGSynchronize, (h, f); ld.param.b32 %r, [r]; }
  add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 20;
  @%p bra ROUND;
  mad.lo.u32 %k, %c, 64, %t; add.u32 %k, %k, 1024; mad.wide.u32 %own, %k, 4, %out;
  mad.lo.u32 %v, %r, 1000, %v; st.global.u32 [%own], %v;
  ret;
})"));
  uint64_t out = gpu.zeros(1 << 16);
  Launch l = gpu.prepare("meets", 6, 64, {out});
  l.cooperative = true;
  REQUIRE(run(pool(), l).outcome == Outcome::kDone);
  auto seen = gpu.read<uint32_t>(out, 1024 + 6 * 64);
  for (uint32_t b = 0; b < 6; ++b)
    for (uint32_t t = 0; t < 64; ++t) CHECK(seen[1024 + b * 64 + t] == 19 + (b + 1) % 6);
  // Not launched together: refused, and the program goes on.
  REQUIRE(gpu.run("meets", 1, 64, {out}).outcome == Outcome::kDone);
  CHECK(gpu.read<uint32_t>(out, 1025)[1024] == 1000 + 19);
}

TEST_CASE("barriers", "[barrier]") {
  SECTION("with threads that have left") {
    Gpu gpu(1 << 20);
    REQUIRE(gpu.load(kernel_text(R"(
    .shared .align 4 .b8 s[1024];
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p0, %r0, 100;
    @%p0 exit;
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, s;
    add.u32 %r1, %r1, %r2;
    st.shared.u32 [%r1], %r0;
    bar.sync 0;
    sub.u32 %r3, 99, %r0;
    shl.b32 %r3, %r3, 2;
    add.u32 %r3, %r3, %r2;
    ld.shared.u32 %r4, [%r3];
    mad.wide.u32 %rd0, %r0, 4, %out;
    st.global.u32 [%rd0], %r4;)")));
    uint64_t out = gpu.zeros(4096);
    REQUIRE(gpu.run("k", 1, 128, {out, out}).outcome == Outcome::kDone);
    auto v = gpu.read<uint32_t>(out, 100);
    for (uint32_t t = 0; t < 100; ++t) CHECK(v[t] == 99 - t);
  }
  SECTION("reductions") {
    auto v = lanes<uint32_t>(R"(
    setp.lt.u32 %q0, %a, 40;
    bar.red.popc.u32 %t0, 0, %q0;
    bar.red.and.pred %q1, 0, %q0;
    bar.red.or.pred %q2, 0, !%q0;
    selp.u32 %t1, 100, 0, %q1;
    selp.u32 %t2, 200, 0, %q2;
    add.u32 %d, %t0, %t1;
    add.u32 %d, %d, %t2;)",
                             iota(96), {}, {}, nullptr, 96);
    CHECK(v == Words(96, 240));
  }
  SECTION("producer and consumer with counts") {
    // Warps 0 and 1 arrive, warps 2 and 3 wait for their data.
    Gpu gpu(1 << 20);
    REQUIRE(gpu.load(kernel_text(R"(
    .shared .align 4 .b8 s[256];
    mov.u32 %r0, %tid.x;
    mov.u32 %r2, s;
    and.b32 %r5, %r0, 63;
    shl.b32 %r1, %r5, 2;
    add.u32 %r1, %r1, %r2;
    setp.ge.u32 %p0, %r0, 64;
    @%p0 bra CONSUME;
    mul.lo.u32 %r3, %r0, 3;
    st.shared.u32 [%r1], %r3;
    bar.arrive 1, 128;
    ret;
CONSUME:
    bar.sync 1, 128;
    ld.shared.u32 %r4, [%r1];
    mad.wide.u32 %rd0, %r5, 4, %out;
    st.global.u32 [%rd0], %r4;)")));
    uint64_t out = gpu.zeros(4096);
    REQUIRE(gpu.run("k", 1, 128, {out, out}).outcome == Outcome::kDone);
    auto v = gpu.read<uint32_t>(out, 64);
    for (uint32_t t = 0; t < 64; ++t) CHECK(v[t] == 3 * t);
  }
  SECTION("one that cannot complete is reported, not waited for") {
    Gpu gpu(1 << 20);
    REQUIRE(gpu.load(kernel_text("bar.sync 1, 64;")));
    Result r = gpu.run("k", 1, 32, {uint64_t(0), uint64_t(0)});
    // 64 threads can never come, but every thread of the block is here: the hardware would go on
    // only with them all.
    CHECK((r.outcome == Outcome::kTrap || r.outcome == Outcome::kDone));
  }
}

TEST_CASE("blocks wait for one another", "[grid]") {
  // Block b waits until block b+1 has written: needs every later block to run while the first ones
  // spin.
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(kernel_text(R"(
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %nctaid.x;
    sub.u32 %r1, %r1, 1;
    mad.wide.u32 %rd0, %r0, 4, %in;
    setp.eq.u32 %p0, %r0, %r1;
    @%p0 bra WRITE;
WAIT:
    ld.acquire.gpu.global.u32 %r2, [%rd0+4];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra WAIT;
WRITE:
    st.release.gpu.global.u32 [%rd0], 1;)")));
  uint64_t in = gpu.zeros(4096);
  REQUIRE(gpu.run("k", 200, 32, {in, in}).outcome == Outcome::kDone);
  CHECK(gpu.read<uint32_t>(in, 200) == Words(200, 1));
}

TEST_CASE("a kernel waits for the host and can be cancelled", "[grid]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(kernel_text(R"(
WAIT:
    ld.volatile.global.u32 %r2, [%in];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra WAIT;)")));
  uint64_t in = gpu.zeros(64);
  Result r;
  Launch l = gpu.prepare("k", 3, 64, {in, in});
  std::thread host([&] { r = run(pool(), l); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  __atomic_store_n((uint32_t*)gpu.memory_.host(in), 1, __ATOMIC_RELEASE);
  host.join();
  CHECK(r.outcome == Outcome::kDone);
  *(uint32_t*)gpu.memory_.host(in) = 0;
  std::atomic<bool> cancel{false};
  l.cancel = &cancel;
  std::thread other([&] { r = run(pool(), l); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  cancel = true;
  other.join();
  CHECK(r.outcome == Outcome::kCancelled);
}

TEST_CASE("calls", "[call]") {
  const char* functions = R"(
.func (.param .b32 r) twice(.param .b32 x) {
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [x];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [r], %r2;
    ret;
}
.func (.param .b32 r) square(.param .b32 x) {
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [x];
    mul.lo.u32 %r2, %r1, %r1;
    st.param.b32 [r], %r2;
    ret;
}
.func (.param .b32 r) sum(.param .b32 x) {
    .reg .b32 %r<6>; .reg .pred %p<2>;
    ld.param.b32 %r1, [x];
    mov.u32 %r3, 0;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    sub.u32 %r2, %r1, 1;
    { .param .b32 p0; st.param.b32 [p0], %r2; .param .b32 r0;
      call.uni (r0), sum, (p0);
      ld.param.b32 %r3, [r0]; }
DONE:
    add.u32 %r4, %r1, %r3;
    st.param.b32 [r], %r4;
    ret;
}
.global .align 8 .u64 table[2] = {twice, square};
)";
  Gpu gpu(4 << 20);
  REQUIRE(gpu.load(kernel_text(R"(
    mov.u32 %r0, %tid.x;
    and.b32 %r1, %r0, 1;
    mul.wide.u32 %rd0, %r1, 8;
    mov.u64 %rd1, table;
    add.u64 %rd1, %rd1, %rd0;
    ld.global.u64 %rd2, [%rd1];
    { .param .b32 p0; st.param.b32 [p0], %r0; .param .b32 q0;
      proto : .callprototype (.param .b32 _) _ (.param .b32 _);
      call (q0), %rd2, (p0), proto;
      ld.param.b32 %r3, [q0]; }
    { .param .b32 p0; st.param.b32 [p0], %r0; .param .b32 q0;
      call.uni (q0), sum, (p0);
      ld.param.b32 %r4, [q0]; }
    mad.wide.u32 %rd3, %r0, 8, %out;
    st.global.v2.u32 [%rd3], {%r3, %r4};)",
                               functions)));
  uint64_t out = gpu.zeros(4096);
  REQUIRE(gpu.run("k", 1, 64, {out, out}).outcome == Outcome::kDone);
  auto v = gpu.read<uint32_t>(out, 128);
  for (uint32_t t = 0; t < 64; ++t) {
    CHECK(v[2 * t] == (t % 2 ? t * t : 2 * t));
    CHECK(v[2 * t + 1] == t * (t + 1) / 2);
  }
  SECTION("of a wild address") {
    REQUIRE(gpu.load(kernel_text(R"(
    mov.u64 %rd2, 0x1234;
    call %rd2, (), proto;
    )",
                                 "")) == false);
    REQUIRE(gpu.load(kernel_text(R"(
    mov.u64 %rd2, 0x1234;
    proto : .callprototype ();
    )")) == false);
    REQUIRE(gpu.load(kernel_text(R"(
    mov.u64 %rd2, 0x1234;
    proto : .callprototype _ ();
    call %rd2, proto;)")));
    Result r = gpu.run("k", 1, 32, {out, out});
    CHECK(r.outcome == Outcome::kInvalidPc);
    CHECK(r.address == 0x1234);
  }
  SECTION("without end") {
    REQUIRE(gpu.load(kernel_text(
        "call.uni f, ();",
        ".func f() { .local .b8 x[4096]; .reg .b64 %l; mov.u64 %l, x; st.local.u32 [%l], 1; "
        "call.uni f, (); ret; }\n")));
    Result r = gpu.run("k", 1, 32, {out, out});
    CHECK(r.outcome == Outcome::kTrap);
  }
}

TEST_CASE("an indexed branch", "[divergence]") {
  auto v = lanes<uint32_t>(R"(
    and.b32 %t0, %a, 3;
    targets: .branchtargets A, B, C, D;
    brx.idx %t0, targets;
A:  mov.u32 %d, 10; bra END;
B:  mov.u32 %d, 20; bra END;
C:  mov.u32 %d, 30; bra END;
D:  mov.u32 %d, 40;
END:)",
                           iota());
  for (uint32_t l = 0; l < 32; ++l) CHECK(v[l] == 10 * (l % 4) + 10);
}

TEST_CASE("atomics", "[atomic]") {
  auto run = [](const std::string& op, uint32_t start, uint32_t threads = 64) {
    Gpu gpu(1 << 20);
    if (!gpu.load(kernel_text(
            "mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f0, %r1; cvt.u64.u32 %rd1, %r1;\n" + op))) {
      FAIL(gpu.error);
    }
    uint64_t in = gpu.array(Words{start, 0, 0, 0});
    REQUIRE(gpu.run("k", 1, threads, {in, in}).outcome == Outcome::kDone);
    return gpu.read<uint32_t>(in, 2);
  };
  CHECK(run("atom.global.add.u32 %r0, [%in], %r1;", 0)[0] == 2016);
  CHECK(run("red.global.add.u64 [%in], 0x80000000;", 0)[1] == 32);
  CHECK(run("atom.max.s32 %r0, [%in], %r1;", uint32_t(-5))[0] == 63);
  CHECK(run("atom.min.u32 %r0, [%in], %r1;", 77)[0] == 0);
  CHECK(run("atom.global.inc.u32 %r0, [%in], 9;", 0)[0] == 64 % 10);
  CHECK(run("atom.global.dec.u32 %r0, [%in], 9;", 0)[0] == 6);
  CHECK(run("atom.global.or.b32 %r0, [%in], %r1;", 0)[0] == 63);
  CHECK(run("atom.global.xor.b32 %r0, [%in], %r1;", 0)[0] == 0);
  CHECK(run("atom.global.and.b32 %r0, [%in], 12;", 255)[0] == 12);
  CHECK(run("atom.global.add.f32 %f1, [%in], %f0;", 0)[0] == bits(2016.0f));
  CHECK(run("mov.b32 %r2, 0x3c003c00; atom.global.add.noftz.f16x2 %r0, [%in], %r2;", 0, 32)[0] ==
        0x50005000);
  CHECK(run("mov.b32 %r2, 0x3f803f80; red.global.add.noftz.bf16x2 [%in], %r2;", 0, 32)[0] ==
        0x42004200);
  CHECK(run("mov.b32 {%h0, %h1}, 0x00023c00; atom.global.add.noftz.f16 %h2, [%in], %h0;", 0,
            32)[0] == 0x5000);
  CHECK(run("mov.b32 {%h0, %h1}, 0x00020001; atom.global.cas.b16 %h2, [%in], %h0, %h1;",
            0x50001)[0] == 0x50002);
  CHECK(run("atom.global.exch.b32 %r0, [%in], 5;", 1)[0] == 5);
  CHECK(run("red.global.add.v2.f32 [%in], {%f0, %f0};", 0)[1] == bits(2016.0f));
}

// Lanes of a warp go one after the other, and those that a branch leaves out change nothing.
TEST_CASE("atomics in shared memory by some lanes, several at one place", "[atomic]") {
  for (const uint32_t mask : {~0u, 0x00ff0f81u, 0x80000000u})
    for (const char* op : {"add", "min", "max", "exch", "cas", "inc", "and", "xor"}) {
      const std::string name = op,
                        type = name == "and" || name == "xor" || name == "exch" || name == "cas"
                                   ? ".b32"
                                   : ".u32";
      Words value(32), place(32), taking(32);
      for (uint32_t l = 0; l < 32; ++l) {
        value[l] = l * 2654435761u >> 24;
        place[l] = l * l % 5;
        taking[l] = mask >> l & 1;
      }
      // The result takes the place of an operand.
      const std::string text =
          ".shared .align 4 .u32 cells[8];\n"
          "mov.u32 %t0, cells; shl.b32 %t1, %b, 2; add.u32 %t1, %t0, %t1;\n"
          "setp.eq.u32 %q0, %c, 0; mov.u32 %t3, %a; @%q0 bra skip;\n"
          "atom.shared." +
          name + type + " %t3, [%t1], " + (name == "cas" ? "%t3, %b" : "%t3") +
          ";\nskip: bar.warp.sync -1; and.b32 %t5, %lane, 7;\n"
          "shl.b32 %t5, %t5, 2; add.u32 %t5, %t0, %t5;\n"
          "ld.shared.u32 %t4, [%t5]; shl.b32 %t4, %t4, 16; add.u32 %d, %t3, "
          "%t4;";
      const Words got = lanes<uint32_t>(text, value, place, taking);
      REQUIRE(got.size() == 32);
      uint32_t cells[8] = {}, old[32];
      for (uint32_t l = 0; l < 32; ++l) {
        old[l] = value[l];
        if (!taking[l]) continue;
        uint32_t& cell = cells[place[l]];
        old[l] = cell;
        const uint32_t v = value[l];
        cell = name == "add"    ? cell + v
               : name == "min"  ? std::min(cell, v)
               : name == "max"  ? std::max(cell, v)
               : name == "exch" ? v
               : name == "cas"  ? (cell == v ? place[l] : cell)
               : name == "inc"  ? (cell >= v ? 0 : cell + 1)
               : name == "and"  ? cell & v
                                : cell ^ v;
      }
      INFO(name << ", lanes " << mask);
      for (uint32_t l = 0; l < 32; ++l) CHECK(got[l] == old[l] + (cells[l & 7] << 16));
    }
}

// Lanes side by side at both ends of what is allocated, and lanes at any places: where the others
// would be does not count.
TEST_CASE("some lanes load, and the others' addresses lead nowhere", "[memory]") {
  constexpr uint32_t kBytes = 8192;
  Gpu gpu(kBytes);
  if (!gpu.load(std::string(kHead) + R"(
.visible .entry k(.param .u64 po, .param .u64 pi, .param .u32 mask, .param .u32 step) {
  .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .pred %p<3>;
  ld.param.u64 %d0, [po]; ld.param.u64 %d1, [pi]; ld.param.u32 %r0, [mask]; ld.param.u32 %r1, [step];
  mov.u32 %r2, %tid.x; shr.u32 %r3, %r0, %r2; and.b32 %r3, %r3, 1; setp.ne.u32 %p0, %r3, 0;
  mul.lo.u32 %r4, %r2, %r1; and.b32 %r4, %r4, 31; mad.wide.u32 %d2, %r4, 4, %d1;
  selp.b64 %d2, %d2, 0x123400000001, %p0;
  mad.wide.u32 %d3, %r2, 4, %d0; mov.u32 %r5, 7;
  @!%p0 bra skip;
  ld.global.u32 %r5, [%d2];
skip:
  bar.warp.sync -1; st.global.u32 [%d3], %r5; ret;
})")) {
    FAIL(gpu.error);
  }
  gpu.zeros(2048);
  const uint64_t out = gpu.zeros(128);
  for (uint32_t k = 0; k < kBytes / 4; ++k) memcpy(gpu.memory_.host(kBase + 4 * k), &k, 4);
  struct Case {
    uint64_t base;
    uint32_t mask, step;
  };
  for (const Case& c : {Case{kBase - 96, 0xff000000u, 1}, Case{kBase + kBytes - 32, 0xffu, 1},
                        Case{kBase + 256, 0x00ffff00u, 1}, Case{kBase + 256, 0x0f0f0f0fu, 1},
                        Case{kBase + 256, 0xfffffffeu, 7}, Case{kBase + 256, 0x80000001u, 5},
                        Case{kBase + 256, ~0u, 11}, Case{kBase + 256, ~0u, 1}}) {
    const Result r = gpu.run("k", 1, 32, {out, c.base, c.mask, c.step});
    INFO(r.text << ", lanes " << c.mask << ", step " << c.step);
    REQUIRE(r.outcome == Outcome::kDone);
    const auto got = gpu.read<uint32_t>(out, 32);
    for (uint32_t l = 0; l < 32; ++l)
      CHECK(got[l] ==
            (c.mask >> l & 1 ? (uint32_t)((int64_t)(c.base - kBase) / 4 + (l * c.step & 31)) : 7));
  }
}

TEST_CASE("atomic sums do not depend on which thread runs a block first", "[atomic]") {
  // Terms of very different size, so that almost every other order rounds to another sum.
  const std::string term =
      "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 2654435761, 12345; and.b32 %r3, %r2, 15;"
      "shl.b32 %r3, %r3, 23; shr.u32 %r4, %r2, 9; add.u32 %r3, %r3, 0x3c000000;"
      "or.b32 %r3, %r3, %r4; mov.b32 %f0, %r3;\n";
  const std::string add = "red.global.add.f32 [%in], %f0;";
  const std::string exchange =  // as atomicAdd of bf16 is written for older targets
      "ld.volatile.global.u32 %r5, [%in];\n"
      "AGAIN: mov.b32 %f1, %r5; add.f32 %f1, %f1, %f0; mov.b32 %r6, %f1;"
      "atom.global.cas.b32 %r7, [%in], %r5, %r6; setp.ne.u32 %p0, %r7, %r5; mov.u32 %r5, %r7;"
      "@%p0 bra AGAIN;";
  const std::string function =
      ".func add_to(.param .u64 to, .param .f32 x) { .reg .u64 %p; .reg .f32 %v;"
      "ld.param.u64 %p, [to]; ld.param.f32 %v, [x]; red.global.add.f32 [%p], %v; ret; }\n";
  const std::string call =
      "{ .param .u64 a; .param .f32 b; st.param.u64 [a], %in; st.param.f32 [b], %f0;"
      "call.uni add_to, (a, b); }";
  Pool* one = create_pool(1);
  Pool* many = create_pool(8);
  for (const auto& [body, before] :
       {std::pair(add, std::string()), {exchange, ""}, {call, function}}) {
    Gpu gpu(1 << 20);
    if (!gpu.load(kernel_text(term + body, before))) FAIL(gpu.error);
    auto sum = [&](Pool* pool) {
      uint64_t at = gpu.zeros(64);
      Launch l = gpu.prepare("k", 3000, 1, {at, at});
      REQUIRE(run(pool, l).outcome == Outcome::kDone);
      return gpu.read<uint32_t>(at, 1)[0];
    };
    const uint32_t expected = sum(one);
    for (int again = 0; again < 20; ++again) CHECK(sum(many) == expected);
  }
  destroy_pool(one);
  destroy_pool(many);
}

// A thread that has just looked for work in vain is told of the end all the same.
TEST_CASE("a pool ends while its threads look for work", "[pool]") {
  for (int again = 0; again < 500; ++again) {
    Pool* pool = create_pool(4);
    REQUIRE(pool);
    destroy_pool(pool);
  }
}

TEST_CASE("shared and local memory through generic addresses", "[memory]") {
  auto v = lanes<uint32_t>(R"(
    .shared .align 4 .b8 s[256];
    .local .align 8 .b8 l[64];
    .reg .b64 %g<4>;
    mov.u64 %g0, s; cvta.shared.u64 %g0, %g0;
    mad.wide.u32 %g1, %lane, 4, %g0;
    st.u32 [%g1], %a;
    mov.u64 %g2, l; cvta.local.u64 %g2, %g2;
    and.b32 %t0, %lane, 7;
    mad.wide.u32 %g3, %t0, 4, %g2;
    st.u32 [%g3], %b;
    st.u8 [%g3+1], 9;
    bar.sync 0;
    ld.u32 %t1, [%g1];
    ld.u32 %t2, [%g3];
    xor.b32 %d, %t1, %t2;
    isspacep.shared %q0, %g1; @!%q0 mov.u32 %d, 1;
    isspacep.local %q0, %g3; @!%q0 mov.u32 %d, 2;
    isspacep.global %q0, %g3; @%q0 mov.u32 %d, 3;
    cvta.to.shared.u64 %g1, %g1; cvt.u32.u64 %t3, %g1; mov.u32 %t4, s; sub.u32 %t3, %t3, %t4; shr.u32 %t3, %t3, 2;
    setp.ne.u32 %q1, %t3, %lane; @%q1 mov.u32 %d, 4;)",
                           iota(32, 1000), iota(32, 0x10000));
  for (uint32_t l = 0; l < 32; ++l)
    CHECK(v[l] == ((1000 + l) ^ (((0x10000 + l) & 0xffff00ff) | 0x900)));
}

TEST_CASE("faults name the address and the line", "[fault]") {
  Gpu gpu(1 << 20);
  SECTION("wild") {
    REQUIRE(gpu.load(kernel_text(
        "mov.u64 %rd0, 0x5000;\nld.global.u32 %r0, [%rd0+4];\nst.global.u32 [%out], %r0;")));
    uint64_t out = gpu.zeros(64);
    Result r = gpu.run("k", 2, 64, {out, out});
    CHECK(r.outcome == Outcome::kIllegalAddress);
    CHECK(r.address == 0x5004);
    CHECK(r.line == 8);
    CHECK(std::string(r.text).find("k: load of 4 bytes at 0x5004") == 0);
  }
  SECTION("misaligned") {
    REQUIRE(gpu.load(kernel_text("add.u64 %rd0, %out, 2;\nst.global.u32 [%rd0], 1;")));
    uint64_t out = gpu.zeros(64);
    Result r = gpu.run("k", 1, 1, {out, out});
    CHECK(r.outcome == Outcome::kMisaligned);
    CHECK(r.address == out + 2);
  }
  SECTION("one lane only") {
    REQUIRE(
        gpu.load(kernel_text("mov.u32 %r0, %tid.x; shr.u32 %r0, %r0, 4; mad.wide.u32 %rd0, %r0, "
                             "0x7ffff000, %out; st.global.u32 [%rd0], 1;")));
    uint64_t out = gpu.zeros(64);
    CHECK(gpu.run("k", 1, 16, {out, out}).outcome == Outcome::kDone);
    Result r = gpu.run("k", 1, 32, {out, out});
    CHECK(r.outcome == Outcome::kIllegalAddress);
    CHECK(r.address == out + 0x7ffff000);
  }
  SECTION("shared memory ends") {
    REQUIRE(gpu.load(
        kernel_text(".shared .align 4 .b8 s[16]; mov.u32 %r0, s; st.shared.u32 [%r0+16], 1;")));
    CHECK(gpu.run("k", 1, 1, {uint64_t(0), uint64_t(0)}).outcome == Outcome::kIllegalAddress);
    CHECK(gpu.run("k", 1, 1, {uint64_t(0), uint64_t(0)}, 16).outcome == Outcome::kDone);
  }
  SECTION("trap") {
    REQUIRE(gpu.load(kernel_text("mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 3; @%p0 trap;")));
    CHECK(gpu.run("k", 5, 32, {uint64_t(0), uint64_t(0)}).outcome == Outcome::kTrap);
    CHECK(gpu.run("k", 3, 32, {uint64_t(0), uint64_t(0)}).outcome == Outcome::kDone);
  }
}

TEST_CASE("printf and assert", "[printf]") {
  Gpu gpu(1 << 20);
  REQUIRE(
      gpu.load(kernel_text(R"(
    .local .align 8 .b8 buffer[64];
    mov.u64 %rd0, buffer;
    mov.u32 %r0, %tid.x;
    st.local.u32 [%rd0], %r0;
    mov.u64 %rd1, text;
    cvta.global.u64 %rd1, %rd1;
    st.local.u64 [%rd0+8], %rd1;
    mov.u64 %rd2, 0x3ff8000000000000;
    st.local.u64 [%rd0+16], %rd2;
    mov.u64 %rd3, -5;
    st.local.u64 [%rd0+24], %rd3;
    st.local.u32 [%rd0+32], 65;
    cvta.local.u64 %rd4, %rd0;
    mov.u64 %rd5, format;
    cvta.global.u64 %rd5, %rd5;
    { .param .b64 p0; st.param.b64 [p0], %rd5; .param .b64 p1; st.param.b64 [p1], %rd4; .param .b32 q;
      call.uni (q), vprintf, (p0, p1);
      ld.param.b32 %r1, [q]; }
    st.global.u32 [%out], %r1;)",
                           ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
                           ".global .align 1 .b8 format[] = \"%03d|%-5s|%6.2f|%lld|%c|100%%\";\n"
                           ".global .align 1 .b8 text[4] = {97, 98, 99, 0};\n")));
  uint64_t out = gpu.zeros(64);
  REQUIRE(gpu.run("k", 1, 2, {out, out}).outcome == Outcome::kDone);
  CHECK(gpu.output == "000|abc  |  1.50|-5|A|100%001|abc  |  1.50|-5|A|100%");
  CHECK(gpu.read<uint32_t>(out, 1)[0] == 5);
}

TEST_CASE("functions take and give registers", "[call]") {
  Gpu gpu(1 << 20);
  const std::string before = R"(
.func (.reg .b32 %sum, .reg .f64 %half) work(.reg .b32 %x, .param .b64 y, .reg .b16 %z) {
  .reg .b64 %t; .reg .b32 %u; .reg .pred %p;
  ld.param.b64 %t, [y]; cvt.u32.u64 %u, %t; add.u32 %sum, %x, %u;
  setp.eq.u32 %p, %x, 3; mov.f64 %half, 0d3FF0000000000000;
  @%p ret;
  cvt.u32.u16 %u, %z; add.u32 %sum, %sum, %u; mov.f64 %half, 0d3FE0000000000000;
  ret;
}
)";
  const bool loaded = gpu.load(kernel_text(R"(
  { .param .b64 wide; .reg .f64 %d; .reg .b16 %h; .reg .b64 %o; .reg .b32 %i, %s, %q;
    mov.u32 %i, %tid.x; mov.b64 %o, 100; st.param.b64 [wide], %o; cvt.u16.u32 %h, %i;
    call.uni (%s, %d), work, (%i, wide, 7);
    cvt.rzi.u32.f64 %q, %d;
    mad.lo.u32 %s, %q, 1000, %s;
    ld.param.u64 %o, [po]; mad.wide.u32 %o, %i, 4, %o; st.global.u32 [%o], %s; }
)",
                                           before));
  INFO(gpu.error);
  REQUIRE(loaded);
  const uint64_t out = gpu.zeros(128);
  const Result r = gpu.run("k", 1, 32, {out, out});
  REQUIRE(std::string(r.text) == "");
  const auto got = gpu.read<uint32_t>(out, 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(got[i] == (i == 3 ? 1103u : 100 + i + 7));
}

TEST_CASE("errors carry the name and the line", "[error]") {
  Gpu gpu(1 << 20);
  auto error = [&](const std::string& body, const std::string& before = "") {
    return gpu.load(kernel_text(body, before)) ? std::string("compiled") : gpu.error;
  };
  CHECK_THAT(error("frobnicate.u32 %r0, %r1;"),
             contains("line 7") && contains("unknown instruction in 'frobnicate.u32'"));
  CHECK_THAT(error("tcgen05.shift.cta_group::1.down [%a];"),
             contains("tensor-core") && contains("tcgen05.shift"));
  CHECK_THAT(error("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r0}, {%f0};"),
             contains("mma.sync"));
  CHECK_THAT(error("tex.2dms.v4.f32.f32 {%f0,%f1,%f2,%f3}, [%rd0, {%f0, %f1}];"),
             contains("geometry") && contains("tex.2dms"));
  CHECK_THAT(error("add.weird.u32 %r0, %r1, %r2;"), contains("'.weird'"));
  CHECK_THAT(error("add.u32 %r0, %r1;"), contains("operands"));
  CHECK_THAT(error("add.u32 %r0, %r1, %rd2;"), contains("does not fit"));
  CHECK_THAT(error("add.u32 %r0, %r1, %nosuch;"), contains("%nosuch"));
  CHECK_THAT(error("bra NOWHERE;"), contains("NOWHERE"));
  CHECK_THAT(error("call.uni absent, ();", ".extern .func absent();\n"),
             contains("unresolved") && contains("absent"));
  CHECK_THAT(error("ld.param.u64 %rd0, [po+16];"), contains("outside the parameters"));
  CHECK_THAT(gpu.load(".version 9.0\n.target sm_121a\n.address_size 64\n", 90) ? "" : gpu.error,
             contains("sm_121"));
  CHECK_FALSE(gpu.load(""));
  CHECK_FALSE(gpu.load("hello"));
}

TEST_CASE("globals and their initial values", "[module]") {
  Gpu gpu(1 << 20);
  REQUIRE(gpu.load(
      kernel_text(R"(
    ld.global.u64 %rd0, [pointer];
    ld.global.u32 %r0, [%rd0];
    ld.const.u32 %r1, [constants+8];
    ld.global.f32 %f0, [number];
    mov.b32 %r2, %f0;
    ld.global.u32 %r3, [zero+4];
    ld.global.u8 %r4, [bytes+3];
    st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};
    st.global.u32 [%out+16], %r4;
    mov.u64 %rd1, numbers;
    ld.global.u64 %rd2, [pointer];
    sub.u64 %rd2, %rd2, %rd1;
    st.global.u64 [%out+24], %rd2;)",
                  ".global .align 4 .u32 numbers[4] = {1, 2, 0x33, 4};\n"
                  ".global .align 8 .u64 pointer = generic(numbers)+8;\n"
                  ".const .align 4 .b32 constants[3] = {5, 6, -7};\n"
                  ".global .f32 number = 0f40490FDB;\n"
                  ".global .align 4 .b8 zero[8];\n"
                  ".global .align 1 .b8 bytes[8] = {0xFF(numbers), 0xFF00(numbers), 1, 200};\n")));
  uint64_t out = gpu.zeros(64);
  REQUIRE(gpu.run("k", 1, 1, {out, out}).outcome == Outcome::kDone);
  CHECK(gpu.read<uint32_t>(out, 5) == Words{0x33, 6 * 0 + uint32_t(-7), 0x40490fdb, 0, 200});
  CHECK(gpu.read<uint64_t>(out + 24, 1)[0] == 8);
  CHECK(std::string(variable(gpu.module_, 2)->name) == "constants");
  CHECK(variable(gpu.module_, 2)->constant);
}
