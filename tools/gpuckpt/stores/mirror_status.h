// How far the mirror of a store is, as `list`, `stats` and `mirror --status` say it.
#pragma once

#include <nlohmann/json.hpp>

#include "store/store.h"

namespace gpuckpt::cli {

struct MirrorStatus {
  store::MirrorState state;
  std::vector<std::string> behind;  // snapshots of the store that the mirror has not, oldest first
  bool current() const { return behind.empty() && state.error.empty(); }
};

// Null: the store has no mirror, or cannot be read.
std::unique_ptr<MirrorStatus> mirror_status(store::Store& store);
// The same of a store that was listed already.
std::unique_ptr<MirrorStatus> mirror_status(store::Store& store,
                                            const std::vector<store::SnapshotInfo>& snapshots);

nlohmann::json to_json(const MirrorStatus& mirror);
// One line.
std::string describe(const MirrorStatus& mirror);

}  // namespace gpuckpt::cli
