// Reading a snapshot. Opening it checks everything but the frames: manifest, tables of its packs,
// that every run lies in a pack and has the length it claims, and the digest of each space. Frames
// are checked as they are read.

#include "store/snapshot_reader.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "store/io/memory.h"
#include "store/store_internal.h"

namespace gpuckpt::store {
namespace {

constexpr size_t kCachedFrames = 64;

using Plain = std::shared_ptr<const std::vector<uint8_t>>;

class Reader : public SnapshotReader {
 public:
  Reader(Env* env, const Paths& paths, std::string id, const OpenPacks* open, LayerCache* cache)
      : env_(env), paths_(paths), id_(std::move(id)), open_(open), cache_layers_(cache) {}
  Status open();
  Status open(Manifest manifest);

  const std::string& id() const override { return id_; }
  const std::string& meta() const override { return manifest_.meta; }
  std::vector<uint64_t> spaces() const override;
  std::vector<Extent> extents(uint64_t space) const override;
  std::vector<NamedExtent> named_extents(uint64_t space) const override;
  const Names& names() const override { return *paths_.names; }
  std::vector<std::string> blobs() const override;
  Status blob(const std::string& name, std::vector<uint8_t>* out) const override;
  Status read(uint64_t space, uint64_t address, std::span<uint8_t> out) const override;
  Status read_all(uint64_t space, unsigned threads, const Sink& sink,
                  const Place& place) const override;
  Status read_parts(uint64_t space, const std::vector<Range>& ranges, unsigned threads,
                    const Sink& sink, const Place& place) const override;

 private:
  struct Piece {
    uint32_t pack, chunk, count;
    uint64_t address;
  };
  const SpaceMap* find(uint64_t space) const;
  Status check_space(const SpaceMap& space) const;
  Status frame(uint32_t pack, uint32_t frame, Plain* out) const;
  Status read_run(const Run& run, uint64_t skip, std::span<uint8_t> out) const;
  Status deliver(const Piece* first, const Piece* last, const Sink& sink, const Place& place,
                 bool* go_on) const;
  std::vector<Piece> pieces_of(const SpaceMap& space) const;
  std::vector<Piece> parts_of(const std::vector<Piece>& all,
                              const std::vector<Range>& ranges) const;
  Status read_pieces(std::vector<Piece> pieces, unsigned threads, const Sink& sink,
                     const Place& place) const;

  Env* env_;
  Paths paths_;
  std::string id_;
  Manifest manifest_;
  const OpenPacks* open_;     // used in `open` only
  LayerCache* cache_layers_;  // "
  std::vector<std::shared_ptr<PackReader>> packs_;

  // Frames decoded last by `read`, newest first. Their chunks were all checked.
  mutable std::mutex cache_mutex_;
  mutable std::list<std::pair<uint64_t, Plain>> cache_;
};

Status Reader::open() {
  Manifest manifest;
  if (Status status = load_manifest(env_, paths_, id_, &manifest, cache_layers_); !status.ok())
    return status;
  return open(std::move(manifest));
}

Status Reader::open(Manifest manifest) {
  manifest_ = std::move(manifest);
  for (const PackRef& ref : manifest_.packs) {
    std::shared_ptr<PackReader> pack;
    Status status;
    auto shared = open_ ? open_->find(ref.id) : OpenPacks::const_iterator();
    if (open_ && shared != open_->end()) {
      pack = shared->second;
    } else {
      std::unique_ptr<PackReader> own;
      status = open_pack(env_, paths_, ref.id, &own);
      pack = std::move(own);
    }
    if (status.code() == kExitAbsent) {
      return Status::Corruption(
          fmt::format("snapshot {} is damaged: its pack {} is missing", id_, paths_.pack(ref.id)));
    }
    if (!status.ok()) return status.in("snapshot " + id_);
    if (pack->table().file_length != ref.file_length ||
        pack->table().table_checksum != ref.table_checksum) {
      return Status::Corruption(fmt::format(
          "snapshot {} is damaged: pack {} is not the one it was written with", id_, pack->path()));
    }
    packs_.push_back(std::move(pack));
  }
  for (const SpaceMap& space : manifest_.spaces) {
    if (Status status = check_space(space); !status.ok()) return status;
  }
  for (size_t i = 0; i < manifest_.blobs.size(); ++i) {
    const SpaceMap* space = find(kBlobSpace | i);
    uint64_t end = 0, sum = 0;
    if (space) {
      for (const Run& run : space->runs) {
        end = run.address + run.length;
        sum += run.length;
      }
    }
    if (end != manifest_.blobs[i].length || sum != end) {
      return Status::Corruption(fmt::format("snapshot {} is damaged: its blob \"{}\" has holes",
                                            id_, manifest_.blobs[i].name));
    }
  }
  return Status::Ok();
}

Status Reader::check_space(const SpaceMap& space) const {
  SpaceDigest digest;
  const uint64_t unit = chunk_unit(space.space);
  auto bad = [&](const Run& run, const char* why) {
    return Status::Corruption(
        fmt::format("snapshot {} is damaged: the run at {:#x} of space {:#x} {}", id_, run.address,
                    space.space, why));
  };
  for (const Run& run : space.runs) {
    if (run.pack == kZeroPack) {
      digest.zeros(run.address, run.length);
      continue;
    }
    const PackTable& table = packs_[run.pack]->table();
    if (run.chunk > table.chunks.size() || run.count > table.chunks.size() - run.chunk) {
      return bad(run, "names chunks its pack does not have");
    }
    uint64_t address = run.address;
    for (uint32_t i = 0; i < run.count; ++i) {
      const ChunkEntry& chunk = table.chunks[run.chunk + i];
      if (chunk.length != chunk_length(address, run.end(), unit))
        return bad(run, "is not as long as its chunks");
      digest.chunk(address, chunk.length, chunk.name);
      address += chunk.length;
    }
  }
  if (digest.finish() != space.digest) {
    return Status::Corruption(fmt::format(
        "snapshot {} is damaged: the digest of space {:#x} is wrong", id_, space.space));
  }
  return Status::Ok();
}

const SpaceMap* Reader::find(uint64_t space) const {
  auto it =
      std::lower_bound(manifest_.spaces.begin(), manifest_.spaces.end(), space,
                       [](const SpaceMap& map, uint64_t number) { return map.space < number; });
  return it != manifest_.spaces.end() && it->space == space ? &*it : nullptr;
}

std::vector<uint64_t> Reader::spaces() const {
  std::vector<uint64_t> out;
  for (const SpaceMap& space : manifest_.spaces) {
    if (!(space.space & kBlobSpace)) out.push_back(space.space);
  }
  return out;
}

std::vector<Extent> Reader::extents(uint64_t number) const {
  std::vector<Extent> out;
  const SpaceMap* space = find(number);
  if (!space) return out;
  for (const Run& run : space->runs) {
    bool zero = run.pack == kZeroPack;
    if (!out.empty() && out.back().address + out.back().length == run.address &&
        out.back().zero == zero) {
      out.back().length += run.length;
    } else {
      out.push_back({run.address, run.length, zero});
    }
  }
  return out;
}

std::vector<NamedExtent> Reader::named_extents(uint64_t number) const {
  std::vector<NamedExtent> out;
  const SpaceMap* space = find(number);
  if (!space) return out;
  for (const Run& run : space->runs) {
    if (run.pack == kZeroPack) {
      out.push_back({run.address, run.length, true, {}});
      continue;
    }
    uint64_t address = run.address;
    for (uint32_t i = 0; i < run.count; ++i) {
      const ChunkEntry& chunk = packs_[run.pack]->table().chunks[run.chunk + i];
      out.push_back({address, chunk.length, false, chunk.name});
      address += chunk.length;
    }
  }
  return out;
}

std::vector<std::string> Reader::blobs() const {
  std::vector<std::string> out;
  for (const BlobRef& blob : manifest_.blobs) out.push_back(blob.name);
  return out;
}

Status Reader::blob(const std::string& name, std::vector<uint8_t>* out) const {
  for (size_t i = 0; i < manifest_.blobs.size(); ++i) {
    if (manifest_.blobs[i].name != name) continue;
    out->resize(manifest_.blobs[i].length);
    return out->empty() ? Status::Ok() : read(kBlobSpace | i, 0, *out);
  }
  return Status::NotFound(fmt::format("snapshot {} has no blob \"{}\"", id_, name));
}

Status Reader::frame(uint32_t pack, uint32_t number, Plain* out) const {
  uint64_t key = uint64_t{pack} << 32 | number;
  {
    std::lock_guard guard(cache_mutex_);
    for (auto it = cache_.begin(); it != cache_.end(); ++it) {
      if (it->first != key) continue;
      cache_.splice(cache_.begin(), cache_, it);
      *out = it->second;
      return Status::Ok();
    }
  }
  auto plain = std::make_shared<std::vector<uint8_t>>();
  const PackReader& reader = *packs_[pack];
  if (Status status = reader.read_frame(number, plain.get()); !status.ok()) return status;
  const FrameEntry& entry = reader.table().frames[number];
  size_t offset = 0;
  for (uint32_t i = 0; i < entry.chunks; ++i) {
    size_t length = reader.table().chunks[entry.first_chunk + i].length;
    Status status =
        reader.check_chunk(entry.first_chunk + i, std::span(*plain).subspan(offset, length));
    if (!status.ok()) return status;
    offset += length;
  }
  *out = plain;
  std::lock_guard guard(cache_mutex_);
  cache_.emplace_front(key, std::move(plain));
  if (cache_.size() > kCachedFrames) cache_.pop_back();
  return Status::Ok();
}

Status Reader::read_run(const Run& run, uint64_t skip, std::span<uint8_t> out) const {
  if (run.pack == kZeroPack) {
    memset(out.data(), 0, out.size());
    return Status::Ok();
  }
  const PackTable& table = packs_[run.pack]->table();
  uint32_t chunk = run.chunk;
  while (skip >= table.chunks[chunk].length) skip -= table.chunks[chunk++].length;
  while (!out.empty()) {
    uint32_t number = table.frame_of(chunk);
    const FrameEntry& entry = table.frames[number];
    Plain plain;
    if (Status status = frame(run.pack, number, &plain); !status.ok())
      return status.in("snapshot " + id_);
    uint64_t offset = skip;
    for (uint32_t c = entry.first_chunk; c < chunk; ++c) offset += table.chunks[c].length;
    uint64_t n = std::min<uint64_t>(plain->size() - offset, out.size());
    memcpy(out.data(), plain->data() + offset, n);
    out = out.subspan(n);
    chunk = entry.first_chunk + entry.chunks;
    skip = 0;
  }
  return Status::Ok();
}

Status Reader::read(uint64_t number, uint64_t address, std::span<uint8_t> out) const {
  if (out.empty()) return Status::Ok();
  const SpaceMap* space = find(number);
  auto missing = [&](uint64_t at) {
    return Status::NotFound(
        fmt::format("snapshot {} has nothing at {:#x} of space {:#x}", id_, at, number));
  };
  if (!space) return missing(address);
  auto it = std::upper_bound(space->runs.begin(), space->runs.end(), address,
                             [](uint64_t a, const Run& run) { return a < run.address; });
  if (it == space->runs.begin()) return missing(address);
  for (--it; !out.empty(); ++it) {
    if (it == space->runs.end() || address < it->address || address - it->address >= it->length)
      return missing(address);
    uint64_t skip = address - it->address;
    uint64_t n = std::min<uint64_t>(it->length - skip, out.size());
    if (Status status = read_run(*it, skip, out.first(n)); !status.ok()) return status;
    address += n;
    out = out.subspan(n);
  }
  return Status::Ok();
}

// Delivers pieces that are all in one frame.
Status Reader::deliver(const Piece* first, const Piece* last, const Sink& sink, const Place& place,
                       bool* go_on) const {
  thread_local std::vector<uint8_t> room;
  std::span<const uint8_t> plain;
  std::span<uint8_t> placed;
  const PackReader& pack = *packs_[first->pack];
  const PackTable& table = pack.table();
  uint32_t number = table.frame_of(first->chunk);
  const FrameEntry& entry = table.frames[number];
  if (place && last - first == 1 && first->count == entry.chunks)
    placed = place(first->address, entry.plain_length);
  if (Status status = pack.view_frame(number, placed, &room, &plain); !status.ok())
    return status.in("snapshot " + id_);
  std::vector<uint32_t> offsets(entry.chunks + 1, 0);
  for (uint32_t i = 0; i < entry.chunks; ++i) {
    offsets[i + 1] = offsets[i] + table.chunks[entry.first_chunk + i].length;
  }
  uint32_t checked = entry.first_chunk;  // pieces are sorted by chunk: check each chunk once
  for (const Piece* piece = first; piece != last; ++piece) {
    for (uint32_t c = std::max(checked, piece->chunk); c < piece->chunk + piece->count; ++c) {
      uint32_t i = c - entry.first_chunk;
      Status status = pack.check_chunk(c, plain.subspan(offsets[i], offsets[i + 1] - offsets[i]));
      if (!status.ok()) return status.in("snapshot " + id_);
    }
    checked = std::max(checked, piece->chunk + piece->count);
    uint32_t begin = offsets[piece->chunk - entry.first_chunk];
    uint32_t end = offsets[piece->chunk - entry.first_chunk + piece->count];
    if (!sink(piece->address, plain.subspan(begin, end - begin))) {
      *go_on = false;
      return Status::Ok();
    }
  }
  return Status::Ok();
}

// The runs of a space, cut at frames.
std::vector<Reader::Piece> Reader::pieces_of(const SpaceMap& space) const {
  std::vector<Piece> pieces;
  for (const Run& run : space.runs) {
    if (run.pack == kZeroPack) continue;
    const PackTable& table = packs_[run.pack]->table();
    uint32_t chunk = run.chunk, end = run.chunk + run.count;
    uint64_t address = run.address;
    while (chunk < end) {
      const FrameEntry& entry = table.frames[table.frame_of(chunk)];
      uint32_t count = std::min(end, entry.first_chunk + entry.chunks) - chunk;
      pieces.push_back({run.pack, chunk, count, address});
      for (uint32_t i = 0; i < count; ++i) address += table.chunks[chunk + i].length;
      chunk += count;
    }
  }
  return pieces;
}

// The pieces of `all`, by address, that begin within `ranges`, each in one part or several.
std::vector<Reader::Piece> Reader::parts_of(const std::vector<Piece>& all,
                                            const std::vector<Range>& ranges) const {
  std::vector<Piece> parts;
  auto range = ranges.begin();
  for (const Piece& piece : all) {
    const PackTable& table = packs_[piece.pack]->table();
    uint64_t address = piece.address;
    bool goes_on = false;  // the last part of this piece
    for (uint32_t i = 0; i < piece.count; ++i) {
      while (range != ranges.end() && range->end <= address) ++range;
      const bool inside = range != ranges.end() && range->start <= address;
      if (inside && goes_on) ++parts.back().count;
      if (inside && !goes_on) parts.push_back({piece.pack, piece.chunk + i, 1, address});
      goes_on = inside;
      address += table.chunks[piece.chunk + i].length;
    }
  }
  return parts;
}

Status Reader::read_all(uint64_t number, unsigned threads, const Sink& sink,
                        const Place& place) const {
  const SpaceMap* space = find(number);
  if (!space) return Status::NotFound(fmt::format("snapshot {} has no space {:#x}", id_, number));
  return guarded([&] { return read_pieces(pieces_of(*space), threads, sink, place); });
}

Status Reader::read_parts(uint64_t number, const std::vector<Range>& ranges, unsigned threads,
                          const Sink& sink, const Place& place) const {
  const SpaceMap* space = find(number);
  if (!space) return Status::NotFound(fmt::format("snapshot {} has no space {:#x}", id_, number));
  return guarded(
      [&] { return read_pieces(parts_of(pieces_of(*space), ranges), threads, sink, place); });
}

// Reads frame by frame, so that each is read and decompressed once for all its pieces.
Status Reader::read_pieces(std::vector<Piece> pieces, unsigned threads, const Sink& sink,
                           const Place& place) const {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.pack != b.pack ? a.pack < b.pack : a.chunk < b.chunk;
  });
  std::vector<size_t> starts;  // of each frame's pieces
  for (size_t i = 0; i < pieces.size(); ++i) {
    bool same = i > 0 && pieces[i].pack == pieces[i - 1].pack &&
                packs_[pieces[i].pack]->table().frame_of(pieces[i].chunk) ==
                    packs_[pieces[i].pack]->table().frame_of(pieces[i - 1].chunk);
    if (!same) starts.push_back(i);
  }
  starts.push_back(pieces.size());

  const size_t frames = starts.size() - 1;
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  threads = static_cast<unsigned>(std::min<size_t>(threads, frames));
  // Neighbouring frames go to one thread, as far as there are enough for all threads: a sink can
  // join them, and two threads seldom need the same page table.
  constexpr size_t kTogether = 16;
  const size_t together = std::clamp<size_t>(frames / std::max(8u * threads, 1u), 1, kTogether);
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Status result;
  auto work = [&] {
    while (!stop) {
      const size_t first = next.fetch_add(together), last = std::min(first + together, frames);
      if (first >= frames) return;
      for (size_t i = first; i < last && !stop; ++i) {
        bool go_on = true;
        Status status =
            deliver(&pieces[starts[i]], pieces.data() + starts[i + 1], sink, place, &go_on);
        if (status.ok() && go_on) continue;
        stop = true;
        std::lock_guard guard(mutex);
        if (result.ok()) result = status;
      }
    }
  };
  run_together(threads, work);
  return result;
}

}  // namespace

Status open_snapshot(Env* env, const Paths& paths, const std::string& id,
                     std::unique_ptr<SnapshotReader>* out, const OpenPacks* open,
                     LayerCache* cache) {
  Status status;
  // Prune may move a snapshot's chunks to another pack after its manifest was read here and before
  // the packs are opened. The new manifest is there before the old pack is removed, so another
  // attempt finds it.
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto reader = std::make_unique<Reader>(env, paths, id, open, cache);
    status = reader->open();
    if (status.ok()) {
      *out = std::move(reader);
      return status;
    }
    if (status.code() != kExitCorrupt) return status;
  }
  return status;
}

Status open_unpublished(Env* env, const Paths& paths, const std::string& id,
                        const Manifest& manifest, const OpenPacks& open,
                        std::unique_ptr<SnapshotReader>* out) {
  auto reader = std::make_unique<Reader>(env, paths, id, &open, nullptr);
  Status status = reader->open(manifest);
  if (status.ok()) *out = std::move(reader);
  return status;
}

}  // namespace gpuckpt::store
