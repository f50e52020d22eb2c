// A cooperative launch: all blocks meet at a grid barrier, several times.
#include <cooperative_groups.h>

#include "conformance.h"

namespace cg = cooperative_groups;

__global__ void rounds(int* a, int* b, int count, int turns) {
  cg::grid_group grid = cg::this_grid();
  for (int turn = 0; turn < turns; ++turn) {
    int i = static_cast<int>(grid.thread_rank());
    b[i] = a[(i + 1) % count] + 1;  // reads what another block wrote in the last turn
    grid.sync();
    a[i] = b[(i + 65) % count];
    grid.sync();
  }
}

int main() {
  constexpr int kBlocks = 4, kThreads = 64, kCount = kBlocks * kThreads;
  int turns = 3, count = kCount;
  std::vector<int> expected(kCount);
  for (int i = 0; i < kCount; ++i) expected[i] = static_cast<int>(scramble(i) % 1000);
  DeviceVector<int> a(expected), b(kCount);
  int *pa = a.get(), *pb = b.get();
  void* arguments[] = {&pa, &pb, &count, &turns};
  CHECK(cudaLaunchCooperativeKernel(rounds, kBlocks, kThreads, arguments, 0, nullptr));
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<int> next(kCount);
    for (int i = 0; i < kCount; ++i) next[i] = expected[(i + 1) % kCount] + 1;
    for (int i = 0; i < kCount; ++i) expected[i] = next[(i + 65) % kCount];
  }
  EXPECT(a.copy() == expected);
  EXPECT_ERROR(cudaLaunchCooperativeKernel(rounds, 1 << 20, kThreads, arguments, 0, nullptr),
               cudaErrorCooperativeLaunchTooLarge);
  return passed();
}
