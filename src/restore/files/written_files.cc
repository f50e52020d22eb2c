#include "restore/files/written_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <set>
#include <vector>

#include "base/descriptors/fd.h"
#include "base/files/new_file.h"
#include "restore/files/unnoticed_open.h"
#include "store/io/printable.h"

namespace gpuckpt::restore {

using namespace process;
using store::Status;

namespace {

Fd open_written(const std::string& path) {
  // A lease of another process prevents the truncation: do not wait for it.
  Fd file(open_as_owner(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file) file = Fd(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
  // A file that can only be appended to (chattr +a).
  if (!file && errno == EPERM)
    file = Fd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK));
  if (file) return file;
  const int error = errno;
  const int n = standard_stream_of(path, O_WRONLY);
  if (n >= 0) file = Fd(fcntl(n, F_DUPFD_CLOEXEC, 3));
  if (!file) errno = error;
  return file;
}

bool only_grows(int file) {
  int flags = 0;
  return ioctl(file, FS_IOC_GETFLAGS, &flags) == 0 && flags & FS_APPEND_FL;
}

Status set_tail_aside(const std::string& path, uint64_t size) {
  Fd file = open_written(path);
  struct stat st;
  if (!file || fstat(file.get(), &st) != 0)
    return Status::Incompatible(path + ": " + strerror(errno));
  if (static_cast<uint64_t>(st.st_size) <= size) return Status::Ok();
  if (only_grows(file.get())) {
    store::say(
        "gpuckpt: %lu bytes that were appended to %s after the snapshot stay there: the file only "
        "grows (chattr +a); what the program wrote itself since then appears twice\n",
        static_cast<uint64_t>(st.st_size) - size, path.c_str());
    return Status::Ok();
  }
  const std::string name = path + ".gpuckpt-tail";
  // The new file has the mode of the original, and no other process has it open.
  NewFile tail;
  auto failed = [&](long error) {
    return Status::Error(name + ": " + strerror(static_cast<int>(-error)) +
                         " (--files=keep leaves files as they are)");
  };
  if (long r =
          tail.create(name.c_str(), NewFile::kExactly, st.st_mode & 0777, st.st_uid, st.st_gid))
    return failed(r);
  // The descriptor for writing may not be readable.
  Fd readable(open_as_owner(path, O_RDONLY | O_CLOEXEC));
  const int from = readable ? readable.get() : file.get();
  std::vector<char> buffer(1 << 20);
  off_t at = static_cast<off_t>(size);
  for (ssize_t n; (n = pread(from, buffer.data(), buffer.size(), at)) > 0; at += n)
    if (long r = tail.write(buffer.data(), static_cast<size_t>(n))) return failed(r);
  if (at != st.st_size && st.st_size > at)
    return Status::Error(path + " cannot be read to set aside what came after the snapshot");
  if (long r = tail.publish()) return failed(r);
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

namespace {

void say_that_tail_stays(const std::string& path, uint64_t size) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0 || static_cast<uint64_t>(st.st_size) <= size) return;
  store::say(
      "gpuckpt: %lu bytes that were appended to %s after the snapshot stay there: the program "
      "was started with it, and others may have written them; what the program wrote itself "
      "since then appears twice\n",
      static_cast<uint64_t>(st.st_size) - size, path.c_str());
}

}  // namespace

Status set_tails_aside(const std::vector<const Image*>& members) {
  std::map<std::string, uint64_t> sizes;
  // Only the first process of a job knows the descriptors that it was started with: its children
  // inherit them.
  std::set<std::string> shared_logs;
  for (const Image* image : members) {
    for (const auto& [d, path] : image->fds) {
      if (d.kind != kFdFile || (d.flags & O_ACCMODE) == O_RDONLY) continue;
      sizes.emplace(path, d.size);
      if (d.value[0]) shared_logs.insert(path);
    }
    for (const auto& [o, path] : image->shared)
      if (o.kind == kSharedFile) sizes.emplace(path, o.size);
  }
  for (const auto& [path, size] : sizes) {
    if (shared_logs.count(path)) {
      say_that_tail_stays(path, size);
    } else if (Status s = set_tail_aside(path, size); !s.ok()) {
      return s;
    }
  }
  return Status::Ok();
}

}  // namespace gpuckpt::restore
