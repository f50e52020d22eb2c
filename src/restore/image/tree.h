// The processes of a snapshot: one, or several that belong together (members). The first is the
// root; parents come before their children. Besides the root there may be others without a parent
// in the job (orphans): the process that forked them has ended.
//
// Owner: the supervisor, or the writer that asks the preflight. Threads: one, but for reading
// the store. Errors: a Status; `wrong` for a job that cannot be put together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "restore/image/image.h"
#include "restore/memory/common_pages.h"
#include "restore/memory/memory_loader.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

// How a process gets its parent and its session. A session is inherited at fork, so a process that
// is in another session than its parent must be forked by another process; CLONE_PARENT, or the end
// of the process that forked it, gives it its parent.
enum class Birth {
  kDirect,    // by its parent (of an orphan: by a process that ends), when that has its session
  kEarly,     // by its parent, before that makes its own session
  kSibling,   // by `maker`, the leader of its session, a child of the same parent
  kDisowned,  // by a child of `maker`, the leader of its session, that ends: an orphan, or one whom
              // its parent then takes on (a sub-reaper)
  kHelper,  // by a helper that has the number of its session's leader, which has ended: a child of
            // the same parent, or for orphans and the root beside the root
};

inline constexpr pid_t kOutside = -1;

struct Member {
  uint32_t number;
  std::unique_ptr<store::SnapshotReader> reader;  // this member's part of the snapshot
  Image image;
  Memory memory;
  int parent = -1;  // index in the list; -1: the root, orphans
  Birth birth = Birth::kDirect;
  int maker = -1;  // index
  // The session that it must be forked into; 0: any; kOutside: one without a number here.
  pid_t session = 0;
  bool leaderless = false;  // the leader of that session has ended
  Fd report, their_report;  // the socket to the restore entry; closed once the process was started
  pid_t pid = 0;            // as it is called here, once it has reported
  // The step that it has reported, and when that must have ended (CLOCK_MONOTONIC, seconds).
  std::string step = "being made";
  double deadline = 0;
};

struct Tree {
  std::vector<std::unique_ptr<Member>> members;
  CommonPages common;  // find_common_pages; none: not looked for
  std::string wrong;   // why the job cannot be put together; empty: it can
  bool several() const { return members.size() > 1 || !root().image.zombies.empty(); }
  Member& root() { return *members.front(); }
  const Member& root() const { return *members.front(); }
  bool is_orphan(size_t i) const { return i > 0 && members[i]->parent < 0; }
  // Whether member i shares device memory with a process that held a lock of libc. That process
  // must run before it can offer its memory, and none runs before all are ready.
  bool runs_first(size_t i) const;
  // Whether a process must be forked before the root exists.
  bool has_prelude() const;
};

// Reads the descriptions of all members. `snapshot` must outlive the tree.
store::Status read_tree(const store::SnapshotReader& snapshot, Tree* out);

// Makes the memory of all members (memory_loader.h). What several of them share is made once.
store::Status load_tree(Tree*, unsigned threads);

}  // namespace gpuckpt::restore
