// The end of writing a snapshot: packs are made durable and published, then the manifest is built,
// described, checked and published. The order of writes is in snapshot_writer.cc.
#include <time.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/job_line.h"
#include "store/io/json_text.h"
#include "store/snapshot_writer.h"

namespace gpuckpt::store {

Status SnapshotWriterImpl::publish_packs() {
  for (PackInUse& pack : packs_) {
    if (!pack.writer) continue;
    packs_published_ = true;
    std::string path = paths_.pack(pack.ref.id);
    if (int e = env_->rename(pack.writer->path(), path))
      return io_error("rename", pack.writer->path(), e);
  }
  if (int e = env_->sync_directory(paths_.packs())) return io_error("sync", paths_.packs(), e);
  return sync_store(env_, paths_.root);
}

// `packs`: of each pack of the manifest, its number among ours.
Status SnapshotWriterImpl::digest_space(const std::vector<uint32_t>& packs, SpaceMap* space) const {
  SpaceDigest sum;
  const uint64_t unit = chunk_unit(space->space);
  for (const Run& run : space->runs) {
    if (run.pack == kZeroPack) {
      sum.zeros(run.address, run.length);
      continue;
    }
    const std::vector<ChunkEntry>& chunks = packs_[packs[run.pack]].chunks;
    uint64_t address = run.address;
    for (uint32_t i = run.chunk; i < run.chunk + run.count; ++i) {
      if (chunks[i].length != chunk_length(address, run.end(), unit)) {
        return Status::Error(
            fmt::format("the chunk at {:#x} of space {:#x} has another length than its name "
                        "stands for (a bug in gpuckpt: please report)",
                        address, space->space));
      }
      sum.chunk(address, chunks[i].length, chunks[i].name);
      address += chunks[i].length;
    }
  }
  space->digest = sum.finish();
  return Status::Ok();
}

Status SnapshotWriterImpl::build_manifest(Manifest* manifest) {
  std::vector<PlacedRun> all;
  for (auto& lane : lanes_) {
    all.insert(all.end(), lane->runs.begin(), lane->runs.end());
    lane->runs = {};
  }
  std::sort(all.begin(), all.end(), [](const PlacedRun& a, const PlacedRun& b) {
    return a.space != b.space ? a.space < b.space : a.address < b.address;
  });
  std::vector<uint32_t> number(packs_.size(), kNoPack);  // pack of ours -> pack of the manifest
  std::vector<uint32_t> back;                            // and back
  for (const PlacedRun& run : all) {
    if (manifest->spaces.empty() || manifest->spaces.back().space != run.space) {
      manifest->spaces.push_back({run.space, {}, {}});
    }
    std::vector<Run>& runs = manifest->spaces.back().runs;
    Run ref{run.address, run.length, kZeroPack, 0, 0};
    if (run.place.frame != kZeroFrame) {
      FramePlace at{run.pack, 0};
      if (run.place.frame != kDirect) at = frames_[run.place.frame];
      if (at.pack == kNoPack)
        return Status::Error("a frame was never written (a bug in gpuckpt: please report)");
      uint32_t& n = number[at.pack];
      if (n == kNoPack) {
        n = static_cast<uint32_t>(manifest->packs.size());
        manifest->packs.push_back(packs_[at.pack].ref);
        back.push_back(at.pack);
      }
      ref.pack = n;
      ref.chunk = at.first_chunk + run.place.index;
      ref.count = run.count;
    }
    if (!runs.empty() && ref.address < runs.back().end()) {
      return Status::Error(
          fmt::format("address {:#x} of space {:#x} was captured twice", ref.address, run.space));
    }
    add_run(&runs, ref, chunk_unit(run.space));
  }
  for (SpaceMap& space : manifest->spaces)
    if (Status status = digest_space(back, &space); !status.ok()) return status;
  manifest->blobs.resize(blobs_.size());
  for (const auto& [name, blob] : blobs_)
    manifest->blobs[blob.space & ~kBlobSpace] = {name, blob.length};
  return Status::Ok();
}

namespace {

// Ids sort by time, also when the clock went backwards, and differ by their last part when two
// writers use the same time.
std::string make_id(Env* env, int64_t now_ns, const std::string& newest) {
  auto stamp = [](int64_t ms) {
    time_t seconds = ms / 1000;
    tm parts;
    gmtime_r(&seconds, &parts);
    return fmt::format("{:04}{:02}{:02}-{:02}{:02}{:02}{:03}", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       ms % 1000);
  };
  constexpr size_t kStampLength = 18;
  std::string id = stamp(now_ns / 1'000'000);
  if (newest.size() > kStampLength && newest.substr(0, kStampLength) >= id) {
    tm parts{};
    int ms = 0;
    if (sscanf(newest.c_str(), "%4d%2d%2d-%2d%2d%2d%3d", &parts.tm_year, &parts.tm_mon,
               &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &ms) == 7) {
      parts.tm_year -= 1900;
      parts.tm_mon -= 1;
      id = stamp(timegm(&parts) * int64_t{1000} + ms + 1);
    }
  }
  static const char letters[] = "23456789abcdefghjkmnpqrstvwxyz";
  uint8_t random[4] = {};
  env->random(random, sizeof(random));
  id += '-';
  for (uint8_t byte : random) id += letters[byte % (sizeof(letters) - 1)];
  return id;
}

}  // namespace

Status SnapshotWriterImpl::describe(const std::string& meta, CommitResult* result,
                                    std::string* out) {
  std::string* id = &result->id;
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env_, paths_, &ids); !status.ok()) return status;
  nlohmann::json j = parse_json(meta);
  if (!j.is_object()) return Status::Error("the description of the snapshot is not a JSON object");
  if (options_.adopt) {
    *id = j.contains("id") && j["id"].is_string() ? j["id"].get<std::string>() : "";
    if (!plausible_id(*id)) return Status::Corruption("the snapshot has no id");
    if (std::find(ids.begin(), ids.end(), *id) != ids.end()) {
      return Status::Locked(fmt::format("store {} has snapshot {} already", paths_.root, *id));
    }
    // Fencing numbers belong to the store where the snapshot was written.
    for (const char* key : {"fence", "base", "branch"}) j.erase(key);
  } else {
    int64_t now = env_->now_ns();
    *id = make_id(env_, now, ids.empty() ? "" : ids.back());
    time_t seconds = now / 1'000'000'000;
    tm parts;
    gmtime_r(&seconds, &parts);
    char iso[32];
    strftime(iso, sizeof(iso), "%Y-%m-%dT%H:%M:%SZ", &parts);
    j["id"] = *id;
    j["time"] = iso;
    j["time_ns"] = now;
    j["job"] = options_.job;
    if (!options_.run.empty()) {
      const LeaseRequest request{options_.job, options_.run, options_.run_pid, lease_ttl_ms()};
      if (Status s = place_in_line(env_, paths_, request, &j, &result->warning); !s.ok()) return s;
    }
  }
  if (!paths_.names->key()) {
    if (!result->warning.empty()) result->warning += "\n";
    result->warning += fmt::format(
        "store {} has format version 2: a party that chooses what the program stores can make "
        "pages that come back as others; name a new --store (this one stays readable, and "
        "`gpuckpt export` and `import` copy from it)",
        paths_.root);
  }
  j["sizes"] = {{"logical_bytes", logical_.load()},
                {"new_bytes", new_.load()},
                {"same_bytes", same_.load()},
                {"zero_bytes", zero_.load()},
                {"stored_bytes", written_}};
  for (const auto& [codec, bytes] : by_codec_)
    j["sizes"][fmt::format("codec_{}_bytes", codec)] = bytes;
  *out = j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return Status::Ok();
}

// The snapshot that resembles this one most: the parent, or else the newest of this job.
const Manifest* SnapshotWriterImpl::layers_to_share() {
  if (!parent_id_.empty()) return &parent_;
  std::vector<std::string> ids;
  if (!list_snapshots(env_, paths_, &ids).ok()) return nullptr;
  constexpr size_t kLook = 16;
  for (size_t i = 0; i < std::min(kLook, ids.size()); ++i) {
    const std::string& id = ids[ids.size() - 1 - i];
    std::string meta;
    uint64_t length = 0;
    if (!read_manifest_meta(env_, paths_.manifest(id), paths_.keys.get(), &meta, &length).ok())
      continue;
    auto j = parse_json(meta);
    bool ours = j.is_object() && j.contains("job") && j["job"] == options_.job;
    if (!ours || !load_manifest(env_, paths_, id, &parent_).ok()) continue;
    return &parent_;
  }
  return nullptr;
}

// Called before the packs get their names, so that a refusal leaves nothing behind.
Status SnapshotWriterImpl::ask(const Check& check, const std::string& id,
                               const Manifest& manifest) {
  OpenPacks open;
  for (const PackInUse& pack : packs_) {
    if (!pack.writer) continue;
    std::unique_ptr<PackReader> reader;
    if (Status s = PackReader::open(env_, pack.writer->path(), pack.ref.id, paths_.keys,
                                    paths_.names, &reader);
        !s.ok())
      return s;
    open[pack.ref.id] = std::move(reader);
  }
  std::unique_ptr<SnapshotReader> reader;
  if (Status s = open_unpublished(env_, paths_, id, manifest, open, &reader); !s.ok()) return s;
  return check(*reader);
}

Status SnapshotWriterImpl::finish(const std::string& meta, const Check& check,
                                  CommitResult* result) {
  for (auto& [name, blob] : blobs_) {
    if (blob.pending.empty()) continue;
    Borrowed lane(this);
    Status status = add(*lane, blob.space, blob.length - blob.pending.size(), blob.pending);
    if (!status.ok()) return status;
    blob.pending = {};
  }
  for (auto& lane : lanes_) {
    for (Lane::Open& open : lane->open) {
      if (Status status = close_frame(open); !status.ok()) return fail(status);
    }
  }
  if (failed_) return failure();
  if (Status status = finish_pack(); !status.ok()) return fail(status);
  if (Status status = sync_packs(0); !status.ok()) return fail(status);
  Manifest manifest;
  if (Status status = build_manifest(&manifest); !status.ok()) return fail(status);
  if (Status status = describe(meta, result, &manifest.meta); !status.ok()) return fail(status);
  if (check)
    if (Status status = ask(check, result->id, manifest); !status.ok()) {
      // It may be a pack that was damaged since its table was noted: the next snapshot looks at
      // all.
      if (status.code() == kExitCorrupt) PackTables::forget(env_, paths_);
      return fail(status);
    }
  EncodedManifest encoded = encode_manifest(manifest, layers_to_share(), paths_.keys.get());
  if (Status status = check_room(encoded.disk_bytes()); !status.ok()) return fail(status);
  // Everything that can run out of space comes before the first rename.
  PendingManifest pending(env_, paths_, lock_->id(), result->id);
  if (Status status = pending.write(encoded); !status.ok()) return fail(status);
  if (Status status = publish_packs(); !status.ok()) return fail(status);
  if (Status status = pending.publish(false); !status.ok()) return fail(status);
  committed_ = true;
  result->logical_bytes = logical_;
  result->new_bytes = new_;
  result->zero_bytes = zero_;
  result->stored_bytes = written_ + encoded.disk_bytes();
  lock_.reset();
  return Status::Ok();
}

}  // namespace gpuckpt::store
