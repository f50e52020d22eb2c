// Whether this snapshot could be restored here. It makes the restore's own plan without starting,
// making or changing anything, for the restore itself, --dry-run, verify, and the writer before it
// publishes.
//
// Owner: none. Threads: one. Errors: one sentence for each obstacle.
#pragma once

#include <string>
#include <vector>

#include "restore/image/tree.h"
#include "restore/options.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

// One sentence for each obstacle.
struct Preflight {
  std::vector<std::string> never;   // no machine could restore it
  std::vector<std::string> here;    // this machine cannot, at present; another one may
  std::vector<std::string> doubts;  // it can be restored, but nearly not
  // It can be restored, but these things differ; a restore reports itself what it lost.
  std::vector<std::string> differs;
  bool ok() const { return never.empty() && here.empty(); }
};

Preflight preflight(const Tree&, const Options&);
// The same for a snapshot of which nothing was read yet.
store::Status preflight(const store::SnapshotReader&, const Options&, Preflight* out);

std::string find_launcher(const Options&);
bool namespaces_allowed(const Options&);

// Why several processes cannot be restored with other ids, and what the user can do.
std::string needs_ids(const std::string& why_not);
// Whether all numbers of the job's processes and threads are free in this pid namespace.
bool all_ids_free(const Tree&);

}  // namespace gpuckpt::restore
