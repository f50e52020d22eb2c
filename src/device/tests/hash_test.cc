// The kernel names chunks exactly as the host does: whole chunks, short and odd pieces at odd
// addresses, zeros; and it leaves nothing in the context. With an argument, prints its speed beside
// a plain copy's.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "device/base/registry.h"
#include "device/capture/hash.h"
#include "device/tests/check.h"
#include "intercept/generated/real_driver.h"

using namespace gpuckpt;
using namespace gpuckpt::device;

namespace {

const HashKey kKey = {{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 1, 2, 3, 4, 5, 6, 7, 8}};
const HostNames& host() {
  static const HostNames names(kKey);
  return names;
}

struct Piece {
  size_t offset, bytes;
};

void compare(Hasher& hasher, CUdeviceptr memory, const std::vector<uint8_t>& plain,
             const std::vector<Piece>& pieces) {
  uint32_t chunks = 0;
  Region spans = scratch_map(pieces.size() * sizeof(HashSpan));
  auto* span = reinterpret_cast<HashSpan*>(spans.data());
  for (size_t i = 0; i < pieces.size(); ++i) {
    span[i] = {memory + pieces[i].offset, static_cast<uint32_t>(pieces[i].bytes), chunks};
    chunks += static_cast<uint32_t>((pieces[i].bytes + kChunkBytes - 1) / kChunkBytes);
  }
  Region names = scratch_map(chunks * sizeof(ChunkName));
  OK(hasher.hash(spans, static_cast<uint32_t>(pieces.size()), names));
  auto* name = reinterpret_cast<ChunkName*>(names.data());
  for (const Piece& p : pieces)
    for (size_t at = 0; at < p.bytes; at += kChunkBytes) {
      size_t bytes = std::min<size_t>(kChunkBytes, p.bytes - at);
      ChunkName want = host().of(plain.data() + p.offset + at, bytes);
      if (!(*name == want)) {
        fprintf(stderr, "%zu bytes at %zu: %016lx%016lx, not %016lx%016lx\n", bytes, p.offset + at,
                name->word[0], name->word[1], want.word[0], want.word[1]);
        _exit(1);
      }
      ++name;
    }
  scratch_unmap(&spans);
  scratch_unmap(&names);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(Hasher& hasher, CUdeviceptr memory, size_t bytes) {
  Region spans = scratch_map(bytes / (kSpanChunks * kChunkBytes) * sizeof(HashSpan));
  Region names = scratch_map(bytes / kChunkBytes * sizeof(ChunkName));
  auto* span = reinterpret_cast<HashSpan*>(spans.data());
  uint32_t count = 0;
  for (size_t at = 0; at < bytes; at += kSpanChunks * kChunkBytes, ++count)
    span[count] = {memory + at, kSpanChunks * kChunkBytes, count * kSpanChunks};
  auto start = std::chrono::steady_clock::now();
  OK(hasher.hash(spans, count, names));
  double hash = seconds_since(start);
  CUdeviceptr copy;
  OK(real().cuMemAlloc_v2(&copy, bytes));
  start = std::chrono::steady_clock::now();
  OK(real().cuMemcpyDtoD_v2(copy, memory, bytes));
  OK(real().cuCtxSynchronize());
  double plain = seconds_since(start);
  printf("%zu MiB: hash %.1f MB/s, plain copy %.1f MB/s\n", bytes >> 20, bytes / hash / 1e6,
         bytes / plain / 1e6);
  OK(real().cuMemFree_v2(copy));
  scratch_unmap(&spans);
  scratch_unmap(&names);
}

}  // namespace

int main(int argc, char**) {
  CUdevice device;
  CUcontext context;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  const size_t bytes = argc > 1 ? 64 << 20 : 3 << 20;
  std::vector<uint8_t> plain(bytes);
  std::mt19937_64 random(7);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word = random();
    memcpy(&plain[i], &word, 8);
  }
  memset(&plain[20 * kChunkBytes], 0, 2 * kChunkBytes);
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, bytes));
  OK(cuMemcpyHtoD_v2(memory, plain.data(), bytes));
  size_t before, after, total;
  OK(real().cuMemGetInfo_v2(&before, &total));
  {
    Hasher hasher(real_of<CUcontext>(Kind::kContext, handle_bits(context)), &kKey);
    CHECK(hasher.ready());
    if (argc > 1) {
      measure(hasher, memory, bytes);
      measure(hasher, memory, bytes);
    }
    std::vector<Piece> pieces = {{0, 8 * kChunkBytes},
                                 {8 * kChunkBytes, kChunkBytes},
                                 {0, 5 * kChunkBytes + 4096},
                                 {20 * kChunkBytes, 2 * kChunkBytes}};
    compare(hasher, memory, plain, pieces);
    pieces.clear();
    for (size_t length :
         {1, 7, 63, 64, 65, 241, 255, 256, 257, 1023, 1024, 1025, 1088, 2048, 4096, 65535, 65472})
      for (size_t offset : {0, 1, 4, 8, 16, 100}) pieces.push_back({offset, length});
    pieces.push_back({8, kChunkBytes});  // whole, but no loads of 16 bytes
    pieces.push_back({3, kChunkBytes});
    compare(hasher, memory, plain, pieces);
    // More spans than blocks of threads: each takes several.
    pieces.clear();
    for (size_t i = 0; i < 600; ++i) pieces.push_back({i * 512, 512});
    compare(hasher, memory, plain, pieces);
    Hasher without(real_of<CUcontext>(Kind::kContext, handle_bits(context)), nullptr);
    CHECK(!without.ready());
  }
  OK(real().cuMemGetInfo_v2(&after, &total));
  CHECK(before == after + our_bytes(0));  // the kernel stays
  CHECK(Hasher::unload() && !our_bytes(0));
  OK(real().cuMemGetInfo_v2(&after, &total));
  CHECK(before == after && !Hasher::unload());
  std::vector<uint8_t> zeros(kChunkBytes);
  for (uint64_t length : {kChunkBytes, kChunkBytes - 1, uint64_t{700}, uint64_t{4096}, uint64_t{1}})
    CHECK(host().of_zeros(length) == host().of(zeros.data(), length));
  puts("PASS");
  fflush(stdout);
  _exit(0);
}
