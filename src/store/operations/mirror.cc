// A second store that has, or will have, every snapshot of the first: the same files under the same
// names, so that whatever reads the one reads the other. Files are copied in the order of writes
// (packs, layers, manifest), each whole under a temporary name first. Files that are there already
// are not copied again, so an interrupted mirror is simply started again.
//
// A mirror keeps what its source prunes; it is pruned by itself.

#include <errno.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/json_text.h"
#include "store/io/remote.h"
#include "store/store_internal.h"

namespace gpuckpt::store {
namespace {

constexpr uint64_t kPiece = 4ull << 20;
constexpr uint64_t kMaxStateBytes = 64ull << 20;

class Mirror {
 public:
  Mirror(Env* env, const Paths& paths, Env* to_env, const std::string& target, MirrorReport* report)
      : env_(env),
        from_(paths),
        to_env_(to_env),
        to_{target, paths.keys, paths.names},
        report_(report) {}

  Status run() {
    if (Status s = prepare(); !s.ok()) return s;
    if (Status s = look(); !s.ok()) return s;
    std::vector<std::string> ids;
    Status status = copy_all(&ids);
    report_->there = std::make_unique<std::vector<std::string>>();
    for (const std::string& id : ids) {
      if (there_.count(to_.manifest(id))) report_->there->push_back(id);
    }
    return status;
  }

 private:
  // `ids` gets those snapshots of the store that the last listing found.
  Status copy_all(std::vector<std::string>* ids) {
    // Repeats until nothing is new: a writer that finishes meanwhile finds our lock and leaves its
    // snapshot to this process.
    for (bool more = true; more;) {
      if (Status s = list_snapshots(env_, from_, ids); !s.ok()) return s;
      more = false;
      for (const std::string& id : *ids) {
        if (done_.count(id)) continue;
        Status s = snapshot(id);
        done_.insert(id);
        if (s.code() == kExitAbsent) continue;  // pruned meanwhile
        if (s.code() == kExitCorrupt) {         // the others can still be saved
          report_->damaged.push_back({id, s.text()});
          continue;
        }
        if (!s.ok()) return s;
        more = true;
      }
    }
    return Status::Ok();
  }

  // The target becomes a store with the source's id, so that the source's key is its key.
  Status prepare() {
    std::vector<uint8_t> ours, theirs;
    if (Status s = read_file(env_, from_.root + "/format", 64 * 1024, &ours); !s.ok()) return s;
    FileInfo info;
    int error = to_env_->info_followed(to_.root, &info);
    if (error == ENOENT) error = to_env_->mkdir(to_.root);
    if (error) return io_error("open mirror", to_.root, error);
    if (Status s = check_store_owner(to_env_, to_.root); !s.ok()) return s;
    const std::string format = to_.root + "/format";
    if (to_env_->info(format, &info) == ENOENT) {
      if (Status s = make_store_directories(to_env_, to_.root); !s.ok()) return s;
      if (Status s = lock(); !s.ok()) return s;
      return copy(from_.root + "/format", to_.root, "format");
    }
    if (Status s = read_file(to_env_, format, 64 * 1024, &theirs); !s.ok()) return s;
    if (ours != theirs) {
      return Status::Refused(
          fmt::format("{} is another store than {}, not its mirror: choose an empty directory",
                      to_.root, from_.root));
    }
    return lock();
  }

  Status lock() {
    if (Status s = Lock::acquire(to_env_, to_.root, LockKind::kExclusive, "mirroring", &theirs_);
        !s.ok())
      return s;
    // The target may have another path to the same directory: a lock made there is seen here then.
    FileInfo info;
    if (env_->info(fmt::format("{}/locks/{}.lock", from_.root, theirs_->id()), &info) == 0)
      return Status::Refused("a store cannot be its own mirror");
    Status s = Lock::acquire(env_, from_.root, LockKind::kShared, "being mirrored", &ours_);
    if (s.ok()) (void)remove_stale_files(to_env_, to_, nullptr);
    return s;
  }

  Status look() {
    for (const std::string& directory : {to_.packs(), to_.layers(), to_.snapshots()}) {
      std::vector<std::string> names;
      if (int e = to_env_->list(directory, &names); e && e != ENOENT)
        return io_error("list", directory, e);
      FileInfo info;
      for (const std::string& name : names) {
        if (to_env_->info(directory + "/" + name, &info) == 0)
          there_[directory + "/" + name] = info.size;
      }
    }
    return Status::Ok();
  }

  Status snapshot(const std::string& id) {
    if (there_.count(to_.manifest(id))) return Status::Ok();
    Manifest manifest;
    if (Status s = load_manifest(env_, from_, id, &manifest); !s.ok()) return s;
    for (const PackRef& pack : manifest.packs) {
      auto it = there_.find(to_.pack(pack.id));
      if (it != there_.end() && it->second == pack.file_length) continue;
      if (Status s = check_pack(pack); !s.ok()) return s.in("snapshot " + id);
      if (Status s = copy(from_.pack(pack.id), to_.packs(), pack_file(pack.id)); !s.ok()) return s;
    }
    for (const SharedLayer& layer : manifest.layers) {
      std::string path = to_.layer(layer.ref.name);
      auto it = there_.find(path);
      if (it != there_.end() && it->second == layer.ref.file_length) continue;
      Status s = copy(from_.layer(layer.ref.name), to_.layers(), hex(layer.ref.name) + ".layer");
      if (!s.ok()) return s;
    }
    if (Status s = sync_store(to_env_, to_.root); !s.ok()) return s;
    for (const std::string& directory : {to_.packs(), to_.layers()}) {
      if (int e = to_env_->sync_directory(directory)) return io_error("sync", directory, e);
    }
    if (Status s = copy(from_.manifest(id), to_.snapshots(), id + ".manifest"); !s.ok()) return s;
    if (int e = to_env_->sync_directory(to_.snapshots()))
      return io_error("sync", to_.snapshots(), e);
    ++report_->snapshots;
    return Status::Ok();
  }

  // Reads what is copied as a restore would, so that damage is not spread.
  Status check_pack(const PackRef& ref) {
    std::unique_ptr<PackReader> pack;
    if (Status s = open_pack(env_, from_, ref.id, &pack); !s.ok()) {
      return s.code() == kExitAbsent ? Status::Corruption(s.text()) : s;
    }
    if (pack->table().table_checksum != ref.table_checksum)
      return Status::Corruption(fmt::format("pack {} is not the one it needs", pack->path()));
    for (uint32_t f = 0; f < pack->table().frames.size(); ++f) {
      if (Status s = pack->check_frame(f); !s.ok()) return s;
    }
    return Status::Ok();
  }

  Status copy(const std::string& source, const std::string& directory, const std::string& name) {
    const std::string pending = fmt::format("{}/{}.{}.tmp", directory, name, theirs_->id());
    std::unique_ptr<File> in, out;
    uint64_t length = 0;
    if (int e = env_->open_read(source, &in)) return io_error("open", source, e);
    if (int e = in->size(&length)) return io_error("read", source, e);
    if (int e = to_env_->create(pending, &out)) return io_error("create", pending, e);
    std::vector<uint8_t> piece;
    int error = 0;
    for (uint64_t at = 0; !error && at < length; at += piece.size()) {
      piece.resize(std::min(kPiece, length - at));
      if (int e = in->pread(at, piece)) {
        to_env_->remove(pending);
        return io_error("read", source, e);
      }
      std::span<const uint8_t> parts[] = {piece};
      error = out->append(parts);
      refresh();
    }
    if (!error) error = out->sync();
    if (!error) error = to_env_->rename(pending, directory + "/" + name);
    if (error) {
      to_env_->remove(pending);
      return io_error("write", pending, error);
    }
    there_[directory + "/" + name] = length;
    ++report_->files;
    report_->bytes += length;
    return Status::Ok();
  }

  void refresh() {
    constexpr int64_t kMinute = 60'000'000'000;
    int64_t now = env_->now_ns();
    if (now - refreshed_ns_ < kMinute && now >= refreshed_ns_) return;
    refreshed_ns_ = now;
    theirs_->refresh();
    if (ours_) ours_->refresh();
  }

  Env* env_;
  const Paths& from_;
  Env* to_env_;
  Paths to_;
  MirrorReport* report_;
  std::unique_ptr<Lock> ours_, theirs_;
  std::map<std::string, uint64_t> there_;  // path -> size
  std::set<std::string> done_;
  int64_t refreshed_ns_ = 0;
};

// Records what `list` shows about the mirror. Best effort: it is derived from the mirror itself.
void remember(Env* env, const Paths& paths, const MirrorState& state) {
  const nlohmann::json j = {{"target", state.target},
                            {"snapshots", state.snapshots},
                            {"time_ns", state.time_ns},
                            {"error", state.error}};
  (void)replace_file(env, paths.root, "mirror",
                     j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

Status check_apart(const std::string& store, const std::string& target) {
  namespace fs = std::filesystem;
  if (is_remote(target) || is_remote(store)) return Status::Ok();
  const auto place = [](const std::string& path) {
    std::error_code error;
    const fs::path whole = fs::weakly_canonical(path, error);
    std::string text = error ? path : whole.string();
    while (text.size() > 1 && text.back() == '/') text.pop_back();
    return text;
  };
  const std::string here = place(store), there = place(target);
  if (there == here)
    return Status::Refused(fmt::format(
        "{} is the store itself: a mirror is another directory, on another disk", target));
  if (there.starts_with(here + "/"))
    return Status::Refused(
        fmt::format("{} is inside of the store: it would be lost with it", target));
  return Status::Ok();
}

Status mirror_store(Env* env, const Paths& paths, Env* to_env, const std::string& given,
                    MirrorReport* report) {
  *report = {};
  std::string target = given;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  if (Status status = check_apart(paths.root, target); !status.ok()) return status;
  std::unique_ptr<MirrorState> state = read_mirror_state(env, paths);
  if (!state) {
    state.reset(new MirrorState{.target = target});
    remember(env, paths, *state);  // before the first copy, which may take long
  }
  Status status = Mirror(env, paths, to_env, target, report).run();
  // The holder of the lock mirrors this snapshot as well, and reports the result at the end.
  if (status.code() == kExitLocked) return status;
  if (state->target != target) {
    if (!report->there && !state->snapshots.empty())
      return status;  // not a mirror of this store: the recorded one stays
    *state = {.target = target};
  }
  if (report->there) state->snapshots = *report->there;
  state->time_ns = env->now_ns();
  state->error = !status.ok()               ? status.text()
                 : !report->damaged.empty() ? report->damaged.back().second
                                            : "";
  remember(env, paths, *state);
  return status;
}

bool MirrorState::has(const std::string& id) const {
  return std::binary_search(snapshots.begin(), snapshots.end(), id);
}

std::unique_ptr<MirrorState> read_mirror_state(Env* env, const Paths& paths) {
  std::vector<uint8_t> text;
  if (!read_file(env, paths.root + "/mirror", kMaxStateBytes, &text).ok()) return nullptr;
  auto j = parse_json(text);
  try {
    auto state = std::make_unique<MirrorState>();
    j.at("target").get_to(state->target);
    j.at("snapshots").get_to(state->snapshots);
    j.at("time_ns").get_to(state->time_ns);
    j.at("error").get_to(state->error);
    // Earlier releases recorded a mirror that they had refused.
    if (!check_apart(paths.root, state->target).ok()) return nullptr;
    std::sort(state->snapshots.begin(), state->snapshots.end());
    return state;
  } catch (const nlohmann::json::exception&) {
    return nullptr;  // another version, or invalid: the next mirroring writes it anew
  }
}

}  // namespace gpuckpt::store
