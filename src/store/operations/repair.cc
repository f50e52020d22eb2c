// Makes a damaged store usable again: what can be derived is made anew, what is lost is dropped,
// and every snapshot that is whole stays. Nothing that can still be read is destroyed before its
// replacement is durable.

#include <errno.h>

#include <algorithm>

#include <fmt/format.h>

#include "store/format/pack_tables.h"
#include "store/store_internal.h"

namespace gpuckpt::store {
namespace {

// The manifests that can be read, and why the others cannot.
struct Manifests {
  std::map<std::string, Manifest> readable;
  std::map<std::string, Status> damaged;
};

Status load_all(Env* env, const Paths& paths, Manifests* out) {
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env, paths, &ids); !status.ok()) return status;
  LayerCache layers;
  for (const std::string& id : ids) {
    Manifest manifest;
    Status status = load_manifest(env, paths, id, &manifest, &layers);
    // A manifest of a later version is not damaged, and what it needs is not known: refuse. An
    // error of the disk is no damage either.
    if (!status.ok() && status.code() != kExitCorrupt) return status;
    if (status.ok()) {
      out->readable.emplace(id, std::move(manifest));
    } else {
      out->damaged.emplace(id, status);
    }
  }
  return Status::Ok();
}

// Refuses when something else is where a file should be (a directory, a link, a device): the user
// may still have the original file, so nothing is dropped for it.
Status only_files(Env* env, const Paths& paths) {
  for (const std::string& directory : {paths.packs(), paths.layers(), paths.snapshots()}) {
    std::vector<std::string> names;
    if (int e = env->list(directory, &names)) return io_error("list", directory, e);
    for (const std::string& name : names) {
      const bool ours =
          name.ends_with(".pack") || name.ends_with(".layer") || name.ends_with(".manifest");
      const std::string path = directory + "/" + name;
      FileInfo info;
      if (!ours || env->info(path, &info) != 0 || info.regular) continue;
      return Status::Corruption(fmt::format(
          "{} is {}, not a file of the store: put the file back in its place, or remove this, "
          "and repair again",
          path, info.directory ? "a directory" : "a link, a device or the like"));
    }
  }
  return Status::Ok();
}

constexpr const char* kFound = ".found";  // ends a pack's name between its wrong and its right one

// Renames packs that are whole and do not have their own names.
Status put_names_right(Env* env, const Paths& paths, bool dry_run, RepairReport* report) {
  std::vector<std::string> names;
  if (int e = env->list(paths.packs(), &names)) return io_error("list", paths.packs(), e);
  std::map<PackId, std::string> found;  // where they are
  for (const std::string& name : names) {
    const std::string path = paths.packs() + "/" + name;
    if (!name.ends_with(".pack") && !name.ends_with(kFound)) continue;
    std::unique_ptr<File> file;
    PackHeader header;
    if (env->open_read(path, &file) ||
        file->pread(0, {reinterpret_cast<uint8_t*>(&header), sizeof(header)}))
      continue;
    std::unique_ptr<PackReader> pack;
    if (name == pack_file(header.id) ||
        !PackReader::open(env, path, header.id, paths.keys, paths.names, &pack).ok())
      continue;
    found[header.id] = path;
  }
  if (found.empty()) return Status::Ok();
  for (auto& [id, path] : found) {
    report->renamed.push_back(paths.pack(id));
    if (dry_run || path.ends_with(kFound)) continue;
    // Two packs may have each other's names.
    const std::string between = paths.pack(id) + kFound;
    if (int e = env->rename(path, between)) return io_error("rename", path, e);
    path = between;
  }
  if (dry_run) return Status::Ok();
  for (auto& [id, path] : found) {
    std::unique_ptr<PackReader> there;
    const bool twice = open_pack(env, paths, id, &there).ok();
    const int e = twice ? env->remove(path) : env->rename(path, paths.pack(id));
    if (e) return io_error("rename", path, e);
  }
  if (int e = env->sync_directory(paths.packs())) return io_error("sync", paths.packs(), e);
  return Status::Ok();
}

// A pack with a damaged header, table or trailer is rebuilt from its frames, which say the same.
Status rebuild(Env* env, const Paths& paths, const Manifests& manifests, const std::string& lock_id,
               bool dry_run, const std::map<PackId, Status>& unreadable, RepairReport* report) {
  for (const auto& [id, why] : unreadable) {
    if (why.code() == kExitIncompatible) return why;
    std::vector<uint8_t> file;
    uint64_t table_checksum = 0;
    if (!rebuild_pack(env, paths.pack(id), id, paths.keys.get(), *paths.names, &file,
                      &table_checksum)
             .ok())
      continue;
    bool known = false;
    for (const auto& [snapshot, manifest] : manifests.readable) {
      for (const PackRef& ref : manifest.packs) {
        known = known || (ref.id == id && ref.file_length == file.size() &&
                          ref.table_checksum == table_checksum);
      }
    }
    if (!known) continue;  // frames are missing, or no snapshot needs it
    report->rebuilt.push_back(paths.pack(id));
    if (dry_run) continue;
    std::string pending = fmt::format("{}/{}.{}.tmp", paths.packs(), hex(id), lock_id);
    std::unique_ptr<File> out;
    if (int e = env->create(pending, &out)) return io_error("create", pending, e);
    std::span<const uint8_t> parts[] = {file};
    int error = out->append(parts);
    if (!error) error = out->sync();
    if (!error) error = env->rename(pending, paths.pack(id));
    if (!error) error = env->sync_directory(paths.packs());
    if (error) {
      env->remove(pending);
      return io_error("write", pending, error);
    }
  }
  return Status::Ok();
}

// Finds which of a snapshot's bytes lie in damaged frames; `why` stays empty when none does.
Status lost_bytes(Env* env, const Paths& paths, const Manifest& manifest,
                  const std::map<PackId, std::vector<uint32_t>>& damaged, std::string* why) {
  std::map<uint32_t, std::pair<std::unique_ptr<PackReader>, const std::vector<uint32_t>*>> packs;
  for (uint32_t i = 0; i < manifest.packs.size(); ++i) {
    auto it = damaged.find(manifest.packs[i].id);
    if (it == damaged.end()) continue;
    std::unique_ptr<PackReader> reader;
    Status status = open_pack(env, paths, it->first, &reader);
    if (!status.ok()) return status;
    packs[i] = {std::move(reader), &it->second};
  }
  for (const SpaceMap& space : manifest.spaces) {
    for (const Run& run : space.runs) {
      auto it = packs.find(run.pack);
      if (run.pack == kZeroPack || it == packs.end()) continue;
      for (uint32_t number : *it->second.second) {
        const FrameEntry& frame = it->second.first->table().frames[number];
        if (run.chunk < frame.first_chunk + frame.chunks &&
            frame.first_chunk < run.chunk + run.count) {
          *why = fmt::format("bytes at {:#x} of space {:#x} are lost", run.address, space.space);
          return Status::Ok();
        }
      }
    }
  }
  return Status::Ok();
}

}  // namespace

Status repair_store(Env* env, const Paths& paths, bool dry_run, RepairReport* report) {
  std::unique_ptr<Lock> lock;
  if (Status status = Lock::acquire(env, paths.root, LockKind::kExclusive, "repairing", &lock);
      !status.ok()) {
    return status;
  }
  if (Status status = only_files(env, paths); !status.ok()) return status;
  // Packs get other tables here.
  if (!dry_run) PackTables::forget(env, paths);
  if (Status status = put_names_right(env, paths, dry_run, report); !status.ok()) return status;
  Manifests manifests;
  if (Status status = load_all(env, paths, &manifests); !status.ok()) return status;
  std::map<PackId, std::vector<uint32_t>> damaged;
  std::map<PackId, Status> unreadable;
  if (Status status = find_damage(env, paths, &damaged, &unreadable); !status.ok()) return status;
  if (Status status = rebuild(env, paths, manifests, lock->id(), dry_run, unreadable, report);
      !status.ok())
    return status;
  if (!unreadable.empty() && !dry_run) {
    damaged.clear();
    unreadable.clear();
    if (Status status = find_damage(env, paths, &damaged, &unreadable); !status.ok()) return status;
  }
  for (const auto& [id, why] : manifests.damaged) report->lost.push_back({id, why.text()});
  for (const auto& [id, manifest] : manifests.readable) {
    std::unique_ptr<SnapshotReader> reader;
    Status status = open_snapshot(env, paths, id, &reader);
    // An error of the disk is no damage of the store: nothing is dropped for it.
    if (!status.ok() && status.code() != kExitCorrupt && status.code() != kExitAbsent)
      return status;
    bool rebuilt =
        dry_run &&
        std::any_of(manifest.packs.begin(), manifest.packs.end(), [&](const PackRef& ref) {
          const std::string path = paths.pack(ref.id);
          return std::count(report->rebuilt.begin(), report->rebuilt.end(), path) +
                     std::count(report->renamed.begin(), report->renamed.end(), path) !=
                 0;
        });
    std::string why = status.ok() || rebuilt ? "" : status.text();
    if (status.ok()) {
      status = lost_bytes(env, paths, manifest, damaged, &why);
      if (!status.ok()) return status;
    }
    if (why.empty()) {
      report->whole.push_back(id);
    } else {
      report->lost.push_back({id, why});
    }
  }
  if (dry_run) return Status::Ok();
  for (const auto& [id, why] : report->lost) {
    if (int e = env->remove(paths.manifest(id)); e && e != ENOENT)
      return io_error("remove", paths.manifest(id), e);
  }
  if (int e = env->sync_directory(paths.snapshots())) return io_error("sync", paths.snapshots(), e);
  // The intact frames of damaged packs are moved to new ones: a later snapshot must not refer to a
  // damaged chunk.
  std::set<PackId> forced;
  for (const auto& [id, frames] : damaged) forced.insert(id);
  PruneReport swept;
  Status status = sweep_store(env, paths, lock->id(), forced, &swept);
  report->packs_removed = swept.packs_removed;
  report->packs_rewritten = swept.packs_rewritten;
  return status;
}

}  // namespace gpuckpt::store
