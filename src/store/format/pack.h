// Packs: write-once files of compressed frames, each a few chunks, with a table of contents at the
// end.
//
// Owner: the caller. Threads: a PackReader and the functions any; a PackWriter one at a time.
// Errors: a Status that names the file and the damage.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/codec/crypt.h"
#include "store/format/format.h"
#include "store/format/frame.h"
#include "store/format/names.h"
#include "store/io/env.h"

namespace gpuckpt::store {

// One pack being written. Not thread safe. `complete` writes the table, `sync` makes it durable and
// closes it; before that no reader takes the file for a pack.
class PackWriter {
 public:
  static constexpr uint64_t kAll = ~0ull;
  // The first `cached` bytes of it may stay in the page cache once it is durable.
  static Status create(Env* env, const std::string& path, const Names& names, uint64_t cached,
                       std::unique_ptr<PackWriter>* out);
  // A range whose writeback is to be started. While the disk's queue is full that call blocks, so a
  // thread that holds no lock makes it, at any later time.
  struct Writeback {
    std::shared_ptr<File> file;  // null: nothing to be done
    uint64_t offset = 0, length = 0;
    void start() const {
      if (file) file->start_writeback(offset, length);
    }
  };
  // Appends a frame; its chunks are numbered from *first_chunk on.
  Status append(const SealedFrame& frame, uint32_t* first_chunk, Writeback* due);
  Status complete();
  Status sync();
  Status finish() {
    Status status = complete();
    return status.ok() ? sync() : status;
  }

  const PackId& id() const { return id_; }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t table_checksum() const { return table_checksum_; }
  // After `complete`: the names of the chunks in it.
  std::vector<ChunkEntry> take_chunks() { return std::move(chunks_); }
  // The size of what `complete` will still append.
  uint64_t table_bytes() const {
    return frames_.size() * sizeof(FrameEntry) + chunks_.size() * sizeof(ChunkEntry) +
           sizeof(PackTrailer);
  }

 private:
  Writeback write_back();

  Env* env_ = nullptr;
  std::string path_;
  std::shared_ptr<File> file_;
  PackId id_{};
  uint64_t cached_ = kAll;
  uint32_t version_ = 0;
  uint64_t bytes_ = 0, written_back_ = 0, plain_bytes_ = 0, table_checksum_ = 0;
  std::vector<FrameEntry> frames_;
  std::vector<ChunkEntry> chunks_;
};

// The table of one pack, in memory.
struct PackTable {
  PackId id{};
  uint64_t file_length = 0;
  uint64_t table_checksum = 0;
  uint64_t plain_bytes = 0;
  std::vector<FrameEntry> frames;
  std::vector<ChunkEntry> chunks;
  // The frame that holds chunk number `chunk` (which must exist).
  uint32_t frame_of(uint32_t chunk) const;
};

// The same, in memory of the caller's.
struct TableView {
  PackId id{};
  uint64_t file_length = 0;
  uint64_t table_checksum = 0;
  uint64_t plain_bytes = 0;
  std::span<const FrameEntry> frames;
  std::span<const ChunkEntry> chunks;
};
inline TableView view_of(const PackTable& t) {
  return {t.id, t.file_length, t.table_checksum, t.plain_bytes, t.frames, t.chunks};
}
// Why the table cannot be that of a pack, although its checksum is right; empty: it can. What uses
// a table relies on these bounds.
std::string contradiction(const TableView&);

// The header of a pack of a store that names its chunks like this.
PackHeader pack_header(const PackId& id, const Names& names);

// An open pack. Thread safe.
class PackReader {
 public:
  // Reads and checks header, trailer and table; everything in the table is within bounds
  // afterwards.
  static Status open(Env* env, const std::string& path, const PackId& id,
                     std::shared_ptr<const Keys> keys, std::shared_ptr<const Names> names,
                     std::unique_ptr<PackReader>* out);

  const PackTable& table() const { return table_; }
  // Leaves none: only for a pack that is used no more.
  PackTable take_table() { return std::move(table_); }
  const std::string& path() const { return path_; }
  // The plain bytes of one frame, whose checksum is verified. Names of chunks are not (see
  // check_chunk).
  Status read_frame(uint32_t frame, std::vector<uint8_t>* plain) const;
  // Into a span of the frame's plain length.
  Status read_frame(uint32_t frame, std::span<uint8_t> plain) const;
  // The same for a caller that checks all chunks that it uses: without a copy, and without a
  // checksum where the chunks' names verify as much. `*bytes` lie in `place` if there is one (as
  // long as the frame's plain bytes; undefined after a failure), or else in `room` or in a buffer
  // of the calling thread, until it reads the next frame.
  Status view_frame(uint32_t frame, std::span<uint8_t> place, std::vector<uint8_t>* room,
                    std::span<const uint8_t>* bytes) const;
  // Checks that the chunk, whose bytes these are, has the name that the table says.
  Status check_chunk(uint32_t chunk, std::span<const uint8_t> bytes) const;
  // Checks the frame's checksum and the names of all its chunks.
  Status check_frame(uint32_t frame) const;

 private:
  struct Raw {
    FrameHeader header;
    std::span<const uint8_t> lengths, stored;  // in a buffer of the calling thread, or a place
  };
  // Whether the frame is stored without a codec and a key.
  bool is_plain(const FrameEntry& frame) const;
  // Reads the stored bytes, into `place` if there is one (of exactly that length).
  Status load(uint32_t frame, std::span<uint8_t> place, Raw* out) const;
  Status check_sum(uint32_t frame, const Raw& raw) const;
  Status unpack(uint32_t frame, const Raw& raw, std::span<uint8_t> plain) const;
  Status damage(uint32_t frame, const char* why) const;
  // The steps of open(); each expects those before it.
  Status read_header(PackHeader*) const;
  Status read_trailer(const PackHeader&, const PackId& id, PackTrailer*) const;
  Status read_table(const PackTrailer&);
  Status bad(const std::string& why) const;

  Env* env_ = nullptr;
  std::string path_;
  std::unique_ptr<File> file_;
  std::shared_ptr<const Keys> keys_;
  std::shared_ptr<const Names> names_;
  PackTable table_;
};

// Reads the frames of a pack one after the other, as far as they are whole, and makes its header,
// table and trailer again. When every frame was found, `file` gets the whole pack as it was
// written: its table checksum then is the one that manifests know.
Status rebuild_pack(Env* env, const std::string& path, const PackId& id, const Keys* keys,
                    const Names& names, std::vector<uint8_t>* file, uint64_t* table_checksum);

// Whether a pack's header has a known version and a right checksum.
bool is_whole(const PackHeader& header);
std::string pack_file(const PackId& id);  // "<32 hex>.pack"

}  // namespace gpuckpt::store
