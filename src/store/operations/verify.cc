// Checks a whole store: which snapshots are whole, and what is damaged.

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "store/io/memory.h"
#include "store/store_internal.h"

namespace gpuckpt::store {
namespace {

struct OpenPack {
  std::shared_ptr<PackReader> reader;
  std::vector<uint32_t> damaged;  // frames
};
using Packs = std::map<PackId, OpenPack>;

unsigned thread_count(unsigned wanted) {
  return wanted ? wanted : std::max(1u, std::thread::hardware_concurrency());
}

// The reasons why packs cannot be opened, by their number in `ids`. One that does not exist any
// more was pruned meanwhile: if a snapshot needs it, opening that snapshot fails.
std::map<size_t, Status> open_packs(Env* env, const Paths& paths, unsigned threads,
                                    const std::vector<PackId>& ids, Packs* packs) {
  std::map<size_t, Status> failures;
  std::mutex mutex;
  run_over(threads, ids.size(), [&](size_t i) {
    std::unique_ptr<PackReader> reader;
    Status status = open_pack(env, paths, ids[i], &reader);
    std::lock_guard guard(mutex);
    if (status.ok()) {
      (*packs)[ids[i]].reader = std::move(reader);
    } else if (status.code() != kExitAbsent) {
      failures[i] = std::move(status);
    }
  });
  return failures;
}

// Returns the first failure that is not the store's: an error of the disk.
Status read_every_frame(const VerifyOptions& options, Packs* packs, VerifyReport* report) {
  Status trouble;
  std::vector<std::pair<OpenPack*, uint32_t>> frames;
  for (auto& [id, pack] : *packs) {
    for (uint32_t f = 0; f < pack.reader->table().frames.size(); ++f) frames.push_back({&pack, f});
  }
  std::atomic<uint64_t> done{0};
  std::mutex mutex;
  run_over(thread_count(options.threads), frames.size(), [&](size_t i) {
    auto [pack, number] = frames[i];
    Status status = pack->reader->check_frame(number);
    done += pack->reader->table().frames[number].stored_length;
    if (!status.ok()) {
      std::lock_guard guard(mutex);
      pack->damaged.push_back(number);
      if (status.code() != kExitCorrupt && trouble.ok()) trouble = status;
      report->findings.push_back(status.text());
    }
    if (options.progress && i % 256 == 0) {
      std::lock_guard guard(mutex);
      options.progress(done, report->pack_bytes);
    }
  });
  report->checked_bytes = done;
  std::sort(report->findings.begin(), report->findings.end());
  return trouble;
}

// Empty: none of the snapshot's chunks lies in a damaged frame.
std::string damage_of(const Manifest& manifest, const Packs& packs) {
  bool touched = std::any_of(manifest.packs.begin(), manifest.packs.end(), [&](const PackRef& ref) {
    auto it = packs.find(ref.id);
    return it != packs.end() && !it->second.damaged.empty();
  });
  if (!touched) return "";
  for (const SpaceMap& space : manifest.spaces) {
    for (const Run& run : space.runs) {
      if (run.pack == kZeroPack) continue;
      auto it = packs.find(manifest.packs[run.pack].id);
      if (it == packs.end()) continue;  // opening the snapshot said so already
      for (uint32_t number : it->second.damaged) {
        const FrameEntry& frame = it->second.reader->table().frames[number];
        if (run.chunk < frame.first_chunk + frame.chunks &&
            frame.first_chunk < run.chunk + run.count) {
          return fmt::format("its bytes at {:#x} of space {:#x} are in damaged frame {} of pack {}",
                             run.address, space.space, number, it->second.reader->path());
        }
      }
    }
  }
  return "";
}

Status verify_one(Env* env, const Paths& paths, const VerifyOptions& options,
                  VerifyReport* report) {
  std::unique_ptr<SnapshotReader> reader;
  Status status = open_snapshot(env, paths, options.id, &reader);
  if (status.code() == kExitAbsent) return status;
  Manifest manifest;
  if (status.ok()) status = load_manifest(env, paths, options.id, &manifest);
  std::atomic<uint64_t> done{0};
  uint64_t total = 0;
  for (const SpaceMap& space : manifest.spaces) {
    for (const Run& run : space.runs) total += run.pack == kZeroPack ? 0 : run.length;
  }
  std::mutex mutex;
  for (const SpaceMap& space : manifest.spaces) {
    if (!status.ok() || !options.full) break;
    status = reader->read_all(space.space, options.threads,
                              [&](uint64_t, std::span<const uint8_t> bytes) {
                                done += bytes.size();
                                if (options.progress) {
                                  std::lock_guard guard(mutex);
                                  options.progress(done, total);
                                }
                                return true;
                              });
  }
  report->packs = manifest.packs.size();
  for (const PackRef& pack : manifest.packs) report->pack_bytes += pack.file_length;
  report->checked_bytes = done;
  if (status.ok()) {
    report->whole.push_back(options.id);
  } else {
    report->damaged.push_back({options.id, status.text()});
  }
  return Status::Ok();
}

}  // namespace

Status find_damage(Env* env, const Paths& paths, std::map<PackId, std::vector<uint32_t>>* damaged,
                   std::map<PackId, Status>* unreadable) {
  std::vector<PackId> ids;
  if (Status status = list_packs(env, paths, &ids); !status.ok()) return status;
  Packs packs;
  VerifyReport report;
  for (auto& [i, status] : open_packs(env, paths, thread_count(0), ids, &packs)) {
    if (status.code() != kExitCorrupt && status.code() != kExitIncompatible) return status;
    (*unreadable)[ids[i]] = std::move(status);
  }
  if (Status status = read_every_frame({}, &packs, &report); !status.ok()) return status;
  for (auto& [id, pack] : packs) {
    if (!pack.damaged.empty()) (*damaged)[id] = std::move(pack.damaged);
  }
  return Status::Ok();
}

Status verify_store(Env* env, const Paths& paths, const VerifyOptions& options,
                    VerifyReport* report) {
  *report = {};
  if (!options.id.empty()) return verify_one(env, paths, options, report);
  std::vector<PackId> ids;
  std::vector<std::string> snapshots;
  // Snapshots are listed first, so that a pack which is written meanwhile belongs to none of them.
  if (Status status = list_snapshots(env, paths, &snapshots); !status.ok()) return status;
  if (Status status = list_packs(env, paths, &ids); !status.ok()) return status;
  Packs packs;
  const unsigned threads = thread_count(options.threads);
  for (auto& [i, status] : open_packs(env, paths, threads, ids, &packs))
    report->findings.push_back(status.text());
  for (const auto& [id, pack] : packs) report->pack_bytes += pack.reader->table().file_length;
  report->packs = packs.size();
  if (options.full) (void)read_every_frame(options, &packs, report);  // in the report already
  OpenPacks open;
  bool any_damaged = false;
  for (const auto& [id, pack] : packs) {
    open[id] = pack.reader;
    any_damaged = any_damaged || !pack.damaged.empty();
  }
  LayerCache layers;
  std::vector<Status> verdicts(snapshots.size());
  run_over(threads, snapshots.size(), [&](size_t i) {
    std::unique_ptr<SnapshotReader> reader;
    Status& verdict = verdicts[i];
    verdict = open_snapshot(env, paths, snapshots[i], &reader, &open, &layers);
    if (!verdict.ok() || !any_damaged) return;
    Manifest manifest;
    verdict = load_manifest(env, paths, snapshots[i], &manifest, &layers);
    std::string why = verdict.ok() ? damage_of(manifest, packs) : "";
    if (!why.empty()) verdict = Status::Corruption(why);
  });
  for (size_t i = 0; i < snapshots.size(); ++i) {
    if (verdicts[i].ok()) {
      report->whole.push_back(snapshots[i]);
    } else if (verdicts[i].code() != kExitAbsent) {  // else pruned meanwhile
      report->damaged.push_back({snapshots[i], verdicts[i].text()});
    }
  }
  return Status::Ok();
}

}  // namespace gpuckpt::store
