// A store: a directory of write-once packs and of manifests, one per snapshot. This is the public
// interface of src/store. Format: docs/FORMAT.md.
//
// Several processes may write and read at once; prune and repair run alone (lock.h). A snapshot
// exists when its manifest is published, and not before: an earlier failure leaves every other
// snapshot as it was.
//
// Owner: the caller; it must outlive what it returned. Threads: a Store any; a SnapshotWriter as
// its functions say. Errors: a Status.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/format/contents.h"
#include "store/format/names.h"
#include "store/io/env.h"
#include "store/io/lease.h"
#include "store/io/lock.h"
#include "store/snapshot_reader.h"
#include "store/status.h"

namespace gpuckpt::store {

struct SnapshotInfo {
  std::string id;
  std::string meta;  // JSON; empty when `status` is not ok
  uint64_t manifest_bytes = 0;
  Status status;        // why the manifest cannot be used
  bool branch = false;  // not in its job's line (job_line.h)
};

struct WriteOptions {
  std::string job = {};
  // The run whose snapshot it is (lease.h), and a process that lives as long as it does. Empty: the
  // snapshot says nothing of its place in the job's line.
  std::string run = {};
  int64_t run_pid = 0;
  // A snapshot that put_same may refer to (SnapshotWriter::parent tells whether it can).
  std::string parent = {};
  int level = 1;  // zstd level; 0 stores plain
  Purpose purpose = Purpose::kBalanced;
  uint64_t budget = 0;  // the store may not grow beyond this many bytes; 0: no limit
  // Before writing, remove the oldest snapshots (never the newest of a job, never the parent) until
  // one as large as the last ones fits into the budget. Otherwise a full budget is an error.
  bool prune_to_budget = false;
  uint64_t lock_wait_ms = 0;        // how long to wait for a prune or repair to finish
  bool adopt = false;               // id, time and job are the description's own (import)
  uint64_t keep_free = 1ull << 20;  // fail cleanly when the disk has less than this left
  // How many bytes of new packs may stay in the page cache. The rest is written past it (or, where
  // the file system cannot do that, dropped once it is durable), and other files' pages stay.
  uint64_t page_cache = ~0ull;
};

struct CommitResult {
  std::string id;
  uint64_t logical_bytes = 0;  // captured, zeros included
  uint64_t new_bytes = 0;      // plain bytes that were not in the store before
  uint64_t stored_bytes = 0;   // bytes added to the store, manifest included
  uint64_t zero_bytes = 0;
  std::string warning;  // what the user is to be told: it is a branch
};

// One snapshot being written. All but commit are thread safe; puts either succeed
// or fail the snapshot as a whole (every later call repeats the first failure). Destroying it
// without `commit` drops everything it wrote.
class SnapshotWriter {
 public:
  virtual ~SnapshotWriter() = default;
  // Every address at most once per space.
  // `names`, unless empty: what the bytes were where they come from, chunk by chunk (plain hashes);
  // a difference is corruption on the way.
  virtual Status put(uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                     std::span<const std::array<uint8_t, 16>> names = {}) = 0;
  virtual Status put_zero(uint64_t space, uint64_t address, uint64_t length) = 0;
  // Bytes of whole chunks that are no part of the snapshot, unless put_same says so afterwards.
  // Of an address that comes several times, what came last (no two calls for it at a time).
  virtual Status put_early(uint64_t space, uint64_t address, std::span<const uint8_t> bytes) = 0;
  // What put_early had of these addresses, and the parent of the rest, zeros included; it must have
  // all of that. Neither sent nor read: nothing is known of these bytes but that they are in packs
  // which are there.
  virtual Status put_same(uint64_t space, uint64_t address, uint64_t length) = 0;
  // Chunks by their names (plain hashes), cut as put would; all must be known.
  virtual Status put_named(uint64_t space, uint64_t address, uint64_t length,
                           std::span<const std::array<uint8_t, 16>> names) = 0;
  // Chunks that no address has yet: from the return on put_named may be called for `names`.
  virtual Status put_ahead(uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                           std::span<const std::array<uint8_t, 16>> names) = 0;
  // The parent asked for, once it was found with all it needs (it stays until we are destroyed,
  // also when it is pruned meanwhile); empty: there is none, send everything.
  virtual const std::string& parent() const = 0;
  // Appends; calls for one name must be in order.
  virtual Status append_blob(const std::string& name, std::span<const uint8_t> bytes) = 0;
  // Asked when everything is written and nothing is published yet: whether what a reader will find
  // shall be a snapshot.
  using Check = std::function<Status(const SnapshotReader&)>;
  // Makes everything durable and publishes the manifest. `meta`: a JSON object; id, time, time_ns,
  // job and sizes are added to it. When it fails there is no snapshot.
  virtual Status commit(const std::string& meta, const Check& check, CommitResult* result) = 0;
  Status commit(const std::string& meta, CommitResult* result) {
    return commit(meta, nullptr, result);
  }
};

struct VerifyOptions {
  bool full = false;    // read every byte; otherwise structure only (manifests, tables, lengths)
  std::string id = {};  // one snapshot only; empty: the whole store
  unsigned threads = 0;
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};
struct VerifyReport {
  std::vector<std::string> whole;                            // snapshot ids
  std::vector<std::pair<std::string, std::string>> damaged;  // id, why
  std::vector<std::string> findings;                         // damaged and stale files
  uint64_t packs = 0, pack_bytes = 0, checked_bytes = 0;
  bool ok() const { return damaged.empty() && findings.empty(); }
};

struct PruneOptions {
  int keep = -1;              // newest snapshots kept, per job; -1: all
  int64_t older_than_ns = 0;  // only those older than this go; 0: of any age. With `keep`: what
                              // neither rule wants to keep goes
  std::string tag = {};       // only snapshots with this tag are counted and go; empty: all
  std::vector<std::string> keep_tags = {};  // snapshots with one of these tags never go by a rule
  std::vector<std::string> remove = {};     // these ids go as well, whatever the rules say
  bool dry_run = false;
};
struct PruneReport {
  std::vector<std::string> removed, kept;
  uint64_t packs_removed = 0, packs_rewritten = 0, bytes_freed = 0, leftovers = 0;
  std::string
      postponed;  // why space was not given back yet (another writer is active); empty: it was
};

struct RepairReport {
  bool format_rewritten = false;
  std::vector<std::string> rebuilt;                       // packs whose table was made again
  std::vector<std::string> renamed;                       // packs that got their names back
  std::vector<std::string> whole;                         // snapshots
  std::vector<std::pair<std::string, std::string>> lost;  // snapshots that were dropped, and why
  uint64_t packs_removed = 0, packs_rewritten = 0;
};

struct MirrorReport {
  uint64_t snapshots = 0, files = 0, bytes = 0;              // copied this time
  std::vector<std::pair<std::string, std::string>> damaged;  // not copied, and why
  // Those of the store that the mirror has now; null when it could not be asked.
  std::unique_ptr<std::vector<std::string>> there;
};

// How far a store's mirror is, as the last mirroring left it.
struct MirrorState {
  std::string target, error = "";           // error: "" when all went well
  int64_t time_ns = 0;                      // when it ended; 0: it has not yet
  std::vector<std::string> snapshots = {};  // that are in the mirror, sorted
  bool has(const std::string& id) const;
};

// Is `target` a place for a mirror of the store, and not the store or a part of it?
Status check_apart(const std::string& store, const std::string& target);

class Store {
 public:
  virtual ~Store() = default;
  struct Options {
    Env* env = nullptr;         // null: the real one
    bool create = false;        // make a store of an absent or empty directory
    bool write = false;         // snapshots will be written (`create` says the same)
    bool any_owner = false;     // accept a store that belongs to another user; root: to read it
    std::string key_file = {};  // of an encrypted store (empty: $GPUCKPT_KEY_FILE); with `create`
                                // makes the new store one
    std::string mirror = {};    // with `create`: where its mirror is, if it had one before
  };
  // kExitAbsent: there is none. kExitIncompatible: another version. kExitRefused: another user's.
  static Status open(const std::string& path, const Options& options, std::unique_ptr<Store>* out);

  // Makes again what can be derived (the format file, tables of packs), drops snapshots of which
  // bytes are lost, and what is damaged with them. Alone in the store. With `dry_run` it only
  // reports what it would do.
  static Status repair(const std::string& path, const Options& options, bool dry_run,
                       RepairReport* report);

  virtual const std::string& path() const = 0;
  // Oldest first. Manifests that cannot be read are in it, with their status.
  virtual Status list(std::vector<SnapshotInfo>* out) = 0;
  // "latest" or "" (the newest that is no branch), an id, a unique beginning or end of one, or a
  // tag (the newest that has it).
  virtual Status resolve(const std::string& name, std::string* id) = 0;
  virtual Status open_snapshot(const std::string& id, std::unique_ptr<SnapshotReader>* out) = 0;
  virtual Status begin(const WriteOptions& options, std::unique_ptr<SnapshotWriter>* out) = 0;
  // Ok also when damage was found: the report says so. Fails when it could not look.
  virtual Status verify(const VerifyOptions& options, VerifyReport* report) = 0;
  // Removes snapshots, then what no snapshot needs. Never the newest snapshot of a job.
  virtual Status prune(const PruneOptions& options, PruneReport* report) = 0;
  // Makes the store at `target` (a directory, or "rclone:REMOTE:PATH") hold every snapshot of this
  // one, beginning where it was interrupted. kExitLocked: another process mirrors already.
  virtual Status mirror(const std::string& target, MirrorReport* report) = 0;
  // Null when it has none.
  virtual std::unique_ptr<MirrorState> mirror_state() = 0;
  // Bytes of all files of the store.
  virtual Status disk_bytes(uint64_t* out) = 0;
  // The lease of a job (lease.h): which run has it; taking it, with a note of where the job's line
  // ends; renewing it, and saying that the run is about to end (kLeaving) or over (kEnded).
  virtual Status job_lease(const std::string& job, Lease* out) = 0;
  virtual Status take_job(const LeaseRequest& request, Lease* out) = 0;
  virtual Status renew_job(const Lease& lease) = 0;
  virtual Status leave_job(const Lease& lease, Lease::Life how) = 0;
  // Is a snapshot of this run being written?
  virtual Status is_writing(const std::string& run, bool* out) = 0;
  // How it names chunks.
  virtual std::shared_ptr<const Names> names() const = 0;
  // The newest snapshot of the job's line; empty: there is none.
  virtual Status newest_of_job(const std::string& job, std::string* id) = 0;
  // How the bytes of all packs are stored; packs whose tables cannot be read are only counted.
  virtual Status codecs(std::vector<CodecUse>* out, uint64_t* unreadable) = 0;
};

// What differs between two snapshots, by address. Ranges are whole chunks.
struct Difference {
  enum Kind { kChanged, kOnlyFirst, kOnlySecond };
  uint64_t space, address, length;
  Kind kind;
};
// By the names of chunks, or where these mean nothing to each other (two stores), by their bytes.
Status compare(const SnapshotReader& first, const SnapshotReader& second,
               std::vector<Difference>* out);
// Names of blobs whose bytes differ, or that only one of the two has.
Status compare_blobs(const SnapshotReader& first, const SnapshotReader& second,
                     std::vector<std::string>* out);

// A snapshot as one stream that needs nothing else (docs/FORMAT.md, "A stream"). `write` and `read`
// return false on failure; `read` fills the buffer completely.
using StreamWrite = std::function<bool(std::span<const uint8_t>)>;
using StreamRead = std::function<bool(std::span<uint8_t>)>;
Status export_snapshot(const SnapshotReader& snapshot, const StreamWrite& write);
// Publishes it under its own id; kExitLocked when the store has that one already.
Status import_snapshot(Store& store, const WriteOptions& options, const StreamRead& read,
                       CommitResult* result);

// Splits "STORE[@NAME]": the part after the last '@' unless the whole is an existing directory.
void split_reference(const std::string& reference, std::string* store, std::string* name);

// Opens "STORE[@ID|@latest|@tag]".
Status open_reference(const std::string& reference, const Store::Options& options,
                      std::unique_ptr<Store>* store, std::unique_ptr<SnapshotReader>* snapshot);

}  // namespace gpuckpt::store
