// What the pieces of src/store share and nobody else needs.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "store/env.h"
#include "store/manifest.h"
#include "store/pack.h"
#include "store/store.h"

namespace gpuckpt::store {

// Ids become file names: nothing else than what a writer can make is one.
bool plausible_id(const std::string& id);

struct Paths {
  std::string root;
  std::string packs() const { return root + "/packs"; }
  std::string snapshots() const { return root + "/snapshots"; }
  std::string pack(const PackId& id) const { return packs() + "/" + pack_file(id); }
  std::string manifest(const std::string& id) const { return snapshots() + "/" + id + ".manifest"; }
};

// All complete packs, by the names of their files.
Status list_packs(Env* env, const Paths& paths, std::vector<PackId>* out);
// Ids of all snapshots, oldest first.
Status list_snapshots(Env* env, const Paths& paths, std::vector<std::string>* out);
// Temporary files whose writer is gone are removed; `count` may be null.
Status remove_leftovers(Env* env, const Paths& paths, uint64_t* count);
Status load_manifest(Env* env, const Paths& paths, const std::string& id, Manifest* out);
// Writes a manifest under a temporary name that carries `lock_id`, and syncs it; removes it again
// on failure.
Status write_pending_manifest(Env* env, const Paths& paths, const std::string& lock_id,
                              const std::string& id, std::span<const uint8_t> bytes,
                              std::string* pending);
// Gives it its name and makes that durable. With `replace` there is a manifest of this id that says
// the same with other packs, and a failure leaves one of the two; without, a failure leaves none.
Status publish_pending_manifest(Env* env, const Paths& paths, const std::string& id,
                                const std::string& pending, bool replace);
Status disk_bytes(Env* env, const Paths& paths, uint64_t* out);

Status begin_snapshot(Env* env, const Paths& paths, const WriteOptions& options,
                      std::unique_ptr<SnapshotWriter>* out);
// Packs that are open already are taken from `open` (may be null) instead of being opened again.
using OpenPacks = std::map<PackId, std::shared_ptr<PackReader>>;
Status open_snapshot(Env* env, const Paths& paths, const std::string& id,
                     std::unique_ptr<SnapshotReader>* out, const OpenPacks* open = nullptr);
Status verify_store(Env* env, const Paths& paths, const VerifyOptions& options,
                    VerifyReport* report);
Status prune_store(Env* env, const Paths& paths, const PruneOptions& options, PruneReport* report);

Status repair_store(Env* env, const Paths& paths, bool dry_run, RepairReport* report);
// Removes packs nobody names and rewrites those that are mostly unused, or in `forced`. The caller
// holds an exclusive lock.
Status sweep_store(Env* env, const Paths& paths, const std::string& lock_id,
                   const std::set<PackId>& forced, PruneReport* report);
// Every damaged frame of the store, by reading them all. Packs that cannot be opened are in
// `unreadable`.
Status find_damage(Env* env, const Paths& paths, std::map<PackId, std::vector<uint32_t>>* damaged,
                   std::map<PackId, Status>* unreadable);

}  // namespace gpuckpt::store
