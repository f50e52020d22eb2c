#include "snapshot/descriptors/hard_link.h"

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

// Calls each(entry) for what is in a folder until it returns true, which is the result.
template <typename Each>
bool any_entry(int folder, Each each) {
  alignas(8) static char buffer[32768];
  sys::call(SYS_lseek, folder, 0, 0);
  for (long n; (n = sys::call(SYS_getdents64, folder, sys::ptr(buffer), sizeof(buffer))) > 0;)
    for (long at = 0; at < n;) {
      const auto* e = reinterpret_cast<const DirectoryEntry*>(buffer + at);
      if (each(*e)) return true;
      at += e->bytes;
    }
  return false;
}

}  // namespace

bool find_hard_link(char* path, size_t room, const struct stat& file, bool thorough) {
  size_t slash = 0;
  for (size_t i = 0; path[i]; ++i)
    if (path[i] == '/') slash = i;
  char folder_name[4097];
  copy(folder_name, sizeof(folder_name), path);
  folder_name[slash ? slash : 1] = 0;
  const int folder = sys::open(folder_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  auto is_it = [&](const DirectoryEntry& e) {
    struct stat st;
    if (sys::failed(sys::call(SYS_newfstatat, folder, sys::ptr(e.name), sys::ptr(&st),
                              AT_SYMLINK_NOFOLLOW)) ||
        st.st_ino != file.st_ino || st.st_dev != file.st_dev)
      return false;
    format(path + slash, room - slash, "/%s", e.name);
    return true;
  };
  const bool found =
      any_entry(folder, [&](const auto& e) { return e.ino == file.st_ino && is_it(e); }) ||
      (thorough && any_entry(folder, is_it));
  sys::close(folder);
  return found;
}

}  // namespace gpuckpt
