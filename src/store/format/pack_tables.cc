#include "store/format/pack_tables.h"

#include <string.h>

#include <algorithm>

#include "store/store_internal.h"

namespace gpuckpt::store {
namespace {

constexpr char kMagic[8] = {'G', 'P', 'C', 'K', 'T', 'A', 'B', 'S'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMostFileBytes = 1ull << 30;

struct FileHeader {
  char magic[8];
  ChunkName sum;  // of what follows
  uint32_t version;
  uint32_t packs;
  PackHeader like;  // the header of the store's packs, with an id of zeros
};
static_assert(sizeof(FileHeader) == 96);
constexpr size_t kSummedFrom = offsetof(FileHeader, version);

// Before each table, which is filled up to a multiple of 8 bytes.
struct TableHeader {
  PackId id;
  uint64_t file_length;
  uint64_t table_checksum;
  uint64_t plain_bytes;
  uint32_t frames;
  uint32_t chunks;
};
static_assert(sizeof(TableHeader) == 48);

uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }

std::string path_of(const Paths& paths) { return paths.root + "/tables"; }

template <typename T>
std::span<const uint8_t> raw(std::span<const T> entries) {
  return {reinterpret_cast<const uint8_t*>(entries.data()), entries.size_bytes()};
}

void append(std::string* to, std::span<const uint8_t> bytes) {
  to->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
template <typename T>
void append_struct(std::string* to, const T& value) {
  append(to, {reinterpret_cast<const uint8_t*>(&value), sizeof(value)});
}

void append(std::string* to, const TableView& t) {
  const TableHeader header{t.id,
                           t.file_length,
                           t.table_checksum,
                           t.plain_bytes,
                           static_cast<uint32_t>(t.frames.size()),
                           static_cast<uint32_t>(t.chunks.size())};
  append_struct(to, header);
  append(to, raw(t.frames));
  append(to, raw(t.chunks));
  to->resize(padded(to->size()));
}

}  // namespace

void PackTables::load(Env* env, const Paths& paths) {
  if (read_file(env, path_of(paths), kMostFileBytes, &file_).ok() && parse(paths)) return;
  known_.clear();
  chunks_ = 0;
}

bool PackTables::parse(const Paths& paths) {
  FileHeader header;
  if (file_.size() < sizeof(header)) return false;
  memcpy(&header, file_.data(), sizeof(header));
  const std::span<const uint8_t> rest = std::span(file_).subspan(sizeof(header));
  const PackHeader ours = pack_header({}, *paths.names);
  if (memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion ||
      memcmp(&header.like, &ours, sizeof(ours)) != 0 ||
      header.sum != sum128(file_.data() + kSummedFrom, file_.size() - kSummedFrom))
    return false;
  size_t at = 0;
  for (uint32_t i = 0; i < header.packs; ++i) {
    TableHeader t;
    if (rest.size() - at < sizeof(t)) return false;
    memcpy(&t, rest.data() + at, sizeof(t));
    at += sizeof(t);
    const uint64_t frame_bytes = t.frames * uint64_t{sizeof(FrameEntry)};
    const uint64_t chunk_bytes = t.chunks * uint64_t{sizeof(ChunkEntry)};
    if (rest.size() - at < padded(frame_bytes + chunk_bytes)) return false;
    const TableView view{
        t.id,
        t.file_length,
        t.table_checksum,
        t.plain_bytes,
        {reinterpret_cast<const FrameEntry*>(rest.data() + at), t.frames},
        {reinterpret_cast<const ChunkEntry*>(rest.data() + at + frame_bytes), t.chunks}};
    at += padded(frame_bytes + chunk_bytes);
    if (!contradiction(view).empty()) return false;
    known_.emplace(t.id, view);
    chunks_ += t.chunks;
  }
  return at == rest.size();
}

void PackTables::forget(Env* env, const Paths& paths) { (void)env->remove(path_of(paths)); }

const TableView* PackTables::find(const PackId& id) const {
  const auto it = known_.find(id);
  return it == known_.end() ? nullptr : &it->second;
}

// To open a pack takes some ten times as long as to read its table from the file, and the file is
// written whole: so it is written as often as the packs that it lacks have become a sixteenth.
void PackTables::save(Env* env, const Paths& paths, std::span<const PackId> packs) const {
  constexpr size_t kWorthwhile = 64;
  if (added_.size() < kWorthwhile + known_.size() / 16) return;
  FileHeader header{};
  memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.like = pack_header({}, *paths.names);
  std::string text;
  append_struct(&text, header);
  const auto put = [&](const TableView& table) {
    append(&text, table);
    ++header.packs;
  };
  for (const PackId& id : packs)
    if (const TableView* table = find(id)) put(*table);
  for (const TableView& table : added_) put(table);
  memcpy(text.data(), &header, sizeof(header));
  header.sum = sum128(text.data() + kSummedFrom, text.size() - kSummedFrom);
  memcpy(text.data(), &header, sizeof(header));
  if (text.size() <= kMostFileBytes) (void)replace_file(env, paths.root, "tables", text);
}

}  // namespace gpuckpt::store
