// Textures and surfaces: what a fetch gives for every address mode, filter and geometry, against
// formulas written out here; and that what lies outside or does not exist is an error.
#include <cmath>
#include <initializer_list>
#include "tests/catch.h"

#include "ptx/texture.h"
#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

class OneTexture : public Textures {
 public:
  const Texture* texture(uint64_t handle) override { return handle == 7 ? &object : nullptr; }
  const Texture* surface(uint64_t handle) override { return handle == 8 ? &object : nullptr; }
  Texture object{};
  TextureLevel levels[3] = {};
  std::vector<uint8_t> bytes[3];

  template <class T>
  void fill(TextureKind kind, ChannelKind channel, unsigned channels, uint32_t w, uint32_t h,
            uint32_t d, const std::vector<T>& texels, unsigned level = 0) {
    object.kind = kind;
    object.channel = channel;
    object.channels = (uint8_t)channels;
    object.channel_bits = sizeof(T) * 8;
    object.level_count = (uint8_t)(level + 1);
    object.levels = levels;
    const uint64_t row = w * channels * sizeof(T), pitch = (row + 63) / 64 * 64;
    bytes[level].assign(pitch * h * d, 0);
    for (uint64_t r = 0; r < (uint64_t)h * d; ++r)
      memcpy(&bytes[level][r * pitch], &texels[r * w * channels], row);
    levels[level] = {bytes[level].data(), 0, w, h, d, pitch, pitch * h};
  }
};

// Runs one fetch per lane: x, y, z per lane are given, four results per lane come back.
struct Fetch {
  OneTexture textures;
  std::string error;
  Result result;

  std::vector<float> operator()(const std::string& fetch, const std::vector<float>& x,
                                const std::vector<float>& y = {}, const std::vector<float>& z = {},
                                uint64_t handle = 7) {
    std::string s = kHead;
    s += ".visible .entry k(.param .u64 pin, .param .u64 pout, .param .u64 ph) {\n"
         ".reg .b64 %in, %out, %h; .reg .b32 %i, %l, %x, %y, %z, %v<4>; .reg .pred %p;\n"
         "mov.u32 %i, %tid.x; mov.u32 %l, 1;\n"
         "ld.param.u64 %in, [pin]; ld.param.u64 %out, [pout]; ld.param.u64 %h, [ph];\n"
         "mad.wide.u32 %in, %i, 12, %in; mad.wide.u32 %out, %i, 16, %out;\n"
         "ld.global.b32 %x, [%in]; ld.global.b32 %y, [%in+4]; ld.global.b32 %z, [%in+8];\n"
         "mov.b32 %v0, 0; mov.b32 %v1, 0; mov.b32 %v2, 0; mov.b32 %v3, 0;\n";
    s += fetch + "\nst.global.v4.b32 [%out], {%v0, %v1, %v2, %v3}; ret; }\n";
    Gpu gpu(1 << 20);
    if (!gpu.load(s)) {
      error = gpu.error;
      return {};
    }
    std::vector<float> in;
    for (size_t k = 0; k < x.size(); ++k)
      for (auto* v : {&x, &y, &z}) in.push_back(v->empty() ? 0.0f : (*v)[k]);
    const uint64_t out = gpu.zeros(x.size() * 16);
    Launch l = gpu.prepare("k", 1, (uint32_t)x.size(), {gpu.array(in), out, handle});
    l.textures = &textures;
    result = run(pool(), l);
    error = result.text;
    return gpu.read<float>(out, x.size() * 4);
  }
};

std::vector<float> ramp(size_t n) {
  std::vector<float> v(n);
  for (size_t k = 0; k < n; ++k) v[k] = (float)(k * k % 97) + 0.25f;
  return v;
}

int place(int i, int n, AddressMode mode) {
  switch (mode) {
    case AddressMode::kWrap:
      return ((i % n) + n) % n;
    case AddressMode::kMirror: {
      int m = ((i % (2 * n)) + 2 * n) % (2 * n);
      return m < n ? m : 2 * n - 1 - m;
    }
    case AddressMode::kClamp:
      return i < 0 ? 0 : i >= n ? n - 1 : i;
    case AddressMode::kBorder:
      return i < 0 || i >= n ? -1 : i;
  }
  return -1;
}

const char* kFetch2D = "tex.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x, %y}];";

}  // namespace

// References are variables of the module, and their addresses are handles.
TEST_CASE("a reference is found by its name and its sampler says how to read", "[textures]") {
  class Reference : public OneTexture {
   public:
    const Texture* texture(uint64_t at) override { return at == address ? &object : nullptr; }
    uint64_t address = 0;
  } textures;
  textures.fill(TextureKind::k1D, ChannelKind::kFloat, 1, 4, 1, 1,
                std::vector<float>{10, 20, 30, 40});
  textures.object.normalized = true;
  const std::string text =
      ".version 8.7\n.target sm_90, texmode_independent\n.address_size 64\n"
      ".global .texref t;\n"
      ".global .samplerref near = { addr_mode_0 = clamp_to_edge, filter_mode = nearest,\n"
      "  force_unnormalized_coords = 1 };\n"
      ".global .samplerref wide = { addr_mode_0 = wrap, filter_mode = linear };\n"
      ".visible .entry k(.param .u64 pout) {\n"
      ".reg .b64 %out, %s; .reg .f32 %v<4>, %x; .reg .b32 %q; ld.param.u64 %out, [pout];\n"
      "mov.f32 %x, 0f40000000; tex.1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [t, near, {%x}];\n"
      "st.global.f32 [%out], %v0;\n"  // 2: the third texel
      "mov.f32 %x, 0f3F800000; tex.1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [t, wide, {%x}];\n"
      "st.global.f32 [%out+4], %v0;\n"  // 1: between the last and the first
      "mov.u64 %s, near; mov.f32 %x, 0f40800000;\n"
      "tex.1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [t, %s, %x]; st.global.f32 [%out+8], %v0;\n"
      "txq.width.b32 %q, [t]; st.global.b32 [%out+12], %q;\n"
      "txq.filter_mode.b32 %q, [wide]; st.global.b32 [%out+16], %q;\n"
      "txq.addr_mode_0.b32 %q, [near]; st.global.b32 [%out+20], %q; ret; }\n";
  Gpu gpu(1 << 20);
  INFO(gpu.error);
  REQUIRE(gpu.load(text));
  for (uint32_t k = 0; k < variable_count(gpu.module_); ++k)
    CHECK(
        variable(gpu.module_, k)->opaque ==
        (std::string("t") == variable(gpu.module_, k)->name ? Opaque::kTexture : Opaque::kSampler));
  bind(gpu.module_, 0, kBase + (1 << 19));
  finish(gpu.module_, 0x123400000000ull, gpu.memory_);
  textures.address = kBase + (1 << 19);
  const uint64_t out = gpu.zeros(64);
  Launch l = gpu.prepare("k", 1, 1, {out});
  l.textures = &textures;
  const Result r = run(pool(), l);
  CHECK(std::string(r.text) == "");
  const auto got = gpu.read<float>(out, 3);
  CHECK(got[0] == 30);
  CHECK(got[1] == 25);
  CHECK(got[2] == 40);
  const auto said = gpu.read<uint32_t>(out + 12, 3);
  CHECK(said[0] == 4);
  CHECK(said[1] == (uint32_t)Filter::kLinear);
  CHECK(said[2] == (uint32_t)AddressMode::kClamp);
}

TEST_CASE("declarations of references that mean nothing are errors", "[textures]") {
  for (const char* bad :
       {".global .texref t[4];", ".global .texref t = { addr_mode_0 = sideways };",
        ".global .texref t = { filter_mode };", ".const .texref t;"}) {
    Gpu gpu(1 << 20);
    INFO(bad);
    CHECK(!gpu.load(std::string(kHead) + bad + "\n.visible .entry k() { ret; }\n"));
  }
}

TEST_CASE("a point fetch honours every address mode", "[textures]") {
  Fetch f;
  const auto texels = ramp(5 * 3);
  f.textures.fill(TextureKind::k2D, ChannelKind::kFloat, 1, 5, 3, 1, texels);
  f.textures.object.normalized = true;
  f.textures.object.border[0] = 42;
  for (AddressMode mode :
       {AddressMode::kWrap, AddressMode::kClamp, AddressMode::kMirror, AddressMode::kBorder}) {
    for (AddressMode& a : f.textures.object.address) a = mode;
    std::vector<float> x, y;
    for (int k = 0; k < 64; ++k) {
      x.push_back((float)(k - 30) * 0.0715f);
      y.push_back((float)(k - 20) * 0.113f);
    }
    const auto got = f(kFetch2D, x, y);
    REQUIRE(f.error == "");
    for (size_t k = 0; k < x.size(); ++k) {
      const int i = place((int)std::floor((double)x[k] * 5), 5, mode),
                j = place((int)std::floor((double)y[k] * 3), 3, mode);
      const float want = i < 0 || j < 0 ? 42 : texels[(size_t)(j * 5 + i)];
      INFO("mode " << (int)mode << " at " << x[k] << ", " << y[k]);
      CHECK(got[k * 4] == want);
      if (i >= 0 && j >= 0) {
        CHECK(got[k * 4 + 1] == 0);
        CHECK(got[k * 4 + 3] == 1);
      }
    }
  }
}

TEST_CASE("a linear fetch weighs with 8 bits of fraction", "[textures]") {
  Fetch f;
  const auto texels = ramp(7 * 4);
  f.textures.fill(TextureKind::k2D, ChannelKind::kFloat, 1, 7, 4, 1, texels);
  f.textures.object.filter = Filter::kLinear;
  for (AddressMode& a : f.textures.object.address) a = AddressMode::kClamp;
  std::vector<float> x, y;
  for (int k = 0; k < 96; ++k) {
    x.push_back((float)k * 0.0917f - 0.8f);
    y.push_back((float)k * 0.0511f - 0.4f);
  }
  const auto got = f(kFetch2D, x, y);
  REQUIRE(f.error == "");
  for (size_t k = 0; k < x.size(); ++k) {
    const double u = (double)x[k] - 0.5, v = (double)y[k] - 0.5;
    const double a = std::floor((u - std::floor(u)) * 256 + 0.5) / 256,
                 b = std::floor((v - std::floor(v)) * 256 + 0.5) / 256;
    auto at = [&](int dx, int dy) {
      return (double)texels[(size_t)(place((int)std::floor(v) + dy, 4, AddressMode::kClamp) * 7 +
                                     place((int)std::floor(u) + dx, 7, AddressMode::kClamp))];
    };
    const double want = (1 - a) * (1 - b) * at(0, 0) + a * (1 - b) * at(1, 0) +
                        (1 - a) * b * at(0, 1) + a * b * at(1, 1);
    CHECK(got[k * 4] == Approx(want).epsilon(1e-7));
  }
}

TEST_CASE("integer texels come as integers or as fractions", "[textures]") {
  Fetch f;
  f.textures.fill<uint8_t>(TextureKind::k1D, ChannelKind::kUnsigned, 4, 2, 1, 1,
                           {0, 51, 255, 128, 1, 2, 3, 4});
  auto got = f("tex.1d.v4.u32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x}];", {0.5f, 1.5f});
  REQUIRE(f.error == "");
  CHECK(bits(got[1]) == 51);
  CHECK(bits(got[7]) == 4);
  f.textures.object.read_normalized = true;
  got = f("tex.1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x}];", {0.5f});
  CHECK(got[1] == 0.2f);
  CHECK(got[2] == 1.0f);
  f.textures.fill<int16_t>(TextureKind::k1D, ChannelKind::kSigned, 2, 1, 1, 1, {-32768, 16384});
  got = f("tex.1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x}];", {0.5f});
  CHECK(got[0] == -1.0f);
  CHECK(got[1] == 16384.0f / 32767.0f);
}

TEST_CASE("linear memory is fetched by integers and ends in zeros", "[textures]") {
  Fetch f;
  const auto texels = ramp(8);
  f.textures.fill(TextureKind::kLinear, ChannelKind::kFloat, 1, 8, 1, 1, texels);
  const auto got = f("cvt.rzi.s32.f32 %x, %x; tex.1d.v4.f32.s32 {%v0, %v1, %v2, %v3}, [%h, {%x}];",
                     {3, 7, 8, -1});
  REQUIRE(f.error == "");
  CHECK(got[0] == texels[3]);
  CHECK(got[4] == texels[7]);
  CHECK(got[8] == 0);
  CHECK(got[12] == 0);
}

TEST_CASE("layers, volumes, cubes, levels and gathers find their texels", "[textures]") {
  Fetch f;
  const auto texels = ramp(4 * 4 * 6);
  for (AddressMode& a : f.textures.object.address) a = AddressMode::kClamp;
  f.textures.fill(TextureKind::k2DLayered, ChannelKind::kFloat, 1, 4, 4, 6, texels);
  auto got = f("tex.a2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%l, %x, %y, %y}];", {2}, {3});
  CHECK(got[0] == texels[16 + 3 * 4 + 2]);
  f.textures.fill(TextureKind::k3D, ChannelKind::kFloat, 1, 4, 4, 6, texels);
  got = f("tex.3d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x, %y, %z, %z}];", {1}, {2}, {5});
  CHECK(got[0] == texels[5 * 16 + 2 * 4 + 1]);
  f.textures.fill(TextureKind::kCube, ChannelKind::kFloat, 1, 4, 4, 6, texels);
  f.textures.object.normalized = true;
  got = f("tex.cube.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x, %y, %z, %z}];",
          {1, -1, 0, 0, 0.1f, 0}, {0, 0, 1, -1, 0, 0}, {0.1f, 0, 0, 0, 1, -1});
  for (size_t face = 0; face < 6; ++face) {
    INFO("face " << face);
    bool found = false;
    for (size_t k = 0; k < 16; ++k) found |= got[face * 4] == texels[face * 16 + k];
    CHECK(found);
  }
  f.textures.object.normalized = false;
  f.textures.fill(TextureKind::k2D, ChannelKind::kFloat, 1, 4, 4, 1, texels);
  got = f("tld4.r.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x, %y}];", {2}, {2});
  CHECK(got[0] == texels[2 * 4 + 1]);
  CHECK(got[1] == texels[2 * 4 + 2]);
  CHECK(got[2] == texels[1 * 4 + 2]);
  CHECK(got[3] == texels[1 * 4 + 1]);
  f.textures.object.normalized = true;
  f.textures.fill(TextureKind::k2D, ChannelKind::kFloat, 1, 2, 2, 1, std::vector<float>(4, 9.0f),
                  1);
  f.textures.object.mipmap_max = 1;
  got = f("tex.level.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x, %y}], %z;", {0.1f, 0.1f},
          {0.1f, 0.1f}, {0, 1});
  CHECK(got[0] == texels[0]);
  CHECK(got[4] == 9.0f);
  f.textures.object.mipmap_filter = Filter::kLinear;
  got = f("tex.level.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x, %y}], %z;", {0.1f}, {0.1f},
          {0.25f});
  CHECK(got[0] == Approx(0.75 * (double)texels[0] + 0.25 * 9));
}

TEST_CASE("queries say what an object is", "[textures]") {
  Fetch f;
  f.textures.fill(TextureKind::k2D, ChannelKind::kFloat, 1, 5, 3, 1, ramp(15));
  auto got = f("txq.width.b32 %v0, [%h]; txq.height.b32 %v1, [%h];", {0});
  CHECK(bits(got[0]) == 5);
  CHECK(bits(got[1]) == 3);
  got = f("suq.height.b32 %v0, [%h];", {0}, {}, {}, 8);
  CHECK(bits(got[0]) == 3);
}

TEST_CASE("surfaces are read and written by bytes; outside is zero, clamped or an error",
          "[textures]") {
  Fetch f;
  const auto texels = ramp(4 * 2);
  f.textures.fill(TextureKind::k2D, ChannelKind::kFloat, 1, 4, 2, 1, texels);
  const std::string whole = "cvt.rzi.s32.f32 %x, %x; cvt.rzi.s32.f32 %y, %y; ";
  auto got = f(whole +
                   "suld.b.2d.b32.zero {%v0}, [%h, {%x, %y}];"
                   "suld.b.2d.b32.clamp {%v1}, [%h, {%x, %y}];",
               {4, 16, -4, 0}, {1, 0, 0, 2}, {}, 8);
  REQUIRE(f.error == "");
  CHECK(got[0] == texels[5]);
  CHECK(got[4] == 0);
  CHECK(got[5] == texels[3]);
  CHECK(got[9] == texels[0]);
  CHECK(got[13] == texels[4]);
  got = f(whole +
              "sust.b.2d.v2.b32.trap [%h, {%x, %y}], {%z, %z};"
              "suld.b.2d.v2.b32.trap {%v0, %v1}, [%h, {%x, %y}];",
          {8}, {1}, {3.5f}, 8);
  CHECK(got[0] == 3.5f);
  CHECK(got[1] == 3.5f);
  f(whole + "suld.b.2d.b32.trap {%v0}, [%h, {%x, %y}];", {16}, {0}, {}, 8);
  CHECK(f.result.outcome == Outcome::kTrap);
  f(whole + "suld.b.2d.b32.trap {%v0}, [%h, {%x, %y}];", {2}, {0}, {}, 8);
  CHECK(f.result.outcome == Outcome::kMisaligned);
  f.textures.fill<uint32_t>(TextureKind::k1D, ChannelKind::kUnsigned, 1, 4, 1, 1, {1, 2, 3, 4});
  got =
      f("mov.b32 %x, 4; mov.b32 %y, 10; sured.b.add.1d.u32.trap [%h, {%x}], %y;"
        "suld.b.1d.b32.trap {%v0}, [%h, {%x}];",
        {0}, {}, {}, 8);
  CHECK(bits(got[0]) == 12);
}

TEST_CASE("formatted stores and reductions count texels and convert", "[textures]") {
  Fetch f;
  auto fill = [&](const auto& texels, ChannelKind kind, unsigned channels) {
    f.textures.fill(TextureKind::k1D, kind, channels, (uint32_t)texels.size() / channels, 1, 1,
                    texels);
  };
  const std::vector<float> first{0};
  // 300 and -5 into unsigned bytes, two channels of the three that are given.
  fill(std::vector<uint8_t>(8, 9), ChannelKind::kUnsigned, 2);
  f("cvt.rzi.u32.f32 %l, %x; mov.u32 %v0, 300; mov.u32 %v1, 7; add.u32 %l, %l, 1;"
    "sust.p.1d.v4.b32.trap [%h, {%l}], {%v0, %v1, %v0, %v0};",
    first, {}, {}, 8);
  REQUIRE(f.error == "");
  CHECK(f.textures.bytes[0][2] == 255);
  CHECK(f.textures.bytes[0][3] == 7);
  CHECK(f.textures.bytes[0][1] == 9);
  CHECK(f.textures.bytes[0][4] == 9);
  // -200 into signed bytes, 1.5 into halves.
  fill(std::vector<int8_t>(4, 1), ChannelKind::kSigned, 1);
  f("mov.u32 %v0, -200; mov.u32 %l, 2; sust.p.1d.b32.trap [%h, {%l}], %v0;", first, {}, {}, 8);
  CHECK((int8_t)f.textures.bytes[0][2] == -128);
  fill(std::vector<uint16_t>(4), ChannelKind::kFloat, 1);
  f("mov.u32 %v0, 0x3fc00000; mov.u32 %l, 3; sust.p.1d.f32.zero [%h, {%l}], %v0;"
    "mov.u32 %l, 4; sust.p.1d.f32.zero [%h, {%l}], %v0;",
    first, {}, {}, 8);
  REQUIRE(f.error == "");
  CHECK(f.textures.bytes[0][6] == 0);
  CHECK(f.textures.bytes[0][7] == 0x3e);
  // The format says whether a minimum is one of signed numbers.
  for (const ChannelKind kind : {ChannelKind::kSigned, ChannelKind::kUnsigned}) {
    fill(std::vector<int32_t>{5, 5, 5}, kind, 1);
    f("mov.u32 %v0, -3; mov.u32 %l, 1; sured.p.min.1d.b32.trap [%h, {%l}], %v0;", first, {}, {}, 8);
    REQUIRE(f.error == "");
    int32_t got;
    memcpy(&got, &f.textures.bytes[0][4], 4);
    CHECK(got == (kind == ChannelKind::kSigned ? -3 : 5));
  }
  fill(std::vector<uint8_t>(4), ChannelKind::kUnsigned, 1);
  f("mov.u32 %v0, 1; mov.u32 %l, 1; sured.p.add.1d.b32.trap [%h, {%l}], %v0;", first, {}, {}, 8);
  CHECK(f.result.outcome == Outcome::kIllegalAddress);
}

TEST_CASE("a handle that is nothing, or another kind, ends the launch", "[textures]") {
  Fetch f;
  f.textures.fill(TextureKind::k1D, ChannelKind::kFloat, 1, 8, 1, 1, ramp(8));
  f(kFetch2D, {0.5f}, {0.5f});
  CHECK(f.result.outcome == Outcome::kIllegalAddress);
  f("tex.1d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x}];", {0.5f}, {}, {}, 99);
  CHECK(f.result.outcome == Outcome::kIllegalAddress);
  CHECK_THAT(f.error, contains("texture"));
}
