#include "store/format/manifest.h"

#include <xxh_x86dispatch.h>
#include <zstd.h>

#include <fmt/format.h>

#include "store/codec/zstd_context.h"

namespace gpuckpt::store {
namespace {

constexpr int kManifestLevel = 3;
// A top layer larger than this, compressed, becomes a file that later snapshots share.
constexpr size_t kLargestTop = 8 * 1024;
// A compressed body that claims to be larger than this many times its size is not ours.
constexpr uint64_t kMostRatio = 2048;

uint64_t captured_bytes(const SpaceMap& space) {
  uint64_t sum = 0;
  for (const Run& run : space.runs) sum += run.length;
  return sum;
}

std::vector<uint8_t> compress(std::span<const uint8_t> plain) {
  std::vector<uint8_t> out(ZSTD_compressBound(plain.size()));
  out.resize(with_memory(ZSTD_compressCCtx(compressor(), out.data(), out.size(), plain.data(),
                                           plain.size(), kManifestLevel)));
  return out;
}

// zstd's frame has its own size: a header that lies cannot make us allocate gigabytes for a few
// bytes.
bool decompress(std::span<const uint8_t> stored, uint64_t plain_length, std::vector<uint8_t>* out) {
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != plain_length ||
      plain_length > kMaxManifestBytes || plain_length / kMostRatio > stored.size() + 1024) {
    return false;
  }
  out->resize(plain_length);
  size_t n = zstd_open(stored, *out);
  return !ZSTD_isError(n) && n == out->size();
}

std::span<const uint8_t> text_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <typename T>
  bool take(T* out) {
    return take(out, sizeof(T));
  }
  bool take(void* out, uint64_t length) {
    if (length > left()) return false;
    if (length) memcpy(out, bytes_.data() + at_, length);
    at_ += length;
    return true;
  }
  uint64_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

void put(std::vector<uint8_t>* out, const void* bytes, size_t length) {
  const uint8_t* p = static_cast<const uint8_t*>(bytes);
  out->insert(out->end(), p, p + length);
}

std::vector<uint8_t> encode_body(const Manifest& manifest, const std::vector<LayerRef>& layers,
                                 std::span<const uint8_t> top) {
  std::vector<uint8_t> body;
  BodyHeader header{static_cast<uint32_t>(layers.size()),
                    static_cast<uint32_t>(manifest.spaces.size()),
                    static_cast<uint32_t>(manifest.blobs.size()), 0, top.size()};
  put(&body, &header, sizeof(header));
  put(&body, layers.data(), layers.size() * sizeof(LayerRef));
  put(&body, top.data(), top.size());
  for (const SpaceMap& space : manifest.spaces) {
    SpaceSum sum{space.space, captured_bytes(space), {}};
    memcpy(sum.digest, space.digest.data(), sizeof(sum.digest));
    put(&body, &sum, sizeof(sum));
  }
  for (const BlobRef& blob : manifest.blobs) {
    BlobHeader bh{blob.length, static_cast<uint32_t>(blob.name.size()), 0};
    put(&body, &bh, sizeof(bh));
    put(&body, blob.name.data(), blob.name.size());
  }
  return body;
}

const char* decode_body(std::span<const uint8_t> body, DecodedManifest* out) {
  Cursor cursor(body);
  BodyHeader header;
  if (!cursor.take(&header) || header.reserved != 0) return "its body has no header";
  if (header.layers > cursor.left() / sizeof(LayerRef)) return "its list of layers is cut off";
  out->layers.resize(header.layers);
  cursor.take(out->layers.data(), header.layers * sizeof(LayerRef));
  if (header.top_length > cursor.left()) return "its top layer is cut off";
  std::vector<uint8_t> top(header.top_length);
  cursor.take(top.data(), top.size());
  if (const char* why = decode_layer(top, &out->top)) return why;
  if (header.spaces > cursor.left() / sizeof(SpaceSum)) return "its list of spaces is cut off";
  out->sums.resize(header.spaces);
  cursor.take(out->sums.data(), header.spaces * sizeof(SpaceSum));
  if (header.blobs > cursor.left() / sizeof(BlobHeader)) return "its list of blobs is cut off";
  out->blobs.resize(header.blobs);
  for (BlobRef& blob : out->blobs) {
    BlobHeader bh;
    if (!cursor.take(&bh) || bh.reserved != 0 || bh.name_length > cursor.left())
      return "a blob is cut off";
    blob.length = bh.length;
    blob.name.resize(bh.name_length);
    cursor.take(blob.name.data(), bh.name_length);
  }
  return cursor.left() == 0 ? nullptr : "bytes are left over";
}

Status bad(const std::string& path, const std::string& why) {
  return Status::Corruption(fmt::format("snapshot {} is damaged: {}", path, why));
}

Status check_header(const std::string& path, const ManifestHeader& header, const Keys* keys) {
  if (memcmp(header.magic, kManifestMagic, sizeof(header.magic)) != 0) {
    return bad(path, "its first bytes are not a manifest's");
  }
  if (XXH3_64bits(&header, offsetof(ManifestHeader, checksum)) != header.checksum) {
    return bad(path, "its header's checksum is wrong");
  }
  if (header.version != kManifestVersion) {
    return Status::Incompatible(
        fmt::format("snapshot {} has format version {}; this gpuckpt reads version {}: use the "
                    "gpuckpt that wrote it, "
                    "or a newer one",
                    path, header.version, kManifestVersion));
  }
  if ((header.flags & ~kFlagEncrypted) != 0) {
    return Status::Incompatible(
        fmt::format("snapshot {} has flags unknown to this gpuckpt ({:#x}): use a newer one", path,
                    header.flags));
  }
  if (header.zeros != 0 || header.meta_length > kMaxMetaBytes ||
      header.body_length > kMaxManifestBytes || header.body_plain_length > kMaxManifestBytes) {
    return bad(path, "its header makes no sense");
  }
  if ((keys != nullptr) != ((header.flags & kFlagEncrypted) != 0)) {
    return bad(path, keys ? "it is not encrypted, in an encrypted store"
                          : "it is encrypted, in a store that is not");
  }
  return Status::Ok();
}

}  // namespace

EncodedManifest encode_manifest(const Manifest& manifest, const Manifest* parent,
                                const Keys* keys) {
  // Share as many of the parent's layers as are worth it. A layer that is not larger than the
  // changes is merged into them, as in a binary counter: n snapshots have about log n layers, and
  // each run is written about log n times.
  size_t keep = parent ? parent->layers.size() : 0;
  Layer top;
  for (;; --keep) {
    PageMap below;
    for (size_t i = 0; i < keep; ++i) (void)apply(*parent->layers[i].layer, &below);
    top = difference(below, manifest);
    if (keep == 0 || parent->layers[keep - 1].ref.entries > top.entries()) break;
  }
  std::vector<LayerRef> layers;
  for (size_t i = 0; i < keep; ++i) layers.push_back(parent->layers[i].ref);
  std::vector<uint8_t> top_bytes = encode_layer(top);
  std::vector<uint8_t> packed = compress(top_bytes);

  EncodedManifest out;
  if (packed.size() > kLargestTop) {
    LayerFileHeader header{};
    memcpy(header.magic, kLayerMagic, sizeof(header.magic));
    header.version = kLayerVersion;
    header.flags = keys ? uint32_t{kFlagEncrypted} : 0;
    if (keys) packed = keys->seal(Keys::kLayers, {}, packed);
    header.body_length = packed.size();
    header.body_plain_length = top_bytes.size();
    header.checksum = XXH3_64bits(&header, offsetof(LayerFileHeader, checksum));
    put(&out.layer_bytes, &header, sizeof(header));
    put(&out.layer_bytes, packed.data(), packed.size());
    out.layer_name = sum128(out.layer_bytes.data(), out.layer_bytes.size());
    layers.push_back({out.layer_name, out.layer_bytes.size(), top.entries()});
    top_bytes = encode_layer({});
  }
  std::vector<uint8_t> body = encode_body(manifest, layers, top_bytes);
  std::vector<uint8_t> stored = compress(body);
  std::vector<uint8_t> meta(manifest.meta.begin(), manifest.meta.end());
  if (keys) {
    meta = keys->seal(Keys::kManifests, {}, meta);
    stored = keys->seal(Keys::kManifests, meta, stored);  // binds this body to this description
  }
  ManifestHeader header{};
  memcpy(header.magic, kManifestMagic, sizeof(header.magic));
  header.version = kManifestVersion;
  header.flags = keys ? uint32_t{kFlagEncrypted} : 0;
  header.meta_length = meta.size();
  header.body_length = stored.size();
  header.body_plain_length = body.size();
  header.meta_checksum = XXH3_64bits(meta.data(), meta.size());
  header.checksum = XXH3_64bits(&header, offsetof(ManifestHeader, checksum));
  put(&out.bytes, &header, sizeof(header));
  put(&out.bytes, meta.data(), meta.size());
  put(&out.bytes, stored.data(), stored.size());
  ManifestTrailer trailer;
  ChunkName checksum = sum128(out.bytes.data(), out.bytes.size());
  memcpy(trailer.checksum, checksum.data(), checksum.size());
  memcpy(trailer.magic, kManifestEndMagic, sizeof(trailer.magic));
  put(&out.bytes, &trailer, sizeof(trailer));
  return out;
}

Status decode_manifest(const std::string& path, std::span<const uint8_t> bytes, const Keys* keys,
                       DecodedManifest* out) {
  ManifestHeader header;
  ManifestTrailer trailer;
  if (bytes.size() < sizeof(header) + sizeof(trailer)) return bad(path, "it is too short");
  memcpy(&header, bytes.data(), sizeof(header));
  if (Status status = check_header(path, header, keys); !status.ok()) return status;
  if (bytes.size() != sizeof(header) + header.meta_length + header.body_length + sizeof(trailer)) {
    return bad(path, "its length is not what its header says (truncated?)");
  }
  memcpy(&trailer, bytes.data() + bytes.size() - sizeof(trailer), sizeof(trailer));
  ChunkName checksum = sum128(bytes.data(), bytes.size() - sizeof(trailer));
  if (memcmp(trailer.magic, kManifestEndMagic, sizeof(trailer.magic)) != 0 ||
      memcmp(trailer.checksum, checksum.data(), checksum.size()) != 0) {
    return bad(path, "its checksum is wrong");
  }
  std::span<const uint8_t> meta = bytes.subspan(sizeof(header), header.meta_length);
  std::span<const uint8_t> stored =
      bytes.subspan(sizeof(header) + header.meta_length, header.body_length);
  if (XXH3_64bits(meta.data(), meta.size()) != header.meta_checksum) {
    return bad(path, "its description's checksum is wrong");
  }
  std::vector<uint8_t> plain_meta(meta.begin(), meta.end()), opened;
  if (keys) {
    if (!keys->open(Keys::kManifests, {}, meta, &plain_meta) ||
        !keys->open(Keys::kManifests, meta, stored, &opened)) {
      return bad(path, "it was not written with this store's key, or was changed since");
    }
    stored = opened;
  }
  out->meta.assign(reinterpret_cast<const char*>(plain_meta.data()), plain_meta.size());
  std::vector<uint8_t> body;
  if (!decompress(stored, header.body_plain_length, &body))
    return bad(path, "its body does not decompress");
  if (const char* why = decode_body(body, out)) return bad(path, why);
  return Status::Ok();
}

Status decode_layer_file(const std::string& path, std::span<const uint8_t> bytes, const Keys* keys,
                         const LayerRef& ref, Layer* out) {
  auto broken = [&](const char* why) {
    return Status::Corruption(fmt::format("layer {} is damaged: {}", path, why));
  };
  if (bytes.size() != ref.file_length || bytes.size() < sizeof(LayerFileHeader))
    return broken("it does not have the length it was written with (truncated?)");
  LayerFileHeader header;
  memcpy(&header, bytes.data(), sizeof(header));
  if (memcmp(header.magic, kLayerMagic, sizeof(header.magic)) != 0)
    return broken("its first bytes are not a layer's");
  if (XXH3_64bits(&header, offsetof(LayerFileHeader, checksum)) != header.checksum)
    return broken("its header's checksum is wrong");
  if (header.version != kLayerVersion || (header.flags & ~kFlagEncrypted) != 0) {
    return Status::Incompatible(
        fmt::format("layer {} has format version {}; this gpuckpt reads version {}: use the "
                    "gpuckpt that wrote it, or a newer one",
                    path, header.version, kLayerVersion));
  }
  if (sum128(bytes.data(), bytes.size()) != ref.name) return broken("its checksum is not its name");
  std::span<const uint8_t> stored = bytes.subspan(sizeof(header));
  if (header.body_length != stored.size() || !all_zero(header.zeros, sizeof(header.zeros)) ||
      ((header.flags & kFlagEncrypted) != 0) != (keys != nullptr)) {
    return broken("its header makes no sense");
  }
  std::vector<uint8_t> opened, body;
  if (keys) {
    if (!keys->open(Keys::kLayers, {}, stored, &opened))
      return broken("it was not written with this store's key, or was changed since");
    stored = opened;
  }
  if (!decompress(stored, header.body_plain_length, &body))
    return broken("its body does not decompress");
  if (const char* why = decode_layer(body, out)) return broken(why);
  if (out->entries() != ref.entries) return broken("it does not have as many runs as it should");
  return Status::Ok();
}

Status stack(const std::string& path, const std::vector<SharedLayer>& shared, PageMap* out) {
  *out = {};
  for (const SharedLayer& layer : shared) {
    if (const char* why = apply(*layer.layer, out)) return bad(path, why);
  }
  return Status::Ok();
}

Status assemble(const std::string& path, DecodedManifest&& decoded,
                std::vector<SharedLayer>&& shared, PageMap&& below, Manifest* out) {
  *out = {};
  static_cast<PageMap&>(*out) = std::move(below);
  if (const char* why = apply(decoded.top, out)) return bad(path, why);
  forget_unused_packs(out);
  if (out->spaces.size() != decoded.sums.size()) return bad(path, "a space is missing");
  for (size_t i = 0; i < out->spaces.size(); ++i) {
    const SpaceSum& sum = decoded.sums[i];
    SpaceMap& space = out->spaces[i];
    if (sum.space != space.space || sum.bytes != captured_bytes(space))
      return bad(path, "its layers do not make up what it says");
    memcpy(space.digest.data(), sum.digest, sizeof(sum.digest));
  }
  out->meta = std::move(decoded.meta);
  out->blobs = std::move(decoded.blobs);
  out->layers = std::move(shared);
  return Status::Ok();
}

Status read_manifest_meta(Env* env, const std::string& path, const Keys* keys, std::string* meta,
                          uint64_t* file_length) {
  std::unique_ptr<File> file;
  if (int e = env->open_read(path, &file)) return io_error("open", path, e);
  if (int e = file->size(file_length)) return io_error("read", path, e);
  if (*file_length < sizeof(ManifestHeader) + sizeof(ManifestTrailer))
    return bad(path, "it is too short");
  ManifestHeader header;
  if (int e = file->pread(0, {reinterpret_cast<uint8_t*>(&header), sizeof(header)})) {
    return io_error("read", path, e);
  }
  if (Status status = check_header(path, header, keys); !status.ok()) return status;
  if (*file_length !=
      sizeof(header) + header.meta_length + header.body_length + sizeof(ManifestTrailer)) {
    return bad(path, "its length is not what its header says (truncated?)");
  }
  meta->resize(header.meta_length);
  if (int e =
          file->pread(sizeof(header), {reinterpret_cast<uint8_t*>(meta->data()), meta->size()})) {
    return io_error("read", path, e);
  }
  if (XXH3_64bits(meta->data(), meta->size()) != header.meta_checksum) {
    return bad(path, "its description's checksum is wrong");
  }
  if (keys) {
    std::vector<uint8_t> plain;
    if (!keys->open(Keys::kManifests, {}, text_bytes(*meta), &plain))
      return bad(path, "it was not written with this store's key, or was changed since");
    meta->assign(plain.begin(), plain.end());
  }
  return Status::Ok();
}

}  // namespace gpuckpt::store
