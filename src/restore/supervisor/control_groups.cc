#include "restore/supervisor/control_groups.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/descriptors/fd.h"
#include "store/io/printable.h"

namespace gpuckpt::restore {
namespace {

bool has_all(const std::string& options, const std::string& controllers) {
  const std::string all = "," + options + ",";
  std::istringstream list(controllers);
  for (std::string one; std::getline(list, one, ',');)
    if (all.find("," + one + ",") == std::string::npos) return false;
  return true;
}

// The folder of a control group: "controllers" as in /proc/PID/cgroup, none for version 2. Empty:
// the hierarchy is not mounted here.
std::string folder_of(const std::string& controllers, const std::string& path) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string skipped, root, place, word, kind, source, options;
    fields >> skipped >> skipped >> skipped >> root >> place;
    while (fields >> word && word != "-") {
    }
    fields >> kind >> source >> options;
    const bool version_2 = controllers.empty();
    if (kind != (version_2 ? "cgroup2" : "cgroup")) continue;
    if (!version_2 && !has_all(options, controllers)) continue;
    if (root == "/") return place + path;
    if (path == root || path.starts_with(root + "/")) return place + path.substr(root.size());
  }
  return "";
}

bool leads_upwards(const std::string& path) {
  return !path.starts_with("/") || (path + "/").find("/../") != std::string::npos;
}

// Empty: done.
std::string enter(const std::string& controllers, const std::string& path) {
  const std::string folder = leads_upwards(path) ? "" : folder_of(controllers, path);
  if (folder.empty()) return "which cannot be reached here";
  const bool made = mkdir(folder.c_str(), 0755) == 0;
  Fd members(open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (!members || write(members.get(), "0", 1) != 1)
    return "which it cannot enter (" + std::string(strerror(errno)) + ")";
  return made ? "which was not there any more: it is made again, without limits" : "";
}

}  // namespace

std::vector<std::string> enter_control_groups(const std::string& recorded) {
  std::vector<std::string> warnings;
  std::istringstream lines(recorded);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string controllers = line.substr(0, colon), path = line.substr(colon + 1);
    const std::string wrong = enter(controllers, path);
    if (!wrong.empty())
      warnings.push_back("the program had moved to the control group " + store::printable(path) +
                         (controllers.empty() ? "" : " of " + store::printable(controllers)) +
                         ", " + wrong);
  }
  return warnings;
}

}  // namespace gpuckpt::restore
