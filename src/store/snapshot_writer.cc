// Writing a snapshot: bytes -> chunks -> (known? reference it : add it to a frame) -> packs, then
// the manifest.
//
// Order of writes, so that a crash at any moment leaves every published snapshot whole: packs and
// manifest under temporary names, each synced; packs renamed to their names; their directory
// synced; manifest renamed; its directory synced. Other writers may refer to a pack as soon as it
// has its name, so from then on only prune (alone) may remove it.

#include "store/snapshot_writer.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

namespace gpuckpt::store {

Status SnapshotWriterImpl::begin() {
  if (options_.budget != 0 && options_.prune_to_budget) {
    if (Status s = make_room(env_, paths_, options_); !s.ok()) return s;
  }
  for (uint64_t waited = 0;; waited += 50) {
    Status s = Lock::acquire(env_, paths_.root, LockKind::kShared, "writing a snapshot", &lock_,
                             options_.run);
    if (s.ok()) break;
    if (s.code() != kExitLocked || waited >= options_.lock_wait_ms) return s;
    usleep(50'000);
  }
  refreshed_ns_ = env_->now_ns();
  (void)remove_stale_files(env_, paths_, nullptr);
  // Only a budget asks for it.
  if (options_.budget != 0)
    if (Status s = disk_bytes(env_, paths_, &used_before_); !s.ok()) return s;
  if (Status s = check_room(0); !s.ok()) return s;
  if (Status s = load_index(); !s.ok()) return s;
  find_parent();
  return Status::Ok();
}

Status SnapshotWriterImpl::load_index() {
  std::vector<PackId> ids;
  if (Status s = list_packs(env_, paths_, &ids); !s.ok()) return s;
  PackTables tables;
  tables.load(env_, paths_);
  index_.reserve(tables.chunks());
  std::deque<PackTable> read;
  for (const PackId& id : ids) {
    if (const TableView* known = tables.find(id)) {
      add_to_index(*known);
      continue;
    }
    std::unique_ptr<PackReader> pack;
    // A pack that cannot be read is not referred to: what it held is stored again.
    if (!open_pack(env_, paths_, id, &pack).ok()) continue;
    PackTable table = pack->take_table();
    index_.reserve(table.chunks.size());
    add_to_index(view_of(table));
    if (!PackTables::takes(view_of(table))) continue;
    read.push_back(std::move(table));
    tables.add(view_of(read.back()));
  }
  tables.save(env_, paths_, ids);
  return Status::Ok();
}

void SnapshotWriterImpl::add_to_index(const TableView& table) {
  const uint32_t number = static_cast<uint32_t>(packs_.size());
  for (const FrameEntry& frame : table.frames) {
    const uint32_t frame_number = static_cast<uint32_t>(frames_.size());
    frames_.push_back({number, frame.first_chunk});
    for (uint32_t i = 0; i < frame.chunks; ++i)
      index_.find_or_insert(table.chunks[frame.first_chunk + i].name, {frame_number, i});
  }
  packs_.push_back({{table.id, table.file_length, table.table_checksum},
                    {table.chunks.begin(), table.chunks.end()},
                    nullptr});
}

void SnapshotWriterImpl::find_parent() {
  if (!plausible_id(options_.parent)) return;
  if (!load_manifest(env_, paths_, options_.parent, &parent_).ok() ||
      !check_parent(parent_, &parent_packs_).ok()) {
    parent_ = {};
    return;
  }
  parent_id_ = options_.parent;
}

// Checks all that opening the snapshot would check, with the packs that are open already.
Status SnapshotWriterImpl::check_parent(const Manifest& manifest,
                                        std::vector<uint32_t>* number) const {
  std::map<PackId, uint32_t> known;
  for (uint32_t i = 0; i < packs_.size(); ++i) known[packs_[i].ref.id] = i;
  auto bad = [] { return Status::Corruption("the parent cannot be used"); };
  for (const PackRef& ref : manifest.packs) {
    auto it = known.find(ref.id);
    if (it == known.end() || memcmp(&packs_[it->second].ref, &ref, sizeof(ref)) != 0) return bad();
    number->push_back(it->second);
  }
  for (const SpaceMap& space : manifest.spaces) {
    SpaceDigest digest;
    const uint64_t unit = chunk_unit(space.space);
    for (const Run& run : space.runs) {
      if (run.pack == kZeroPack) {
        digest.zeros(run.address, run.length);
        continue;
      }
      const std::vector<ChunkEntry>& chunks = packs_[(*number)[run.pack]].chunks;
      if (run.chunk > chunks.size() || run.count > chunks.size() - run.chunk) return bad();
      uint64_t address = run.address;
      for (uint32_t i = 0; i < run.count; ++i) {
        const ChunkEntry& chunk = chunks[run.chunk + i];
        if (chunk.length != chunk_length(address, run.end(), unit)) return bad();
        digest.chunk(address, chunk.length, chunk.name);
        address += chunk.length;
      }
    }
    if (digest.finish() != space.digest) return bad();
  }
  return Status::Ok();
}

SnapshotWriterImpl::~SnapshotWriterImpl() {
  if (committed_ || packs_published_) return;
  for (PackInUse& pack : packs_) {
    if (pack.writer) env_->remove(pack.writer->path());
  }
}

Status SnapshotWriterImpl::fail(Status status) {
  std::lock_guard guard(failure_mutex_);
  if (failure_.ok()) failure_ = status;
  failed_ = true;
  return failure_;
}

Status SnapshotWriterImpl::failure() {
  std::lock_guard guard(failure_mutex_);
  return failure_;
}

Status SnapshotWriterImpl::check_range(uint64_t space, uint64_t address, uint64_t length) {
  if (failed_) return failure();
  if (space & kBlobSpace)
    return fail(Status::Error("space numbers of 2^63 and more are the store's own"));
  if (address + length < address || address + length > ~0ull - 2 * kLargeChunk)
    return fail(Status::Error("a run goes beyond the end of its space"));
  return Status::Ok();
}

Status SnapshotWriterImpl::add_bytes(uint64_t space, uint64_t address,
                                     std::span<const uint8_t> bytes,
                                     std::span<const ChunkName> names, bool placed) {
  if (Status status = check_range(space, address, bytes.size()); !status.ok()) return status;
  if (bytes.empty()) return Status::Ok();
  if (!names.empty() && names.size() != chunks_in(address, bytes.size(), chunk_unit(space)))
    return fail(Status::Error("a run does not have as many names as chunks"));
  if (placed) logical_ += bytes.size();
  Borrowed lane(this);
  return add_chunks(*lane, space, address, bytes, names, placed ? &lane->runs : nullptr);
}

Status SnapshotWriterImpl::add_early(uint64_t space, uint64_t address,
                                     std::span<const uint8_t> bytes) {
  if (Status status = check_range(space, address, bytes.size()); !status.ok()) return status;
  if (address % chunk_unit(space) != 0 || bytes.size() % chunk_unit(space) != 0)
    return fail(Status::Error("what is put early must be whole chunks"));
  PlacedRuns places;
  {
    Borrowed lane(this);
    if (Status s = add_chunks(*lane, space, address, bytes, {}, &places); !s.ok()) return s;
  }
  std::lock_guard guard(early_mutex_);
  for (const PlacedRun& run : places) early_[space].put(run);
  return Status::Ok();
}

Status SnapshotWriterImpl::add_zeros(uint64_t space, uint64_t address, uint64_t length) {
  if (Status status = check_range(space, address, length); !status.ok()) return status;
  if (length == 0) return Status::Ok();
  logical_ += length;
  zero_ += length;
  Borrowed lane(this);
  lane->runs.note(space, address, length, {kZeroFrame, 0});
  return Status::Ok();
}

Status SnapshotWriterImpl::add_same(uint64_t space, uint64_t address, uint64_t length) {
  if (Status status = check_range(space, address, length); !status.ok()) return status;
  if (length == 0) return Status::Ok();
  logical_ += length;
  Borrowed lane(this);
  const uint64_t end = address + length;
  std::unique_lock guard(early_mutex_);
  const auto early = early_.find(space);
  if (early == early_.end()) {
    guard.unlock();
    return as_in_parent(*lane, space, address, end);
  }
  for (uint64_t next = end; address < end; address = next, next = end) {
    PlacedRun run;
    if (early->second.at(address, &next, &run)) {
      if (run.place.frame == kZeroFrame) zero_ += run.length;
      lane->runs.note(run);
    } else if (Status s = as_in_parent(*lane, space, address, next); !s.ok()) {
      return s;
    }
  }
  return Status::Ok();
}

Status SnapshotWriterImpl::as_in_parent(Lane& lane, uint64_t space, uint64_t address,
                                        uint64_t end) {
  auto missing = [&](uint64_t at) {
    return fail(Status::Error(fmt::format(
        "address {:#x} of space {:#x} was said to be as in snapshot {}, which does not have it "
        "(a bug in gpuckpt: please report)",
        at, space, parent_id_.empty() ? "(none)" : parent_id_)));
  };
  auto map = std::lower_bound(parent_.spaces.begin(), parent_.spaces.end(), space,
                              [](const SpaceMap& m, uint64_t s) { return m.space < s; });
  if (map == parent_.spaces.end() || map->space != space) return missing(address);
  auto run = std::upper_bound(map->runs.begin(), map->runs.end(), address,
                              [](uint64_t a, const Run& r) { return a < r.address; });
  if (run != map->runs.begin()) --run;
  for (; address < end; ++run) {
    if (run == map->runs.end() || run->address > address || run->end() <= address)
      return missing(address);
    uint64_t to = std::min(end, run->end());
    if (Status status = same_run(lane, space, *run, address, to); !status.ok()) return status;
    address = to;
  }
  return Status::Ok();
}

// Refers to [from, to) of one run of the parent. Chunks of which only a part is wanted are read and
// stored as new ones.
Status SnapshotWriterImpl::same_run(Lane& lane, uint64_t space, const Run& run, uint64_t from,
                                    uint64_t to) {
  if (run.pack == kZeroPack) {
    zero_ += to - from;
    lane.runs.note(space, from, to - from, {kZeroFrame, 0});
    return Status::Ok();
  }
  const uint64_t unit = chunk_unit(space);
  auto copy = [&](uint64_t at, uint64_t end) {
    std::call_once(parent_opened_,
                   [&] { (void)open_snapshot(env_, paths_, parent_id_, &parent_reader_); });
    if (!parent_reader_) return fail(Status::Corruption("the parent snapshot cannot be read"));
    std::vector<uint8_t> bytes(end - at);
    Status status = parent_reader_->read(space, at, bytes);
    return status.ok() ? add(lane, space, at, bytes) : fail(status);
  };
  uint64_t first = from, last = to;
  if (from != run.address && from % unit != 0) first = std::min(to, from + unit - from % unit);
  if (to != run.end() && to % unit != 0) last = std::max(first, to - to % unit);
  if (from < first) {
    if (Status status = copy(from, first); !status.ok()) return status;
  }
  if (first < last) {
    Run part = part_of(run, first, last, unit);
    same_ += part.length;
    lane.runs.note({space,
                    part.address,
                    part.length,
                    {kDirect, part.chunk},
                    part.count,
                    parent_packs_[run.pack]});
  }
  return last < to ? copy(last, to) : Status::Ok();
}

Status SnapshotWriterImpl::add_named(uint64_t space, uint64_t address, uint64_t length,
                                     std::span<const ChunkName> names) {
  if (Status status = check_range(space, address, length); !status.ok()) return status;
  if (length == 0) return Status::Ok();
  const uint64_t unit = chunk_unit(space), end = address + length;
  if (names.size() != chunks_in(address, length, unit))
    return fail(Status::Error("a run does not have as many names as chunks"));
  logical_ += length;
  same_ += length;
  Borrowed lane(this);
  for (const ChunkName& plain : names) {
    ChunkPlace place;
    if (!index_.find(paths_.names->stored(plain), &place)) {
      return fail(Status::Error(
          fmt::format("chunk {} was said to be in the store, which does not have it (a bug in "
                      "gpuckpt: please report)",
                      hex(plain))));
    }
    uint64_t step = chunk_length(address, end, unit);
    lane->runs.note(space, address, step, place);
    address += step;
  }
  return Status::Ok();
}

Status SnapshotWriterImpl::add_to_blob(const std::string& name, std::span<const uint8_t> bytes) {
  if (failed_) return failure();
  std::lock_guard guard(blobs_mutex_);
  auto [it, added] = blobs_.try_emplace(name);
  Blob& blob = it->second;
  if (added) blob.space = kBlobSpace | (blobs_.size() - 1);
  blob.pending.insert(blob.pending.end(), bytes.begin(), bytes.end());
  blob.length += bytes.size();
  logical_ += bytes.size();
  uint64_t whole = blob.pending.size() / kLargeChunk * kLargeChunk;
  if (whole == 0) return Status::Ok();
  uint64_t start = blob.length - blob.pending.size();
  Borrowed lane(this);
  Status status = add(*lane, blob.space, start, std::span(blob.pending).first(whole));
  blob.pending.erase(blob.pending.begin(), blob.pending.begin() + static_cast<ptrdiff_t>(whole));
  return status;
}

Status SnapshotWriterImpl::add(Lane& lane, uint64_t space, uint64_t address,
                               std::span<const uint8_t> bytes, std::span<const ChunkName> names) {
  return add_chunks(lane, space, address, bytes, names, &lane.runs);
}

Status SnapshotWriterImpl::add_chunks(Lane& lane, uint64_t space, uint64_t address,
                                      std::span<const uint8_t> bytes,
                                      std::span<const ChunkName> names, PlacedRuns* places) {
  struct Piece {
    std::span<const uint8_t> bytes;
    ChunkName name;
    bool zero;
  };
  // The names of several chunks are computed before the first is looked up, so that its index entry
  // is in the cache by then: the index is larger than any cache.
  constexpr size_t kPrecopied = 16;
  Piece pieces[kPrecopied];
  const uint64_t unit = chunk_unit(space);
  while (!bytes.empty()) {
    size_t count = 0;
    for (uint64_t at = address; count < kPrecopied && !bytes.empty(); ++count) {
      Piece& piece = pieces[count];
      piece.bytes = bytes.first(std::min<uint64_t>(unit - at % unit, bytes.size()));
      piece.zero = all_zero(piece.bytes.data(), piece.bytes.size());
      if (!piece.zero || !names.empty())
        piece.name = paths_.names->plain(piece.bytes.data(), piece.bytes.size());
      if (!names.empty()) {
        if (piece.name != names[0]) {
          return fail(Status::Corruption(
              fmt::format("the chunk at {:#x} of space {:#x} changed on its way here: it was {}, "
                          "and is {}",
                          at, space, hex(names[0]), hex(piece.name))));
        }
        names = names.subspan(1);
      }
      if (!piece.zero) {
        piece.name = paths_.names->stored(piece.name);
        index_.expect(piece.name);
      }
      at += piece.bytes.size();
      bytes = bytes.subspan(piece.bytes.size());
    }
    for (const Piece& piece : std::span(pieces, count)) {
      ChunkPlace where{kZeroFrame, 0};
      if (!piece.zero) {
        if (Status s = keep(lane, space, piece.bytes, piece.name, &where); !s.ok()) return s;
      } else if (places == &lane.runs) {
        zero_ += piece.bytes.size();
      }
      if (places) places->note(space, address, piece.bytes.size(), where);
      address += piece.bytes.size();
    }
  }
  for (Lane::Open& open : lane.open) open.draft.keep_borrowed();  // the bytes are the caller's
  return Status::Ok();
}

Status SnapshotWriterImpl::keep(Lane& lane, uint64_t space, std::span<const uint8_t> bytes,
                                const ChunkName& name, ChunkPlace* where) {
  Lane::Open& open = lane.open[chunk_unit(space) == kLargeChunk];
  if (open.draft.names.empty()) {
    std::lock_guard guard(io_mutex_);
    open.frame = static_cast<uint32_t>(frames_.size());
    frames_.push_back({});
    open.draft.plain.reserve(kFrameBytes);
  }
  const ChunkPlace mine{open.frame, static_cast<uint32_t>(open.draft.names.size())};
  *where = index_.find_or_insert(name, mine);
  if (*where != mine) return Status::Ok();
  new_ += bytes.size();
  if (options_.level == 0 && !paths_.keys)
    open.draft.borrow(bytes);
  else
    open.draft.copy(bytes);
  open.draft.names.push_back(name);
  open.draft.lengths.push_back(static_cast<uint32_t>(bytes.size()));
  if (!open.draft.full()) return Status::Ok();
  Status status = close_frame(open);
  return status.ok() ? status : fail(status);
}

Status SnapshotWriterImpl::close_frame(Lane::Open& open) {
  if (open.draft.names.empty()) return Status::Ok();
  SealedFrame sealed =
      seal(std::move(open.draft), options_.level, paths_.keys.get(), options_.purpose);
  PackWriter::Writeback due;
  Status status;
  {
    std::lock_guard guard(io_mutex_);
    status = append_frame(sealed, open.frame, &due);
  }
  due.start();
  // The next frame reuses the memory of this one: new memory costs more page faults than its hash
  // costs time.
  if (open.draft.plain.capacity() == 0) open.draft.plain = std::move(sealed.stored);
  open.draft.clear();
  return status;
}

Status SnapshotWriterImpl::append_frame(const SealedFrame& sealed, uint32_t frame,
                                        PackWriter::Writeback* due) {
  if (failed_) return failure();
  if (current_ == kNoPack) {
    PackInUse pack{};
    std::string path;
    uint8_t random[8];
    env_->random(random, sizeof(random));
    path = fmt::format("{}/{}.{}.tmp", paths_.packs(), hex(random, sizeof(random)), lock_->id());
    // Reserves what the pack can grow to, until its size is known.
    const uint64_t room = std::min(options_.page_cache - cached_, kPackBytes);
    const uint64_t cached = room < kPackBytes ? room : PackWriter::kAll;
    if (Status status = PackWriter::create(env_, path, *paths_.names, cached, &pack.writer);
        !status.ok())
      return status;
    cached_ += current_room_ = room;
    pack.ref.id = pack.writer->id();
    current_ = static_cast<uint32_t>(packs_.size());
    packs_.push_back(std::move(pack));
  }
  PackWriter& pack = *packs_[current_].writer;
  if (Status status = check_room(sealed.disk_bytes() + pack.table_bytes()); !status.ok())
    return status;
  uint32_t first_chunk = 0;
  if (Status status = pack.append(sealed, &first_chunk, due); !status.ok()) return status;
  written_ += sealed.disk_bytes();
  by_codec_[codec_name(sealed.header.codec)] += sealed.header.plain_length;
  frames_[frame] = {current_, first_chunk};
  if (pack.bytes() >= kPackBytes) return finish_pack();
  return Status::Ok();
}

// Refuses before the disk is full, so that other users of the disk, and our own manifest, still
// find room.
Status SnapshotWriterImpl::check_room(uint64_t more) {
  uint64_t now = used_before_ + written_ + more;
  if (options_.budget != 0 && now > options_.budget) {
    return Status::Error(
        fmt::format("the disk budget of {} bytes for store {} is used up ({} bytes before this "
                    "snapshot): raise --budget, "
                    "or make room with `gpuckpt prune {} --keep N`",
                    options_.budget, paths_.root, used_before_, paths_.root));
  }
  if (written_ >= checked_at_) {
    checked_at_ = written_ + (32ull << 20);
    uint64_t left = 0;
    if (env_->free_bytes(paths_.root, &left) == 0 && left < options_.keep_free) {
      return Status::Error(fmt::format(
          "the disk of store {} is full ({} bytes left): free space, `gpuckpt prune`, or choose "
          "another --store",
          paths_.root, left));
    }
    if (int64_t t = env_->now_ns(); t - refreshed_ns_ > 60'000'000'000 || t < refreshed_ns_) {
      lock_->refresh();
      refreshed_ns_ = t;
    }
  }
  return Status::Ok();
}

Status SnapshotWriterImpl::finish_pack() {
  if (current_ == kNoPack) return Status::Ok();
  PackInUse& pack = packs_[current_];
  current_ = kNoPack;
  uint64_t before = pack.writer->bytes();
  if (Status status = pack.writer->complete(); !status.ok()) return status;
  unsynced_.push_back(static_cast<uint32_t>(&pack - packs_.data()));
  written_ += pack.writer->bytes() - before;
  pack.ref.file_length = pack.writer->bytes();
  pack.ref.table_checksum = pack.writer->table_checksum();
  pack.chunks = pack.writer->take_chunks();
  cached_ -= current_room_ - std::min(current_room_, pack.writer->bytes());
  // The disk writes the last packs while the next is filled; no more than these stay open.
  constexpr size_t kOnTheirWay = 3;
  return sync_packs(kOnTheirWay);
}

// Makes all complete packs durable but the last `but`.
Status SnapshotWriterImpl::sync_packs(size_t but) {
  for (; unsynced_.size() > but; unsynced_.pop_front()) {
    if (Status status = packs_[unsynced_.front()].writer->sync(); !status.ok()) return status;
  }
  return Status::Ok();
}

Status begin_snapshot(Env* env, const Paths& paths, const WriteOptions& options,
                      std::unique_ptr<SnapshotWriter>* out) {
  auto writer = std::make_unique<SnapshotWriterImpl>(env, paths, options);
  if (Status status = writer->begin(); !status.ok()) return status;
  *out = std::move(writer);
  return Status::Ok();
}

}  // namespace gpuckpt::store
