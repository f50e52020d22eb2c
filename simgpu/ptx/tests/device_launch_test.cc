// Kernels that launch kernels: parameters, order, depth, and what cannot be launched.
#include <string>
#include <vector>
#include "tests/catch.h"

#include "snippet.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

// note(log, value) appends value to the log: log[0] is the count. give launches a kernel of that
// shape in a stream; its result is what the launch said.
const char* kText = R"(.version 8.7
.target sm_90
.address_size 64
.extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2(.param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
.extern .func (.param .b32 r) __cudaCDP2LaunchDeviceV2(.param .b64 p, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2GetLastError();
.extern .func (.param .b32 r) __cudaCDP2MemsetAsync_ptsz(.param .b64 p, .param .b32 v, .param .b64 n, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2MemcpyAsync(.param .b64 p, .param .b64 q, .param .b64 n, .param .b32 k, .param .b64 s);
.extern .func (.param .b32 r) __cudaCDP2StreamCreateWithFlags(.param .b64 p, .param .b32 f);
.func (.param .b32 r) give(.param .b64 f, .param .b32 grid, .param .b32 block, .param .b64 log, .param .b32 value, .param .b64 stream) {
  .reg .b64 %f, %p, %log, %s; .reg .b32 %g, %b, %v, %e; .reg .pred %none;
  .param .b64 pf; .param .align 4 .b8 pg[12]; .param .align 4 .b8 pb[12]; .param .b32 ps; .param .b64 pp; .param .b32 pe;
  ld.param.b64 %f, [f]; ld.param.b32 %g, [grid]; ld.param.b32 %b, [block]; ld.param.b64 %log, [log];
  ld.param.b32 %v, [value]; ld.param.b64 %s, [stream];
  st.param.b64 [pf], %f; st.param.b32 [pg], %g; st.param.b32 [pg+4], 1; st.param.b32 [pg+8], 1;
  st.param.b32 [pb], %b; st.param.b32 [pb+4], 1; st.param.b32 [pb+8], 1; st.param.b32 [ps], 0;
  call.uni (pp), __cudaCDP2GetParameterBufferV2, (pf, pg, pb, ps);
  ld.param.b64 %p, [pp]; mov.b32 %e, 0;
  setp.eq.u64 %none, %p, 0; @%none bra FAILED;
  st.u64 [%p], %log; st.u32 [%p+8], %v;
  st.param.b64 [pf], %p; st.param.b64 [pp], %s;
  call.uni (pe), __cudaCDP2LaunchDeviceV2, (pf, pp);
  ld.param.b32 %e, [pe]; st.param.b32 [r], %e; ret;
FAILED:
  call.uni (pe), __cudaCDP2GetLastError, ();
  ld.param.b32 %e, [pe]; st.param.b32 [r], %e; ret;
}
.func write(.param .b64 log, .param .b32 value) {
  .reg .b64 %l; .reg .b32 %n, %v;
  ld.param.b64 %l, [log]; ld.param.b32 %v, [value];
  atom.global.add.u32 %n, [%l], 1; mad.wide.u32 %l, %n, 4, %l; st.global.u32 [%l+4], %v; ret;
}
.visible .entry note(.param .u64 log, .param .u32 value) {
  .reg .b64 %l; .reg .b32 %v; .param .b64 a; .param .b32 b;
  ld.param.u64 %l, [log]; ld.param.u32 %v, [value];
  st.param.b64 [a], %l; st.param.b32 [b], %v; call.uni write, (a, b); ret;
}
)";
// Launches kernel `what` as `grid` blocks of `block` threads, in `stream`, and leaves the answer in
// %e.
std::string give(const std::string& what, const std::string& value, int stream = 0, int grid = 1,
                 int block = 1) {
  return "{ .param .b64 f, l, s; .param .b32 g, b, v, r; .reg .b64 %k;\n"
         "mov.u64 %k, " +
         what + "; st.param.b64 [f], %k; st.param.b32 [g], " + std::to_string(grid) +
         "; st.param.b32 [b], " + std::to_string(block) +
         "; st.param.b64 [l], %l; st.param.b32 [v], " + value + "; st.param.b64 [s], " +
         std::to_string(stream) +
         "; call.uni (r), give, (f, g, b, l, v, s); ld.param.b32 %e, [r]; }\n";
}
std::string kernel(const std::string& name, const std::string& body) {
  return ".visible .entry " + name +
         "(.param .u64 log, .param .u32 value) {\n"
         ".reg .b64 %l, %x; .reg .b32 %v, %w, %e, %t; .reg .pred %p;\n"
         "ld.param.u64 %l, [log]; ld.param.u32 %v, [value];\n" +
         body + "ret; }\n";
}

struct Ran {
  std::string error;
  std::vector<uint32_t> log;
  uint32_t answer = 0;  // what `parent` left behind the log
};
Ran run(const std::string& kernels, uint32_t blocks = 1, uint32_t threads = 1) {
  Gpu gpu(4 << 20);
  if (!gpu.load(kText + kernels)) return {gpu.error, {}, 0};
  const uint64_t log = gpu.zeros(1 << 20);
  const Result r = gpu.run("parent", blocks, threads, {log, uint32_t{7}});
  auto all = gpu.read<uint32_t>(log, 1 << 18);
  return {r.text, {all.begin() + 1, all.begin() + 1 + all[0]}, all.back()};
}
const std::string kAnswer = "st.global.u32 [%l+1048572], %e;\n";
using Log = std::vector<uint32_t>;

}  // namespace

TEST_CASE("what a kernel launches runs after it, in order, what is for the end last", "[launch]") {
  const Ran r = run(kernel("parent", give("note", "1") + give("note", "2", 3) + give("note", "3") +
                                         give("note", "%v", 4) + kAnswer));
  CHECK(r.error == "");
  CHECK(r.log == Log{1, 3, 7, 2});
  CHECK(r.answer == 0);
}

TEST_CASE("kernels that were launched launch others, and are over only with these", "[launch]") {
  const Ran r = run(kernel("middle", "mul.lo.u32 %w, %v, 10;\n" + give("note", "%w") +
                                         "add.u32 %w, %w, 1;\n" + give("note", "%w", 3)) +
                    kernel("parent", give("middle", "1") + give("note", "5") +
                                         give("middle", "2", 3) + give("note", "6")));
  CHECK(r.error == "");
  CHECK(r.log == Log{10, 11, 5, 6, 20, 21});
}

TEST_CASE("a kernel that launches itself at its end goes on for long", "[launch]") {
  const Ran r = run(kernel("parent",
                           ".param .b64 a; .param .b32 b;\n"
                           "st.param.b64 [a], %l; st.param.b32 [b], %v;\n"
                           "call.uni write, (a, b); add.u32 %w, %v, 1;\n"
                           "setp.ge.u32 %p, %w, 5007; @%p ret;\n" +
                               give("parent", "%w", 3)));
  CHECK(r.error == "");
  REQUIRE(r.log.size() == 5000);
  for (uint32_t k = 0; k < 5000; ++k) CHECK(r.log[k] == k + 7);
}

TEST_CASE("each thread of many blocks launches, in the order of the blocks", "[launch]") {
  const Ran r = run(kernel("parent", "mov.u32 %t, %ctaid.x;\n" + give("note", "%t")), 50, 3);
  CHECK(r.error == "");
  REQUIRE(r.log.size() == 150);
  for (uint32_t k = 0; k < 150; ++k) CHECK(r.log[k] == k / 3);
}

TEST_CASE("launched grids have their own size", "[launch]") {
  const Ran r = run(kernel("parent", give("note", "9", 0, 5, 33)));
  CHECK(r.error == "");
  CHECK(r.log == Log(165, 9));
}

TEST_CASE("an error has a name and words in a kernel, too", "[launch]") {
  // Logs the characters of a text, up to its end.
  const std::string tell =
      ".extern .func (.param .b64 t) __cudaCDP2GetErrorString(.param .b32 c);\n"
      ".extern .func (.param .b64 t) __cudaCDP2GetErrorName(.param .b32 c);\n";
  auto text = [&](const std::string& function, int code) {
    const Ran r =
        run(tell + kernel("parent", "{ .param .b32 c; .param .b64 t; st.param.b32 [c], " +
                                        std::to_string(code) +
                                        "; call.uni (t), __cudaCDP2GetError" + function +
                                        ", (c); ld.param.b64 %x, [t]; }\n"
                                        "NEXT: ld.u8 %w, [%x]; setp.eq.u32 %p, %w, 0; @%p ret;\n"
                                        "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %l;\n"
                                        "st.param.b32 [b], %w; call.uni write, (a, b); }\n"
                                        "add.u64 %x, %x, 1; bra NEXT;\n"));
    CHECK(r.error == "");
    return std::string(r.log.begin(), r.log.end());
  };
  CHECK(text("Name", 0) == "cudaSuccess");
  CHECK(text("String", 0) == "no error");
  CHECK(text("Name", 9) == "cudaErrorInvalidConfiguration");
  CHECK(text("String", 9) == "invalid configuration argument");
  CHECK(text("String", 12345) == "unrecognized error code");
}

TEST_CASE("copies and fills keep their place among launches", "[launch]") {
  // The log is cleared between two notes; the second one's value is copied away before the third.
  const Ran r = run(kernel(
      "parent",
      ".param .b64 a, b, c, d; .param .b32 k, e;\n" + give("note", "1") +
          "st.param.b64 [a], %l; st.param.b32 [k], 0; st.param.b64 [c], 8; st.param.b64 [d], 0;\n"
          "call.uni (e), __cudaCDP2MemsetAsync_ptsz, (a, k, c, d);\n" +
          give("note", "2") +
          "add.u64 %x, %l, 1048572; st.param.b64 [a], %x; add.u64 %x, %l, 4;\n"
          "st.param.b64 [b], %x; st.param.b64 [c], 4; st.param.b32 [k], 3; st.param.b64 [d], 0;\n"
          "call.uni (e), __cudaCDP2MemcpyAsync, (a, b, c, k, d);\n" +
          give("note", "3")));
  CHECK(r.error == "");
  CHECK(r.log == Log{2, 3});
  CHECK(r.answer == 2);
}

TEST_CASE("what cannot be launched is an error of the launch", "[launch]") {
  CHECK(run(kernel("parent", give("note", "1", 0, 1, 1025) + kAnswer)).answer == 9);
  CHECK(run(kernel("parent", give("note", "1", 0, 0, 1) + kAnswer)).answer == 9);
  CHECK(run(kernel("parent", give("write", "1") + kAnswer)).answer == 98);
  const Ran twice =
      run(kernel("parent",
                 "{ .param .b64 p, s; .param .b32 r; st.param.b64 [p], %l; st.param.b64 [s], 0;\n"
                 "call.uni (r), __cudaCDP2LaunchDeviceV2, (p, s); ld.param.b32 %e, [r]; }\n" +
                     kAnswer));
  CHECK(twice.answer == 1);
}

TEST_CASE("a launched kernel that fails ends the launch, and nothing follows", "[launch]") {
  const Ran r = run(kernel("bad", "mov.u64 %x, 64; st.global.u32 [%x], %v;\n") +
                    kernel("parent", give("note", "1") + give("bad", "2") + give("note", "3")));
  CHECK(r.error.find("outside") != std::string::npos);
  CHECK(r.log == Log{1});
}
