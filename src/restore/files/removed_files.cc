#include "restore/files/removed_files.h"
#include "store/io/printable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

namespace gpuckpt::restore {

using namespace process;
using store::Status;

namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

struct RemovedFolder {
  std::string path;
  FileKey key;
};

// Outer folders come before those inside them.
std::vector<RemovedFolder> removed_folders(const Image& image) {
  std::vector<RemovedFolder> out;
  if (image.cwd_gone) out.push_back({image.cwd, image.cwd_folder});
  for (const auto& [d, path] : image.fds)
    if ((d.kind == kFdDirectory || d.kind == kFdPath) && d.value[0] && S_ISDIR(d.mode))
      out.push_back({path, {d.dev, d.ino}});
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.path < b.path; });
  return out;
}

}  // namespace

NamesForNow::~NamesForNow() {
  const int before = errno;
  for (auto it = made_.rbegin(); it != made_.rend(); ++it)
    it->second ? rmdir(it->first.c_str()) : unlink(it->first.c_str());
  errno = before;
}

void NamesForNow::lock(const std::string& folder) {
  auto [it, fresh] = locked_.try_emplace(folder);
  if (!fresh) return;
  it->second = Fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // The program may have locked the folder: then the processes of the job cannot agree, and one of
  // them makes its names beside those of another.
  for (int tries = 0; it->second && tries < 200; ++tries, usleep(10'000))
    if (flock(it->second.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
}

bool NamesForNow::make_folders_above(const std::string& path) {
  std::vector<std::string> missing;
  std::string folder = folder_of(path);
  for (; access(folder.c_str(), F_OK) != 0 && errno == ENOENT && folder != "/";
       folder = folder_of(folder))
    missing.push_back(folder);
  if (missing.empty()) return true;
  lock(folder);
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    if (mkdir(it->c_str(), 0700) == 0)
      made_.emplace_back(*it, true);
    else if (errno != EEXIST)
      return false;
  }
  return true;
}

template <typename MakeNode>
std::string NamesForNow::make_at_or_beside(const std::string& path, bool folder,
                                           MakeNode make_node) {
  if (!make_folders_above(path)) return "";
  for (int i = 0; i < 100; ++i) {
    const std::string name = path + (i ? ".gpuckpt-" + std::to_string(i) : "");
    if (make_node(name.c_str()) == 0) {
      made_.emplace_back(name, folder);
      return name;
    }
    if (errno != EEXIST) break;
  }
  return "";
}

std::string NamesForNow::make(const std::string& path, mode_t mode, dev_t device) {
  return make_at_or_beside(path, S_ISDIR(mode), [&](const char* name) {
    return S_ISDIR(mode) ? mkdir(name, mode & 07777) : mknod(name, mode & (S_IFMT | 07777), device);
  });
}

std::string NamesForNow::make_link(const std::string& path, const std::string& target) {
  return make_at_or_beside(path, false,
                           [&](const char* name) { return symlink(target.c_str(), name); });
}

Status make_removed_folders(const Image& image, Folders* out) {
  NamesForNow names;
  for (const RemovedFolder& f : removed_folders(image)) {
    if (out->count(f.key)) continue;
    const std::string name = names.make(f.path, S_IFDIR | 0700);
    Fd fd(name.empty() ? -1 : open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd)
      return Status::Incompatible("the folder " + f.path +
                                  ", which the program had open after it was removed, cannot be "
                                  "made again: " +
                                  strerror(errno));
    (*out)[f.key] = std::move(fd);
  }
  return Status::Ok();
}

std::vector<std::string> check_removed(const Image& image) {
  std::vector<std::string> wrong;
  auto check = [&](const std::string& path, const char* what) {
    std::string folder = folder_of(path);
    while (folder != "/" && access(folder.c_str(), F_OK) != 0 && errno == ENOENT)
      folder = folder_of(folder);
    if (access(folder.c_str(), W_OK | X_OK) != 0)
      wrong.push_back(path + " was " + what + ", and nothing can be made in " + folder + " (" +
                      strerror(errno) + ")");
  };
  for (const RemovedFolder& f : removed_folders(image)) check(f.path, "a folder that was removed");
  for (const auto& [d, path] : image.fds) {
    if (d.kind == kFdFifo && d.value[0]) check(path, "a named pipe that was removed");
    if (d.kind == kFdPath && d.value[0] && S_ISLNK(d.mode))
      check(path, "a symbolic link that was removed");
  }
  return wrong;
}

bool give_owner(int fd, uid_t user, gid_t group) {
  struct stat st;
  if (fstat(fd, &st) == 0 && st.st_uid == user && st.st_gid == group) return true;
  return fchown(fd, user, group) == 0;
}

void give_link_attributes(const FileAttributes& a, const std::string& path) {
  const timespec times[2] = {{a.access_seconds, a.access_ns}, {a.change_seconds, a.change_ns}};
  struct stat st;
  if (lstat(path.c_str(), &st) == 0 && (st.st_uid != a.uid || st.st_gid != a.gid))
    (void)!lchown(path.c_str(), a.uid, a.gid);
  utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

void give_attributes(const Attributes& a, int fd, const std::string& path) {
  std::string lost;
  auto lose = [&](const std::string& what) { lost += (lost.empty() ? "" : ", ") + what; };
  if (!give_owner(fd, a.head.uid, a.head.gid)) lose("owner");
  if (fchmod(fd, a.head.mode & 07777) != 0) lose("mode");
  for (const auto& [name, value] : a.extended)
    if (fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0) lose(name);
  const timespec times[2] = {{a.head.access_seconds, a.head.access_ns},
                             {a.head.change_seconds, a.head.change_ns}};
  if (futimens(fd, times) != 0) lose("times");
  if (!lost.empty())
    store::say("gpuckpt: warning: %s, which had lost its name, comes back with another %s\n",
               path.c_str(), lost.c_str());
}

}  // namespace gpuckpt::restore
