#include "stores/made_store.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace gpuckpt::cli {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) || error;
}

// A folder that cannot be read counts as one with files in it.
bool holds_files(const fs::path& folder) {
  std::error_code error;
  return is_there(folder) && (!fs::is_empty(folder, error) || error);
}

}  // namespace

MadeStore::MadeStore(std::string path)
    : path_(std::move(path)),
      folder_was_there_(is_there(path_)),
      store_was_there_(is_there(fs::path(path_) / "format")) {}

void MadeStore::discard() const {
  const fs::path root = path_;
  if (path_.empty() || store_was_there_ || !is_there(root / "format")) return;
  for (const char* used : {"snapshots", "locks", "jobs"})
    if (holds_files(root / used)) return;
  std::error_code ignored;
  for (const char* ours : {"format", "packs", "layers", "snapshots", "locks", "jobs"})
    fs::remove_all(root / ours, ignored);
  if (!folder_was_there_) fs::remove(root, ignored);
}

}  // namespace gpuckpt::cli
