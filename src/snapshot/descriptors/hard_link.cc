#include "snapshot/descriptors/hard_link.h"

#include <dirent.h>
#include <fcntl.h>

#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {

struct DirectoryEntry {
  uint64_t ino, next;
  uint16_t bytes;
  uint8_t type;
  char name[];
};

// Folders are read without a trace in their times of access where that is permitted (to owners).
int open_folder(int at, const char* name, int follow) {
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow;
  const long fd = sys::call(SYS_openat, at, sys::ptr(name), flags | O_NOATIME, 0);
  return static_cast<int>(sys::failed(fd) ? sys::call(SYS_openat, at, sys::ptr(name), flags, 0)
                                          : fd);
}

long stat_at(int folder, const char* name, struct stat* st) {
  return sys::call(SYS_newfstatat, folder, sys::ptr(name), sys::ptr(st),
                   AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT);
}

class Search {
 public:
  Search(char* path, size_t room, const struct stat& file, uint32_t most)
      : path_(path), room_(room), file_(file), left_(most) {}

  // In the folder `path_[0, end)`. `each`: asks for every entry and not only for one with the
  // number.
  bool in_folder(size_t end, bool each) {
    const int folder = open_to(end);
    if (folder < 0) return false;
    const bool found = any_entry(folder, 0, [&](const DirectoryEntry& e) {
      return (each || e.ino == file_.st_ino) && is_it(folder, end, e);
    });
    sys::close(folder);
    return found;
  }

  // In the folder and all below it.
  bool below(size_t end) {
    const int folder = open_to(end);
    if (folder < 0) return false;
    // A file has no names on another file system.
    struct stat st;
    const bool elsewhere =
        sys::failed(sys::call(SYS_fstat, folder, sys::ptr(&st))) || st.st_dev != file_.st_dev;
    const bool found = !elsewhere && walk(folder, end, 0);
    if (elsewhere) left_ = 0;
    sys::close(folder);
    return found;
  }

  bool given_up() const { return left_ == 0; }

 private:
  static constexpr int kDeepest = 12;

  int open_to(size_t end) {
    const char after = path_[end];
    path_[end] = 0;
    const int folder = open_folder(AT_FDCWD, end ? path_ : "/", 0);
    path_[end] = after;
    return folder;
  }

  // Calls each(entry) for what is in a folder until it returns true, which is the result.
  template <typename Each>
  bool any_entry(int folder, int depth, Each each) {
    alignas(8) static char buffers[kDeepest][8192];
    char* buffer = buffers[depth];
    sys::call(SYS_lseek, folder, 0, 0);
    for (long n; (n = sys::call(SYS_getdents64, folder, sys::ptr(buffer), sizeof(buffers[0]))) > 0;)
      for (long at = 0; at < n;) {
        const auto* e = reinterpret_cast<const DirectoryEntry*>(buffer + at);
        if (each(*e)) return true;
        at += e->bytes;
      }
    return false;
  }

  bool is_it(int folder, size_t end, const DirectoryEntry& e) {
    struct stat st;
    if (sys::failed(stat_at(folder, e.name, &st)) || st.st_ino != file_.st_ino ||
        st.st_dev != file_.st_dev || end + 1 + length(e.name) >= room_)
      return false;
    format(path_ + end, room_ - end, "/%s", e.name);
    return true;
  }

  bool walk(int folder, size_t end, int depth) {
    return any_entry(folder, depth, [&](const DirectoryEntry& e) {
      if (!left_) return false;
      --left_;
      if (e.ino == file_.st_ino && is_it(folder, end, e)) return true;
      return e.type == DT_DIR && depth + 1 < kDeepest && !equal(e.name, ".") &&
             !equal(e.name, "..") && into(folder, e.name, end, depth);
    });
  }

  bool into(int folder, const char* name, size_t end, int depth) {
    struct stat st;
    // (Asked before it is opened, which would mount what is mounted by its use.)
    if (sys::failed(stat_at(folder, name, &st)) || st.st_dev != file_.st_dev ||
        end + 1 + length(name) >= room_)
      return false;
    const int inner = open_folder(folder, name, O_NOFOLLOW);
    if (inner < 0) return false;
    format(path_ + end, room_ - end, "/%s", name);
    const bool found = walk(inner, end + length(path_ + end), depth + 1);
    sys::close(inner);
    if (!found) path_[end] = 0;
    return found;
  }

  char* path_;
  size_t room_;
  const struct stat& file_;
  uint32_t left_;  // entries
};

size_t last_slash(const char* path, size_t end) {
  while (end && path[end - 1] != '/') --end;
  return end ? end - 1 : 0;
}

}  // namespace

bool find_hard_link(char* path, size_t room, const struct stat& file, LinkSearch kind) {
  constexpr uint32_t kMost = 20000, kMostWithoutProof = 4000;  // some 10 ms of a stop, and 2
  char at[4097];
  copy(at, sizeof(at), path);
  if (at[0] != '/') return false;
  const bool is_known = kind == LinkSearch::kFile;
  Search search(at, room < sizeof(at) ? room : sizeof(at), file,
                is_known ? kMost : kMostWithoutProof);
  size_t end = last_slash(at, length(at));
  bool found = search.in_folder(end, false) || (is_known && search.in_folder(end, true));
  while (!found && !search.given_up()) {
    at[end] = 0;
    found = search.below(end);
    if (!end) break;
    end = last_slash(at, end);
  }
  if (found) copy(path, room, at);
  return found;
}

}  // namespace gpuckpt
