// What the files of src/store share; not for other folders.
//
// Owner: the Store and its callers; a PendingManifest owns its temporary files. Threads: a
// LayerCache any, the rest one for each operation. Errors: a Status.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "store/format/manifest.h"
#include "store/format/names.h"
#include "store/format/pack.h"
#include "store/io/env.h"
#include "store/store.h"

namespace gpuckpt::store {

// The suffix of packs' names.
inline constexpr const char* kPackSuffix = ".pack";

// Ids become file names, so only those that a writer can make are accepted.
bool plausible_id(const std::string& id);

// Where the files of a store are, and what is needed to read them.
struct Paths {
  std::string root;
  std::shared_ptr<const Keys> keys = nullptr;  // null: not encrypted
  std::shared_ptr<const Names> names = Names::unkeyed(nullptr);
  std::string packs() const { return root + "/packs"; }
  std::string snapshots() const { return root + "/snapshots"; }
  std::string layers() const { return root + "/layers"; }
  std::string layer(const ChunkName& name) const { return layers() + "/" + hex(name) + ".layer"; }
  std::string pack(const PackId& id) const { return packs() + "/" + pack_file(id); }
  std::string manifest(const std::string& id) const { return snapshots() + "/" + id + ".manifest"; }
};

// All complete packs, by the names of their files.
Status list_packs(Env* env, const Paths& paths, std::vector<PackId>* out);
// Ids of all snapshots, oldest first.
Status list_snapshots(Env* env, const Paths& paths, std::vector<std::string>* out);
// Removes temporary files whose writer has ended; `count` may be null.
Status remove_stale_files(Env* env, const Paths& paths, uint64_t* count);
// Layers that were read already, passed around within one operation so that it reads each once.
// Thread safe.
class LayerCache {
 public:
  std::shared_ptr<const Layer> find(const ChunkName& name) {
    std::lock_guard guard(mutex_);
    auto it = layers_.find(name);
    return it == layers_.end() ? nullptr : it->second;
  }
  void add(const ChunkName& name, std::shared_ptr<const Layer> layer) {
    std::lock_guard guard(mutex_);
    layers_[name] = std::move(layer);
  }
  // The map that the layers make up. Neighbouring snapshots mostly share all their files, so the
  // last stack is kept; null: another one was asked for.
  std::shared_ptr<const PageMap> stack(const std::vector<LayerRef>& layers) const {
    std::lock_guard guard(mutex_);
    const bool same = std::equal(stacked_.begin(), stacked_.end(), layers.begin(), layers.end(),
                                 [](const ChunkName& a, const LayerRef& b) { return a == b.name; });
    return same ? stack_ : nullptr;
  }
  void add_stack(const std::vector<LayerRef>& layers, std::shared_ptr<const PageMap> map) {
    std::vector<ChunkName> names;
    for (const LayerRef& ref : layers) names.push_back(ref.name);
    std::lock_guard guard(mutex_);
    stacked_ = std::move(names);
    stack_ = std::move(map);
  }

 private:
  mutable std::mutex mutex_;
  std::map<ChunkName, std::shared_ptr<const Layer>> layers_;
  std::vector<ChunkName> stacked_;
  std::shared_ptr<const PageMap> stack_;
};
Status load_manifest(Env* env, const Paths& paths, const std::string& id, Manifest* out,
                     LayerCache* cache = nullptr);
Status open_pack(Env* env, const Paths& paths, const PackId& id, std::unique_ptr<PackReader>* out);
Status list_layers(Env* env, const Paths& paths, std::vector<ChunkName>* out);

// A manifest that is being published: written and synced under temporary names that carry
// `lock_id`, then renamed. When it is destroyed before, it leaves nothing.
class PendingManifest {
 public:
  PendingManifest(Env* env, const Paths& paths, std::string lock_id, std::string id)
      : env_(env), paths_(paths), lock_id_(std::move(lock_id)), id_(std::move(id)) {}
  ~PendingManifest();
  PendingManifest(const PendingManifest&) = delete;
  PendingManifest& operator=(const PendingManifest&) = delete;
  Status write(const EncodedManifest& encoded);
  // Publishes the layer, then the manifest, each made durable. With `replace` there is a manifest
  // of this id already that says the same with other packs, and a failure leaves one of the two;
  // without, a failure leaves none.
  Status publish(bool replace);

 private:
  Env* env_;
  const Paths& paths_;
  std::string lock_id_, id_, layer_, pending_layer_, pending_;
};
Status disk_bytes(Env* env, const Paths& paths, uint64_t* out);

Status begin_snapshot(Env* env, const Paths& paths, const WriteOptions& options,
                      std::unique_ptr<SnapshotWriter>* out);
// Packs that are open already are taken from `open` (may be null).
using OpenPacks = std::map<PackId, std::shared_ptr<PackReader>>;
Status open_snapshot(Env* env, const Paths& paths, const std::string& id,
                     std::unique_ptr<SnapshotReader>* out, const OpenPacks* open = nullptr,
                     LayerCache* cache = nullptr);
// The same for a snapshot that has no manifest file yet; all its packs are in `open`.
Status open_unpublished(Env* env, const Paths& paths, const std::string& id,
                        const Manifest& manifest, const OpenPacks& open,
                        std::unique_ptr<SnapshotReader>* out);
Status verify_store(Env* env, const Paths& paths, const VerifyOptions& options,
                    VerifyReport* report);
// Removes the oldest snapshots until `wanted` more bytes fit into `budget`, or nothing more may go.
Status make_room(Env* env, const Paths& paths, const WriteOptions& options);
Status prune_store(Env* env, const Paths& paths, const PruneOptions& options, PruneReport* report);

Status repair_store(Env* env, const Paths& paths, bool dry_run, RepairReport* report);
// Refuses a store of another user, unless told otherwise.
Status check_store_owner(Env* env, const std::string& path);
// Makes the directories of a new store at `path`; refuses a place that holds something else.
Status make_store_directories(Env* env, const std::string& path);
// Makes the directories of the store durable, also when another process made them and died before
// its sync.
Status sync_store(Env* env, const std::string& path);
// Writes and syncs a file that does not exist yet; after a failure there is none.
Status write_new_file(Env* env, const std::string& path, std::span<const uint8_t> bytes);
// Replaces `name` in `directory` by `text`, at once or not at all.
Status replace_file(Env* env, const std::string& directory, const std::string& name,
                    const std::string& text);
// Copies every snapshot of this store to the one at `target`, reached through `to_env`.
Status mirror_store(Env* env, const Paths& paths, Env* to_env, const std::string& target,
                    MirrorReport* report);
std::unique_ptr<MirrorState> read_mirror_state(Env* env, const Paths& paths);
// Removes packs that no manifest names and rewrites those that are mostly unused, or in `forced`.
// The caller holds an exclusive lock.
Status sweep_store(Env* env, const Paths& paths, const std::string& lock_id,
                   const std::set<PackId>& forced, PruneReport* report);
// Reads all frames of the store and lists the damaged ones. Packs that cannot be opened are in
// `unreadable`.
Status find_damage(Env* env, const Paths& paths, std::map<PackId, std::vector<uint32_t>>* damaged,
                   std::map<PackId, Status>* unreadable);

}  // namespace gpuckpt::store
