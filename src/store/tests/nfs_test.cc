// Fear: a network file system. It shows directories as they were a while ago, remembers that a file
// was not there, answers a request that it carried out as if another machine had (the answer got
// lost, and the request was sent again), keeps removed files that are open under names of its own,
// forgets files that another machine removed, and has no advisory locks.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include <functional>
#include <set>

#include "store/store_internal.h"
#include "store/tests/faulty_env.h"
#include "testing.h"

using namespace gpuckpt;
using namespace gpuckpt::store;
namespace fs = std::filesystem;

namespace {

int advisory_locks = 0;  // asked for

}  // namespace

// The store never asks for a lock of the kernel's: there is none here.
extern "C" int flock(int, int) {
  ++advisory_locks;
  errno = ENOLCK;
  return -1;
}
extern "C" int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  long argument = va_arg(list, long);
  va_end(list);
  if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
      command == F_OFD_SETLKW) {
    ++advisory_locks;
    errno = EOPNOTSUPP;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fcntl, fd, command, argument));
}

namespace {

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// One machine's view of a directory that it shares with others. What it remembers of a directory it
// forgets when it changes something in it, and not before.
class Machine : public FaultyEnv {
 public:
  // Requests that change names, from now on; the one of this number is answered as if it were the
  // second time. Never: -1.
  int again = -1, requests = 0;

  int open_read(const std::string& path, std::unique_ptr<File>* out) override {
    if (missing_.count(path)) return ENOENT;
    std::unique_ptr<File> file;
    const int error = FaultyEnv::open_read(path, &file);
    if (error == ENOENT) missing_.insert(path);
    if (error) return error;
    auto& kept = open_[path];
    if (kept.expired()) {
      auto name = std::make_shared<Name>(path);
      kept = name;
      *out = std::make_unique<OpenFile>(std::move(file), name);
    } else {
      *out = std::make_unique<OpenFile>(std::move(file), kept.lock());
    }
    return 0;
  }
  int create(const std::string& path, std::unique_ptr<File>* out) override {
    changed(path);
    const int error = FaultyEnv::create(path, out);
    return !error && sent_twice() ? (out->reset(), EEXIST) : error;
  }
  int rename(const std::string& from, const std::string& to) override {
    changed(from);
    changed(to);
    const int error = FaultyEnv::rename(from, to);
    return !error && sent_twice() ? ENOENT : error;
  }
  int remove(const std::string& path) override {
    changed(path);
    int error;
    auto it = open_.find(path);
    std::shared_ptr<Name> name = it == open_.end() ? nullptr : it->second.lock();
    if (name) {
      name->path = directory_of(path) + "/.nfs" + std::to_string(++silly_);
      name->gone = true;
      error = FaultyEnv::rename(path, name->path);
      open_.erase(path);
    } else {
      error = FaultyEnv::remove(path);
    }
    return !error && sent_twice() ? ENOENT : error;
  }
  int list(const std::string& directory, std::vector<std::string>* names) override {
    auto it = listed_.find(directory);
    if (it != listed_.end()) return *names = it->second, 0;
    const int error = FaultyEnv::list(directory, names);
    if (!error) listed_[directory] = *names;
    return error;
  }
  int info(const std::string& path, FileInfo* out) override {
    if (missing_.count(path)) return ENOENT;
    const int error = FaultyEnv::info(path, out);
    if (error == ENOENT) missing_.insert(path);
    return error;
  }
  int sync_directory(const std::string&) override { return 0; }

 private:
  struct Name {
    std::string path;
    bool gone = false;
    explicit Name(std::string p) : path(std::move(p)) {}
    ~Name() {
      if (gone) (void)posix_env()->remove(path);
    }
  };
  class OpenFile : public File {
   public:
    OpenFile(std::unique_ptr<File> file, std::shared_ptr<Name> name)
        : name_(std::move(name)), file_(std::move(file)) {}
    int append(std::span<const std::span<const uint8_t>> parts) override {
      return file_->append(parts);
    }
    int pread(uint64_t offset, std::span<uint8_t> out) override {
      return file_->pread(offset, out);
    }
    int size(uint64_t* out) override { return file_->size(out); }
    int sync() override { return file_->sync(); }
    void start_writeback(uint64_t, uint64_t) override {}

   private:
    std::shared_ptr<Name> name_;
    std::unique_ptr<File> file_;
  };
  void changed(const std::string& path) {
    listed_.erase(directory_of(path));
    std::erase_if(missing_,
                  [&](const std::string& one) { return directory_of(one) == directory_of(path); });
  }
  bool sent_twice() { return requests++ == again; }

  std::map<std::string, std::vector<std::string>> listed_;
  std::set<std::string> missing_;
  std::map<std::string, std::weak_ptr<Name>> open_;
  int silly_ = 0;
};

Model model_of(uint64_t n) {
  Model model;
  model[0][0x400000] = some_bytes(1, 16 * 4096);
  model[0][0x900000] = some_bytes(100 + n, 8 * 4096);
  return model;
}

struct Shared {
  TemporaryDirectory dir;
  std::map<std::string, uint64_t> durable;  // id -> which model
  uint64_t taken = 0;

  Status snapshot(Machine* machine) {
    std::unique_ptr<Store> store;
    Status s = Store::open(dir.store(), {.env = machine, .create = true}, &store);
    CommitResult result;
    if (s.ok()) s = write_model(*store, model_of(taken), "{}", &result);
    if (s.ok()) durable[result.id] = taken;
    ++taken;
    return s;
  }
  // As a process that has nothing cached sees it.
  void check() {
    std::unique_ptr<Store> store;
    REQUIRE_OK(Store::open(dir.store(), {}, &store));
    VerifyReport report;
    REQUIRE_OK(store->verify({.full = true, .threads = 1}, &report));
    for (auto& [id, why] : report.damaged) FAIL_CHECK(id + " " + why);
    for (auto& [id, n] : durable) {
      INFO(id);
      std::unique_ptr<SnapshotReader> reader;
      REQUIRE_OK(store->open_snapshot(id, &reader));
      CHECK(compare_model(*reader, model_of(n)) == "");
    }
  }
  void keep_newest() {
    while (durable.size() > 1) durable.erase(durable.begin());
  }
};

}  // namespace

TEST_CASE("what another machine wrote a moment ago is seen by prune, repair and mirror") {
  Shared shared;
  Machine here, there;
  REQUIRE_OK(shared.snapshot(&there));
  for (int round = 0; round < 6; ++round) {
    std::unique_ptr<Store> store;
    std::vector<SnapshotInfo> list;
    REQUIRE_OK(Store::open(shared.dir.store(), {.env = &here}, &store));
    REQUIRE_OK(store->list(&list));  // from here on this is what it sees
    REQUIRE_OK(shared.snapshot(&there));
    if (round % 3 == 0) {
      PruneReport report;
      REQUIRE_OK(store->prune({.keep = 1}, &report));
      shared.keep_newest();
    } else if (round % 3 == 1) {
      RepairReport report;
      REQUIRE_OK(Store::repair(shared.dir.store(), {.env = &here}, false, &report));
      CHECK(report.lost.empty());
    } else {
      PruneReport report;
      REQUIRE_OK(store->prune({}, &report));
    }
    shared.check();
  }
  CHECK(advisory_locks == 0);
}

TEST_CASE("a request that was carried out and seems to have failed loses nothing") {
  enum What { kSnapshot, kPrune, kMirror };
  for (What what : {kSnapshot, kPrune, kMirror}) {
    for (int n = 0;; ++n) {
      REQUIRE(n < 200);
      Shared shared;
      Machine machine;
      for (int i = 0; i < 2; ++i) REQUIRE_OK(shared.snapshot(&machine));
      const std::string mirror = shared.dir.path() + "/mirror";
      auto work = [&] {
        if (what == kSnapshot) return shared.snapshot(&machine);
        if (what == kMirror) {
          MirrorReport report;
          std::unique_ptr<Store> store;
          Status opened = Store::open(shared.dir.store(), {.env = &machine}, &store);
          return opened.ok() ? mirror_store(&machine, {shared.dir.store(), nullptr, store->names()},
                                            &machine, mirror, &report)
                             : opened;
        }
        std::unique_ptr<Store> store;
        PruneReport report;
        Status s = Store::open(shared.dir.store(), {.env = &machine}, &store);
        return s.ok() ? store->prune({.keep = 1}, &report) : s;
      };
      if (what == kPrune) shared.keep_newest();
      machine.requests = 0;
      machine.again = n;
      Status status = work();
      const bool hit = machine.requests > n;
      machine.again = -1;
      INFO(what << ", request " << n << ": " << status.text());
      CHECK((status.ok() || status.code() == kExitError || status.code() == kExitAbsent));
      shared.check();
      Status after = work();
      INFO(after.text());
      REQUIRE(after.ok());
      shared.check();
      if (!hit) break;
    }
  }
}

TEST_CASE("files that are removed while they are open") {
  Shared shared;
  Machine machine;
  REQUIRE_OK(shared.snapshot(&machine));
  const std::string old = shared.durable.begin()->first;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(shared.dir.store(), {.env = &machine}, &store));
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(old, &reader));
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  REQUIRE_OK(writer->put(0, 0, some_bytes(9, 8192)));
  CommitResult result;
  REQUIRE_OK(writer->commit("{}", &result));
  writer.reset();
  PruneReport pruned;
  REQUIRE_OK(store->prune({.keep = 1}, &pruned));
  CHECK(pruned.removed == std::vector<std::string>{old});
  auto strange = [&] {
    size_t n = 0;
    for (const auto& entry : fs::directory_iterator(shared.dir.store() + "/packs"))
      n += entry.path().filename().string().starts_with(".nfs");
    return n;
  };
  CHECK(strange() > 0);
  CHECK(compare_model(*reader, model_of(0)) == "");  // goes on reading what it had begun
  shared.durable.clear();
  shared.check();
  REQUIRE_OK(shared.snapshot(&machine));
  reader.reset();
  CHECK(strange() == 0);
  shared.check();
}

TEST_CASE("a file that another machine removed is an error of the file system, and no damage") {
  Shared shared;
  Machine machine;
  for (int i = 0; i < 2; ++i) REQUIRE_OK(shared.snapshot(&machine));
  for (int n = 0;; ++n) {
    REQUIRE(n < 300);
    std::atomic<int> calls = 0;
    std::atomic<bool> hit = false;
    machine.before = [&](Call call, const std::string&) {
      if (call != Call::kRead && call != Call::kOpen) return 0;
      const int number = calls++;
      if (number == n) hit = true;
      return number == n ? ESTALE : 0;
    };
    RepairReport report;
    Status status = Store::repair(shared.dir.store(), {.env = &machine}, false, &report);
    machine.before = [](Call, const std::string&) { return 0; };
    INFO("call " << n << ": " << status.text());
    if (!status.ok()) {
      CHECK(status.code() == kExitError);
      CHECK(status.text().find("network file system") != std::string::npos);
    }
    CHECK(report.lost.empty());
    shared.check();
    if (!hit) break;
  }
}
