// The machine code against the interpreter: random kernels must leave the same bytes, or end with
// the same fault, on both. Fears: a wrong instruction, a register that is not written back where
// the interpreter continues, inactive lanes that are written, an address that is not checked.
#include <initializer_list>
#include <random>
#include "tests/catch.h"

#include "harness.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

constexpr uint32_t kIn = 4096;       // bytes of input and of each block's own region
constexpr uint32_t kThreads = 1024;  // most in a block
constexpr uint32_t kRegisters = 8 * 4 + 6 * 8 + 6 * 4 + 3 * 8 + 4 * 4;  // bytes shown by a thread

struct Shape {
  uint32_t x, y, z, grid;
};
const Shape kShapes[] = {{32, 1, 1, 2}, {32, 4, 1, 2},  {16, 8, 1, 2}, {16, 1, 1, 3},
                         {8, 8, 1, 2},  {100, 1, 1, 2}, {64, 2, 1, 1}, {48, 2, 1, 2},
                         {16, 2, 3, 1}, {5, 3, 1, 2},   {33, 2, 1, 1}, {7, 1, 1, 1}};

class Kernel {
 public:
  explicit Kernel(unsigned seed) : random_(seed) {}
  std::string text(bool wild) {
    wild_ = wild;
    s_ = ".version 8.7\n.target sm_90\n.address_size 64\n"
         ".visible .entry k(.param .u64 pin, .param .u64 pown, .param .u64 pout, .param .u32 pn, "
         ".param .u64 pm) {\n"
         ".reg .b32 %r<8>, %x<16>; .reg .b64 %l<6>, %y<16>; .reg .f32 %f<6>; .reg .f64 %d<3>; "
         ".reg .pred %p<4>, %q<4>; .shared .align 16 .b8 s[4096];\n"
         "ld.param.u64 %y0, [pin]; ld.param.u64 %y1, [pown]; ld.param.u64 %y2, [pout];\n"
         "mov.u32 %x0, %ctaid.x; mov.u32 %x1, %tid.x; mov.u32 %x2, %tid.y; mov.u32 %x3, %tid.z;\n"
         "mov.u32 %x4, %ntid.x; mov.u32 %x5, %ntid.y; mad.lo.u32 %x6, %x3, %x5, %x2;\n"
         "mad.lo.u32 %x6, %x6, %x4, %x1; mul.wide.u32 %y3, %x0, 4096; add.u64 %y1, %y1, %y3;\n";
    // Registers begin with what nvcc makes of thread numbers, with input, and with constants.
    for (int k = 0; k < 8; ++k) {
      const std::string r = "%r" + std::to_string(k);
      switch (pick(7)) {
        case 0:
          add("mov.u32 " + r + ", " + number32() + ";");
          break;
        case 1:
          add("mad.lo.s32 " + r + ", %x0, %x4, %x1;");
          break;
        case 2:
          add("mad.lo.s32 " + r + ", %x2, 7, %x1;");
          break;
        case 3:
          add("ld.param.u32 " + r + ", [pn];");
          break;
        case 4:
          add("mov.u32 " + r + ", " + one({"%x0", "%x1", "%x2", "%laneid", "%nctaid.x"}) + ";");
          break;
        default:
          add("and.b32 %x7, %x6, 1023; mul.wide.u32 %y4, %x7, 4; add.u64 %y4, %y4, %y0; "
              "ld.global.u32 " +
              r + ", [%y4];");
      }
    }
    for (int k = 0; k < 6; ++k)
      add(pick(3) == 0 ? "ld.param.u64 %l" + std::to_string(k) + ", [pm];"
                       : "cvt.s64.s32 %l" + std::to_string(k) + ", " + r32() + ";");
    for (int k = 0; k < 6; ++k) add("mov.b32 %f" + std::to_string(k) + ", " + r32() + ";");
    for (int k = 0; k < 3; ++k) add("mov.b64 %d" + std::to_string(k) + ", " + r64() + ";");
    for (int k = 0; k < 4; ++k)
      add("setp.lt.s32 %p" + std::to_string(k) + ", " + r32() + ", " + r32() + ";");
    for (int k = 0; k < 4; ++k)
      add("mul.wide.u32 %y4, %x6, 4; cvt.u32.u64 %x8, %y4; "
          "and.b32 %x8, %x8, 4092; mov.u64 %y5, s; cvt.u32.u64 %x9, %y5; "
          "add.u32 %x9, %x9, %x8; st.shared.u32 [%x9], " +
          r32() + ";");
    add("bar.sync 0;");
    body(30 + pick(60), 0);
    add("mul.wide.u32 %y4, %x6, " + std::to_string(kRegisters) + "; mul.wide.u32 %y5, %x0, " +
        std::to_string(kRegisters * kThreads) + "; add.u64 %y4, %y4, %y5; add.u64 %y4, %y4, %y2;");
    uint32_t at = 0;
    auto show = [&](const char* type, const std::string& r, uint32_t bytes) {
      add(std::string("st.global.") + type + " [%y4+" + std::to_string(at) + "], " + r + ";");
      at += bytes;
    };
    for (int k = 0; k < 6; ++k) show("u64", "%l" + std::to_string(k), 8);
    for (int k = 0; k < 3; ++k) show("f64", "%d" + std::to_string(k), 8);
    for (int k = 0; k < 8; ++k) show("u32", "%r" + std::to_string(k), 4);
    for (int k = 0; k < 6; ++k) show("f32", "%f" + std::to_string(k), 4);
    for (int k = 0; k < 4; ++k) {
      add("selp.u32 %x8, 1, 0, %p" + std::to_string(k) + ";");
      show("u32", "%x8", 4);
    }
    return s_ + "ret;\n}\n";
  }

 private:
  void add(const std::string& line) { s_ += line + "\n"; }
  unsigned pick(unsigned n) { return (unsigned)(random_() % n); }
  std::string one(std::initializer_list<const char*> of) {
    return of.begin()[pick((unsigned)of.size())];
  }
  std::string r32() { return "%r" + std::to_string(pick(8)); }
  std::string r64() { return "%l" + std::to_string(pick(6)); }
  std::string f32() { return "%f" + std::to_string(pick(6)); }
  std::string f64() { return "%d" + std::to_string(pick(3)); }
  std::string p() { return "%p" + std::to_string(pick(4)); }
  std::string number32() {
    static const char* const kNumbers[] = {"0",     "1",  "-1",  "4",          "31",
                                           "32",    "33", "100", "2147483647", "-2147483648",
                                           "65536", "3",  "-7"};
    return pick(4) == 0 ? std::to_string((int32_t)random_())
                        : kNumbers[pick(sizeof kNumbers / sizeof *kNumbers)];
  }
  std::string s32() { return pick(4) == 0 ? number32() : r32(); }
  std::string s64() { return pick(4) == 0 ? number32() : r64(); }

  // %y8: an address within the first `room` bytes from a base, for accesses of the given size.
  void address(const char* base, unsigned size, unsigned room = kIn) {
    const std::string mask = std::to_string((room / size) - 1), by = std::to_string(size);
    if (wild_ && pick(12) == 0) {
      add("mul.wide.s32 %y8, " + r32() + ", " + std::to_string(pick(2) ? size : 1) +
          "; add.s64 %y8, " + base + ", %y8;");
      return;
    }
    switch (pick(5)) {
      case 0:  // side by side, where threads are
        add("and.b32 %x8, %x6, " + mask + "; mul.wide.s32 %y8, %x8, " + by + "; add.s64 %y8, " +
            base + ", %y8;");
        break;
      case 1:  // from the thread's number, as nvcc writes it; x < 100
        add("mad.lo.s32 %x8, %x0, 2, %x1; mul.wide.s32 %y8, %x8, " + by + "; add.s64 %y8, " + base +
            ", %y8;");
        break;
      case 2:
        add("and.b32 %x8, " + r32() + ", " + mask + "; cvt.s64.s32 %y8, %x8; shl.b64 %y8, %y8, " +
            (size == 8 ? "3" : "2") + "; add.s64 %y8, %y8, " + base + ";");
        break;
      case 3:
        add("and.b32 %x8, " + r32() + ", " + mask + "; mul.lo.u32 %x8, %x8, " + by +
            "; cvt.u64.u32 %y8, %x8; add.s64 %y8, " + base + ", %y8;");
        break;
      default:  // one for all
        add("and.b32 %x8, %x0, 7; mul.wide.u32 %y8, %x8, " + by + "; add.s64 %y8, " + base +
            ", %y8;");
    }
  }
  std::string offset(unsigned size) {
    const unsigned k = pick(4);
    return k < 3 ? "" : "+" + std::to_string(size * pick(3));
  }

  // Several accesses by one vector of addresses, which moves by the same distance in all lanes, as
  // those of an unrolled loop do; other instructions between them.
  void accesses() {
    const bool write = pick(2);
    address(write || pick(2) ? "%y1" : "%y0", 8, kIn / 2);
    add("mov.u64 %y9, %y8; and.b32 %x8, %x0, 7; mul.wide.u32 %y10, %x8, 8;");
    if (pick(2)) add("add.s64 %y9, %y9, %y10;");
    for (unsigned k = 2 + pick(4); k > 0; --k) {
      const bool wide = pick(4) == 0;
      const std::string type = wide ? "u64" : "u32", value = wide ? r64() : r32();
      add(write && pick(2) ? "st.global." + type + " [%y9" + offset(8) + "], " + value + ";"
                           : "ld.global." + type + " " + value + ", [%y9" + offset(8) + "];");
      if (pick(2)) add("add.s64 %y9, %y9, " + one({"8", "16", "%y10"}) + ";");
      body(pick(3), 2);
    }
  }
  void body(unsigned count, unsigned depth) {
    for (unsigned k = 0; k < count; ++k) instruction(depth);
  }
  void instruction(unsigned depth) {
    switch (pick(36)) {
      case 0:
      case 1:
        return add(one({"add", "sub", "mul.lo", "min", "max"}) + one({".s32 ", ".u32 "}) + r32() +
                   ", " + s32() + ", " + s32() + ";");
      case 2:
        return add(one({"add", "sub", "mul.lo", "min", "max"}) + one({".s64 ", ".u64 "}) + r64() +
                   ", " + s64() + ", " + s64() + ";");
      case 3:
        return add("mad.lo" + one({".s32 ", ".u32 "}) + r32() + ", " + r32() + ", " + s32() + ", " +
                   s32() + ";");
      case 4:
        return add("mad.lo.s64 " + r64() + ", " + r64() + ", " + s64() + ", " + s64() + ";");
      case 5:
        return add("mul.wide" + one({".s32 ", ".u32 "}) + r64() + ", " + r32() + ", " + s32() +
                   ";");
      case 6:
        return add("mad.wide" + one({".s32 ", ".u32 "}) + r64() + ", " + r32() + ", " + s32() +
                   ", " + s64() + ";");
      case 7:
        return add(one({"and", "or", "xor"}) + ".b32 " + r32() + ", " + r32() + ", " + s32() + ";");
      case 8:
        return add(one({"and", "or", "xor"}) + ".b64 " + r64() + ", " + r64() + ", " + s64() + ";");
      case 9:
        return add(one({"and", "or", "xor"}) + ".pred " + p() + ", " + p() + ", " + p() + ";");
      case 10:
        return add(pick(2)
                       ? "not.pred " + p() + ", " + p() + ";"
                       : one({"not.b32 ", "neg.s32 ", "mov.b32 "}) + r32() + ", " + r32() + ";");
      case 11:
        return add(one({"not.b64 ", "neg.s64 ", "mov.b64 "}) + r64() + ", " + r64() + ";");
      case 12:
        return add(one({"shl.b32 ", "shr.u32 ", "shr.s32 "}) + r32() + ", " + r32() + ", " + s32() +
                   ";");
      case 13:
        return add(one({"shl.b64 ", "shr.u64 ", "shr.s64 "}) + r64() + ", " + r64() + ", " + s32() +
                   ";");
      case 14:
        return add("lop3.b32 " + r32() + ", " + r32() + ", " + r32() + ", " + r32() + ", " +
                   std::to_string(pick(256)) + ";");
      case 15:
        return add(one({"cvt.s64.s32 ", "cvt.u64.u32 "}) + r64() + ", " + r32() + ";");
      case 16:
        return add("cvt.u32.u64 " + r32() + ", " + r64() + ";");
      case 17:
      case 18:
        return add("setp." + one({"eq", "ne", "lt", "le", "gt", "ge"}) + one({".s32 ", ".u32 "}) +
                   p() + ", " + r32() + ", " + s32() + ";");
      case 19:
        return add("setp." + one({"eq", "ne", "lt", "le", "gt", "ge"}) + one({".s64 ", ".u64 "}) +
                   p() + ", " + r64() + ", " + s64() + ";");
      case 20:
        return add("setp." +
                   one({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu",
                        "geu", "num", "nan"}) +
                   (pick(2) ? ".f32 " + p() + ", " + f32() + ", " + f32()
                            : ".f64 " + p() + ", " + f64() + ", " + f64()) +
                   ";");
      case 21:
        return add(pick(2) ? "selp.b32 " + r32() + ", " + s32() + ", " + r32() + ", " + p() + ";"
                           : "selp.b64 " + r64() + ", " + s64() + ", " + r64() + ", " + p() + ";");
      case 22:
      case 23:
        return add(one({"add.rn", "sub.rn", "mul.rn", "div.rn"}) + ".f32 " + f32() + ", " + f32() +
                   ", " + (pick(4) ? f32() : std::string("0f3fc00000")) + ";");
      case 24:
        return add("fma.rn.f32 " + f32() + ", " + f32() + ", " + f32() + ", " + f32() + ";");
      case 25:
        return add(one({"add.rn", "sub.rn", "mul.rn", "div.rn"}) + ".f64 " + f64() + ", " + f64() +
                   ", " + f64() + ";");
      case 26:
        return add("fma.rn.f64 " + f64() + ", " + f64() + ", " + f64() + ", " + f64() + ";");
      case 27:
        return add(one({"sqrt.rn.f32 ", "rcp.rn.f32 ", "neg.f32 ", "abs.f32 ", "mov.f32 "}) +
                   f32() + ", " + f32() + ";");
      case 28:
        return add(pick(2) ? one({"sqrt.rn.f64 ", "rcp.rn.f64 ", "neg.f64 ", "abs.f64 "}) + f64() +
                                 ", " + f64() + ";"
                           : "cvt.rn.f32.s32 " + f32() + ", " + r32() + ";");
      case 29:
        return add(
            pick(2) ? "mov.b32 " + (pick(2) ? r32() + ", " + f32() : f32() + ", " + r32()) + ";"
                    : "mov.b64 " + (pick(2) ? r64() + ", " + f64() : f64() + ", " + r64()) + ";");
      case 30: {
        const bool wide = pick(3) == 0;
        const char* base = pick(2) ? "%y0" : "%y1";
        address(base, wide ? 8 : 4);
        return add(wide ? "ld.global.u64 " + r64() + ", [%y8" + offset(8) + "];"
                        : "ld.global.u32 " + r32() + ", [%y8" + offset(4) + "];");
      }
      case 31: {
        const bool wide = pick(3) == 0;
        address("%y1", wide ? 8 : 4);
        return add(wide ? "st.global.u64 [%y8], " + r64() + ";"
                        : "st.global.u32 [%y8], " + r32() + ";");
      }
      case 32: {
        const unsigned size = pick(3) == 0 ? 8 : 4;
        const std::string type = size == 8 ? "u64" : "u32", value = size == 8 ? r64() : r32();
        if (pick(6) == 0)
          return add(pick(2) ? "ld.shared." + type + " " + value + ", [s+16];"
                             : "st.shared." + type + " [s+24], " + value + ";");
        if (pick(3) == 0) {  // by 64 bits, as nvcc writes it
          add("mov.u64 %y5, s; and.b32 %x8, " + (pick(2) ? std::string("%x1") : r32()) + ", " +
              std::to_string(kIn / size - 4) + "; mul.wide.u32 %y6, %x8, " + std::to_string(size) +
              "; add.u64 %y5, %y5, %y6;");
          return add(pick(2) ? "ld.shared." + type + " " + value + ", [%y5" + offset(size) + "];"
                             : "st.shared." + type + " [%y5" + offset(size) + "], " + value + ";");
        }
        const std::string index = pick(2) ? "%x6" : pick(3) == 0 ? "%x0" : r32();
        add("mov.u64 %y5, s; cvt.u32.u64 %x9, %y5; and.b32 %x8, " + index + ", " +
            std::to_string(kIn / size - 4) + "; shl.b32 %x8, %x8, " + (size == 8 ? "3" : "2") +
            "; add.u32 %x9, %x9, %x8;");
        if (pick(2))
          return add(size == 8 ? "ld.shared.u64 " + r64() + ", [%x9+8];"
                               : "ld.shared.u32 " + r32() + ", [%x9" + offset(4) + "];");
        return add(size == 8 ? "st.shared.u64 [%x9], " + r64() + ";"
                             : "st.shared.u32 [%x9" + offset(4) + "], " + r32() + ";");
      }
      case 33:
        return depth < 2 ? accesses() : void();
      default: {  // lanes part, or go round for different numbers of times
        if (depth >= 2) return;
        const std::string l = "L" + std::to_string(labels_++);
        if (pick(3) == 0) {
          const std::string x = "%x" + std::to_string(12 + depth);
          add((pick(2) ? "and.b32 " + x + ", " + r32() + ", 3;" : "mov.u32 " + x + ", 2;"));
          add(l + ":");
          body(1 + pick(8), depth + 1);
          add("sub.u32 " + x + ", " + x + ", 1; setp.gt.s32 %q" + std::to_string(depth) + ", " + x +
              ", 0; @%q" + std::to_string(depth) + " bra " + l + ";");
          return;
        }
        add(one({"@", "@!"}) + p() + " bra " + l + ";");
        body(1 + pick(8), depth + 1);
        if (pick(2)) {
          add("bra " + l + "e;\n" + l + ":");
          body(1 + pick(8), depth + 1);
          add(l + "e:");
        } else {
          add(l + ":");
        }
      }
    }
  }

  std::mt19937 random_;
  std::string s_;
  bool wild_ = false;
  unsigned labels_ = 0;
};

struct Left {
  Outcome outcome;
  uint64_t address;
  std::string text;
  std::vector<uint8_t> own, out;
};

Left run(const std::string& text, const Shape& shape, unsigned seed, const char* engine) {
  setenv("SIMGPU_ENGINE", engine, 1);
  Gpu gpu(8 << 20);
  REQUIRE(gpu.load(text));
  std::mt19937 random(seed);
  std::vector<uint32_t> in(kIn / 4 + 256), own(kIn / 4 * shape.grid + 256);
  for (uint32_t& x : in) {
    switch (random() % 4) {
      case 0:
        x = (uint32_t)random();
        break;
      case 1:
        x = random() % 64;
        break;
      case 2:
        x = 0x3f800000u + (uint32_t)(random() % 0x800000);
        break;
      default: {
        static const uint32_t kOdd[] = {0x7fc00001u, 0xffc12345u, 0x7f800001u, 0x7f800000u,
                                        0xff800000u, 0x80000000u, 0x00000001u, 0x807fffffu};
        x = kOdd[random() % 8];
      }
    }
  }
  const uint64_t from = gpu.array(in), mine = gpu.array(own);
  const uint64_t out = gpu.zeros(kRegisters * kThreads * shape.grid);
  Launch l = gpu.prepare("k", shape.grid, shape.x,
                         {from, mine, out, (uint32_t)(seed % 50), (uint64_t)seed * 0x10001});
  l.block[1] = shape.y;
  l.block[2] = shape.z;
  Result r = simgpu::ptx::run(pool(), l);
  Left left{r.outcome, r.address, r.text, gpu.read<uint8_t>(mine, kIn * shape.grid),
            gpu.read<uint8_t>(out, kRegisters * kThreads * shape.grid)};
  unsetenv("SIMGPU_ENGINE");
  return left;
}

void compare(unsigned first, unsigned count, bool wild) {
  for (unsigned seed = first; seed < first + count; ++seed) {
    const std::string text = Kernel(seed).text(wild);
    const Shape& shape = kShapes[seed % (sizeof kShapes / sizeof *kShapes)];
    const Left a = run(text, shape, seed, "interpreter"), b = run(text, shape, seed, "translated");
    INFO("seed " << seed);
    REQUIRE(a.outcome == b.outcome);
    REQUIRE(a.address == b.address);
    REQUIRE(a.text == b.text);
    if (a.outcome != Outcome::kDone) continue;  // how far other blocks came is not said
    REQUIRE(a.own == b.own);
    REQUIRE(a.out == b.out);
  }
}

unsigned more() {
  const char* text = getenv("PTX_NATIVE_KERNELS");
  return text ? (unsigned)atoi(text) : 1;
}

}  // namespace

TEST_CASE("random kernels give the same bytes as the interpreter", "[native]") {
  compare(1000, 240 * more(), false);
}

// Two allocations with nothing behind them, and a gap.
class Pieces : public Memory {
 public:
  static constexpr uint64_t kFirst = 0x7100000000ull, kSecond = 0x7100002000ull;
  explicit Pieces(uint32_t bytes) : bytes_(bytes), first_(bytes + 4096), second_(bytes + 4096) {}
  bool find(uint64_t address, Segment* out) override {
    for (uint64_t at : {kFirst, kSecond})
      if (address >= at && address < at + bytes_) {
        *out =
            Segment{at, at + bytes_, at == kFirst ? first_.data() : second_.data(), at == kFirst};
        return true;
      }
    return false;
  }
  uint32_t bytes_;
  std::vector<uint8_t> first_, second_;
};

struct Ended {
  Result result;
  std::vector<uint8_t> first;
};
// `text` with a pointer to the first allocation, one to the second and a number.
Ended run_pieces(const std::string& body, uint32_t bytes, uint32_t threads, uint32_t n,
                 const char* engine) {
  setenv("SIMGPU_ENGINE", engine, 1);
  Gpu gpu(1 << 16);
  REQUIRE(
      gpu.load(".version 8.7\n.target sm_90\n.address_size 64\n"
               ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u32 pn) {\n"
               ".reg .b32 %r<12>; .reg .b64 %l<12>; .reg .pred %p<4>; .reg .f32 %f<4>;\n"
               ".shared .align 16 .b8 s[128];\n"
               "ld.param.u64 %l0, [pa]; ld.param.u64 %l1, [pb]; ld.param.u32 %r0, [pn];\n"
               "mov.u32 %r1, %tid.x;\n" +
               body + "ret;\n}\n"));
  Pieces memory(bytes);
  for (size_t k = 0; k < memory.second_.size(); ++k) memory.second_[k] = (uint8_t)(k * 7 + 1);
  Launch l = gpu.prepare("k", 1, threads, {Pieces::kFirst, Pieces::kSecond, n});
  l.memory = &memory;
  Ended e{simgpu::ptx::run(pool(), l), {}};
  e.first = memory.first_;
  unsetenv("SIMGPU_ENGINE");
  return e;
}
void same_ends(const std::string& body, uint32_t bytes, uint32_t threads, uint32_t n,
               Outcome outcome) {
  const Ended a = run_pieces(body, bytes, threads, n, "interpreter"),
              b = run_pieces(body, bytes, threads, n, "translated");
  INFO(body << " bytes " << bytes << " threads " << threads << " n " << n);
  CHECK(a.result.outcome == outcome);
  CHECK(b.result.outcome == outcome);
  CHECK(a.result.address == b.result.address);
  CHECK(std::string(a.result.text) == b.result.text);
  CHECK(a.first == b.first);
}

TEST_CASE("accesses end where the allocation does", "[native]") {
  const char* const kIndex[] = {
      // Lanes that count up; a number the warp has in a register; any numbers; pointers.
      "add.u32 %r2, %r1, %r0; mul.wide.u32 %l2, %r2, 4;",
      "add.u32 %r2, %r1, %r0; and.b32 %r2, %r2, 65535; mul.wide.u32 %l2, %r2, 4;",
      "xor.b32 %r2, %r1, 1; add.u32 %r2, %r2, %r0; mul.wide.u32 %l2, %r2, 4;",
      "xor.b32 %r2, %r1, 1; add.u32 %r2, %r2, %r0; mul.wide.u32 %l2, %r2, 4; xor.b64 %l2, %l2, 0;",
      "shl.b32 %r2, %r0, 2; cvt.u64.u32 %l2, %r2; mad.wide.u32 %l2, %r1, 4, %l2;"};
  for (const std::string index : kIndex) {
    const std::string copy =
        index +
        "add.u64 %l3, %l1, %l2; add.u64 %l4, %l0, %l2; ld.global.u32 %r3, [%l3];"
        "add.u32 %r3, %r3, 1; st.global.u32 [%l4], %r3;\n";
    for (uint32_t threads : {32u, 20u, 64u})
      for (int32_t more : {0, 1, -1}) {
        // The last thread reads the last word, one behind it, or one before it.
        const uint32_t words = threads + 70;
        const bool good = more <= 0;
        same_ends(copy, words * 4, threads, 70 + (uint32_t)more,
                  good ? Outcome::kDone : Outcome::kIllegalAddress);
      }
    same_ends(index + "add.u64 %l4, %l1, %l2; st.global.u32 [%l4], %r1;", 1024, 32, 0,
              Outcome::kIllegalAddress);  // not writable
    same_ends(index + "add.u64 %l4, %l1, %l2; ld.global.u32 %r3, [%l4+2];", 1024, 32, 0,
              Outcome::kMisaligned);
    same_ends(index + "add.u64 %l4, %l0, %l2; st.global.u32 [%l4+-4], %r1;", 1024, 32, 0,
              Outcome::kIllegalAddress);  // before the allocation
    same_ends(index + "add.u64 %l4, %l0, %l2; st.global.u32 [%l4], %r1;", 1024, 1, 0,
              Outcome::kDone);
  }
  // From one allocation to the other.
  same_ends(
      "and.b32 %r2, %r1, 1; setp.eq.u32 %p0, %r2, 0; selp.b64 %l2, %l0, %l1, %p0;"
      "mad.wide.u32 %l2, %r1, 4, %l2; ld.global.u32 %r3, [%l2];"
      "mad.wide.u32 %l3, %r1, 4, %l0; st.global.u32 [%l3+512], %r3;\n",
      1024, 32, 0, Outcome::kDone);
}

TEST_CASE("shared memory ends where it does", "[native]") {
  const char* const kIndex[] = {"add.u32 %r2, %r1, %r0;",
                                "xor.b32 %r2, %r1, 1; add.u32 %r2, %r2, %r0;", "mov.u32 %r2, %r0;"};
  for (const std::string index : kIndex)
    for (uint32_t threads : {32u, 20u})
      for (uint32_t n : {0u, 1u, 12u, 13u, 31u, 32u}) {
        const uint32_t highest = index[0] == 'm' ? n : n + threads - 1;
        const Outcome outcome = highest < 32 ? Outcome::kDone : Outcome::kIllegalAddress;
        same_ends("mov.u64 %l5, s; cvt.u32.u64 %r4, %l5;" + index +
                      "shl.b32 %r2, %r2, 2; add.u32 %r2, %r2, %r4; st.shared.u32 [%r2], %r1;"
                      "ld.shared.u32 %r5, [%r2]; mad.wide.u32 %l3, %r1, 4, %l0;"
                      "st.global.u32 [%l3], %r5;\n",
                  1024, threads, n, outcome);
        same_ends("mov.u64 %l5, s; cvt.u32.u64 %r4, %l5;" + index +
                      "shl.b32 %r2, %r2, 2; add.u32 %r2, %r2, %r4; ld.shared.u32 %r5, [%r2];"
                      "mad.wide.u32 %l3, %r1, 4, %l0; st.global.u32 [%l3], %r5;\n",
                  1024, threads, n, outcome);
      }
}

TEST_CASE("numbers that wrap between lanes are extended one by one", "[native]") {
  for (uint32_t n : {0x7fffffe0u, 0x7fffffe1u, 0x7ffffff0u, 0x7fffffffu, 0x80000000u, 0xffffffe0u,
                     0xffffffe1u, 0xfffffff0u, 0xffffffffu})
    for (const std::string wide : {"cvt.s64.s32 %l2, %r2;", "cvt.u64.u32 %l2, %r2;",
                                   "mul.wide.s32 %l2, %r2, 4;", "mul.wide.u32 %l2, %r2, 4;",
                                   "mul.wide.s32 %l2, %r2, 12;", "mad.wide.s32 %l2, %r2, 8, %l1;",
                                   "mul.wide.s32 %l2, %r2, -4;", "mul.wide.u32 %l2, %r0, %r2;"})
      for (const std::string index :
           {"add.u32 %r2, %r1, %r0;", "mad.lo.u32 %r2, %r1, 3, %r0;", "sub.u32 %r2, %r0, %r1;",
            "xor.b32 %r2, %r1, 5; add.u32 %r2, %r2, %r0;"})
        same_ends(index + wide + "mad.wide.u32 %l3, %r1, 8, %l0; st.global.u64 [%l3], %l2;\n", 1024,
                  32, n, Outcome::kDone);
  // And as indices of memory: both ends of the allocation lie apart in 32 bits.
  for (const std::string wide : {"mul.wide.s32 %l2, %r2, 4;", "mul.wide.u32 %l2, %r2, 4;"})
    same_ends("xor.b32 %r2, %r1, 0; add.u32 %r2, %r2, %r0;" + wide +
                  "add.u64 %l3, %l0, %l2; st.global.u32 [%l3], %r1;\n",
              1024, 32, 0x7ffffff0u, Outcome::kIllegalAddress);
}

// The frame has an older value for lane 0, which is an address, too.
TEST_CASE("addresses that made room for others are not taken for those of a row", "[native]") {
  std::string body =
      ".reg .b32 %v<24>;\n"
      "xor.b32 %r4, %r1, 0; mul.wide.u32 %l2, %r4, 4; and.b64 %l2, %l2, -1;\n"
      "mov.u32 %r6, 6;\n"  // machine code goes on once each access has found its segment
      "AGAIN: add.u64 %l4, %l1, 500;\n"
      "setp.eq.u32 %p0, %r0, 1; @%p0 add.u64 %l4, %l4, 4;\n"
      "setp.lt.u32 %p1, %r1, 3; @%p1 bra END;\n"
      "add.u64 %l4, %l1, %l2; ld.global.u32 %r2, [%l4];\n";
  for (int k = 0; k < 24; ++k)
    body += "mad.lo.u32 %v" + std::to_string(k) + ", %r1, %r1, " + std::to_string(k) + ";\n";
  body += "ld.global.u32 %r3, [%l4+4]; add.u32 %r2, %r2, %r3;\n";
  for (int k = 0; k < 24; ++k)
    body += "xor.b32 %r2, %r2, %v" + std::to_string(k) + "; shl.b32 %r2, %r2, 1;\n";
  body +=
      "add.u64 %l5, %l0, %l2; st.global.u32 [%l5], %r2;\n"
      "END: ld.global.u32 %r5, [%l4]; mad.wide.u32 %l6, %r1, 4, %l0;\n"
      "st.global.u32 [%l6+256], %r5;\n"
      "sub.u32 %r6, %r6, 1; setp.ne.u32 %p2, %r6, 0; @%p2 bra AGAIN;\n";
  for (uint32_t n : {0u, 1u}) same_ends(body, 1024, 32, n, Outcome::kDone);
}

TEST_CASE("random kernels with wild addresses end in the same faults", "[native]") {
  compare(500000, 120 * more(), true);
}
