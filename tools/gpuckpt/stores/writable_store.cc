#include "stores/writable_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

namespace gpuckpt::cli {

namespace fs = std::filesystem;

std::string store_path(const std::string& path) {
  std::string absolute = fs::absolute(path).lexically_normal().string();
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

namespace {

// Tries to make a folder, because access(2) allows root everything, even in /proc, where nothing
// can be made. False: errno has the cause.
bool can_make_files_in(const std::string& directory) {
  if (access(directory.c_str(), W_OK | X_OK) != 0) return false;
  std::string probe = directory + "/.gpuckpt-probe-XXXXXX";
  return mkdtemp(probe.data()) != nullptr && rmdir(probe.c_str()) == 0;
}

}  // namespace

Status check_writable(const std::string& path, std::unique_ptr<store::Store>* store,
                      std::string* directory) {
  std::error_code error;
  if (fs::exists(path, error)) {
    Status status = store::Store::open(path, {.write = true, .any_owner = any_owner()}, store);
    bool empty =
        status.code() == kExitAbsent && fs::is_directory(path, error) && fs::is_empty(path, error);
    if (!status.ok() && !empty) return status;
  }
  *directory = path;
  while (!fs::exists(fs::symlink_status(*directory, error)) && directory->size() > 1)
    *directory = fs::path(*directory).parent_path().string();
  if (!fs::is_directory(*directory, error))
    return Status::Error(fmt::format("{} is not a directory", *directory));
  if (!can_make_files_in(*directory))
    return Status::Error(fmt::format("{} cannot be written ({})", *directory, strerror(errno)));
  return Status::Ok();
}

}  // namespace gpuckpt::cli
