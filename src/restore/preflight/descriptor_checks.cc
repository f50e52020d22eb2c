#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/procfs/proc.h"
#include "restore/preflight/checks.h"

namespace gpuckpt::restore {

using namespace process;

namespace {

// Descriptors that a restore has open itself, beside the files it maps.
constexpr int kOursAtMost = 64;

std::string name(const Descriptor& d, const std::string& path) {
  return "descriptor " + std::to_string(d.fd) + " (" + path + ")";
}

std::string check_kind(const Descriptor& d, const std::string& path) {
  struct stat st;
  auto is = [&](mode_t type) {
    return stat(path.c_str(), &st) != 0 || (st.st_mode & S_IFMT) == type;
  };
  switch (static_cast<FdKind>(d.kind)) {
    case kFdFile:
      return is(S_IFREG) ? "" : name(d, path) + " was a file, which is something else now";
    case kFdDirectory:
      return d.value[0] || is(S_IFDIR)
                 ? ""
                 : name(d, path) + " was a folder, which is something else now";
    case kFdFifo:
      return d.value[0] || is(S_IFIFO)
                 ? ""
                 : name(d, path) + " was a named pipe, which is something else now";
    case kFdDevice:
      if (d.value[1]) return "";
      return stat(path.c_str(), &st) == 0 && (st.st_mode & S_IFMT) == (d.mode & S_IFMT) &&
                     st.st_rdev == d.value[0]
                 ? ""
                 : name(d, path) + " was a device that is not here";
    case kFdQueue: {
      if (d.value[2]) return "";
      const mqd_t queue = mq_open(path.substr(path.rfind('/')).c_str(), O_RDONLY);
      if (queue >= 0) mq_close(queue);
      return queue >= 0 || errno != ENOENT || !d.value[3]
                 ? ""
                 : name(d, path) +
                       " is a message queue that does not exist any more, and its "
                       "messages are not part of a snapshot";
    }
    case kFdPipe:
    case kFdEventfd:
    case kFdEpoll:
    case kFdTimerfd:
    case kFdSignalfd:
    case kFdInherit:
    case kFdMemory:
    case kFdSocket:
    case kFdPidfdSelf:
    case kFdTerminal:
    case kFdInotify:
    case kFdPtyMaster:
    case kFdPath:
    case kFdKernelFile:
    case kFdPidfdGone:
    case kFdPidfd:
      return "";
  }
  return name(d, path) + " is of a kind that this gpuckpt does not know (" +
         std::to_string(d.kind) + ")";
}

// Refuses a pipe whose other end is in no process of the job, unless it is a standard stream.
std::string check_pipe(const Image& image, const Descriptor& d) {
  for (const auto& [p, bytes] : image.pipes) {
    if (static_cast<int>(p.index) != d.object || !(p.ends & kPipeOutside)) continue;
    if (p.ends >> kPipeStandardShift) continue;
    const bool standard = std::any_of(image.fds.begin(), image.fds.end(), [&](const auto& entry) {
      const Descriptor& o = entry.first;
      return o.fd <= 2 && (o.description == d.description || (o.ino == d.ino && o.dev == d.dev));
    });
    if (!standard)
      return "descriptor " + std::to_string(d.fd) +
             " was a pipe to another process, which is not here";
  }
  return "";
}

bool has_by_descriptor(const Image& image, const InotifyWatch& w) {
  return image.attributes.count({w.dev, w.ino}) != 0;
}

}  // namespace

uint64_t raised_descriptor_limit() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct have[2] = {};
  uint64_t most = 0;
  if (syscall(SYS_capget, &header, have) == 0 && have[0].effective & 1u << CAP_SYS_RESOURCE)
    std::ifstream("/proc/sys/fs/nr_open") >> most;
  return most;
}

namespace {

uint64_t descriptor_limit_of(int pid) {
  uint64_t most = 0;
  std::ifstream limits("/proc/" + std::to_string(pid) + "/limits");
  for (std::string line; std::getline(limits, line);)
    if (unsigned long soft, hard; sscanf(line.c_str(), "Max open files %lu %lu", &soft, &hard) == 2)
      most = hard;
  return most;
}

// How many descriptors a restore may have. While the program runs the limit here is the program's,
// which it may have lowered: then that of the process counts which started the job, where a restore
// is likely to be started as well.
uint64_t most_descriptors(const Tree& tree, bool running) {
  if (const uint64_t most = raised_descriptor_limit()) return most;
  rlimit own{};
  if (getrlimit(RLIMIT_NOFILE, &own) != 0) return ~0ull;
  uint64_t most = own.rlim_max;
  if (ProcStat first; running && read_stat_of(tree.root().image.head.pid, &first))
    most = std::max(most, descriptor_limit_of(first.number(ProcStat::kParent)));
  return most;
}

size_t highest_number(const Image& image) {
  int highest = 0;
  for (const auto& [d, path] : image.fds) highest = std::max(highest, d.fd);
  return static_cast<size_t>(highest);
}

// Counts the other ends of sockets that have none in the snapshot: they are open until all sockets
// are made.
size_t passing_ends(const Image& image) {
  return static_cast<size_t>(
      std::count_if(image.sockets.begin(), image.sockets.end(), [](const Image::Socket& s) {
        return s.head.state == kSocketPeerGone || s.head.state == kSocketReset;
      }));
}

// Both ends of each pipe and pseudo terminal, of which the program's descriptors become duplicates.
size_t helper_ends(const Image& image) { return 2 * (image.pipes.size() + image.terminals.size()); }

size_t mapped(const Image& image) { return image.files.size() + image.shared.size(); }

// The most descriptors that the first process makes for all (restore/descriptors/job_fds.h).
size_t made_for_all(const Tree& tree) {
  size_t count = 0;
  for (const auto& m : tree.members) {
    std::set<int> not_first;
    for (const SameDescription& s : m->image.same) not_first.insert(s.description);
    for (const auto& [d, path] : m->image.fds) {
      const bool joint = has_other_ends(d) || d.kind == kFdTerminal;
      // Of other kinds only descriptions that several processes have are made by the first; each
      // counts for every process that is not the first.
      count += d.description == d.fd && joint != (not_first.count(d.description) > 0);
    }
    count += passing_ends(m->image) + helper_ends(m->image);
  }
  return count;
}

// How many descriptors a restore has open at most: all are made at high numbers and then moved to
// their own.
size_t descriptors_needed(const Tree& tree) {
  if (!tree.several()) {
    const Image& image = tree.root().image;
    return highest_number(image) + image.fds.size() + passing_ends(image) + helper_ends(image) +
           mapped(image) + kOursAtMost;
  }
  constexpr size_t kOursOfEach = 4;
  size_t ours = kOursAtMost, most = 0;
  for (const auto& m : tree.members) ours += mapped(m->image) + kOursOfEach;
  const size_t common = ours + made_for_all(tree);
  for (const auto& m : tree.members)
    most = std::max(most, std::max(common, highest_number(m->image)) + m->image.fds.size() +
                              mapped(m->image) + kOursAtMost);
  return most;
}

}  // namespace

std::string check_descriptor_limit(const Tree& tree, const Options& options) {
  const size_t needed = descriptors_needed(tree);
  const uint64_t most = most_descriptors(tree, options.running);
  if (needed <= most) return "";
  return "a restore needs " + std::to_string(needed) + " descriptors, and may have " +
         std::to_string(most) + " (ulimit -Hn)";
}

std::vector<std::string> check_descriptors(const Image& image, bool several, const Paths& stored) {
  std::vector<std::string> wrong;
  auto note = [&](std::string text) {
    if (!text.empty()) wrong.push_back(std::move(text));
  };
  for (const auto& [d, path] : image.fds) {
    note(check_kind(d, path));
    if (d.kind == kFdPipe && !several) note(check_pipe(image, d));
  }
  for (const auto& [w, path] : image.watches)
    if (!has_by_descriptor(image, w) && !stored.count(path) && access(path.c_str(), F_OK) != 0)
      note(path + ", which the program watches with inotify, is not here (" + strerror(errno) +
           ")");
  for (const auto& [o, path] : image.shared)
    if (o.kind == kSharedFile && !stored.count(path) && access(path.c_str(), R_OK | W_OK) != 0)
      note(path + " is mapped shared by the program and cannot be opened: " + strerror(errno));
  for (const auto& [f, path] : image.files)
    if (f.stored_space < 0 && access(path.c_str(), F_OK) == 0 && access(path.c_str(), R_OK) != 0)
      note(path + " is mapped by the program and cannot be opened: " + strerror(errno));
  return wrong;
}

}  // namespace gpuckpt::restore
