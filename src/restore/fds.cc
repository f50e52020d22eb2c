#include "restore/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "restore/fd_maker.h"
#include "restore/written_files.h"

namespace gpuckpt::restore {

using namespace process;

std::string describe(const Descriptor& d, const std::string& path) {
  return "descriptor " + std::to_string(d.fd) + (path.empty() ? "" : " (" + path + ")");
}

bool FdMaker::fail(const std::string& what) {
  error = what + (errno ? std::string(": ") + strerror(errno) : "");
  return false;
}

int FdMaker::up(int fd) {
  if (fd < 0 || fd >= base_) return fd;
  int high = fcntl(fd, F_DUPFD, base_);
  close(fd);
  return high;
}

int FdMaker::reopen(int fd, int flags) {
  return open(("/proc/self/fd/" + std::to_string(fd)).c_str(), flags);
}

int FdMaker::inherit(int n) { return fcntl(n, F_DUPFD, base_); }

int FdMaker::outside(const Descriptor& d) {
  for (const auto& [other, path] : image_.fds)
    if (other.description == d.description && other.fd <= 2) return inherit(other.fd);
  // Not the same description, but the same pipe or terminal as one of the standard three.
  for (const auto& [other, path] : image_.fds)
    if (other.fd <= 2 && other.ino == d.ino && other.dev == d.dev && other.kind == d.kind)
      return inherit(other.fd);
  return -1;
}

std::string make_for_now(const std::string& path, mode_t mode) {
  for (int i = 0; i < 100; ++i) {
    const std::string name = path + (i ? ".gpuckpt-" + std::to_string(i) : "");
    if ((S_ISDIR(mode) ? mkdir(name.c_str(), mode & 07777) : mkfifo(name.c_str(), mode & 07777)) ==
        0)
      return name;
    if (errno != EEXIST) break;
  }
  return "";
}

int FdMaker::make_removed_folder(const Descriptor& d, const std::string& path) {
  const std::string name = make_for_now(path, d.mode);
  if (name.empty()) return -1;
  const int fd = open(name.c_str(), static_cast<int>(d.flags) & ~O_CREAT);
  rmdir(name.c_str());
  return fd;
}

int FdMaker::make_file(const Descriptor& d, const std::string& path) {
  if (d.kind == kFdDirectory && d.value[0]) return make_removed_folder(d, path);
  int flags = static_cast<int>(d.flags) & ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC);
  if (d.kind == kFdPath && S_ISLNK(d.mode)) flags |= O_NOFOLLOW;
  int fd = open(path.c_str(), flags | O_NOCTTY);
  if (fd < 0 && errno == EACCES && d.kind == kFdFile) {
    const int n = standard_stream_of(path, d.flags);
    if (n >= 0 && (fd = inherit(n)) >= 0) fcntl(fd, F_SETFL, flags);
    if (fd < 0) errno = EACCES;
  }
  if (fd >= 0 && (d.kind == kFdFile || d.kind == kFdDirectory))
    lseek(fd, static_cast<off_t>(d.offset), SEEK_SET);
  return fd;
}

// Relative timers go on with what was left; absolute ones keep their deadline.
int FdMaker::make_timerfd(const Descriptor& d) {
  const int clock = static_cast<int>(d.value[0]);
  int fd = timerfd_create(clock, static_cast<int>(d.flags) & O_NONBLOCK);
  if (fd < 0) return fd;
  auto spec = [](uint64_t ns) {
    return timespec{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  };
  uint64_t ticks = d.value[1], value = d.value[3];
  int flags = 0;
  if ((d.value[2] & TFD_TIMER_ABSTIME) && value && !d.value[4]) {
    flags = static_cast<int>(d.value[2]);
    value +=
        1000 * (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM ? image_.head.realtime_us
                : clock == CLOCK_MONOTONIC                               ? image_.head.monotonic_us
                                                                         : image_.head.boottime_us);
  }
  // A periodic one that expired stands still until it is read.
  if (ticks && d.value[4] && !value) value = d.value[4];
  itimerspec s{spec(d.value[4]), spec(value)};
  if (timerfd_settime(fd, flags, &s, nullptr) != 0) return -1;
  // Expirations that were not read yet. Where the kernel cannot be told, it expires once more.
  if (ticks && ioctl(fd, 0x40085400 /* TFD_IOC_SET_TICKS */, &ticks) != 0) {
    s.it_value = spec(1);
    timerfd_settime(fd, 0, &s, nullptr);
  }
  return fd;
}

// The kernel counts watches up from 1: the missing numbers are given to watches that go again.
int FdMaker::make_inotify(const Descriptor& d) {
  int fd = inotify_init1(static_cast<int>(d.flags) & O_NONBLOCK);
  if (fd < 0) return fd;
  std::map<int, std::pair<const InotifyWatch*, const std::string*>> wanted;
  for (const auto& [w, path] : image_.watches)
    if (static_cast<int>(w.index) == d.object) wanted[w.watch] = {&w, &path};
  for (const auto& [number, entry] : wanted) {
    const auto& [w, path] = entry;
    for (int tries = 0;; ++tries) {
      int got = inotify_add_watch(fd, path->c_str(), w->mask);
      if (got == number) break;
      if (got < 0 || got > number || tries > 1000000) {
        error = describe(d, "") + " watched " + *path + " with inotify, which is not possible now";
        return -1;
      }
      inotify_rm_watch(fd, got);
    }
  }
  int queued = 0;
  std::vector<char> events;
  while (ioctl(fd, FIONREAD, &queued) == 0 && queued > 0) {
    events.resize(static_cast<size_t>(queued));
    if (read(fd, events.data(), events.size()) <= 0) break;
  }
  return fd;
}

int FdMaker::make_memory(const Descriptor& d) {
  for (const auto& [number, file] : memory_.unlinked)
    if (number == d.description) {
      int flags = static_cast<int>(d.flags) &
                  ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | (O_TMPFILE & ~O_DIRECTORY));
      // Its mode may not let us open it again; the description we have is then the only one.
      int fd = reopen(file.get(), flags);
      if (fd < 0 && (flags & O_ACCMODE) == O_RDWR) fd = fcntl(file.get(), F_DUPFD, base_);
      if (fd >= 0) lseek(fd, static_cast<off_t>(d.offset), SEEK_SET);
      return fd;
    }
  return -1;
}

int FdMaker::make(const Descriptor& d, const std::string& path) {
  const int nonblock = static_cast<int>(d.flags) & O_NONBLOCK;
  switch (d.kind) {
    case kFdFile:
    case kFdDirectory:
    case kFdDevice:
    case kFdPath:
      return make_file(d, path);
    case kFdPipe:
    case kFdFifo:
      return make_pipe(d, path);
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
    case kFdPtyMaster:
    case kFdTerminal:
      return make_terminal(d);
    case kFdMemory:
      return make_memory(d);
    case kFdSocket: {
      int fd = dup(sockets_[static_cast<size_t>(d.object)]);
      if (fd >= 0) fcntl(fd, F_SETFL, static_cast<int>(d.flags) & (O_NONBLOCK | O_ASYNC));
      return fd;
    }
    case kFdInotify:
      return make_inotify(d);
    case kFdQueue:
      return make_queue(d, path);
    case kFdPidfdSelf:
      return static_cast<int>(syscall(SYS_pidfd_open, getpid(), nonblock));
    case kFdPidfd:  // all are there, in their places
      return static_cast<int>(syscall(SYS_pidfd_open, d.value[0], nonblock));
    case kFdPidfdGone: {
      pid_t child = fork();
      if (child == 0) _exit(0);
      int fd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
      waitpid(child, nullptr, 0);
      return fd;
    }
    case kFdKernelFile:  // the entry opens it, when there is a program to look at
      return open("/dev/null", O_RDWR);
    default:
      errno = EINVAL;
      return -1;
  }
}

void FdMaker::close_helpers() {
  for (auto& [index, ends] : pipes_) {
    if (ends.first >= 0) close(ends.first);
    if (ends.second >= 0) close(ends.second);
  }
  for (auto& [index, fd] : fifos_) close(fd);
  for (auto& [index, name] : removed_fifos_) unlink(name.c_str());
  for (int fd : sockets_)
    if (fd >= 0) close(fd);
  for (const Image::Terminal& t : image_.terminals) {
    const int slave = terminals_[static_cast<int>(t.head.index)].second;
    if (t.head.exclusive && slave >= 0) ioctl(slave, TIOCEXCL);
  }
  for (auto& [index, ends] : terminals_) {
    close(ends.first);
    if (ends.second >= 0) close(ends.second);
  }
}

bool FdMaker::place() {
  syscall(SYS_close_range, 0, base_ - 1, 0);
  for (const auto& [d, path] : image_.fds)
    if (!(d.fd_flags & kFdInFlight) && dup2(made_[d.description], d.fd) < 0)
      return fail("descriptor number " + std::to_string(d.fd) + " is above the limit here");
  return true;
}

bool FdMaker::make_missing() {
  for (const auto& [d, path] : image_.fds) {
    if (made_.count(d.description)) continue;
    errno = 0;
    int fd = up(make(d, path));
    if (fd < 0) return error.empty() ? fail(describe(d, path) + " cannot be made again") : false;
    made_[d.description] = fd;
  }
  return true;
}

bool FdMaker::make_all() {
  if (!prepare_pipes() || !prepare_sockets() || !prepare_terminals() || !make_missing() ||
      !send_messages())
    return false;
  close_helpers();
  return true;
}

bool FdMaker::take(const std::map<int, int>& made) {
  for (const auto& [description, fd] : made)
    if ((made_[description] = fcntl(fd, F_DUPFD, base_)) < 0)
      return fail("not enough descriptors (ulimit -n)");
  return true;
}

bool FdMaker::put_in_place() {
  if (!place()) return false;
  for (const auto& [e, entries] : image_.epolls)
    for (const auto& [d, path] : image_.fds)
      if (d.kind == kFdEpoll && d.object == static_cast<int>(e.index) && d.description == d.fd &&
          !watch(d.fd, entries))
        return false;
  for (auto& [description, fd] : made_) close(fd);
  return true;
}

// Each entry is made under the number it was registered by, which may belong to something else or
// to nobody by now. A set that several processes have is put together by all of them.
bool FdMaker::watch(int epoll, const std::vector<EpollEntry>& entries) {
  for (const EpollEntry& entry : entries) {
    const Descriptor* now = nullptr;
    for (const auto& [d, path] : image_.fds)
      if (d.fd == entry.fd && !(d.fd_flags & kFdInFlight)) now = &d;
    auto it = made_.find(entry.description);
    if (it == made_.end()) return fail("an epoll set of the program watches nothing");
    epoll_event event{};
    event.events = entry.events;
    event.data.u64 = entry.data;
    bool in_place = now && now->description == entry.description;
    int keep = -1;
    if (!in_place) {
      if (now) keep = fcntl(entry.fd, F_DUPFD, base_);
      dup2(it->second, entry.fd);
    }
    bool added = epoll_ctl(epoll, EPOLL_CTL_ADD, entry.fd, &event) == 0;
    if (!in_place && keep < 0) close(entry.fd);
    if (keep >= 0) dup2(keep, entry.fd), close(keep);
    if (!added)
      return fail("descriptor " + std::to_string(epoll) + " (epoll) cannot watch " +
                  std::to_string(entry.fd) + " again");
  }
  return true;
}

std::string make_descriptors(const Image& image, const Memory& memory, int base,
                             const std::map<int, int>* made, std::vector<std::string>* warnings) {
  FdMaker maker(image, memory, base, warnings);
  if (made ? maker.take(*made) && maker.make_missing() : maker.make_all()) maker.put_in_place();
  return maker.error;
}

std::string make_only(const Image& image, const Memory& memory, int base,
                      std::vector<std::string>* warnings, std::map<int, int>* made) {
  FdMaker maker(image, memory, base, warnings);
  if (maker.make_all()) *made = maker.made();
  return maker.error;
}

}  // namespace gpuckpt::restore
