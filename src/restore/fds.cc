#include "restore/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>

namespace gpuckpt::restore {

using namespace process;

namespace {

struct Maker {
  const Image& image;
  const Memory& memory;
  int base;
  std::vector<std::string>* warnings;
  std::map<int, int> made;                          // description -> temporary number
  std::map<int, std::pair<int, int>> pipes, pairs;  // index -> both ends
  std::map<int, bool> used[2];  // which native end of a pipe has been given away
  std::string error;

  int up(int fd) {
    if (fd < 0 || fd >= base) return fd;
    int high = fcntl(fd, F_DUPFD, base);
    close(fd);
    return high;
  }
  int reopen(int fd, int flags) {
    std::string path = "/proc/self/fd/" + std::to_string(fd);
    return open(path.c_str(), flags);
  }

  int make_file(const Descriptor& d, const std::string& path) {
    int flags = static_cast<int>(d.flags) & ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC);
    int fd = open(path.c_str(), flags | O_NOCTTY);
    if (fd < 0) return -1;
    if (d.kind == kFdFile || d.kind == kFdDirectory)
      lseek(fd, static_cast<off_t>(d.offset), SEEK_SET);
    return fd;
  }

  // restore's own 0, 1 or 2 in place of what came from outside.
  int inherit(int n) { return fcntl(n, F_DUPFD, base); }
  int outside(const Descriptor& d) {
    for (const auto& [other, path] : image.fds)
      if (other.description == d.description && other.fd <= 2) return inherit(other.fd);
    // Not the same description, but the same pipe or terminal as one of the standard three.
    for (const auto& [other, path] : image.fds)
      if (other.fd <= 2 && other.ino == d.ino && other.dev == d.dev && other.kind == d.kind)
        return inherit(other.fd);
    return -1;
  }

  int make_pipe(const Descriptor& d) {
    const Pipe* pipe = nullptr;
    const std::vector<uint8_t>* bytes = nullptr;
    for (const auto& [p, content] : image.pipes)
      if (static_cast<int>(p.index) == d.object) pipe = &p, bytes = &content;
    if (!pipe) return -1;
    if (pipe->bytes == ~0u) {
      int fd = outside(d);
      if (fd >= 0) return fd;
      warnings->push_back("descriptor " + std::to_string(d.fd) +
                          " was a pipe to another process; it is /dev/null now");
      return open("/dev/null", static_cast<int>(d.flags) & O_ACCMODE);
    }
    auto it = pipes.find(d.object);
    if (it == pipes.end()) {
      int ends[2];
      if (::pipe(ends) != 0) return -1;
      fcntl(ends[1], F_SETPIPE_SZ, pipe->capacity);
      fcntl(ends[1], F_SETFL, O_NONBLOCK);
      if (write(ends[1], bytes->data(), bytes->size()) != static_cast<ssize_t>(bytes->size()))
        return -1;
      fcntl(ends[1], F_SETFL, 0);
      it = pipes.emplace(d.object, std::make_pair(up(ends[0]), up(ends[1]))).first;
    }
    int mode = static_cast<int>(d.flags) & O_ACCMODE;
    int end = mode == O_WRONLY ? 1 : 0;
    int native = end ? it->second.second : it->second.first;
    int fd;
    if (mode != O_RDWR && !used[end][d.object]) {
      used[end][d.object] = true;
      fd = dup(native);
    } else {
      fd = reopen(native, mode | O_NONBLOCK);
    }
    if (fd >= 0) fcntl(fd, F_SETFL, static_cast<int>(d.flags) & (O_NONBLOCK | O_DIRECT | O_ASYNC));
    return fd;
  }

  int make_pair(const Descriptor& d) {
    const UnixPair* self = nullptr;
    const std::vector<uint8_t>* bytes = nullptr;
    for (const auto& [p, content] : image.pairs)
      if (static_cast<int>(p.index) == d.object) self = &p, bytes = &content;
    if (!self) return -1;
    int low = std::min<int>(static_cast<int>(self->index), static_cast<int>(self->peer));
    auto it = pairs.find(low);
    if (it == pairs.end()) {
      int ends[2];
      if (socketpair(AF_UNIX, static_cast<int>(self->type), 0, ends) != 0) return -1;
      it = pairs.emplace(low, std::make_pair(up(ends[0]), up(ends[1]))).first;
    }
    bool first = static_cast<int>(self->index) == low;
    int own = first ? it->second.first : it->second.second;
    int peer = first ? it->second.second : it->second.first;
    if (!bytes->empty() && send(peer, bytes->data(), bytes->size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
                               static_cast<ssize_t>(bytes->size()))
      return -1;
    int fd = dup(own);
    if (fd >= 0) fcntl(fd, F_SETFL, static_cast<int>(d.flags) & (O_NONBLOCK | O_ASYNC));
    return fd;
  }

  int make_timerfd(const Descriptor& d) {
    int fd = timerfd_create(static_cast<int>(d.value[0]), static_cast<int>(d.flags) & O_NONBLOCK);
    if (fd < 0) return fd;
    auto spec = [](uint64_t ns) {
      return timespec{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    };
    // A timer that expired and was not read yet shows no time left: it expires again at once.
    const uint64_t ticks = d.value[1];
    itimerspec s{spec(d.value[4]), spec(ticks && !d.value[3] ? 1 : d.value[3])};
    timerfd_settime(fd, 0, &s, nullptr);
    return fd;
  }

  int make(const Descriptor& d, const std::string& path) {
    const int nonblock = static_cast<int>(d.flags) & O_NONBLOCK;
    switch (d.kind) {
      case kFdFile:
      case kFdDirectory:
      case kFdDevice:
      case kFdFifo:
        return make_file(d, path);
      case kFdPipe:
        return make_pipe(d);
      case kFdEventfd: {
        int fd = eventfd(0, nonblock | (d.value[1] ? EFD_SEMAPHORE : 0));
        uint64_t n = d.value[0];
        if (fd >= 0 && n && write(fd, &n, 8) != 8) return -1;
        return fd;
      }
      case kFdEpoll:
        return epoll_create1(0);
      case kFdTimerfd:
        return make_timerfd(d);
      case kFdSignalfd: {
        uint64_t mask = d.value[0];
        return static_cast<int>(syscall(SYS_signalfd4, -1, &mask, 8, nonblock));
      }
      case kFdInherit:
        return inherit(static_cast<int>(d.value[0]));
      case kFdTerminal: {
        int fd = outside(d);
        if (fd < 0 && d.fd <= 2) fd = inherit(d.fd);
        if (fd < 0) fd = open("/dev/tty", static_cast<int>(d.flags) & (O_ACCMODE | O_NONBLOCK));
        if (fd < 0) {
          warnings->push_back("descriptor " + std::to_string(d.fd) +
                              " was a terminal; it is /dev/null now");
          fd = open("/dev/null", O_RDWR);
        }
        return fd;
      }
      case kFdMemory: {
        for (const auto& [number, file] : memory.unlinked)
          if (number == d.fd) {
            int fd = reopen(file.get(), static_cast<int>(d.flags) &
                                            ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | O_TMPFILE));
            if (fd >= 0) lseek(fd, static_cast<off_t>(d.offset), SEEK_SET);
            return fd;
          }
        return -1;
      }
      case kFdUnixPair:
        return make_pair(d);
      case kFdSocketFresh: {
        int fd = socket(static_cast<int>(d.value[0]), static_cast<int>(d.value[1]) | nonblock,
                        static_cast<int>(d.value[2]));
        if (d.value[0] == AF_UNIX && d.value[1] == SOCK_DGRAM && fd >= 0) {
          sockaddr_un log{AF_UNIX, "/dev/log"};
          (void)connect(fd, reinterpret_cast<sockaddr*>(&log), sizeof(log));
        }
        return fd;
      }
      case kFdPidfdSelf:
        return static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
      default:
        errno = EINVAL;
        return -1;
    }
  }

  bool run() {
    for (const auto& [d, path] : image.fds) {
      if (made.count(d.description)) continue;
      errno = 0;
      int fd = up(make(d, path));
      if (fd < 0) {
        error = "descriptor " + std::to_string(d.fd) + (path.empty() ? "" : " (" + path + ")") +
                " cannot be made again: " + strerror(errno);
        return false;
      }
      made[d.description] = fd;
    }
    for (auto& [index, ends] : pipes) close(ends.first), close(ends.second);
    for (auto& [index, ends] : pairs) close(ends.first), close(ends.second);
    syscall(SYS_close_range, 0, base - 1, 0);
    for (const auto& [d, path] : image.fds)
      if (dup2(made[d.description], d.fd) < 0) {
        error = "descriptor number " + std::to_string(d.fd) +
                " is above the limit here: " + strerror(errno);
        return false;
      }
    for (auto& [description, fd] : made) close(fd);
    for (const auto& [e, entries] : image.epolls)
      for (const auto& [d, path] : image.fds)
        if (d.kind == kFdEpoll && d.object == static_cast<int>(e.index) && d.description == d.fd)
          watch(d.fd, entries);
    return true;
  }

  void watch(int epoll, const std::vector<EpollEntry>& entries) {
    for (const EpollEntry& entry : entries) {
      bool same = false;
      for (const auto& [d, path] : image.fds)
        same |= d.fd == entry.fd &&
                (!entry.ino || d.ino == entry.ino || d.kind == kFdEventfd || d.kind == kFdTimerfd ||
                 d.kind == kFdSignalfd || d.kind == kFdEpoll);
      epoll_event event{};
      event.events = entry.events;
      event.data.u64 = entry.data;
      if (!same || epoll_ctl(epoll, EPOLL_CTL_ADD, entry.fd, &event) != 0)
        warnings->push_back("epoll descriptor " + std::to_string(epoll) + " no longer watches " +
                            std::to_string(entry.fd));
    }
  }
};

}  // namespace

std::string make_descriptors(const Image& image, const Memory& memory, int base,
                             std::vector<std::string>* warnings) {
  Maker maker{image, memory, base, warnings, {}, {}, {}, {}, {}};
  maker.run();
  return maker.error;
}

}  // namespace gpuckpt::restore
