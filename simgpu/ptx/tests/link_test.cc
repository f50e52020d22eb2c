// Several texts linked to one: private names stay apart, shared names refer to one definition.
#include "tests/catch.h"

#include "harness.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

const std::string kHead75 =
    ".version 8.0\n.target sm_75\n.address_size 64\n// a comment: .func x {\n";

std::string linked(const std::vector<std::string>& texts, std::string* error) {
  std::vector<LinkInput> inputs;
  for (const std::string& t : texts) inputs.push_back({t.data(), t.size(), nullptr});
  char log[512] = "";
  size_t length = 0;
  char* text = link(inputs.data(), inputs.size(), &length, log, sizeof log);
  *error = log;
  std::string out = text ? std::string(text, length) : "";
  free(text);
  return out;
}

std::string function(const std::string& linkage, const std::string& name, int value) {
  return linkage + " .func (.param .b32 r) " + name +
         "() { .reg .b32 %a;\n ld.global.u32 %a, [table];" + "add.u32 %a, %a, " +
         std::to_string(value) + "; st.param.b32 [r], %a; ret; }\n";
}
std::string table(int value) {
  return ".global .align 4 .u32 table[2] = {" + std::to_string(value) + ", 0};\n";
}
std::string kernel(const std::vector<std::string>& calls) {
  std::string s;
  for (const std::string& c : calls) s += ".extern .func (.param .b32 r) " + c + "();\n";
  s += ".visible .entry k(.param .u64 po) { .reg .b32 %a; .reg .b64 %o; ld.param.u64 %o, [po];\n";
  for (size_t k = 0; k < calls.size(); ++k)
    s += "{ .param .b32 v; call.uni (v), " + calls[k] + ", (); ld.param.b32 %a, [v]; }\n" +
         "st.global.u32 [%o+" + std::to_string(4 * k) + "], %a;\n";
  return s + "ret; }\n";
}

}  // namespace

TEST_CASE("private names stay apart and external ones find their definition", "[link]") {
  std::string error;
  const std::string text =
      linked({kHead75 + kernel({"one", "two"}),
              ".version 9.0\n.target sm_90\n.address_size 64\n" + table(100) +
                  function(".visible", "one", 1) + ".section .debug_x { .b8 1 }\n",
              kHead75 + table(200) + function(".visible", "two", 2)},
             &error);
  REQUIRE(error == "");
  CHECK(text.find(".version 9.0\n.target sm_90\n") == 0);
  Gpu gpu(1 << 20);
  const bool loaded = gpu.load(text);
  INFO(gpu.error << text);
  REQUIRE(loaded);
  const uint64_t out = gpu.zeros(8);
  REQUIRE(gpu.run("k", 1, 1, {out}).outcome == Outcome::kDone);
  CHECK(gpu.read<uint32_t>(out, 2) == std::vector<uint32_t>{101, 202});
}

TEST_CASE("of weak definitions one is kept, a strong one wins, two strong ones are an error",
          "[link]") {
  std::string error;
  auto value = [&](const std::string& first, const std::string& second) -> uint32_t {
    const std::string text =
        linked({kHead75 + table(0) + function(first, "f", 1),
                kHead75 + table(0) + function(second, "f", 2), kHead75 + kernel({"f"})},
               &error);
    Gpu gpu(1 << 20);
    if (text.empty() || !gpu.load(text)) return 0;
    const uint64_t out = gpu.zeros(8);
    if (gpu.run("k", 1, 1, {out}).outcome != Outcome::kDone) return 0;
    return gpu.read<uint32_t>(out, 1)[0];
  };
  CHECK(value(".weak", ".weak") == 1);
  CHECK(value(".weak", ".visible") == 2);
  CHECK(value(".visible", ".weak") == 1);
  CHECK(value(".visible", ".visible") == 0);
  CHECK_THAT(error, contains("'f' is defined in"));
}

TEST_CASE("what cannot be linked says so", "[link]") {
  std::string error;
  CHECK(linked({"hello"}, &error).empty());
  CHECK(error != "");
  CHECK(linked({kHead75 + ".visible .entry k() { ret;"}, &error).empty());
  CHECK(linked({}, &error).empty());
  CHECK_FALSE(linked({kHead75 + kernel({"absent"})}, &error).empty());
}
