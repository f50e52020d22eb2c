// The snapshots of a store as trees, one for each job: which snapshot follows which, and where
// branches leave the job's line (store/io/job_line.h).
#pragma once

#include <string>
#include <vector>

#include "store/store.h"

namespace gpuckpt::cli {

// A line of text for each snapshot, in the order in which they are to be printed.
std::vector<std::string> snapshot_tree(const std::vector<store::SnapshotInfo>& snapshots,
                                       const std::string& job);

}  // namespace gpuckpt::cli
