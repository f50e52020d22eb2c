#include "store/format/pack.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "store/codec/frame_codec.h"

namespace gpuckpt::store {

static const char* const kWrongChecksum = "its checksum is wrong";

std::string pack_file(const PackId& id) { return hex(id) + ".pack"; }

bool is_whole(const PackHeader& header) {
  return memcmp(header.magic, kPackMagic, sizeof(header.magic)) == 0 &&
         (header.version == kPackVersion || header.version == kUnkeyedVersion) &&
         header.checksum == hash64({bytes_of(header).first(offsetof(PackHeader, checksum))});
}

PackHeader pack_header(const PackId& id, const Names& names) {
  PackHeader header{};
  memcpy(header.magic, kPackMagic, sizeof(header.magic));
  header.version = names.key() ? kPackVersion : kUnkeyedVersion;
  header.flags = names.encrypted() ? uint32_t{kFlagEncrypted} : 0;
  header.id = id;
  if (names.key() && !names.encrypted())
    memcpy(header.name_key, names.key()->byte, sizeof(header.name_key));
  header.checksum = hash64({bytes_of(header).first(offsetof(PackHeader, checksum))});
  return header;
}

Status PackWriter::create(Env* env, const std::string& path, const Names& names, uint64_t cached,
                          std::unique_ptr<PackWriter>* out) {
  auto pack = std::make_unique<PackWriter>();
  pack->env_ = env;
  pack->path_ = path;
  pack->cached_ = cached;
  env->random(pack->id_.data(), pack->id_.size());
  std::unique_ptr<File> file;
  if (int e = cached == kAll ? env->create(path, &file) : env->create_uncached(path, cached, &file))
    return io_error("create", path, e);
  pack->file_ = std::move(file);
  const PackHeader header = pack_header(pack->id_, names);
  pack->version_ = header.version;
  std::span<const uint8_t> parts[] = {bytes_of(header)};
  if (int e = pack->file_->append(parts)) return io_error("write", path, e);
  pack->bytes_ = sizeof(header);
  *out = std::move(pack);
  return Status::Ok();
}

Status PackWriter::append(const SealedFrame& frame, uint32_t* first_chunk, Writeback* due) {
  std::vector<std::span<const uint8_t>> parts = {bytes_of(frame.header), bytes_of(frame.lengths),
                                                 frame.stored};
  parts.insert(parts.end(), frame.borrowed.begin(), frame.borrowed.end());
  if (int e = file_->append(parts)) return io_error("write", path_, e);
  *first_chunk = static_cast<uint32_t>(chunks_.size());
  frames_.push_back({bytes_, frame.header.codec, frame.header.plain_length,
                     frame.header.stored_length, frame.header.chunks, *first_chunk, 0,
                     frame.header.checksum});
  for (size_t i = 0; i < frame.names.size(); ++i)
    chunks_.push_back({frame.names[i], frame.lengths[i]});
  bytes_ += frame.disk_bytes();
  plain_bytes_ += frame.header.plain_length;
  constexpr uint64_t kWriteback = 16ull << 20;
  if (bytes_ - written_back_ >= kWriteback) *due = write_back();
  return Status::Ok();
}

PackWriter::Writeback PackWriter::write_back() {
  Writeback out{file_, written_back_, bytes_ - written_back_};
  written_back_ = bytes_;
  return out;
}

Status PackWriter::complete() {
  PackTrailer trailer{};
  trailer.table_offset = bytes_;
  trailer.frames = static_cast<uint32_t>(frames_.size());
  trailer.chunks = static_cast<uint32_t>(chunks_.size());
  trailer.plain_bytes = plain_bytes_;
  trailer.id = id_;
  trailer.table_checksum = table_checksum_ = hash64({bytes_of(frames_), bytes_of(chunks_)});
  trailer.version = version_;
  trailer.checksum = hash64({bytes_of(trailer).first(offsetof(PackTrailer, checksum))});
  memcpy(trailer.magic, kPackEndMagic, sizeof(trailer.magic));
  std::span<const uint8_t> parts[] = {bytes_of(frames_), bytes_of(chunks_), bytes_of(trailer)};
  uint64_t added = table_bytes();
  if (int e = file_->append(parts)) return io_error("write", path_, e);
  bytes_ += added;
  write_back().start();
  return Status::Ok();
}

Status PackWriter::sync() {
  if (int e = file_->sync()) return io_error("sync", path_, e);
  if (cached_ < bytes_) file_->drop_cache(cached_);
  file_.reset();
  return Status::Ok();
}

uint32_t PackTable::frame_of(uint32_t chunk) const {
  auto it =
      std::upper_bound(frames.begin(), frames.end(), chunk,
                       [](uint32_t c, const FrameEntry& frame) { return c < frame.first_chunk; });
  return static_cast<uint32_t>(it - frames.begin()) - 1;
}

Status PackReader::bad(const std::string& why) const {
  return Status::Corruption(fmt::format("pack {} is damaged: {}", path_, why));
}

Status PackReader::read_header(PackHeader* header) const {
  if (int e = file_->pread(0, {reinterpret_cast<uint8_t*>(header), sizeof(*header)}))
    return io_error("read", path_, e);
  if (memcmp(header->magic, kPackMagic, sizeof(header->magic)) != 0)
    return bad("its first bytes are not a pack's");
  bool header_whole =
      header->checksum == hash64({bytes_of(*header).first(offsetof(PackHeader, checksum))});
  if (!header_whole) return bad("its header's checksum is wrong");
  if (header->version != kPackVersion && header->version != kUnkeyedVersion) {
    return Status::Incompatible(
        fmt::format("pack {} has format version {}; this gpuckpt reads versions {} and {}: use the "
                    "gpuckpt that wrote it, or a newer one",
                    path_, header->version, kUnkeyedVersion, kPackVersion));
  }
  if ((header->flags & ~kFlagEncrypted) != 0 || !all_zero(header->zeros, sizeof(header->zeros)))
    return bad("reserved bytes are set");
  if ((header->flags != 0) != (keys_ != nullptr)) {
    return bad(keys_ ? "it is not encrypted, in an encrypted store"
                     : "it is encrypted, in a store that is not");
  }
  const PackHeader ours = pack_header(header->id, *names_);
  if (header->version != ours.version ||
      memcmp(header->name_key, ours.name_key, sizeof(ours.name_key)) != 0)
    return bad("its chunks are not named as this store names them: it is another store's");
  return Status::Ok();
}

Status PackReader::read_trailer(const PackHeader& header, const PackId& id,
                                PackTrailer* trailer) const {
  const uint64_t end = table_.file_length - sizeof(*trailer);
  if (int e = file_->pread(end, {reinterpret_cast<uint8_t*>(trailer), sizeof(*trailer)}))
    return io_error("read", path_, e);
  if (memcmp(trailer->magic, kPackEndMagic, sizeof(trailer->magic)) != 0)
    return bad("it does not end as a pack does (truncated?)");
  if (trailer->checksum != hash64({bytes_of(*trailer).first(offsetof(PackTrailer, checksum))}))
    return bad("its trailer's checksum is wrong");
  if (trailer->version != header.version) return bad("header and trailer differ in version");
  if (trailer->id != header.id || trailer->id != id)
    return bad("it is another pack than its name says");
  const uint64_t table_bytes = trailer->frames * uint64_t{sizeof(FrameEntry)} +
                               trailer->chunks * uint64_t{sizeof(ChunkEntry)};
  if (trailer->reserved != 0 || trailer->table_offset < sizeof(PackHeader) ||
      trailer->table_offset > end || end - trailer->table_offset != table_bytes)
    return bad("its table does not fit into the file");
  return Status::Ok();
}

Status PackReader::read_table(const PackTrailer& trailer) {
  table_.table_checksum = trailer.table_checksum;
  table_.plain_bytes = trailer.plain_bytes;
  table_.frames.resize(trailer.frames);
  table_.chunks.resize(trailer.chunks);
  std::span<uint8_t> frames(reinterpret_cast<uint8_t*>(table_.frames.data()),
                            trailer.frames * sizeof(FrameEntry));
  std::span<uint8_t> chunks(reinterpret_cast<uint8_t*>(table_.chunks.data()),
                            trailer.chunks * sizeof(ChunkEntry));
  if (int e = file_->pread(trailer.table_offset, frames)) return io_error("read", path_, e);
  if (int e = file_->pread(trailer.table_offset + frames.size(), chunks))
    return io_error("read", path_, e);
  if (hash64({frames, chunks}) != trailer.table_checksum)
    return bad("its table's checksum is wrong");
  return Status::Ok();
}

// A right checksum of the table says that gpuckpt wrote it; these bounds make reading it safe even
// where that is not true.
std::string contradiction(const TableView& table) {
  uint64_t offset = sizeof(PackHeader), chunk = 0, plain = 0;
  for (const FrameEntry& frame : table.frames) {
    if (frame.offset != offset || frame.first_chunk != chunk || frame.chunks == 0 ||
        frame.chunks > kMaxFrameChunks || frame.plain_length == 0 ||
        frame.plain_length > kMaxFrameBytes || frame.stored_length == 0 ||
        frame.stored_length > kMaxFrameBytes + Keys::kOverhead ||
        frame.chunks > table.chunks.size() - chunk) {
      return fmt::format("its table contradicts itself at chunk {}", chunk);
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < frame.chunks; ++i) sum += table.chunks[chunk + i].length;
    if (sum != frame.plain_length)
      return fmt::format("chunk lengths do not add up at chunk {}", chunk);
    offset += sizeof(FrameHeader) + 4ull * frame.chunks + frame.stored_length;
    chunk += frame.chunks;
    plain += frame.plain_length;
  }
  const uint64_t behind =
      table.frames.size_bytes() + table.chunks.size_bytes() + sizeof(PackTrailer);
  if (offset + behind != table.file_length || chunk != table.chunks.size() ||
      plain != table.plain_bytes)
    return "its table does not cover the file";
  return "";
}

Status PackReader::open(Env* env, const std::string& path, const PackId& id,
                        std::shared_ptr<const Keys> keys, std::shared_ptr<const Names> names,
                        std::unique_ptr<PackReader>* out) {
  auto pack = std::make_unique<PackReader>();
  pack->keys_ = std::move(keys);
  pack->names_ = std::move(names);
  pack->env_ = env;
  pack->path_ = path;
  if (int e = env->open_read(path, &pack->file_)) return io_error("open", path, e);
  PackTable& table = pack->table_;
  if (int e = pack->file_->size(&table.file_length)) return io_error("read", path, e);
  if (table.file_length < sizeof(PackHeader) + sizeof(PackTrailer))
    return pack->bad("it is too short");
  PackHeader header;
  PackTrailer trailer;
  if (Status status = pack->read_header(&header); !status.ok()) return status;
  if (Status status = pack->read_trailer(header, id, &trailer); !status.ok()) return status;
  table.id = id;
  if (Status status = pack->read_table(trailer); !status.ok()) return status;
  if (const std::string why = contradiction(view_of(table)); !why.empty()) return pack->bad(why);
  *out = std::move(pack);
  return Status::Ok();
}

Status PackReader::damage(uint32_t number, const char* why) const {
  return Status::Corruption(fmt::format("pack {} is damaged: frame {} at offset {}: {}", path_,
                                        number, table_.frames[number].offset, why));
}

Status PackReader::load(uint32_t number, std::span<uint8_t> place, Raw* out) const {
  thread_local std::vector<uint8_t> raw;  // grows, and is not cleared
  const FrameEntry& frame = table_.frames[number];
  const size_t head = sizeof(FrameHeader) + 4ull * frame.chunks;
  const size_t length = head + (place.empty() ? frame.stored_length : 0);
  if (raw.size() < length) raw.resize(length);
  int e = file_->pread(frame.offset, std::span(raw).first(length));
  if (!e && !place.empty()) e = file_->pread(frame.offset + head, place);
  if (e) return io_error("read", path_, e);
  FrameHeader& header = out->header;
  memcpy(&header, raw.data(), sizeof(header));
  out->lengths = std::span(raw).subspan(sizeof(header), head - sizeof(header));
  out->stored = place.empty() ? std::span(raw).subspan(head, frame.stored_length) : place;
  if (header.magic != kFrameMagic || header.codec != frame.codec ||
      header.plain_length != frame.plain_length || header.stored_length != frame.stored_length ||
      header.chunks != frame.chunks || header.reserved != 0) {
    return damage(number, "its header is not what the table says");
  }
  return header.checksum == frame.checksum ? Status::Ok() : damage(number, kWrongChecksum);
}

Status PackReader::check_sum(uint32_t number, const Raw& raw) const {
  return frame_checksum(raw.header, raw.lengths, raw.stored) == table_.frames[number].checksum
             ? Status::Ok()
             : damage(number, kWrongChecksum);
}

bool PackReader::is_plain(const FrameEntry& frame) const {
  return !keys_ && frame.codec == kCodecPlain && frame.plain_length == frame.stored_length;
}

Status PackReader::unpack(uint32_t number, const Raw& raw, std::span<uint8_t> plain) const {
  const char* why = unseal(raw.header, raw.lengths, raw.stored, keys_.get(), plain);
  if (why == kUnknownCodec) {
    return Status::Incompatible(
        fmt::format("pack {} frame {} uses codec {}, unknown to this gpuckpt: use a newer one",
                    path_, number, raw.header.codec));
  }
  return why ? damage(number, why) : Status::Ok();
}

Status PackReader::read_frame(uint32_t number, std::vector<uint8_t>* plain) const {
  plain->resize(table_.frames[number].plain_length);
  return read_frame(number, std::span(*plain));
}

Status PackReader::read_frame(uint32_t number, std::span<uint8_t> plain) const {
  Raw raw;
  if (Status status = load(number, {}, &raw); !status.ok()) return status;
  if (Status status = check_sum(number, raw); !status.ok()) return status;
  return unpack(number, raw, plain);
}

Status PackReader::view_frame(uint32_t number, std::span<uint8_t> place, std::vector<uint8_t>* room,
                              std::span<const uint8_t>* bytes) const {
  if (!is_plain(table_.frames[number])) {
    if (place.empty()) {
      room->resize(table_.frames[number].plain_length);
      place = *room;
    }
    *bytes = place;
    return read_frame(number, place);
  }
  Raw raw;
  if (Status status = load(number, place, &raw); !status.ok()) return status;
  *bytes = raw.stored;
  const ChunkEntry* chunk = &table_.chunks[table_.frames[number].first_chunk];
  for (size_t at = 0; at < raw.lengths.size(); at += sizeof(uint32_t), ++chunk)
    if (memcmp(&raw.lengths[at], &chunk->length, sizeof(uint32_t)) != 0)
      return damage(number, "its lengths are not what the table says");
  return Status::Ok();
}

Status PackReader::check_chunk(uint32_t chunk, std::span<const uint8_t> bytes) const {
  if (names_->of(bytes.data(), bytes.size()) == table_.chunks[chunk].name) return Status::Ok();
  return Status::Corruption(
      fmt::format("pack {} is damaged: chunk {} does not have the bytes its name {} stands for",
                  path_, chunk, hex(table_.chunks[chunk].name)));
}

Status PackReader::check_frame(uint32_t number) const {
  thread_local std::vector<uint8_t> plain;
  const FrameEntry& frame = table_.frames[number];
  Raw raw;
  if (Status status = load(number, {}, &raw); !status.ok()) return status;
  if (Status status = check_sum(number, raw); !status.ok()) return status;
  std::span<const uint8_t> bytes = raw.stored;
  if (!is_plain(frame)) {
    plain.resize(frame.plain_length);
    if (Status status = unpack(number, raw, plain); !status.ok()) return status;
    bytes = plain;
  }
  size_t offset = 0;
  for (uint32_t i = 0; i < frame.chunks; ++i) {
    size_t length = table_.chunks[frame.first_chunk + i].length;
    Status status = check_chunk(frame.first_chunk + i, bytes.subspan(offset, length));
    if (!status.ok()) return status;
    offset += length;
  }
  return Status::Ok();
}

Status rebuild_pack(Env* env, const std::string& path, const PackId& id, const Keys* keys,
                    const Names& names, std::vector<uint8_t>* out, uint64_t* table_checksum) {
  std::vector<uint8_t> file;
  if (Status status = read_file(env, path, 2 * kPackBytes, &file); !status.ok()) return status;
  if (file.size() < sizeof(PackHeader))
    return Status::Corruption(fmt::format("pack {} is too short", path));
  const PackHeader header = pack_header(id, names);
  memcpy(file.data(), &header, sizeof(header));

  std::vector<FrameEntry> frames;
  std::vector<ChunkEntry> chunks;
  std::vector<uint8_t> plain;
  uint64_t offset = sizeof(header), plain_bytes = 0;
  while (offset + sizeof(FrameHeader) <= file.size()) {
    FrameHeader frame;
    memcpy(&frame, &file[offset], sizeof(frame));
    uint64_t lengths_at = offset + sizeof(frame), stored_at = lengths_at + 4ull * frame.chunks;
    if (frame.magic != kFrameMagic || frame.chunks == 0 || frame.chunks > kMaxFrameChunks ||
        frame.plain_length > kMaxFrameBytes ||
        frame.stored_length > kMaxFrameBytes + Keys::kOverhead ||
        stored_at + frame.stored_length > file.size()) {
      break;
    }
    std::span<const uint8_t> lengths(&file[lengths_at], 4ull * frame.chunks);
    std::span<const uint8_t> stored(&file[stored_at], frame.stored_length);
    if (frame_checksum(frame, lengths, stored) != frame.checksum) break;
    plain.resize(frame.plain_length);
    if (unseal(frame, lengths, stored, keys, plain)) break;
    frames.push_back({offset, frame.codec, frame.plain_length, frame.stored_length, frame.chunks,
                      static_cast<uint32_t>(chunks.size()), 0, frame.checksum});
    uint64_t at = 0;
    for (uint32_t i = 0; i < frame.chunks; ++i) {
      uint32_t length;
      memcpy(&length, lengths.data() + 4ull * i, sizeof(length));
      if (length > plain.size() - at)
        return Status::Corruption(fmt::format("pack {} contradicts itself", path));
      chunks.push_back({names.of(plain.data() + at, length), length});
      at += length;
    }
    plain_bytes += frame.plain_length;
    offset = stored_at + frame.stored_length;
  }
  PackTrailer trailer{};
  trailer.table_offset = offset;
  trailer.frames = static_cast<uint32_t>(frames.size());
  trailer.chunks = static_cast<uint32_t>(chunks.size());
  trailer.plain_bytes = plain_bytes;
  trailer.id = id;
  trailer.table_checksum = *table_checksum = hash64({bytes_of(frames), bytes_of(chunks)});
  trailer.version = header.version;
  trailer.checksum = hash64({bytes_of(trailer).first(offsetof(PackTrailer, checksum))});
  memcpy(trailer.magic, kPackEndMagic, sizeof(trailer.magic));
  file.resize(offset);
  for (auto part : {bytes_of(frames), bytes_of(chunks), bytes_of(trailer)}) {
    file.insert(file.end(), part.begin(), part.end());
  }
  *out = std::move(file);
  return Status::Ok();
}

}  // namespace gpuckpt::store
