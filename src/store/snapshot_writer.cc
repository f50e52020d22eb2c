// Writing a snapshot: bytes -> chunks -> (known? reference it : add it to a frame) -> packs, then
// the manifest.
//
// Order of writes, which law 4 rests on: packs and manifest under temporary names, each synced;
// packs renamed to their names; their directory synced; manifest renamed; its directory synced.
// Other writers may refer to a pack as soon as it has its name, so from then on only prune (alone)
// may remove it.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "store/format/index.h"
#include "store/io/json_text.h"
#include "store/io/line.h"
#include "store/io/memory.h"
#include "store/parts.h"

namespace gpuckpt::store {
namespace {

constexpr uint32_t kZeroFrame = 0xfffffffe;
constexpr uint32_t kDirect = 0xfffffffd;  // not by frame: PlacedRun::pack says it
constexpr uint32_t kNoPack = 0xffffffff;

struct PlacedRun {
  uint64_t space, address, length;
  ChunkPlace place;  // with a `pack`: index is the chunk's number in it
  uint32_t count;
  uint32_t pack = kNoPack;  // where the place is known already: what the parent has
};

struct PlacedRuns : std::vector<PlacedRun> {
  void note(const PlacedRun& run) {
    if (!empty()) {
      PlacedRun& last = back();
      if (last.space == run.space && last.address + last.length == run.address &&
          last.place.frame == run.place.frame && last.pack == run.pack &&
          (run.count == 0 || (last.place.index + last.count == run.place.index &&
                              run.address % chunk_unit(run.space) == 0))) {
        last.length += run.length;
        last.count += run.count;
        return;
      }
    }
    push_back(run);
  }
  void note(uint64_t space, uint64_t address, uint64_t length, ChunkPlace place) {
    note({space, address, length, place, place.frame == kZeroFrame ? 0u : 1u, kNoPack});
  }
};

struct FramePlace {
  uint32_t pack = kNoPack;
  uint32_t first_chunk = 0;
};

struct PackInUse {
  PackRef ref;
  std::vector<ChunkEntry> chunks;      // of packs that were there before
  std::unique_ptr<PackWriter> writer;  // of ours
};

// What one thread at a time works in.
struct Lane {
  struct Open {
    FrameDraft draft;
    uint32_t frame = 0;
  };
  Open open[2];  // small and large chunks do not share a frame: a restore of one space reads little
                 // of the others
  PlacedRuns runs;
};

// What was put early: by address, disjoint. Cuts are made at multiples of the space's unit.
class EarlyRuns {
 public:
  bool empty() const { return runs_.empty(); }
  // In the place of what is there.
  void put(const PlacedRun& run) {
    const uint64_t end = run.address + run.length;
    auto it = runs_.upper_bound(run.address);
    if (it != runs_.begin()) --it;
    while (it != runs_.end() && it->second.address < end) {
      const PlacedRun old = it->second;
      const uint64_t old_end = old.address + old.length;
      if (old_end <= run.address) {
        ++it;
        continue;
      }
      it = runs_.erase(it);
      if (old.address < run.address)
        runs_.emplace(old.address, part(old, old.address, run.address));
      if (old_end > end) runs_.emplace(end, part(old, end, old_end));
    }
    runs_.emplace(run.address, run);
  }
  // What is at `address`, up to `*end`, which comes back smaller where that changes. False:
  // nothing.
  bool at(uint64_t address, uint64_t* end, PlacedRun* out) const {
    auto next = runs_.upper_bound(address);
    if (next != runs_.begin()) {
      const PlacedRun& run = std::prev(next)->second;
      if (address < run.address + run.length) {
        *end = std::min(*end, run.address + run.length);
        *out = part(run, address, *end);
        return true;
      }
    }
    if (next != runs_.end()) *end = std::min(*end, next->first);
    return false;
  }

 private:
  static PlacedRun part(PlacedRun run, uint64_t from, uint64_t to) {
    const uint64_t unit = chunk_unit(run.space);
    if (run.count) {
      run.place.index += static_cast<uint32_t>((from - run.address) / unit);
      run.count = static_cast<uint32_t>((to - from) / unit);
    }
    run.address = from, run.length = to - from;
    return run;
  }
  std::map<uint64_t, PlacedRun> runs_;
};

class Writer : public SnapshotWriter {
 public:
  Writer(Env* env, const Paths& paths, const WriteOptions& options)
      : env_(env), paths_(paths), options_(options) {}
  ~Writer() override;
  Status begin();
  Status put(uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
             std::span<const ChunkName> names) override {
    return attempt([&] { return add_bytes(space, address, bytes, names, true); });
  }
  Status put_ahead(uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                   std::span<const ChunkName> names) override {
    return attempt([&] { return add_bytes(space, address, bytes, names, false); });
  }
  Status put_early(uint64_t space, uint64_t address, std::span<const uint8_t> bytes) override {
    return attempt([&] { return add_early(space, address, bytes); });
  }
  Status put_zero(uint64_t space, uint64_t address, uint64_t length) override {
    return attempt([&] { return add_zeros(space, address, length); });
  }
  Status put_same(uint64_t space, uint64_t address, uint64_t length) override {
    return attempt([&] { return add_same(space, address, length); });
  }
  Status put_named(uint64_t space, uint64_t address, uint64_t length,
                   std::span<const ChunkName> names) override {
    return attempt([&] { return add_named(space, address, length, names); });
  }
  const std::string& parent() const override { return parent_id_; }
  Status append_blob(const std::string& name, std::span<const uint8_t> bytes) override {
    return attempt([&] { return add_to_blob(name, bytes); });
  }
  using SnapshotWriter::commit;
  Status commit(const std::string& meta, const Check& check, CommitResult* result) override {
    return attempt([&] { return finish(meta, check, result); });
  }

 private:
  struct Blob {
    uint64_t space = 0;
    uint64_t length = 0;
    std::vector<uint8_t> pending;
  };
  class Borrowed;  // a lane, given back at the end of its scope

  // Whatever lacks memory fails the snapshot: what it was doing is half done.
  template <typename Work>
  Status attempt(const Work& work) {
    bool done = false;
    Status status = guarded([&] {
      Status result = work();
      done = true;
      return result;
    });
    return done ? status : fail(status);
  }
  Status add_bytes(uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                   std::span<const ChunkName> names, bool placed);
  Status add_zeros(uint64_t space, uint64_t address, uint64_t length);
  Status add_early(uint64_t space, uint64_t address, std::span<const uint8_t> bytes);
  Status add_same(uint64_t space, uint64_t address, uint64_t length);
  Status as_in_parent(Lane& lane, uint64_t space, uint64_t address, uint64_t end);
  Status add_named(uint64_t space, uint64_t address, uint64_t length,
                   std::span<const ChunkName> names);
  Status add_to_blob(const std::string& name, std::span<const uint8_t> bytes);
  Status finish(const std::string& meta, const Check& check, CommitResult* result);
  Status ask(const Check& check, const std::string& id, const Manifest& manifest);
  Status load_index();
  void find_parent();
  Status check_parent(const Manifest& manifest, std::vector<uint32_t>* number) const;
  Status same_run(Lane& lane, uint64_t space, const Run& run, uint64_t from, uint64_t to);
  Status check_range(uint64_t space, uint64_t address, uint64_t length);
  const Manifest* layers_to_share();
  Status fail(Status status);
  Status failure();
  // The bytes are what the snapshot has at these addresses.
  Status add(Lane& lane, uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
             std::span<const ChunkName> names = {});
  // The same, but for what `places` is used for; null: they have no place.
  Status add_chunks(Lane& lane, uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                    std::span<const ChunkName> names, PlacedRuns* places);
  // Where the chunk is from now on, or was already.
  Status keep(Lane& lane, uint64_t space, std::span<const uint8_t> bytes, const ChunkName& name,
              ChunkPlace* where);
  Status close_frame(Lane::Open& open);
  Status append_frame(const SealedFrame& sealed, uint32_t frame, PackWriter::Writeback* due);
  Status check_room(uint64_t more);
  Status finish_pack();
  Status sync_packs(size_t but);
  Status publish_packs();
  Status build_manifest(Manifest* manifest);
  Status describe(const std::string& meta, CommitResult* result, std::string* out);

  Env* env_;
  Paths paths_;
  WriteOptions options_;
  std::unique_ptr<Lock> lock_;
  ChunkIndex index_;

  std::mutex lanes_mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // all
  std::vector<Lane*> idle_;

  std::mutex io_mutex_;  // packs_, frames_, current_ and the files
  std::vector<PackInUse> packs_;
  std::vector<FramePlace> frames_;
  uint32_t current_ = kNoPack;
  std::deque<uint32_t> unsynced_;             // complete, and on their way to the disk
  std::map<std::string, uint64_t> by_codec_;  // new plain bytes
  uint64_t used_before_ = 0, written_ = 0, checked_at_ = 0;
  uint64_t cached_ = 0;        // bytes of packs that may stay in the page cache
  uint64_t current_room_ = 0;  // of them, what the current pack may come to
  int64_t refreshed_ns_ = 0;

  std::mutex early_mutex_;
  std::map<uint64_t, EarlyRuns> early_;  // by space

  std::mutex blobs_mutex_;
  std::map<std::string, Blob> blobs_;

  // The snapshot that the sender may refer to: its packs are open, and stay (our lock).
  std::string parent_id_;
  Manifest parent_;
  std::vector<uint32_t> parent_packs_;  // index in packs_
  std::once_flag parent_opened_;
  std::unique_ptr<SnapshotReader> parent_reader_;

  std::atomic<uint64_t> logical_{0}, new_{0}, zero_{0}, same_{0};
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  Status failure_;
  bool packs_published_ = false, committed_ = false;
};

class Writer::Borrowed {
 public:
  explicit Borrowed(Writer* writer) : writer_(writer) {
    std::lock_guard guard(writer_->lanes_mutex_);
    if (writer_->idle_.empty()) {
      writer_->lanes_.push_back(std::make_unique<Lane>());
      lane_ = writer_->lanes_.back().get();
    } else {
      lane_ = writer_->idle_.back();
      writer_->idle_.pop_back();
    }
  }
  ~Borrowed() {
    std::lock_guard guard(writer_->lanes_mutex_);
    writer_->idle_.push_back(lane_);
  }
  Lane& operator*() { return *lane_; }
  Lane* operator->() { return lane_; }

 private:
  Writer* writer_;
  Lane* lane_;
};

Status Writer::begin() {
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
  (void)remove_leftovers(env_, paths_, nullptr);
  if (Status s = disk_bytes(env_, paths_, &used_before_); !s.ok()) return s;
  if (Status s = check_room(0); !s.ok()) return s;
  if (Status s = load_index(); !s.ok()) return s;
  find_parent();
  return Status::Ok();
}

Status Writer::load_index() {
  std::vector<PackId> ids;
  if (Status s = list_packs(env_, paths_, &ids); !s.ok()) return s;
  for (const PackId& id : ids) {
    std::unique_ptr<PackReader> pack;
    // A pack we cannot read is not referred to: what it held is simply stored again.
    if (!open_pack(env_, paths_, id, &pack).ok()) continue;
    const PackTable& table = pack->table();
    uint32_t number = static_cast<uint32_t>(packs_.size());
    index_.reserve(table.chunks.size());
    for (const FrameEntry& frame : table.frames) {
      uint32_t frame_number = static_cast<uint32_t>(frames_.size());
      frames_.push_back({number, frame.first_chunk});
      for (uint32_t i = 0; i < frame.chunks; ++i) {
        index_.find_or_insert(table.chunks[frame.first_chunk + i].name, {frame_number, i});
      }
    }
    packs_.push_back({{id, table.file_length, table.table_checksum}, table.chunks, nullptr});
  }
  return Status::Ok();
}

void Writer::find_parent() {
  if (!plausible_id(options_.parent)) return;
  if (!load_manifest(env_, paths_, options_.parent, &parent_).ok() ||
      !check_parent(parent_, &parent_packs_).ok()) {
    parent_ = {};
    return;
  }
  parent_id_ = options_.parent;
}

// Everything that opening the snapshot would check, with the packs that are open already.
Status Writer::check_parent(const Manifest& manifest, std::vector<uint32_t>* number) const {
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

Writer::~Writer() {
  if (committed_ || packs_published_) return;
  for (PackInUse& pack : packs_) {
    if (pack.writer) env_->remove(pack.writer->path());
  }
}

Status Writer::fail(Status status) {
  std::lock_guard guard(failure_mutex_);
  if (failure_.ok()) failure_ = status;
  failed_ = true;
  return failure_;
}

Status Writer::failure() {
  std::lock_guard guard(failure_mutex_);
  return failure_;
}

Status Writer::check_range(uint64_t space, uint64_t address, uint64_t length) {
  if (failed_) return failure();
  if (space & kBlobSpace)
    return fail(Status::Error("space numbers of 2^63 and more are the store's own"));
  if (address + length < address || address + length > ~0ull - 2 * kLargeChunk)
    return fail(Status::Error("a run goes beyond the end of its space"));
  return Status::Ok();
}

Status Writer::add_bytes(uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                         std::span<const ChunkName> names, bool placed) {
  if (Status status = check_range(space, address, bytes.size()); !status.ok()) return status;
  if (bytes.empty()) return Status::Ok();
  if (!names.empty() && names.size() != chunks_in(address, bytes.size(), chunk_unit(space)))
    return fail(Status::Error("a run does not have as many names as chunks"));
  if (placed) logical_ += bytes.size();
  Borrowed lane(this);
  return add_chunks(*lane, space, address, bytes, names, placed ? &lane->runs : nullptr);
}

Status Writer::add_early(uint64_t space, uint64_t address, std::span<const uint8_t> bytes) {
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

Status Writer::add_zeros(uint64_t space, uint64_t address, uint64_t length) {
  if (Status status = check_range(space, address, length); !status.ok()) return status;
  if (length == 0) return Status::Ok();
  logical_ += length;
  zero_ += length;
  Borrowed lane(this);
  lane->runs.note(space, address, length, {kZeroFrame, 0});
  return Status::Ok();
}

Status Writer::add_same(uint64_t space, uint64_t address, uint64_t length) {
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

Status Writer::as_in_parent(Lane& lane, uint64_t space, uint64_t address, uint64_t end) {
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

// [from, to) of one run of the parent. Chunks of which only a part is wanted are read and stored as
// new ones.
Status Writer::same_run(Lane& lane, uint64_t space, const Run& run, uint64_t from, uint64_t to) {
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

Status Writer::add_named(uint64_t space, uint64_t address, uint64_t length,
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

Status Writer::add_to_blob(const std::string& name, std::span<const uint8_t> bytes) {
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

Status Writer::add(Lane& lane, uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                   std::span<const ChunkName> names) {
  return add_chunks(lane, space, address, bytes, names, &lane.runs);
}

Status Writer::add_chunks(Lane& lane, uint64_t space, uint64_t address,
                          std::span<const uint8_t> bytes, std::span<const ChunkName> names,
                          PlacedRuns* places) {
  struct Piece {
    std::span<const uint8_t> bytes;
    ChunkName name;
    bool zero;
  };
  // A few are named before the first is looked up: the index is larger than any cache.
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

Status Writer::keep(Lane& lane, uint64_t space, std::span<const uint8_t> bytes,
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

Status Writer::close_frame(Lane::Open& open) {
  if (open.draft.names.empty()) return Status::Ok();
  SealedFrame sealed = seal(std::move(open.draft), options_.level, paths_.keys.get());
  PackWriter::Writeback due;
  Status status;
  {
    std::lock_guard guard(io_mutex_);
    status = append_frame(sealed, open.frame, &due);
  }
  due.start();
  // The next frame goes where this one was: memory that is new each time takes longer than its
  // hash.
  if (open.draft.plain.capacity() == 0) open.draft.plain = std::move(sealed.stored);
  open.draft.clear();
  return status;
}

Status Writer::append_frame(const SealedFrame& sealed, uint32_t frame, PackWriter::Writeback* due) {
  if (failed_) return failure();
  if (current_ == kNoPack) {
    PackInUse pack{};
    std::string path;
    uint8_t random[8];
    env_->random(random, sizeof(random));
    path = fmt::format("{}/{}.{}.tmp", paths_.packs(), hex(random, sizeof(random)), lock_->id());
    // Room for all that the pack can grow to, until it is known how large it is.
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

// Refuses before the disk is full, so that the other tenants of the disk, and our own manifest,
// still find room.
Status Writer::check_room(uint64_t more) {
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

Status Writer::finish_pack() {
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
  // The disk writes the last ones while the next is filled; no more than these are open.
  constexpr size_t kOnTheirWay = 3;
  return sync_packs(kOnTheirWay);
}

// Makes all complete packs durable but the last `but`.
Status Writer::sync_packs(size_t but) {
  for (; unsynced_.size() > but; unsynced_.pop_front()) {
    if (Status status = packs_[unsynced_.front()].writer->sync(); !status.ok()) return status;
  }
  return Status::Ok();
}

Status Writer::publish_packs() {
  for (PackInUse& pack : packs_) {
    if (!pack.writer) continue;
    packs_published_ = true;
    std::string path = paths_.pack(pack.ref.id);
    if (int e = env_->rename(pack.writer->path(), path))
      return io_error("rename", pack.writer->path(), e);
  }
  if (int e = env_->sync_directory(paths_.packs())) return io_error("sync", paths_.packs(), e);
  return sync_store(env_, paths_.root);
}

Status Writer::build_manifest(Manifest* manifest) {
  std::vector<PlacedRun> all;
  for (auto& lane : lanes_) {
    all.insert(all.end(), lane->runs.begin(), lane->runs.end());
    lane->runs = {};
  }
  std::sort(all.begin(), all.end(), [](const PlacedRun& a, const PlacedRun& b) {
    return a.space != b.space ? a.space < b.space : a.address < b.address;
  });
  std::vector<uint32_t> number(packs_.size(), kNoPack);  // pack of ours -> pack of the manifest
  std::vector<uint32_t> back;                            // and back
  for (const PlacedRun& run : all) {
    if (manifest->spaces.empty() || manifest->spaces.back().space != run.space) {
      manifest->spaces.push_back({run.space, {}, {}});
    }
    std::vector<Run>& runs = manifest->spaces.back().runs;
    Run ref{run.address, run.length, kZeroPack, 0, 0};
    if (run.place.frame != kZeroFrame) {
      FramePlace at{run.pack, 0};
      if (run.place.frame != kDirect) at = frames_[run.place.frame];
      if (at.pack == kNoPack)
        return Status::Error("a frame was never written (a bug in gpuckpt: please report)");
      uint32_t& n = number[at.pack];
      if (n == kNoPack) {
        n = static_cast<uint32_t>(manifest->packs.size());
        manifest->packs.push_back(packs_[at.pack].ref);
        back.push_back(at.pack);
      }
      ref.pack = n;
      ref.chunk = at.first_chunk + run.place.index;
      ref.count = run.count;
    }
    if (!runs.empty() && ref.address < runs.back().end()) {
      return Status::Error(
          fmt::format("address {:#x} of space {:#x} was captured twice", ref.address, run.space));
    }
    add_run(&runs, ref, chunk_unit(run.space));
  }
  for (SpaceMap& space : manifest->spaces) {
    SpaceDigest sum;
    const uint64_t unit = chunk_unit(space.space);
    for (const Run& run : space.runs) {
      if (run.pack == kZeroPack) {
        sum.zeros(run.address, run.length);
        continue;
      }
      const std::vector<ChunkEntry>& chunks = packs_[back[run.pack]].chunks;
      uint64_t address = run.address;
      for (uint32_t i = run.chunk; i < run.chunk + run.count; ++i) {
        if (chunks[i].length != chunk_length(address, run.end(), unit)) {
          return Status::Error(
              fmt::format("the chunk at {:#x} of space {:#x} has another length than its name "
                          "stands for (a bug in gpuckpt: please report)",
                          address, space.space));
        }
        sum.chunk(address, chunks[i].length, chunks[i].name);
        address += chunks[i].length;
      }
    }
    space.digest = sum.finish();
  }
  manifest->blobs.resize(blobs_.size());
  for (const auto& [name, blob] : blobs_)
    manifest->blobs[blob.space & ~kBlobSpace] = {name, blob.length};
  return Status::Ok();
}

// Ids sort by time, also when the clock went backwards, and differ by their last part when two
// writers meet.
std::string make_id(Env* env, int64_t now_ns, const std::string& newest) {
  auto stamp = [](int64_t ms) {
    time_t seconds = ms / 1000;
    tm parts;
    gmtime_r(&seconds, &parts);
    return fmt::format("{:04}{:02}{:02}-{:02}{:02}{:02}{:03}", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       ms % 1000);
  };
  constexpr size_t kStampLength = 18;
  std::string id = stamp(now_ns / 1'000'000);
  if (newest.size() > kStampLength && newest.substr(0, kStampLength) >= id) {
    tm parts{};
    int ms = 0;
    if (sscanf(newest.c_str(), "%4d%2d%2d-%2d%2d%2d%3d", &parts.tm_year, &parts.tm_mon,
               &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &ms) == 7) {
      parts.tm_year -= 1900;
      parts.tm_mon -= 1;
      id = stamp(timegm(&parts) * int64_t{1000} + ms + 1);
    }
  }
  static const char letters[] = "23456789abcdefghjkmnpqrstvwxyz";
  uint8_t random[4] = {};
  env->random(random, sizeof(random));
  id += '-';
  for (uint8_t byte : random) id += letters[byte % (sizeof(letters) - 1)];
  return id;
}

Status Writer::describe(const std::string& meta, CommitResult* result, std::string* out) {
  std::string* id = &result->id;
  std::vector<std::string> ids;
  if (Status status = list_snapshots(env_, paths_, &ids); !status.ok()) return status;
  nlohmann::json j = parse_json(meta);
  if (!j.is_object()) return Status::Error("the description of the snapshot is not a JSON object");
  if (options_.adopt) {
    *id = j.contains("id") && j["id"].is_string() ? j["id"].get<std::string>() : "";
    if (!plausible_id(*id)) return Status::Corruption("the snapshot has no id");
    if (std::find(ids.begin(), ids.end(), *id) != ids.end()) {
      return Status::Locked(fmt::format("store {} has snapshot {} already", paths_.root, *id));
    }
    // Fencing numbers are those of the store where it was written.
    for (const char* key : {"fence", "base", "branch"}) j.erase(key);
  } else {
    int64_t now = env_->now_ns();
    *id = make_id(env_, now, ids.empty() ? "" : ids.back());
    time_t seconds = now / 1'000'000'000;
    tm parts;
    gmtime_r(&seconds, &parts);
    char iso[32];
    strftime(iso, sizeof(iso), "%Y-%m-%dT%H:%M:%SZ", &parts);
    j["id"] = *id;
    j["time"] = iso;
    j["time_ns"] = now;
    j["job"] = options_.job;
    if (!options_.run.empty()) {
      const LeaseRequest request{options_.job, options_.run, options_.run_pid, lease_ttl_ms()};
      if (Status s = place_in_line(env_, paths_, request, &j, &result->warning); !s.ok()) return s;
    }
  }
  if (!paths_.names->key()) {
    if (!result->warning.empty()) result->warning += "\n";
    result->warning += fmt::format(
        "store {} has format version 2: a party that chooses what the program stores can make "
        "pages that come back as others; name a new --store (this one stays readable, and "
        "`gpuckpt export` and `import` copy from it)",
        paths_.root);
  }
  j["sizes"] = {{"logical_bytes", logical_.load()},
                {"new_bytes", new_.load()},
                {"same_bytes", same_.load()},
                {"zero_bytes", zero_.load()},
                {"stored_bytes", written_}};
  for (const auto& [codec, bytes] : by_codec_)
    j["sizes"][fmt::format("codec_{}_bytes", codec)] = bytes;
  *out = j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return Status::Ok();
}

// The parent, or else the newest snapshot of this job: what resembles ours most.
const Manifest* Writer::layers_to_share() {
  if (!parent_id_.empty()) return &parent_;
  std::vector<std::string> ids;
  if (!list_snapshots(env_, paths_, &ids).ok()) return nullptr;
  constexpr size_t kLook = 16;
  for (size_t i = 0; i < std::min(kLook, ids.size()); ++i) {
    const std::string& id = ids[ids.size() - 1 - i];
    std::string meta;
    uint64_t length = 0;
    if (!read_manifest_meta(env_, paths_.manifest(id), paths_.keys.get(), &meta, &length).ok())
      continue;
    auto j = parse_json(meta);
    bool ours = j.is_object() && j.contains("job") && j["job"] == options_.job;
    if (!ours || !load_manifest(env_, paths_, id, &parent_).ok()) continue;
    return &parent_;
  }
  return nullptr;
}

// The packs have their names only when the snapshot is sure to come.
Status Writer::ask(const Check& check, const std::string& id, const Manifest& manifest) {
  OpenPacks open;
  for (const PackInUse& pack : packs_) {
    if (!pack.writer) continue;
    std::unique_ptr<PackReader> reader;
    if (Status s = PackReader::open(env_, pack.writer->path(), pack.ref.id, paths_.keys,
                                    paths_.names, &reader);
        !s.ok())
      return s;
    open[pack.ref.id] = std::move(reader);
  }
  std::unique_ptr<SnapshotReader> reader;
  if (Status s = open_unpublished(env_, paths_, id, manifest, open, &reader); !s.ok()) return s;
  return check(*reader);
}

Status Writer::finish(const std::string& meta, const Check& check, CommitResult* result) {
  for (auto& [name, blob] : blobs_) {
    if (blob.pending.empty()) continue;
    Borrowed lane(this);
    Status status = add(*lane, blob.space, blob.length - blob.pending.size(), blob.pending);
    if (!status.ok()) return status;
    blob.pending = {};
  }
  for (auto& lane : lanes_) {
    for (Lane::Open& open : lane->open) {
      if (Status status = close_frame(open); !status.ok()) return fail(status);
    }
  }
  if (failed_) return failure();
  if (Status status = finish_pack(); !status.ok()) return fail(status);
  if (Status status = sync_packs(0); !status.ok()) return fail(status);
  Manifest manifest;
  if (Status status = build_manifest(&manifest); !status.ok()) return fail(status);
  if (Status status = describe(meta, result, &manifest.meta); !status.ok()) return fail(status);
  if (check)
    if (Status status = ask(check, result->id, manifest); !status.ok()) return fail(status);
  EncodedManifest encoded = encode_manifest(manifest, layers_to_share(), paths_.keys.get());
  if (Status status = check_room(encoded.disk_bytes()); !status.ok()) return fail(status);
  // Everything that can run out of space comes before the first rename.
  PendingManifest pending(env_, paths_, lock_->id(), result->id);
  if (Status status = pending.write(encoded); !status.ok()) return fail(status);
  if (Status status = publish_packs(); !status.ok()) return fail(status);
  if (Status status = pending.publish(false); !status.ok()) return fail(status);
  committed_ = true;
  result->logical_bytes = logical_;
  result->new_bytes = new_;
  result->zero_bytes = zero_;
  result->stored_bytes = written_ + encoded.disk_bytes();
  lock_.reset();
  return Status::Ok();
}

}  // namespace

Status begin_snapshot(Env* env, const Paths& paths, const WriteOptions& options,
                      std::unique_ptr<SnapshotWriter>* out) {
  auto writer = std::make_unique<Writer>(env, paths, options);
  if (Status status = writer->begin(); !status.ok()) return status;
  *out = std::move(writer);
  return Status::Ok();
}

}  // namespace gpuckpt::store
