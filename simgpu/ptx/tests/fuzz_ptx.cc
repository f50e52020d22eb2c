// Fuzzes everything that the engine parses: PTX text, linking of two texts, fat binaries. The first
// byte of the input chooses. Handlers of lanes are left out (kBackend below), so that the front end
// can be built with sanitizers in seconds.
//
// With clang: -fsanitize=fuzzer (target ptx_fuzzer; `ptx_fuzz_smoke --corpus DIR` writes its
// seeds). Otherwise ptx_fuzz_smoke mutates its own seeds, the same every time.
#include <zstd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "ptx/fatbin.h"
#include "ptx/lower/lower.h"

namespace simgpu::ptx {
namespace base {
static const Ins* nothing(Ctx&, const Ins* i) { return i + 1; }
static Fn any(const Key&) { return nothing; }
extern const Backend kBackend;
const Backend kBackend = {any, any, any, any, nullptr};
}  // namespace base
namespace avx2 {
extern const Backend kBackend;
const Backend kBackend = base::kBackend;
}  // namespace avx2
namespace avx512 {
extern const Backend kBackend;
const Backend kBackend = base::kBackend;
}  // namespace avx512
}  // namespace simgpu::ptx

using namespace simgpu::ptx;

namespace {

void compile_text(const char* text, size_t size) {
  // Just as long as it says: a read beyond the end is found.
  std::vector<char> exact(text, text + size);
  char log[200];
  Module* m = compile(exact.data(), exact.size(), CompileOptions{120}, log, sizeof log);
  if (!m && !memchr(log, 0, sizeof log)) __builtin_trap();
  destroy(m);
}

void link_texts(const char* text, size_t size) {
  const char* bar = static_cast<const char*>(memchr(text, '|', size));
  const size_t first = bar ? (size_t)(bar - text) : size / 2;
  const size_t second = bar ? first + 1 : first;
  std::vector<char> a(text, text + first), b(text + second, text + size);
  const LinkInput inputs[2] = {{a.data(), a.size(), "a"}, {b.data(), b.size(), nullptr}};
  char log[200];
  size_t length = 0;
  char* out = link(inputs, 2, &length, log, sizeof log);
  if (out) compile_text(out, length);
  free(out);
}

void unpack(const uint8_t* data, size_t size) {
  // A container is trusted for its own size: no larger than it is, then.
  if (size < 16) return;
  std::vector<uint8_t> exact(data, data + size);
  // A wrapper is a struct of the program's with a pointer in it, which no parser can check.
  uint32_t magic;
  memcpy(&magic, exact.data(), 4);
  if (magic == 0x466243b1) return;
  uint16_t header;
  memcpy(&header, &exact[6], 2);
  if (header > size) header = 16;
  uint64_t rest = size - header;
  memcpy(&exact[6], &header, 2);
  memcpy(&exact[8], &rest, 8);
  char* text = nullptr;
  size_t length = 0;
  char log[200];
  if (extract_ptx(exact.data(), 120, &text, &length, log, sizeof log) == FatbinResult::kOk)
    compile_text(text, length < 4096 ? length : 4096);
  free(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const char* text = reinterpret_cast<const char*>(data + 1);
  switch (data[0] % 4) {
    case 1:
      link_texts(text, size - 1);
      break;
    case 2:
      unpack(data + 1, size - 1);
      break;
    default:
      compile_text(text, size - 1);
  }
  return 0;
}

#ifndef GPUCKPT_LIBFUZZER

namespace {

const char* const kTexts[] = {
    // No register at all.
    R"(.version 8.7
.target sm_90
.address_size 64
.visible .entry nothing() { ret; })",
    R"(.version 8.7
.target sm_90, texmode_independent
.address_size 64
.global .texref t = { addr_mode_0 = wrap, filter_mode = linear, normalized_coords = 1 };
.global .samplerref s = { addr_mode_0 = clamp_to_edge, force_unnormalized_coords = 1 };
.global .surfref p;
.tex .u32 old;
.visible .entry look(.param .u64 po) { .reg .b32 %v<4>, %x; .reg .f32 %f;
tex.1d.v4.u32.f32 {%v0, %v1, %v2, %v3}, [t, s, {%f}]; txq.width.b32 %x, [t];
sust.b.1d.b32.trap [p, {%x}], %v0; ret; })",
    R"(.version 8.7
.target sm_90
.address_size 64
.visible .entry tiles(.param .align 64 .b8 map[128]) {
.reg .b32 %d<4>, %a<4>, %b<2>, %n; .reg .b64 %m; .reg .b16 %h<2>; .shared .align 128 .b8 box[512];
.shared .align 8 .b64 bar; mov.b64 %m, map; cvta.param.u64 %m, %m; mov.u32 %n, 0; mov.b16 %h0, 1;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [box], [%m, {%n, %n}], [bar];
cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [box], [%m, {%n, %n, %n}], [bar], {%h0};
cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%m, {%n}], [box];
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%a0, %a1, %a2, %a3}, [box];
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%d0, %d1, %d2, %d3};
wmma.load.a.sync.aligned.row.m16n16k16.shared.s8 {%a0, %a1}, [box], %n;
stmatrix.sync.aligned.m8n8.x1.shared.b16 [box], {%d0}; ret; })",
    R"(.version 8.7
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 8 .u64 table[2] = {generic(numbers), f}; /* late */
.global .align 4 .u32 numbers[4] = {1, 0x2, 03, 0b100U};
.const .f64 pi = 0d400921FB54442D18;
.extern .shared .align 16 .b8 dynamic[];
.func (.param .align 8 .b8 r[16]) f(.param .b32 x)
{ .reg .b32 %r<5>; .reg .b64 %rd<3>;
  ld.param.b32 %r1, [x]; cvt.u64.u32 %rd1, %r1; st.param.v2.b64 [r+0], {%rd1, %rd1}; ret; }
.visible .entry k(.param .u64 .ptr .global .align 4 out, .param .align 4 .b8 s[12])
.maxntid 128, 1, 1
{ .local .align 8 .b8 depot[32];
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .f32 %f<6>; .reg .b16 %h<4>;
  .loc 1 2 3
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; setp.lt.s32 %p1|%p2, %r1, 7;
LOOP: add.cc.u32 %r2, %r1, 1; addc.u32 %r3, %r2, 0; @%p1 bra LOOP;
  { .param .b32 a; .param .align 8 .b8 b[16]; st.param.b32 [a], %r1; call.uni (b), f, (a); }
  mov.b64 %rd2, {%r1, %r2}; shfl.sync.bfly.b32 %r4|%p3, %r1, 3, 31, -1; bar.sync 0;
  atom.global.add.u32 %r5, [%rd1+4], 1; ld.global.v4.f32 {%f1, %f2, %f3, _}, [%rd1];
  brx.idx %r1, targets;
targets: .branchtargets LOOP, DONE;
DONE: ret; })",
    R"(.version 8.7
.target sm_90
.address_size 64
.visible .entry t(.param .u64 h) {
  .reg .b64 %h, %t; .reg .b32 %v<4>, %x, %n; .reg .pred %p;
  .shared .align 8 .b64 bar; .shared .align 16 .b8 data[256];
  ld.param.u64 %h, [h];
  tex.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}|%p, [%h, {%x, %x}];
  tex.grad.2d.v4.u32.f32 {%v0, _, %v2, %v3}, [%h, {%x, %x}], {%x, %x}, {%x, %x};
  tld4.g.2d.v4.f32.f32 {%v0, %v1, %v2, %v3}, [%h, {%x, %x}];
  suld.b.a2d.v2.b32.zero {%v0, %v1}, [%h, {%x, %x, %x, %x}]; sust.b.1d.b32.trap [%h, {%x}], %v0;
  txq.width.b32 %v0, [%h];
  mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared::cta.b64 %t, [bar], %n;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%h], %n, [bar];
  mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
  ret; })"};

std::vector<uint8_t> container(const std::string& text, uint64_t flags) {
  std::vector<uint8_t> payload(text.begin(), text.end());
  if (flags == 0x8000) {
    std::vector<uint8_t> packed(ZSTD_compressBound(text.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
    payload = packed;
  } else if (flags == 0x2000) {  // literals alone
    payload.clear();
    payload.push_back(0xf0);
    size_t left = text.size() - 15;
    for (; left >= 255; left -= 255) payload.push_back(255);
    payload.push_back((uint8_t)left);
    payload.insert(payload.end(), text.begin(), text.end());
  }
  std::vector<uint8_t> out(16 + 64 + payload.size());
  auto put = [&](size_t at, auto v) { memcpy(&out[at], &v, sizeof v); };
  put(0, 0xba55ed50u);
  put(4, (uint16_t)1);
  put(6, (uint16_t)16);
  put(8, (uint64_t)(out.size() - 16));
  put(16, (uint16_t)1);
  put(20, 64u);
  put(24, (uint64_t)payload.size());
  put(32, (uint32_t)payload.size());
  put(44, 75u);
  put(56, flags);
  put(72, (uint64_t)text.size());
  memcpy(&out[80], payload.data(), payload.size());
  return out;
}

std::vector<std::vector<uint8_t>> seeds() {
  std::vector<std::vector<uint8_t>> all;
  auto add = [&](uint8_t which, const std::vector<uint8_t>& bytes) {
    std::vector<uint8_t> s{which};
    s.insert(s.end(), bytes.begin(), bytes.end());
    all.push_back(s);
  };
  std::string both;
  for (const char* t : kTexts) {
    const std::string text = t;
    add(0, {text.begin(), text.end()});
    both += (both.empty() ? "" : "|") + text;
    for (uint64_t flags : {0x0, 0x2000, 0x8000}) add(2, container(text, flags));
  }
  add(1, {both.begin(), both.end()});
  return all;
}

void mutate(std::vector<uint8_t>* s, std::mt19937& random) {
  static const char* const kWords[] = {".b128", "<9999999>",  "0xffffffffffffffff",
                                       "{",     "}",          "[",
                                       "]",     ";",          ".v8",
                                       "%p1",   "-1",         ".f16x2",
                                       "bra",   ".param",     ", ",
                                       "call",  "\0",         "/*",
                                       "\"",    "4294967295", ".extern",
                                       "$x",    "|"};
  for (unsigned k = 1 + random() % 4; k > 0; --k) {
    const size_t at = 1 + random() % (s->size() > 1 ? s->size() - 1 : 1);
    if (at >= s->size()) return;
    switch (random() % 6) {
      case 0:
        (*s)[at] = (uint8_t)random();
        break;
      case 1:
        (*s)[at] ^= (uint8_t)(1u << random() % 8);
        break;
      case 2:
        s->resize(at);
        break;
      case 3: {
        const std::string w = kWords[random() % (sizeof kWords / sizeof *kWords)];
        s->insert(s->begin() + (long)at, w.begin(), w.end());
        break;
      }
      case 4:
        s->erase(s->begin() + (long)at,
                 s->begin() + (long)std::min(s->size(), at + 1 + random() % 30));
        break;
      case 5: {
        const std::vector<uint8_t> copy(s->begin() + (long)at,
                                        s->begin() + (long)std::min(s->size(), at + random() % 60));
        const size_t to = 1 + random() % (s->size() - 1);
        s->insert(s->begin() + (long)to, copy.begin(), copy.end());
        break;
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto all = seeds();
  if (argc == 3 && std::string(argv[1]) == "--corpus") {
    for (size_t k = 0; k < all.size(); ++k)
      std::ofstream(std::string(argv[2]) + "/seed" + std::to_string(k))
          .write(reinterpret_cast<const char*>(all[k].data()), (long)all[k].size());
    return 0;
  }
  // The seeds must get through, or their mutations reach nothing.
  for (const char* t : kTexts) {
    char log[500];
    Module* m = compile(t, strlen(t), CompileOptions{120}, log, sizeof log);
    if (!m) {
      fprintf(stderr, "a seed does not compile: %s\n", log);
      return 1;
    }
    destroy(m);
  }
  const int rounds = argc > 1 ? atoi(argv[1]) : 2000;
  std::mt19937 random(7);
  for (int k = 0; k < rounds; ++k) {
    std::vector<uint8_t> s = all[(size_t)k % all.size()];
    mutate(&s, random);
    LLVMFuzzerTestOneInput(s.data(), s.size());
  }
  printf("%d inputs\n", rounds);
  return 0;
}

#endif
