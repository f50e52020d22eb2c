// How a snapshot is written (snapshot_writer.cc and snapshot_commit.cc; for these two files only):
// the runs of bytes with the chunks that hold them, and the class behind SnapshotWriter.
//
// Owner: the caller of begin_snapshot() has the writer; it owns its packs until they are published.
// Threads: as SnapshotWriter; each mutex names what it guards. Errors: a Status; the first failure
// is repeated by every later call.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "store/format/index.h"
#include "store/format/pack_tables.h"
#include "store/io/memory.h"
#include "store/store_internal.h"

namespace gpuckpt::store {

inline constexpr uint32_t kZeroFrame = 0xfffffffe;
// `place` is not by frame: PlacedRun::pack has the pack
inline constexpr uint32_t kDirect = 0xfffffffd;
inline constexpr uint32_t kNoPack = 0xffffffff;

struct PlacedRun {
  uint64_t space, address, length;
  ChunkPlace place;  // with a `pack`: index is the chunk's number in it
  uint32_t count;
  uint32_t pack = kNoPack;  // where the chunk is known already: the parent has it
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
  std::vector<ChunkEntry> chunks;      // of packs that existed before
  std::unique_ptr<PackWriter> writer;  // of ours
};

// The state that one thread at a time works with.
struct Lane {
  struct Open {
    FrameDraft draft;
    uint32_t frame = 0;
  };
  Open open[2];  // small and large chunks do not share a frame: a restore of one space reads little
                 // of the others
  PlacedRuns runs;
};

// What was put early, by address and disjoint. Cuts are made at multiples of the space's unit.
class EarlyRuns {
 public:
  bool empty() const { return runs_.empty(); }
  // Replaces what is at these addresses.
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
  // Finds what is at `address`, up to `*end`, which is reduced where that changes. False: nothing
  // is there.
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

class SnapshotWriterImpl : public SnapshotWriter {
 public:
  SnapshotWriterImpl(Env* env, const Paths& paths, const WriteOptions& options)
      : env_(env), paths_(paths), options_(options) {}
  ~SnapshotWriterImpl() override;
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

  // Runs `work`. Any lack of memory fails the snapshot, because `work` is half done then.
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
  void add_to_index(const TableView& table);
  void find_parent();
  Status check_parent(const Manifest& manifest, std::vector<uint32_t>* number) const;
  Status same_run(Lane& lane, uint64_t space, const Run& run, uint64_t from, uint64_t to);
  Status check_range(uint64_t space, uint64_t address, uint64_t length);
  const Manifest* layers_to_share();
  Status fail(Status status);
  Status failure();
  // Adds bytes that the snapshot has at these addresses.
  Status add(Lane& lane, uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
             std::span<const ChunkName> names = {});
  // The same for the chunks alone; `places` gets where they are, null: the snapshot has no address
  // for them yet.
  Status add_chunks(Lane& lane, uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                    std::span<const ChunkName> names, PlacedRuns* places);
  // Stores a chunk, or finds it. `where` is its place from now on.
  Status keep(Lane& lane, uint64_t space, std::span<const uint8_t> bytes, const ChunkName& name,
              ChunkPlace* where);
  Status close_frame(Lane::Open& open);
  Status append_frame(const SealedFrame& sealed, uint32_t frame, PackWriter::Writeback* due);
  Status check_room(uint64_t more);
  Status finish_pack();
  Status sync_packs(size_t but);
  Status publish_packs();
  Status digest_space(const std::vector<uint32_t>& packs, SpaceMap* space) const;
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
  uint64_t current_room_ = 0;  // the part of them that is reserved for the current pack
  int64_t refreshed_ns_ = 0;

  std::mutex early_mutex_;
  std::map<uint64_t, EarlyRuns> early_;  // by space

  std::mutex blobs_mutex_;
  std::map<std::string, Blob> blobs_;

  // The snapshot that the sender may refer to. Its packs are open, and our lock keeps them.
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

class SnapshotWriterImpl::Borrowed {
 public:
  explicit Borrowed(SnapshotWriterImpl* writer) : writer_(writer) {
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
  SnapshotWriterImpl* writer_;
  Lane* lane_;
};

}  // namespace gpuckpt::store
