#include "base/files/session_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {

constexpr size_t kLongest = 80;  // a socket's name follows, and an address holds 107 bytes

bool look(const char* path, struct stat* out) {
  return !sys::failed(
      sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(out), AT_SYMLINK_NOFOLLOW));
}

bool usable_runtime_dir(const char* path, uint32_t uid) {
  struct stat st;
  return path && path[0] == '/' && length(path) + sizeof("/gpuckpt") < kLongest &&
         look(path, &st) && (st.st_mode & S_IFMT) == S_IFDIR && st.st_uid == uid &&
         !(st.st_mode & 022);
}

}  // namespace

bool session_folder(const SessionSettings& settings, uint32_t uid, unsigned number, char* to,
                    size_t room) {
  if (settings.session_dir && settings.session_dir[0]) {
    copy(to, room, settings.session_dir);
    return number == 0;
  }
  const bool runtime = usable_runtime_dir(settings.runtime_dir, uid);
  if (runtime && number == 0)
    format(to, room, "%s/gpuckpt", settings.runtime_dir);
  else
    format(to, room, "/tmp/gpuckpt-%u", uid);
  return number < (runtime ? 2 : 1);
}

void session_folder_fault(const char* folder, uint32_t uid, char* to, size_t room) {
  struct stat st;
  to[0] = 0;
  if (!look(folder, &st)) return;
  if ((st.st_mode & S_IFMT) != S_IFDIR)
    format(to, room, "is not a folder (user %u put it there)", st.st_uid);
  else if (st.st_uid != uid)
    format(to, room, "belongs to user %u", st.st_uid);
  else if (st.st_mode & 022)
    format(to, room, "can be written by other users (mode %03o)", st.st_mode & 0777u);
}

}  // namespace gpuckpt
