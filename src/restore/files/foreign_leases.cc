#include "restore/files/foreign_leases.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <string>

#include "store/io/printable.h"

namespace gpuckpt::restore {

using namespace process;
using store::Status;

namespace {

// GPUCKPT_STEP_LIMIT, which bounds each step, bounds the wait as well.
std::chrono::seconds patience() {
  const char* limit = getenv("GPUCKPT_STEP_LIMIT");
  const int bound = limit ? atoi(limit) : 0;
  return std::chrono::seconds(bound > 0 ? std::min(bound, 60) : 60);
}

// How the restore opens a file: a lease for reading stands in the way of writers only. And for
// which process.
struct Opened {
  int mode;
  const Image* process;
};
using Files = std::map<std::string, Opened>;

Files opened_files(const Tree& tree) {
  Files out;
  for (const auto& m : tree.members) {
    auto add = [&](const std::string& path, int mode) {
      auto [it, added] = out.try_emplace(path, Opened{mode, &m->image});
      if (mode != O_RDONLY) it->second.mode = mode;
    };
    for (const auto& [d, path] : m->image.fds)
      if (d.kind == kFdFile) add(path, static_cast<int>(d.flags) & O_ACCMODE);
    for (const auto& [f, path] : m->image.files)
      if (f.stored_space < 0) add(path, O_RDONLY);
    for (const auto& [o, path] : m->image.shared)
      if (o.kind == kSharedFile || o.kind == kSharedShm) add(path, O_RDWR);
  }
  return out;
}

// Is another process's lease in the way? The question itself asks for its return.
bool is_leased(const std::string& path, int mode) {
  const Fd place(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat st;
  if (!place || fstat(place.get(), &st) != 0 || !S_ISREG(st.st_mode)) return false;
  const std::string link = "/proc/self/fd/" + std::to_string(place.get());
  const Fd file(open(link.c_str(), mode | O_NONBLOCK | O_CLOEXEC));
  return !file && errno == EWOULDBLOCK;
}

std::string name_of(pid_t pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
  return "process " + std::to_string(pid) +
         (name.empty() ? "" : " (" + store::printable(name) + ")");
}

// /proc/locks does not show processes of other pid namespaces.
std::string holder_of(const std::string& path) {
  struct stat st;
  std::ifstream locks("/proc/locks");
  if (stat(path.c_str(), &st) != 0) return "another process";
  for (std::string line; std::getline(locks, line);) {
    int pid = 0;
    unsigned device[2];
    unsigned long inode;
    if (sscanf(line.c_str(), "%*d: LEASE %*s %*s %d %x:%x:%lu", &pid, device, device + 1, &inode) ==
            4 &&
        pid > 0 && inode == st.st_ino && makedev(device[0], device[1]) == st.st_dev)
      return name_of(pid);
  }
  return "another process";
}

Status not_given_back(const std::string& path, const Image& process, int64_t seconds) {
  return Status(kExitTimeout, "process " + std::to_string(process.head.pid) + " (" +
                                  store::printable(process.command.substr(0, 60)) +
                                  ") hangs while making its descriptors: " + holder_of(path) +
                                  " has a lease on " + store::printable(path) +
                                  " (F_SETLEASE) and did not give it back in " +
                                  std::to_string(seconds) + " s; end it, or its lease");
}

}  // namespace

Status end_foreign_leases(const Tree& tree) {
  Files leased = opened_files(tree);  // all are asked for before any is waited for
  std::erase_if(leased, [](const auto& f) { return !is_leased(f.first, f.second.mode); });
  for (const auto& [path, opened] : leased)
    store::say("gpuckpt: waiting for %s to give back its lease on %s (F_SETLEASE)\n",
               holder_of(path).c_str(), store::printable(path).c_str());
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::seconds most = patience();
  while (!leased.empty()) {
    if (std::chrono::steady_clock::now() - begin > most)
      return not_given_back(leased.begin()->first, *leased.begin()->second.process, most.count());
    usleep(50'000);
    std::erase_if(leased, [](const auto& f) { return !is_leased(f.first, f.second.mode); });
  }
  return Status::Ok();
}

}  // namespace gpuckpt::restore
