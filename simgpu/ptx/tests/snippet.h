// Runs a few lines of PTX on 32 lanes.
#pragma once

#include <initializer_list>

#include "harness.h"

namespace simgpu::ptx::testing {

inline const char* kHead = ".version 8.7\n.target sm_90\n.address_size 64\n";

// Each lane has %a, %b, %c (32 bits), %la, %lb, %lc (64 bits), %ha, %hb, %hc (the low 16 bits of
// %a..); the text leaves its result in %d or, when `wide`, in %ld. %q0..%q7 are predicates,
// %t0..%t15, %lt0..7, %ht0..7, %f0..7, %fd0..7 scratch.
template <class T>
std::vector<T> lanes(const std::string& text, const std::vector<T>& a, const std::vector<T>& b = {},
                     const std::vector<T>& c = {}, std::string* error = nullptr,
                     uint32_t threads = 32) {
  constexpr bool wide = sizeof(T) == 8;
  const std::string size = wide ? "8" : "4", type = wide ? "u64" : "u32", p = wide ? "%l" : "%";
  std::string s = kHead;
  s +=
      ".visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 po) {\n"
      ".reg .b32 %a, %b, %c, %d, %t<16>, %lane; .reg .b64 %la, %lb, %lc, %ld, %lt<8>, %x<8>;\n"
      ".reg .b16 %ha, %hb, %hc, %hd, %ht<8>; .reg .pred %q<8>; .reg .f32 %f<8>; .reg .f64 %fd<8>;\n"
      "mov.u32 %lane, %tid.x; mov.u32 %d, 0; mov.u64 %ld, 0;\n";
  int k = 0;
  for (const char* name : {"a", "b", "c"}) {
    std::string x = "%x" + std::to_string(k++);
    s += std::string("ld.param.u64 ") + x + ", [p" + name + "]; mad.wide.u32 " + x + ", %lane, " +
         size + ", " + x + "; ld.global." + type + " " + p + name + ", [" + x + "];\n";
  }
  if (!wide) s += "cvt.u16.u32 %ha, %a; cvt.u16.u32 %hb, %b; cvt.u16.u32 %hc, %c;\n";
  s += text;
  s += "\nld.param.u64 %x3, [po]; mad.wide.u32 %x3, %lane, " + size + ", %x3; st.global." + type +
       " [%x3], " + p + "d;\nret;\n}\n";
  Gpu gpu(1 << 20);
  if (!gpu.load(s)) {
    if (error) {
      *error = gpu.error;
      return {};
    }
    fprintf(stderr, "%s\n", gpu.error.c_str());
    return {};
  }
  auto fill = [&](std::vector<T> v) {
    std::vector<T> full(threads);
    for (uint32_t l = 0; l < threads; ++l) full[l] = v.empty() ? T(0) : v[l % v.size()];
    return gpu.array(full);
  };
  uint64_t out = gpu.zeros(threads * sizeof(T));
  Result r = gpu.run("k", 1, threads, {fill(a), fill(b), fill(c), out});
  if (error) *error = r.text;
  if (r.outcome != Outcome::kDone) {
    if (!error) fprintf(stderr, "%s\n", r.text);
    return {};
  }
  return gpu.read<T>(out, threads);
}

// One lane.
inline uint32_t one(const std::string& text, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
  auto r = lanes<uint32_t>(text, {a}, {b}, {c});
  return r.empty() ? 0xdeaddead : r[0];
}
inline uint64_t one64(const std::string& text, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  auto r = lanes<uint64_t>(text, {a}, {b}, {c});
  return r.empty() ? 0xdeaddeaddeaddeadull : r[0];
}
inline uint32_t bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
inline uint64_t bits(double f) {
  uint64_t u;
  memcpy(&u, &f, 8);
  return u;
}
inline float real(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline double real(uint64_t u) {
  double f;
  memcpy(&f, &u, 8);
  return f;
}

}  // namespace simgpu::ptx::testing
