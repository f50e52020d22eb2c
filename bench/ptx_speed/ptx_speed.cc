// How fast the PTX engine runs: a table of lane-instructions per second, on one core and on all,
// beside a plain C++ loop that does the same work on one core (-O2) in the same run; and what a
// launch costs. ptx_speed KERNELS.ptx
//
// A lane-instruction is one PTX instruction done for one thread. They are counted from the text:
// the instructions of the loop that each kernel consists of, times its iterations.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>

#include "plain.h"
#include "ptx/tests/harness.h"

using namespace simgpu::ptx;
using namespace simgpu::ptx::testing;

namespace {

double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
// The best of five: the machine has other things to do. What uses one core is measured in processor
// time for the same reason.
double timed(clockid_t clock, const std::function<void()>& f) {
  double best = 1e9;
  for (int k = 0; k < 5; ++k) {
    const double begin = seconds(clock);
    f();
    best = std::min(best, seconds(clock) - begin);
  }
  return best;
}
constexpr clockid_t kWall = CLOCK_MONOTONIC, kCpu = CLOCK_PROCESS_CPUTIME_ID;

// Instructions between the target of the kernel's last backward branch and that branch.
unsigned loop_length(const std::string& text, const std::string& kernel) {
  size_t at = text.find(".entry " + kernel + "(");
  if (at == std::string::npos) return 0;
  std::istringstream lines(text.substr(at, text.find("\n}", at) - at));
  std::vector<std::pair<std::string, unsigned>> labels;
  unsigned count = 0, length = 0;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.empty() || line[0] == '.' || line[0] == '/' || line[0] == '{' || line[0] == '(' ||
        line[0] == ')')
      continue;
    if (line[0] == '$' && line.back() == ':') {
      labels.emplace_back(line.substr(0, line.size() - 1), count);
      continue;
    }
    ++count;
    const size_t bra = line.find("bra");
    if (bra == std::string::npos) continue;
    for (auto& [name, where] : labels)
      if (line.find(name + ";") != std::string::npos) length = std::max(length, count - where);
  }
  return length;
}

struct Row {
  const char* name;
  uint32_t grid, block;
  std::vector<Arg> args;
  double iterations;  // of the loop, over all threads; 0: count nothing
  std::function<void()> plain;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: ptx_speed KERNELS.ptx\n");
    return 2;
  }
  Gpu gpu(256 << 20);
  if (!gpu.load_file(argv[1])) {
    fprintf(stderr, "%s: %s\n", argv[1], gpu.error.c_str());
    return 1;
  }
  std::ifstream in(argv[1]);
  std::stringstream text;
  text << in.rdbuf();

  const uint32_t n = 1 << 21, threads = 64 * 256, side = 256, stripes = 128, warps = 512;
  std::vector<float> x(n), y(n);
  std::vector<unsigned> words(n);
  for (uint32_t i = 0; i < n; ++i) {
    x[i] = (float)(i % 1000) * 0.001f;
    y[i] = 1.0f;
    words[i] = i * 2654435761u >> 7;
  }
  std::vector<unsigned long long> longs((size_t)warps * stripes * 64);
  for (size_t i = 0; i < longs.size(); ++i) longs[i] = i * 0x9e3779b97f4a7c15ull;
  const uint64_t dx = gpu.array(x), dy = gpu.array(y), dwords = gpu.array(words),
                 dlongs = gpu.array(longs), out = gpu.zeros(n * 8);
  std::vector<unsigned> unsigneds(n);
  std::vector<unsigned long long> sums(warps * 32);
  std::vector<float> floats(n);
  std::vector<unsigned> bins(256);
  float sum = 0;

  const std::vector<Row> rows = {
      {"axpy", 64, 256, {2.0f, dx, dy, n}, n, [&] { plain::axpy(2.0f, &x[0], &y[0], n); }},
      {"hash32",
       64,
       256,
       {out, 128u},
       threads * 128.0,
       [&] { plain::hash32(&unsigneds[0], threads, 128); }},
      {"hash64",
       warps / 8,
       256,
       {dlongs, out, stripes},
       warps * 32.0 * stripes,
       [&] { plain::hash64(&longs[0], &sums[0], warps, stripes); }},
      {"matmul",
       (side / 16) * (side / 16),
       256,
       {dx, dy, out, side},
       side * side * (side / 16.0),
       [&] { plain::matmul(&x[0], &y[0], &floats[0], side); }},
      {"reduce", 64, 256, {dx, out, n}, n, [&] { plain::reduce(&x[0], &sum, n); }},
      {"transcendental",
       64,
       256,
       {out, 32u},
       threads * 32.0,
       [&] { plain::transcendental(&floats[0], threads, 32); }},
      {"atomics", 64, 256, {dwords, out, n}, n, [&] { plain::atomics(&words[0], &bins[0], n); }},
      {"divergent", 64, 256, {out, 4u}, 0, [&] { plain::divergent(&unsigneds[0], threads, 4); }},
  };

  const auto cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
  Pool* one = create_pool(1);
  Pool* all = create_pool(cores);
  printf("%-15s %12s %14s %14s %10s %10s %10s\n", "kernel", "instructions", "G lane-i/s",
         "G lane-i/s", "ms on", "ms plain", "engine /");
  printf("%-15s %12s %14s %11s %2u %10s %10s %10s\n", "", "of its loop", "one core", "cores", cores,
         "one core", "C++ -O2", "plain");
  for (const Row& row : rows) {
    Launch l = gpu.prepare(row.name, row.grid, row.block, row.args);
    auto go = [&](Pool* pool) {
      const Result r = run(pool, l);
      if (r.outcome != Outcome::kDone) fprintf(stderr, "%s: %s\n", row.name, r.text);
    };
    const double single = timed(kCpu, [&] { go(one); }), many = timed(kWall, [&] { go(all); }),
                 loop = timed(kCpu, row.plain);
    const unsigned length = loop_length(text.str(), row.name);
    const double lanes = row.iterations * length * 1e-9;
    if (lanes > 0)
      printf("%-15s %12u %14.3f %14.3f %10.2f %10.2f %10.1f\n", row.name, length, lanes / single,
             lanes / many, single * 1e3, loop * 1e3, single / loop);
    else
      printf("%-15s %12s %14s %14s %10.2f %10.2f %10.1f\n", row.name, "-", "-", "-", single * 1e3,
             loop * 1e3, single / loop);
  }

  printf("\nmicroseconds per launch of a kernel that does nothing\n");
  for (auto [grid, block] : {std::pair{1u, 32u}, {1u, 256u}, {2u, 64u}, {64u, 256u}}) {
    Launch l = gpu.prepare("nothing", grid, block, {uint64_t(0)});
    const int count = 2000;
    const double t = timed(kWall, [&] {
      for (int k = 0; k < count; ++k) run(all, l);
    });
    printf("  %3u blocks of %3u threads: %8.2f\n", grid, block, t / count * 1e6);
  }
  destroy_pool(one);
  destroy_pool(all);
  return 0;
}
