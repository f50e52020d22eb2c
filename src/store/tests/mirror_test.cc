// A mirror has what its store has, whatever happens on the way: every call of copying fails once,
// and what the mirror holds is whole; the next time it is complete. Damage is not copied. With
// rclone installed: the same over an rclone remote.
#include <sys/wait.h>

#include <initializer_list>

#include "faulty_env.h"
#include "store/io/remote.h"
#include "store/store_internal.h"
#include "testing.h"

using namespace gpuckpt;
using namespace gpuckpt::store;
namespace fs = std::filesystem;

namespace {

Model model_of(uint64_t n) {
  Model model;
  model[0][0x400000] = some_bytes(1, 8 * 4096);  // shared by all
  model[0][0x900000] = some_bytes(100 + n, 4 * 4096);
  model[0x1000000][0x10000] = some_bytes(200 + n, 70000);
  return model;
}

struct Source {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  std::vector<std::string> ids;
  Source() { REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store)); }
  void snapshot(const WriteOptions& options = {}) {
    CommitResult result;
    REQUIRE_OK(write_model(*store, model_of(ids.size()), "{}", &result, options));
    ids.push_back(result.id);
  }
  std::string target() const { return dir.path() + "/mirror"; }
};

// What is there is whole; returns how many.
size_t check_mirror(const Source& source, const std::string& target) {
  std::unique_ptr<Store> store;
  Status status = Store::open(target, {}, &store);
  if (status.code() == kExitAbsent) return 0;
  REQUIRE_OK(status);
  VerifyReport report;
  REQUIRE_OK(store->verify({.full = true, .threads = 1}, &report));
  for (auto& [id, why] : report.damaged) FAIL_CHECK(id + " " + why);
  for (const std::string& id : report.whole) {
    size_t n = std::find(source.ids.begin(), source.ids.end(), id) - source.ids.begin();
    REQUIRE(n < source.ids.size());
    std::unique_ptr<SnapshotReader> reader;
    REQUIRE_OK(store->open_snapshot(id, &reader));
    REQUIRE(compare_model(*reader, model_of(n)) == "");
  }
  return report.whole.size();
}

}  // namespace

TEST_CASE("a mirror has all, and keeps what is pruned") {
  Source source;
  for (int i = 0; i < 3; ++i) source.snapshot();
  MirrorReport report;
  REQUIRE_OK(source.store->mirror(source.target() + "/", &report));
  CHECK(report.snapshots == 3);
  CHECK(check_mirror(source, source.target()) == 3);
  REQUIRE_OK(source.store->mirror(source.target(), &report));
  CHECK(report.snapshots == 0);
  CHECK(report.bytes == 0);
  PruneReport pruned;
  REQUIRE_OK(source.store->prune({.keep = 1}, &pruned));
  source.snapshot();
  REQUIRE_OK(source.store->mirror(source.target(), &report));
  CHECK(report.snapshots == 1);
  CHECK(check_mirror(source, source.target()) == 4);
  std::unique_ptr<MirrorState> state = source.store->mirror_state();
  REQUIRE(state);
  CHECK(state->target == source.target());
  CHECK(state->error == "");
  CHECK(state->snapshots == std::vector{source.ids[2], source.ids[3]});  // of those that are left
  for (const auto& entry : fs::recursive_directory_iterator(source.target())) {
    struct stat st;
    REQUIRE(lstat(entry.path().c_str(), &st) == 0);
    CHECK((st.st_mode & 077) == 0);
  }
}

TEST_CASE("a mirror that fails at any call is whole as far as it is, and completed later") {
  Source source;
  for (int i = 0; i < 2; ++i) source.snapshot();
  Paths paths{source.dir.store(), nullptr, source.store->names()};
  for (int n = 0;; ++n) {
    REQUIRE(n < 400);
    fs::remove_all(source.target());
    FaultyEnv env;
    std::atomic<int> calls = 0;
    std::atomic<bool> hit = false;
    env.before = [&](Call, const std::string&) {
      const int call = calls++;
      if (call == n) hit = true;
      return call == n ? EIO : 0;
    };
    MirrorReport report;
    Status status = mirror_store(posix_env(), paths, &env, source.target(), &report);
    env.before = [](Call, const std::string&) { return 0; };
    INFO("call " << n << ": " << status.text());
    (void)check_mirror(source, source.target());
    // A lock that could not be removed is ours, and we live on.
    std::error_code none;
    for (const auto& lock : fs::directory_iterator(source.target() + "/locks", none))
      fs::remove(lock.path());
    REQUIRE_OK(mirror_store(posix_env(), paths, &env, source.target(), &report));
    CHECK(check_mirror(source, source.target()) == 2);
    CHECK(fs::is_empty(source.target() + "/locks"));
    if (!hit) break;
  }
}

TEST_CASE("what it says of the mirror is what the mirror has") {
  Source source, other;
  auto state = [&] { return source.store->mirror_state(); };
  CHECK(!state());
  source.snapshot();
  MirrorReport report;
  REQUIRE_OK(source.store->mirror(source.target(), &report));
  CHECK(state()->snapshots == source.ids);
  const int64_t first = state()->time_ns;
  source.snapshot();
  CHECK(!state()->has(source.ids[1]));

  // Not its mirror: the caller is told, and the other store is unchanged.
  other.snapshot();
  CHECK(source.store->mirror(other.dir.store(), &report).code() == kExitRefused);
  CHECK(state()->target == source.target());
  CHECK(state()->error == "");

  // It cannot be written: what it had it has, and the error is kept until a mirroring succeeds.
  Paths paths{source.dir.store(), nullptr, source.store->names()};
  FaultyEnv env;
  env.before = [](Call call, const std::string& path) {
    return call == Call::kCreate && path.find("/packs/") != path.npos ? ENOSPC : 0;
  };
  CHECK(!mirror_store(posix_env(), paths, &env, source.target(), &report).ok());
  CHECK(state()->snapshots == std::vector{source.ids[0]});
  CHECK(state()->error.find("No space") != std::string::npos);
  env.before = [](Call, const std::string&) { return EIO; };  // it cannot even be asked
  CHECK(!mirror_store(posix_env(), paths, &env, source.target(), &report).ok());
  CHECK(state()->snapshots == std::vector{source.ids[0]});
  REQUIRE_OK(source.store->mirror(source.target(), &report));
  CHECK(state()->snapshots == source.ids);
  CHECK(state()->error == "");
  CHECK(state()->time_ns > first);

  // Nonsense in its place is none; the next mirroring writes it anew.
  for (const char* text :
       {"", "{", "[]", "null", "{\"target\":7}", "\xff\xfe", "{\"target\":\"x\"}"}) {
    std::ofstream(source.dir.store() + "/mirror", std::ios::trunc) << text;
    CHECK(!state());
    REQUIRE_OK(source.store->mirror(source.target(), &report));
    REQUIRE(state());
    CHECK(state()->snapshots == source.ids);
  }
}

TEST_CASE("what is damaged on one side comes back from the other") {
  Source source;
  for (int i = 0; i < 3; ++i) source.snapshot();
  MirrorReport report;
  REQUIRE_OK(source.store->mirror(source.target(), &report));
  auto any = [](const std::string& directory) {
    return fs::directory_iterator(directory)->path().string();
  };
  for (const auto& [damaged, whole] : {std::pair{source.target(), source.dir.store()},
                                       std::pair{source.dir.store(), source.target()}}) {
    const std::function<void()> ways[] = {
        [&, at = damaged] { fs::resize_file(any(at + "/packs"), 0); },
        [&, at = damaged] { fs::resize_file(any(at + "/snapshots"), 100); },
        [&, at = damaged] { fs::remove(any(at + "/packs")); },
        [&, at = damaged] {
          fs::remove_all(at + "/packs");
          fs::create_directory(at + "/packs");
        },
        [&, at = damaged] {  // a copy that was never finished
          for (const auto& entry : fs::directory_iterator(at + "/snapshots"))
            fs::resize_file(entry.path(), 0);
        }};
    for (const auto& way : ways) {
      way();
      RepairReport repaired;
      REQUIRE_OK(Store::repair(damaged, {}, false, &repaired));
      CHECK(!repaired.lost.empty());
      std::unique_ptr<Store> from;
      REQUIRE_OK(Store::open(whole, {}, &from));
      REQUIRE_OK(from->mirror(damaged, &report));
      CHECK(report.snapshots == repaired.lost.size());
      CHECK(check_mirror(source, damaged) == 3);
    }
  }
}

TEST_CASE("a store that is lost is made anew as the one its mirror knows") {
  TemporaryDirectory dir;
  const std::string target = dir.path() + "/mirror", key = dir.path() + "/key",
                    other = dir.path() + "/other";
  std::ofstream(key) << std::string(32, 'k');
  std::ofstream(other) << std::string(32, 'o');
  for (const std::string& file : {key, other}) fs::permissions(file, fs::perms::owner_read);
  for (const std::string& with : {std::string(), key}) {
    fs::remove_all(dir.store());
    fs::remove_all(target);
    auto snapshot = [&](const std::string& mirror, const std::string& key_file) {
      std::unique_ptr<Store> store;
      REQUIRE_OK(Store::open(dir.store(), {.create = true, .key_file = key_file, .mirror = mirror},
                             &store));
      CommitResult result;
      REQUIRE_OK(write_model(*store, model_of(0), "{}", &result));
      MirrorReport report;
      return store->mirror(target, &report).code();
    };
    CHECK(snapshot(target, with) == kExitOk);  // there is no mirror yet
    fs::remove_all(dir.store());
    CHECK(snapshot("", with) == kExitRefused);  // without the key
    fs::remove_all(dir.store());
    CHECK(snapshot(target, other) == kExitRefused);  // the mirror is not opened by this key
    fs::remove_all(dir.store());
    CHECK(snapshot(target, with) == kExitOk);
    std::unique_ptr<Store> mirror;
    REQUIRE_OK(Store::open(target, {.key_file = with}, &mirror));
    VerifyReport report;
    REQUIRE_OK(mirror->verify({.full = true}, &report));
    CHECK(report.ok());
    CHECK(report.whole.size() == 2);
  }
}

TEST_CASE("another store, another's directory, itself") {
  Source source, other;
  source.snapshot();
  other.snapshot();
  MirrorReport report;
  CHECK(source.store->mirror(other.dir.store(), &report).code() == kExitRefused);
  CHECK(source.store->mirror(source.dir.store(), &report).code() == kExitRefused);
  CHECK(source.store->mirror(source.dir.store() + "/.", &report).code() == kExitRefused);
  CHECK(source.store->mirror(source.dir.store() + "/inner", &report).code() == kExitRefused);
  CHECK(!fs::exists(source.dir.store() + "/inner"));
  fs::create_directory_symlink(source.dir.store(), source.target() + "-link");
  Status status = source.store->mirror(source.target() + "-link", &report);
  CHECK(status.code() == kExitRefused);
  CHECK(status.text().find("is the store itself") != std::string::npos);
  CHECK(source.store->mirror_state()->target == other.dir.store());  // not remembered
  CHECK(fs::is_empty(source.dir.store() + "/locks"));
  fs::create_directory(source.target());
  fs::permissions(source.target(), fs::perms::owner_all);
  std::ofstream(source.target() + "/thesis.tex") << "x";
  CHECK(source.store->mirror(source.target(), &report).code() == kExitAbsent);
  CHECK(fs::exists(source.target() + "/thesis.tex"));
}

TEST_CASE("damage is not copied, the others are") {
  Source source;
  source.snapshot();
  auto pack = fs::directory_iterator(source.dir.store() + "/packs")->path();
  {
    std::fstream file(pack, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(5000);
    file.put('x').put('y');
  }
  CommitResult result;
  const auto bytes = some_bytes(77, 4096 * 4);
  std::unique_ptr<SnapshotWriter> writer;  // shares nothing with the first
  REQUIRE_OK(source.store->begin({}, &writer));
  REQUIRE_OK(writer->put(0, 0, bytes));
  REQUIRE_OK(writer->commit("{}", &result));
  MirrorReport report;
  REQUIRE_OK(source.store->mirror(source.target(), &report));
  CHECK(report.snapshots == 1);
  REQUIRE(report.damaged.size() == 1);
  CHECK(report.damaged[0].first == source.ids[0]);
  std::unique_ptr<Store> mirror;
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(open_reference(source.target() + "@" + result.id, {}, &mirror, &reader));
  std::vector<uint8_t> got(bytes.size());
  REQUIRE_OK(reader->read(0, 0, got));
  CHECK(got == bytes);
}

TEST_CASE("over rclone") {
  if (system("rclone version >/dev/null 2>&1") != 0) {
    WARN("rclone is not installed: nothing was tested");
    return;
  }
  Source source;
  const std::string config = source.dir.path() + "/rclone.conf";
  std::ofstream(config) << "[far]\ntype = local\n";
  setenv("RCLONE_CONFIG", config.c_str(), 1);
  const std::string url = "rclone:far:" + source.target();
  source.snapshot();
  source.snapshot();
  MirrorReport report;
  REQUIRE_OK(source.store->mirror(url, &report));
  CHECK(report.snapshots == 2);
  CHECK(check_mirror(source, source.target()) == 2);  // as files
  CHECK(check_mirror(source, url) == 2);              // as a remote
  // Interrupted: the manifest and one pack are not there.
  fs::remove(source.target() + "/snapshots/" + source.ids[1] + ".manifest");
  fs::remove(fs::directory_iterator(source.target() + "/packs")->path());
  fs::remove(source.target() + "/snapshots/" + source.ids[0] + ".manifest");
  REQUIRE_OK(source.store->mirror(url, &report));
  CHECK(report.snapshots == 2);
  CHECK(check_mirror(source, source.target()) == 2);
  CHECK(fs::is_empty(source.target() + "/locks"));
  // What rclone says is what we say; a name is never taken for an option of rclone's.
  CHECK(source.store->mirror("rclone:nowhere:x", &report).text().find("rclone: ") !=
        std::string::npos);
  CHECK(source.store->mirror_state()->target == url);
  const fs::path before = fs::current_path();
  fs::current_path(source.dir.path());
  CHECK(env_for(url)->mkdir("rclone:--help") == 0);
  CHECK(fs::is_directory(source.dir.path() + "/--help"));
  fs::current_path(before);
  std::unique_ptr<Store> remote;
  REQUIRE_OK(Store::open(url, {}, &remote));
  std::unique_ptr<SnapshotWriter> writer;
  CHECK(remote->begin({}, &writer).code() == kExitRefused);
  PruneReport pruned;
  REQUIRE_OK(remote->prune({.keep = 1}, &pruned));
  CHECK(pruned.removed == std::vector<std::string>{source.ids[0]});
  CHECK(check_mirror(source, source.target()) == 1);
  CHECK(Store::open("rclone:far:" + source.dir.path() + "/nothing", {}, &remote).code() ==
        kExitAbsent);
}
