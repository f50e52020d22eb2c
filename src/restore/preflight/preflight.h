// Could this snapshot be restored here? The restore's own plan, without starting, making or
// changing anything: used by the restore itself, by --dry-run, by verify, and by the writer before
// it publishes.
//
// Owner: none. Threads: one. Errors: one sentence for each obstacle.
#pragma once

#include <string>
#include <vector>

#include "restore/driver/driver.h"
#include "restore/driver/tree.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

// One sentence for each obstacle.
struct Preflight {
  std::vector<std::string> never;    // no machine could restore it
  std::vector<std::string> here;     // this one cannot (now); another may
  std::vector<std::string> doubts;   // it can, but hardly
  std::vector<std::string> differs;  // it can, but for this; a restore says itself what it lost
  bool ok() const { return never.empty() && here.empty(); }
};

Preflight preflight(const Tree&, const Options&);
// The same for a snapshot of which nothing was read yet.
store::Status preflight(const store::SnapshotReader&, const Options&, Preflight* out);

std::string find_launcher(const Options&);
bool namespaces_allowed(const Options&);

// Why several processes cannot be restored with other ids than they had, and what to do.
std::string needs_ids(const std::string& why_not);
// Are all numbers of the job's processes and threads free in this pid namespace?
bool all_ids_free(const Tree&);

}  // namespace gpuckpt::restore
