// A snapshot of several processes is one snapshot: each member has its spaces and blobs in it,
// distinguished by its number (wire.h, kMemberShift). Member 0 is the first process, and the only
// one in a snapshot of one process.
//
// Owner: the caller; a member's reader refers to the snapshot's. Threads: any. Errors: as
// SnapshotReader.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpuckpt/wire.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::store {

constexpr uint64_t member_space(uint64_t plain, uint32_t member) {
  return plain | static_cast<uint64_t>(member) << wire::kMemberShift;
}
std::string member_blob(const std::string& plain, uint32_t member);

// The numbers of the members, in order: those that have a blob "process".
std::vector<uint32_t> members_of(const SnapshotReader& snapshot);

// One member as if it were a snapshot of its own. `snapshot` must outlive it.
std::unique_ptr<SnapshotReader> read_member(const SnapshotReader& snapshot, uint32_t member);

}  // namespace gpuckpt::store
