// The other processes of a job, as the description of a snapshot (its meta) has them.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

namespace gpuckpt::cli {

// Points into `meta`; empty when the snapshot has one process. Entries that are no objects are
// passed over.
inline std::vector<const nlohmann::json*> members_in(const nlohmann::json& meta) {
  std::vector<const nlohmann::json*> found;
  auto members = meta.find("members");
  if (members == meta.end() || !members->is_array()) return found;
  for (const auto& m : *members)
    if (m.is_object()) found.push_back(&m);
  return found;
}

}  // namespace gpuckpt::cli
