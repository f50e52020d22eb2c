#include "store/manifest.h"

#include <xxhash.h>
#include <zstd.h>

#include <fmt/format.h>

namespace gpuckpt::store {
namespace {

constexpr int kManifestLevel = 3;

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

std::vector<uint8_t> encode_body(const Manifest& manifest) {
  std::vector<uint8_t> body;
  BodyHeader header{static_cast<uint32_t>(manifest.packs.size()),
                    static_cast<uint32_t>(manifest.spaces.size()),
                    static_cast<uint32_t>(manifest.blobs.size()), 0};
  put(&body, &header, sizeof(header));
  put(&body, manifest.packs.data(), manifest.packs.size() * sizeof(PackRef));
  for (const SpaceMap& space : manifest.spaces) {
    SpaceHeader sh{space.space, space.runs.size(), {}};
    memcpy(sh.digest, space.digest.data(), sizeof(sh.digest));
    put(&body, &sh, sizeof(sh));
    put(&body, space.runs.data(), space.runs.size() * sizeof(RunRef));
  }
  for (const BlobRef& blob : manifest.blobs) {
    BlobHeader bh{blob.length, static_cast<uint32_t>(blob.name.size()), 0};
    put(&body, &bh, sizeof(bh));
    put(&body, blob.name.data(), blob.name.size());
  }
  return body;
}

const char* decode_body(std::span<const uint8_t> body, Manifest* out) {
  Cursor cursor(body);
  BodyHeader header;
  if (!cursor.take(&header) || header.reserved != 0) return "its body has no header";
  if (header.packs > cursor.left() / sizeof(PackRef)) return "its pack list is cut off";
  out->packs.resize(header.packs);
  cursor.take(out->packs.data(), header.packs * sizeof(PackRef));
  if (header.spaces > cursor.left() / sizeof(SpaceHeader)) return "its space list is cut off";
  out->spaces.resize(header.spaces);
  uint64_t previous_space = 0;
  for (uint32_t i = 0; i < header.spaces; ++i) {
    SpaceMap& space = out->spaces[i];
    SpaceHeader sh;
    if (!cursor.take(&sh) || sh.runs > cursor.left() / sizeof(RunRef)) return "a space is cut off";
    if (i > 0 && sh.space <= previous_space) return "its spaces are out of order";
    previous_space = space.space = sh.space;
    memcpy(space.digest.data(), sh.digest, sizeof(sh.digest));
    space.runs.resize(sh.runs);
    cursor.take(space.runs.data(), sh.runs * sizeof(RunRef));
    uint64_t end = 0;
    for (const RunRef& run : space.runs) {
      bool zero = run.pack == kZeroPack;
      if (run.length == 0 || run.address < end || run.address + run.length < run.address ||
          run.reserved != 0 ||
          (zero ? run.chunk != 0 || run.count != 0 : run.pack >= header.packs || run.count == 0)) {
        return "a run makes no sense";
      }
      end = run.address + run.length;
    }
  }
  out->blobs.resize(header.blobs < cursor.left() / sizeof(BlobHeader) + 1 ? header.blobs : 0);
  if (out->blobs.size() != header.blobs) return "its blob list is cut off";
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

Status check_header(const std::string& path, const ManifestHeader& header) {
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
  if (header.reserved != 0 || header.zeros != 0 || header.meta_length > kMaxMetaBytes ||
      header.body_length > kMaxManifestBytes || header.body_plain_length > kMaxManifestBytes) {
    return bad(path, "its header makes no sense");
  }
  return Status::Ok();
}

}  // namespace

std::vector<uint8_t> encode_manifest(const Manifest& manifest) {
  std::vector<uint8_t> body = encode_body(manifest);
  std::vector<uint8_t> stored(ZSTD_compressBound(body.size()));
  stored.resize(
      ZSTD_compress(stored.data(), stored.size(), body.data(), body.size(), kManifestLevel));
  ManifestHeader header{};
  memcpy(header.magic, kManifestMagic, sizeof(header.magic));
  header.version = kManifestVersion;
  header.meta_length = manifest.meta.size();
  header.body_length = stored.size();
  header.body_plain_length = body.size();
  header.meta_checksum = XXH3_64bits(manifest.meta.data(), manifest.meta.size());
  header.checksum = XXH3_64bits(&header, offsetof(ManifestHeader, checksum));
  std::vector<uint8_t> out;
  put(&out, &header, sizeof(header));
  put(&out, manifest.meta.data(), manifest.meta.size());
  put(&out, stored.data(), stored.size());
  ManifestTrailer trailer;
  ChunkName checksum = chunk_name(out.data(), out.size());
  memcpy(trailer.checksum, checksum.data(), checksum.size());
  memcpy(trailer.magic, kManifestEndMagic, sizeof(trailer.magic));
  put(&out, &trailer, sizeof(trailer));
  return out;
}

Status decode_manifest(const std::string& path, std::span<const uint8_t> bytes, Manifest* out) {
  ManifestHeader header;
  ManifestTrailer trailer;
  if (bytes.size() < sizeof(header) + sizeof(trailer)) return bad(path, "it is too short");
  memcpy(&header, bytes.data(), sizeof(header));
  if (Status status = check_header(path, header); !status.ok()) return status;
  if (bytes.size() != sizeof(header) + header.meta_length + header.body_length + sizeof(trailer)) {
    return bad(path, "its length is not what its header says (truncated?)");
  }
  memcpy(&trailer, bytes.data() + bytes.size() - sizeof(trailer), sizeof(trailer));
  ChunkName checksum = chunk_name(bytes.data(), bytes.size() - sizeof(trailer));
  if (memcmp(trailer.magic, kManifestEndMagic, sizeof(trailer.magic)) != 0 ||
      memcmp(trailer.checksum, checksum.data(), checksum.size()) != 0) {
    return bad(path, "its checksum is wrong");
  }
  const uint8_t* meta = bytes.data() + sizeof(header);
  if (XXH3_64bits(meta, header.meta_length) != header.meta_checksum) {
    return bad(path, "its description's checksum is wrong");
  }
  out->meta.assign(reinterpret_cast<const char*>(meta), header.meta_length);
  const uint8_t* stored = meta + header.meta_length;
  // The frame knows its own size: a lying header cannot make us allocate gigabytes for a few bytes.
  if (ZSTD_getFrameContentSize(stored, header.body_length) != header.body_plain_length ||
      header.body_plain_length / 2048 > header.body_length + 1024) {
    return bad(path, "its body's length is wrong");
  }
  std::vector<uint8_t> body(header.body_plain_length);
  size_t n = ZSTD_decompress(body.data(), body.size(), stored, header.body_length);
  if (ZSTD_isError(n) || n != body.size()) return bad(path, "its body does not decompress");
  if (const char* why = decode_body(body, out)) return bad(path, why);
  return Status::Ok();
}

Status read_manifest_meta(Env* env, const std::string& path, std::string* meta,
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
  if (Status status = check_header(path, header); !status.ok()) return status;
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
  return Status::Ok();
}

SpaceDigest::SpaceDigest() : state_(XXH3_createState()) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}
SpaceDigest::~SpaceDigest() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void SpaceDigest::run(const RunRef& run) {
  uint64_t words[2] = {run.address, run.length};
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), words, sizeof(words));
}
void SpaceDigest::name(const ChunkName& name) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), name.data(), name.size());
}
ChunkName SpaceDigest::finish() {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(static_cast<XXH3_state_t*>(state_)));
  ChunkName out;
  memcpy(out.data(), canonical.digest, out.size());
  return out;
}

}  // namespace gpuckpt::store
