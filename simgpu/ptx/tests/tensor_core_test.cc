// Tensor memory and its products (tcgen05): types, layouts of both operands, where rows and columns
// lie, shapes of loads and stores, and what is an error.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>
#include "tests/catch.h"

#include "shared_matrices.h"
#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

std::string registers(const char* name, unsigned count) {
  std::string s = "{";
  for (unsigned r = 0; r < count; ++r)
    s += std::string(r ? ", " : "") + "%" + name + std::to_string(r);
  return s + "}";
}

// A kernel of four warps with `columns` of tensor memory at %m, and %w: the first lane of the warp.
// Each thread has 64 words of `in` in %r and leaves %r in the output.
std::string kernel(const std::string& text, unsigned columns = 128) {
  std::string s = ".version 9.0\n.target sm_100a\n.address_size 64\n";
  s += ".extern .shared .align 1024 .b8 memory[];\n"
       ".visible .entry k(.param .u64 pimage, .param .u64 pin, .param .u64 po) {\n"
       ".reg .b32 %r<64>, %t, %n, %m, %w, %x<4>, %i; .reg .b64 %y<5>, %da, %db;\n"
       ".reg .pred %p, %q, %first;\n"
       "mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0; setp.lt.u32 %q, %t, 32;\n"
       "ld.param.u64 %y0, [pimage]; mov.u64 %y1, memory; mul.lo.u32 %n, %t, 16;\n"
       "copy: cvt.u64.u32 %y2, %n; add.u64 %y3, %y0, %y2;\n"
       "ld.global.v4.u32 {%x0, %x1, %x2, %x3}, [%y3]; add.u64 %y3, %y1, %y2;\n"
       "st.shared.v4.u32 [%y3], {%x0, %x1, %x2, %x3}; add.u32 %n, %n, 2048;\n"
       "setp.lt.u32 %p, %n, 65536; @%p bra copy;\n"
       "@%q tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [memory+65544], " +
       std::to_string(columns) +
       ";\n@%q tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
       "@%first mbarrier.init.shared.b64 [memory+65536], 1;\n"
       "bar.sync 0; fence.proxy.async; tcgen05.fence::after_thread_sync;\n"
       "ld.shared.u32 %m, [memory+65544]; and.b32 %w, %t, 96; shl.b32 %w, %w, 16; add.u32 %w, %w, "
       "%m;\n"
       "ld.param.u64 %y0, [pin]; mad.wide.u32 %y0, %t, 256, %y0;\n";
  for (unsigned r = 0; r < 64; ++r)
    s += "ld.global.u32 %r" + std::to_string(r) + ", [%y0+" + std::to_string(r * 4) + "];\n";
  s += text;
  s += "tcgen05.fence::before_thread_sync; bar.sync 0;\n"
       "@%q tcgen05.dealloc.cta_group::1.sync.aligned.b32 %m, " +
       std::to_string(columns) + ";\nld.param.u64 %y0, [po]; mad.wide.u32 %y0, %t, 256, %y0;\n";
  for (unsigned r = 0; r < 64; ++r)
    s += "st.global.u32 [%y0+" + std::to_string(r * 4) + "], %r" + std::to_string(r) + ";\n";
  return s + "ret; }\n";
}

struct Run {
  std::string error;
  std::vector<uint32_t> words;  // 64 for each thread
  uint32_t of(unsigned thread, unsigned reg) const { return words[thread * 64 + reg]; }
};
Run run(const std::string& text, const std::vector<uint32_t>& in, std::vector<uint8_t> image = {}) {
  image.resize(64 << 10, 0xee);
  Run out;
  Gpu gpu(4 << 20);
  if (!gpu.load(text)) {
    out.error = gpu.error;
    return out;
  }
  const uint64_t to = gpu.zeros(128 * 256);
  const Result r = gpu.run("k", 1, 128, {gpu.array(image), gpu.array(in), to}, 96 << 10);
  out.error = r.text;
  out.words = gpu.read<uint32_t>(to, 128 * 64);
  return out;
}
std::vector<uint32_t> numbered() {
  std::vector<uint32_t> in(128 * 64);
  for (unsigned k = 0; k < in.size(); ++k) in[k] = k / 64 << 16 | k % 64;  // lane and column
  return in;
}
const char* const kStored =
    "tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0;\n";
std::string store_all() {
  return "tcgen05.st.sync.aligned.32x32b.x64.b32 [%w], " + registers("r", 64) + ";\n" + kStored;
}

struct Product {
  Type a = kF16, b = kF16;
  const char* kind = "f16";
  unsigned format_a = 0, format_b = 0, sums = 1;
  unsigned m = 128, n = 64;
  Place place_a, place_b;
  bool in_memory = false, negative_b = false, added = true;
  std::string end;  // behind the predicate

  unsigned k() const { return 256 / a.bits; }
  uint32_t instruction() const {
    return sums << 4 | format_a << 7 | format_b << 10 | (negative_b ? 1u << 14 : 0) |
           (place_a.outer ? 1u << 15 : 0) | (place_b.outer ? 1u << 16 : 0) | n / 8 << 17 |
           m / 16 << 24;
  }
};

// What went wrong; empty when d is as it should be. Before it, each word of d is `before`.
std::string multiply(const Product& c, float before = 3) {
  const bool whole_a = c.a.name == kU8.name, whole_b = c.b.name == kU8.name;
  const Type& sum = c.sums == 2 ? kS32 : c.sums == 1 ? kF32 : kF16;
  std::vector<uint8_t> image(64 << 10, 0xee);
  auto put = [&](const Place& p, const Type& t, unsigned row, unsigned k, int v) {
    const uint32_t word = encode(t, v);
    memcpy(&image[p.byte(row, k, t.bits)], &word, t.bits / 8);
  };
  for (unsigned k = 0; k < c.k(); ++k) {
    for (unsigned m = 0; m < c.m && !c.in_memory; ++m)
      put(c.place_a, c.a, m, k, value(m, k, 1, whole_a));
    for (unsigned n = 0; n < c.n; ++n) put(c.place_b, c.b, n, k, value(n, k, 2, whole_b));
  }
  // a behind d: rows are lanes, elements one behind the other in words.
  std::vector<uint32_t> in(128 * 64);
  const unsigned each = 32 / c.a.bits;
  for (unsigned lane = 0; lane < 128; ++lane)
    for (unsigned k = 0; k < c.k() && c.in_memory; ++k)
      in[lane * 64 + k / each] |= encode(c.a, value(lane, k, 1, whole_a)) << k % each * c.a.bits;
  const std::string begins = std::to_string(encode(sum, (int)before));
  std::string text =
      "tcgen05.st.sync.aligned.32x32b.x8.b32 [%w + 64], " + registers("r", 8) + ";\n";
  for (unsigned r = 0; r < 64; ++r)
    text += "mov.b32 %r" + std::to_string(r) + ", " + begins + ";\n";
  text += store_all();
  text += "mov.b64 %da, " + std::to_string(c.place_a.descriptor()) + "; mov.b64 %db, " +
          std::to_string(c.place_b.descriptor()) + "; mov.b32 %i, " +
          std::to_string(c.instruction()) + "; setp." + (c.added ? "eq" : "ne") +
          ".u32 %p, %t, %t; add.u32 %n, %m, 64;\n@%first tcgen05.mma.cta_group::1.kind::" + c.kind +
          " [%m], " + (c.in_memory ? "[%n]" : "%da") + ", %db, %i, %p" + c.end +
          ";\n@%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 "
          "[memory+65536];\n"
          "wait: mbarrier.try_wait.parity.shared.b64 %p, [memory+65536], 0; @!%p bra wait;\n"
          "tcgen05.ld.sync.aligned.32x32b.x64.b32 " +
          registers("r", 64) + ", [%w];\ntcgen05.wait::ld.sync.aligned;\n";
  const Run got = run(kernel(text), in, image);
  if (!got.error.empty()) return got.error;
  for (unsigned row = 0; row < c.m; ++row)
    for (unsigned n = 0; n < c.n; ++n) {
      double want = 0;
      for (unsigned k = 0; k < c.k(); ++k)
        want += value(row, k, 1, whole_a) * value(n, k, 2, whole_b);
      want = (c.negative_b ? -want : want) + (c.added ? before / (c.end.empty() ? 1 : 4) : 0);
      const unsigned lane = c.m == 128 ? row : row / 16 * 32 + row % 16;
      const double found = decode(sum, got.of(lane, n));
      if (found != want)
        return std::string(c.kind) + ": d[" + std::to_string(row) + "][" + std::to_string(n) +
               "] is " + std::to_string(found) + ", not " + std::to_string(want);
    }
  // Lanes that no row has keep what they had.
  if (c.m == 64 && decode(sum, got.of(16, 0)) != before) return "a lane without a row was written";
  return "";
}

}  // namespace

TEST_CASE("tensor memory is read in every shape", "[tensor_core]") {
  struct Shape {
    const char* words;
    unsigned registers;
    unsigned (*lane)(unsigned thread, unsigned reg);
    unsigned (*column)(unsigned thread, unsigned reg);
  };
  const Shape kShapes[] = {
      {"32x32b.x16", 16, [](unsigned t, unsigned) { return t; },
       [](unsigned, unsigned r) { return r; }},
      {"16x64b.x8", 8, [](unsigned t, unsigned) { return t / 4 + t / 2 % 2 * 8; },
       [](unsigned t, unsigned r) { return 2 * r + t % 2; }},
      {"16x128b.x4", 8, [](unsigned t, unsigned r) { return t / 4 + r % 2 * 8; },
       [](unsigned t, unsigned r) { return r / 2 * 4 + t % 4; }},
      {"16x256b.x2", 8, [](unsigned t, unsigned r) { return t / 4 + r / 2 % 2 * 8; },
       [](unsigned t, unsigned r) { return r / 4 * 8 + t % 4 * 2 + r % 2; }}};
  for (const Shape& s : kShapes)
    for (const unsigned half : {0u, 1u}) {
      if (half != 0 && s.registers == 16) continue;
      const Run got =
          run(kernel(store_all() + "add.u32 %w, %w, " + std::to_string(half * 16 << 16 | 8) +
                     ";\ntcgen05.ld.sync.aligned." + s.words + ".b32 " +
                     registers("r", s.registers) + ", [%w + 4];\n"),
              numbered());
      INFO(s.words << ", half " << half);
      REQUIRE(got.error == "");
      for (unsigned t = 0; t < 128; ++t)
        for (unsigned r = 0; r < s.registers; ++r)
          CHECK(got.of(t, r) ==
                ((t / 32 * 32 + half * 16 + s.lane(t % 32, r)) << 16 | (12 + s.column(t % 32, r))));
    }
}

TEST_CASE("a register has the low halves of two columns", "[tensor_core]") {
  const Run got = run(
      kernel("tcgen05.st.sync.aligned.32x32b.x16.unpack::16b.b32 [%w + 64], " + registers("r", 16) +
             ";\n" + kStored + "tcgen05.ld.sync.aligned.32x32b.x32.b32 " + registers("r", 32) +
             ", [%w + 64];\nadd.u32 %n, %w, 64;\n"
             "tcgen05.ld.sync.aligned.32x32b.x4.pack::16b.b32 "
             "{%r32, %r33, %r34, %r35}, [%n];\n"),
      numbered());
  REQUIRE(got.error == "");
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned r = 0; r < 16; ++r) {
      CHECK(got.of(t, 2 * r) == r);
      CHECK(got.of(t, 2 * r + 1) == t);
      if (r < 4) CHECK(got.of(t, 32 + r) == (t << 16 | r));
    }
}

TEST_CASE("halves of a warp have columns of their own", "[tensor_core]") {
  const Run got =
      run(kernel("tcgen05.st.sync.aligned.16x32bx2.x16.b32 [%w], 32, " + registers("r", 16) +
                 ";\n" + kStored + "tcgen05.ld.sync.aligned.32x32b.x64.b32 " + registers("r", 64) +
                 ", [%w];\n"),
          numbered());
  REQUIRE(got.error == "");
  for (unsigned lane = 0; lane < 128; ++lane)
    for (unsigned column = 0; column < 64; ++column) {
      const unsigned thread = lane + (column < 32 ? 0 : 16);
      const bool written = lane % 32 < 16 && column % 32 < 16;
      CHECK(got.of(lane, column) == (written ? thread << 16 | column % 32 : 0));
    }
}

TEST_CASE("products have their sums in tensor memory", "[tensor_core]") {
  struct Types {
    Type a, b;
    const char* kind;
    unsigned format_a, format_b, sums;
  };
  const Types kAll[] = {{kF16, kF16, "f16", 0, 0, 1},    {kBF16, kBF16, "f16", 1, 1, 1},
                        {kTF32, kTF32, "tf32", 2, 2, 1}, {kE4M3, kE5M2, "f8f6f4", 0, 1, 1},
                        {kF16, kF16, "f16", 0, 0, 0},    {kE5M2, kE4M3, "f8f6f4", 1, 0, 1},
                        {kS8, kU8, "i8", 1, 0, 2},       {kU8, kS8, "i8", 0, 1, 2}};
  for (const Types& t : kAll)
    for (unsigned swizzle = 0; swizzle < 4; ++swizzle)
      for (unsigned orders = 0; orders < 4; ++orders)
        for (const unsigned m : {64u, 128u}) {
          if (orders != 0 && (t.a.bits == 32 || swizzle == 0)) continue;
          Product c;
          c.a = t.a;
          c.b = t.b;
          c.kind = t.kind;
          c.format_a = t.format_a;
          c.format_b = t.format_b;
          c.sums = t.sums;
          c.m = m;
          c.n = m == 64 ? 24 : 48;
          c.added = swizzle != 1;
          c.negative_b = swizzle == 2 && t.sums == 1;
          c.place_a = place(swizzle, orders & 1, 0, m, 1);
          c.place_b = place(swizzle, orders & 2, 32 << 10, 64, 1);
          if (t.a.bits == 8)  // four atoms for 32 numbers of the inner dimension
            for (Place* p : {&c.place_a, &c.place_b})
              if (p->outer) p->leading *= 2;
          INFO(t.a.name << ", swizzle " << swizzle << ", orders " << orders << ", m " << m);
          CHECK(multiply(c) == "");
        }
}

TEST_CASE("a lies in tensor memory, and d is divided before", "[tensor_core]") {
  for (const Type& t : {kF16, kE4M3, kTF32}) {
    Product c;
    c.a = c.b = t;
    c.kind = t.bits == 16 ? "f16" : t.bits == 8 ? "f8f6f4" : "tf32";
    c.format_a = c.format_b = t.bits == 32 ? 2 : 0;
    c.in_memory = true;
    c.place_b = place(1, false, 32 << 10, 64, 1);
    CHECK(multiply(c) == "");
    c.end = ", 2";
    CHECK(multiply(c, 8) == "");
  }
}

TEST_CASE("tensor memory that a warp does not have is not touched", "[tensor_core]") {
  auto error = [](const std::string& text, unsigned columns = 128) {
    return run(kernel(text, columns), numbered()).error;
  };
  const std::string load = "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r0, ";
  CHECK(error(load + "[%w + 128];").find("column 128 of tensor memory is not allocated") !=
        std::string::npos);
  CHECK(error(load + "[%m];").find("of tensor memory, not those from 0 on") != std::string::npos);
  CHECK(error("", 48).find("not a power of two") != std::string::npos);
  CHECK(error("@%q tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [memory+65544], 512;")
            .find("are not left") != std::string::npos);
  CHECK(error("@%q tcgen05.dealloc.cta_group::1.sync.aligned.b32 %m, 256;").find("not allocated") !=
        std::string::npos);
}

TEST_CASE("tensor-core instructions that are not there are named", "[tensor_core]") {
  auto refused = [](const std::string& text) {
    const std::string error = run(kernel(text), numbered()).error;
    INFO(text << ": " << error);
    CHECK(error.find("supported") != std::string::npos);
  };
  refused("@%first tcgen05.mma.sp.cta_group::1.kind::f16 [%m], %da, %db, [%n], %i, %p;");
  refused("@%first tcgen05.mma.ws.cta_group::1.kind::f16 [%m], %da, %db, %i, %p;");
  refused("@%first tcgen05.mma.cta_group::2.kind::f16 [%m], %da, %db, %i, %p;");
  refused("@%first tcgen05.mma.cta_group::1.kind::f16 [%m], %da, %db, %i, {%n, %n, %n, %n}, %p;");
  refused("@%first tcgen05.cp.cta_group::1.128x256b [%m], %da;");
  refused("tcgen05.ld.sync.aligned.16x64b.x1.pack::16b.b32 {%r0}, [%w];");
  Product c;
  c.sums = 2;
  CHECK(multiply(c).find("sums is not supported") != std::string::npos);
  c.sums = 1;
  c.format_a = 3;
  CHECK(multiply(c).find("elements are not supported") != std::string::npos);
}
