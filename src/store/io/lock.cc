#include "store/io/lock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <initializer_list>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/format/format.h"
#include "store/io/json_text.h"
#include "store/io/process_identity.h"

namespace gpuckpt::store {
namespace {

// A lock whose holder cannot be seen from here (another machine or pid namespace) is respected this
// long after its last refresh.
constexpr int64_t kForeignLifeNs = 30ll * 60 * 1'000'000'000;

// A lock file without a readable owner is respected this long.
constexpr int64_t kUnwrittenLifeNs = 60ll * 1'000'000'000;

LockKind kind_of(const std::string& name) {
  return name.starts_with("x") ? LockKind::kExclusive : LockKind::kShared;
}

bool is_here(const nlohmann::json& j) {
  return j.value("boot", "") == boot_id() &&
         j.value("pid_namespace", uint64_t{0}) == pid_namespace();
}

bool live(const nlohmann::json& j, int64_t age_ns) {
  if (is_here(j))
    return start_time(j.value("pid", int64_t{0})) == j.value("start_time", uint64_t{1});
  return age_ns < kForeignLifeNs;
}

// A network file system may show a directory as it was a while ago, until this machine changes
// something in it. The holder of an exclusive lock decides what is unused, and must see what others
// wrote.
Status look_anew(Env* env, const std::string& store, const std::string& id) {
  for (const char* directory : {"packs", "layers", "snapshots"}) {
    const std::string path = fmt::format("{}/{}/anew.{}.tmp", store, directory, id);
    std::unique_ptr<File> file;
    int error = env->create(path, &file);
    file.reset();
    if (!error) error = env->remove(path);
    if (error && error != ENOENT) return io_error("create", path, error);
  }
  return Status::Ok();
}

}  // namespace

Status list_locks(Env* env, const std::string& store, int64_t clock_ns,
                  std::vector<LockOwner>* out) {
  out->clear();
  std::string directory = store + "/locks";
  std::vector<std::string> names;
  if (int e = env->list(directory, &names)) return io_error("list", directory, e);
  if (clock_ns == 0) clock_ns = env->now_ns();
  for (const std::string& name : names) {
    std::string path = directory + "/" + name;
    FileInfo info;
    if (name.ends_with(".tmp") && env->info(path, &info) == 0 &&
        clock_ns - info.mtime_ns > kUnwrittenLifeNs)
      env->remove(path);  // the process that wrote it died before it had a lock
    if (!name.ends_with(".lock")) continue;
    std::vector<uint8_t> text;
    int error = env->info(path, &info);
    Status status =
        error ? io_error("look at", path, error) : read_file(env, path, 64 * 1024, &text);
    if (status.code() == kExitAbsent) continue;  // released meanwhile
    LockOwner owner;
    owner.file = name;
    // An error of the disk does not mean that the lock is gone.
    if (!status.ok() && status.code() != kExitCorrupt) {
      owner.kind = kind_of(name);
      owner.host = "unknown";
      owner.what = "cannot be read: " + status.text();
      out->push_back(std::move(owner));
      continue;
    }
    auto j = parse_json(text);
    // A machine that lost power left it incomplete: only its age is known.
    if (!j.is_object()) {
      owner.kind = kind_of(name);
      owner.host = "unknown";
      owner.what = "locking";
      owner.live = clock_ns - info.mtime_ns < kUnwrittenLifeNs;
    } else {
      try {
        owner.kind = j.value("kind", "") == "exclusive" ? LockKind::kExclusive : LockKind::kShared;
        owner.host = j.value("host", "");
        owner.pid = j.value("pid", int64_t{0});
        owner.what = j.value("what", "");
        owner.run = j.value("run", "");
        owner.here = is_here(j);
        owner.age_ns = clock_ns - info.mtime_ns;
        owner.live = live(j, clock_ns - info.mtime_ns);
      } catch (const nlohmann::json::exception&) {
        owner.what = "locking (unreadable)";
        owner.live = clock_ns - info.mtime_ns < kForeignLifeNs;
      }
    }
    out->push_back(std::move(owner));
  }
  return Status::Ok();
}

Status Lock::acquire(Env* env, const std::string& store, LockKind kind, const std::string& what,
                     std::unique_ptr<Lock>* out, const std::string& run) {
  uint8_t random[8];
  env->random(random, sizeof(random));
  std::unique_ptr<Lock> lock(new Lock);
  lock->env_ = env;
  lock->id_ = (kind == LockKind::kExclusive ? "x" : "s") + hex(random, sizeof(random));
  // The file is written under another name and renamed, so that a visible lock always names its
  // holder: a process that dies at this moment leaves no lock that others would have to wait for.
  std::string path = store + "/locks/" + lock->id_ + ".lock";
  std::string unnamed = store + "/locks/" + lock->id_ + ".tmp";
  std::unique_ptr<File> file;
  lock->path_ = unnamed;  // from here on the destructor removes it
  if (int e = env->create(unnamed, &file)) {
    lock->path_.clear();
    return io_error("create", unnamed, e);
  }
  nlohmann::json j = {{"kind", kind == LockKind::kExclusive ? "exclusive" : "shared"},
                      {"host", host_name()},
                      {"boot", boot_id()},
                      {"pid_namespace", pid_namespace()},
                      {"pid", getpid()},
                      {"start_time", start_time(getpid())},
                      {"what", what}};
  if (!run.empty()) j["run"] = run;
  std::string text = j.dump() + "\n";
  std::span<const uint8_t> parts[] = {{reinterpret_cast<const uint8_t*>(text.data()), text.size()}};
  if (int e = file->append(parts)) return io_error("write", unnamed, e);
  file.reset();
  if (int e = env->rename(unnamed, path)) {
    env->remove(path);  // it may exist all the same, because network file systems repeat requests
    return io_error("rename", unnamed, e);
  }
  lock->path_.swap(path);  // swapped, because remembering the path must not need memory
  path = lock->path_;

  FileInfo mine;
  if (int e = env->info(path, &mine)) return io_error("look at", path, e);
  std::vector<LockOwner> owners;
  if (Status status = list_locks(env, store, mine.mtime_ns, &owners); !status.ok()) return status;
  for (const LockOwner& owner : owners) {
    if (owner.file == lock->id_ + ".lock") continue;
    if (!owner.live) {
      env->remove(store + "/locks/" + owner.file);
      continue;
    }
    if (kind == LockKind::kShared && owner.kind == LockKind::kShared) continue;
    return Status::Locked(fmt::format(
        "store {} is locked by process {} on {} ({}): wait for it, or remove {}/locks/{} "
        "if you know that it is gone",
        store, owner.pid, owner.host, owner.what, store, owner.file));
  }
  if (kind == LockKind::kExclusive) {
    if (Status status = look_anew(env, store, lock->id_); !status.ok()) return status;
  }
  *out = std::move(lock);
  return Status::Ok();
}

Status is_writing(Env* env, const std::string& store, const std::string& run, bool* out) {
  *out = false;
  constexpr int64_t kRefreshedNs = 150ll * 1'000'000'000;  // writers do it every minute
  std::vector<LockOwner> owners;
  if (Status status = list_locks(env, store, 0, &owners); !status.ok()) return status;
  for (const LockOwner& owner : owners)
    *out |= owner.live && owner.run == run && (owner.here || owner.age_ns < kRefreshedNs);
  return Status::Ok();
}

Lock::~Lock() {
  if (!path_.empty()) env_->remove(path_);
}

void Lock::refresh() { env_->touch(path_); }

}  // namespace gpuckpt::store
