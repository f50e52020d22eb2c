// Lists of files in the blob "files" of a snapshot (file_sums.h, stored_file.h).
//
// Owner: none. Threads: pure functions. Errors: entries that cannot be read are left out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace gpuckpt::restore {

// A name of a file. A text in JSON is UTF-8, and such a name any bytes: one that is not UTF-8 is an
// object, {"hex": "..."}.
nlohmann::json name_to_json(const std::string& name);
// Throws a json::exception where it is none.
std::string name_from_json(const nlohmann::json& j);

// The files that a blob lists at `key`, without those that from_json refuses.
template <typename File>
std::vector<File> files_in(const nlohmann::json& blob, const char* key) {
  std::vector<File> out;
  const auto list = blob.find(key);
  if (list == blob.end() || !list->is_array()) return out;
  for (const auto& j : *list)
    if (File f; from_json(j, &f)) out.push_back(std::move(f));
  return out;
}

}  // namespace gpuckpt::restore
