// Fear: what a writer knows of packs that it has not opened is wrong: a chunk that is not there is
// referred to, or what is there is stored again.
#include "store/format/pack_tables.h"

#include <filesystem>
#include <fstream>

#include "store/store_internal.h"
#include "store/tests/testing.h"

namespace gpuckpt::store {
namespace {

constexpr int kPacks = 70;  // more than are worth gathering

Model page_of(int number) {
  Model model;
  std::vector<uint8_t>& page = model[0][0x10000];
  page.assign(4096, static_cast<uint8_t>(number + 1));
  page[0] = 'x';
  return model;
}

// Each snapshot has a page of its own, and so a pack.
void fill(Store& store) {
  for (int i = 0; i < kPacks; ++i) {
    CommitResult result;
    REQUIRE_OK(write_model(store, page_of(i), "{}", &result));
  }
}

// Asks as the product does, before a snapshot is published.
Status write_checked(Store& store, const Model& model, CommitResult* result) {
  std::unique_ptr<SnapshotWriter> writer;
  if (Status s = store.begin({}, &writer); !s.ok()) return s;
  for (const auto& [space, pieces] : model)
    for (const auto& [address, bytes] : pieces)
      if (Status s = writer->put(space, address, bytes); !s.ok()) return s;
  return writer->commit(
      "{}", [](const SnapshotReader&) { return Status::Ok(); }, result);
}

std::string tables_of(const TemporaryDirectory& dir) { return dir.store() + "/tables"; }

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_to(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// The pack that holds the page; empty: none does.
std::string pack_with(Store& store, const TemporaryDirectory& dir, const Model& model) {
  const std::vector<uint8_t>& page = model.at(0).at(0x10000);
  const ChunkName name = store.names()->plain(page.data(), page.size());
  for (const auto& file : std::filesystem::directory_iterator(dir.store() + "/packs")) {
    const std::string content = content_of(file.path());
    if (content.find(std::string(name.begin(), name.end())) != std::string::npos)
      return file.path();
  }
  return "";
}

TEST_CASE("tables are gathered, and what they name is not stored again") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  fill(*store);
  REQUIRE(std::filesystem::exists(tables_of(dir)));
  for (int i : {0, 33, kPacks - 1}) {
    CommitResult result;
    REQUIRE_OK(write_model(*store, page_of(i), "{}", &result));
    CHECK(result.new_bytes == 0);
    std::unique_ptr<SnapshotReader> reader;
    REQUIRE_OK(store->open_snapshot(result.id, &reader));
    CHECK(compare_model(*reader, page_of(i)) == "");
  }
}

TEST_CASE("a file of tables that is damaged, cut or another store's says nothing") {
  TemporaryDirectory dir, other;
  auto store = new_store(dir), stranger = new_store(other);
  fill(*store);
  fill(*stranger);
  const std::string right = content_of(tables_of(dir));
  std::string flipped = right;
  flipped[right.size() / 2] ^= 1;
  for (const std::string& wrong :
       {flipped, right.substr(0, right.size() - 8), right.substr(0, 10), std::string(),
        right + "12345678", content_of(tables_of(other))}) {
    write_to(tables_of(dir), wrong);
    CommitResult result;
    REQUIRE_OK(write_model(*store, page_of(5), "{}", &result));
    CHECK(result.new_bytes == 0);
    Model fresh = page_of(5);
    fresh[0][0x10000][1] ^= static_cast<uint8_t>(wrong.size() % 251 + 1);
    REQUIRE_OK(write_model(*store, fresh, "{}", &result));
    std::unique_ptr<SnapshotReader> reader;
    REQUIRE_OK(store->open_snapshot(result.id, &reader));
    CHECK(compare_model(*reader, fresh) == "");
  }
}

TEST_CASE("a pack that is gone is not referred to") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  fill(*store);
  const std::string pack = pack_with(*store, dir, page_of(7));
  REQUIRE(std::filesystem::remove(pack));
  CommitResult result;
  REQUIRE_OK(write_checked(*store, page_of(7), &result));
  CHECK(result.new_bytes == 4096);
}

TEST_CASE("a pack that was damaged since costs one snapshot, and then holds nothing") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  fill(*store);
  const std::string pack = pack_with(*store, dir, page_of(7));
  std::string content = content_of(pack);
  content[content.size() - 80] ^= 1;  // of its table
  write_to(pack, content);
  CommitResult result;
  const Status refused = write_checked(*store, page_of(7), &result);
  CHECK(refused.code() == kExitCorrupt);
  CHECK_FALSE(std::filesystem::exists(tables_of(dir)));
  REQUIRE_OK(write_checked(*store, page_of(7), &result));
  CHECK(result.new_bytes == 4096);
}

TEST_CASE("a repair forgets the tables") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  fill(*store);
  store.reset();
  RepairReport report;
  REQUIRE_OK(Store::repair(dir.store(), {}, false, &report));
  CHECK_FALSE(std::filesystem::exists(tables_of(dir)));
}

}  // namespace
}  // namespace gpuckpt::store
