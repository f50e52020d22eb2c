// Giving space back. First manifests go (a snapshot whose manifest is gone does not exist), then,
// alone in the store, packs that no manifest names, and packs that are mostly unused after what is
// still used was copied to a new one.
//
// Interrupted anywhere, nothing is lost: new packs and manifests are complete and synced before the
// old ones go.

#include <errno.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/parts.h"

namespace gpuckpt::store {
namespace {

struct Used {
  std::unique_ptr<PackReader> reader;
  std::vector<bool> live;  // by chunk number
  uint64_t live_bytes = 0;
  bool rewrite = false;
};

struct NewPlace {
  uint32_t pack;  // index into Sweep::fresh_
  uint32_t chunk;
};

class Sweep {
 public:
  Sweep(Env* env, const Paths& paths, bool dry_run, const std::set<std::string>& gone,
        PruneReport* report)
      : env_(env), paths_(paths), dry_run_(dry_run), gone_(gone), report_(report) {}
  ~Sweep() {
    for (auto& pack : fresh_) {
      if (!published_) env_->remove(pack->path());
    }
  }
  Status run(const std::string& lock_id, const std::set<PackId>& forced);

 private:
  Status load();
  void mark(const std::set<PackId>& forced);
  Status copy_live();
  Status copy_pack(const PackId& id, Used& used);
  Status flush();
  Status publish();
  Status rewrite_manifest(const std::string& id, const Manifest& old);
  Status remove_packs();

  Env* env_;
  Paths paths_;
  bool dry_run_;
  const std::set<std::string>& gone_;  // removed manifests, in a dry run still there
  PruneReport* report_;
  std::string lock_id_;
  std::vector<std::pair<std::string, Manifest>> manifests_;
  std::map<PackId, Used> packs_;

  FrameDraft draft_;
  std::vector<std::pair<PackId, uint32_t>> in_draft_;
  std::vector<std::unique_ptr<PackWriter>> fresh_;
  std::vector<PackRef> fresh_refs_;
  std::vector<std::vector<ChunkEntry>> fresh_chunks_;
  std::map<std::pair<PackId, uint32_t>, NewPlace> moved_;
  bool published_ = false;
};

Status Sweep::load() {
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env_, paths_, &ids); !status.ok()) return status;
  for (const std::string& id : ids) {
    if (gone_.count(id)) continue;
    Manifest manifest;
    Status status = load_manifest(env_, paths_, id, &manifest);
    if (!status.ok()) {
      return Status(
          status.code(),
          fmt::format(
              "no space was given back, because it is not known what snapshot {} needs: {}; "
              "remove it with `gpuckpt prune {} --remove {}` if it is not wanted",
              id, status.text(), paths_.root, id));
    }
    manifests_.emplace_back(id, std::move(manifest));
  }
  std::vector<PackId> packs;
  if (Status status = list_packs(env_, paths_, &packs); !status.ok()) return status;
  for (const PackId& id : packs) {
    Used& used = packs_[id];
    // A damaged pack stays as long as a manifest names it.
    if (!PackReader::open(env_, paths_.pack(id), id, &used.reader).ok()) continue;
    used.live.resize(used.reader->table().chunks.size());
  }
  return Status::Ok();
}

void Sweep::mark(const std::set<PackId>& forced) {
  for (const auto& [id, manifest] : manifests_) {
    for (const SpaceMap& space : manifest.spaces) {
      for (const RunRef& run : space.runs) {
        if (run.pack == kZeroPack) continue;
        Used& used = packs_[manifest.packs[run.pack].id];
        for (uint64_t c = run.chunk; c < uint64_t{run.chunk} + run.count && c < used.live.size();
             ++c) {
          if (used.live[c]) continue;
          used.live[c] = true;
          used.live_bytes += used.reader->table().chunks[c].length;
        }
      }
    }
  }
  // Small packs are gathered once there are many: a store of a thousand little snapshots should not
  // be a thousand files.
  constexpr uint64_t kSmallPack = 4ull << 20;
  constexpr size_t kManySmall = 64;
  size_t small = 0;
  for (auto& [id, used] : packs_) {
    if (used.reader && used.live_bytes && used.reader->table().file_length < kSmallPack) ++small;
  }
  for (auto& [id, used] : packs_) {
    if (!used.reader || used.live_bytes == 0) continue;
    const PackTable& table = used.reader->table();
    used.rewrite = forced.count(id) || used.live_bytes * 2 < table.plain_bytes ||
                   (small > kManySmall && table.file_length < kSmallPack);
  }
}

Status Sweep::flush() {
  if (draft_.names.empty()) return Status::Ok();
  SealedFrame sealed = seal(std::move(draft_), 1);
  draft_ = {};
  if (fresh_.empty() || fresh_.back()->bytes() >= kPackBytes) {
    uint8_t random[8];
    env_->random(random, sizeof(random));
    std::unique_ptr<PackWriter> pack;
    std::string path =
        fmt::format("{}/{}.{}.tmp", paths_.packs(), hex(random, sizeof(random)), lock_id_);
    if (Status status = PackWriter::create(env_, path, &pack); !status.ok()) return status;
    fresh_.push_back(std::move(pack));
  }
  uint32_t first = 0;
  if (Status status = fresh_.back()->append(sealed, &first); !status.ok()) return status;
  for (size_t i = 0; i < in_draft_.size(); ++i) {
    moved_[in_draft_[i]] = {static_cast<uint32_t>(fresh_.size() - 1),
                            first + static_cast<uint32_t>(i)};
  }
  in_draft_.clear();
  return Status::Ok();
}

Status Sweep::copy_pack(const PackId& id, Used& used) {
  const PackTable& table = used.reader->table();
  // Look before touching anything: a pack with a damaged frame stays where it is.
  for (uint32_t f = 0; f < table.frames.size(); ++f) {
    const FrameEntry& frame = table.frames[f];
    bool wanted = std::find(used.live.begin() + frame.first_chunk,
                            used.live.begin() + frame.first_chunk + frame.chunks,
                            true) != used.live.begin() + frame.first_chunk + frame.chunks;
    if (wanted && !used.reader->check_frame(f).ok()) {
      used.rewrite = false;
      return Status::Ok();
    }
  }
  std::vector<uint8_t> plain;
  for (uint32_t f = 0; f < table.frames.size(); ++f) {
    const FrameEntry& frame = table.frames[f];
    size_t offset = 0;
    bool loaded = false;
    for (uint32_t c = frame.first_chunk; c < frame.first_chunk + frame.chunks; ++c) {
      size_t length = table.chunks[c].length;
      if (used.live[c]) {
        if (!loaded) {
          if (Status status = used.reader->read_frame(f, &plain); !status.ok()) return status;
          loaded = true;
        }
        // Checked again: what is moved must not be worse than what was there.
        auto bytes = std::span(plain).subspan(offset, length);
        if (Status status = used.reader->check_chunk(c, bytes); !status.ok()) return status;
        draft_.plain.insert(draft_.plain.end(), bytes.begin(), bytes.end());
        draft_.names.push_back(table.chunks[c].name);
        draft_.lengths.push_back(static_cast<uint32_t>(length));
        in_draft_.push_back({id, c});
        if (draft_.full()) {
          if (Status status = flush(); !status.ok()) return status;
        }
      }
      offset += length;
    }
  }
  return Status::Ok();
}

Status Sweep::copy_live() {
  for (auto& [id, used] : packs_) {
    if (!used.rewrite) continue;
    if (Status status = copy_pack(id, used); !status.ok()) return status;
  }
  if (Status status = flush(); !status.ok()) return status;
  for (auto& pack : fresh_) {
    if (Status status = pack->finish(); !status.ok()) return status;
    fresh_refs_.push_back({pack->id(), pack->bytes(), pack->table_checksum()});
    fresh_chunks_.push_back(pack->take_chunks());
  }
  return Status::Ok();
}

Status Sweep::rewrite_manifest(const std::string& id, const Manifest& old) {
  Manifest fresh;
  fresh.meta = old.meta;
  fresh.blobs = old.blobs;
  std::map<PackId, uint32_t> number;
  auto pack_number = [&](const PackRef& ref) {
    auto [it, added] = number.try_emplace(ref.id, static_cast<uint32_t>(fresh.packs.size()));
    if (added) fresh.packs.push_back(ref);
    return it->second;
  };
  for (const SpaceMap& space : old.spaces) {
    SpaceMap map{space.space, {}, {}};
    auto add = [&](RunRef run) {
      if (!map.runs.empty()) {
        RunRef& last = map.runs.back();
        if (last.address + last.length == run.address && last.pack == run.pack &&
            (run.pack == kZeroPack || last.chunk + last.count == run.chunk)) {
          last.length += run.length;
          last.count += run.count;
          return;
        }
      }
      map.runs.push_back(run);
    };
    for (const RunRef& run : space.runs) {
      if (run.pack == kZeroPack) {
        add(run);
        continue;
      }
      const PackRef& ref = old.packs[run.pack];
      const Used& used = packs_.at(ref.id);
      if (!used.rewrite) {
        RunRef same = run;
        same.pack = pack_number(ref);
        add(same);
        continue;
      }
      uint64_t address = run.address;
      for (uint32_t c = run.chunk; c < run.chunk + run.count; ++c) {
        auto it = moved_.find({ref.id, c});
        if (it == moved_.end())
          return Status::Corruption(fmt::format("snapshot {} names a chunk that is not there", id));
        uint64_t length = used.reader->table().chunks[c].length;
        add({address, length, pack_number(fresh_refs_[it->second.pack]), it->second.chunk, 1, 0});
        address += length;
      }
    }
    SpaceDigest digest;
    for (const RunRef& run : map.runs) {
      digest.run(run);
      for (uint32_t c = run.chunk; c < run.chunk + run.count; ++c) {
        const PackId& pack = fresh.packs[run.pack].id;
        auto made = std::find_if(fresh_refs_.begin(), fresh_refs_.end(),
                                 [&](const PackRef& r) { return r.id == pack; });
        digest.name(made == fresh_refs_.end()
                        ? packs_.at(pack).reader->table().chunks[c].name
                        : fresh_chunks_[static_cast<size_t>(made - fresh_refs_.begin())][c].name);
      }
    }
    map.digest = digest.finish();
    fresh.spaces.push_back(std::move(map));
  }
  std::string pending;
  Status status =
      write_pending_manifest(env_, paths_, lock_id_, id, encode_manifest(fresh), &pending);
  if (!status.ok()) return status;
  return publish_pending_manifest(env_, paths_, id, pending, true);
}

Status Sweep::publish() {
  if (fresh_.empty()) return Status::Ok();
  published_ = true;
  for (auto& pack : fresh_) {
    if (int e = env_->rename(pack->path(), paths_.pack(pack->id())))
      return io_error("rename", pack->path(), e);
  }
  if (int e = env_->sync_directory(paths_.packs())) return io_error("sync", paths_.packs(), e);
  for (const auto& [id, manifest] : manifests_) {
    bool touched = std::any_of(manifest.packs.begin(), manifest.packs.end(),
                               [&](const PackRef& ref) { return packs_[ref.id].rewrite; });
    if (!touched) continue;
    // A snapshot that is damaged already keeps its manifest as it is, and with it what is left of
    // its packs.
    bool known = std::all_of(manifest.packs.begin(), manifest.packs.end(),
                             [&](const PackRef& ref) { return packs_[ref.id].reader != nullptr; });
    std::unique_ptr<SnapshotReader> reader;
    if (known && open_snapshot(env_, paths_, id, &reader).ok()) continue;
    for (const PackRef& ref : manifest.packs) packs_[ref.id].rewrite = false;
  }
  for (const auto& [id, manifest] : manifests_) {
    bool touched = std::any_of(manifest.packs.begin(), manifest.packs.end(),
                               [&](const PackRef& ref) { return packs_[ref.id].rewrite; });
    if (!touched) continue;
    if (Status status = rewrite_manifest(id, manifest); !status.ok()) return status;
  }
  return Status::Ok();
}

Status Sweep::remove_packs() {
  std::set<PackId> named;
  for (const auto& [id, manifest] : manifests_) {
    for (const PackRef& ref : manifest.packs) named.insert(ref.id);
  }
  for (auto& [id, used] : packs_) {
    if (named.count(id) && !used.rewrite) continue;
    FileInfo info;
    std::string path = paths_.pack(id);
    if (env_->info(path, &info) != 0) continue;
    if (!dry_run_) {
      if (int e = env_->remove(path)) return io_error("remove", path, e);
    }
    report_->bytes_freed += info.size;
    ++(used.rewrite ? report_->packs_rewritten : report_->packs_removed);
  }
  if (dry_run_) return Status::Ok();
  if (int e = env_->sync_directory(paths_.packs())) return io_error("sync", paths_.packs(), e);
  return Status::Ok();
}

Status Sweep::run(const std::string& lock_id, const std::set<PackId>& forced) {
  lock_id_ = lock_id;
  if (!dry_run_) (void)remove_leftovers(env_, paths_, &report_->leftovers);
  if (Status status = load(); !status.ok()) return status;
  mark(forced);
  if (!dry_run_) {
    if (Status status = copy_live(); !status.ok()) return status;
    if (Status status = publish(); !status.ok()) return status;
  }
  if (Status status = remove_packs(); !status.ok()) return status;
  uint64_t added = 0;
  for (const PackRef& ref : fresh_refs_) added += ref.file_length;
  report_->bytes_freed -= std::min(report_->bytes_freed, added);
  return Status::Ok();
}

Status choose(Env* env, const Paths& paths, const PruneOptions& options, PruneReport* report) {
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env, paths, &ids); !status.ok()) return status;
  for (const std::string& id : options.remove) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
      return Status::NotFound(fmt::format("store {} has no snapshot {}", paths.root, id));
    }
  }
  std::map<std::string, int> seen;  // job -> snapshots met, newest first
  for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
    bool remove =
        std::find(options.remove.begin(), options.remove.end(), *it) != options.remove.end();
    std::string meta;
    uint64_t length = 0;
    // One that cannot be read is never removed by count, and does not count as one of those kept.
    if (!remove && options.keep >= 0 &&
        read_manifest_meta(env, paths.manifest(*it), &meta, &length).ok()) {
      auto j = nlohmann::json::parse(meta, nullptr, false);
      std::string job = j.is_object() && j.contains("job") && j["job"].is_string()
                            ? j["job"].get<std::string>()
                            : "";
      remove = ++seen[job] > std::max(1, options.keep);
    }
    (remove ? report->removed : report->kept).push_back(*it);
  }
  return Status::Ok();
}

}  // namespace

Status prune_store(Env* env, const Paths& paths, const PruneOptions& options, PruneReport* report) {
  *report = {};
  if (Status status = choose(env, paths, options, report); !status.ok()) return status;
  std::set<std::string> gone(report->removed.begin(), report->removed.end());
  for (const std::string& id : report->removed) {
    std::string path = paths.manifest(id);
    FileInfo info;
    if (env->info(path, &info) == 0) report->bytes_freed += info.size;
    if (options.dry_run) continue;
    if (int e = env->remove(path); e && e != ENOENT) return io_error("remove", path, e);
  }
  if (options.dry_run) return Sweep(env, paths, true, gone, report).run("", {});
  if (!gone.empty()) {
    if (int e = env->sync_directory(paths.snapshots()))
      return io_error("sync", paths.snapshots(), e);
  }
  std::unique_ptr<Lock> lock;
  Status status = Lock::acquire(env, paths.root, LockKind::kExclusive, "pruning", &lock);
  if (status.code() == kExitLocked) {
    report->postponed = status.text();
    return Status::Ok();
  }
  if (!status.ok()) return status;
  gone.clear();
  return Sweep(env, paths, false, gone, report).run(lock->id(), {});
}

Status sweep_store(Env* env, const Paths& paths, const std::string& lock_id,
                   const std::set<PackId>& forced, PruneReport* report) {
  std::set<std::string> gone;
  return Sweep(env, paths, false, gone, report).run(lock_id, forced);
}

}  // namespace gpuckpt::store
