// A snapshot as one stream: docs/FORMAT.md, "A stream".

#include <xxh_x86dispatch.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "store/codec/zstd_context.h"
#include "store/format/format.h"
#include "store/store.h"

namespace gpuckpt::store {
namespace {

constexpr char kStreamMagic[8] = {'G', 'P', 'C', 'K', 'S', 'T', 'R', 'M'};
constexpr uint32_t kStreamVersion = 1;  // do not change: 1 = the first
constexpr uint64_t kPiece = 1024 * 1024;
// The first part that is read; each further piece is as long as all before it.
constexpr size_t kFirstPiece = 64 * 1024;

enum RecordType : uint32_t {
  kRecMeta = 1,  // payload: the description
  kRecData = 2,  // payload: bytes of `space` from `address` on
  kRecZero = 3,  // no payload; `length` zeros
  kRecBlob = 4,  // payload: u32 length of name, name, bytes; appended
  kRecEnd = 5,   // `length`: number of records before this one
};

struct StreamHeader {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
};
struct RecordHeader {
  uint32_t type;
  uint32_t codec;  // of the payload: Codec
  uint64_t space;
  uint64_t address;
  uint64_t length;    // plain
  uint64_t stored;    // bytes of payload that follow
  uint64_t checksum;  // XXH3-64 of the 40 bytes before, then of the payload as stored (seeded with
                      // the first)
};
static_assert(sizeof(RecordHeader) == 48);

uint64_t record_checksum(const RecordHeader& header, std::span<const uint8_t> payload) {
  uint64_t seed = XXH3_64bits(&header, offsetof(RecordHeader, checksum));
  return XXH3_64bits_withSeed(payload.data(), payload.size(), seed);
}

class Sender {
 public:
  explicit Sender(const StreamWrite& write) : write_(write) {}
  bool begin() {
    StreamHeader header{};
    memcpy(header.magic, kStreamMagic, sizeof(header.magic));
    header.version = kStreamVersion;
    return raw(&header, sizeof(header));
  }
  bool record(uint32_t type, uint64_t space, uint64_t address, uint64_t length,
              std::span<const uint8_t> payload) {
    RecordHeader header{type, kCodecPlain, space, address, length, payload.size(), 0};
    packed_.resize(ZSTD_compressBound(payload.size()));
    size_t n = payload.empty() ? 0
                               : ZSTD_compressCCtx(compressor(), packed_.data(), packed_.size(),
                                                   payload.data(), payload.size(), 1);
    if (!payload.empty() && !ZSTD_isError(n) && n < payload.size()) {
      header.codec = kCodecZstd;
      header.stored = n;
      payload = std::span(packed_).first(n);
    }
    header.checksum = record_checksum(header, payload);
    ++records_;
    return raw(&header, sizeof(header)) && (payload.empty() || write_(payload));
  }
  uint64_t records() const { return records_; }

 private:
  bool raw(const void* bytes, size_t length) {
    return write_({static_cast<const uint8_t*>(bytes), length});
  }
  const StreamWrite& write_;
  std::vector<uint8_t> packed_;
  uint64_t records_ = 0;
};

struct Received {
  RecordHeader header;
  std::vector<uint8_t> payload;
};

Status receive(const StreamRead& read, uint64_t number, Received* out) {
  auto bad = [&](const char* why) {
    return Status::Corruption(fmt::format("the stream is damaged: record {} {}", number, why));
  };
  RecordHeader& header = out->header;
  if (!read({reinterpret_cast<uint8_t*>(&header), sizeof(header)})) return bad("is cut off");
  constexpr uint64_t kMost = kMaxMetaBytes;
  bool payload = header.type == kRecMeta || header.type == kRecData || header.type == kRecBlob;
  if (header.type < kRecMeta || header.type > kRecEnd || (payload && header.length > kMost) ||
      header.stored > kMost || (!payload && header.stored != 0)) {
    return bad("makes no sense");
  }
  // Read piece by piece, so that a header that lies does not make us allocate room for bytes that
  // do not follow.
  std::vector<uint8_t> stored;
  while (stored.size() < header.stored) {
    const size_t n =
        std::min<size_t>(std::max(stored.size(), kFirstPiece), header.stored - stored.size());
    stored.resize(stored.size() + n);
    if (!read(std::span(stored).last(n))) return bad("is cut off");
  }
  if (record_checksum(header, stored) != header.checksum) return bad("has a wrong checksum");
  if (!payload) return Status::Ok();
  if (header.codec == kCodecPlain && header.stored == header.length) {
    out->payload = std::move(stored);
    return Status::Ok();
  }
  if (header.codec != kCodecZstd) return bad("has an unknown codec");
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != header.length)
    return bad("is not as long as it says");
  out->payload.resize(header.length);
  return zstd_open(stored, out->payload) == header.length ? Status::Ok()
                                                          : bad("does not decompress");
}

}  // namespace

Status export_snapshot(const SnapshotReader& snapshot, const StreamWrite& write) {
  Sender out(write);
  const Status lost = Status::Error("the receiver of the stream went away, or its disk is full");
  std::string meta = snapshot.meta();
  std::span<const uint8_t> meta_bytes(reinterpret_cast<const uint8_t*>(meta.data()), meta.size());
  if (!out.begin() || !out.record(kRecMeta, 0, 0, meta.size(), meta_bytes)) return lost;
  std::vector<uint8_t> piece;
  for (uint64_t space : snapshot.spaces()) {
    for (const Extent& extent : snapshot.extents(space)) {
      if (extent.zero) {
        if (!out.record(kRecZero, space, extent.address, extent.length, {})) return lost;
        continue;
      }
      for (uint64_t at = extent.address, end = extent.address + extent.length; at < end;) {
        // Up to the next multiple, so that the receiver cuts chunks at the same addresses.
        uint64_t n = std::min(kPiece - at % kPiece, end - at);
        piece.resize(n);
        if (Status status = snapshot.read(space, at, piece); !status.ok()) return status;
        if (!out.record(kRecData, space, at, n, piece)) return lost;
        at += n;
      }
    }
  }
  for (const std::string& name : snapshot.blobs()) {
    std::vector<uint8_t> bytes;
    if (Status status = snapshot.blob(name, &bytes); !status.ok()) return status;
    size_t at = 0;
    do {
      size_t n = std::min<size_t>(kPiece, bytes.size() - at);
      uint32_t length = static_cast<uint32_t>(name.size());
      piece.assign(reinterpret_cast<uint8_t*>(&length),
                   reinterpret_cast<uint8_t*>(&length) + sizeof(length));
      piece.insert(piece.end(), name.begin(), name.end());
      piece.insert(piece.end(), bytes.begin() + static_cast<ptrdiff_t>(at),
                   bytes.begin() + static_cast<ptrdiff_t>(at + n));
      if (!out.record(kRecBlob, 0, 0, piece.size(), piece)) return lost;
      at += n;
    } while (at < bytes.size());
  }
  return out.record(kRecEnd, 0, 0, out.records(), {}) ? Status::Ok() : lost;
}

Status import_snapshot(Store& store, const WriteOptions& given, const StreamRead& read,
                       CommitResult* result) {
  StreamHeader header;
  if (!read({reinterpret_cast<uint8_t*>(&header), sizeof(header)}) ||
      memcmp(header.magic, kStreamMagic, sizeof(header.magic)) != 0) {
    return Status::Corruption("the input is not a stream that `gpuckpt export` has written");
  }
  if (header.version == kStreamVersion && header.reserved != 0)
    return Status::Corruption("the stream's header is damaged");
  if (header.version != kStreamVersion) {
    return Status::Incompatible(
        fmt::format("the stream has format version {}; this gpuckpt reads version {}",
                    header.version, kStreamVersion));
  }
  WriteOptions options = given;
  options.adopt = true;
  std::unique_ptr<SnapshotWriter> writer;
  if (Status status = store.begin(options, &writer); !status.ok()) return status;
  std::string meta;
  for (uint64_t number = 0;; ++number) {
    Received record;
    if (Status status = receive(read, number, &record); !status.ok()) return status;
    const RecordHeader& h = record.header;
    Status status;
    switch (h.type) {
      case kRecMeta:
        meta.assign(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
        break;
      case kRecData:
        status = writer->put(h.space, h.address, record.payload);
        break;
      case kRecZero:
        status = writer->put_zero(h.space, h.address, h.length);
        break;
      case kRecBlob: {
        uint32_t length = 0;
        if (record.payload.size() < sizeof(length))
          return Status::Corruption("the stream is damaged: a blob has no name");
        memcpy(&length, record.payload.data(), sizeof(length));
        if (length > record.payload.size() - sizeof(length))
          return Status::Corruption("the stream is damaged: a blob is cut off");
        std::string name(record.payload.begin() + sizeof(length),
                         record.payload.begin() + sizeof(length) + length);
        status =
            writer->append_blob(name, std::span(record.payload).subspan(sizeof(length) + length));
        break;
      }
      case kRecEnd:
        if (h.length != number)
          return Status::Corruption("the stream is damaged: records are missing");
        return writer->commit(meta, result);
    }
    if (!status.ok()) return status;
  }
}

}  // namespace gpuckpt::store
