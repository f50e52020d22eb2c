// What the store's tests share: a directory that is removed at the end, data that compresses a
// little, and a model to compare with.
//
// Owner: the test. Threads: as each type says. Errors: Catch's failures.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.h"

#include "store/store.h"

namespace gpuckpt::store {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* base = getenv("TMPDIR");
    // In memory where possible: these tests sync a lot, and power is not lost here.
    bool memory = !base && access("/dev/shm", W_OK) == 0;
    path_ = std::string(base ? base : memory ? "/dev/shm" : "/tmp") + "/gpuckpt-store-test.XXXXXX";
    if (!mkdtemp(path_.data())) abort();
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string store() const { return path_ + "/store"; }

 private:
  std::string path_;
};

inline std::vector<uint8_t> some_bytes(uint64_t seed, size_t length) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> out(length);
  for (size_t i = 0; i < length; ++i) {
    // Pages of noise, of text-like bytes and of zeros.
    if (i % 4096 == 0 && random() % 8 == 0) {
      i += 4095;
      continue;
    }
    out[i] = static_cast<uint8_t>(i % 8192 < 4096 ? random() : 'a' + random() % 4);
  }
  return out;
}

// What a snapshot should hold: space -> address -> bytes.
using Model = std::map<uint64_t, std::map<uint64_t, std::vector<uint8_t>>>;

inline Status write_model(Store& store, const Model& model, const std::string& meta,
                          CommitResult* result, WriteOptions options = {}) {
  std::unique_ptr<SnapshotWriter> writer;
  if (Status s = store.begin(options, &writer); !s.ok()) return s;
  for (const auto& [space, pieces] : model) {
    for (const auto& [address, bytes] : pieces) {
      if (Status s = writer->put(space, address, bytes); !s.ok()) return s;
    }
  }
  for (const char* text : {"{\"blob\":", "1}"}) {
    std::string part = text;
    Status s = writer->append_blob("process",
                                   {reinterpret_cast<const uint8_t*>(part.data()), part.size()});
    if (!s.ok()) return s;
  }
  return writer->commit(meta, result);
}

// Reads everything back in both ways. An empty string: identical.
inline std::string compare_model(const SnapshotReader& reader, const Model& model) {
  for (const auto& [space, pieces] : model) {
    for (const auto& [address, bytes] : pieces) {
      std::vector<uint8_t> got(bytes.size());
      if (Status s = reader.read(space, address, got); !s.ok()) return s.text();
      if (got != bytes) return "read: bytes differ";
    }
    std::mutex mutex;
    uint64_t seen = 0;
    bool same = true;
    Status s = reader.read_all(space, 2, [&](uint64_t address, std::span<const uint8_t> got) {
      std::lock_guard guard(mutex);
      // A piece may cross from one of the model's runs into its neighbour.
      while (!got.empty()) {
        auto it = std::prev(pieces.upper_bound(address));
        uint64_t offset = address - it->first;
        if (offset >= it->second.size()) return same = false;
        uint64_t n = std::min<uint64_t>(got.size(), it->second.size() - offset);
        same = same && std::equal(got.begin(), got.begin() + static_cast<ptrdiff_t>(n),
                                  it->second.begin() + static_cast<ptrdiff_t>(offset));
        seen += n;
        address += n;
        got = got.subspan(n);
      }
      return true;
    });
    if (!s.ok()) return s.text();
    if (!same) return "read_all: bytes differ";
    uint64_t data = 0;
    for (const Extent& extent : reader.extents(space)) data += extent.zero ? 0 : extent.length;
    if (seen != data) return "read_all: not every extent was delivered once";
  }
  std::vector<uint8_t> blob;
  if (Status s = reader.blob("process", &blob); !s.ok()) return s.text();
  if (std::string(blob.begin(), blob.end()) != "{\"blob\":1}") return "blob differs";
  return "";
}

inline Model some_model(uint64_t seed) {
  Model model;
  model[0][0x7f0000000000] = some_bytes(seed, 1 << 20);
  model[0][0x7f0000100000] = some_bytes(seed + 1, 300 * 4096);
  model[0][0x400000] = some_bytes(seed + 2, 16 * 4096);
  model[0x100][0] = some_bytes(seed + 3, 12345);
  model[0x1000000][0x100000000200] = some_bytes(seed + 4, 700001);
  return model;
}

#define REQUIRE_OK(expression)                  \
  do {                                          \
    ::gpuckpt::store::Status s_ = (expression); \
    INFO(s_.text());                            \
    REQUIRE(s_.ok());                           \
  } while (0)

// A new store in the directory.
inline std::unique_ptr<Store> new_store(const TemporaryDirectory& dir) {
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  return store;
}

}  // namespace gpuckpt::store
