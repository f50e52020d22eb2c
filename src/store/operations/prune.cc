// Frees space. First manifests are removed (a snapshot whose manifest is gone does not exist).
// Then, alone in the store, packs that no manifest names are removed, and packs that are mostly
// unused, after what is still used was copied to a new one.
//
// An interruption loses nothing: new packs and manifests are complete and synced before the old
// ones are removed.

#include <errno.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/job_line.h"
#include "store/io/json_text.h"
#include "store/store_internal.h"

namespace gpuckpt::store {
namespace {

struct NewPlace {
  uint32_t pack = 0xffffffff;  // index into Sweep::fresh_
  uint32_t chunk = 0;
};

struct Used {
  std::unique_ptr<PackReader> reader;
  std::vector<bool> live;  // by chunk number
  uint64_t live_bytes = 0;
  bool rewrite = false;
  std::vector<NewPlace> moved;  // by chunk number, when it is rewritten
};

// What is remembered of a snapshot. Maps can be large, so one is loaded after the other.
struct Kept {
  std::string id;
  std::vector<PackId> packs;
  std::vector<ChunkName> layers;
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
  void mark(const Manifest& manifest);
  void choose_packs(const std::set<PackId>& forced);
  bool touched(const Kept& kept) const;
  Status copy_live();
  Status copy_pack(const PackId& id, Used& used);
  Status flush();
  Status publish();
  Status rewrite_manifest(const std::string& id, const std::string& before);
  Status remove_packs();
  Status remove_layers();

  Env* env_;
  Paths paths_;
  bool dry_run_;
  const std::set<std::string>& gone_;  // removed manifests, in a dry run still there
  PruneReport* report_;
  std::string lock_id_;
  std::vector<Kept> snapshots_;
  LayerCache layers_;
  std::map<PackId, Used> packs_;

  FrameDraft draft_;
  Purpose purpose_ = Purpose::kBalanced;  // of the store's frames, as far as their codecs show it
  std::vector<std::pair<PackId, uint32_t>> in_draft_;
  std::vector<std::unique_ptr<PackWriter>> fresh_;
  std::vector<PackRef> fresh_refs_;
  bool published_ = false;
};

Status Sweep::load() {
  std::vector<PackId> packs;
  if (Status status = list_packs(env_, paths_, &packs); !status.ok()) return status;
  for (const PackId& id : packs) {
    Used& used = packs_[id];
    // A damaged pack stays as long as a manifest names it.
    if (!open_pack(env_, paths_, id, &used.reader).ok()) continue;
    used.live.resize(used.reader->table().chunks.size());
  }
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env_, paths_, &ids); !status.ok()) return status;
  for (const std::string& id : ids) {
    if (gone_.count(id)) continue;
    Manifest manifest;
    Status status = load_manifest(env_, paths_, id, &manifest, &layers_);
    if (!status.ok()) {
      return Status(
          status.code(),
          fmt::format(
              "no space was given back, because it is not known what snapshot {} needs: {}; "
              "remove it with `gpuckpt prune {} --remove {}` if it is not wanted",
              id, status.text(), paths_.root, id));
    }
    mark(manifest);
    Kept kept{id, {}, {}};
    for (const PackRef& ref : manifest.packs) kept.packs.push_back(ref.id);
    for (const SharedLayer& layer : manifest.layers) kept.layers.push_back(layer.ref.name);
    snapshots_.push_back(std::move(kept));
  }
  return Status::Ok();
}

void Sweep::mark(const Manifest& manifest) {
  std::vector<Used*> packs;
  for (const PackRef& ref : manifest.packs) packs.push_back(&packs_[ref.id]);
  for (const SpaceMap& space : manifest.spaces) {
    for (const Run& run : space.runs) {
      if (run.pack == kZeroPack) continue;
      Used& used = *packs[run.pack];
      for (uint64_t c = run.chunk; c < uint64_t{run.chunk} + run.count && c < used.live.size();
           ++c) {
        if (used.live[c]) continue;
        used.live[c] = true;
        used.live_bytes += used.reader->table().chunks[c].length;
      }
    }
  }
}

bool Sweep::touched(const Kept& kept) const {
  return std::any_of(kept.packs.begin(), kept.packs.end(),
                     [&](const PackId& id) { return packs_.at(id).rewrite; });
}

void Sweep::choose_packs(const std::set<PackId>& forced) {
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
  SealedFrame sealed = seal(std::move(draft_), 1, paths_.keys.get(), purpose_);
  draft_ = {};
  purpose_ = Purpose::kBalanced;
  if (fresh_.empty() || fresh_.back()->bytes() >= kPackBytes) {
    uint8_t random[8];
    env_->random(random, sizeof(random));
    std::unique_ptr<PackWriter> pack;
    std::string path =
        fmt::format("{}/{}.{}.tmp", paths_.packs(), hex(random, sizeof(random)), lock_id_);
    if (Status status = PackWriter::create(env_, path, *paths_.names, PackWriter::kAll, &pack);
        !status.ok())
      return status;
    fresh_.push_back(std::move(pack));
  }
  uint32_t first = 0;
  PackWriter::Writeback due;
  if (Status status = fresh_.back()->append(sealed, &first, &due); !status.ok()) return status;
  due.start();
  for (size_t i = 0; i < in_draft_.size(); ++i) {
    auto [id, chunk] = in_draft_[i];
    packs_.at(id).moved[chunk] = {static_cast<uint32_t>(fresh_.size() - 1),
                                  first + static_cast<uint32_t>(i)};
  }
  in_draft_.clear();
  return Status::Ok();
}

Status Sweep::copy_pack(const PackId& id, Used& used) {
  const PackTable& table = used.reader->table();
  // All frames are checked before anything changes: a pack with a damaged frame stays as it is.
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
  used.moved.resize(table.chunks.size());
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
        // Checked again, because the copy must not be worse than the original.
        auto bytes = std::span(plain).subspan(offset, length);
        if (Status status = used.reader->check_chunk(c, bytes); !status.ok()) return status;
        draft_.copy(bytes);
        if (frame.codec == kCodecLz4) purpose_ = Purpose::kRestore;
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
  }
  return Status::Ok();
}

Status Sweep::rewrite_manifest(const std::string& id, const std::string& before) {
  Manifest old, fresh, parent;
  if (Status status = load_manifest(env_, paths_, id, &old, &layers_); !status.ok()) return status;
  bool shares = !before.empty() && load_manifest(env_, paths_, before, &parent, &layers_).ok();
  fresh.meta = old.meta;
  fresh.blobs = old.blobs;
  std::map<PackId, uint32_t> number;
  auto pack_number = [&](const PackRef& ref) {
    auto [it, added] = number.try_emplace(ref.id, static_cast<uint32_t>(fresh.packs.size()));
    if (added) fresh.packs.push_back(ref);
    return it->second;
  };
  for (const SpaceMap& space : old.spaces) {
    const uint64_t unit = chunk_unit(space.space);
    SpaceMap map{space.space, space.digest, {}};  // of bytes and addresses, which stay the same
    for (const Run& run : space.runs) {
      if (run.pack == kZeroPack) {
        add_run(&map.runs, run, unit);
        continue;
      }
      const PackRef& ref = old.packs[run.pack];
      const Used& used = packs_.at(ref.id);
      if (!used.rewrite) {
        Run same = run;
        same.pack = pack_number(ref);
        add_run(&map.runs, same, unit);
        continue;
      }
      uint64_t address = run.address;
      for (uint32_t c = run.chunk; c < run.chunk + run.count; ++c) {
        const NewPlace place = c < used.moved.size() ? used.moved[c] : NewPlace{};
        if (place.pack >= fresh_refs_.size())
          return Status::Corruption(fmt::format("snapshot {} names a chunk that is not there", id));
        uint64_t length = chunk_length(address, run.end(), unit);
        add_run(&map.runs, {address, length, pack_number(fresh_refs_[place.pack]), place.chunk, 1},
                unit);
        address += length;
      }
    }
    fresh.spaces.push_back(std::move(map));
  }
  EncodedManifest encoded = encode_manifest(fresh, shares ? &parent : nullptr, paths_.keys.get());
  PendingManifest pending(env_, paths_, lock_id_, id);
  if (Status status = pending.write(encoded); !status.ok()) return status;
  return pending.publish(true);
}

Status Sweep::publish() {
  if (fresh_.empty()) return Status::Ok();
  published_ = true;
  for (auto& pack : fresh_) {
    if (int e = env_->rename(pack->path(), paths_.pack(pack->id())))
      return io_error("rename", pack->path(), e);
  }
  if (int e = env_->sync_directory(paths_.packs())) return io_error("sync", paths_.packs(), e);
  for (const Kept& kept : snapshots_) {
    if (!touched(kept)) continue;
    // A snapshot that is damaged already keeps its manifest as it is, and with it what is left of
    // its packs.
    bool known = std::all_of(kept.packs.begin(), kept.packs.end(),
                             [&](const PackId& id) { return packs_.at(id).reader != nullptr; });
    std::unique_ptr<SnapshotReader> reader;
    if (known && open_snapshot(env_, paths_, kept.id, &reader, nullptr, &layers_).ok()) continue;
    for (const PackId& id : kept.packs) packs_.at(id).rewrite = false;
  }
  std::string before;
  for (Kept& kept : snapshots_) {
    if (touched(kept)) {
      if (Status status = rewrite_manifest(kept.id, before); !status.ok()) return status;
    }
    before = kept.id;
  }
  return Status::Ok();
}

Status Sweep::remove_packs() {
  std::set<PackId> named;
  for (const Kept& kept : snapshots_) named.insert(kept.packs.begin(), kept.packs.end());
  for (auto& [id, used] : packs_) {
    if (named.count(id) && !used.rewrite) continue;
    FileInfo info;
    std::string path = paths_.pack(id);
    if (env_->info(path, &info) != 0) continue;
    if (!dry_run_) {
      if (int e = env_->remove(path); e && e != ENOENT) return io_error("remove", path, e);
    }
    report_->bytes_freed += info.size;
    ++(used.rewrite ? report_->packs_rewritten : report_->packs_removed);
  }
  if (dry_run_) return Status::Ok();
  if (int e = env_->sync_directory(paths_.packs())) return io_error("sync", paths_.packs(), e);
  return Status::Ok();
}

// Layers that no manifest names. Which ones are named is read again: manifests were replaced.
Status Sweep::remove_layers() {
  std::set<ChunkName> named;
  for (const Kept& kept : snapshots_) {
    if (dry_run_ || fresh_.empty()) {
      named.insert(kept.layers.begin(), kept.layers.end());
      continue;
    }
    Manifest manifest;
    Status status = load_manifest(env_, paths_, kept.id, &manifest, &layers_);
    if (!status.ok()) return status;
    for (const SharedLayer& layer : manifest.layers) named.insert(layer.ref.name);
  }
  std::vector<ChunkName> all;
  if (Status status = list_layers(env_, paths_, &all); !status.ok()) return status;
  for (const ChunkName& name : all) {
    if (named.count(name)) continue;
    FileInfo info;
    std::string path = paths_.layer(name);
    if (env_->info(path, &info) != 0) continue;
    if (!dry_run_) {
      if (int e = env_->remove(path); e && e != ENOENT) return io_error("remove", path, e);
    }
    report_->bytes_freed += info.size;
  }
  if (dry_run_) return Status::Ok();
  if (int e = env_->sync_directory(paths_.layers())) return io_error("sync", paths_.layers(), e);
  return Status::Ok();
}

Status Sweep::run(const std::string& lock_id, const std::set<PackId>& forced) {
  lock_id_ = lock_id;
  if (!dry_run_) (void)remove_stale_files(env_, paths_, &report_->leftovers);
  if (Status status = load(); !status.ok()) return status;
  choose_packs(forced);
  if (!dry_run_) {
    if (Status status = copy_live(); !status.ok()) return status;
    if (Status status = publish(); !status.ok()) return status;
  }
  if (Status status = remove_packs(); !status.ok()) return status;
  if (Status status = remove_layers(); !status.ok()) return status;
  uint64_t added = 0;
  for (const PackRef& ref : fresh_refs_) added += ref.file_length;
  report_->bytes_freed -= std::min(report_->bytes_freed, added);
  return Status::Ok();
}

bool has(const std::vector<std::string>& list, const std::string& what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

// The facts of a description that the rules need.
struct Facts {
  std::string job, tag;
  int64_t time_ns = 0;
};
Facts facts_of(const std::string& meta) {
  Facts out;
  auto j = parse_json(meta);
  if (!j.is_object()) return out;
  auto text = [&](const char* key) {
    return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
  };
  out.job = text("job");
  out.tag = text("tag");
  if (j.contains("time_ns") && j["time_ns"].is_number_integer())
    out.time_ns = j["time_ns"].get<int64_t>();
  return out;
}

Status choose(Env* env, const Paths& paths, const PruneOptions& options, PruneReport* report) {
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env, paths, &ids); !status.ok()) return status;
  for (const std::string& id : options.remove) {
    if (!has(ids, id))
      return Status::NotFound(fmt::format("store {} has no snapshot {}", paths.root, id));
  }
  const bool rules = options.keep >= 0 || options.older_than_ns > 0;
  const int64_t oldest = env->now_ns() - options.older_than_ns;
  std::map<std::string, int> seen;  // job -> snapshots of its line met, newest first
  JobLine line(env, paths);
  for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
    bool remove = has(options.remove, *it);
    std::string meta;
    uint64_t length = 0;
    // A snapshot that cannot be read is never removed by a rule, and does not count as one of those
    // kept.
    if (!remove && rules &&
        read_manifest_meta(env, paths.manifest(*it), paths.keys.get(), &meta, &length).ok()) {
      Facts facts = facts_of(meta);
      const bool spared = !facts.tag.empty() && has(options.keep_tags, facts.tag);
      const bool meant = options.tag.empty() || facts.tag == options.tag;
      if (!spared && meant) {
        // A branch is removed when as many snapshots of the line are younger than it as are to be
        // kept.
        const bool branch = line.is_branch(*it, meta);
        const int rank = branch ? seen[facts.job] + 1 : ++seen[facts.job];
        const bool too_many = options.keep >= 0 && rank > std::max(1, options.keep);
        // A wrong clock must not cost all snapshots: the newest of a job is never too old.
        const bool too_old = options.older_than_ns > 0 && facts.time_ns < oldest &&
                             it != ids.rbegin() && (rank > 1 || !options.tag.empty());
        remove = options.keep >= 0 && options.older_than_ns > 0 ? too_many && too_old
                                                                : too_many || too_old;
      }
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
  for (size_t i = 0; i < report->removed.size(); ++i) {
    std::string path = paths.manifest(report->removed[i]);
    FileInfo info;
    const uint64_t bytes = env->info(path, &info) == 0 ? info.size : 0;
    const int error = options.dry_run ? 0 : env->remove(path);
    if (error && error != ENOENT) {  // those that were to be removed as well are still there
      report->kept.insert(report->kept.end(), report->removed.begin() + static_cast<ptrdiff_t>(i),
                          report->removed.end());
      report->removed.resize(i);
      return io_error("remove", path, error);
    }
    report->bytes_freed += bytes;
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

Status make_room(Env* env, const Paths& paths, const WriteOptions& options) {
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env, paths, &ids); !status.ok()) return status;
  std::map<std::string, std::string> newest;  // job -> id
  std::map<std::string, std::string> job_of;
  JobLine line(env, paths);
  uint64_t expected = 1 << 20;
  constexpr int kLook = 3;
  int looked = 0;
  for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
    std::string meta;
    uint64_t length = 0;
    if (!read_manifest_meta(env, paths.manifest(*it), paths.keys.get(), &meta, &length).ok())
      continue;
    Facts facts = facts_of(meta);
    job_of[*it] = facts.job;
    if (!line.is_branch(*it, meta)) newest.try_emplace(facts.job, *it);
    if (facts.job != options.job || looked == kLook) continue;
    ++looked;
    auto j = parse_json(meta);
    const uint64_t stored =
        j.is_object() && j.contains("sizes") ? json_number(j["sizes"], "stored_bytes") : 0;
    expected = std::max(expected, stored + stored / 4);
  }
  for (const std::string& id : ids) {
    uint64_t used = 0;
    if (Status status = disk_bytes(env, paths, &used); !status.ok()) return status;
    if (used + expected <= options.budget) return Status::Ok();
    auto job = job_of.find(id);
    if (job == job_of.end() || newest[job->second] == id || id == options.parent) continue;
    PruneOptions prune;
    prune.remove = {id};
    PruneReport report;
    if (Status status = prune_store(env, paths, prune, &report); !status.ok()) return status;
    // Another process is writing: the next prune frees the space.
    if (!report.postponed.empty()) return Status::Ok();
  }
  return Status::Ok();
}

Status sweep_store(Env* env, const Paths& paths, const std::string& lock_id,
                   const std::set<PackId>& forced, PruneReport* report) {
  std::set<std::string> gone;
  return Sweep(env, paths, false, gone, report).run(lock_id, forced);
}

}  // namespace gpuckpt::store
