#include "restore/entry/entry_descriptors.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "restore/entry/entry_state.h"
#include "restore/entry/warnings.h"

namespace gpuckpt::entry {
namespace {

using namespace process;
using restore::Plan;

// The text may be longer than it was: what was read to its end stays so.
void read_to_end(int fd) {
  char text[4096];
  while (sys::read(fd, text, sizeof(text)) > 0) {
  }
}

// Opens a file of /proc, which shows the program only now. The stored path has the process's old
// number.
void open_kernel_file(Plan* p, const Descriptor& d, const char* path) {
  char own[64], here[4200];
  format(own, sizeof(own), "/proc/%d", state.head.pid);
  size_t n = length(own);
  if (starts_with(path, own) && (path[n] == '/' || !path[n])) {
    format(here, sizeof(here), "/proc/%d%s", sys::getpid(), path + n);
    path = here;
  }
  constexpr int kNot = O_CREAT | O_EXCL | O_TRUNC;
  int flags = (static_cast<int>(d.flags) & ~kNot) | O_CLOEXEC;
  if (S_ISLNK(d.mode)) flags |= O_NOFOLLOW;  // O_PATH of a link itself
  int fd = sys::open(path, flags);
  if (fd < 0) {
    warn("descriptor %d (%s) cannot be opened again (error %d)", d.fd, path, -fd);
    return;
  }
  sys::call(SYS_lseek, fd, static_cast<long>(d.offset), 0);
  if (d.value[1]) read_to_end(fd);
  each_record(p, [&](const RecordHead& h, const char* at) {
    const Descriptor* o = reinterpret_cast<const Descriptor*>(at);
    if (h.type == kRecFd && o->description == d.description && !(o->fd_flags & kFdInFlight))
      sys::call(SYS_dup3, fd, o->fd, 0);
  });
  sys::close(fd);
}

// Locks belong to the process or to a description, and closing any other descriptor of the file
// releases them: so they are taken last.
long lock_file(const FileLock& l) {
  long r;
  if (l.kind == kLockFlock) {
    r = sys::call(SYS_flock, l.fd, (l.type == F_WRLCK ? 2 : 1) | 4 /* LOCK_NB */);
  } else {
    struct {
      short type, whence;
      int64_t start, length;
      int pid;
    } lock{static_cast<short>(l.type), 0, static_cast<int64_t>(l.start),
           l.end == ~0ull ? 0 : static_cast<int64_t>(l.end - l.start + 1), 0};
    r = sys::call(SYS_fcntl, l.fd, l.kind == kLockOfd ? 37 : F_SETLK, sys::ptr(&lock));
  }
  return r;
}

// A child of the killed program may hold the lock for a moment longer.
void restore_lock(const FileLock& l) {
  constexpr uint64_t kPatienceUs = 8'000'000;
  const uint64_t begin = sys::now_us();
  long r;
  while ((r = lock_file(l)) == -11 /* EAGAIN */ || r == -13 /* EACCES */) {
    if (sys::now_us() - begin > kPatienceUs) break;
    sys::sleep_us(20'000);
  }
  if (sys::failed(r))
    die(kExitIncompatible,
        "the file behind descriptor %d, which the program had locked, is locked by another "
        "process; end that process, and restore again",
        l.fd);
}

// Whether the descriptor was sent and not received. Its locks were taken when it was made (fds.cc).
bool is_in_flight(const Plan* p, int fd) {
  bool result = false;
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* d = reinterpret_cast<const Descriptor*>(at);
    result |= h.type == kRecFd && d->fd == fd && d->fd_flags & kFdInFlight;
  });
  return result;
}

// The kernel tells of an owner that is a process, not of one that is a thread, as of a lease that a
// thread took: the program is told then. Left to itself, the kernel would take the calling thread,
// which is one of ours and soon ends.
void give_lease_an_owner(int fd) {
  struct {
    int type, pid;
  } owner{};
  const bool known = !sys::failed(sys::call(SYS_fcntl, fd, 16 /* F_GETOWN_EX */, sys::ptr(&owner)));
  if (known && !owner.pid) sys::call(SYS_fcntl, fd, 8 /* F_SETOWN */, sys::getpid());
}

// A lease that cannot be taken again counts as broken: the program gets the signal that it has
// chosen for that, as from the kernel.
void restore_lease(const FileLock& l) {
  // Of 20 ms: other processes of the job may have the file open for a moment.
  constexpr int kTries = 50;
  long r = -1;
  give_lease_an_owner(l.fd);
  for (int i = 0; i < kTries && sys::failed(r); ++i, sys::sleep_us(sys::failed(r) ? 20'000 : 0))
    r = sys::call(SYS_fcntl, l.fd, 1024 /* F_SETLEASE */, l.type);
  if (!sys::failed(r)) return;
  warn(
      "the lease on the file behind descriptor %d cannot be taken again (error %ld): the "
      "program is told that it is broken",
      l.fd, -r);
  const long chosen = sys::call(SYS_fcntl, l.fd, 11 /* F_GETSIG */);
  siginfo_t info;
  __builtin_memset(&info, 0, sizeof(info));
  info.si_signo = chosen > 0 ? static_cast<int>(chosen) : SIGIO;
  info.si_code = POLL_MSG;
  info.si_fd = l.fd;
  sys::call(SYS_rt_sigqueueinfo, sys::getpid(), info.si_signo, sys::ptr(&info));
}

}  // namespace

// Drops events that were caused by the restore itself.
void drop_notices(const Plan* p) {
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* d = reinterpret_cast<const Descriptor*>(at);
    if (h.type != kRecFd || d->kind != kFdInotify || d->description != d->fd ||
        d->fd_flags & kFdInFlight)
      return;
    char events[8192];
    int queued = 0;
    while (!sys::failed(sys::call(SYS_ioctl, d->fd, FIONREAD, sys::ptr(&queued))) && queued > 0 &&
           sys::read(d->fd, events, sizeof(events)) > 0) {
    }
  });
}

// Called when the helpers of the restore have closed the files.
void restore_leases(const Plan* p) {
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* l = reinterpret_cast<const FileLock*>(at);
    if (h.type == kRecFileLock && l->kind == kLockLease) restore_lease(*l);
  });
}

namespace {

// The number that a process or thread has now. (A thread that takes a lease, or asks to be told
// itself, is the owner under its own number.)
int number_now(int number) {
  if (number == state.head.pid) return sys::getpid();
  for (size_t k = 0; k < state.count; ++k)
    if (state.threads[k].saved.tid == number) return state.threads[k].tid;
  return number;
}

void restore_owner(const DescriptorOwner& o) {
  struct {
    int type, pid;
  } owner{o.type, number_now(o.pid)};
  sys::call(SYS_fcntl, o.fd, 15 /* F_SETOWN_EX */, sys::ptr(&owner));
  if (o.signal) sys::call(SYS_fcntl, o.fd, 10 /* F_SETSIG */, o.signal);
  if (!o.asynchronous) return;
  // si_fd is the number under which F_SETOWN was called.
  const long flags = sys::call(SYS_fcntl, o.fd, F_GETFL);
  sys::call(SYS_fcntl, o.fd, F_SETFL, flags & ~O_ASYNC);
  sys::call(SYS_fcntl, o.fd, F_SETFL, flags | O_ASYNC);
}

void set_foreground(int terminal) {
  int group = state.head.foreground;
  if (group > 0) sys::call(SYS_ioctl, terminal, TIOCSPGRP, sys::ptr(&group));
}

// Takes terminals that were made anew; the launcher's own terminal belongs to the launcher's
// session.
void take_terminal(Plan* p) {
  if (!state.head.terminal || sys::call(SYS_getsid, 0) != sys::getpid()) return;
  bool taken = false;
  each_record(p, [&](const RecordHead& h, const char* at) {
    const Descriptor* d = reinterpret_cast<const Descriptor*>(at);
    if (h.type != kRecFd || taken || d->kind != kFdTerminal || (d->fd_flags & kFdInFlight) ||
        d->value[1] != static_cast<uint64_t>(state.head.terminal))
      return;
    taken = !sys::failed(sys::call(SYS_ioctl, d->fd, TIOCSCTTY, 0));
    if (taken) set_foreground(d->fd);
  });
  // No process has the slave open: it is opened for this call alone.
  char path[40];
  format(path, sizeof(path), "/dev/pts/%d", state.head.terminal - 1);
  const bool own = p->flags & restore::kOwnTerminal;
  const int slave = taken || !own ? -1 : sys::open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return;
  if (!sys::failed(sys::call(SYS_ioctl, slave, TIOCSCTTY, 0))) set_foreground(slave);
  sys::close(slave);
}

}  // namespace

void finish_descriptors(Plan* p) {
  for (int fd = p->report_fd + 1; fd <= p->highest_fd; ++fd)
    if (fd != p->device_fd) sys::close(fd);
  each_record(p, [&](const RecordHead& h, const char* at) {
    const Descriptor* d = reinterpret_cast<const Descriptor*>(at);
    if (h.type == kRecFd && d->kind == kFdKernelFile && !d->value[0] && d->description == d->fd)
      open_kernel_file(p, *d, at + sizeof(Descriptor));
  });
  const auto* fds =
      reinterpret_cast<const restore::PlanFd*>(reinterpret_cast<const char*>(p) + p->fds);
  for (uint64_t i = 0; i < p->fd_count; ++i) {
    if (fds[i].seals) sys::call(SYS_fcntl, fds[i].fd, 1033 /* F_ADD_SEALS */, fds[i].seals);
    sys::call(SYS_fcntl, fds[i].fd, F_SETFD, fds[i].fd_flags & FD_CLOEXEC);
  }
  each_record(p, [&](const RecordHead& h, const char* at) {
    const auto* l = reinterpret_cast<const FileLock*>(at);
    if (h.type == kRecFileLock && l->kind != kLockLease && !is_in_flight(p, l->fd))
      restore_lock(*l);
  });
  take_terminal(p);
}

void restore_owners(const Plan* p) {
  each_record(p, [&](const RecordHead& h, const char* at) {
    if (h.type == kRecOwner) restore_owner(*reinterpret_cast<const DescriptorOwner*>(at));
  });
}

}  // namespace gpuckpt::entry
