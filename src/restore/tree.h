// The processes of a snapshot: one, or several that belong together (members). The first is the
// root; parents come before their children.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "restore/image.h"
#include "restore/plan_builder.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

struct Member {
  uint32_t number;
  std::unique_ptr<store::SnapshotReader> reader;  // what is this one's of the snapshot
  Image image;
  Memory memory;
  int parent = -1;          // index in the list; -1: the root
  Fd report, their_report;  // to the restore entry; its end until it is started
  pid_t pid = 0;            // as it is called here, once it has reported
};

struct Tree {
  std::vector<std::unique_ptr<Member>> members;
  bool several() const { return members.size() > 1 || !root().image.zombies.empty(); }
  Member& root() { return *members.front(); }
  const Member& root() const { return *members.front(); }
};

// Reads the descriptions of all. `snapshot` must outlive the tree.
store::Status read_tree(const store::SnapshotReader& snapshot, Tree* out);

// Makes memory for all of them (plan_builder.h). What several of them share is made once.
store::Status load_tree(Tree*, unsigned threads);

// Why the tree cannot be put together again; empty: it can.
std::string check_tree(const Tree&);

}  // namespace gpuckpt::restore
