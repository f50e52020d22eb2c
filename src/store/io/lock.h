// Locks of a store: one file each in locks/, created with O_EXCL, that names its holder. No
// advisory locks, so that network file systems need nothing special. Writers hold shared ones side
// by side; prune and repair need to be alone. Readers take none: what they opened stays readable,
// and a reader whose snapshot is pruned before it opened a file gets an error that says so.
//
// Owner: the caller; the destructor removes the file. Threads: one for each Lock. Errors: a Status;
// kExitLocked names the holder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/io/env.h"

namespace gpuckpt::store {

enum class LockKind { kShared, kExclusive };

// The holder of a lock, as its file says.
struct LockOwner {
  std::string file;  // name in locks/
  LockKind kind = LockKind::kShared;
  std::string host;
  int64_t pid = 0;
  std::string what;  // "writing a snapshot", "pruning"
  std::string run;   // of a writer: the run whose snapshot it writes (lease.h)
  bool live = true;
  bool here = false;   // its process can be seen from this machine and pid namespace
  int64_t age_ns = 0;  // since it was last refreshed
};

class Lock {
 public:
  // kExitLocked names the holder. Stale locks, whose process has ended, are removed.
  static Status acquire(Env* env, const std::string& store, LockKind kind, const std::string& what,
                        std::unique_ptr<Lock>* out, const std::string& run = "");
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // Unique in the store: temporary files carry it in their name, so that stale ones are known by
  // their dead lock.
  const std::string& id() const { return id_; }
  // Shows other machines that the holder is alive; call it at least every few minutes.
  void refresh();

 private:
  Lock() = default;
  Env* env_ = nullptr;
  std::string path_, id_;
};

// Whether a snapshot of this run is being written. Where the writer's process cannot be seen, the
// answer is yes while its lock is younger than writers let it become.
Status is_writing(Env* env, const std::string& store, const std::string& run, bool* out);

// All locks, stale ones included. `refresh_clock_ns`: the file system's own time, 0 to use the wall
// clock.
Status list_locks(Env* env, const std::string& store, int64_t refresh_clock_ns,
                  std::vector<LockOwner>* out);

}  // namespace gpuckpt::store
