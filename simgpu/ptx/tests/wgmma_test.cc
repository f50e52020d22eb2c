// Matrix products of a warpgroup: every type of element, where matrices lie in shared memory (all
// swizzles, both orders), fragments in registers, signs, sums, and what is an error.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>
#include "tests/catch.h"

#include "shared_matrices.h"
#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

struct Case {
  Type a = kF16, b = kF16, d = kF32;
  unsigned n = 8;
  Place place_a, place_b;
  bool registers = false;  // a
  bool negative_a = false, negative_b = false;
  bool added = true;
  bool saturate = false;
  bool sparse = false;    // a
  unsigned selector = 0;  // of its metadata
  int before = 3;         // what d has
  unsigned times = 1;     // products in a row
  unsigned threads = 128;
  std::string setup;  // PTX text that may change %da, %db and %p
  uint32_t shared = 128 << 10;

  unsigned k() const { return 256 / a.bits; }  // elements of a row of a that are there
  unsigned inner() const { return sparse ? 2 * k() : k(); }
  // The column of one of them: of each four columns, or two of 32 bits, half are there.
  unsigned column(unsigned row, unsigned j) const {
    if (!sparse) return j;
    static const unsigned kPairs[][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
    if (a.bits == 32) return 2 * j + (row * 3 + j * 5 + row * j) % 2;
    return j / 2 * 4 + kPairs[(row * 5 + j / 2 * 7 + row * (j / 2)) % 6][j % 2];
  }
  // The metadata of a thread as the PTX manual draws it: 4 bits for each chunk of columns. Of 16
  // and 32 bits, a word has four chunks of a row and of that which is 8 below; of 8 bits, eight.
  uint32_t metadata(unsigned t) const {
    const unsigned words = a.bits == 8 ? 4 : 2, quad = t % 4;
    if (!sparse || quad / words != selector) return 0xa5a5a5a5u * (t + 1);
    uint32_t word = 0;
    for (unsigned slot = 0; slot < 8; ++slot) {
      const unsigned place = quad % words;
      const unsigned half = a.bits == 8 ? place % 2 : slot / 4;
      const unsigned chunk = a.bits == 8 ? place / 2 * 8 + slot : place * 4 + slot % 4;
      const unsigned row = t / 32 * 16 + t % 32 / 4 + half * 8;
      const unsigned bits = a.bits == 32
                                ? (column(row, chunk) % 2 ? 14 : 4)
                                : column(row, 2 * chunk) % 4 | column(row, 2 * chunk + 1) % 4 << 2;
      word |= bits << 4 * slot;
    }
    return word;
  }
  unsigned sums() const { return n / 2 / (d.bits == 16 ? 2 : 1); }
  std::string opcode() const {
    return std::string("wgmma.mma_async.") + (sparse ? "sp." : "") + "sync.aligned.m64n" +
           std::to_string(n) + "k" + std::to_string(inner()) + (saturate ? ".satfinite." : ".") +
           d.name + "." + a.name + "." + b.name;
  }
};

std::string registers_of(const char* name, unsigned count) {
  std::string s = "{";
  for (unsigned r = 0; r < count; ++r)
    s += std::string(r ? ", " : "") + "%" + name + std::to_string(r);
  return s + "}";
}

std::string text_of(const Case& c, const std::string& opcode) {
  const std::string sums = std::to_string(c.sums() * 4);
  std::string s = kHead;
  s +=
      ".extern .shared .align 1024 .b8 memory[];\n"
      ".visible .entry k(.param .u64 pimage, .param .u64 pa, .param .u64 pd, .param .u64 po,\n"
      ".param .u64 pm) {\n"
      ".reg .b32 %d<128>, %a<4>, %e, %t, %n, %w<4>; .reg .b64 %x<5>, %da, %db; .reg .pred %p, %q;\n"
      "mov.u32 %t, %tid.x;\n"
      // The image into shared memory.
      "ld.param.u64 %x0, [pimage]; mov.u64 %x1, memory; mul.lo.u32 %n, %t, 16;\n"
      "copy: cvt.u64.u32 %x2, %n; add.u64 %x3, %x0, %x2;\n"
      "ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%x3]; add.u64 %x3, %x1, %x2;\n"
      "st.shared.v4.u32 [%x3], {%w0, %w1, %w2, %w3}; add.u32 %n, %n, " +
      std::to_string(c.threads * 16) + "; setp.lt.u32 %q, %n, " + std::to_string(64 << 10) +
      "; @%q bra copy;\n"
      "bar.sync 0; fence.proxy.async;\n"
      "ld.param.u64 %x0, [pa]; mad.wide.u32 %x0, %t, 16, %x0;\n"
      "ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%x0];\n"
      "ld.param.u64 %x0, [pm]; mad.wide.u32 %x0, %t, 4, %x0; ld.global.u32 %e, [%x0];\n"
      "ld.param.u64 %x0, [pd]; mad.wide.u32 %x0, %t, " +
      sums + ", %x0;\n";
  for (unsigned r = 0; r < c.sums(); ++r)
    s += "ld.global.u32 %d" + std::to_string(r) + ", [%x0+" + std::to_string(r * 4) + "];\n";
  s += "mov.b64 %da, " + std::to_string(c.place_a.descriptor()) + "; mov.b64 %db, " +
       std::to_string(c.place_b.descriptor()) + ";\n";
  s += std::string("setp.") + (c.added ? "eq" : "ne") + ".u32 %p, %t, %t;\n" + c.setup;
  s += "wgmma.fence.sync.aligned;\n";
  for (unsigned k = 0; k < c.times; ++k) {
    s += opcode + " " + registers_of("d", c.sums()) + ", " +
         (c.registers ? registers_of("a", 4) : "%da") + ", %db, " +
         (c.sparse ? "%e, " + std::to_string(c.selector) + ", %p" : "%p");
    if (c.a.exponent != 0)
      s += std::string(c.negative_a ? ", -1" : ", 1") + (c.negative_b ? ", -1" : ", 1");
    if (c.a.bits == 16) {
      if (!c.registers) s += c.place_a.outer ? ", 1" : ", 0";
      s += c.place_b.outer ? ", 1" : ", 0";
    }
    s += ";\n";
  }
  s += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
       "ld.param.u64 %x0, [po]; mad.wide.u32 %x0, %t, " +
       sums + ", %x0;\n";
  for (unsigned r = 0; r < c.sums(); ++r)
    s += "st.global.u32 [%x0+" + std::to_string(r * 4) + "], %d" + std::to_string(r) + ";\n";
  return s + "ret; }\n";
}

// What went wrong; empty when d is as it should be.
std::string run(const Case& c, const std::string& opcode) {
  const unsigned inner = c.k();
  const bool whole_a = c.a.name == kU8.name, whole_b = c.b.name == kU8.name;
  std::vector<uint8_t> image(64 << 10, 0xee);  // large, if it is taken for a number
  auto put = [&](const Place& p, const Type& t, unsigned row, unsigned k, int v) {
    const uint32_t at = p.byte(row, k, t.bits), word = encode(t, v);
    memcpy(&image[at], &word, t.bits / 8);
  };
  for (unsigned k = 0; k < inner && !c.registers; ++k)
    for (unsigned m = 0; m < 64; ++m)
      put(c.place_a, c.a, m, k, value(m, c.column(m, k), 1, whole_a));
  for (unsigned k = 0; k < c.inner(); ++k)
    for (unsigned n = 0; n < c.n; ++n) put(c.place_b, c.b, n, k, value(n, k, 2, whole_b));
  std::vector<uint32_t> a(128 * 4), d(128 * c.sums());
  // A thread has rows g and g + 8 of its warp's 16; pieces of 32 bits of each half of the row.
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned q = 0; q < 4; ++q)
      for (unsigned part = 0; part < 32 / c.a.bits; ++part) {
        const unsigned row = t / 32 * 16 + t % 32 / 4 + q % 2 * 8;
        const unsigned column = q / 2 * inner / 2 + t % 4 * (32 / c.a.bits) + part;
        const int v = value(row, c.column(row, column), 1, whole_a);
        a[t * 4 + q] |= encode(c.a, v) << part * c.a.bits;
      }
  const uint32_t start = encode(c.d, c.before);
  std::vector<uint32_t> metadata(128);
  for (unsigned t = 0; t < 128; ++t) metadata[t] = c.metadata(t);
  for (uint32_t& w : d) w = c.d.bits == 16 ? start | start << 16 : start;

  Gpu gpu(4 << 20);
  if (!gpu.load(text_of(c, opcode))) return gpu.error;
  const uint64_t out = gpu.zeros(d.size() * 4);
  const Result r =
      gpu.run("k", 1, c.threads,
              {gpu.array(image), gpu.array(a), gpu.array(d), out, gpu.array(metadata)}, c.shared);
  if (r.outcome != Outcome::kDone) return r.text;
  const auto got = gpu.read<uint32_t>(out, d.size());
  const int sign = c.negative_a == c.negative_b ? 1 : -1;
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned slot = 0; slot < c.n / 2; ++slot) {
      const unsigned row = t / 32 * 16 + t % 32 / 4 + slot / 2 % 2 * 8;
      const unsigned column = slot / 4 * 8 + t % 4 * 2 + slot % 2;
      double want = 0;
      for (unsigned j = 0; j < inner; ++j) {
        const unsigned k = c.column(row, j);
        want += value(row, k, 1, whole_a) * value(column, k, 2, whole_b);
      }
      want = want * sign * (c.added ? c.times : 1) + (c.added ? c.before : 0);
      if (c.d.exponent == 0 && c.saturate) want = std::min(want, 2147483647.0);
      const uint32_t word = c.d.bits == 16 ? got[t * c.sums() + slot / 2] >> slot % 2 * 16 & 0xffff
                                           : got[t * c.sums() + slot];
      if (decode(c.d, word) != want)
        return c.opcode() + ": d[" + std::to_string(row) + "][" + std::to_string(column) + "] is " +
               std::to_string(decode(c.d, word)) + ", not " + std::to_string(want);
    }
  return "";
}
std::string run(const Case& c) { return run(c, c.opcode()); }

}  // namespace

TEST_CASE("warpgroups multiply matrices in every layout of shared memory", "[wgmma]") {
  for (const Type& t : {kF16, kBF16})
    for (unsigned swizzle = 0; swizzle < 4; ++swizzle)
      for (unsigned orders = 0; orders < 4; ++orders)
        for (unsigned gap = 1; gap < 3; ++gap) {
          Case c;
          c.a = c.b = t;
          c.n = 64;
          c.place_a = place(swizzle, orders & 1, 0, 64, gap);
          c.place_b = place(swizzle, orders & 2, 32 << 10, 64, gap);
          INFO("swizzle " << swizzle << ", orders " << orders << ", gap " << gap);
          CHECK(run(c) == "");
        }
}

TEST_CASE("a and b lie in layouts of their own", "[wgmma]") {
  for (unsigned x = 0; x < 4; ++x)
    for (unsigned y = 0; y < 4; ++y) {
      Case c;
      c.n = 24;
      c.place_a = place(x, false, 0, 64, 1);
      c.place_b = place(y, true, 32 << 10, 64, 1);
      CHECK(run(c) == "");
    }
}

TEST_CASE("warpgroups multiply every type of element", "[wgmma]") {
  struct Types {
    Type d, a, b;
  };
  const Types kAll[] = {{kF32, kF16, kF16},   {kF16, kF16, kF16},   {kF32, kBF16, kBF16},
                        {kF32, kTF32, kTF32}, {kF32, kE4M3, kE4M3}, {kF32, kE4M3, kE5M2},
                        {kF16, kE5M2, kE4M3}, {kF32, kE5M2, kE5M2}, {kS32, kS8, kS8},
                        {kS32, kS8, kU8},     {kS32, kU8, kS8},     {kS32, kU8, kU8}};
  for (const Types& t : kAll)
    for (const bool registers : {false, true})
      for (unsigned swizzle = 0; swizzle < 4; ++swizzle) {
        Case c;
        c.d = t.d;
        c.a = t.a;
        c.b = t.b;
        c.n = 16;
        c.registers = registers;
        c.place_a = place(swizzle, false, 0, 64, 1);
        c.place_b = place(swizzle, false, 32 << 10, 16, 1);
        INFO("registers " << registers << ", swizzle " << swizzle);
        CHECK(run(c) == "");
      }
}

TEST_CASE("warpgroups multiply sparse matrices by their metadata", "[wgmma]") {
  struct Types {
    Type d, a, b;
  };
  for (const Types& t :
       {Types{kF32, kF16, kF16}, Types{kF16, kF16, kF16}, Types{kF32, kBF16, kBF16},
        Types{kF32, kTF32, kTF32}, Types{kF32, kE4M3, kE5M2}, Types{kS32, kS8, kU8}})
    for (const bool registers : {false, true})
      for (unsigned swizzle : {0u, 1u, 2u}) {
        Case c;
        c.sparse = true;
        c.d = t.d;
        c.a = t.a;
        c.b = t.b;
        c.n = 16;
        c.registers = registers;
        c.selector = t.a.bits == 8 ? 0 : swizzle % 2;
        c.negative_a = t.a.exponent != 0;
        c.place_a = place(swizzle, false, 0, 64, 1);
        c.place_b = place(swizzle, false, 32 << 10, 16, 1);
        INFO("registers " << registers << ", swizzle " << swizzle);
        CHECK(run(c) == "");
        if (t.a.bits != 16 || swizzle == 0) continue;
        c.place_a = place(swizzle, true, 0, 64, 1);
        c.place_b = place(swizzle, true, 32 << 10, 16, 1);
        CHECK(run(c) == "");
      }
}

TEST_CASE("warpgroups multiply from the narrowest to the widest matrix", "[wgmma]") {
  for (const unsigned n : {8u, 24u, 40u, 128u, 248u, 256u})
    for (const bool registers : {false, true}) {
      Case c;
      c.n = n;
      c.registers = registers;
      c.place_a = place(1, false, 0, 64, 1);
      c.place_b = place(1, registers, 16 << 10, n, 1);
      CHECK(run(c) == "");
      c.d = kF16;
      c.before = -1;
      CHECK(run(c) == "");
    }
}

TEST_CASE("matrices begin inside of a swizzle's line or pattern", "[wgmma]") {
  Case c;
  c.n = 8;
  for (uint32_t in_line = 0; in_line < 128; in_line += 32) {  // further columns of k
    c.place_a = place(1, false, in_line, 64, 1);
    c.place_b = place(1, false, (32 << 10) + in_line, 64, 1);
    CHECK(run(c) == "");
  }
  for (const uint32_t base : {1u, 3u, 6u}) {  // a pattern that does not begin at 1024
    c.place_a = place(1, false, base * 128, 64, 1);
    c.place_a.base = base;
    c.place_b = place(2, false, (32 << 10) + base * 128, 64, 1);
    c.place_b.base = base;
    CHECK(run(c) == "");
  }
}

TEST_CASE("signs, sums that are not added, and several products in a row", "[wgmma]") {
  Case c;
  c.place_a = place(3, false, 0, 64, 1);
  c.place_b = place(3, false, 32 << 10, 8, 1);
  c.negative_a = true;
  CHECK(run(c) == "");
  c.negative_b = true;
  CHECK(run(c) == "");
  c.negative_a = false;
  c.times = 3;
  CHECK(run(c) == "");
  c.added = false;
  CHECK(run(c) == "");
}

TEST_CASE("sums of integers wrap around, or stop at the end", "[wgmma]") {
  Case c;
  c.a = c.b = kU8;
  c.d = kS32;
  c.place_a = place(0, false, 0, 64, 1);
  c.place_b = place(0, false, 32 << 10, 8, 1);
  c.before = 2147483647;
  c.saturate = true;
  CHECK(run(c) == "");
  c.saturate = false;
  CHECK(run(c).find("is -2147") != std::string::npos);
}

TEST_CASE("single bits that are set in both are counted", "[wgmma]") {
  // All bits of a, every fourth of b: 64 of 256, twice.
  std::string s = kHead;
  s += ".shared .align 128 .b8 a[2048]; .shared .align 128 .b8 b[256];\n"
       ".visible .entry k(.param .u64 out) {\n"
       ".reg .b32 %d<4>, %t, %x, %y; .reg .b64 %o, %da, %db; .reg .pred %p, %q;\n"
       "mov.u32 %t, %tid.x; mad.lo.u32 %x, %t, 16, 0; mov.u32 %y, a; add.u32 %x, %x, %y;\n"
       "st.shared.v4.u32 [%x], {-1, -1, -1, -1}; mov.u32 %y, b; mad.lo.u32 %x, %t, 16, %y;\n"
       "setp.lt.u32 %q, %t, 16; @%q st.shared.v4.u32 [%x], {0x11111111, 0x11111111, 0x11111111, "
       "0x11111111};\n"
       "bar.sync 0; mov.u32 %x, a; shr.u32 %x, %x, 4; shr.u32 %y, %y, 4;\n"
       "cvt.u64.u32 %da, %x; cvt.u64.u32 %db, %y; or.b64 %da, %da, 0x800400000; or.b64 %db, %db, "
       "0x80000;\n"
       "mov.u32 %d0, 5; mov.u32 %d1, 6; mov.u32 %d2, 7; mov.u32 %d3, 8; setp.eq.u32 %p, %t, %t;\n"
       "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%d0, %d1, %d2, %d3}, %da, %db, "
       "%p;\n"
       "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%d0, %d1, %d2, %d3}, %da, %db, "
       "1;\n"
       "ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 16, %o;\n"
       "st.global.v4.u32 [%o], {%d0, %d1, %d2, %d3}; ret; }\n";
  Gpu gpu(1 << 20);
  REQUIRE((gpu.load(s) ? "" : gpu.error) == "");
  const uint64_t out = gpu.zeros(128 * 16);
  const Result r = gpu.run("k", 1, 128, {out});
  REQUIRE(std::string(r.text) == "");
  const auto got = gpu.read<uint32_t>(out, 512);
  for (unsigned k = 0; k < 512; ++k) CHECK(got[k] == 128 + 5 + k % 4);
}

TEST_CASE("warps of a group come to a product at different times", "[wgmma]") {
  Case c;
  c.place_a = place(1, false, 0, 64, 1);
  c.place_b = place(1, false, 32 << 10, 8, 1);
  c.setup =
      "mov.u32 %n, %t;\n"
      "again: setp.eq.u32 %q, %n, 0; @%q bra over; sub.u32 %n, %n, 1; bra again;\nover:\n";
  CHECK(run(c) == "");
}

TEST_CASE("products of incomplete groups, unlike descriptors and foreign memory are errors",
          "[wgmma]") {
  Case c;
  c.place_a = place(1, false, 0, 64, 1);
  c.place_b = place(1, false, 32 << 10, 8, 1);
  Case few = c;
  few.threads = 96;
  CHECK(run(few).find("no complete warpgroup") != std::string::npos);
  Case unlike = c;
  unlike.setup = "cvt.u64.u32 %db, %t;\n";
  CHECK(run(unlike).find("different matrix descriptors") != std::string::npos);
  Case differ = c;
  differ.setup = "setp.lt.u32 %p, %t, 5;\n";
  CHECK(run(differ).find("differ on whether") != std::string::npos);
  Case outside = c;
  outside.shared = 64 << 10;
  outside.setup = "mov.b64 %da, 0x4000000fff;\n";
  CHECK(run(outside).find("outside of shared memory") != std::string::npos);
}

TEST_CASE("products that PTX does not have are refused by name", "[wgmma]") {
  Case c;
  const std::string begin = "wgmma.mma_async.sync.aligned.";
  for (const char* wrong :
       {"m64n12k16.f32.f16.f16", "m64n264k16.f32.f16.f16", "m64n8k8.f32.f16.f16",
        "m64n0k16.f32.f16.f16", "m64n8k16.f16.bf16.bf16", "m64n8k16.f32.f16.bf16",
        "m64n8k8.f16.tf32.tf32", "m64n40k32.s32.s8.s8", "m64n8k256.s32.b1.b1.xor.popc",
        "m64n8k4.f64.f64.f64", "m32n8k16.f32.f16.f16"}) {
    const std::string error = run(c, begin + wrong);
    INFO(wrong << ": " << error);
    CHECK((error.find("not supported") != std::string::npos ||
           error.find("unknown modifier") != std::string::npos));
  }
  c.sparse = true;
  CHECK(run(c, "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16").find("not supported") !=
        std::string::npos);
  c.selector = 2;
  CHECK(run(c, "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16").find("selector") !=
        std::string::npos);
  c.sparse = false;
  c.n = 16;  // eight registers
  CHECK(run(c, begin + "m64n8k16.f32.f16.f16").find("d needs 4 registers") != std::string::npos);
}
