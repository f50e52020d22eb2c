// Broken PTX gives an error and nothing else: every truncation of a module and thousands of random
// edits.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include "tests/catch.h"

#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

const char* kModule = R"(
.version 8.7
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 8 .u64 table[2] = {generic(numbers), f}; /* late */
.global .align 4 .u32 numbers[4] = {1, 0x2, 03, 0b100U};
.const .f64 pi = 0d400921FB54442D18;
.extern .shared .align 16 .b8 dynamic[];
.func (.param .align 8 .b8 r[16]) f(.param .b32 x)
{
  .reg .b32 %r<5>; .reg .b64 %rd<3>;
  ld.param.b32 %r1, [x];
  cvt.u64.u32 %rd1, %r1;
  st.param.v2.b64 [r+0], {%rd1, %rd1};
  ret;
}
.visible .entry k(.param .u64 .ptr .global .align 4 out, .param .align 4 .b8 s[12])
.maxntid 128, 1, 1
.minnctapersm 2
{
  .local .align 8 .b8 depot[32];
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .f32 %f<6>; .reg .b16 %h<4>;
  .loc 1 2 3
  ld.param.u64 %rd1, [out];
  ld.param.v2.u32 {%r1, %r2}, [s+4];
  mov.u32 %r3, %tid.x;
  setp.lt.u32 %p1|%p2, %r3, %r1;
  @%p1 bra A;
  @!%p2 bra.uni B;
A:
  { // callseq
  .reg .b32 temp;
  .param .b32 p0; st.param.b32 [p0+0], %r3;
  .param .align 8 .b8 q0[16];
  call.uni (q0), f, (p0);
  ld.param.v2.b64 {%rd2, %rd3}, [q0+0];
  }
  cvt.u32.u64 %r4, %rd2;
  mad.lo.s32 %r5, %r4, %r3, -7;
  fma.rn.f32 %f1, 0f3F800000, %f2, 0f40000000;
  shfl.sync.down.b32 %r6|%p3, %r5, 1, 31, -1;
  atom.global.add.u32 %r7, [%rd1], 1;
  prmt.b32 %r8, %r7, %r6, 0x5410;
  targets: .branchtargets A, B;
  and.b32 %r9, %r8, 1;
  st.local.u32 [depot+4], %r9;
B:
  bar.sync 0;
  mov.u32 %r10, dynamic;
  ld.shared.u8 %h1, [%r10];
  ld.const.u64 %rd4, [pi];
  mad.wide.u32 %rd5, %r3, 4, %rd1;
  st.global.u32 [%rd5], %r8;
  ret;
}
.section .debug_str { .b8 1, 2; }
)";

// A damaged kernel may loop for ever: whatever runs is cancelled every few milliseconds.
std::atomic<bool> cancel{false};
struct Watch {
  std::atomic<bool> stop{false};
  std::thread thread{[this] {
    while (!stop) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      cancel = true;
    }
  }};
  ~Watch() {
    stop = true;
    thread.join();
  }
};

// Compiles, and runs what still compiles: in any outcome, without a crash and in bounded time.
void feed(const std::string& text) {
  Gpu gpu(1 << 16);
  if (!gpu.load(text)) {
    CHECK_FALSE(gpu.error.empty());
    return;
  }
  if (kernel_count(gpu.module_) == 0) return;
  struct Small {
    uint32_t v[3];
  };
  static Watch watch;
  Launch l = gpu.prepare(kernel(gpu.module_, 0)->name, 1, 32, {gpu.zeros(256), Small{{1, 2, 3}}});
  l.dynamic_shared_bytes = 64;
  l.cancel = &cancel;
  cancel = false;
  run(pool(), l);
}

}  // namespace

TEST_CASE("the module as it stands", "[robust]") {
  Gpu gpu(1 << 16);
  CHECK(gpu.load(kModule));
  CHECK(gpu.error == "");
}

TEST_CASE("every truncation", "[robust]") {
  const std::string text = kModule;
  for (size_t n = 0; n < text.size(); n += 3) feed(text.substr(0, n));
}

TEST_CASE("random edits", "[robust]") {
  const std::string text = kModule;
  std::mt19937 random(42);
  static const char kAlphabet[] = "{}[]();,:.%@!|-+<>=\"/*_0123456789abcfrxABZ \n\0\xff";
  for (int round = 0; round < 3000; ++round) {
    std::string s = text;
    for (int edits = 1 + (int)(random() % 3); edits > 0; --edits) {
      size_t at = random() % s.size();
      switch (random() % 4) {
        case 0:
          s[at] = kAlphabet[random() % (sizeof kAlphabet - 1)];
          break;
        case 1:
          s.erase(at, 1 + random() % 12);
          break;
        case 2:
          s.insert(at, 1, kAlphabet[random() % (sizeof kAlphabet - 1)]);
          break;
        default: {  // a piece from elsewhere
          size_t from = random() % s.size();
          s.insert(at, s.substr(from, 1 + random() % 30));
          break;
        }
      }
      if (s.empty()) s = " ";
    }
    feed(s);
  }
}

TEST_CASE("lines moved, doubled, lost, and numbers changed", "[robust]") {
  std::vector<std::string> lines;
  std::stringstream in(kModule);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> now = lines;
    for (int edits = 1 + (int)(random() % 2); edits > 0; --edits) {
      size_t from = 22 + random() % (now.size() - 26), to = 22 + random() % (now.size() - 26);
      switch (random() % 4) {
        case 0:
          std::swap(now[from], now[to]);
          break;
        case 1:
          now.insert(now.begin() + (long)to, now[from]);
          break;
        case 2:
          now.erase(now.begin() + (long)from);
          break;
        default:
          for (char& c : now[from])
            if (c >= '0' && c <= '9' && random() % 4 == 0) c = (char)('0' + random() % 10);
      }
    }
    std::string s;
    for (const std::string& line : now) s += line + "\n";
    feed(s);
  }
}

TEST_CASE("noise", "[robust]") {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::string s(random() % 300, ' ');
    for (char& c : s) c = (char)random();
    feed(s);
    feed(std::string(kHead) + s);
  }
}

TEST_CASE("deep nesting and huge numbers", "[robust]") {
  feed(std::string(kHead) + ".entry k() {" + std::string(100000, '{'));
  feed(std::string(kHead) + ".global .b8 x[" + std::string(10000, '9') + "];");
  feed(std::string(kHead) + ".global .b64 x[1000000000000];");
  feed(std::string(kHead) + ".global .u32 x = " + std::string(50000, '{'));
  feed(std::string(kHead) + ".entry k() { .reg .b32 %r<4294967295>; }");
  feed(std::string(kHead) +
       ".entry k() { .local .b8 x[99999999999]; .reg .b64 %l; mov.u64 %l, x; ret; }");
  feed(std::string(kHead) +
       ".entry k() { .shared .b8 x[4000000000]; .reg .b32 %l; mov.u32 %l, x; ret; }");
  std::string many = std::string(kHead) + ".entry k() { .reg .b32 %r<10>; ";
  for (int i = 0; i < 100000; ++i) many += "bad;";
  feed(many + "}");
}
