// ptx_compile FILE.ptx ...: compiles each file as a device of compute capability 12.0 would, and
// prints what the engine does not support. Used by tests/conformance/corpus/check and to examine a
// text.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "ptx/engine.h"

int main(int argc, char** argv) {
  int bad = 0;
  for (int k = 1; k < argc; ++k) {
    std::ifstream in(argv[k]);
    std::stringstream s;
    s << in.rdbuf();
    const std::string text = s.str();
    char log[1 << 16] = "";
    simgpu::ptx::Module* m = simgpu::ptx::compile(text.data(), text.size(), {120}, log, sizeof log);
    if (!m) {
      printf("%s: refused\n%s\n", argv[k], log);
      ++bad;
      continue;
    }
    printf("%s: %u kernels\n", argv[k], simgpu::ptx::kernel_count(m));
    simgpu::ptx::destroy(m);
  }
  return bad != 0;
}
