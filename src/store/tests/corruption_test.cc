// Damage of every kind in every file is found, by verify and by reading, and named; and what is not
// touched by it stays readable.
#include "testing.h"

#include <initializer_list>

using namespace gpuckpt;
using namespace gpuckpt::store;
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes load(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void save(const fs::path& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

std::vector<fs::path> files_in(const std::string& directory) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(directory)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// Everything of the snapshot, from both ends.
Status read_everything(Store& store, const std::string& id) {
  std::unique_ptr<SnapshotReader> reader;
  if (Status s = store.open_snapshot(id, &reader); !s.ok()) return s;
  for (uint64_t space : reader->spaces()) {
    Status s = reader->read_all(space, 1, [](uint64_t, std::span<const uint8_t>) { return true; });
    if (!s.ok()) return s;
  }
  Bytes blob;
  return reader->blob("process", &blob);
}

struct Victim {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  Model model;
  CommitResult result;

  explicit Victim(size_t pages) {
    REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
    model[0][0x400000] = some_bytes(3, pages * 4096);
    model[0x1000000][0x10000] = some_bytes(4, 70000);
    REQUIRE_OK(write_model(*store, model, R"({"tag":"t"})", &result));
  }
  void must_be_found(const std::string& what) {
    VerifyReport report;
    Status status = store->verify({.full = true, .threads = 1}, &report);
    INFO(what << ": " << status.text());
    REQUIRE(status.ok());
    REQUIRE(!report.ok());
    if (report.damaged.size() != 1 || report.damaged[0].first != result.id) {
      // The one file that may vanish from sight is a manifest whose name was taken away.
      FAIL("the damaged snapshot was not named");
    }
    REQUIRE(report.damaged[0].second.size() > 20);
    status = read_everything(*store, result.id);
    REQUIRE(!status.ok());
    REQUIRE((status.code() == kExitCorrupt || status.code() == kExitIncompatible));
    VerifyReport one;
    REQUIRE_OK(store->verify({.full = true, .id = result.id, .threads = 1}, &one));
    REQUIRE(one.damaged.size() == 1);
  }
};

void flip_every_byte(Victim& victim, const fs::path& path, size_t stride) {
  Bytes whole = load(path);
  size_t bit = 0;
  for (size_t at = 0; at < whole.size(); at += stride) {
    Bytes broken = whole;
    broken[at] ^= static_cast<uint8_t>(1u << (bit++ % 8));
    save(path, broken);
    victim.must_be_found(path.filename().string() + " byte " + std::to_string(at));
  }
  save(path, whole);
  REQUIRE_OK(read_everything(*victim.store, victim.result.id));
}

void truncate_everywhere(Victim& victim, const fs::path& path, size_t stride) {
  Bytes whole = load(path);
  for (size_t length = 0; length < whole.size();
       length += length < 200 || whole.size() - length < 200 ? 1 : stride) {
    fs::resize_file(path, length);
    victim.must_be_found(path.filename().string() + " cut to " + std::to_string(length));
    save(path, whole);
  }
  for (int more : {1, 8, 4096}) {
    Bytes longer = whole;
    longer.insert(longer.end(), static_cast<size_t>(more), 0);
    save(path, longer);
    victim.must_be_found(path.filename().string() + " grown by " + std::to_string(more));
  }
  save(path, whole);
}

}  // namespace

TEST_CASE("every byte of a manifest") {
  Victim victim(3);
  auto files = files_in(victim.dir.store() + "/snapshots");
  REQUIRE(files.size() == 1);
  flip_every_byte(victim, files[0], 1);
  truncate_everywhere(victim, files[0], 37);
}

TEST_CASE("every structural byte of a pack, and many others") {
  Victim victim(3);
  auto files = files_in(victim.dir.store() + "/packs");
  REQUIRE(files.size() == 1);
  Bytes whole = load(files[0]);
  // Header, first frame's header and lengths, tables and trailer: all of them; stored bytes: one
  // in 97.
  size_t tables = whole.size() - 72 - 5 * 20 - 2 * 40 - 64;
  size_t bit = 0;
  for (size_t at = 0; at < whole.size(); at += at < 160 || at > tables ? 1 : 97) {
    Bytes broken = whole;
    broken[at] ^= static_cast<uint8_t>(1u << (bit++ % 8));
    save(files[0], broken);
    victim.must_be_found("pack byte " + std::to_string(at));
  }
  save(files[0], whole);
  truncate_everywhere(victim, files[0], 1009);
  fs::remove(files[0]);
  victim.must_be_found("pack removed");
  fs::create_directory(files[0]);
  victim.must_be_found("pack is a directory");
  fs::remove(files[0]);
  fs::create_symlink("/dev/zero", files[0]);
  victim.must_be_found("pack is a link");
  fs::remove(files[0]);
  REQUIRE(mkfifo(files[0].c_str(), 0600) == 0);
  victim.must_be_found("pack is a pipe");
  fs::remove(files[0]);
  save(files[0], whole);
  REQUIRE_OK(read_everything(*victim.store, victim.result.id));
}

TEST_CASE("a damaged snapshot leaves the others readable") {
  Victim victim(3);
  Model other;
  other[0][0x10000] = some_bytes(50, 40 * 4096);
  CommitResult second;
  auto before = files_in(victim.dir.store() + "/packs");
  {
    std::unique_ptr<SnapshotWriter> writer;
    REQUIRE_OK(victim.store->begin({}, &writer));
    REQUIRE_OK(writer->put(0, 0x10000, other[0][0x10000]));
    REQUIRE_OK(writer->append_blob("process", Bytes(10, 'x')));  // shares nothing with the first
    REQUIRE_OK(writer->commit("{}", &second));
  }
  Bytes broken = load(before[0]);
  broken[broken.size() / 3] ^= 1;
  save(before[0], broken);
  VerifyReport report;
  REQUIRE_OK(victim.store->verify({.full = true}, &report));
  REQUIRE(report.damaged.size() == 1);
  CHECK(report.damaged[0].first == victim.result.id);
  CHECK(report.damaged[0].second.find("pack") != std::string::npos);
  REQUIRE(report.whole.size() == 1);
  CHECK(report.whole[0] == second.id);
  REQUIRE_OK(read_everything(*victim.store, second.id));
  // Pruning the whole one's neighbours keeps it, and does not make the damage worse.
  PruneReport pruned;
  REQUIRE_OK(victim.store->prune({.remove = {victim.result.id}}, &pruned));
  REQUIRE_OK(read_everything(*victim.store, second.id));
}

TEST_CASE("two manifests or two packs exchanged") {
  Victim victim(3);
  CommitResult second;
  Model other;
  other[0][0x10000] = some_bytes(50, 9 * 4096);
  REQUIRE_OK(write_model(*victim.store, other, "{}", &second));
  for (const char* directory : {"/snapshots", "/packs"}) {
    auto files = files_in(victim.dir.store() + directory);
    REQUIRE(files.size() == 2);
    Bytes a = load(files[0]), b = load(files[1]);
    save(files[0], b);
    save(files[1], a);
    VerifyReport report;
    REQUIRE_OK(victim.store->verify({}, &report));
    CHECK(report.damaged.size() == 2);
    save(files[0], a);
    save(files[1], b);
  }
}

TEST_CASE("every byte of the format file") {
  Victim victim(2);
  fs::path path = victim.dir.store() + "/format";
  Bytes whole = load(path);
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Bytes broken = whole;
    broken[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    save(path, broken);
    std::unique_ptr<Store> store;
    Status status = Store::open(victim.dir.store(), {}, &store);
    INFO("bit " << bit);
    REQUIRE((status.code() == kExitCorrupt || status.code() == kExitIncompatible));
  }
  for (size_t length = 0; length < whole.size(); ++length) {
    save(path, Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)));
    std::unique_ptr<Store> store;
    REQUIRE(Store::open(victim.dir.store(), {}, &store).code() == kExitCorrupt);
  }
}

TEST_CASE("a store of the future is refused, not guessed at") {
  Victim victim(2);
  std::ofstream(victim.dir.store() + "/format") << R"({"format":"gpuckpt store","version":99})";
  std::unique_ptr<Store> store;
  Status status = Store::open(victim.dir.store(), {}, &store);
  CHECK(status.code() == kExitIncompatible);
  CHECK(status.text().find("version 99") != std::string::npos);
  std::ofstream(victim.dir.store() + "/format") << "{]";
  CHECK(Store::open(victim.dir.store(), {.create = true}, &store).code() == kExitCorrupt);
}

TEST_CASE("repair rebuilds tables and keeps every snapshot that is whole") {
  Victim victim(3);
  Model other;
  other[0][0x10000] = some_bytes(50, 40 * 4096);
  other[0][0x400000] = victim.model[0][0x400000];  // shared with the first
  auto before = files_in(victim.dir.store() + "/packs");
  CommitResult second;
  {
    std::unique_ptr<SnapshotWriter> writer;
    REQUIRE_OK(victim.store->begin({}, &writer));
    for (auto& [address, bytes] : other[0]) REQUIRE_OK(writer->put(0, address, bytes));
    REQUIRE_OK(writer->commit("{}", &second));
  }
  Bytes whole = load(before[0]);
  RepairReport report;
  // Header, tables and trailer: nothing is lost.
  for (size_t at :
       {size_t{3}, size_t{20}, whole.size() - 1, whole.size() - 70, whole.size() - 150}) {
    Bytes broken = whole;
    broken[at] ^= 16;
    save(before[0], broken);
    REQUIRE_OK(Store::repair(victim.dir.store(), {}, true, &report));
    CHECK(report.rebuilt.size() == 1);
    CHECK(load(before[0]) == broken);
    REQUIRE_OK(Store::repair(victim.dir.store(), {}, false, &report));
    INFO("byte " << at);
    CHECK(report.lost.empty());
    CHECK(report.whole.size() == 2);
    CHECK(load(before[0]) == whole);
  }
  fs::resize_file(before[0], whole.size() - 100);
  save(victim.dir.store() + "/format", {'{'});
  REQUIRE_OK(Store::repair(victim.dir.store(), {}, false, &report));
  CHECK(report.format_rewritten);
  CHECK(report.whole.size() == 2);
  CHECK(load(before[0]) == whole);
  // A byte of the device frame, which only the first snapshot needs.
  Bytes broken = whole;
  broken[whole.size() - 5000] ^= 1;
  save(before[0], broken);
  REQUIRE_OK(Store::open(victim.dir.store(), {}, &victim.store));
  REQUIRE_OK(Store::repair(victim.dir.store(), {}, false, &report));
  REQUIRE(report.lost.size() == 1);
  CHECK(report.lost[0].first == victim.result.id);
  CHECK(report.whole == std::vector<std::string>{second.id});
  VerifyReport verified;
  REQUIRE_OK(victim.store->verify({.full = true}, &verified));
  CHECK(verified.ok());
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(victim.store->open_snapshot(second.id, &reader));
  for (auto& [address, bytes] : other[0]) {
    Bytes got(bytes.size());
    REQUIRE_OK(reader->read(0, address, got));
    CHECK(got == bytes);
  }
  // A snapshot after the repair does not refer to what was damaged.
  REQUIRE_OK(write_model(*victim.store, victim.model, "{}", &second));
  REQUIRE_OK(read_everything(*victim.store, second.id));
}

TEST_CASE("repair drops nothing that can still be found") {
  TemporaryDirectory dir;
  const std::string key = dir.path() + "/key";
  save(key, some_bytes(1, 32));
  fs::permissions(key, fs::perms::owner_read);
  const bool encrypted = GENERATE(false, true);
  Store::Options options{.create = true, .key_file = encrypted ? key : ""};
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), options, &store));
  std::map<std::string, Model> snapshots;
  for (uint64_t n = 0; n < 3; ++n) {
    Model model;
    model[0][0x400000] = some_bytes(10 * n, 20 * 4096);
    CommitResult result;
    REQUIRE_OK(write_model(*store, model, "{}", &result));
    snapshots[result.id] = model;
  }
  auto whole = [&] {
    std::unique_ptr<Store> again;
    REQUIRE_OK(Store::open(dir.store(), options, &again));
    for (auto& [id, model] : snapshots) {
      std::unique_ptr<SnapshotReader> reader;
      REQUIRE_OK(again->open_snapshot(id, &reader));
      CHECK(compare_model(*reader, model) == "");
    }
  };
  auto packs = files_in(dir.store() + "/packs");
  const fs::path elsewhere = dir.path() + "/elsewhere";
  RepairReport report;

  SECTION("packs under other packs' names") {
    fs::rename(packs[0], elsewhere);
    fs::rename(packs[1], packs[0]);
    fs::rename(packs[2], packs[1]);
    fs::rename(elsewhere, packs[2]);
    REQUIRE_OK(Store::repair(dir.store(), options, true, &report));
    CHECK(report.lost.empty());
    REQUIRE_OK(Store::repair(dir.store(), options, false, &report));
    CHECK(report.whole.size() == 3);
    CHECK(report.renamed.size() == 3);
    whole();
  }
  SECTION("a pack under a name of its own choice, and one found by a repair that was killed") {
    fs::rename(packs[0], dir.store() + "/packs/0000.pack");
    fs::rename(packs[1], packs[1].string() + ".found");
    REQUIRE_OK(Store::repair(dir.store(), options, false, &report));
    CHECK(report.whole.size() == 3);
    whole();
  }
  SECTION("a pack that is there twice") {
    fs::copy_file(packs[0], dir.store() + "/packs/0000.pack");
    REQUIRE_OK(Store::repair(dir.store(), options, false, &report));
    CHECK(report.whole.size() == 3);
    CHECK(files_in(dir.store() + "/packs").size() == 3);
    whole();
  }
  SECTION("something else in place of a file") {
    const auto manifests = files_in(dir.store() + "/snapshots");
    for (const fs::path& file : {packs[0], manifests[1]}) {
      fs::rename(file, elsewhere);
      for (int what = 0; what < 4; ++what) {
        if (what == 0) fs::create_directory(file);
        if (what == 1) fs::create_symlink(elsewhere, file);
        if (what == 2) REQUIRE(mkfifo(file.c_str(), 0600) == 0);
        if (what == 3) fs::create_symlink("nowhere", file);
        for (bool dry : {true, false}) {
          Status status = Store::repair(dir.store(), options, dry, &report);
          CHECK(status.code() == kExitCorrupt);
          CHECK(status.text().find(file.filename().string()) != std::string::npos);
        }
        fs::remove(file);
      }
      fs::rename(elsewhere, file);
      whole();
    }
  }
  SECTION("empty directories that a copy left away") {
    for (const char* directory : {"/locks", "/layers"}) {
      if (fs::is_empty(dir.store() + directory)) fs::remove(dir.store() + directory);
    }
    REQUIRE_OK(Store::repair(dir.store(), options, false, &report));
    CHECK(report.whole.size() == 3);
    whole();
    PruneReport pruned;
    REQUIRE_OK(store->prune({}, &pruned));
  }
  SECTION("no format, and no key is given") {
    const fs::path format = dir.store() + "/format";
    const Bytes text = load(format);
    for (bool gone : {false, true}) {
      if (gone) {
        fs::remove(format);
      } else {
        save(format, some_bytes(4, 100));
      }
      Status status = Store::repair(dir.store(), {}, false, &report);
      if (encrypted) {
        CHECK(status.code() == kExitCorrupt);
        CHECK(status.text().find("encrypted") != std::string::npos);
        fs::remove(format);
        save(format, text);
      } else {
        REQUIRE_OK(status);
      }
      CHECK(report.lost.empty());
      whole();
    }
  }
}

TEST_CASE("a stream that is cut or damaged imports nothing") {
  Victim victim(20);
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(victim.store->open_snapshot(victim.result.id, &reader));
  Bytes stream;
  REQUIRE_OK(export_snapshot(*reader, [&](std::span<const uint8_t> bytes) {
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    return true;
  }));
  auto import = [&](const Bytes& bytes, Store& store, CommitResult* result) {
    size_t at = 0;
    return import_snapshot(
        store, {},
        [&](std::span<uint8_t> out) {
          if (out.size() > bytes.size() - at) return false;
          std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(at), out.size(), out.begin());
          at += out.size();
          return true;
        },
        result);
  };
  TemporaryDirectory dir;
  std::unique_ptr<Store> target;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &target));
  CommitResult result;
  for (size_t at = 0; at < stream.size(); at += at < 200 ? 1 : 499) {
    Bytes broken = stream;
    broken[at] ^= 2;
    Status status = import(broken, *target, &result);
    INFO("byte " << at << ": " << status.text());
    REQUIRE((status.code() == kExitCorrupt || status.code() == kExitIncompatible));
    broken = Bytes(stream.begin(), stream.begin() + static_cast<ptrdiff_t>(at));
    REQUIRE(import(broken, *target, &result).code() == kExitCorrupt);
  }
  std::vector<SnapshotInfo> list;
  REQUIRE_OK(target->list(&list));
  CHECK(list.empty());
  REQUIRE_OK(import(stream, *target, &result));
  CHECK(result.id == victim.result.id);
  CHECK(import(stream, *target, &result).code() == kExitLocked);
  REQUIRE_OK(target->open_snapshot(result.id, &reader));
  CHECK(compare_model(*reader, victim.model) == "");
}
