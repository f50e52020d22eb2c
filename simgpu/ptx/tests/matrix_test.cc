// Matrix instructions that C++ has no words for (4-bit and 1-bit integers, 8-bit floats, sums of 16
// bits), lanes that arrive at different times, and what is an error.
#include <cmath>
#include <initializer_list>
#include "tests/catch.h"

#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

// Runs one instruction with the fragments given lane by lane: a and b as words, c as words.
struct Mma {
  std::string error;
  std::string last;             // operands behind c, which may name %e and %f
  std::vector<uint32_t> extra;  // these, two words for each lane
  std::vector<uint32_t> operator()(const std::string& opcode, unsigned na, unsigned nb, unsigned nc,
                                   const std::vector<uint32_t>& a, const std::vector<uint32_t>& b,
                                   const std::vector<uint32_t>& c, uint32_t threads = 32,
                                   const std::string& before = "") {
    auto list = [](const char* name, unsigned n) {
      std::string s = "{";
      for (unsigned k = 0; k < n; ++k)
        s += std::string(k ? ", " : "") + "%" + name + std::to_string(k);
      return s + "}";
    };
    std::string s = kHead;
    s += ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 po,\n"
         ".param .u64 pe) {\n"
         ".reg .b32 %a<8>, %b<8>, %c<8>, %e, %f, %lane, %n; .reg .b64 %x<5>, %t; .reg .pred %p;\n"
         ".reg .b16 %h<4>;\n"
         "mov.u32 %lane, %tid.x;\n";
    auto load = [&](const char* name, int k, unsigned n) {
      const std::string x = "%x" + std::to_string(k);
      s += "ld.param.u64 " + x + ", [p" + name + "]; mad.wide.u32 " + x + ", %lane, " +
           std::to_string(n * 4) + ", " + x + ";\n";
      for (unsigned r = 0; r < n; ++r)
        s += std::string("ld.global.u32 %") + name + std::to_string(r) + ", [" + x + "+" +
             std::to_string(r * 4) + "];\n";
    };
    load("a", 0, na);
    load("b", 1, nb);
    load("c", 2, nc);
    s += "ld.param.u64 %t, [pe]; mad.wide.u32 %t, %lane, 8, %t; ld.global.v2.u32 {%e, %f}, [%t];\n";
    s += before + opcode + " " + list("c", nc) + ", " + list("a", na) + ", " + list("b", nb) +
         ", " + list("c", nc) + last + ";\n";
    s += "ld.param.u64 %x3, [po]; mad.wide.u32 %x3, %lane, " + std::to_string(nc * 4) + ", %x3;\n";
    for (unsigned r = 0; r < nc; ++r)
      s += "st.global.u32 [%x3+" + std::to_string(r * 4) + "], %c" + std::to_string(r) + ";\n";
    s += "ret; }\n";
    Gpu gpu(1 << 20);
    if (!gpu.load(s)) {
      error = gpu.error;
      return {};
    }
    const uint64_t out = gpu.zeros(32 * nc * 4);
    std::vector<uint32_t> words = extra;
    words.resize(64);
    const Result r =
        gpu.run("k", 1, threads, {gpu.array(a), gpu.array(b), gpu.array(c), out, gpu.array(words)});
    error = r.text;
    return gpu.read<uint32_t>(out, 32 * nc);
  }
};

// Packs elements of `width` bits: fragment element i of each lane is at(lane, i).
template <class F>
std::vector<uint32_t> fragments(unsigned registers, unsigned width, F at) {
  std::vector<uint32_t> words(32 * registers);
  const unsigned each = 32 / width;
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned i = 0; i < registers * each; ++i)
      words[l * registers + i / each] |= (uint32_t)(at(l, i) & ((1ull << width) - 1))
                                         << i % each * width;
  return words;
}
int small(unsigned r, unsigned c, unsigned salt) {
  return (int)((r * 7 + c * 13 + salt * 5 + r * c) % 15) - 7;
}

}  // namespace

TEST_CASE("4-bit integers multiply, signed and unsigned", "[matrix]") {
  // m16n8k64: rows as of 8-bit elements, twice as many of them.
  const auto a = fragments(4, 4, [](unsigned l, unsigned i) {
    const unsigned row = l / 4 + ((i >= 8 && i < 16) || i >= 24 ? 8 : 0);
    const unsigned column = l % 4 * 8 + i % 8 + (i >= 16 ? 32 : 0);
    return (unsigned)small(row, column, 1);
  });
  const auto b = fragments(2, 4, [](unsigned l, unsigned i) {
    return (unsigned)(small(l % 4 * 8 + i % 8 + (i >= 8 ? 32 : 0), l / 4, 2) + 8);
  });
  Mma mma;
  const auto got = mma("mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32", 4, 2, 4, a, b,
                       std::vector<uint32_t>(128, 3));
  REQUIRE(mma.error == "");
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = l / 4 + (i < 2 ? 0 : 8), column = l % 4 * 2 + i % 2;
      int want = 3;
      for (unsigned k = 0; k < 64; ++k) want += small(row, k, 1) * (small(k, column, 2) + 8);
      CHECK((int)got[l * 4 + i] == want);
    }
}

TEST_CASE("single bits are compared and counted", "[matrix]") {
  auto bit = [](unsigned r, unsigned c, unsigned salt) {
    return (r * 2654435761u + c * 40503u + salt * 977u) >> 7 & 1;
  };
  const auto a =
      fragments(1, 1, [&](unsigned l, unsigned i) { return bit(l / 4, l % 4 * 32 + i, 1); });
  const auto b =
      fragments(1, 1, [&](unsigned l, unsigned i) { return bit(l % 4 * 32 + i, l / 4, 2); });
  for (const bool exclusive : {false, true}) {
    Mma mma;
    const auto got = mma(std::string("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.") +
                             (exclusive ? "xor" : "and") + ".popc",
                         1, 1, 2, a, b, std::vector<uint32_t>(64, 100));
    REQUIRE(mma.error == "");
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned i = 0; i < 2; ++i) {
        unsigned want = 100;
        for (unsigned k = 0; k < 128; ++k) {
          const unsigned x = bit(l / 4, k, 1), y = bit(k, l % 4 * 2 + i, 2);
          want += exclusive ? x ^ y : x & y;
        }
        CHECK(got[l * 2 + i] == want);
      }
  }
}

TEST_CASE("8-bit floats multiply into sums of 32 and of 16 bits", "[matrix]") {
  // 1, 2, -3 and 0.5, in E4M3 and in E5M2.
  static const unsigned kE4m3[] = {0x38, 0x40, 0xc4, 0x30}, kE5m2[] = {0x3c, 0x40, 0xc2, 0x38};
  static const float kValues[] = {1, 2, -3, 0.5f};
  auto which = [](unsigned r, unsigned c) { return (r * 3 + c * 5 + r * c) % 4; };
  const auto a = fragments(4, 8, [&](unsigned l, unsigned i) {
    const unsigned row = l / 4 + ((i >= 4 && i < 8) || i >= 12 ? 8 : 0);
    return kE4m3[which(row, l % 4 * 4 + i % 4 + (i >= 8 ? 16 : 0))];
  });
  const auto b = fragments(2, 8, [&](unsigned l, unsigned i) {
    return kE5m2[which(l % 4 * 4 + i % 4 + (i >= 4 ? 16 : 0), l / 4)];
  });
  auto want = [&](unsigned row, unsigned column) {
    float sum = 0;
    for (unsigned k = 0; k < 32; ++k) sum += kValues[which(row, k)] * kValues[which(k, column)];
    return sum;
  };
  Mma mma;
  const auto wide = mma("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", 4, 2, 4, a, b,
                        std::vector<uint32_t>(128));
  REQUIRE(mma.error == "");
  const auto narrow = mma("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16", 4, 2, 2, a, b,
                          std::vector<uint32_t>(64));
  REQUIRE(mma.error == "");
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned i = 0; i < 4; ++i) {
      const float w = want(l / 4 + (i < 2 ? 0 : 8), l % 4 * 2 + i % 2);
      CHECK(real(wide[l * 4 + i]) == w);
      const uint16_t h = (uint16_t)(narrow[l * 2 + i / 2] >> i % 2 * 16);
      const float sign = h & 0x8000 ? -1.0f : 1.0f;
      const int exponent = (h >> 10 & 31) - 15;
      CHECK((w == 0 ? (h & 0x7fff) == 0
                    : sign * std::ldexp(1.0f + (float)(h & 1023) / 1024, exponent) == w));
    }
}

namespace {

// A type of a's and b's elements, and what the numbers -3 to 3 are in it.
struct SparseType {
  const char* name;
  unsigned bits;
  uint32_t numbers[7];
};
const SparseType kSparseTypes[] = {
    {"f16", 16, {0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200}},
    {"bf16", 16, {0xc040, 0xc000, 0xbf80, 0, 0x3f80, 0x4000, 0x4040}},
    {"tf32", 32, {0xc0400000, 0xc0000000, 0xbf800000, 0, 0x3f800000, 0x40000000, 0x40400000}},
    {"e4m3", 8, {0xc4, 0xc0, 0xb8, 0, 0x38, 0x40, 0x44}},
    {"s8", 8, {0xfd, 0xfe, 0xff, 0, 1, 2, 3}},
    {"s4", 4, {0xd, 0xe, 0xf, 0, 1, 2, 3}},
};
int number(unsigned r, unsigned c, unsigned salt) { return small(r, c, salt) % 4; }

// The column of stored element `j` of a row: half of each 2, 4 or, in pairs, 8 columns.
unsigned kept(const SparseType& t, unsigned row, unsigned j) {
  static const unsigned kPairs[][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  auto pair = [&](unsigned chunk) { return kPairs[(row * 5 + chunk * 7 + row * chunk) % 6]; };
  if (t.bits == 32) return 2 * j + (row * 3 + j * 5 + row * j) % 2;
  if (t.bits == 4) return j / 4 * 8 + pair(j / 4)[j % 4 / 2] * 2 + j % 2;
  return j / 2 * 4 + pair(j / 2)[j % 2];
}
// The metadata of a lane as the PTX manual draws it; lanes that have none have something else.
uint32_t metadata(const SparseType& t, unsigned l, unsigned words, unsigned selector) {
  if (l % 4 / words != selector) return 0xa5a5a5a5u * (l + 1);
  uint32_t word = 0;
  for (unsigned slot = 0; slot < 8; ++slot) {
    const unsigned place = l % 4 % words;
    const bool narrow = t.bits < 16;
    const unsigned row = l / 4 + 8 * (narrow ? place % 2 : slot / 4);
    const unsigned chunk = narrow ? place / 2 * 8 + slot : place * 4 + slot % 4;
    unsigned code;
    if (t.bits == 32)
      code = kept(t, row, chunk) % 2 ? 14 : 4;
    else if (t.bits == 4)
      code = kept(t, row, 4 * chunk) % 8 / 2 | kept(t, row, 4 * chunk + 2) % 8 / 2 << 2;
    else
      code = kept(t, row, 2 * chunk) % 4 | kept(t, row, 2 * chunk + 1) % 4 << 2;
    word |= code << 4 * slot;
  }
  return word;
}

// Element i of a lane's fragment of a, and of b, whose elements have `bits`: (row, column).
std::pair<unsigned, unsigned> place_a(unsigned bits, unsigned l, unsigned i) {
  const unsigned each = 32 / bits, reg = i / each;
  return {l / 4 + reg % 2 * 8, l % 4 * each + i % each + reg / 2 * 4 * each};
}
std::pair<unsigned, unsigned> place_b(unsigned bits, unsigned l, unsigned i) {
  const unsigned each = 32 / bits;
  return {l % 4 * each + i % each + i / each * 4 * each, l / 4};
}

}  // namespace

TEST_CASE("of a sparse matrix those elements multiply which its metadata names", "[matrix]") {
  for (const SparseType& t : kSparseTypes)
    for (const unsigned na : {2u, 4u}) {
      const unsigned k = na * 256 / t.bits / 2, words = na / (t.bits < 16 ? 1 : 2);
      if (na == 2 && t.bits == 8 && t.name[0] == 'e') continue;
      const bool integers = t.name[0] == 's';
      auto word = [&](int v) { return t.numbers[v + 3]; };
      const auto a = fragments(na, t.bits, [&](unsigned l, unsigned i) {
        const auto [row, j] = place_a(t.bits, l, i);
        return word(number(row, kept(t, row, j), 1));
      });
      const auto b = fragments(na, t.bits, [&](unsigned l, unsigned i) {
        const auto [row, column] = place_b(t.bits, l, i);
        return word(number(row, column, 2));
      });
      for (unsigned selector = 0; selector < 4 / words; ++selector) {
        Mma mma;
        for (unsigned l = 0; l < 32; ++l) {
          mma.extra.push_back(metadata(t, l, words, selector));
          mma.extra.push_back(0);
        }
        mma.last = ", %e, " + std::to_string(selector);
        const std::string sums = integers ? "s32" : "f32";
        const std::string opcode =
            std::string(selector % 2 ? "mma.sp::ordered_metadata" : "mma.sp") +
            ".sync.aligned.m16n8k" + std::to_string(k) + ".row.col." + sums + "." + t.name + "." +
            t.name + "." + sums;
        const auto got = mma(opcode, na, na, 4, a, b, std::vector<uint32_t>(128));
        INFO(opcode << ", selector " << selector);
        REQUIRE(mma.error == "");
        for (unsigned l = 0; l < 32; ++l)
          for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = l / 4 + (i < 2 ? 0 : 8), column = l % 4 * 2 + i % 2;
            int want = 0;
            for (unsigned j = 0; j < k / 2; ++j) {
              const unsigned at = kept(t, row, j);
              want += number(row, at, 1) * number(at, column, 2);
            }
            CHECK((integers ? (float)(int)got[l * 4 + i] : real(got[l * 4 + i])) == (float)want);
          }
      }
    }
}

TEST_CASE("floats of 4 and 6 bits multiply, each in a byte", "[matrix]") {
  struct Type {
    const char* name;
    uint32_t numbers[7];  // -3 to 3; 4 bits are the middle of the byte
  };
  const Type kTypes[] = {{"e2m1", {0x34, 0x30, 0x28, 0, 0x08, 0x10, 0x14}},
                         {"e3m2", {0x32, 0x30, 0x2c, 0, 0x0c, 0x10, 0x12}},
                         {"e2m3", {0x34, 0x30, 0x28, 0, 0x08, 0x10, 0x14}},
                         {"e5m2", {0xc2, 0xc0, 0xbc, 0, 0x3c, 0x40, 0x42}}};
  for (const Type& ta : kTypes)
    for (const Type& tb : kTypes) {
      const auto a = fragments(4, 8, [&](unsigned l, unsigned i) {
        const auto [row, k] = place_a(8, l, i);
        return ta.numbers[number(row, k, 1) + 3];
      });
      const auto b = fragments(2, 8, [&](unsigned l, unsigned i) {
        const auto [k, column] = place_b(8, l, i);
        return tb.numbers[number(k, column, 2) + 3];
      });
      Mma mma;
      const auto got = mma(std::string("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.") +
                               ta.name + "." + tb.name + ".f32",
                           4, 2, 4, a, b, std::vector<uint32_t>(128));
      INFO(ta.name << ", " << tb.name);
      REQUIRE(mma.error == "");
      for (unsigned l = 0; l < 32; ++l)
        for (unsigned i = 0; i < 4; ++i) {
          const unsigned row = l / 4 + (i < 2 ? 0 : 8), column = l % 4 * 2 + i % 2;
          int want = 0;
          for (unsigned k = 0; k < 32; ++k) want += number(row, k, 1) * number(k, column, 2);
          CHECK(real(got[l * 4 + i]) == (float)want);
        }
    }
}

TEST_CASE("scales multiply their part of a row and of a column", "[matrix]") {
  struct Kind {
    const char* words;
    unsigned k, parts, byte;  // byte: the first that counts
    bool e4m3;
  };
  const Kind kKinds[] = {{"kind::mxf8f6f4.block_scale.scale_vec::1X", 32, 1, 3, false},
                         {"kind::mxf8f6f4.block_scale", 32, 1, 0, false},
                         {"kind::mxf4.block_scale.scale_vec::2X", 64, 2, 2, false},
                         {"kind::mxf4nvf4.block_scale.scale_vec::4X", 64, 4, 0, true}};
  static const uint32_t kE2M1[] = {13, 12, 10, 0, 2, 4, 5};
  for (const Kind& kind : kKinds)
    for (const unsigned thread_a : {0u, 1u})
      for (const unsigned thread_b : {0u, 3u}) {
        const unsigned bits = kind.k == 32 ? 8 : 4;
        auto word = [&](int v) { return kE2M1[v + 3] << (bits == 8 ? 2 : 0); };
        const auto a = fragments(4, bits, [&](unsigned l, unsigned i) {
          const auto [row, k] = place_a(bits, l, i);
          return word(number(row, k, 1));
        });
        const auto b = fragments(2, bits, [&](unsigned l, unsigned i) {
          const auto [k, column] = place_b(bits, l, i);
          return word(number(k, column, 2));
        });
        // Powers of two: 2^-2 to 2^2.
        auto power = [](unsigned r, unsigned part, unsigned salt) {
          return (int)((r * 3 + part * 2 + salt) % 5) - 2;
        };
        auto scale = [&](int e) { return (uint32_t)(kind.e4m3 ? (e + 7) << 3 : e + 127); };
        Mma mma;
        for (unsigned l = 0; l < 32; ++l) {
          uint32_t sa = 0x01010101u * (l + 60), sb = 0x01010101u * (l + 70);
          if (l % 4 / 2 == thread_a) sa = 0;
          if (l % 4 == thread_b) sb = 0;
          for (unsigned part = 0; part < kind.parts; ++part) {
            const unsigned shift = 8 * (kind.byte + part);
            if (l % 4 / 2 == thread_a) sa |= scale(power(l / 4 + l % 2 * 8, part, 1)) << shift;
            if (l % 4 == thread_b) sb |= scale(power(l / 4, part, 2)) << shift;
          }
          mma.extra.push_back(sa);
          mma.extra.push_back(sb);
        }
        const std::string byte = std::to_string(kind.byte);
        mma.last = ", {%e}, {" + byte + ", %h1}, %f, {%h0, " + std::to_string(thread_b) + "}";
        const auto got =
            mma("mma.sync.aligned.m16n8k" + std::to_string(kind.k) + ".row.col." + kind.words +
                    ".f32.e2m1.e2m1.f32." + (kind.e4m3 ? "ue4m3" : "ue8m0"),
                4, 2, 4, a, b, std::vector<uint32_t>(128), 32,
                "mov.u16 %h0, " + byte + "; mov.u16 %h1, " + std::to_string(thread_a) + ";\n");
        INFO(kind.words << ", threads " << thread_a << " and " << thread_b);
        REQUIRE(mma.error == "");
        for (unsigned l = 0; l < 32; ++l)
          for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = l / 4 + (i < 2 ? 0 : 8), column = l % 4 * 2 + i % 2;
            double want = 0;
            for (unsigned k = 0; k < kind.k; ++k) {
              const unsigned part = k / (kind.k / kind.parts);
              want += std::ldexp(number(row, k, 1) * number(k, column, 2),
                                 power(row, part, 1) + power(column, part, 2));
            }
            CHECK(real(got[l * 4 + i]) == (float)want);
          }
      }
}

TEST_CASE("sums of integers wrap, or stop at the ends", "[matrix]") {
  const std::vector<uint32_t> ones(64, 0x01010101), big(64, 0x7fffffff);
  Mma mma;
  const std::string shape = "mma.sync.aligned.m8n8k16.row.col.";
  const auto wrapped = mma(shape + "s32.s8.s8.s32", 1, 1, 2, ones, ones, big);
  REQUIRE(mma.error == "");
  const auto stopped = mma(shape + "satfinite.s32.s8.s8.s32", 1, 1, 2, ones, ones, big);
  REQUIRE(mma.error == "");
  CHECK(wrapped[5] == 0x7fffffffu + 16);
  CHECK(stopped[5] == 0x7fffffffu);
}

TEST_CASE("lanes that come to a matrix instruction at different times do it together", "[matrix]") {
  const std::vector<uint32_t> ones(64, 0x01010101);
  Mma mma;
  // Each lane goes round as often as its number says.
  const auto got = mma("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", 1, 1, 2, ones, ones,
                       std::vector<uint32_t>(64, 5), 32,
                       "mov.u32 %n, %lane;\n"
                       "again: setp.eq.u32 %p, %n, 0; @%p bra over; sub.u32 %n, %n, 1; bra again;\n"
                       "over:\n");
  REQUIRE(mma.error == "");
  for (uint32_t v : got) CHECK(v == 21);
}

TEST_CASE("a warp that is not complete, or is not of one mind, multiplies nothing", "[matrix]") {
  const std::vector<uint32_t> ones(64, 0x01010101);
  const std::string opcode = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32";
  Mma mma;
  mma(opcode, 1, 1, 2, ones, ones, ones, 24);
  CHECK(mma.error.find("alone are left") != std::string::npos);
  mma(opcode, 1, 1, 2, ones, ones, ones, 32,
      "setp.gt.u32 %p, %lane, 7; @%p bra wait; bra here; wait: bar.warp.sync 0xffffffff; here:\n");
  CHECK(mma.error.find("deadlock") != std::string::npos);
}

namespace {

// Loads with `load` into four registers of each lane, whose rows of 16 bytes lie one behind the
// other, or stores from there with `store`; returns the registers, lane by lane, or the memory.
std::vector<uint32_t> move_bytes(const std::string& instruction, bool store,
                                 const std::vector<uint32_t>& from) {
  const std::string s =
      std::string(kHead) + R"(
.visible .entry k(.param .u64 pi, .param .u64 po) {
.reg .b32 %l, %s, %w, %r<4>; .reg .b64 %i, %o; .shared .align 128 .b8 m[512];
ld.param.u64 %i, [pi]; ld.param.u64 %o, [po]; mov.u32 %l, %tid.x; mad.wide.u32 %i, %l, 16, %i;
mad.wide.u32 %o, %l, 16, %o; mov.u32 %s, m; mad.lo.u32 %s, %l, 16, %s; mov.u32 %w, %s;
ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%i];
)" +
      (store ? "st.shared.v4.u32 [%s], {0, 0, 0, 0}; bar.sync 0;\n" + instruction +
                   "\nbar.sync 0; ld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%s];"
             : "st.shared.v4.u32 [%s], {%r0, %r1, %r2, %r3}; bar.sync 0;\n" + instruction) +
      "\nst.global.v4.u32 [%o], {%r0, %r1, %r2, %r3}; ret; }";
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(s);
  INFO(gpu.error);
  REQUIRE(loaded);
  const uint64_t out = gpu.zeros(512);
  const Result r = gpu.run("k", 1, 32, {gpu.array(from), out});
  REQUIRE(std::string(r.text) == "");
  return gpu.read<uint32_t>(out, 128);
}
std::vector<uint32_t> random_words(unsigned seed) {
  std::vector<uint32_t> words(128);
  for (uint32_t& w : words) w = seed = seed * 1664525 + 1013904223;
  return words;
}
unsigned byte_of(const std::vector<uint32_t>& words, size_t k) {
  return words[k / 4] >> 8 * (k % 4) & 255;
}
// Bits `first` to `first + width` of the row of 16 bytes.
unsigned bits_of(const std::vector<uint32_t>& words, size_t row, unsigned first, unsigned width) {
  unsigned v = 0;
  for (unsigned k = 0; k < width; ++k)
    v |= (byte_of(words, row * 16 + (first + k) / 8) >> (first + k) % 8 & 1) << k;
  return v;
}

}  // namespace

TEST_CASE("matrices of bytes are loaded transposed", "[matrix]") {
  const std::vector<uint32_t> memory = random_words(1);
  for (unsigned count : {1u, 2u}) {
    const auto got =
        move_bytes("ldmatrix.sync.aligned.m16n16.x" + std::to_string(count) +
                       (count == 1 ? ".trans.shared.b8 {%r0, %r1}, [%w];"
                                   : ".trans.shared::cta.b8 {%r0, %r1, %r2, %r3}, [%w];"),
                   false, memory);
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned reg = 0; reg < 2 * count; ++reg)
        for (unsigned part = 0; part < 4; ++part) {
          const unsigned row = 16 * (reg / 2) + 4 * (l % 4) + part, column = l / 4 + 8 * (reg % 2);
          CHECK(byte_of(got, l * 16 + reg * 4 + part) == byte_of(memory, row * 16 + column));
        }
  }
}

TEST_CASE("4- and 6-bit elements are loaded as bytes", "[matrix]") {
  const std::vector<uint32_t> memory = random_words(2);
  for (unsigned width : {4u, 6u}) {
    const std::string type = width == 4 ? ".b8x16.b4x16_p64 " : ".b8x16.b6x16_p32 ";
    auto got =
        move_bytes("ldmatrix.sync.aligned.m8n16.x4.shared" + type + "{%r0, %r1, %r2, %r3}, [%w];",
                   false, memory);
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned k = 0; k < 16; ++k)
        CHECK(byte_of(got, l * 16 + k) ==
              bits_of(memory, 8 * (k / 4) + l / 4, (4 * (l % 4) + k % 4) * width, width));
    got = move_bytes("ldmatrix.sync.aligned.m16n16.x1.trans.shared" + type + "{%r0, %r1}, [%w];",
                     false, memory);
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned k = 0; k < 8; ++k)
        CHECK(byte_of(got, l * 16 + k) ==
              bits_of(memory, 4 * (l % 4) + k % 4, (l / 4 + 8 * (k / 4)) * width, width));
  }
}

TEST_CASE("sums of mma as bytes are stored by columns", "[matrix]") {
  const std::vector<uint32_t> registers = random_words(3);
  const auto got =
      move_bytes("stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%w], {%r0, %r1, %r2, %r3};", true,
                 registers);
  for (unsigned matrix = 0; matrix < 4; ++matrix)
    for (unsigned row = 0; row < 16; ++row)
      for (unsigned column = 0; column < 8; ++column) {
        const unsigned l = row % 8 * 4 + column / 2, part = column % 2 + row / 8 * 2;
        CHECK(byte_of(got, matrix * 128 + column * 16 + row) ==
              byte_of(registers, l * 16 + matrix * 4 + part));
      }
}

TEST_CASE("matrix instructions that are not there are named", "[matrix]") {
  const std::vector<uint32_t> none(256);
  Mma mma;
  auto refused = [&](const std::string& opcode, unsigned na, unsigned nb, unsigned nc) {
    mma(opcode, na, nb, nc, none, none, none);
    INFO(opcode << ": " << mma.error);
    CHECK(mma.error.find("support") != std::string::npos);
  };
  refused("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", 2, 2, 8);
  refused("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", 4, 2, 4);
  refused("mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 8, 4, 4);
  refused("mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16", 4, 2, 2);
  refused("mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e2m1.f32", 4, 2, 4);
  mma.last = ", %e, 2";
  refused("mma.sp.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32", 8, 8, 4);
  mma("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 4, 4, 4, none, none, none);
  CHECK(mma.error.find("selector") != std::string::npos);
}
