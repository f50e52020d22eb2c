// Fear: a snapshot that shares layers, or says "as in the parent", is not what was in memory; and
// it costs more than what changed. Plain and encrypted.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "store/format/format.h"
#include "store/store.h"
#include "store/tests/must.h"

using namespace gpuckpt;
using namespace gpuckpt::store;
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<uint8_t>;
// Pieces of memory that are chunks of their own: whole pages, and odd ends in device memory.
struct Piece {
  uint64_t space, address;
  Bytes bytes;
};
using Memory = std::map<std::pair<uint64_t, uint64_t>, Bytes>;

Memory fresh(std::mt19937& dice, uint64_t pages) {
  Memory m;
  for (uint64_t i = 0; i < pages; ++i) {
    Bytes page(4096);
    for (uint8_t& b : page) b = uint8_t(dice());
    if (i % 17 == 0) std::fill(page.begin(), page.end(), uint8_t{0});
    m[{0, 0x10000000 + i * 4096 + (i % 1000 == 0 ? 0 : i / 1000 * 65536)}] = std::move(page);
  }
  for (uint64_t i = 0; i < 8; ++i) {
    Bytes tensor(65536 + (i % 3 == 2 ? 777 : 0));
    for (size_t k = 0; k < tensor.size(); ++k) tensor[k] = uint8_t(k % 2 ? dice() % 5 : dice());
    m[{0x1000000, 0x200000000 + (i << 20)}] = std::move(tensor);
  }
  return m;
}

uint64_t unit_of(uint64_t space) { return space >= 0x1000000 ? kLargeChunk : kSmallChunk; }

std::vector<ChunkName> names_of(const Store& store, uint64_t space, const Bytes& bytes) {
  std::vector<ChunkName> names;
  for (size_t i = 0; i < bytes.size(); i += unit_of(space))
    names.push_back(
        store.names()->plain(&bytes[i], std::min<size_t>(unit_of(space), bytes.size() - i)));
  return names;
}

bool is_zero(const Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

CommitResult take(Store& store, const Memory& memory, const Memory& before,
                  const std::string& parent, bool expect_parent) {
  std::unique_ptr<SnapshotWriter> writer;
  MUST_OK(store.begin({.job = "j", .parent = parent}, &writer));
  MUST((writer->parent() == parent) == expect_parent, "parent \"%s\"", writer->parent().c_str());
  std::set<ChunkName> held;  // what put_named may be called for: the parent's, and what was put
  auto hold = [&](const std::vector<ChunkName>& names, const Bytes& bytes) {
    if (!is_zero(bytes)) held.insert(names.begin(), names.end());
  };
  if (!writer->parent().empty()) {
    for (auto& [at, bytes] : before) hold(names_of(store, at.first, bytes), bytes);
  }
  for (auto& [at, bytes] : memory) {
    auto it = before.find(at);
    if (!writer->parent().empty() && it != before.end() && it->second == bytes) {
      MUST_OK(writer->put_same(at.first, at.second, bytes.size()));
      continue;
    }
    // By name where the store has it, else the bytes with the name they should have.
    std::vector<ChunkName> names = names_of(store, at.first, bytes);
    bool all = std::all_of(names.begin(), names.end(),
                           [&](const ChunkName& name) { return held.contains(name); });
    MUST_OK(all ? writer->put_named(at.first, at.second, bytes.size(), names)
                : writer->put(at.first, at.second, bytes, names));
    hold(names, bytes);
  }
  MUST_OK(writer->append_blob("process", Bytes(1000, 'p')));
  CommitResult result;
  MUST_OK(writer->commit("{}", &result));
  return result;
}

void check(Store& store, const std::string& id, const Memory& memory);

// Bytes sent before the moment of the snapshot: what came last counts, the parent has the rest, and
// what is not named is not in it.
void early(Store& store, const std::string& parent, const Memory& before) {
  constexpr uint64_t kUnit = 4096, kPages = 200, kBase = 1ull << 40;
  std::mt19937_64 dice(11);
  const auto known = std::find_if(before.begin(), before.end(), [&](const auto& entry) {
    return entry.first.first == 0 && !is_zero(entry.second) &&
           before.contains({0, entry.first.second + kUnit});
  });
  MUST(known != before.end(), "nothing to take from the parent");
  std::unique_ptr<SnapshotWriter> writer;
  MUST_OK(store.begin({.job = "j", .parent = parent}, &writer));
  MUST(writer->parent() == parent, "no parent");
  Memory now;
  std::vector<int> byte(kPages, -1);  // what came last
  for (int round = 0; round < 40; ++round) {
    const uint64_t first = dice() % kPages,
                   count = 1 + dice() % std::min<uint64_t>(kPages - first, 60);
    Bytes bytes;
    for (uint64_t i = first; i < first + count; ++i) {
      byte[i] = static_cast<int>(dice() % 5);  // (0: zeros)
      bytes.insert(bytes.end(), kUnit, static_cast<uint8_t>(byte[i]));
    }
    MUST_OK(writer->put_early(0, kBase + first * kUnit, bytes));
  }
  for (uint64_t i = 0; i < kPages;) {
    // Some are new after all, some are gone, and of those that follow each other some are named at
    // once.
    const uint64_t kind = dice() % 4;
    uint64_t count = 1;
    if (byte[i] < 0 || kind == 0) {
      now[{0, kBase + i * kUnit}] = Bytes(kUnit, 9);
      MUST_OK(writer->put(0, kBase + i * kUnit, now[{0, kBase + i * kUnit}]));
    } else if (kind > 1) {
      Bytes bytes;
      while (i + count < kPages && byte[i + count] >= 0 && count < dice() % 40) ++count;
      for (uint64_t k = i; k < i + count; ++k)
        bytes.insert(bytes.end(), kUnit, static_cast<uint8_t>(byte[k]));
      now[{0, kBase + i * kUnit}] = bytes;
      MUST_OK(writer->put_same(0, kBase + i * kUnit, bytes.size()));
    }
    i += count;
  }
  // Of two pages that the parent has the second came early.
  const uint64_t at = known->first.second;
  now[{0, at}] = known->second;
  now[{0, at + kUnit}] = Bytes(kUnit, 7);
  MUST_OK(writer->put_early(0, at + kUnit, now[{0, at + kUnit}]));
  MUST_OK(writer->put_same(0, at, 2 * kUnit));
  CommitResult result;
  MUST_OK(writer->commit("{}", &result));
  check(store, result.id, now);

  MUST_OK(store.begin({.job = "j"}, &writer));
  MUST_OK(writer->put_early(0, kBase, Bytes(kUnit, 1)));
  MUST(!writer->put_same(0, kBase, 2 * kUnit).ok(), "a page that was never sent was accepted");
  MUST_OK(store.begin({.job = "j"}, &writer));
  MUST(!writer->put_early(0, kBase + 1, Bytes(kUnit, 1)).ok(), "a part of a chunk was accepted");
}

void check(Store& store, const std::string& id, const Memory& memory) {
  std::unique_ptr<SnapshotReader> reader;
  MUST_OK(store.open_snapshot(id, &reader));
  uint64_t wanted = 0, found = 0;
  for (auto& [at, bytes] : memory) {
    Bytes got(bytes.size());
    MUST_OK(reader->read(at.first, at.second, got));
    MUST(got == bytes, "%s: bytes at %lx differ", id.c_str(), at.second);
    wanted += bytes.size();
  }
  for (uint64_t space : reader->spaces()) {
    for (const Extent& extent : reader->extents(space)) found += extent.length;
  }
  MUST(wanted == found, "%s holds more or less than it should", id.c_str());
}

void scenario(const std::string& path, const std::string& key) {
  std::mt19937 dice(3);
  std::unique_ptr<Store> store;
  MUST_OK(Store::open(path, {.create = true, .key_file = key}, &store));
  Memory memory = fresh(dice, 6000), before;
  std::map<std::string, Memory> taken;
  std::string parent;
  uint64_t dirtied = 0, stored = 0;
  for (int round = 0; round < 40; ++round) {
    CommitResult r = take(*store, memory, before, round % 5 == 4 ? "" : parent, true);
    if (round > 0) stored += r.stored_bytes;
    if (round % 20 == 0 || round == 39) taken[r.id] = memory;
    parent = r.id;
    before = memory;
    if (round == 39) break;
    for (int i = 0; i < 300; ++i) {
      auto it = std::next(memory.begin(), static_cast<ptrdiff_t>(dice() % memory.size()));
      if (it->first.first != 0) continue;
      for (uint8_t& b : it->second) b = uint8_t(dice());
    }
    if (round == 20) {  // a mapping goes, another comes
      memory.erase(memory.begin(), std::next(memory.begin(), 500));
      for (uint64_t i = 0; i < 50; ++i) memory[{0, 0x900000000 + i * 8192}] = Bytes(4096, 7);
    }
    for (auto& [at, bytes] : memory) {
      auto it = before.find(at);
      if (it == before.end() || it->second != bytes) dirtied += bytes.size();
    }
  }
  double times = static_cast<double>(stored) / static_cast<double>(dirtied);
  MUST(times < 1.05, "stored %.3f times the dirty bytes", times);
  MUST(!fs::is_empty(path + "/layers"), "no layer was ever shared");
  for (auto& [id, content] : taken) check(*store, id, content);

  CommitResult unchanged = take(*store, memory, memory, parent, true);
  MUST(unchanged.stored_bytes < 20000, "an unchanged process cost %lu bytes",
       static_cast<unsigned long>(unchanged.stored_bytes));

  VerifyReport report;
  MUST_OK(store->verify({.full = true}, &report));
  MUST(report.ok(), "%s",
       report.damaged.empty() ? report.findings[0].c_str() : report.damaged[0].second.c_str());
  // Most go; what stays was compacted into new packs and layers.
  std::vector<SnapshotInfo> list;
  MUST_OK(store->list(&list));
  PruneOptions options;
  for (const SnapshotInfo& info : list) {
    if (!taken.count(info.id)) options.remove.push_back(info.id);
  }
  PruneReport pruned;
  MUST_OK(store->prune(options, &pruned));
  MUST(pruned.packs_rewritten > 0, "nothing was compacted");
  for (auto& [id, content] : taken) check(*store, id, content);

  // A parent that is gone, or whose pack is, is no parent.
  (void)take(*store, memory, before, unchanged.id, false);
  std::string last = taken.rbegin()->first;
  fs::path victim;
  for (auto& entry : fs::directory_iterator(path + "/packs")) {
    if (victim.empty() || fs::file_size(entry) > fs::file_size(victim)) victim = entry.path();
  }
  fs::rename(victim, path + "/stolen");
  (void)take(*store, memory, before, last, false);
  fs::rename(path + "/stolen", victim);
  (void)take(*store, memory, taken.rbegin()->second, last, true);

  // A range the parent does not have, and a byte that changed on its way, fail the snapshot.
  std::unique_ptr<SnapshotWriter> writer;
  MUST_OK(store->begin({.job = "j", .parent = last}, &writer));
  MUST(!writer->put_same(0, 0x5000, 4096).ok(), "a range that no snapshot has was accepted");
  MUST_OK(store->begin({.job = "j"}, &writer));
  Bytes page(4096, 5);
  ChunkName name = store->names()->plain(page.data(), page.size());
  page[77] ^= 1;
  MUST(writer->put(0, 0x5000, page, {&name, 1}).code() == kExitCorrupt,
       "corruption went unnoticed");
  CommitResult result;
  MUST(!writer->commit("{}", &result).ok(), "a failed snapshot was published");
  writer.reset();

  early(*store, last, taken.rbegin()->second);

  // Each layer and manifest, damaged by a bit, is found.
  for (const char* directory : {"/layers", "/snapshots"}) {
    for (auto& entry : fs::directory_iterator(path + directory)) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      auto at = static_cast<std::streamoff>(dice() % fs::file_size(entry));
      file.seekg(at);
      char byte = static_cast<char>(file.get());
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 16));
      file.flush();
      VerifyReport damage;
      MUST_OK(store->verify({}, &damage));
      MUST(!damage.damaged.empty(), "damage of %s went unnoticed", entry.path().c_str());
      file.seekp(at);
      file.put(byte);
    }
  }
  for (auto& [id, content] : taken) check(*store, id, content);
}

void keys(const std::string& root) {
  std::unique_ptr<Store> store;
  std::string path = root + "/encrypted";
  auto code = [&](const std::string& key) {
    return Store::open(path, {.key_file = key}, &store).code();
  };
  MUST(code("") == kExitRefused, "no key");
  MUST(code(root + "/other.key") == kExitRefused, "the wrong key");
  MUST(code(root + "/none.key") == kExitError, "an absent key");
  MUST(Store::open(root + "/plain", {.key_file = root + "/key"}, &store).code() == kExitRefused,
       "a key for a plain store");
  chmod((root + "/key").c_str(), 0644);
  MUST(code(root + "/key") == kExitRefused, "a key that others can read");
  chmod((root + "/key").c_str(), 0600);
  std::ofstream(root + "/short.key") << "password";
  chmod((root + "/short.key").c_str(), 0600);
  MUST(code(root + "/short.key") == kExitRefused, "a password");
  // Nothing of the contents is in the files, and no other user may read any.
  for (auto& entry : fs::recursive_directory_iterator(path)) {
    struct stat st;
    MUST(lstat(entry.path().c_str(), &st) == 0, "lstat");
    MUST((st.st_mode & 077) == 0, "%s has mode %o", entry.path().c_str(), st.st_mode);
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    MUST(text.find("pppppppp") == std::string::npos && text.find("\"job\"") == std::string::npos,
         "%s tells", entry.path().c_str());
  }
}

}  // namespace

int main() {
  umask(0);  // modes are ours, not the umask's
  std::string root = (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") +
                     std::string("/gpuckpt-sharing-test.XXXXXX");
  if (!mkdtemp(root.data())) return 1;
  for (const char* name : {"/key", "/other.key"}) {
    std::ofstream(root + name) << "0123456789abcdef0123456789abcdef" << name;
    chmod((root + name).c_str(), 0600);
  }
  scenario(root + "/plain", "");
  scenario(root + "/encrypted", root + "/key");
  keys(root);
  fs::remove_all(root);
  printf("EXIT-SUCCESS\n");
  return 0;
}
