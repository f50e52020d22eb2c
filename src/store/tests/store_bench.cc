// Figures of the store: store_bench DIR [GiB [ROUNDS]]. Prints what each step took, and beside it
// what the machine could do at best, in the same run. Not a test: people run it; results are kept
// in bench/results.

#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <xxh_x86dispatch.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "store/format/format.h"
#include "store/format/pack.h"
#include "store/store.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// Of this process: what other programs on the machine take away is not in it.
double cpu() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
void must(const Status& s) {
  if (s.ok()) return;
  fprintf(stderr, "%s\n", s.text().c_str());
  exit(1);
}

// What `dd conv=fsync` does: one file, 1 MiB at a time. MiB/s.
double plain_file(const std::string& path, const std::vector<uint8_t>& memory) {
  double start = now();
  int fd = open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  for (size_t at = 0; at < memory.size(); at += 1 << 20)
    (void)!write(fd, &memory[at], std::min<size_t>(1 << 20, memory.size() - at));
  fsync(fd);
  close(fd);
  double took = now() - start;
  std::filesystem::remove(path);
  return static_cast<double>(memory.size()) / (1 << 20) / took;
}

// What `xxhsum -H2` does with the same files (reads and hashes them, one after the other), and then
// what zstd needs for the frames in them, from memory, one after the other. Seconds.
double hash_and_decompress(const std::string& directory, std::shared_ptr<const Names> names,
                           double* cpu_seconds) {
  *cpu_seconds = 0;
  std::vector<uint8_t> buffer(64 * 1024), plain(kMaxFrameBytes);
  XXH3_state_t* state = XXH3_createState();
  ZSTD_DCtx* zstd = ZSTD_createDCtx();
  double took = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    double start = now(), used = cpu();
    XXH3_128bits_reset(state);
    int fd = open(entry.path().c_str(), O_RDONLY);
    for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;)
      XXH3_128bits_update(state, buffer.data(), static_cast<size_t>(n));
    took += now() - start, *cpu_seconds += cpu() - used;
    std::vector<uint8_t> file(std::filesystem::file_size(entry.path()));
    (void)!pread(fd, file.data(), file.size(), 0);
    close(fd);
    std::unique_ptr<PackReader> pack;
    PackId id{};
    (void)unhex(entry.path().stem(), id.data(), id.size());
    must(PackReader::open(posix_env(), entry.path(), id, nullptr, names, &pack));
    start = now(), used = cpu();
    for (const FrameEntry& f : pack->table().frames) {
      if (f.codec != kCodecZstd) continue;
      const uint8_t* at = &file[f.offset + sizeof(FrameHeader) + 4 * f.chunks];
      (void)ZSTD_decompressDCtx(zstd, plain.data(), plain.size(), at, f.stored_length);
    }
    took += now() - start, *cpu_seconds += cpu() - used;
  }
  ZSTD_freeDCtx(zstd);
  XXH3_freeState(state);
  return took;
}

// Our `verify` beside that, in turns, because the machine is not the same from one second to the
// next: medians.
void bench_verify(Store& store, const char* what, unsigned threads) {
  const std::string packs = store.path() + "/packs";
  VerifyReport report;
  must(store.verify({.full = true}, &report));  // so that all find the files in memory
  double ignored;
  (void)hash_and_decompress(packs, store.names(), &ignored);
  const double mib = static_cast<double>(report.pack_bytes) / (1 << 20);
  std::vector<double> base, one, all, cpu_base, cpu_one;
  for (int round = 0; round < 7; ++round) {
    base.push_back(hash_and_decompress(packs, store.names(), &cpu_base.emplace_back()));
    for (unsigned n : {1u, threads}) {
      double start = now(), used = cpu();
      must(store.verify({.full = true, .threads = n}, &report));
      (n == 1 ? one : all).push_back(now() - start);
      if (n == 1) cpu_one.push_back(cpu() - used);
    }
  }
  auto median = [](std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  for (bool many : {false, true}) {
    double took = median(many ? all : one);
    printf(
        "verify, %-8s %2u thr. %6.0f MiB/s, %s; %.0f %% of XXH3-128 of the files and zstd "
        "(%.0f MiB/s, one thread)\n",
        what, many ? threads : 1u, mib / took, report.ok() ? "whole" : "DAMAGED",
        100 * median(base) / took, mib / median(base));
  }
  printf("verify, %-8s CPU     %6.0f MiB/s, %.0f %% of it (%.0f MiB/s)\n", what,
         mib / median(cpu_one), 100 * median(cpu_base) / median(cpu_one), mib / median(cpu_base));
}

CommitResult take(Store& store, const std::vector<uint8_t>& memory, int level, unsigned threads) {
  std::unique_ptr<SnapshotWriter> writer;
  must(store.begin({.level = level}, &writer));
  std::vector<std::thread> pool;
  std::atomic<uint64_t> next{0};
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (uint64_t at; (at = next.fetch_add(1 << 20)) < memory.size();) {
        must(writer->put(
            0, 0x7f0000000000 + at,
            std::span(memory).subspan(at, std::min<uint64_t>(1 << 20, memory.size() - at))));
      }
    });
  }
  for (auto& thread : pool) thread.join();
  CommitResult result;
  must(writer->commit("{}", &result));
  return result;
}

// A thousand snapshots of a small process.
void many(const std::string& directory, std::vector<uint8_t> memory) {
  std::unique_ptr<Store> store;
  must(Store::open(directory, {.create = true}, &store));
  std::string newest;
  for (int i = 0; i < 1000; ++i) {
    memory[static_cast<size_t>(i) * 4096] ^= 1;
    newest = take(*store, memory, 1, 1).id;
  }
  double start = now();
  std::vector<SnapshotInfo> list;
  must(store->list(&list));
  printf("list of %zu           %8.1f ms\n", list.size(), 1e3 * (now() - start));
  start = now();
  std::unique_ptr<SnapshotReader> reader;
  must(store->open_snapshot(newest, &reader));
  printf("open one of %zu       %8.1f ms\n", list.size(), 1e3 * (now() - start));
  std::filesystem::remove_all(directory);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::string directory = argv[1];
  double gib = argc > 2 ? atof(argv[2]) : 1;
  int rounds = argc > 3 ? atoi(argv[3]) : 20;
  unsigned threads = std::thread::hardware_concurrency();
  std::vector<uint8_t> memory(static_cast<size_t>(gib * (1 << 30)) & ~4095ull);
  std::mt19937_64 random(1);
  for (size_t i = 0; i < memory.size(); i += 8) {
    uint64_t word = random();
    memcpy(&memory[i], &word, 8);
  }
  double mib = static_cast<double>(memory.size()) / (1 << 20);

  // Alternating, because a disk of a virtual machine is not the same from one second to the next.
  std::unique_ptr<Store> store;
  std::vector<double> files, packs;
  double start = 0;
  for (int round = 0; round < 5; ++round) {
    files.push_back(plain_file(directory + "/plain", memory));
    std::filesystem::remove_all(directory + "/store");
    must(Store::open(directory + "/store", {.create = true}, &store));
    start = now();
    take(*store, memory, 0, threads);
    packs.push_back(mib / (now() - start));
  }
  std::sort(files.begin(), files.end());
  std::sort(packs.begin(), packs.end());
  printf("plain file, fsync      %8.0f MiB/s (median of 5)\n", files[2]);
  printf("first snapshot, plain  %8.0f MiB/s, %.0f %% of it\n", packs[2],
         100 * packs[2] / files[2]);
  start = now();
  CommitResult second = take(*store, memory, 0, threads);
  printf("unchanged              %8.0f MiB/s, adds %.3f MiB\n", mib / (now() - start),
         static_cast<double>(second.stored_bytes) / (1 << 20));

  double dirty = 0, stored = 0, worst = 0;
  start = now();
  for (int round = 0; round < rounds; ++round) {
    size_t pages = memory.size() / 4096;
    for (size_t i = 0; i < pages / 100; ++i) {
      uint8_t* page = &memory[random() % pages * 4096];
      for (int k = 0; k < 512; ++k) {
        uint64_t word = random();
        memcpy(page + 8 * k, &word, 8);
      }
    }
    CommitResult r = take(*store, memory, 1, threads);
    dirty += static_cast<double>(r.new_bytes);
    stored += static_cast<double>(r.stored_bytes);
    worst = std::max(worst, static_cast<double>(r.stored_bytes) / static_cast<double>(r.new_bytes));
  }
  printf(
      "%d times 1 %% dirty      %8.0f MiB/s, stored %.3f times the dirty bytes (last ones at worst "
      "%.3f)\n",
      rounds, mib * rounds / (now() - start), stored / dirty, worst);

  bench_verify(*store, "noise", threads);
  std::unique_ptr<SnapshotReader> reader;
  std::string id;
  must(store->resolve("latest", &id));
  start = now();
  must(store->open_snapshot(id, &reader));
  printf("open the newest        %8.1f ms\n", 1e3 * (now() - start));
  start = now();
  must(reader->read_all(0, 0, [](uint64_t, std::span<const uint8_t>) { return true; }));
  printf("read the newest        %8.0f MiB/s\n", mib / (now() - start));
  start = now();
  PruneReport pruned;
  must(store->prune({.keep = 1}, &pruned));
  printf("prune to one           %8.2f s, %.0f MiB freed\n", now() - start,
         static_cast<double>(pruned.bytes_freed) / (1 << 20));
  std::filesystem::remove_all(directory + "/store");
  // Half of it as text is: zstd has something to do.
  for (size_t i = 0; i < memory.size();
       i += i % (2 << 20) == (1 << 20) - 4096 ? (1 << 20) + 4096 : 4096) {
    for (size_t k = 0; k < 4096; k += 8)
      memcpy(&memory[i + k], random() % 4 ? "snapshot" : "restores", 8),
          memory[i + k + random() % 8] = static_cast<uint8_t>(random());
  }
  must(Store::open(directory + "/store", {.create = true}, &store));
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < memory.size() / 409600; ++i) memory[random() % memory.size()] ^= 1;
    take(*store, memory, 1, threads);
  }
  bench_verify(*store, "half text", threads);
  std::filesystem::remove_all(directory + "/store");
  memory.resize(std::min<size_t>(memory.size(), 8 << 20));
  many(directory + "/store", std::move(memory));
  return 0;
}
