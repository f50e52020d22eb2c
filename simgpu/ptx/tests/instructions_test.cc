// Corners of single instructions.
#include <cfenv>
#include <cmath>
#include <initializer_list>
#include <random>
#include "tests/catch.h"

#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

TEST_CASE("shifts beyond the width", "[integer]") {
  CHECK(one("shl.b32 %d, %a, %b;", 1, 31) == 0x80000000u);
  CHECK(one("shl.b32 %d, %a, %b;", 1, 32) == 0);
  CHECK(one("shl.b32 %d, %a, %b;", 1, 0xffffffffu) == 0);
  CHECK(one("shr.u32 %d, %a, %b;", 0x80000000u, 40) == 0);
  CHECK(one("shr.s32 %d, %a, %b;", 0x80000000u, 40) == 0xffffffffu);
  CHECK(one64("cvt.u32.u64 %t0, %lb; shl.b64 %ld, %la, %t0;", 1, 63) == 1ull << 63);
  CHECK(one64("cvt.u32.u64 %t0, %lb; shl.b64 %ld, %la, %t0;", 1, 64) == 0);
  CHECK(one64("cvt.u32.u64 %t0, %lb; shr.s64 %ld, %la, %t0;", 1ull << 63, 99) == ~0ull);
  CHECK(one("shl.b16 %hd, %ha, %b; cvt.u32.u16 %d, %hd;", 3, 15) == 0x8000);
  CHECK(one("shl.b16 %hd, %ha, %b; cvt.u32.u16 %d, %hd;", 3, 16) == 0);
  CHECK(one("shr.s16 %hd, %ha, %b; cvt.u32.u16 %d, %hd;", 0x8000, 20) == 0xffff);
  CHECK(one("shf.l.wrap.b32 %d, %a, %b, %c;", 0x80000001u, 0x12345678u, 36) == 0x23456788u);
  CHECK(one("shf.l.clamp.b32 %d, %a, %b, %c;", 0x80000001u, 0x12345678u, 36) == 0x80000001u);
  CHECK(one("shf.r.clamp.b32 %d, %a, %b, %c;", 0x80000001u, 0x12345678u, 99) == 0x12345678u);
  CHECK(one("shf.r.wrap.b32 %d, %a, %b, %c;", 0x80000001u, 0x12345678u, 4) == 0x88000000u);
}

TEST_CASE("bit fields", "[integer]") {
  CHECK(one("bfe.u32 %d, %a, 4, 8;", 0x12345678) == 0x67);
  CHECK(one("bfe.s32 %d, %a, 4, 8;", 0x12345f78) == 0xfffffff7u);
  CHECK(one("bfe.u32 %d, %a, 28, 8;", 0xf2345678) == 0xf);
  CHECK(one("bfe.s32 %d, %a, 28, 8;", 0xf2345678) == 0xffffffffu);
  CHECK(one("bfe.s32 %d, %a, 40, 8;", 0x80000000u) == 0xffffffffu);
  CHECK(one("bfe.u32 %d, %a, 0, 32;", 0xf2345678) == 0xf2345678u);
  CHECK(one("bfe.s32 %d, %a, 5, 0;", 0xf2345678) == 0);
  CHECK(one("bfi.b32 %d, %a, %b, 8, 8;", 0xab, 0x12345678) == 0x1234ab78);
  CHECK(one("bfi.b32 %d, %a, %b, 28, 8;", 0xab, 0x12345678) == 0xb2345678);
  CHECK(one("bfi.b32 %d, %a, %b, 0, 32;", 0xab, 0x12345678) == 0xab);
  CHECK(one("bfi.b32 %d, %a, %b, 32, 4;", 0xab, 0x12345678) == 0x12345678);
  CHECK(one64("bfi.b64 %ld, %la, %lb, 32, 32;", 0xabcd, 0x1122334455667788ull) ==
        0x0000abcd55667788ull);
  CHECK(one("bfind.u32 %d, %a;", 0) == ~0u);
  CHECK(one("bfind.u32 %d, %a;", 0x00800000) == 23);
  CHECK(one("bfind.s32 %d, %a;", 0xffff0000) == 15);
  CHECK(one("bfind.shiftamt.u32 %d, %a;", 0x00800000) == 8);
  CHECK(one("clz.b32 %d, %a;", 0) == 32);
  CHECK(one64("clz.b64 %t0, %la; cvt.u64.u32 %ld, %t0;", 1) == 63);
  CHECK(one("popc.b32 %d, %a;", 0xf0f00001) == 9);
  CHECK(one("brev.b32 %d, %a;", 0x00000003) == 0xc0000000u);
  CHECK(one("prmt.b32 %d, %a, %b, 0x7531;", 0x33221100, 0x77665544) == 0x77553311);
  CHECK(one("prmt.b32 %d, %a, %b, 0x9;", 0x00008000, 0) == 0x000000ff);
  CHECK(one("prmt.b32.f4e %d, %a, %b, %c;", 0x33221100, 0x77665544, 1) == 0x44332211);
  CHECK(one("lop3.b32 %d, %a, %b, %c, 0x96;", 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa) ==
        (0xf0f0f0f0u ^ 0xccccccccu ^ 0xaaaaaaaau));
  CHECK(one("lop3.b32 %d, %a, %b, %c, 0xE2;", 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa) == 0xe2e2e2e2u);
  for (unsigned lut = 0; lut < 256; lut += 37)
    CHECK(one("lop3.b32 %d, %a, %b, %c, " + std::to_string(lut) + ";", 0xf0, 0xcc, 0xaa) % 256 ==
          lut);
  CHECK(one("bmsk.clamp.b32 %d, %a, %b;", 4, 8) == 0xff0);
  CHECK(one("szext.clamp.s32 %d, %a, %b;", 0xff, 8) == ~0u);
  CHECK(one("fns.b32 %d, %a, %b, %c;", 0xaaaaaaaa, 3, 1) == 3);
  CHECK(one("fns.b32 %d, %a, %b, %c;", 0xaaaaaaaa, 3, uint32_t(-2)) == 1);
}

TEST_CASE("integer arithmetic", "[integer]") {
  CHECK(one("mul.hi.u32 %d, %a, %b;", 0xffffffff, 0xffffffff) == 0xfffffffe);
  CHECK(one("mul.hi.s32 %d, %a, %b;", 0xffffffff, 0xffffffff) == 0);
  CHECK(one64("mul.hi.u64 %ld, %la, %lb;", ~0ull, ~0ull) == ~1ull);
  CHECK(one64("mul.hi.s64 %ld, %la, %lb;", uint64_t(-3), 5) == ~0ull);
  CHECK(one64("cvt.u32.u64 %t0, %la; mul.wide.s32 %ld, %t0, -2;", 0x80000000u) == 0x100000000ull);
  CHECK(one("mad.lo.s32 %d, %a, %b, %c;", 7, uint32_t(-3), 5) == uint32_t(-16));
  CHECK(one("mad.hi.sat.s32 %d, %a, %b, %c;", 0x7fffffff, 0x7fffffff, 0x7fffffff) == 0x7fffffff);
  CHECK(one("mul.wide.u16 %d, %ha, %hb;", 0xffff, 0xffff) == 0xfffe0001u);
  CHECK(one("mul.wide.s16 %d, %ha, %hb;", 0xffff, 2) == uint32_t(-2));
  CHECK(one("mul.lo.u16 %hd, %ha, %hb; cvt.u32.u16 %d, %hd;", 0x1234, 0x100) == 0x3400);
  CHECK(one("mad.lo.s16 %hd, %ha, %hb, %hc; cvt.s32.s16 %d, %hd;", 0xffff, 3, 1) == uint32_t(-2));
  CHECK(one("add.sat.s32 %d, %a, %b;", 0x7fffffff, 1) == 0x7fffffff);
  CHECK(one("sub.sat.s32 %d, %a, %b;", 0x80000000, 1) == 0x80000000);
  CHECK(one("div.s32 %d, %a, %b;", uint32_t(-7), 2) == uint32_t(-3));
  CHECK(one("rem.s32 %d, %a, %b;", uint32_t(-7), 2) == uint32_t(-1));
  CHECK(one("div.u32 %d, %a, %b;", 7, 0) == ~0u);
  CHECK(one("div.s32 %d, %a, %b;", 0x80000000u, ~0u) == 0x80000000u);
  CHECK(one("rem.s32 %d, %a, %b;", 0x80000000u, ~0u) == 0);
  CHECK(one64("div.u64 %ld, %la, %lb;", ~0ull, 10) == ~0ull / 10);
  CHECK(one64("rem.s64 %ld, %la, %lb;", uint64_t(-17), 5) == uint64_t(-2));
  CHECK(one("sad.s32 %d, %a, %b, %c;", uint32_t(-5), 3, 10) == 18);
  CHECK(one("sad.u32 %d, %a, %b, %c;", 5, 3, 10) == 12);
  CHECK(one("mul24.lo.s32 %d, %a, %b;", 0x00ffffff, 3) == uint32_t(-3));
  CHECK(one("mul24.hi.u32 %d, %a, %b;", 0x00ffffff, 0x00ffffff) ==
        uint32_t(0xffffffull * 0xffffffull >> 16));
  CHECK(one("abs.s32 %d, %a;", uint32_t(-9)) == 9);
  CHECK(one("neg.s16 %hd, %ha; cvt.u32.u16 %d, %hd;", 1) == 0xffff);
  CHECK(one("min.s32 %d, %a, %b;", uint32_t(-1), 1) == ~0u);
  CHECK(one("min.u32 %d, %a, %b;", uint32_t(-1), 1) == 1);
  CHECK(one("max.s16x2 %d, %a, %b;", 0xffff0001, 0x0000ffff) == 0x00000001);
  CHECK(one("add.u16x2 %d, %a, %b;", 0xffff0001, 0x0001ffff) == 0);
  CHECK(one("dp4a.s32.s32 %d, %a, %b, %c;", 0x01ff0280, 0x04030201, 100) ==
        uint32_t(100 - 128 + 2 * 2 - 3 + 4));
  CHECK(one("dp4a.u32.s32 %d, %a, %b, %c;", 0xff000000, 0xff000000, 0) == uint32_t(-255));
  CHECK(one("dp2a.lo.s32.s32 %d, %a, %b, %c;", 0xffff0003, 0x00000502, 1) == uint32_t(1 + 6 - 5));
  CHECK(one("dp2a.hi.u32.u32 %d, %a, %b, %c;", 0x00020003, 0x05020000, 1) == 1 + 6 + 10);
  CHECK(one("vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;", 0x01020304, 0x04030201, 10) == 18);
}

TEST_CASE("carries", "[integer]") {
  // 128-bit sum and product out of 64-bit halves.
  CHECK(one64("add.cc.u64 %lt0, %la, %lb; addc.u64 %ld, %lc, 0;", ~0ull, 1, 5) == 6);
  CHECK(one64("add.cc.u64 %lt0, %la, %lb; addc.u64 %ld, %lc, 0;", 1, 1, 5) == 5);
  CHECK(one64("sub.cc.u64 %lt0, %la, %lb; subc.u64 %ld, %lc, 0;", 0, 1, 5) == 4);
  CHECK(one("add.cc.u32 %t0, %a, %b; addc.cc.u32 %t1, %a, %b; addc.u32 %d, 0, 0;", ~0u, ~0u) == 1);
  CHECK(one("mad.lo.cc.u32 %t0, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0;", ~0u, ~0u, ~0u) == ~0u);
  CHECK(one("add.cc.u32 %t0, %a, %b; addc.cc.u32 %t1, %b, %b; subc.u32 %d, %c, 0;", 1, 1, 9) == 9);
}

TEST_CASE("comparisons and NaN", "[compare]") {
  const uint32_t nan = 0x7fc00000;
  auto holds = [](const std::string& what, uint32_t a, uint32_t b) {
    return one("setp." + what + " %q0, %a, %b; selp.u32 %d, 1, 0, %q0;", a, b) == 1;
  };
  for (const char* c : {"eq", "ne", "lt", "le", "gt", "ge", "num"})
    CHECK_FALSE(holds(c + std::string(".f32"), nan, bits(1.0f)));
  for (const char* c : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"})
    CHECK(holds(c + std::string(".f32"), nan, bits(1.0f)));
  CHECK(holds("lt.s32", ~0u, 0));
  CHECK_FALSE(holds("lt.u32", ~0u, 0));
  CHECK(holds("lo.u32", 0, 1));
  CHECK(holds("hs.u32", 1, 1));
  CHECK(holds("eq.f32", bits(0.0f), bits(-0.0f)));
  CHECK(holds("eq.ftz.f32", 1, 0));
  CHECK_FALSE(holds("eq.f32", 1, 0));
  CHECK(one("setp.ne.s16 %q0, %ha, %hb; selp.u32 %d, 1, 0, %q0;", 0x10001, 1) == 0);
  CHECK(one("setp.gt.u32 %q1, %a, 5; setp.lt.and.u32 %q0|%q2, %a, %b, !%q1; selp.u32 %t0, 1, 0, "
            "%q0; selp.u32 %t1, 2, 0, %q2; or.b32 %d, %t0, %t1;",
            3, 4) == 1);
  CHECK(one("set.lt.u32.f32 %d, %f0, %f1;", 0, 0) == 0);
  CHECK(one("mov.b32 %f0, %a; mov.b32 %f1, %b; set.lt.f32.f32 %f2, %f0, %f1; mov.b32 %d, %f2;",
            bits(1.0f), bits(2.0f)) == bits(1.0f));
  CHECK(one("slct.u32.s32 %d, %a, %b, %c;", 7, 8, ~0u) == 8);
  CHECK(one("mov.b32 %f0, %c; slct.u32.f32 %d, %a, %b, %f0;", 7, 8, bits(-0.0f)) == 7);
  CHECK(one("setp.lt.f16x2 %q0|%q1, %a, %b; selp.u32 %t0, 1, 0, %q0; selp.u32 %t1, 2, 0, %q1; "
            "or.b32 %d, %t0, %t1;",
            0x3c003c00, 0x40003800) == 2);
  CHECK(one("set.lt.f16x2.f16x2 %d, %a, %b;", 0x3c003c00, 0x40003800) == 0x3c000000);
  CHECK(one("mov.b32 %f0, %a; testp.subnormal.f32 %q0, %f0; selp.u32 %d, 1, 0, %q0;", 1) == 1);
  CHECK(one("mov.b32 %f0, %a; testp.infinite.f32 %q0, %f0; selp.u32 %d, 1, 0, %q0;", 0xff800000) ==
        1);
}

static uint32_t f32(const std::string& op, float a, float b = 0, float c = 0) {
  return one("mov.b32 %f0, %a; mov.b32 %f1, %b; mov.b32 %f2, %c; " + op + "; mov.b32 %d, %f3;",
             bits(a), bits(b), bits(c));
}
static uint64_t f64(const std::string& op, double a, double b = 0, double c = 0) {
  return one64(
      "mov.b64 %fd0, %la; mov.b64 %fd1, %lb; mov.b64 %fd2, %lc; " + op + "; mov.b64 %ld, %fd3;",
      bits(a), bits(b), bits(c));
}

TEST_CASE("float arithmetic", "[real]") {
  CHECK(f32("fma.rn.f32 %f3, %f0, %f1, %f2", 1 + 0x1p-12f, 1 + 0x1p-12f, -1) ==
        bits(std::fma(1 + 0x1p-12f, 1 + 0x1p-12f, -1.0f)));
  CHECK(f32("mad.rn.f32 %f3, %f0, %f1, %f2", 1 + 0x1p-12f, 1 - 0x1p-12f, -1) == bits(-0x1p-24f));
  CHECK(f32("mul.rn.f32 %f3, %f0, %f1; add.rn.f32 %f3, %f3, %f2", 1 + 0x1p-12f, 1 + 0x1p-12f, -1) ==
        bits(0x1p-11f));
  CHECK(f32("add.f32 %f3, %f0, %f1", INFINITY, -INFINITY) == 0x7fffffff);
  CHECK(f32("add.sat.f32 %f3, %f0, %f1", 0.75f, 0.75f) == bits(1.0f));
  CHECK(f32("add.sat.f32 %f3, %f0, %f1", NAN, 1) == 0);
  CHECK(f32("mul.ftz.f32 %f3, %f0, %f1", 0x1p-126f, 0.5f) == 0);
  CHECK(f32("mul.f32 %f3, %f0, %f1", 0x1p-126f, 0.5f) == bits(0x1p-127f));
  CHECK(f32("add.ftz.f32 %f3, %f0, %f1", -0x1p-127f, -0.0f) == bits(-0.0f));
  CHECK(f32("min.f32 %f3, %f0, %f1", NAN, 2) == bits(2.0f));
  CHECK(f32("min.NaN.f32 %f3, %f0, %f1", NAN, 2) == 0x7fffffff);
  CHECK(f32("min.f32 %f3, %f0, %f1", 0.0f, -0.0f) == bits(-0.0f));
  CHECK(f32("max.f32 %f3, %f0, %f1", -0.0f, 0.0f) == bits(0.0f));
  CHECK(f32("min.xorsign.abs.f32 %f3, %f0, %f1", -3, 2) == bits(-2.0f));
  CHECK(f32("abs.f32 %f3, %f0", -3) == bits(3.0f));
  CHECK(f32("copysign.f32 %f3, %f0, %f1", -3, 2) == bits(-2.0f));
  CHECK(f32("rcp.rn.f32 %f3, %f0", 3) == bits(1.0f / 3));
  CHECK(f32("sqrt.rn.f32 %f3, %f0", 2) == bits(std::sqrt(2.0f)));
  CHECK(f32("sqrt.approx.f32 %f3, %f0", -1) == 0x7fffffff);
  CHECK(f64("sqrt.rn.f64 %fd3, %fd0", 2) == bits(std::sqrt(2.0)));
  CHECK(f64("div.rn.f64 %fd3, %fd0, %fd1", 1, 3) == bits(1.0 / 3));
}

TEST_CASE("directed rounding agrees with the machine's", "[real]") {
  struct Mode {
    const char* name;
    int round;
  };
  std::mt19937_64 random(7);
  auto number = [&] {
    uint32_t e = 100 + random() % 60;
    return real(uint32_t(random() % 2) << 31 | e << 23 | uint32_t(random() & 0x7fffff));
  };
  for (Mode m : {Mode{"rz", FE_TOWARDZERO}, Mode{"rm", FE_DOWNWARD}, Mode{"rp", FE_UPWARD},
                 Mode{"rn", FE_TONEAREST}}) {
    std::vector<uint32_t> a(32), b(32), c(32), add(32), mul(32), div(32), fma(32), narrow(32),
        root(32);
    for (int l = 0; l < 32; ++l) {
      volatile float x = number(), y = number(), z = l % 3 ? number() : -x * y * (1 + 0x1p-20f);
      a[l] = bits(x), b[l] = bits(y), c[l] = bits((float)z);
      fesetround(m.round);
      volatile float s = x + y, p = x * y, q = x / y, f = std::fma((float)x, (float)y, (float)z),
                     r = std::sqrt(std::fabs((float)x));
      volatile double wide = (double)x + (double)y;
      volatile float n = (float)wide;
      fesetround(FE_TONEAREST);
      add[l] = bits(s), mul[l] = bits(p), div[l] = bits(q), fma[l] = bits(f), narrow[l] = bits(n),
      root[l] = bits(r);
    }
    auto run = [&](const std::string& op) {
      return lanes<uint32_t>(
          "mov.b32 %f0, %a; mov.b32 %f1, %b; mov.b32 %f2, %c; " + op + "; mov.b32 %d, %f3;", a, b,
          c);
    };
    const std::string n = m.name;
    CHECK(run("add." + n + ".f32 %f3, %f0, %f1") == add);
    CHECK(run("mul." + n + ".f32 %f3, %f0, %f1") == mul);
    CHECK(run("div." + n + ".f32 %f3, %f0, %f1") == div);
    CHECK(run("fma." + n + ".f32 %f3, %f0, %f1, %f2") == fma);
    CHECK(run("abs.f32 %f0, %f0; sqrt." + n + ".f32 %f3, %f0") == root);
    CHECK(run("cvt.f64.f32 %fd0, %f0; cvt.f64.f32 %fd1, %f1; add." + n +
              ".f64 %fd2, %fd0, %fd1; cvt." + n + ".f32.f64 %f3, %fd2") == narrow);
  }
}

TEST_CASE("double fma in every mode", "[real]") {
  std::mt19937_64 random(11);
  struct Mode {
    const char* name;
    int round;
  };
  for (Mode m : {Mode{"rn", FE_TONEAREST}, Mode{"rz", FE_TOWARDZERO}, Mode{"rm", FE_DOWNWARD},
                 Mode{"rp", FE_UPWARD}}) {
    std::vector<uint64_t> a(32), b(32), c(32), want(32);
    for (int l = 0; l < 32; ++l) {
      auto number = [&](int spread) {
        return std::ldexp(1.0 + (double)(random() >> 12) * 0x1p-52,
                          (int)(random() % spread) - spread / 2) *
               (random() % 2 ? 1 : -1);
      };
      volatile double x = number(20), y = number(20),
                      z = l % 4 == 0   ? -x * y
                          : l % 4 == 1 ? number(220)
                                       : number(40);
      if (l == 31) {
        x = 0x1p-1060;
        y = 0x1p-10;
        z = 0x1p-1074;
      }
      a[l] = bits((double)x), b[l] = bits((double)y), c[l] = bits((double)z);
      fesetround(m.round);
      volatile double f = std::fma((double)x, (double)y, (double)z);
      fesetround(FE_TONEAREST);
      want[l] = bits((double)f);
    }
    CHECK(lanes<uint64_t>("mov.b64 %fd0, %la; mov.b64 %fd1, %lb; mov.b64 %fd2, %lc; fma." +
                              std::string(m.name) +
                              ".f64 %fd3, %fd0, %fd1, %fd2; mov.b64 %ld, %fd3;",
                          a, b, c) == want);
  }
}

TEST_CASE("conversions", "[convert]") {
  auto to_int = [](const std::string& op, float x) {
    return one("mov.b32 %f0, %a; " + op + " %d, %f0;", bits(x));
  };
  CHECK(to_int("cvt.rzi.s32.f32", 3.9f) == 3);
  CHECK(to_int("cvt.rzi.s32.f32", -3.9f) == uint32_t(-3));
  CHECK(to_int("cvt.rmi.s32.f32", -3.1f) == uint32_t(-4));
  CHECK(to_int("cvt.rpi.s32.f32", 3.1f) == 4);
  CHECK(to_int("cvt.rni.s32.f32", 2.5f) == 2);
  CHECK(to_int("cvt.rni.s32.f32", 3.5f) == 4);
  CHECK(to_int("cvt.rzi.s32.f32", 1e20f) == 0x7fffffff);
  CHECK(to_int("cvt.rzi.s32.f32", -1e20f) == 0x80000000);
  CHECK(to_int("cvt.rzi.s32.f32", NAN) == 0);
  CHECK(to_int("cvt.rzi.u32.f32", -1) == 0);
  CHECK(to_int("cvt.rzi.u32.f32", 4294967040.0f) == 4294967040u);
  CHECK(to_int("cvt.rzi.u32.f32", 1e20f) == ~0u);
  CHECK(one("mov.b32 %f0, %a; cvt.rzi.u8.f32 %d, %f0;", bits(300.0f)) == 255);
  CHECK(one("mov.b32 %f0, %a; cvt.rzi.s8.f32 %d, %f0;", bits(-300.0f)) == uint32_t(-128));
  CHECK(one64("mov.b64 %fd0, %la; cvt.rzi.u64.f64 %ld, %fd0;", bits(1.8e19)) == (uint64_t)1.8e19);
  CHECK(one64("mov.b64 %fd0, %la; cvt.rzi.s64.f64 %ld, %fd0;", bits(-9.3e18)) == 1ull << 63);
  auto from_int = [](const std::string& op, uint32_t x) {
    return one(op + " %f0, %a; mov.b32 %d, %f0;", x);
  };
  CHECK(from_int("cvt.rn.f32.u32", 0xffffffff) == bits(4294967296.0f));
  CHECK(from_int("cvt.rz.f32.u32", 0xffffffff) == bits(4294967040.0f));
  CHECK(from_int("cvt.rn.f32.s32", 0x80000000) == bits(-2147483648.0f));
  CHECK(from_int("cvt.rp.f32.s32", 16777217) == bits(16777218.0f));
  CHECK(one64("cvt.rn.f64.u64 %fd0, %la; mov.b64 %ld, %fd0;", ~0ull) ==
        bits(18446744073709551616.0));
  CHECK(one64("cvt.rm.f64.s64 %fd0, %la; mov.b64 %ld, %fd0;", (1ull << 53) + 1) ==
        bits(9007199254740992.0));
  CHECK(f32("cvt.rni.f32.f32 %f3, %f0", 2.5f) == bits(2.0f));
  CHECK(f32("cvt.rzi.f32.f32 %f3, %f0", -0.5f) == bits(-0.0f));
  CHECK(f32("cvt.rmi.f32.f32 %f3, %f0", -0.5f) == bits(-1.0f));
  CHECK(f32("cvt.rpi.f32.f32 %f3, %f0", 1e30f) == bits(1e30f));
  CHECK(f32("cvt.sat.f32.f32 %f3, %f0", 7) == bits(1.0f));
  CHECK(f32("cvt.sat.f32.f32 %f3, %f0", NAN) == 0);
  CHECK(f32("cvt.ftz.f32.f32 %f3, %f0", 1e-40f) == 0);
  // Integers.
  CHECK(one("cvt.s32.s8 %d, %a;", 0x80) == uint32_t(-128));
  CHECK(one("cvt.u32.u8 %d, %a;", 0x1ff) == 0xff);
  CHECK(one("cvt.s16.s8 %hd, %ha; cvt.u32.u16 %d, %hd;", 0x80) == 0xff80);
  CHECK(one("cvt.sat.s8.s32 %d, %a;", 1000) == 127);
  CHECK(one("cvt.sat.u8.s32 %d, %a;", uint32_t(-5)) == 0);
  CHECK(one("cvt.sat.u32.s32 %d, %a;", uint32_t(-5)) == 0);
  CHECK(one64("cvt.s64.s32 %ld, %a;", 0) == 0);
  CHECK(one64("cvt.u32.u64 %t0, %la; cvt.s64.s32 %ld, %t0;", 0x80000000) == 0xffffffff80000000ull);
  CHECK(one64("cvt.s64.s8 %ld, %la;", 0x80) == 0xffffffffffffff80ull);
  CHECK(one64("cvt.u64.u16 %ld, %la;", 0x12345678) == 0x5678);
  CHECK(one("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", 300, uint32_t(-1), 0x1234) == 0x1234ff00);
}

TEST_CASE("halves", "[half]") {
  auto half = [](float x) {
    return one("mov.b32 %f0, %a; cvt.rn.f16.f32 %hd, %f0; cvt.u32.u16 %d, %hd;", bits(x));
  };
  CHECK(half(1.0f) == 0x3c00);
  CHECK(half(65519.0f) == 0x7bff);
  CHECK(half(65520.0f) == 0x7c00);
  CHECK(half(0x1p-24f) == 1);
  CHECK(half(0x1p-25f) == 0);
  CHECK(half(0x1.8p-25f) == 1);
  CHECK(half(1 + 0x1p-11f) == 0x3c00);
  CHECK(half(1 + 0x3p-11f) == 0x3c02);
  CHECK(half(NAN) == 0x7fff);
  CHECK(one("mov.b32 %f0, %a; cvt.rz.f16.f32 %hd, %f0; cvt.u32.u16 %d, %hd;", bits(1 + 0x3p-11f)) ==
        0x3c01);
  CHECK(one("mov.b32 %f0, %a; cvt.rn.bf16.f32 %hd, %f0; cvt.u32.u16 %d, %hd;", bits(1 + 0x3p-8f)) ==
        0x3f82);
  CHECK(one("mov.b32 %f0, %a; cvt.rn.relu.bf16.f32 %hd, %f0; cvt.u32.u16 %d, %hd;", bits(-1.0f)) ==
        0);
  CHECK(one("mov.b32 %f0, %a; mov.b32 %f1, %b; cvt.rn.f16x2.f32 %d, %f0, %f1;", bits(1.0f),
            bits(2.0f)) == 0x3c004000);
  CHECK(one("mov.b32 %f0, %a; mov.b32 %f1, %b; cvt.rn.bf16x2.f32 %d, %f0, %f1;", bits(1.0f),
            bits(2.0f)) == 0x3f804000);
  CHECK(one("cvt.f32.f16 %f0, %ha; mov.b32 %d, %f0;", 0x0001) == bits(0x1p-24f));
  CHECK(one("cvt.f32.bf16 %f0, %ha; mov.b32 %d, %f0;", 0xc040) == bits(-3.0f));
  CHECK(one("add.f16 %hd, %ha, %hb; cvt.u32.u16 %d, %hd;", 0x3c00, 0x3c00) == 0x4000);
  CHECK(one("fma.rn.f16x2 %d, %a, %b, %c;", 0x3c004000, 0x40004000, 0x3c003c00) == 0x42004500);
  CHECK(one("fma.rn.relu.f16 %hd, %ha, %hb, %hc; cvt.u32.u16 %d, %hd;", 0xbc00, 0x4000, 0) == 0);
  CHECK(one("max.NaN.f16 %hd, %ha, %hb; cvt.u32.u16 %d, %hd;", 0x7e00, 0x4000) == 0x7fff);
  CHECK(one("max.f16x2 %d, %a, %b;", 0x7e004200, 0x40003c00) == 0x40004200);
  CHECK(one("neg.f16x2 %d, %a;", 0x3c004000) == 0xbc00c000);
  // One rounding: 2049/2048 * 2047/2048 - 1 = -2^-22 must survive.
  CHECK(one("fma.rn.f16 %hd, %ha, %hb, %hc; cvt.u32.u16 %d, %hd;", 0x3c01, 0x3bfe, 0xbc00) ==
        one("mov.b32 %f0, %a; cvt.rn.f16.f32 %hd, %f0; cvt.u32.u16 %d, %hd;",
            bits(1.0009765625f * 0.9990234375f - 1)));
  CHECK(one("mov.b32 %f0, %a; mov.b32 %f1, %b; cvt.rn.satfinite.e4m3x2.f32 %hd, %f0, %f1; "
            "cvt.u32.u16 %d, %hd;",
            bits(448.0f), bits(-1000.0f)) == 0x7efe);
  CHECK(one("mov.b32 %f0, %a; mov.b32 %f1, %b; cvt.rn.satfinite.e4m3x2.f32 %hd, %f0, %f1; "
            "cvt.u32.u16 %d, %hd;",
            bits(1.0f), bits(0x1p-9f)) == 0x3801);
  CHECK(one("cvt.rn.f16x2.e4m3x2 %d, %ha;", 0x38b8) == 0x3c00bc00);
  CHECK(one("cvt.rn.f16x2.e5m2x2 %d, %ha;", 0x3cbc) == 0x3c00bc00);
  // An element of an array: as a value its address, as an address what lies there.
  CHECK(one(".shared .align 4 .b32 v[4]; mov.u32 %t0, v[3]; mov.u32 %t1, v; sub.u32 %d, %t0, %t1;",
            0) == 12);
  CHECK(one(".shared .align 4 .b32 v[4]; st.shared.b32 v[2], %a; ld.shared.b32 %d, [v+8];", 7) ==
        7);
  CHECK(one(".shared .align 4 .b32 v[4]; st.shared.b32 [v+4], %a; ld.shared.b32 %d, v[2-1];", 9) ==
        9);
  // Scales: powers of two without a sign, rounded up or towards zero.
  const std::string scale = "mov.b32 %f0, %a; mov.b32 %f1, %b; cvt.";
  const std::string done = ".ue8m0x2.f32 %hd, %f0, %f1; cvt.u32.u16 %d, %hd;";
  CHECK(one(scale + "rp.satfinite" + done, bits(-1.0f), bits(1.5f)) == 0x7f80);
  CHECK(one(scale + "rz.satfinite" + done, bits(4.0f), bits(1.5f)) == 0x817f);
  CHECK(one(scale + "rp.satfinite" + done, 0x7f800000, 0x7fc00000) == 0xfeff);
  CHECK(one(scale + "rp" + done, bits(3e38f), 0x00400000) == 0xff00);
  CHECK(one(scale + "rp" + done, 0x00400001, 0) == 0x0100);
  CHECK(one("cvt.rp.ue8m0x2.bf16x2 %hd, %a; cvt.u32.u16 %d, %hd;", 0x3f803f81) == 0x7f80);
  CHECK(one("cvt.rn.bf16x2.ue8m0x2 %d, %ha;", 0x7fff) == 0x3f807fff);
  CHECK(one("cvt.rn.bf16x2.ue8m0x2 %d, %ha;", 0x0080) == 0x00404000);
}

TEST_CASE("4- and 6-bit floats hold the nearest number that they have", "[half]") {
  struct Type {
    const char* name;
    unsigned exponent, mantissa, pitch;
    int bias;
  };
  for (const Type& t :
       {Type{"e2m1x2", 2, 1, 4, 1}, Type{"e2m3x2", 2, 3, 8, 1}, Type{"e3m2x2", 3, 2, 8, 3}}) {
    const unsigned most = (1u << (t.exponent + t.mantissa)) - 1;
    auto value = [&](unsigned code) {
      const unsigned e = code >> t.mantissa, m = code & ((1u << t.mantissa) - 1);
      return e == 0
                 ? std::ldexp((double)m, 1 - t.bias - (int)t.mantissa)
                 : std::ldexp((double)(m + (1u << t.mantissa)), (int)e - t.bias - (int)t.mantissa);
    };
    auto nearest = [&](float x) -> unsigned {  // ties to the even code
      if (std::isnan(x)) return most;
      const double a = std::fmin(std::fabs((double)x), 1e6);
      unsigned best = 0;
      for (unsigned code = 1; code <= most; ++code) {
        const double was = std::fabs(value(best) - a), is = std::fabs(value(code) - a);
        if (is < was || (is == was && code % 2 == 0)) best = code;
      }
      return best | (std::signbit(x) ? most + 1 : 0);
    };
    std::vector<uint32_t> high, low;
    std::mt19937 random(5);
    for (unsigned code = 0; code < most; ++code) {
      high.push_back(bits((float)value(code)));
      low.push_back(bits((float)(-(value(code) + value(code + 1)) / 2)));
    }
    for (int k = 0; k < 200; ++k) {
      high.push_back(bits(std::ldexp((float)random() / 4e9f - 0.5f, (int)(random() % 12) - 5)));
      low.push_back(bits(std::ldexp((float)random() / 4e9f - 0.5f, (int)(random() % 12) - 5)));
    }
    for (uint32_t odd : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x80000000u, 0x00000001u})
      high.push_back(odd), low.push_back(bits(1.0f));
    const std::string destination =
        t.pitch == 4
            ? "{ .reg .b8 %x; cvt.rn.satfinite.e2m1x2.f32 %x, %f0, %f1; cvt.u32.u8 %d, %x; }"
            : std::string("cvt.rn.satfinite.") + t.name +
                  ".f32 %hd, %f0, %f1; cvt.u32.u16 %d, %hd;";
    for (size_t k = 0; k < high.size(); k += 32) {
      const std::vector<uint32_t> a(high.begin() + (long)k,
                                    high.begin() + (long)std::min(high.size(), k + 32));
      const std::vector<uint32_t> b(low.begin() + (long)k,
                                    low.begin() + (long)std::min(high.size(), k + 32));
      const auto got = lanes<uint32_t>("mov.b32 %f0, %a; mov.b32 %f1, %b; " + destination, a, b);
      REQUIRE(got.size() == 32);
      for (size_t l = 0; l < a.size(); ++l) {
        INFO(t.name << " " << real(a[l]) << " " << real(b[l]));
        CHECK(got[l] == (nearest(real(a[l])) << t.pitch | nearest(real(b[l]))));
      }
    }
    // And back: every code.
    const std::string source =
        t.pitch == 4 ? "{ .reg .b8 %x; cvt.u8.u32 %x, %a; cvt.rn.f16x2.e2m1x2 %d, %x; }"
                     : std::string("cvt.rn.f16x2.") + t.name + " %d, %ha;";
    for (unsigned code = 0; code <= most; ++code) {
      const uint32_t got = one(source, (code | (most + 1)) << t.pitch | code);
      const uint32_t half = one("mov.b32 %f0, %a; cvt.rn.f16.f32 %hd, %f0; cvt.u32.u16 %d, %hd;",
                                bits((float)value(code)));
      CHECK(got == ((half | 0x8000) << 16 | half));
    }
    CHECK(one("mov.b32 %f0, %a; mov.b32 %f1, %b; " +
                  std::string(destination)
                      .replace(destination.find("satfinite"), 9, "satfinite.relu"),
              bits(-2.0f), bits(2.0f)) == nearest(2.0f));
  }
}

TEST_CASE("halves are added to and multiplied into floats with one rounding", "[half]") {
  std::mt19937 random(7);
  auto half = [&] { return (uint32_t)(random() % 0x7c00 | (random() & 0x8000)); };
  auto from_half = [](uint32_t h) {
    const int e = (int)(h >> 10 & 31);
    const double m = (double)(h & 1023) + (e ? 1024 : 0);
    return std::ldexp(h >> 15 ? -m : m, (e ? e : 1) - 25);
  };
  for (int k = 0; k < 200; ++k) {
    const uint32_t a = half(), b = half();
    const float c = std::ldexp((float)random() / 4e9f - 0.5f, (int)(random() % 30) - 15);
    const double x = from_half(a), y = from_half(b);
    // A product of halves and their sums with such floats are exact in long double.
    auto rounded = [](long double v) { return bits((float)v); };
    CHECK(one("mov.b32 %f1, %b; add.f32.f16 %f0, %ha, %f1; mov.b32 %d, %f0;", a, bits(c)) ==
          rounded((long double)x + c));
    CHECK(one("mov.b32 %f1, %b; sub.rn.f32.f16 %f0, %ha, %f1; mov.b32 %d, %f0;", a, bits(c)) ==
          rounded((long double)x - c));
    CHECK(one("mov.b32 %f1, %c; fma.rn.f32.f16 %f0, %ha, %hb, %f1; mov.b32 %d, %f0;", a, b,
              bits(c)) == rounded((long double)x * y + c));
  }
  // bf16 is the upper half of a float; rounding and saturation are the sum's.
  CHECK(one("mov.b32 %f1, %b; add.rz.f32.bf16 %f0, %ha, %f1; mov.b32 %d, %f0;", 0x3f80,
            bits(-0x1p-60f)) == bits(0x1.fffffep-1f));
  CHECK(one("mov.b32 %f1, %b; add.rn.sat.f32.bf16 %f0, %ha, %f1; mov.b32 %d, %f0;", 0x4000,
            bits(3.0f)) == bits(1.0f));
  CHECK(one("mov.b32 %f1, %c; fma.rn.f32.bf16 %f0, %ha, %hb, %f1; mov.b32 %d, %f0;", 0x4040, 0xc000,
            bits(1.0f)) == bits(-5.0f));
}

TEST_CASE("a table of three words combines with a predicate", "[integer]") {
  for (bool given : {false, true})
    for (bool is_and : {false, true})
      for (uint32_t a : {0u, 0x00f0u}) {
        const std::string op = std::string("setp.ne.u32 %q1, %c, 0; lop3.") +
                               (is_and ? "and" : "or") +
                               ".b32 %t1|%q0, %a, %b, 0, 0xc0, %q1; selp.u32 %t2, 1, 0, %q0; "
                               "shl.b32 %t1, %t1, 1; or.b32 %d, %t1, %t2;";
        const uint32_t both = a & 0x0ff0;
        const bool truth = is_and ? (both != 0 && given) : (both != 0 || given);
        CHECK(one(op, a, 0x0ff0, given) == (both << 1 | truth));
      }
  CHECK(one("setp.ne.u32 %q1, %c, 0; lop3.and.b32 _|%q0, %a, %b, %c, 0xfe, !%q1; selp.u32 %d, 1, "
            "0, %q0;",
            4, 0, 0) == 1);
}

TEST_CASE("half arithmetic against exact references", "[half]") {
  // Every result of add, mul, fma of random halves equals the correctly rounded exact value,
  // computed in long double.
  std::mt19937 random(3);
  std::vector<uint32_t> a(1024), b(1024), c(1024);
  for (int i = 0; i < 1024; ++i) {
    a[i] = random() & 0xfbff, b[i] = random() & 0xfbff, c[i] = random() & 0xfbff;
    for (uint32_t* x : {&a[i], &b[i], &c[i]})
      if ((*x & 0x7c00) == 0x7c00) *x ^= 0x4000;
  }
  auto widen = [](uint32_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    long double v =
        e == 0 ? std::ldexp((long double)m, -24) : std::ldexp((long double)(m | 1024), e - 25);
    return h >> 15 & 1 ? -v : v;
  };
  auto narrow = [](long double v) -> uint32_t {
    uint32_t sign = std::signbit(v) ? 0x8000 : 0;
    v = std::fabs(v);
    if (v == 0) return sign;
    int e = std::ilogb(v);
    if (e < -14) e = -14;
    long double scaled = std::ldexp(v, 10 - e);
    auto m = (uint32_t)std::nearbyint(scaled);
    if (m == 2048) m = 1024, ++e;
    if (e > 15) return sign | 0x7c00;
    return m < 1024 ? sign | m : sign | (uint32_t)(e + 15) << 10 | (m & 1023);
  };
  auto run = [&](const std::string& op) {
    return lanes<uint32_t>(op + " cvt.u32.u16 %d, %hd;", a, b, c, nullptr, 1024);
  };
  auto sum = run("add.f16 %hd, %ha, %hb;"), product = run("mul.f16 %hd, %ha, %hb;"),
       fused = run("fma.rn.f16 %hd, %ha, %hb, %hc;");
  int bad = 0;
  for (int i = 0; i < 1024; ++i) {
    long double x = widen(a[i]), y = widen(b[i]), z = widen(c[i]);
    bad += sum[i] != narrow(x + y);
    bad += product[i] != narrow(x * y);
    bad += fused[i] != narrow(x * y + z);
  }
  CHECK(bad == 0);
}

TEST_CASE("approximate functions stay within PTX's bounds", "[approx]") {
  for (int i = 0; i < 512; i += 32) {
    std::vector<uint32_t> x(32);
    for (int l = 0; l < 32; ++l) x[l] = bits((float)((i + l) * 0.0245 - 6.25));
    auto run = [&](const std::string& op, const std::vector<uint32_t>& in) {
      return lanes<uint32_t>("mov.b32 %f0, %a; " + op + " %f1, %f0; mov.b32 %d, %f1;", in);
    };
    auto s = run("sin.approx.f32", x), k = run("cos.approx.f32", x), e = run("ex2.approx.f32", x),
         t = run("tanh.approx.f32", x);
    std::vector<uint32_t> positive(32);
    for (int l = 0; l < 32; ++l) positive[l] = bits((float)std::exp(real(x[l]) * 3));
    auto g = run("lg2.approx.f32", positive), q = run("rsqrt.approx.f32", positive);
    for (int l = 0; l < 32; ++l) {
      double v = real(x[l]), p = real(positive[l]);
      CHECK(std::fabs(real(s[l]) - std::sin(v)) < 0x1p-20);
      CHECK(std::fabs(real(k[l]) - std::cos(v)) < 0x1p-20);
      CHECK(std::fabs(real(e[l]) / std::exp2(v) - 1) < 0x1p-22);
      CHECK(std::fabs(real(t[l]) - std::tanh(v)) <= std::fabs(std::tanh(v)) * 0x1p-10);
      CHECK(std::fabs(real(g[l]) - std::log2(p)) <
            0x1p-22 * std::fmax(1, std::fabs(std::log2(p)) * 4));
      CHECK(std::fabs(real(q[l]) * std::sqrt(p) - 1) < 0x1p-22);
    }
  }
  CHECK(f32("ex2.approx.ftz.f32 %f3, %f0", -INFINITY) == 0);
  CHECK(f32("ex2.approx.f32 %f3, %f0", 128) == bits(INFINITY));
  CHECK(f32("ex2.approx.f32 %f3, %f0", -149) == 1);
  CHECK(f32("ex2.approx.ftz.f32 %f3, %f0", 0) == bits(1.0f));
  CHECK(f32("lg2.approx.f32 %f3, %f0", 0) == bits(-INFINITY));
  CHECK(f32("lg2.approx.f32 %f3, %f0", 1) == bits(0.0f));
  CHECK(f32("lg2.approx.f32 %f3, %f0", 8) == bits(3.0f));
  CHECK(f32("lg2.approx.f32 %f3, %f0", -1) == 0x7fffffff);
  CHECK(f32("rcp.approx.ftz.f32 %f3, %f0", INFINITY) == 0);
  CHECK(f32("sin.approx.f32 %f3, %f0", -0.0f) == bits(-0.0f));
  CHECK(f32("sin.approx.f32 %f3, %f0", INFINITY) == 0x7fffffff);
}

TEST_CASE("video instructions on one value", "[integer]") {
  const uint32_t a = 0x80ff7f01, b = 0x00000003, c = 0x11223344;
  // Bytes and halves, with and without a sign.
  CHECK(one("vadd.s32.s32.s32 %d, %a.b2, %b;", a, b) == 2);
  CHECK(one("vadd.s32.u32.s32 %d, %a.b2, %b;", a, b) == 258);
  CHECK(one("vadd.u32.u32.u32 %d, %a.h1, %b.h0;", a, b) == 0x8102);
  CHECK(one("vsub.s32.s32.u32 %d, %a.h1, %b;", a, b) == 0xffff80fcu);
  CHECK(one("vabsdiff.u32.s32.s32 %d, %a.b3, %b;", a, b) == 131);
  CHECK(one("vmin.s32.s32.s32 %d, %a, %b;", a, b) == a);
  CHECK(one("vmax.s32.u32.s32 %d, %a.b0, %b;", a, b) == 3);
  // Sums have 33 bits until they are saturated.
  CHECK(one("vadd.u32.u32.u32.sat %d, %a, %b;", 0xffffffffu, 2) == 0xffffffffu);
  CHECK(one("vsub.u32.u32.u32.sat %d, %a, %b;", 1, 2) == 0);
  CHECK(one("vadd.s32.s32.s32.sat %d, %a, %b;", 0x7fffffff, 2) == 0x7fffffffu);
  CHECK(one("vadd.s32.s32.s32 %d, %a, %b;", 0x7fffffff, 2) == 0x80000001u);
  CHECK(one("vadd.u32.u32.u32.max %d, %a, %b, %c;", 0x80000000u, 2, 5) == 0x80000002u);
  CHECK(one("vadd.s32.s32.s32.add %d, %a, %b, %c;", 7, 8, 100) == 115);
  CHECK(one("vsub.s32.s32.s32.min %d, %a, %b, %c;", 7, 8, 0) == 0xffffffffu);
  // The result in its place of the third operand.
  CHECK(one("vadd.u32.u32.u32 %d.b1, %a, %b, %c;", 0x1fe, 3, c) == 0x11220144);
  CHECK(one("vadd.u32.u32.u32.sat %d.b1, %a, %b, %c;", 0x1fe, 3, c) == 0x1122ff44);
  CHECK(one("vsub.s32.s32.s32.sat %d.h1, %a, %b, %c;", 0xffff0000u, 3, c) == 0x80003344);
  CHECK(one("vshl.u32.u32.u32.clamp %d, %a, %b;", 1, 40) == 0);
  CHECK(one("vshl.u32.u32.u32.wrap %d, %a, %b;", 1, 40) == 256);
  CHECK(one("vshl.u32.u32.u32.sat.clamp %d, %a, %b;", 3, 31) == 0xffffffffu);
  CHECK(one("vshr.s32.s32.u32.clamp %d, %a, %b;", 0x80000000u, 99) == 0xffffffffu);
  CHECK(one("vshr.u32.u32.u32.wrap.add %d, %a, %b, %c;", 0x80000000u, 33, 1) == 0x40000001u);
  CHECK(one("vmad.s32.s32.u32 %d, %a.b3, %b, %c;", a, b, 1000) == 1000 - 128 * 3);
  CHECK(one("vmad.u32.u32.u32.po.shr7 %d, %a, %b, %c;", 1000, 1000, 23) == 1000024 >> 7);
  CHECK(one("vmad.s32.s32.s32.sat %d, %a, %b, %c;", 0x80000000u, 2, 0) == 0x80000000u);
  CHECK(one("vmad.u32.u32.u32.sat.shr15 %d, %a, %b, %c;", 0xffffffffu, 0xffffffffu, 0) ==
        0xffffffffu);
  CHECK(one("vset.s32.s32.lt %d, %a.b2, %b;", a, b) == 1);
  CHECK(one("vset.u32.s32.lt %d, %a.b2, %b;", a, b) == 0);
  CHECK(one("vset.u32.u32.ge.add %d, %a, %b, %c;", 5, 5, 9) == 10);
  CHECK(one("vset.u32.u32.ne %d.h1, %a, %b, %c;", 5, 6, c) == 0x00013344);
  CHECK(one("vset4.s32.s32.lt %d, %a, %b, %c;", 0x80ff0103, 0x00000103, 7) == 0x01010000);
  CHECK(one("vset4.u32.u32.eq.add %d, %a, %b, %c;", 0x80ff0103, 0x00ff0203, 7) == 9);
  CHECK(one("vset2.u32.s32.gt %d, %a, %b, %c;", 0xffff0001, 0x7fff0001, 7) == 0x00010000);
  std::string error;
  lanes<uint32_t>("add.u32 %d, %a.b0, %b;", {a}, {b}, {}, &error);
  CHECK(error.find("a part of register '%a.b0'") != std::string::npos);
  lanes<uint32_t>("vadd.u32.u32.u32 %d, %a, %b, %c;", {a}, {b}, {}, &error);
  CHECK(error.find("the operands do not fit") != std::string::npos);
}

TEST_CASE("packing", "[move]") {
  CHECK(one("mov.b32 {%ht0, %ht1}, %a; mov.b32 %d, {%ht1, %ht0};", 0x12345678) == 0x56781234);
  CHECK(one64("mov.b64 {%t0, %t1}, %la; mov.b64 %ld, {%t1, %t0};", 0x1122334455667788ull) ==
        0x5566778811223344ull);
  CHECK(one64("mov.b64 {_, %t1}, %la; cvt.u64.u32 %ld, %t1;", 0x1122334455667788ull) ==
        0x11223344ull);
  CHECK(one64("mov.b64 {%ht0, %ht1, %ht2, %ht3}, %la; mov.b64 %ld, {%ht3, %ht2, %ht1, %ht0};",
              0x1122334455667788ull) == 0x7788556633441122ull);
  CHECK(one64(".reg .b128 %r; mov.b128 %r, {%la, %lb}; mov.b128 {%lt0, %lt1}, %r; sub.u64 %ld, "
              "%lt1, %lt0;",
              5, 12) == 7);
  CHECK(one("{ .reg .b32 %a; mov.u32 %a, 9; add.u32 %d, %a, 0; }", 1) == 9);
}
