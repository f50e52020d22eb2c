// Packs, layers, manifests and temporary files by their names: lists of them, loading a manifest
// with its layers, and publishing one (store_internal.h).
#include "store/store_internal.h"

#include <string.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/io/json_text.h"
#include "store/io/memory.h"

namespace gpuckpt::store {
namespace {

constexpr const char* kManifestSuffix = ".manifest";
constexpr const char* kLayerSuffix = ".layer";

}  // namespace

Status write_new_file(Env* env, const std::string& path, std::span<const uint8_t> bytes) {
  std::unique_ptr<File> file;
  if (int e = env->create(path, &file)) return io_error("create", path, e);
  std::span<const uint8_t> parts[] = {bytes};
  int error = file->append(parts);
  if (error) {
    env->remove(path);
    return io_error("write", path, error);
  }
  error = file->sync();
  if (error) {
    env->remove(path);
    return io_error("sync", path, error);
  }
  return Status::Ok();
}

bool plausible_id(const std::string& id) {
  if (id.empty() || id.size() > 63 || id[0] == '-') return false;
  return std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-';
  });
}

// The ids in the names of a directory's files that end in `suffix`; other names are passed over.
template <typename Id>
static Status list_named(Env* env, const std::string& directory, const char* suffix,
                         std::vector<Id>* out) {
  out->clear();
  std::vector<std::string> names;
  if (int e = env->list(directory, &names)) return io_error("list", directory, e);
  for (const std::string& name : names) {
    Id id;
    if (name.ends_with(suffix) &&
        unhex(name.substr(0, name.size() - strlen(suffix)), id.data(), id.size()))
      out->push_back(id);
  }
  return Status::Ok();
}

Status list_packs(Env* env, const Paths& paths, std::vector<PackId>* out) {
  return list_named(env, paths.packs(), kPackSuffix, out);
}

Status list_snapshots(Env* env, const Paths& paths, std::vector<std::string>* out) {
  out->clear();
  std::vector<std::string> names;
  if (int e = env->list(paths.snapshots(), &names)) return io_error("list", paths.snapshots(), e);
  for (const std::string& name : names) {
    if (!name.ends_with(kManifestSuffix)) continue;
    std::string id = name.substr(0, name.size() - strlen(kManifestSuffix));
    if (plausible_id(id)) out->push_back(std::move(id));
  }
  return Status::Ok();
}

Status remove_stale_files(Env* env, const Paths& paths, uint64_t* count) {
  if (count) *count = 0;
  // Files are listed before locks: a writer takes its lock before it creates a file, so a file seen
  // here whose lock is not seen afterwards belongs to no live writer.
  std::vector<std::string> found;
  for (const std::string& directory : {paths.packs(), paths.layers(), paths.snapshots()}) {
    std::vector<std::string> names;
    if (int e = env->list(directory, &names)) return io_error("list", directory, e);
    for (const std::string& name : names) {
      if (name.ends_with(".tmp")) found.push_back(directory + "/" + name);
    }
  }
  if (found.empty()) return Status::Ok();
  std::vector<LockOwner> owners;
  if (Status status = list_locks(env, paths.root, 0, &owners); !status.ok()) return status;
  for (const std::string& path : found) {
    bool owned = std::any_of(owners.begin(), owners.end(), [&](const LockOwner& owner) {
      std::string id = owner.file.substr(0, owner.file.size() - strlen(".lock"));
      return owner.live && path.find("." + id + ".tmp") != std::string::npos;
    });
    if (owned) continue;
    if (env->remove(path) == 0 && count) ++*count;
  }
  return Status::Ok();
}

Status list_layers(Env* env, const Paths& paths, std::vector<ChunkName>* out) {
  return list_named(env, paths.layers(), kLayerSuffix, out);
}

Status open_pack(Env* env, const Paths& paths, const PackId& id, std::unique_ptr<PackReader>* out) {
  return PackReader::open(env, paths.pack(id), id, paths.keys, paths.names, out);
}

namespace {

Status load_layer(Env* env, const Paths& paths, const LayerRef& ref,
                  std::shared_ptr<const Layer>* out) {
  std::string path = paths.layer(ref.name);
  std::vector<uint8_t> bytes;
  if (Status status = read_file(env, path, kMaxManifestBytes, &bytes); !status.ok()) {
    if (status.code() != kExitAbsent) return status;
    return Status::Corruption(fmt::format("its layer {} is missing", path));
  }
  auto layer = std::make_shared<Layer>();
  Status status = decode_layer_file(path, bytes, paths.keys.get(), ref, layer.get());
  *out = std::move(layer);
  return status;
}

}  // namespace

Status load_manifest(Env* env, const Paths& paths, const std::string& id, Manifest* out,
                     LayerCache* cache) {
  std::string path = paths.manifest(id);
  std::vector<uint8_t> bytes;
  if (Status status = read_file(env, path, kMaxManifestBytes, &bytes); !status.ok()) {
    if (status.code() != kExitAbsent) return status;
    return Status::NotFound(fmt::format("store {} has no snapshot {}", paths.root, id));
  }
  DecodedManifest decoded;
  if (Status status = decode_manifest(path, bytes, paths.keys.get(), &decoded); !status.ok())
    return status;
  auto j = parse_json(decoded.meta);
  if (!j.is_object() || !j.contains("id") || j["id"] != id) {
    return Status::Corruption(
        fmt::format("snapshot {} is damaged: it is another snapshot than its name says", path));
  }
  std::vector<SharedLayer> shared;
  for (const LayerRef& ref : decoded.layers) {
    std::shared_ptr<const Layer> layer;
    if (cache) layer = cache->find(ref.name);
    if (!layer) {
      if (Status status = load_layer(env, paths, ref, &layer); !status.ok())
        return status.in("snapshot " + id);
      if (cache) cache->add(ref.name, layer);
    }
    shared.push_back({ref, std::move(layer)});
  }
  PageMap below;
  std::shared_ptr<const PageMap> known = cache ? cache->stack(decoded.layers) : nullptr;
  if (known) {
    below = *known;
  } else if (Status status = stack(path, shared, &below); !status.ok()) {
    return status;
  } else if (cache && !shared.empty()) {
    cache->add_stack(decoded.layers, std::make_shared<const PageMap>(below));
  }
  return assemble(path, std::move(decoded), std::move(shared), std::move(below), out);
}

PendingManifest::~PendingManifest() {
  for (const std::string& path : {pending_, pending_layer_}) {
    if (!path.empty()) env_->remove(path);
  }
}

Status PendingManifest::write(const EncodedManifest& encoded) {
  if (!encoded.layer_bytes.empty()) {
    layer_ = paths_.layer(encoded.layer_name);
    // The name of a layer is a checksum and can collide: another layer of that name is not
    // replaced.
    std::vector<uint8_t> there;
    if (Status s = read_file(env_, layer_, kMaxManifestBytes, &there);
        s.ok() && there != encoded.layer_bytes)
      return Status::Error(fmt::format(
          "layer {} is there with other contents: this snapshot is not taken (the next one can be)",
          layer_));
    pending_layer_ =
        fmt::format("{}/{}.{}.tmp", paths_.layers(), hex(encoded.layer_name), lock_id_);
    if (Status status = write_new_file(env_, pending_layer_, encoded.layer_bytes); !status.ok())
      return status;
  }
  pending_ = fmt::format("{}/{}.{}.tmp", paths_.snapshots(), id_, lock_id_);
  return write_new_file(env_, pending_, encoded.bytes);
}

Status PendingManifest::publish(bool replace) {
  if (!pending_layer_.empty()) {
    if (int e = env_->rename(pending_layer_, layer_)) return io_error("rename", pending_layer_, e);
    pending_layer_.clear();
    if (int e = env_->sync_directory(paths_.layers())) return io_error("sync", paths_.layers(), e);
  }
  // No allocation may fail once the manifest has its name.
  const std::string path = paths_.manifest(id_), directory = paths_.snapshots();
  if (int e = env_->rename(pending_, path)) return io_error("rename", pending_, e);
  pending_.clear();
  if (int e = env_->sync_directory(directory)) {
    if (!replace) env_->remove(path);
    return io_error("sync", directory, e);
  }
  return Status::Ok();
}

Status disk_bytes(Env* env, const Paths& paths, uint64_t* out) {
  *out = 0;
  for (const std::string& directory : {paths.packs(), paths.layers(), paths.snapshots()}) {
    std::vector<std::string> names;
    if (int e = env->list(directory, &names)) return io_error("list", directory, e);
    for (const std::string& name : names) {
      FileInfo info;
      if (env->info(directory + "/" + name, &info) == 0 && info.regular) *out += info.size;
    }
  }
  return Status::Ok();
}

}  // namespace gpuckpt::store
