// Fear: the power fails, and the disk kept some of what was not synced, in any order.
//
// A file system in memory keeps apart what is durable and what is not. At the crash every block
// that was not synced survives or not, and so does every name made, changed or removed since its
// directory was synced. Whatever the outcome: each snapshot that was reported durable, and not
// pruned, is whole; each that can be seen at all is whole; and the store keeps working. The same of
// its mirror, on which the power fails as well.
//
//   store_power_loss_test [seeds]     the soak command gives more of them

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "store/store.h"
#include "store/store_internal.h"
#include "store/tests/must.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kBlock = 512;

struct Inode {
  Bytes data;         // as programs see it
  size_t synced = 0;  // this much of it is durable
};
using Names = std::map<std::string, std::shared_ptr<Inode>>;

// A change of names that its directory does not remember yet.
struct Change {
  std::string directory, name, old_name;  // old_name: where it was before (rename)
  std::shared_ptr<Inode> inode;           // null: removed
};

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

class FragileEnv : public Env {
 public:
  int64_t power_left = -1;  // changes until the power fails; -1: never
  int64_t changes = 0;
  bool dark = false;

  int open_read(const std::string& path, std::unique_ptr<File>* out) override {
    if (dark) return EIO;
    auto it = names_.find(path);
    if (it == names_.end()) return directories_.count(path) ? EISDIR : ENOENT;
    *out = std::make_unique<MemoryFile>(this, it->second);
    return 0;
  }
  int create(const std::string& path, std::unique_ptr<File>* out) override {
    if (!step()) return EIO;
    if (!directories_.count(directory_of(path))) return ENOENT;
    if (names_.count(path)) return EEXIST;
    auto inode = std::make_shared<Inode>();
    names_[path] = inode;
    pending_.push_back({directory_of(path), path, "", inode});
    *out = std::make_unique<MemoryFile>(this, inode);
    return 0;
  }
  int mkdir(const std::string& path) override {
    if (!step()) return EIO;
    return directories_.insert(path).second ? 0 : EEXIST;
  }
  int rename(const std::string& from, const std::string& to) override {
    if (!step()) return EIO;
    auto it = names_.find(from);
    if (it == names_.end()) return ENOENT;
    std::shared_ptr<Inode> inode = it->second;
    names_.erase(it);
    names_[to] = inode;
    pending_.push_back({directory_of(to), to, from, inode});
    return 0;
  }
  int remove(const std::string& path) override {
    if (!step()) return EIO;
    if (!names_.erase(path)) return ENOENT;
    pending_.push_back({directory_of(path), path, "", nullptr});
    return 0;
  }
  int list(const std::string& directory, std::vector<std::string>* out) override {
    out->clear();
    if (dark) return EIO;
    if (!directories_.count(directory)) return ENOENT;
    std::string prefix = directory + "/";
    auto add = [&](const std::string& path) {
      if (path.starts_with(prefix) && path.find('/', prefix.size()) == std::string::npos)
        out->push_back(path.substr(prefix.size()));
    };
    for (auto& [path, inode] : names_) add(path);
    for (auto& path : directories_) add(path);
    return 0;
  }
  int info(const std::string& path, FileInfo* out) override {
    if (dark) return EIO;
    *out = {};
    out->uid = geteuid();
    out->mode = 0700;
    out->mtime_ns = now_ns();
    if (directories_.count(path)) return out->directory = true, 0;
    auto it = names_.find(path);
    if (it == names_.end()) return ENOENT;
    out->regular = true;
    out->size = it->second->data.size();
    return 0;
  }
  int info_followed(const std::string& path, FileInfo* out) override { return info(path, out); }
  int sync_directory(const std::string& directory) override {
    if (!step()) return EIO;
    std::vector<Change> rest;
    for (Change& change : pending_) {
      if (change.directory == directory) {
        remember(change);
      } else {
        rest.push_back(change);
      }
    }
    pending_ = std::move(rest);
    return 0;
  }
  int touch(const std::string&) override { return 0; }
  int free_bytes(const std::string&, uint64_t* out) override { return *out = 1ull << 40, 0; }
  int64_t now_ns() override { return clock_ += 1'000'000; }
  void random(void* out, size_t length) override {
    for (size_t i = 0; i < length; ++i) static_cast<uint8_t*>(out)[i] = uint8_t(ids_());
  }

  // The process is gone, the machine is not.
  void kill() {
    for (auto it = names_.begin(); it != names_.end();)
      it = it->first.find("/locks/") != std::string::npos ? names_.erase(it) : std::next(it);
    dark = false;
    power_left = -1;
  }
  // The machine is off: what is left when it comes back.
  void crash(std::mt19937& dice) {
    for (Change& change : pending_) {
      if (dice() % 2) remember(change);
    }
    // Names whose inode is not theirs alone keep it; blocks that were not synced are lost or kept
    // one by one, and what is lost reads as zeros or as something else.
    names_ = durable_;
    std::set<Inode*> seen;
    for (auto& [path, inode] : names_) {
      if (!seen.insert(inode.get()).second) continue;
      size_t length = inode->synced + dice() % (inode->data.size() - inode->synced + 1);
      for (size_t at = inode->synced; at < length; at += kBlock) {
        if (dice() % 2) continue;
        for (size_t i = at; i < std::min(length, at + kBlock); ++i)
          inode->data[i] = dice() % 4 ? 0 : uint8_t(dice());
      }
      inode->data.resize(length);
      inode->synced = length;
    }
    pending_.clear();
    // The locks' processes are gone; here they would seem to live, for they were all us.
    for (auto it = names_.begin(); it != names_.end();)
      it = it->first.find("/locks/") != std::string::npos ? names_.erase(it) : std::next(it);
    durable_ = names_;
    dark = false;
    power_left = -1;
  }

 private:
  class MemoryFile : public File {
   public:
    MemoryFile(FragileEnv* env, std::shared_ptr<Inode> inode)
        : env_(env), inode_(std::move(inode)) {}
    int append(std::span<const std::span<const uint8_t>> parts) override {
      for (auto part : parts) {
        if (!env_->step()) {  // torn: some of it was on its way
          inode_->data.insert(inode_->data.end(), part.begin(), part.begin() + part.size() / 2);
          return EIO;
        }
        inode_->data.insert(inode_->data.end(), part.begin(), part.end());
      }
      return 0;
    }
    int pread(uint64_t offset, std::span<uint8_t> out) override {
      if (env_->dark) return EIO;
      if (offset > inode_->data.size() || out.size() > inode_->data.size() - offset) return ENODATA;
      std::copy_n(inode_->data.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
      return 0;
    }
    int size(uint64_t* out) override { return *out = inode_->data.size(), 0; }
    int sync() override {
      if (!env_->step()) return EIO;
      inode_->synced = inode_->data.size();
      return 0;
    }
    void start_writeback(uint64_t, uint64_t) override {}

   private:
    FragileEnv* env_;
    std::shared_ptr<Inode> inode_;
  };
  bool step() {
    if (dark) return false;
    ++changes;
    if (power_left > 0) --power_left;
    dark = power_left == 0;
    return !dark;
  }
  void remember(const Change& change) {
    if (!change.old_name.empty()) durable_.erase(change.old_name);
    if (change.inode) {
      durable_[change.name] = change.inode;
    } else {
      durable_.erase(change.name);
    }
  }

  Names names_, durable_;
  std::set<std::string> directories_{"/"};
  std::vector<Change> pending_;
  std::mt19937 ids_{7};
  int64_t clock_ = 1'800'000'000'000'000'000;
};

using Model = std::map<uint64_t, Bytes>;  // page -> bytes
constexpr uint64_t kBase = 0x7f0000000000;

void dirty(Model* model, std::mt19937& dice, int pages) {
  for (int i = 0; i < pages; ++i) {
    Bytes page(4096);
    for (uint8_t& b : page) b = uint8_t(dice());
    (*model)[dice() % 400] = std::move(page);
  }
}

Status take(Store& store, const Model& model, const Model& before, const std::string& parent,
            CommitResult* result) {
  std::unique_ptr<SnapshotWriter> writer;
  if (Status s = store.begin({.job = "j", .parent = parent, .level = 1}, &writer); !s.ok())
    return s;
  for (auto& [page, bytes] : model) {
    auto it = before.find(page);
    bool same = !writer->parent().empty() && it != before.end() && it->second == bytes;
    uint64_t at = kBase + page * 4096;
    Status s = same ? writer->put_same(0, at, 4096) : writer->put(0, at, bytes);
    if (!s.ok()) return s;
  }
  return writer->commit("{}", result);
}

struct World {
  std::map<std::string, Model> durable;   // reported, and not pruned since
  std::set<std::string> doubtful;         // being pruned when the power failed
  std::map<std::string, Model> mirrored;  // reported to be in the mirror, which keeps them
};

const Paths kStore{"/store"};
const std::string kMirror = "/mirror";

Status mirror(FragileEnv* env, MirrorReport* report) {
  std::unique_ptr<Store> store;
  Status status = Store::open(kStore.root, {.env = env}, &store);
  if (!status.ok()) return status;
  return mirror_store(env, {kStore.root, nullptr, store->names()}, env, kMirror, report);
}

// Snapshots, prunes, snapshots again, until it is done or the power fails.
void work(FragileEnv* env, uint32_t seed, World* world, int rounds = 7) {
  std::mt19937 dice(seed);
  std::unique_ptr<Store> store;
  if (!Store::open("/store", {.env = env, .create = true}, &store).ok()) return;
  Model model, before;
  std::string parent;
  for (int round = 0; round < rounds; ++round) {
    dirty(&model, dice, round == 0 ? 400 : 60);
    if (round == 3) model.erase(model.begin());
    CommitResult result;
    if (!take(*store, model, before, parent, &result).ok()) return;
    world->durable[result.id] = model;
    parent = result.id;
    before = model;
    if (round == 1 || round == 3 || round == 6) {
      MirrorReport report;
      if (!mirror(env, &report).ok()) return;
      world->mirrored.insert(world->durable.begin(), world->durable.end());
    }
    if (round != 2 && round != 5) continue;
    std::string newest = world->durable.rbegin()->first;
    for (auto& [id, content] : world->durable) {
      if (id != newest) world->doubtful.insert(id);
    }
    PruneReport report;
    if (!store->prune({.keep = 1}, &report).ok()) return;
    for (const std::string& id : world->doubtful) world->durable.erase(id);
    world->doubtful.clear();
  }
}

void check_whole(Store& store, const char* when, long point) {
  VerifyReport report;
  Status status = store.verify({.full = true, .threads = 1}, &report);
  MUST(status.ok() && report.damaged.empty(), "%s %ld: %s %s", when, point, status.text().c_str(),
       report.damaged.empty() ? "" : report.damaged[0].second.c_str());
}

void check_snapshot(const SnapshotReader& reader, const Model& model, const char* when,
                    long point) {
  uint64_t bytes = 0;
  for (const Extent& extent : reader.extents(0)) bytes += extent.length;
  MUST(bytes == model.size() * 4096, "%s %ld: %s has other pages", when, point,
       reader.id().c_str());
  for (auto& [page, wanted] : model) {
    Bytes got(4096);
    Status status = reader.read(0, kBase + page * 4096, got);
    MUST(status.ok() && got == wanted, "%s %ld: page %lu of %s: %s", when, point,
         static_cast<unsigned long>(page), reader.id().c_str(), status.text().c_str());
  }
}

// What the mirror was said to have it has; then it is mirrored to again, and has all.
void check_mirror(FragileEnv* env, const World& world, const char* when, long point) {
  for (bool again : {false, true}) {
    if (again) {
      MirrorReport report;
      Status status = mirror(env, &report);
      MUST(status.ok() && report.damaged.empty(), "%s %ld, mirroring again: %s", when, point,
           status.text().c_str());
    } else if (world.mirrored.empty()) {
      continue;
    }
    std::unique_ptr<Store> mirror, store;
    Status status = Store::open(kMirror, {.env = env}, &mirror);
    MUST(status.ok(), "%s %ld: %s", when, point, status.text().c_str());
    check_whole(*mirror, when, point);
    for (auto& [id, model] : world.mirrored) {
      std::unique_ptr<SnapshotReader> reader;
      status = mirror->open_snapshot(id, &reader);
      MUST(status.ok(), "%s %ld, mirror: %s", when, point, status.text().c_str());
      check_snapshot(*reader, model, when, point);
    }
    std::vector<SnapshotInfo> all;
    MUST(Store::open(kStore.root, {.env = env}, &store).ok() && store->list(&all).ok(), "list");
    for (const SnapshotInfo& info : all) {
      std::unique_ptr<SnapshotReader> reader;
      if (again) status = mirror->open_snapshot(info.id, &reader);
      MUST(status.ok(), "%s %ld, not mirrored: %s", when, point, status.text().c_str());
    }
  }
}

void check(FragileEnv* env, const World& world, const char* when, long point) {
  std::unique_ptr<Store> store;
  // Made anew only where nothing was promised.
  const bool create = world.durable.empty();
  Status status = Store::open("/store", {.env = env, .create = create}, &store);
  MUST(status.ok(), "%s %ld: %s", when, point, status.text().c_str());
  check_whole(*store, when, point);
  for (auto& [id, model] : world.durable) {
    std::unique_ptr<SnapshotReader> reader;
    status = store->open_snapshot(id, &reader);
    if (status.code() == kExitAbsent && world.doubtful.count(id)) continue;
    MUST(status.ok(), "%s %ld: %s", when, point, status.text().c_str());
    check_snapshot(*reader, model, when, point);
  }
  check_mirror(env, world, when, point);
  // The store keeps working.
  Model model;
  std::mt19937 dice(99);
  dirty(&model, dice, 5);
  CommitResult result;
  status = take(*store, model, {}, "", &result);
  MUST(status.ok(), "%s %ld: %s", when, point, status.text().c_str());
  PruneReport pruned;
  status = store->prune({.keep = 2}, &pruned);
  MUST(status.ok(), "%s %ld: %s", when, point, status.text().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t seeds = static_cast<uint32_t>(argc > 1 ? atoi(argv[1]) : 1);
  long crashes = 0;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    FragileEnv whole;
    World all;
    work(&whole, seed, &all);
    MUST(!whole.dark && all.durable.size() == 2, "seed %u: nothing failed, yet not all was done",
         seed);
    check(&whole, all, "unharmed", 0);
    // Around every sync and rename there are few changes, and they matter; so each is tried.
    for (int64_t point = 1; point < whole.changes; ++point) {
      FragileEnv env;
      World world;
      env.power_left = point;
      work(&env, seed, &world);
      std::mt19937 dice(seed * 1000003u + static_cast<uint32_t>(point));
      env.crash(dice);
      check(&env, world, "power lost at change", point);
      ++crashes;
    }
    // One process dies, another continues its work, and then the power fails: what the first had
    // not made durable, and no process writes again, is lost.
    for (int64_t point = 1; point < whole.changes; point += point < 30 ? 1 : 17) {
      for (uint32_t roll = 0; roll < (point < 30 ? 4 : 1); ++roll) {
        FragileEnv env;
        World died, world;
        env.power_left = point;
        work(&env, seed, &died);
        env.kill();
        work(&env, seed + 1000, &world, 1);
        MUST(!env.dark && world.durable.size() == 1, "a second life after %ld changes failed",
             static_cast<long>(point));
        std::mt19937 dice((seed * 1000003u + static_cast<uint32_t>(point)) * 31 + roll);
        env.crash(dice);
        check(&env, world, "killed, and power lost, after change", point);
        ++crashes;
      }
    }
  }
  printf("%ld crashes, 0 snapshots lost\nEXIT-SUCCESS\n", crashes);
  return 0;
}
