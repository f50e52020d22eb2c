// How complete the mirror of a store is, as `list`, `stats` and `mirror --status` print it.
#pragma once

#include <nlohmann/json.hpp>

#include "store/store.h"

namespace gpuckpt::cli {

struct MirrorStatus {
  store::MirrorState state;
  // Snapshots of the store that the mirror does not have, oldest first.
  std::vector<std::string> behind;
  bool current() const { return behind.empty() && state.error.empty(); }
};

// Returns null if the store has no mirror or cannot be read.
std::unique_ptr<MirrorStatus> mirror_status(store::Store& store);
// The same for a store whose snapshots were listed already.
std::unique_ptr<MirrorStatus> mirror_status(store::Store& store,
                                            const std::vector<store::SnapshotInfo>& snapshots);

nlohmann::json to_json(const MirrorStatus& mirror);
// One line.
std::string describe(const MirrorStatus& mirror);

}  // namespace gpuckpt::cli
