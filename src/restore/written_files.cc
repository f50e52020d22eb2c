#include "restore/written_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "restore/plan_builder.h"

namespace gpuckpt::restore {

using namespace process;
using store::Status;

namespace {

Fd open_written(const std::string& path) {
  Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) file = Fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file) return file;
  const int error = errno;
  const int n = standard_stream_of(path, O_WRONLY);
  if (n >= 0) file = Fd(fcntl(n, F_DUPFD_CLOEXEC, 3));
  if (!file) errno = error;
  return file;
}

Status set_tail_aside(const std::string& path, uint64_t size) {
  Fd file = open_written(path);
  struct stat st;
  if (!file || fstat(file.get(), &st) != 0)
    return Status::Incompatible(path + ": " + strerror(errno));
  if (static_cast<uint64_t>(st.st_size) <= size) return Status::Ok();
  std::string name = path + ".gpuckpt-tail";
  Fd tail(
      open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, st.st_mode & 0777));
  if (!tail)
    return Status::Error(name + ": " + strerror(errno) +
                         " (--files=keep leaves files as they are)");
  // The one for writing may not be for reading.
  Fd readable(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const int from = readable ? readable.get() : file.get();
  std::vector<char> buffer(1 << 20);
  off_t at = static_cast<off_t>(size);
  for (ssize_t n; (n = pread(from, buffer.data(), buffer.size(), at)) > 0; at += n)
    if (write(tail.get(), buffer.data(), static_cast<size_t>(n)) != n)
      return Status::Error(name + ": " + strerror(errno));
  if (at != st.st_size && st.st_size > at)
    return Status::Error(path + " cannot be read to set aside what came after the snapshot");
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0)
    return Status::Error(path + ": " + strerror(errno));
  return Status::Ok();
}

}  // namespace

int standard_stream_of(const std::string& path, uint32_t flags) {
  struct stat wanted, st;
  if (stat(path.c_str(), &wanted) != 0) return -1;
  const int mode = static_cast<int>(flags) & O_ACCMODE;
  for (int n = 0; n < 3; ++n) {
    const int have = fcntl(n, F_GETFL) & O_ACCMODE;
    if (fstat(n, &st) == 0 && st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino &&
        (have == mode || have == O_RDWR))
      return n;
  }
  return -1;
}

Status set_tails_aside(const Image& image) {
  std::map<std::string, uint64_t> sizes;
  for (const auto& [d, path] : image.fds)
    if (d.kind == kFdFile && (d.flags & O_ACCMODE) != O_RDONLY) sizes.emplace(path, d.size);
  for (const auto& [o, path] : image.shared)
    if (o.kind == kSharedFile) sizes.emplace(path, o.size);
  for (const auto& [path, size] : sizes)
    if (Status s = set_tail_aside(path, size); !s.ok()) return s;
  return Status::Ok();
}

}  // namespace gpuckpt::restore
