#include "restore/descriptors/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include <initializer_list>

#include "restore/descriptors/fd_maker.h"
#include "restore/end_like.h"
#include "restore/files/removed_files.h"
#include "restore/files/unnoticed_open.h"
#include "restore/files/written_files.h"
#include "restore/preflight/process_ids.h"

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

// Makes the ended child behind a pidfd, which shows how the process ended.
[[noreturn]] static void end_like_gone(int status) {
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  end_like(CLD_KILLED, WTERMSIG(status));
}

int FdMaker::inherit(int n) { return fcntl(n, F_DUPFD, base_); }

int FdMaker::outside(const Descriptor& d) {
  for (const auto& [other, path] : image_.fds)
    if (other.description == d.description && other.fd <= 2) return inherit(other.fd);
  // Another description of the same pipe or terminal as a standard stream.
  for (const auto& [other, path] : image_.fds)
    if (other.fd <= 2 && other.ino == d.ino && other.dev == d.dev && other.kind == d.kind)
      return inherit(other.fd);
  for (const auto& [pipe, payload] : image_.pipes)
    if (d.kind == kFdPipe && static_cast<int>(pipe.index) == d.object &&
        pipe.ends >> kPipeStandardShift)
      return inherit(static_cast<int>(pipe.ends >> kPipeStandardShift) - 1);
  return -1;
}

// Opened as ".", because O_NOFOLLOW would refuse the link in /proc.
int FdMaker::make_removed_folder(const Descriptor& d) {
  const int folder = memory_.folders->at({d.dev, d.ino}).get();
  return openat(folder, ".", static_cast<int>(d.flags) & ~(O_CREAT | O_CLOEXEC));
}

// The node is made again where that is permitted; otherwise the device itself, which all processes
// share, is opened.
int FdMaker::make_removed_device(const Descriptor& d, const std::string& path) {
  static const std::map<unsigned, const char*> usual = {{3, "/dev/null"},
                                                        {5, "/dev/zero"},
                                                        {7, "/dev/full"},
                                                        {8, "/dev/random"},
                                                        {9, "/dev/urandom"}};
  const int flags = static_cast<int>(d.flags) & ~(O_CREAT | O_CLOEXEC);
  NamesForNow names;
  const std::string name = names.make(path, d.mode, d.value[0]);
  const int fd = name.empty() ? -1 : open(name.c_str(), flags);
  auto known = image_.attributes.find({d.dev, d.ino});
  if (fd >= 0 && known != image_.attributes.end()) give_attributes(known->second, fd, path);
  if (fd >= 0) return fd;
  auto it = usual.find(minor(d.value[0]));
  return major(d.value[0]) == 1 && it != usual.end() ? open(it->second, flags) : -1;
}

NamesForNow& FdMaker::names_for_now() {
  if (!names_) names_ = std::make_unique<NamesForNow>();
  return *names_;
}

// A symbolic link is made again for all descriptors of it, and removed when they are open.
int FdMaker::make_removed_link(const Descriptor& d, const std::string& path) {
  const auto target = std::find_if(
      image_.link_targets.begin(), image_.link_targets.end(),
      [&](const auto& link) { return link.first.dev == d.dev && link.first.ino == d.ino; });
  if (target == image_.link_targets.end()) return errno = ENOENT, -1;
  std::string& made = removed_links_[{d.dev, d.ino}];
  if (made.empty()) {
    made = names_for_now().make_link(path, target->second);
    if (made.empty()) return -1;
    const auto known = image_.attributes.find({d.dev, d.ino});
    if (known != image_.attributes.end()) give_link_attributes(known->second.head, made);
  }
  return open(made.c_str(), (static_cast<int>(d.flags) & ~O_CLOEXEC) | O_NOFOLLOW);
}

// Gives a pipe or socket its owner. A user who may not change the owner has made it as its own, as
// the program had.
int FdMaker::with_owner(const Descriptor& d, int fd) {
  const auto known = image_.attributes.find({d.dev, d.ino});
  if (fd >= 0 && known != image_.attributes.end())
    (void)give_owner(fd, known->second.head.uid, known->second.head.gid);
  return fd;
}

// The kernel keeps such hints with the inode in memory, and a file without a name has a new inode
// now; so may a file with a name.
int FdMaker::with_write_hint(const Descriptor& d, int fd) {
  constexpr int kSetWriteHint = 1036;  // F_SET_RW_HINT
  uint64_t hint = d.value[5];
  if (fd >= 0 && hint) fcntl(fd, kSetWriteHint, &hint);
  return fd;
}

// Opens a pidfd of a process that has ended: of a helper process, which ends once it is open. It
// gets the old number where numbers can be chosen, because the descriptor shows it.
int FdMaker::make_ended_process_file(const Descriptor& d, const std::string& path) {
  const pid_t old = static_cast<pid_t>(d.value[0]);
  pid_t child = fork_as(old, 0);
  if (child < 0) child = fork_as(0, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  if (child < 0) return child;
  std::string name = path;
  auto rename = [&](const std::string& from, const std::string& to) {
    if (name.starts_with(from) && (name.size() == from.size() || name[from.size()] == '/'))
      name.replace(0, from.size(), to);
  };
  rename("/proc/" + std::to_string(old), "/proc/" + std::to_string(child));
  // Only the first thread of that process exists here.
  const std::string tasks = "/proc/" + std::to_string(child) + "/task/";
  if (name.starts_with(tasks))
    rename(name.substr(0, name.find('/', tasks.size())), tasks + std::to_string(child));
  const int fd = open(name.c_str(), static_cast<int>(d.flags) & ~(O_CREAT | O_EXCL | O_TRUNC));
  const int reason = errno;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (fd < 0) {
    warn(describe(d, path) + " cannot be opened again: " + strerror(reason));
    return open("/dev/null", O_RDWR);
  }
  lseek(fd, static_cast<off_t>(d.offset), SEEK_SET);
  return fd;
}

int FdMaker::make_file(const Descriptor& d, const std::string& path) {
  if (d.kind == kFdPath && d.value[0] && S_ISLNK(d.mode)) return make_removed_link(d, path);
  if ((d.kind == kFdDirectory || d.kind == kFdPath) && d.value[0]) return make_removed_folder(d);
  if (d.kind == kFdDevice && d.value[1]) return make_removed_device(d, path);
  int flags = static_cast<int>(d.flags) & ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC);
  if (d.kind == kFdPath && S_ISLNK(d.mode)) flags |= O_NOFOLLOW;
  int fd = d.kind == kFdFile ? open_as_owner(path, flags | O_NOCTTY)
                             : open(path.c_str(), flags | O_NOCTTY);
  if (fd < 0 && errno == EACCES && d.kind == kFdFile) {
    const int n = standard_stream_of(path, d.flags);
    if (n >= 0 && (fd = inherit(n)) >= 0) fcntl(fd, F_SETFL, flags);
    if (fd < 0) errno = EACCES;
  }
  if (fd >= 0 && (d.kind == kFdFile || d.kind == kFdDirectory || S_ISBLK(d.mode)))
    lseek(fd, static_cast<off_t>(d.offset), SEEK_SET);
  return d.kind == kFdFile ? with_write_hint(d, fd) : fd;
}

// Relative timers continue with the time that was left; absolute ones keep their deadline.
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
  // A periodic one that expired stops until it is read.
  if (ticks && d.value[4] && !value) value = d.value[4];
  itimerspec s{spec(d.value[4]), spec(value)};
  if (timerfd_settime(fd, flags, &s, nullptr) != 0) return -1;
  // Unread expirations. Where the kernel cannot be told their number, the timer expires once more.
  if (ticks && ioctl(fd, 0x40085400 /* TFD_IOC_SET_TICKS */, &ticks) != 0) {
    s.it_value = spec(1);
    timerfd_settime(fd, 0, &s, nullptr);
  }
  return fd;
}

// A file that has lost its name is watched through the program's own descriptor of it.
std::string FdMaker::watched_name(const InotifyWatch& w, const std::string& path) const {
  auto by_number = [](int fd) { return "/proc/self/fd/" + std::to_string(fd); };
  if (auto folder = memory_.folders->find({w.dev, w.ino}); folder != memory_.folders->end())
    return by_number(folder->second.get());
  for (const auto& [d, name] : image_.fds)
    if (d.kind == kFdMemory && d.ino == w.ino && d.dev == w.dev)
      for (const auto& [number, file] : memory_.unlinked)
        if (number == d.description) return by_number(file.get());
  return path;
}

// The kernel numbers watches upwards from 1: missing numbers are used by watches that are removed
// again.
int FdMaker::make_inotify(const Descriptor& d) {
  int fd = inotify_init1(static_cast<int>(d.flags) & O_NONBLOCK);
  if (fd < 0) return fd;
  std::map<int, std::pair<const InotifyWatch*, const std::string*>> wanted;
  for (const auto& [w, path] : image_.watches)
    if (static_cast<int>(w.index) == d.object) wanted[w.watch] = {&w, &path};
  for (const auto& [number, entry] : wanted) {
    const auto& [w, path] = entry;
    const std::string name = watched_name(*w, *path);
    for (int tries = 0;; ++tries) {
      int got = inotify_add_watch(fd, name.c_str(), w->mask);
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

int FdMaker::make_epoll(const Descriptor& d) {
  constexpr unsigned long kSetParameters = 0x40088a01;  // EPIOCSPARAMS, Linux 6.9
  const int fd = epoll_create1(0);
  if (fd >= 0 && d.value[0] && ioctl(fd, kSetParameters, &d.value[0]) != 0)
    warn("descriptor " + std::to_string(d.fd) +
         " (epoll) comes back without its parameters for busy polling (EPIOCSPARAMS): " +
         strerror(errno));
  return fd;
}

int FdMaker::make_memory(const Descriptor& d) {
  for (const auto& [number, file] : memory_.unlinked)
    if (number == d.description) {
      int flags = static_cast<int>(d.flags) & ~(O_NOFOLLOW | O_CREAT | O_EXCL | O_TRUNC |
                                                O_CLOEXEC | (O_TMPFILE & ~O_DIRECTORY));
      // A memfd's first description does not count as opened for writing, so the memfd can be
      // executed; another one for writing would make that ETXTBSY.
      const bool original = memory_.original.count(d.description);
      int fd = original ? fcntl(file.get(), F_DUPFD, base_) : reopen(file.get(), flags);
      if (original && fd >= 0) fcntl(fd, F_SETFL, flags);
      // Its mode does not let us open it again; the present description is then the only one.
      if (fd < 0 && (flags & O_ACCMODE) == O_RDWR) fd = fcntl(file.get(), F_DUPFD, base_);
      if (fd >= 0) lseek(fd, static_cast<off_t>(d.offset), SEEK_SET);
      return with_write_hint(d, fd);
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
      return with_owner(d, make_pipe(d, path));
    case kFdFifo:
      return make_pipe(d, path);
    case kFdEventfd: {
      int fd = eventfd(0, nonblock | (d.value[1] ? EFD_SEMAPHORE : 0));
      uint64_t n = d.value[0];
      if (fd >= 0 && n && write(fd, &n, 8) != 8) return -1;
      return fd;
    }
    case kFdEpoll:
      return make_epoll(d);
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
      const size_t socket = static_cast<size_t>(d.object);
      int fd = sockets_[socket];
      if (!given_away_.insert(socket).second) fd = dup(fd);
      if (fd >= 0) fcntl(fd, F_SETFL, static_cast<int>(d.flags) & (O_NONBLOCK | O_ASYNC));
      return with_owner(d, fd);
    }
    case kFdInotify:
      return make_inotify(d);
    case kFdQueue:
      return make_queue(d, path);
    case kFdPidfdSelf:
      return static_cast<int>(syscall(SYS_pidfd_open, getpid(), nonblock));
    case kFdPidfd:  // all processes exist
      return static_cast<int>(syscall(SYS_pidfd_open, d.value[0], nonblock));
    case kFdPidfdGone: {
      pid_t child = fork();
      if (child == 0) end_like_gone(static_cast<int>(d.value[0]));
      int fd = static_cast<int>(syscall(SYS_pidfd_open, child, nonblock));
      waitpid(child, nullptr, 0);
      return fd;
    }
    case kFdKernelFile:  // the entry opens it, when there is a program to look at
      return d.value[0] ? make_ended_process_file(d, path) : open("/dev/null", O_RDWR);
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
  names_.reset();
  for (size_t i = 0; i < sockets_.size(); ++i)
    if (sockets_[i] >= 0 && !given_away_.count(i)) close(sockets_[i]);
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

// Takes the locks of a description that is in flight: no process has it before the program runs.
// (The entry takes all other locks.)
bool FdMaker::lock_in_flight() {
  for (const FileLock& l : image_.file_locks) {
    auto flies = [&](const auto& entry) {
      return entry.first.fd == l.fd && entry.first.fd_flags & kFdInFlight;
    };
    auto d = std::find_if(image_.fds.begin(), image_.fds.end(), flies);
    if (d == image_.fds.end()) continue;
    const int fd = made_[d->first.description];
    struct flock range {};
    range.l_type = static_cast<short>(l.type), range.l_start = static_cast<off_t>(l.start);
    range.l_len = l.end == ~0ull ? 0 : static_cast<off_t>(l.end - l.start + 1);
    if ((l.kind == kLockFlock ? flock(fd, (l.type == F_WRLCK ? LOCK_EX : LOCK_SH) | LOCK_NB)
                              : fcntl(fd, F_OFD_SETLK, &range)) != 0)
      return fail(d->second + ", which is on its way in a socket, cannot be locked again");
  }
  return true;
}

bool FdMaker::make_all() {
  if (!prepare_pipes() || !prepare_sockets() || !prepare_terminals() || !make_missing() ||
      !lock_in_flight() || !send_messages())
    return false;
  close_helpers();
  return true;
}

bool FdMaker::take(const std::map<int, int>& made) {
  for (const auto& [description, fd] : made) {
    common_.insert(description);
    if ((made_[description] = fcntl(fd, F_DUPFD, base_)) < 0)
      return fail(
          "the descriptors of the program do not fit below the limit here, which `ulimit -n` "
          "raises");
  }
  return true;
}

bool FdMaker::put_in_place() {
  names_.reset();  // whose descriptors are about to be the program's numbers
  if (!place()) return false;
  for (const auto& [e, entries] : image_.epolls)
    for (const auto& [d, path] : image_.fds)
      if (d.kind == kFdEpoll && d.object == static_cast<int>(e.index) && d.description == d.fd &&
          !watch(made_.at(d.description), d, entries))
        return false;
  for (auto& [description, fd] : made_) close(fd);
  return true;
}

namespace {

// A one-shot entry that was reported waits for the program to arm it again.
bool has_fired(const EpollEntry& e) {
  return e.events & EPOLLONESHOT && !(e.events & ~(EPOLLONESHOT | EPOLLET | EPOLLWAKEUP));
}

// Calls `body` while an empty pipe has something to read.
template <typename Body>
void while_readable(int fd, Body body) {
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode)) return;
  const std::string name = "/proc/self/fd/" + std::to_string(fd);
  Fd writer(open(name.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  Fd reader(open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char byte = 0;
  if (!writer || !reader || write(writer.get(), &byte, 1) != 1) return;
  body();
  (void)!read(reader.get(), &byte, 1);
}

int control(int epoll, int operation, const EpollEntry& entry, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = entry.data;
  return epoll_ctl(epoll, operation, entry.fd, &event);
}

// Only an event makes an entry one that has fired.
bool add_fired(int epoll, int target, const EpollEntry& entry) {
  epoll_event event{};
  bool fired = false;
  auto wait = [&] { fired = fired || epoll_wait(epoll, &event, 1, 0) == 1; };
  if (control(epoll, EPOLL_CTL_ADD, entry,
              entry.events | EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP) != 0)
    return false;
  wait();
  if (!fired) while_readable(target, wait);
  if (!fired) control(epoll, EPOLL_CTL_MOD, entry, entry.events);
  errno = fired ? 0 : EBUSY;
  return fired;
}

}  // namespace

// Makes each entry under the number that it was registered by, which may belong to another
// descriptor, or to none, by now.
bool FdMaker::add_watch(int epoll, const Descriptor& set, const EpollEntry& entry, bool fired) {
  const Descriptor* now = nullptr;
  for (const auto& [d, path] : image_.fds)
    if (d.fd == entry.fd && !(d.fd_flags & kFdInFlight)) now = &d;
  auto it = made_.find(entry.description);
  if (it == made_.end()) return fail("an epoll set of the program watches nothing");
  bool in_place = now && now->description == entry.description;
  int keep = -1;
  if (!in_place) {
    if (now) keep = fcntl(entry.fd, F_DUPFD, base_);
    dup2(it->second, entry.fd);
  }
  const bool added = fired ? add_fired(epoll, it->second, entry)
                           : control(epoll, EPOLL_CTL_ADD, entry, entry.events) == 0;
  const int why = errno;
  if (!in_place && keep < 0) close(entry.fd);
  if (keep >= 0) dup2(keep, entry.fd), close(keep);
  errno = why;
  if (!added && fired && errno == EBUSY) {
    warn("descriptor " + std::to_string(set.fd) + " (epoll) reports errors and hang-ups of " +
         std::to_string(entry.fd) + ", which waits to be armed again (EPOLLONESHOT)");
    return true;
  }
  return added || fail("descriptor " + std::to_string(set.fd) + " (epoll) cannot watch " +
                       std::to_string(entry.fd) + " again");
}

// Is it ready as nothing that the program does not know of? Else it has to be reported.
bool FdMaker::is_ready_as_reported(const EpollEntry& entry) const {
  const auto target = made_.find(entry.description);
  if (!entry.reported || target == made_.end()) return false;
  pollfd now{target->second, static_cast<short>(entry.events & kEpollReadiness), 0};
  return poll(&now, 1, 0) >= 0 &&
         !(static_cast<uint16_t>(now.revents) & kEpollReadiness & ~entry.reported);
}

// All processes that share a set add their entries to it. Entries that have fired come first: only
// then is it known which process has an event. Edge-triggered ones that have been reported follow:
// what they report is taken out before others can.
bool FdMaker::watch(int epoll, const Descriptor& set, const std::vector<EpollEntry>& entries) {
  const bool is_common = common_.count(set.description);
  std::vector<const EpollEntry*> reported, others;
  for (const EpollEntry& entry : entries) {
    const bool fired = has_fired(entry) && !is_common;
    if (fired && !add_watch(epoll, set, entry, true)) return false;
    if (!fired) (!is_common && is_ready_as_reported(entry) ? reported : others).push_back(&entry);
  }
  for (const EpollEntry* entry : reported)
    if (!add_watch(epoll, set, *entry, false)) return false;
  std::vector<epoll_event> events(entries.size());
  if (!reported.empty()) epoll_wait(epoll, events.data(), static_cast<int>(events.size()), 0);
  for (const EpollEntry* entry : others)
    if (!add_watch(epoll, set, *entry, false)) return false;
  return true;
}

std::string make_descriptors(const Image& image, const Memory& memory, int base,
                             const std::map<int, int>* made, const Warn& warn) {
  FdMaker maker(image, memory, base, warn);
  if (made ? maker.take(*made) && maker.make_missing() : maker.make_all()) maker.put_in_place();
  return maker.error;
}

std::string make_only(const Image& image, const Memory& memory, int base, const Warn& warn,
                      std::map<int, int>* made) {
  FdMaker maker(image, memory, base, warn);
  if (maker.make_all()) *made = maker.made();
  return maker.error;
}

}  // namespace gpuckpt::restore
