// Which operations may run at the same time, and what dead processes leave behind.
#include <sys/wait.h>

#include "store/io/lock.h"
#include "testing.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

namespace {

size_t count_files(const std::string& directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

}  // namespace

TEST_CASE("two writers at once, and a prune beside them") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  Model a = some_model(1), b = some_model(2);
  CommitResult ra, rb, r0;
  REQUIRE_OK(write_model(*store, some_model(9), "{}", &r0));
  std::unique_ptr<SnapshotWriter> wa, wb;
  REQUIRE_OK(store->begin({}, &wa));
  REQUIRE_OK(store->begin({}, &wb));
  for (auto& [space, pieces] : a)
    for (auto& [address, bytes] : pieces) REQUIRE_OK(wa->put(space, address, bytes));
  for (auto& [space, pieces] : b)
    for (auto& [address, bytes] : pieces) REQUIRE_OK(wb->put(space, address, bytes));
  PruneReport report;
  REQUIRE_OK(store->prune({.remove = {r0.id}}, &report));
  CHECK(report.postponed.find("locked by process") != std::string::npos);
  REQUIRE_OK(wa->append_blob(
      "process", std::vector<uint8_t>{'{', '"', 'b', 'l', 'o', 'b', '"', ':', '1', '}'}));
  REQUIRE_OK(wb->append_blob(
      "process", std::vector<uint8_t>{'{', '"', 'b', 'l', 'o', 'b', '"', ':', '1', '}'}));
  REQUIRE_OK(wa->commit("{}", &ra));
  REQUIRE_OK(wb->commit("{}", &rb));
  wa.reset();
  wb.reset();
  REQUIRE_OK(store->prune({}, &report));
  CHECK(report.postponed == "");
  CHECK(report.bytes_freed > 0);
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(ra.id, &reader));
  CHECK(compare_model(*reader, a) == "");
  REQUIRE_OK(store->open_snapshot(rb.id, &reader));
  CHECK(compare_model(*reader, b) == "");
}

TEST_CASE("an exclusive lock keeps writers out, and says whose it is") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  std::unique_ptr<Lock> lock;
  REQUIRE_OK(Lock::acquire(posix_env(), dir.store(), LockKind::kExclusive, "testing", &lock));
  std::unique_ptr<SnapshotWriter> writer;
  Status status = store->begin({}, &writer);
  CHECK(status.code() == kExitLocked);
  CHECK(status.text().find("testing") != std::string::npos);
  CHECK(status.text().find(std::to_string(getpid())) != std::string::npos);
  lock.reset();
  REQUIRE_OK(store->begin({}, &writer));
}

TEST_CASE("locks and files of a writer that was killed go away") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::unique_ptr<SnapshotWriter> writer;
    if (!store->begin({}, &writer).ok()) _exit(1);
    (void)writer->put(0, 0, some_bytes(1, 4 << 20));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(count_files(dir.store() + "/locks") == 1);
  CHECK(count_files(dir.store() + "/packs") == 1);
  std::vector<SnapshotInfo> list;
  REQUIRE_OK(store->list(&list));
  CHECK(list.empty());
  PruneReport report;
  REQUIRE_OK(store->prune({}, &report));
  CHECK(count_files(dir.store() + "/locks") == 0);
  CHECK(count_files(dir.store() + "/packs") == 0);
}

TEST_CASE("a lock from another machine is respected until it is old") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  std::string path = dir.store() + "/locks/x0000000000000000.lock";
  std::ofstream(path)
      << R"({"kind":"exclusive","host":"elsewhere","boot":"other","pid":1,"start_time":1,"what":"pruning"})";
  std::unique_ptr<SnapshotWriter> writer;
  Status status = store->begin({}, &writer);
  CHECK(status.code() == kExitLocked);
  CHECK(status.text().find("elsewhere") != std::string::npos);
  timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), old, 0) == 0);
  REQUIRE_OK(store->begin({}, &writer));
}

TEST_CASE("a writer that is dropped leaves nothing") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  REQUIRE_OK(writer->put(0, 0, some_bytes(1, 4 << 20)));
  writer.reset();
  CHECK(count_files(dir.store() + "/locks") == 0);
  CHECK(count_files(dir.store() + "/packs") == 0);
}

TEST_CASE("prune keeps the newest of each job and gives space back") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  std::vector<std::string> ids;
  Model model = some_model(1);
  for (int i = 0; i < 6; ++i) {
    CommitResult result;
    model[0][0x400000] = some_bytes(1000 + static_cast<uint64_t>(i), 16 * 4096);
    model[0x1000000][0x100000000200] = some_bytes(2000 + static_cast<uint64_t>(i), 700001);
    REQUIRE_OK(write_model(*store, model, "{}", &result, {.job = i == 0 ? "old job" : "job"}));
    ids.push_back(result.id);
  }
  uint64_t before = 0, after = 0;
  REQUIRE_OK(store->disk_bytes(&before));
  PruneReport report;
  REQUIRE_OK(store->prune({.keep = 1, .dry_run = true}, &report));
  CHECK(report.removed == std::vector<std::string>{ids[4], ids[3], ids[2], ids[1]});
  REQUIRE_OK(store->disk_bytes(&after));
  CHECK(before == after);
  REQUIRE_OK(store->prune({.keep = 1}, &report));
  CHECK(report.kept == std::vector<std::string>{ids[5], ids[0]});
  CHECK(report.packs_removed == 4);
  REQUIRE_OK(store->disk_bytes(&after));
  CHECK(after + report.bytes_freed == before);
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(ids[5], &reader));
  CHECK(compare_model(*reader, model) == "");
  // The first pack is now used only in part, less than half once its own snapshot goes.
  REQUIRE_OK(store->prune({.remove = {ids[0]}}, &report));
  REQUIRE_OK(store->open_snapshot(ids[5], &reader));
  CHECK(compare_model(*reader, model) == "");
  VerifyReport verified;
  REQUIRE_OK(store->verify({.full = true}, &verified));
  CHECK(verified.ok());
}

TEST_CASE("a mostly unused pack is rewritten") {
  TemporaryDirectory dir;
  auto store = new_store(dir);
  Model big, small;
  big[0][0x100000] = some_bytes(5, 2 << 20);
  small[0][0x700000] = std::vector<uint8_t>(big[0][0x100000].begin() + 8192,
                                            big[0][0x100000].begin() + 8192 + 20 * 4096);
  CommitResult first, second;
  REQUIRE_OK(write_model(*store, big, "{}", &first));
  REQUIRE_OK(write_model(*store, small, "{}", &second));
  CHECK(second.new_bytes == 0);
  uint64_t before = 0, after = 0;
  REQUIRE_OK(store->disk_bytes(&before));
  std::unique_ptr<SnapshotReader> open_before;
  REQUIRE_OK(store->open_snapshot(second.id, &open_before));
  PruneReport report;
  REQUIRE_OK(store->prune({.keep = 1}, &report));
  CHECK(report.packs_rewritten == 1);
  REQUIRE_OK(store->disk_bytes(&after));
  CHECK(after < before / 4);
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(second.id, &reader));
  CHECK(compare_model(*reader, small) == "");
  CHECK(compare_model(*open_before, small) == "");
}
