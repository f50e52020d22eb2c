#include "store/store.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/job_line.h"
#include "store/io/json_text.h"
#include "store/io/memory.h"
#include "store/io/remote.h"
#include "store/store_internal.h"

namespace gpuckpt::store {
namespace {

// The contents of the file "format".
struct Format {
  uint64_t version = kStoreVersion;
  std::string id;
  std::string names = {};  // the key of the names, hexadecimal; empty: derived, or of version 2
  std::string key = {};    // Keys::check() of an encrypted store

  // The file, exactly: one line of JSON in this order, with XXH3-128 of the texts of version, id
  // and names as its check (in version 2: of id alone).
  std::string text() const {
    const std::string summed =
        version == kUnkeyedVersion ? id : std::to_string(version) + id + names;
    const auto part = [](const char* label, const std::string& value) {
      return value.empty() ? "" : fmt::format("\"{}\":\"{}\",", label, value);
    };
    return fmt::format(
        "{{\"format\":\"gpuckpt store\",\"version\":{},\"id\":\"{}\",{}{}\"check\":\"{}\"}}\n",
        version, id, part("names", names), part("key", key),
        hex(sum128(summed.data(), summed.size())));
  }
  // Checks that the parts fit each other. `hash`: the key of the names, where the file has one.
  bool makes_sense(HashKey* hash) const {
    if (version == kUnkeyedVersion) return names.empty();
    return key.empty() ? unhex(names, hash->byte, sizeof(hash->byte)) : names.empty();
  }
};

std::string random_id(Env* env) {
  uint8_t id[16] = {};
  env->random(id, sizeof(id));
  return hex(id, sizeof(id));
}

// Reads the file "format": how chunks are named, and the keys when the store is encrypted.
Status check_format(const std::string& path, std::span<const uint8_t> bytes,
                    const std::string& key_file, Paths* out) {
  std::string text(bytes.begin(), bytes.end());
  auto j = parse_json(text);
  auto is = [&](const char* key, auto check) {
    return j.is_object() && j.contains(key) && check(j[key]);
  };
  bool named = is("format", [](const auto& v) { return v == "gpuckpt store"; });
  bool versioned = is("version", [](const auto& v) { return v.is_number_unsigned(); });
  Format said;
  if (named && versioned) said.version = j["version"].get<uint64_t>();
  if (said.version != kStoreVersion && said.version != kUnkeyedVersion) {
    return Status::Incompatible(fmt::format(
        "store {} has format version {}; this gpuckpt reads versions {} and {}: use the gpuckpt "
        "that wrote it, or a newer one",
        path, said.version, kUnkeyedVersion, kStoreVersion));
  }
  said.id = json_text(j, "id");
  said.names = json_text(j, "names");
  const std::string key = said.key = json_text(j, "key");
  HashKey hash{};
  if (!named || !versioned || text != said.text() || !said.makes_sense(&hash)) {
    return Status::Corruption(
        fmt::format("{}/format is damaged: it is not the description of a gpuckpt store "
                    "(`gpuckpt repair` writes it anew when the rest is whole)",
                    path));
  }
  const bool keyed = said.version != kUnkeyedVersion;
  if (key.empty() && key_file.empty()) {
    out->names = keyed ? Names::keyed(hash, nullptr) : Names::unkeyed(nullptr);
    return Status::Ok();
  }
  if (key.empty()) {
    return Status::Refused(fmt::format(
        "store {} is not encrypted: leave --key-file away, or choose a new directory for --store",
        path));
  }
  if (key_file.empty()) {
    return Status::Refused(fmt::format(
        "store {} is encrypted: give its key with --key-file FILE (or GPUCKPT_KEY_FILE)", path));
  }
  if (Status status = Keys::load(key_file, said.id, &out->keys); !status.ok()) return status;
  if (out->keys->check() != key) {
    return Status::Refused(fmt::format(
        "{} is not the key of store {} (the store itself was not looked at)", key_file, path));
  }
  out->names = keyed ? Names::keyed(out->keys->hash_key(), out->keys) : Names::unkeyed(out->keys);
  return Status::Ok();
}

bool one_of_ours(const std::string& name) {
  return name == "packs" || name == "layers" || name == "snapshots" || name == "locks" ||
         name == "jobs" || name.starts_with("format");
}

Status check_owner(Env* env, const std::string& path, const FileInfo& info,
                   const Store::Options& options) {
  // A user who owns the folder can redirect a writer's files, or exchange snapshots.
  const bool writes = options.create || options.write;
  if (options.any_owner && !(writes && geteuid() == 0)) return Status::Ok();
  if (info.uid != geteuid() && writes)
    return Status::Refused(
        fmt::format("store {} belongs to user {}, and snapshots are written as user {} here (a "
                    "program that gave up "
                    "root's rights has its own user's): name another one (--store)",
                    path, info.uid, geteuid()));
  if (info.uid != geteuid()) {
    return Status::Refused(fmt::format(
        "store {} belongs to user {}, not to you (user {}): a snapshot is a program that will "
        "run as you; --any-owner if you trust its owner{}",
        path, info.uid, geteuid(),
        geteuid() == 0 ? ": it runs with that user's rights then, and with all that it had from a "
                         "store of yours (chown -R)"
                       : ""));
  }
  if (!(info.mode & 022)) return Status::Ok();
  FileInfo format;
  if (env->info(path + "/format", &format) != 0) {
    return Status::Refused(fmt::format(
        "{} can be written by other users (mode {:o}) and cannot be a store: name a directory of "
        "your own, or one that does not exist yet (--store {}/NAME makes it, for you alone)",
        path, info.mode, path == "/" ? "" : path));
  }
  return Status::Refused(fmt::format(
      "store {} can be written by other users (mode {:o}), who may have exchanged what is in it: "
      "if you trust all of them, take that permission away (chmod go-w {})",
      path, info.mode, path));
}

Status write_format(Env* env, const std::string& path, const std::string& key_file) {
  // Of two processes that create the store at once, the last rename wins, and every later process
  // reads that file.
  Format format{.id = random_id(env)};
  if (!key_file.empty()) {
    std::shared_ptr<const Keys> keys;
    if (Status status = Keys::load(key_file, format.id, &keys); !status.ok()) return status;
    format.key = keys->check();
  } else {
    format.names = random_id(env);
  }
  return replace_file(env, path, "format", format.text());
}

// The format of a store that was lost, as its mirror has it: a store made anew with it is the same
// store; otherwise the mirror would belong to another one. Empty when there is none that the key
// opens.
std::string format_of_mirror(const std::string& mirror, const std::string& key_file) {
  std::vector<uint8_t> text;
  Paths ignored{mirror};
  if (mirror.empty() || !check_store_owner(env_for(mirror), mirror).ok() ||
      !read_file(env_for(mirror), mirror + "/format", 64 * 1024, &text).ok() ||
      !check_format(mirror, text, key_file, &ignored).ok()) {
    return "";
  }
  return {text.begin(), text.end()};
}

Status create_store(Env* env, const std::string& path, const std::string& key_file,
                    const std::string& mirror) {
  if (Status status = make_store_directories(env, path); !status.ok()) return status;
  // One creator at a time: what is derived from the id in "format" must not change after a process
  // has read it.
  std::unique_ptr<Lock> lock;
  for (int attempt = 0;; ++attempt) {
    Status status = Lock::acquire(env, path, LockKind::kExclusive, "creating the store", &lock);
    FileInfo info;
    if (env->info(path + "/format", &info) == 0) return Status::Ok();
    if (status.ok()) break;
    if (status.code() != kExitLocked || attempt == 100) return status;
    usleep(50'000);
  }
  const std::string format = format_of_mirror(mirror, key_file);
  Status status = format.empty() ? write_format(env, path, key_file)
                                 : replace_file(env, path, "format", format);
  return status.ok() ? sync_store(env, path) : status;
}

class StoreImpl : public Store {
 public:
  StoreImpl(Env* env, Paths paths) : env_(env), paths_(std::move(paths)) {}
  const std::string& path() const override { return paths_.root; }

  Status list(std::vector<SnapshotInfo>* out) override {
    out->clear();
    std::vector<std::string> ids;
    if (Status status = list_snapshots(env_, paths_, &ids); !status.ok()) return status;
    for (const std::string& id : ids) {
      SnapshotInfo info;
      info.id = id;
      info.status = read_manifest_meta(env_, paths_.manifest(id), paths_.keys.get(), &info.meta,
                                       &info.manifest_bytes);
      if (info.status.code() == kExitAbsent) continue;  // pruned meanwhile
      if (!info.status.ok()) info.meta.clear();
      out->push_back(std::move(info));
    }
    JobLine line(env_, paths_);
    for (auto it = out->rbegin(); it != out->rend(); ++it)
      it->branch = line.is_branch(it->id, it->meta);
    return Status::Ok();
  }

  Status resolve(const std::string& name, std::string* id) override {
    std::vector<std::string> ids;
    if (Status status = list_snapshots(env_, paths_, &ids); !status.ok()) return status;
    if (ids.empty()) return Status::NotFound(fmt::format("store {} has no snapshot", paths_.root));
    if (name.empty() || name == "latest") {
      if (Status status = newest_of_all(env_, paths_, id); !status.ok()) return status;
      if (!id->empty()) return Status::Ok();
      return Status::NotFound(
          fmt::format("store {} has only snapshots of runs that had lost their job to another run; "
                      "choose one by "
                      "its id (`gpuckpt list {}`)",
                      paths_.root, paths_.root));
    }
    std::vector<std::string> matches;
    for (const std::string& candidate : ids) {
      if (candidate == name) {
        *id = name;
        return Status::Ok();
      }
      if (name.size() >= 4 && (candidate.starts_with(name) || candidate.ends_with(name)))
        matches.push_back(candidate);
    }
    for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
      std::string meta;
      uint64_t length;
      if (!read_manifest_meta(env_, paths_.manifest(*it), paths_.keys.get(), &meta, &length).ok())
        continue;
      auto j = parse_json(meta);
      if (j.is_object() && j.contains("tag") && j["tag"].is_string() && j["tag"] == name) {
        *id = *it;
        return Status::Ok();
      }
    }
    if (matches.size() == 1) {
      *id = matches[0];
      return Status::Ok();
    }
    if (matches.size() > 1) {
      return Status::NotFound(
          fmt::format("\"{}\" could be {} snapshots of store {} ({}, {}, ...): give more of the id",
                      name, matches.size(), paths_.root, matches[0], matches[1]));
    }
    return Status::NotFound(fmt::format(
        "store {} has no snapshot or tag \"{}\" (`gpuckpt list {}` shows what there is)",
        paths_.root, name, paths_.root));
  }

  Status open_snapshot(const std::string& id, std::unique_ptr<SnapshotReader>* out) override {
    if (!plausible_id(id))
      return Status::NotFound(fmt::format("\"{}\" is not the id of a snapshot", id));
    return guarded([&] { return store::open_snapshot(env_, paths_, id, out); });
  }
  Status begin(const WriteOptions& options, std::unique_ptr<SnapshotWriter>* out) override {
    if (is_remote(paths_.root)) {
      return Status::Refused(fmt::format(
          "snapshots are written to a directory of this machine and mirrored to {}: --store DIR "
          "--mirror {}",
          paths_.root, paths_.root));
    }
    return guarded([&] { return begin_snapshot(env_, paths_, options, out); });
  }
  Status verify(const VerifyOptions& options, VerifyReport* report) override {
    return guarded([&] { return verify_store(env_, paths_, options, report); });
  }
  Status prune(const PruneOptions& options, PruneReport* report) override {
    return guarded([&] { return prune_store(env_, paths_, options, report); });
  }
  Status mirror(const std::string& target, MirrorReport* report) override {
    return guarded([&] { return mirror_store(env_, paths_, env_for(target), target, report); });
  }
  std::unique_ptr<MirrorState> mirror_state() override { return read_mirror_state(env_, paths_); }
  Status job_lease(const std::string& job, Lease* out) override {
    return guarded([&] { return read_lease(env_, paths_.root, job, out); });
  }
  Status take_job(const LeaseRequest& request, Lease* out) override {
    return guarded([&] { return store::take_job(env_, paths_, request, out); });
  }
  Status renew_job(const Lease& lease) override {
    return guarded([&] { return renew_lease(env_, paths_.root, lease); });
  }
  Status leave_job(const Lease& lease, Lease::Life how) override {
    return guarded([&] { return leave_lease(env_, paths_.root, lease, how); });
  }
  Status is_writing(const std::string& run, bool* out) override {
    return guarded([&] { return store::is_writing(env_, paths_.root, run, out); });
  }
  std::shared_ptr<const Names> names() const override { return paths_.names; }
  Status newest_of_job(const std::string& job, std::string* id) override {
    return guarded([&] { return newest_of_line(env_, paths_, job, id); });
  }
  Status disk_bytes(uint64_t* out) override { return store::disk_bytes(env_, paths_, out); }
  Status codecs(std::vector<CodecUse>* out, uint64_t* unreadable) override {
    return count_codecs(env_, paths_, out, unreadable);
  }

 private:
  Env* env_;
  Paths paths_;
};

// An environment variable replaces an option that was not given, as everywhere.
std::string key_file_of(const Store::Options& options) {
  const char* twin = getenv("GPUCKPT_KEY_FILE");
  return options.key_file.empty() && twin ? twin : options.key_file;
}

}  // namespace

Status make_store_directories(Env* env, const std::string& path) {
  // Only our own names may be there: the remains of a creation that was interrupted.
  std::vector<std::string> names;
  int error = env->list(path, &names);
  if (error == ENOENT) {
    const int e = env->mkdir(path);
    if (e == EACCES)
      return Status(kExitError,
                    fmt::format("store {} cannot be created by user {}, as whom snapshots are "
                                "written here (a program that gave up root's rights has its own "
                                "user's): create it beforehand (install -d -m 700 -o {} {}), or "
                                "name another one (--store)",
                                path, geteuid(), geteuid(), path));
    if (e && e != EEXIST) return io_error("create store", path, e);
    error = env->list(path, &names);
  }
  if (error) return io_error("list", path, error);
  for (const std::string& name : names) {
    if (one_of_ours(name)) continue;
    return Status::NotFound(fmt::format(
        "{} is not a gpuckpt store, and not empty (it holds \"{}\"): choose an empty or new "
        "directory",
        path, name));
  }
  for (const char* directory : {"packs", "layers", "snapshots", "locks"}) {
    std::string full = path + "/" + directory;
    if (int e = env->mkdir(full); e && e != EEXIST) return io_error("create", full, e);
  }
  return Status::Ok();
}

Status sync_store(Env* env, const std::string& path) {
  if (int e = env->sync_directory(path)) return io_error("sync", path, e);
  // Syncs the directory that has the store's own name. Best effort, because another user may own
  // it.
  size_t slash = path.find_last_of('/');
  (void)env->sync_directory(slash == std::string::npos ? "."
                            : slash == 0               ? "/"
                                                       : path.substr(0, slash));
  return Status::Ok();
}

Status check_store_owner(Env* env, const std::string& path) {
  FileInfo info;
  if (int e = env->info_followed(path, &info)) return io_error("look at", path, e);
  if (!info.directory) return Status::NotFound(fmt::format("{} is a file, not a store", path));
  return check_owner(env, path, info, {});
}

Status replace_file(Env* env, const std::string& directory, const std::string& name,
                    const std::string& text) {
  uint8_t random[8] = {};
  env->random(random, sizeof(random));
  const std::string path = directory + "/" + name;
  const std::string pending = path + "." + hex(random, sizeof(random)) + ".tmp";
  Status status =
      write_new_file(env, pending, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  if (!status.ok()) return status;
  if (int e = env->rename(pending, path)) {
    env->remove(pending);
    return io_error("rename", pending, e);
  }
  if (int e = env->sync_directory(directory)) return io_error("sync", directory, e);
  return Status::Ok();
}

Status Store::open(const std::string& given, const Options& options, std::unique_ptr<Store>* out) {
  Env* env = options.env ? options.env : env_for(given);
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) return Status::NotFound("no store was given");
  FileInfo info;
  int error = env->info_followed(path, &info);
  if (error && !(error == ENOENT && options.create)) {
    if (error == ENOENT) return Status::NotFound(fmt::format("there is no store at {}", path));
    return io_error("open store", path, error);
  }
  if (!error && !info.directory)
    return Status::NotFound(fmt::format("{} is a file, not a store", path));
  if (!error) {
    if (Status status = check_owner(env, path, info, options); !status.ok()) return status;
  }
  std::string format = path + "/format";
  FileInfo format_info;
  if (error || env->info(format, &format_info) == ENOENT) {
    if (!options.create) {
      return Status::NotFound(
          fmt::format("{} is not a gpuckpt store (it has no file \"format\")", path));
    }
    Status status = create_store(env, path, key_file_of(options), options.mirror);
    if (!status.ok()) return status;
  }
  std::vector<uint8_t> text;
  if (Status status = read_file(env, format, 64 * 1024, &text); !status.ok()) return status;
  Paths paths{path};
  if (Status status = check_format(path, text, key_file_of(options), &paths); !status.ok())
    return status;
  *out = std::make_unique<StoreImpl>(env, std::move(paths));
  return Status::Ok();
}

namespace {

// Whether any file of the store says that it is encrypted; asked when `format` cannot be read.
Status looks_encrypted(Env* env, const Paths& paths, bool* out) {
  for (const std::string& directory : {paths.packs(), paths.snapshots(), paths.layers()}) {
    std::vector<std::string> names;
    if (int e = env->list(directory, &names); e && e != ENOENT)
      return io_error("list", directory, e);
    for (const std::string& name : names) {
      // Magic, version and flags are in the same place in all of them.
      static_assert(offsetof(PackHeader, flags) == offsetof(ManifestHeader, flags) &&
                    offsetof(PackHeader, flags) == offsetof(LayerFileHeader, flags));
      PackHeader header;
      std::unique_ptr<File> file;
      if (env->open_read(directory + "/" + name, &file) ||
          file->pread(0, {reinterpret_cast<uint8_t*>(&header), sizeof(header)}))
        continue;
      const std::string_view magic(header.magic, sizeof(header.magic));
      const bool ours = magic == std::string_view(kPackMagic, 8) ||
                        magic == std::string_view(kManifestMagic, 8) ||
                        magic == std::string_view(kLayerMagic, 8);
      *out = *out || (ours && (header.flags & kFlagEncrypted));
    }
  }
  return Status::Ok();
}

}  // namespace

namespace {

// The way in which most of the packs name chunks; a store without packs counts as new.
Status how_packs_are_named(Env* env, const Paths& paths, Format* out) {
  std::vector<std::string> files;
  if (int e = env->list(paths.packs(), &files)) return io_error("list", paths.packs(), e);
  std::map<std::string, size_t> votes;  // "": not keyed
  for (const std::string& name : files) {
    PackHeader header;
    std::unique_ptr<File> file;
    if (!name.ends_with(kPackSuffix) || env->open_read(paths.packs() + "/" + name, &file) ||
        file->pread(0, {reinterpret_cast<uint8_t*>(&header), sizeof(header)}) || !is_whole(header))
      continue;
    ++votes[header.version == kUnkeyedVersion ? "" : hex(header.name_key, sizeof(header.name_key))];
  }
  if (votes.empty()) {
    out->names = random_id(env);
    return Status::Ok();
  }
  const auto most = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  out->names = most->first;
  if (out->names.empty()) out->version = kUnkeyedVersion;
  return Status::Ok();
}

}  // namespace

Status Store::repair(const std::string& given, const Options& options, bool dry_run,
                     RepairReport* report) {
  *report = {};
  Env* env = options.env ? options.env : env_for(given);
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  FileInfo info;
  if (int e = env->info_followed(path, &info)) {
    if (e == ENOENT) return Status::NotFound(fmt::format("there is no store at {}", path));
    return io_error("open store", path, e);
  }
  if (Status status = check_owner(env, path, info, options); !status.ok()) return status;
  Paths paths{path};
  for (const std::string& directory : {paths.packs(), paths.snapshots()}) {
    if (env->info_followed(directory, &info) != 0 || !info.directory) {
      return Status::NotFound(
          fmt::format("{} is not a gpuckpt store (it has no directory {})", path, directory));
    }
  }
  // Copies of stores lose directories that are empty.
  for (const std::string& directory : {paths.layers(), path + "/locks"}) {
    if (env->info_followed(directory, &info) != ENOENT || dry_run) continue;
    if (int e = env->mkdir(directory)) return io_error("create", directory, e);
  }
  std::vector<uint8_t> text;
  Status status = read_file(env, path + "/format", 64 * 1024, &text);
  if (status.ok()) status = check_format(path, text, key_file_of(options), &paths);
  if (!status.ok() && status.code() != kExitCorrupt && status.code() != kExitAbsent) return status;
  if (!status.ok()) {
    bool encrypted = !key_file_of(options).empty();
    if (Status s = looks_encrypted(env, paths, &encrypted); !s.ok()) return s;
    if (encrypted) {
      return Status::Corruption(fmt::format(
          "{}/format is damaged; of an encrypted store it cannot be written anew, because "
          "the key is bound to the id in it: restore that one file from a copy",
          path));
    }
    report->format_rewritten = true;
    Format format{.id = random_id(env)};
    HashKey hash{};
    if (Status s = how_packs_are_named(env, paths, &format); !s.ok()) return s;
    if (!format.makes_sense(&hash))
      return Status::Error("the format that was made again makes no sense (a bug in gpuckpt)");
    paths.names =
        format.version == kUnkeyedVersion ? Names::unkeyed(nullptr) : Names::keyed(hash, nullptr);
    if (!dry_run) {
      if (status = replace_file(env, path, "format", format.text()); !status.ok()) return status;
    }
  }
  return guarded([&] { return repair_store(env, paths, dry_run, report); });
}

void split_reference(const std::string& reference, std::string* store, std::string* name) {
  *store = reference;
  name->clear();
  FileInfo info;
  if (posix_env()->info_followed(reference, &info) == 0) return;
  size_t at = reference.rfind('@');
  if (at == std::string::npos || reference.find('/', at) != std::string::npos) return;
  *store = reference.substr(0, at);
  *name = reference.substr(at + 1);
}

Status open_reference(const std::string& reference, const Store::Options& options,
                      std::unique_ptr<Store>* store, std::unique_ptr<SnapshotReader>* snapshot) {
  std::string path, name, id;
  split_reference(reference, &path, &name);
  if (Status status = Store::open(path, options, store); !status.ok()) return status;
  if (Status status = (*store)->resolve(name, &id); !status.ok()) return status;
  return (*store)->open_snapshot(id, snapshot);
}

}  // namespace gpuckpt::store
