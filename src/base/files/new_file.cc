#include "base/files/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {

bool writable_in_place(uint32_t mode) {
  return (mode & S_IFMT) == S_IFCHR || (mode & S_IFMT) == S_IFIFO || (mode & S_IFMT) == S_IFSOCK;
}

long look(int folder, const char* name, int flags, struct stat* out) {
  return sys::call(SYS_newfstatat, folder, sys::ptr(name), sys::ptr(out), flags);
}

// umask(2) can only be read by changing it, which other threads would notice.
uint32_t umask_now() {
  char status[512];
  const int fd = sys::open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 022;
  const long n = sys::read(fd, status, sizeof(status) - 1);
  sys::close(fd);
  status[n > 0 ? n : 0] = 0;
  for (const char* line = status; *line; ++line) {
    if (!starts_with(line, "\nUmask:\t")) continue;
    line += 8;
    return static_cast<uint32_t>(scan_oct(&line));
  }
  return 022;
}

}  // namespace

NewFile::~NewFile() {
  if (folder_ >= 0 && pending_[0]) sys::call(SYS_unlinkat, folder_, sys::ptr(pending_), 0);
  if (fd_ >= 0) sys::close(fd_);
  if (folder_ >= 0) sys::close(folder_);
}

long NewFile::open_in_place(const char* name) {
  fd_ = static_cast<int>(
      sys::call(SYS_openat, folder_, sys::ptr(name), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (fd_ < 0) return fd_;
  struct stat st;
  const long r = sys::call(SYS_fstat, fd_, sys::ptr(&st));
  if (sys::failed(r)) return r;
  in_place_ = true;
  return writable_in_place(st.st_mode) ? 0 : -EEXIST;  // something else was put there meanwhile
}

long NewFile::create_beside(const char* name, Mode how, uint32_t mode) {
  uint64_t random[2] = {};
  const long got = sys::call(SYS_getrandom, sys::ptr(random), sizeof(random), 0);
  if (got != sizeof(random)) return sys::failed(got) ? got : -EIO;
  format(pending_, sizeof(pending_), ".%016lx%016lx.tmp", random[0], random[1]);
  fd_ = static_cast<int>(sys::call(SYS_openat, folder_, sys::ptr(pending_),
                                   O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd_ < 0) {
    pending_[0] = 0;
    return fd_;
  }
  struct stat old;
  const bool own = !sys::failed(look(folder_, name, AT_SYMLINK_NOFOLLOW, &old)) &&
                   (old.st_mode & S_IFMT) == S_IFREG &&
                   old.st_uid == static_cast<uint32_t>(sys::call(SYS_geteuid));
  if (how == kUsual && own) mode = old.st_mode & 0777;
  // The open's own mode went through the umask, which may take even the owner's bits away.
  return sys::call(SYS_fchmod, fd_, static_cast<long>(mode));
}

long NewFile::create(const char* path, Mode how, uint32_t mode, uint32_t uid, uint32_t gid) {
  const char* name = path;
  for (const char* p = path; *p; ++p)
    if (*p == '/') name = p + 1;
  char folder[PATH_MAX];
  const size_t before = static_cast<size_t>(name - path);
  if (before >= sizeof(folder) || length(name) >= sizeof(name_)) return -ENAMETOOLONG;
  if (!*name) return -EISDIR;
  copy(name_, sizeof(name_), name);
  copy(folder, before ? before + 1 : 2, before ? path : ".");
  folder_ = sys::open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) return folder_;
  struct stat old;
  if (!sys::failed(look(folder_, name, 0, &old)) && (old.st_mode & S_IFMT) == S_IFDIR)
    return -EISDIR;
  if (how != kExactly && !sys::failed(look(folder_, name, 0, &old)) &&
      writable_in_place(old.st_mode))
    return open_in_place(name);
  if (how == kUsual) mode = 0644 & ~umask_now();
  if (how == kPrivate) mode = 0600;
  if (how != kExactly) return create_beside(name, how, mode);
  // The owner first: at no moment may another user read it.
  if (long r = create_beside(name, how, 0600); sys::failed(r)) return r;
  if (uid != ~0u && sys::call(SYS_geteuid) == 0)
    if (long r = sys::call(SYS_fchown, fd_, uid, gid); sys::failed(r)) return r;
  return sys::call(SYS_fchmod, fd_, static_cast<long>(mode));
}

long NewFile::write(const void* bytes, size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const long n = sys::write(fd_, at, count);
    if (n == -EINTR) continue;
    if (sys::failed(n)) return n;
    at += n;
    count -= static_cast<size_t>(n);
  }
  return 0;
}

long NewFile::publish(bool durable) {
  if (in_place_) return 0;
  if (durable)
    if (long r = sys::call(SYS_fsync, fd_); sys::failed(r)) return r;
  const long r = sys::call(SYS_renameat, folder_, sys::ptr(pending_), folder_, sys::ptr(name_));
  if (!sys::failed(r)) pending_[0] = 0;
  return r;
}

long replace_file(const char* path, const char* text, size_t length) {
  NewFile file;
  if (long r = file.create(path, NewFile::kUsual); sys::failed(r)) return r;
  if (long r = file.write(text, length); sys::failed(r)) return r;
  return file.publish();
}

}  // namespace gpuckpt
