#include "store/io/env.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "store/io/direct_file.h"
#include "store/io/remote.h"

namespace gpuckpt::store {
namespace {

class PosixFile : public File {
 public:
  ~PosixFile() override {
    if (fd_ >= 0) ::close(fd_);
  }
  // The object is allocated before the file is created, so that a lack of memory leaves no file
  // behind.
  bool open(const std::string& path, int flags, mode_t mode = 0) {
    return (fd_ = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode)) >= 0;
  }

  int descriptor() const { return fd_; }

  int append(std::span<const std::span<const uint8_t>> parts) override {
    std::vector<iovec> iov;
    for (const auto& part : parts) {
      if (!part.empty()) iov.push_back({const_cast<uint8_t*>(part.data()), part.size()});
    }
    size_t next = 0;
    while (next < iov.size()) {
      ssize_t n =
          ::writev(fd_, &iov[next], static_cast<int>(std::min<size_t>(iov.size() - next, 64)));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      if (n == 0) return ENOSPC;
      for (size_t left = static_cast<size_t>(n); left > 0;) {
        size_t step = std::min(left, iov[next].iov_len);
        iov[next].iov_base = static_cast<uint8_t*>(iov[next].iov_base) + step;
        iov[next].iov_len -= step;
        left -= step;
        if (iov[next].iov_len == 0) ++next;
      }
    }
    return 0;
  }

  int pread(uint64_t offset, std::span<uint8_t> out) override {
    while (!out.empty()) {
      ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      if (n == 0) return ENODATA;
      offset += static_cast<uint64_t>(n);
      out = out.subspan(static_cast<size_t>(n));
    }
    return 0;
  }

  bool info(struct stat* out) const { return ::fstat(fd_, out) == 0; }
  int size(uint64_t* out) override {
    struct stat st;
    if (!info(&st)) return errno;
    *out = static_cast<uint64_t>(st.st_size);
    return 0;
  }

  int sync() override { return ::fsync(fd_) == 0 ? 0 : errno; }

  void start_writeback(uint64_t offset, uint64_t length) override {
    (void)!::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(length),
                             SYNC_FILE_RANGE_WRITE);
  }
  void drop_cache(uint64_t from) override {
    (void)::posix_fadvise(fd_, static_cast<off_t>(from), 0, POSIX_FADV_DONTNEED);
  }

 private:
  int fd_ = -1;
};

int fill_info(const struct stat& st, FileInfo* out) {
  out->directory = S_ISDIR(st.st_mode);
  out->regular = S_ISREG(st.st_mode);
  out->uid = st.st_uid;
  out->mode = st.st_mode & 07777;
  out->size = static_cast<uint64_t>(st.st_size);
  out->mtime_ns = st.st_mtim.tv_sec * 1'000'000'000ll + st.st_mtim.tv_nsec;
  return 0;
}

// Raises RLIMIT_NOFILE: a snapshot whose pages were written over months lies in as many packs, each
// an open file.
bool raise_file_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

class PosixEnv : public Env {
 public:
  int open_read(const std::string& path, std::unique_ptr<File>* out) override {
    // O_NONBLOCK: a FIFO put in place of a file must not hang us; size() and pread() then fail it.
    constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
    auto file = std::make_unique<PosixFile>();
    if (!file->open(path, kFlags) &&
        !(errno == EMFILE && raise_file_limit() && file->open(path, kFlags))) {
      return errno;
    }
    struct stat st;
    if (!file->info(&st)) return errno;
    if (!S_ISREG(st.st_mode)) return S_ISDIR(st.st_mode) ? EISDIR : ENXIO;
    *out = std::move(file);
    return 0;
  }
  int create(const std::string& path, std::unique_ptr<File>* out) override {
    auto file = std::make_unique<PosixFile>();
    if (!file->open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND, 0600)) return errno;
    *out = std::move(file);
    return 0;
  }
  int create_uncached(const std::string& path, uint64_t cached,
                      std::unique_ptr<File>* out) override {
    auto file = std::make_unique<PosixFile>();
    if (!file->open(path, O_RDWR | O_CREAT | O_EXCL, 0600)) return errno;
    const int fd = file->descriptor();
    *out = write_past_cache(std::move(file), fd, cached);
    return 0;
  }
  int mkdir(const std::string& path) override {
    return ::mkdir(path.c_str(), 0700) == 0 ? 0 : errno;
  }
  int rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  }
  int remove(const std::string& path) override { return ::unlink(path.c_str()) == 0 ? 0 : errno; }
  int list(const std::string& directory, std::vector<std::string>* names) override {
    names->clear();
    DIR* dir = ::opendir(directory.c_str());
    if (!dir) return errno;
    errno = 0;
    while (dirent* entry = ::readdir(dir)) {
      std::string name = entry->d_name;
      if (name != "." && name != "..") names->push_back(std::move(name));
      errno = 0;
    }
    int error = errno;
    ::closedir(dir);
    std::sort(names->begin(), names->end());
    return error;
  }
  int info(const std::string& path, FileInfo* out) override {
    struct stat st;
    return ::lstat(path.c_str(), &st) == 0 ? fill_info(st, out) : errno;
  }
  int info_followed(const std::string& path, FileInfo* out) override {
    struct stat st;
    return ::stat(path.c_str(), &st) == 0 ? fill_info(st, out) : errno;
  }
  int sync_directory(const std::string& directory) override {
    int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    return error == EINVAL ? 0 : error;  // file systems without directory fsync (some network ones)
  }
  int touch(const std::string& path) override {
    return ::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  }
  int free_bytes(const std::string& path, uint64_t* out) override {
    struct statvfs st;
    if (::statvfs(path.c_str(), &st) != 0) return errno;
    *out = static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
    return 0;
  }
  void random(void* out, size_t length) override {
    // getrandom returns up to 256 bytes whole; 32 are asked for. Kernels before 3.17 lack it, and
    // gpuckpt does not run there.
    ssize_t n;
    do n = ::getrandom(out, length, 0);
    while (n < 0 && errno == EINTR);
    if (n != static_cast<ssize_t>(length)) ::abort();
  }
  int64_t now_ns() override {
    timespec ts;
    ::clock_gettime(CLOCK_REALTIME, &ts);
    return ts.tv_sec * 1'000'000'000ll + ts.tv_nsec;
  }
};

const char* remedy(int error) {
  switch (error) {
    case ENOSPC:
      return "the disk is full: free space, `gpuckpt prune`, or choose another --store";
    case EDQUOT:
      return "your disk quota is used up: free space, `gpuckpt prune`, or choose another --store";
    case EROFS:
      return "the file system is mounted read-only: choose another --store";
    case EACCES:
    case EPERM:
      return "permission denied: the store must belong to the user who runs this";
    case ENOENT:
      return "it is gone: was the store directory moved or deleted?";
    case EIO:
    case ESTALE:
      return "the device failed or the network file system went away: check `dmesg`, then `gpuckpt "
             "verify`";
    case EMFILE:
    case ENFILE:
      return "too many open files: raise `ulimit -n`";
    case EEXIST:
      return "it exists already";
    case ENODATA:
      return "the file is shorter than it says";
    case ENOSYS:
      return "rclone is needed for that: install it, and see that it is in PATH";
    case EFBIG:
      return "the file would exceed the size limit: raise `ulimit -f`";
    case ELOOP:
    case EISDIR:
    case ENOTDIR:
    case ENXIO:
      return "there is something else in the place of a file of the store";
    default:
      return "";
  }
}

}  // namespace

Env* posix_env() {
  static Env* env = new PosixEnv;
  return env;
}

Status io_error(const std::string& doing, const std::string& path, int error) {
  const std::string complaint = is_remote(path) && error == EIO ? remote_complaint() : "";
  if (!complaint.empty())
    return Status::Error(fmt::format("cannot {} {}: rclone: {}", doing, path, complaint));
  const char* advice = remedy(error);
  std::string text = fmt::format("cannot {} {}: {}", doing, path, strerror(error));
  if (*advice) text += fmt::format(" ({})", advice);
  ExitCode code = kExitError;
  if (error == ENOENT) code = kExitAbsent;
  for (int misplaced : {ENODATA, ELOOP, EISDIR, ENOTDIR, ENXIO})
    if (error == misplaced) code = kExitCorrupt;
  return Status(code, std::move(text));
}

Status read_file(Env* env, const std::string& path, uint64_t limit, std::vector<uint8_t>* out) {
  std::unique_ptr<File> file;
  if (int e = env->open_read(path, &file)) return io_error("open", path, e);
  uint64_t size = 0;
  if (int e = file->size(&size)) return io_error("read", path, e);
  if (size > limit) {
    return Status::Corruption(
        fmt::format("{} is {} bytes, more than any such file can have", path, size));
  }
  out->resize(size);
  if (int e = file->pread(0, *out)) return io_error("read", path, e);
  return Status::Ok();
}

}  // namespace gpuckpt::store
