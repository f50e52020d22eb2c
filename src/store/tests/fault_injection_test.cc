// Every call the store makes fails once, at every place, in every way: what was durable stays, what
// failed says so in one sentence, and nothing half written is taken for a snapshot.
#include "faulty_env.h"

#include <initializer_list>

#include "testing.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

namespace {

Model small_model(uint64_t seed) {
  Model model;
  model[0][0x400000] = some_bytes(seed, 5 * 4096);
  model[0x1000000][0x10000] = some_bytes(seed + 1, 70000);
  return model;
}

// With a healthy disk: `old` is whole, nothing is damaged, and the store can be written to.
void check_after(const std::string& path, const std::string& old_id, const Model& old) {
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(path, {}, &store));
  VerifyReport report;
  REQUIRE_OK(store->verify({.full = true}, &report));
  for (auto& finding : report.findings) FAIL_CHECK(finding);
  for (auto& [id, why] : report.damaged) FAIL_CHECK(id + " " + why);
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(old_id, &reader));
  REQUIRE(compare_model(*reader, old) == "");
}

void check_writable(const std::string& path) {
  // A lock we could not remove would be ours, and we live on; a real writer ends after a failure.
  for (const auto& lock : std::filesystem::directory_iterator(path + "/locks"))
    std::filesystem::remove(lock.path());
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(path, {}, &store));
  CommitResult result;
  Model model = small_model(77);
  REQUIRE_OK(write_model(*store, model, "{}", &result));
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(result.id, &reader));
  REQUIRE(compare_model(*reader, model) == "");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    INFO(entry.path());
    REQUIRE(entry.path().extension() != ".tmp");
  }
}

// `for_ever`: the disk stays broken after the Nth call.
void fail_every_call(int error, bool for_ever, const std::function<Status(Store&)>& work) {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  Model old = small_model(1);
  CommitResult first;
  REQUIRE_OK(write_model(*store, old, "{}", &first));
  int failures = 0;
  for (int n = 0;; ++n) {
    REQUIRE(n < 400);
    FaultyEnv env;
    std::atomic<int> calls = 0;
    std::atomic<bool> hit = false;
    env.before = [&](Call, const std::string&) {
      int call = calls++;
      if (call == n || (for_ever && call > n)) {
        hit = true;
        return error;
      }
      return 0;
    };
    // Each time from the same state: what goes on after a harmless failure would otherwise pile up.
    std::string copy = dir.path() + "/copy";
    std::filesystem::remove_all(copy);
    std::filesystem::copy(dir.store(), copy, std::filesystem::copy_options::recursive);
    REQUIRE(chmod(copy.c_str(), 0700) == 0);
    std::unique_ptr<Store> faulty;
    Status status = Store::open(copy, {.env = &env}, &faulty);
    if (status.ok()) status = work(*faulty);
    INFO("call " << n << ", error " << error << ": " << status.text());
    if (!status.ok()) {
      ++failures;
      CHECK(status.text().size() > 20);
      CHECK(status.text().find('\n') == std::string::npos);
    }
    faulty.reset();
    env.before = [](Call, const std::string&) { return 0; };
    check_after(copy, first.id, old);
    check_writable(copy);
    if (!hit) {
      CHECK(status.ok());
      break;
    }
  }
  CHECK(failures > 5);
}

}  // namespace

TEST_CASE("a failing disk while writing") {
  int seed = 100;
  auto write = [&](Store& store) {
    CommitResult result;
    return write_model(store, small_model(seed++), "{}", &result);
  };
  for (int error : {ENOSPC, EIO, EDQUOT}) fail_every_call(error, false, write);
  fail_every_call(EIO, true, write);
  fail_every_call(EROFS, true, write);
}

TEST_CASE("a store directory that vanishes") {
  int seed = 100;
  auto write = [&](Store& store) {
    CommitResult result;
    return write_model(store, small_model(seed++), "{}", &result);
  };
  fail_every_call(ENOENT, true, write);
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  REQUIRE_OK(writer->put(0, 0, some_bytes(1, 1 << 20)));
  std::filesystem::remove_all(dir.store());
  CommitResult result;
  Status status = writer->commit("{}", &result);
  CHECK(status.code() == kExitAbsent);
  INFO(status.text());
  CHECK(status.text().find("gone") != std::string::npos);
}

TEST_CASE("a failing disk while pruning loses nothing that is kept") {
  for (bool for_ever : {false, true}) {
    for (int error : {EIO, ENOSPC}) {
      for (int n = 0;; ++n) {
        REQUIRE(n < 400);
        TemporaryDirectory dir;
        std::unique_ptr<Store> store;
        REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
        // The second shares a little with the first, so that the first one's pack is copied.
        Model a = small_model(1), b = small_model(50);
        b[0][0x900000] =
            std::vector<uint8_t>(a[0][0x400000].begin(), a[0][0x400000].begin() + 8192);
        CommitResult first, second;
        REQUIRE_OK(write_model(*store, a, "{}", &first));
        REQUIRE_OK(write_model(*store, b, "{}", &second));
        FaultyEnv env;
        std::atomic<int> calls = 0;
        std::atomic<bool> hit = false;
        env.before = [&](Call, const std::string&) {
          int call = calls++;
          if (call >= n) hit = true;
          return call == n || (for_ever && call > n) ? error : 0;
        };
        std::unique_ptr<Store> faulty;
        PruneReport report;
        Status status = Store::open(dir.store(), {.env = &env}, &faulty);
        if (status.ok()) status = faulty->prune({.keep = 1}, &report);
        env.before = [](Call, const std::string&) { return 0; };
        INFO("call " << n << ": " << status.text());
        check_after(dir.store(), second.id, b);
        REQUIRE_OK(store->prune({.keep = 1}, &report));
        check_after(dir.store(), second.id, b);
        if (!hit) {
          CHECK(status.ok());
          break;
        }
      }
    }
  }
}

TEST_CASE("nearly full, over budget") {
  TemporaryDirectory dir;
  FaultyEnv env;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.env = &env, .create = true}, &store));
  CommitResult result;
  REQUIRE_OK(write_model(*store, small_model(1), "{}", &result));
  uint64_t used = 0;
  REQUIRE_OK(store->disk_bytes(&used));
  Status status = write_model(*store, small_model(20), "{}", &result, {.budget = used + 20000});
  INFO(status.text());
  CHECK(status.code() == kExitError);
  CHECK(status.text().find("budget") != std::string::npos);
  CHECK(status.text().find("prune") != std::string::npos);
  uint64_t after = 0;
  REQUIRE_OK(store->disk_bytes(&after));
  CHECK(after == used);
  REQUIRE_OK(write_model(*store, small_model(1), "{}", &result, {.budget = used + 20000}));
  env.free = 1 << 19;
  status = write_model(*store, small_model(30), "{}", &result);
  CHECK(status.text().find("full") != std::string::npos);
}

TEST_CASE("only so much of a snapshot stays in the page cache") {
  TemporaryDirectory dir;
  FaultyEnv env;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.env = &env, .create = true}, &store));
  CommitResult result;
  REQUIRE_OK(write_model(*store, small_model(1), "{}", &result));
  CHECK(env.dropped == 0);
  REQUIRE_OK(write_model(*store, small_model(2), "{}", &result, {.page_cache = 1 << 30}));
  CHECK(env.dropped == 0);
  REQUIRE_OK(write_model(*store, small_model(3), "{}", &result, {.page_cache = 4096}));
  CHECK(env.dropped == 1);
}

TEST_CASE("a clock that goes backwards keeps the order of snapshots") {
  TemporaryDirectory dir;
  FaultyEnv env;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.env = &env, .create = true}, &store));
  CommitResult a, b, c;
  env.clock_ns = 1'800'000'000'123'000'000;
  REQUIRE_OK(write_model(*store, small_model(1), "{}", &a));
  env.clock_ns = 1'000'000'000'000'000'000;
  REQUIRE_OK(write_model(*store, small_model(2), "{}", &b));
  REQUIRE_OK(write_model(*store, small_model(3), "{}", &c));
  CHECK(a.id < b.id);
  CHECK(b.id < c.id);
  std::string id;
  REQUIRE_OK(store->resolve("latest", &id));
  CHECK(id == c.id);
}

TEST_CASE("a failing disk while repairing loses nothing that is whole") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  Model a = small_model(1), b = small_model(50);
  CommitResult first, second;
  REQUIRE_OK(write_model(*store, a, "{}", &first));
  auto pack = std::filesystem::directory_iterator(dir.store() + "/packs")->path();
  REQUIRE_OK(write_model(*store, b, "{}", &second));
  {
    std::fstream file(pack, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(5000);  // in the frame of host pages, of which the second snapshot has others
    file.put('x').put('y');
  }
  std::string copy = dir.path() + "/copy";
  for (int n = 0;; ++n) {
    REQUIRE(n < 400);
    std::filesystem::remove_all(copy);
    std::filesystem::copy(dir.store(), copy, std::filesystem::copy_options::recursive);
    REQUIRE(chmod(copy.c_str(), 0700) == 0);
    FaultyEnv env;
    std::atomic<int> calls = 0;
    std::atomic<bool> hit = false;
    env.before = [&](Call, const std::string&) {
      const int call = calls++;
      if (call == n) hit = true;
      return call == n ? EIO : 0;
    };
    RepairReport report;
    Status status = Store::repair(copy, {.env = &env}, false, &report);
    INFO("call " << n << ": " << status.text());
    std::unique_ptr<SnapshotReader> reader;
    std::unique_ptr<Store> after;
    REQUIRE_OK(open_reference(copy + "@" + second.id, {}, &after, &reader));
    REQUIRE(compare_model(*reader, b) == "");
    if (!hit) {
      CHECK(status.ok());
      CHECK(report.whole == std::vector<std::string>{second.id});
      break;
    }
  }
}

TEST_CASE("a lock that cannot be read is respected") {
  TemporaryDirectory dir;
  FaultyEnv env;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.env = &env, .create = true}, &store));
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  REQUIRE_OK(writer->put(0, 0, some_bytes(1, 1 << 20)));
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  for (const auto& lock : std::filesystem::directory_iterator(dir.store() + "/locks"))
    REQUIRE(utimensat(AT_FDCWD, lock.path().c_str(), old, 0) == 0);
  for (Call which : {Call::kOpen, Call::kRead, Call::kInfo}) {
    env.before = [&](Call call, const std::string& path) {
      bool mine = path.find("/x") != std::string::npos;  // the process that lists the locks
      return call == which && path.find("/locks/") != std::string::npos && !mine ? EIO : 0;
    };
    PruneReport report;
    Status status = store->prune({.keep = 1}, &report);
    INFO(status.text());
    CHECK((!status.ok() || !report.postponed.empty()));
  }
  env.before = [](Call, const std::string&) { return 0; };
  CommitResult result;
  REQUIRE_OK(writer->commit("{}", &result));
}
