// eventfd, timerfd, signalfd, epoll, inotify, pidfd: what /proc/PID/fdinfo tells.

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "base/procfs/ended_status.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/descriptors.h"
#include "snapshot/descriptors/epoll_edges.h"
#include "snapshot/job/barrier.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

uint64_t number(const FdFacts& f, const char* name, bool hex = false) {
  const char* s = info_line(f.info, name);
  return !s ? 0 : hex ? scan_hex(&s) : scan_dec(&s);
}

// "(seconds, nanoseconds)"
uint64_t nanoseconds(const FdFacts& f, const char* name) {
  const char* s = info_line(f.info, name);
  if (!s || *s != '(') return 0;
  ++s;
  uint64_t sec = scan_dec(&s);
  while (*s == ',' || *s == ' ') ++s;
  return sec * 1000000000 + scan_dec(&s);
}

// The number behind "name:" in a line, which both decimal and hexadecimal fields have.
uint64_t field(const char* line, const char* name, bool hex) {
  for (const char* s = line; *s; ++s)
    if (starts_with(s, name) && (s == line || s[-1] == ' ' || s[-1] == '\t')) {
      s += length(name);
      while (*s == ' ') ++s;
      return hex ? scan_hex(&s) : scan_dec(&s);
    }
  return 0;
}

// A pidfd of a process that has ended and was waited for.
void note_gone(Descriptor* d) {
  const int status = ended_status(d->fd, 0);
  d->kind = kFdPidfdGone;
  d->value[0] = status < 0 ? 0 : static_cast<uint64_t>(status);
  if (status > 0 && status & 0x80)
    add_warning(
        "the process behind descriptor %d (pidfd) ended with a core dump; a restored one tells the "
        "signal alone",
        d->fd);
}

constexpr long kEpollGetParameters = 0x80088a02;  // EPIOCGPARAMS, Linux 6.9

// Does an eventfd count in ones (EFD_SEMAPHORE)? Kernels before 6.5 do not tell, but what a counter
// of two or more gives to a reader does. Every thread that could notice is parked (shared_state.h),
// and it is as before afterwards. `count`: what is in it.
bool counts_in_ones(int fd, uint64_t count) {
  constexpr int kNoWait = 8;  // RWF_NOWAIT: a process outside the job may read it as well
  constexpr uint64_t kMost = ~0ull - 1;
  auto put = [&](uint64_t n) { return !n || sys::write(fd, &n, sizeof(n)) == sizeof(n); };
  auto take = [&] {
    uint64_t n = 0;
    iovec to{&n, sizeof(n)};
    return sys::call(SYS_preadv2, fd, sys::ptr(&to), 1, -1, -1, kNoWait) == sizeof(n) ? n : 0;
  };
  const uint64_t more = count < 2 ? 2 - count : 0;
  if (count > kMost || !put(more)) return false;
  const uint64_t taken = take();
  if (taken != 1) {
    put(taken > more ? taken - more : 0);
    return false;
  }
  if (!more) put(1);
  for (uint64_t i = 1; i < more; ++i) take();
  return true;
}

}  // namespace

bool capture_anonymous(FdTable* t, Descriptor* d, const FdFacts& f, const char* what) {
  if (equal(what, "[eventfd]")) {
    d->kind = kFdEventfd;
    d->value[0] = number(f, "eventfd-count:", true);
    d->value[1] = info_line(f.info, "eventfd-semaphore:") ? number(f, "eventfd-semaphore:")
                                                          : counts_in_ones(d->fd, d->value[0]);
  } else if (equal(what, "[eventpoll]")) {
    d->kind = kFdEpoll;
    sys::call(SYS_ioctl, d->fd, kEpollGetParameters, sys::ptr(&d->value[0]));
  } else if (equal(what, "[timerfd]")) {
    d->kind = kFdTimerfd;
    d->value[0] = number(f, "clockid:");
    d->value[1] = number(f, "ticks:");
    if (const char* s = info_line(f.info, "settime flags:")) d->value[2] = scan_oct(&s);
    d->value[3] = nanoseconds(f, "it_value:");
    d->value[4] = nanoseconds(f, "it_interval:");
  } else if (equal(what, "[signalfd]")) {
    d->kind = kFdSignalfd;
    d->value[0] = number(f, "sigmask:", true);
  } else if (equal(what, "inotify") || equal(what, "[inotify]")) {
    d->kind = kFdInotify;
  } else if (equal(what, "[pidfd]")) {
    const char* s = info_line(f.info, "Pid:");
    long pid = s ? static_cast<long>(scan_signed(&s)) : 0;
    const bool alone = !(d->fd_flags & kFdInFlight) || !job_barrier.has_others();
    if (d->flags & O_EXCL /* PIDFD_THREAD */ && pid > 0)
      return t->c->refuse(
          "descriptor %d is a pidfd of thread %ld alone (PIDFD_THREAD), which cannot be put back; "
          "close it",
          d->fd, pid);
    if (pid == library.pid && alone)
      d->kind = kFdPidfdSelf;
    else if (pid == -1)
      note_gone(d);
    else if (job_barrier.has_process(static_cast<int>(pid)) && !(d->fd_flags & kFdInFlight))
      d->kind = kFdPidfd, d->value[0] = static_cast<uint64_t>(pid);
    else
      return t->c->refuse(
          "descriptor %d is a pidfd of process %ld, which is not part of the snapshot; close it, "
          "or let that process end first",
          d->fd, pid);
  } else {
    return t->c->refuse("descriptor %d is %s, which cannot be put back; close it first", d->fd,
                        what);
  }
  return true;
}

// An entry of an epoll set is a number and the description that had it then; the number may be
// closed or belong to another by now. kcmp tells which of ours it is.
bool put_epolls(FdTable* t) {
  for (size_t i = 0; i < t->count; ++i) {
    const Descriptor& d = t->all[i];
    if (d.kind != kFdEpoll || d.description != d.fd) continue;
    char line_buffer[8192];
    InfoLines lines(d.fd, line_buffer, sizeof(line_buffer));
    Epoll head{static_cast<uint32_t>(d.object), 0};
    t->r->begin(kRecEpoll);
    t->r->add(&head, sizeof(head));
    uint32_t n = 0;
    const uint64_t entries_at = t->r->size();
    bool by_own_numbers = !(d.fd_flags & kFdInFlight);
    // Which of those with its number an entry is, as kcmp counts.
    uint16_t(&with_number)[65536] = t->c->scratch->seen_in_epoll;
    __builtin_memset(with_number, 0, sizeof(with_number));
    while (char* line = lines.next()) {
      if (!starts_with(line, "tfd:")) continue;
      EpollEntry e{};
      e.fd = static_cast<int>(field(line, "tfd:", false));
      e.events = static_cast<uint32_t>(field(line, "events:", true));
      e.data = field(line, "data:", true);
      uint64_t ino = field(line, "ino:", true);
      const uint32_t nth = e.fd >= 0 && e.fd < 65536 ? with_number[e.fd]++ : 0;
      e.description = -1;
      struct {
        uint32_t epoll, target, nth;
      } slot{static_cast<uint32_t>(d.fd), static_cast<uint32_t>(e.fd), nth};
      bool compared = true;
      auto is = [&](const Descriptor& o) {
        if (o.ino != ino && ino) return false;
        long r = t->kcmp_works ? sys::call(SYS_kcmp, library.pid, library.pid, 7 /* EPOLL_TFD */,
                                           o.fd, sys::ptr(&slot))
                               : -38;
        compared &= !sys::failed(r);
        return r == 0 || (sys::failed(r) && o.fd == e.fd);
      };
      for (size_t k = 0; k < t->count && e.description < 0; ++k)
        if (t->all[k].fd == e.fd && is(t->all[k])) e.description = t->all[k].description;
      by_own_numbers &= e.description >= 0 && compared;
      for (size_t k = 0; k < t->count && e.description < 0; ++k)
        if (is(t->all[k])) e.description = t->all[k].description;
      if (job_barrier.active() && !note_watch(t, d, e, nth)) {
        if (t->c->code) return false;
        by_own_numbers = false;
        continue;  // another process of the job puts it back
      }
      if (e.description < 0)
        return t->c->refuse(
            "descriptor %d (epoll) watches something registered as %d that is open in another "
            "process only; remove it from the set",
            d.fd, e.fd);
      t->r->add(&e, sizeof(e));
      ++n;
    }
    if (by_own_numbers && !t->r->full)
      note_reported_edges(d.fd, static_cast<EpollEntry*>(t->r->at(entries_at)), n);
    t->r->end(n);
  }
  return true;
}

// Does the program have what is watched open itself?
static bool is_open(const InotifyWatch& w) {
  struct Search {
    const InotifyWatch* w;
    bool found;
  } s{&w, false};
  each_number_in("/proc/thread-self/fd", &s, [](void* context, int fd) {
    auto* search = static_cast<Search*>(context);
    struct stat own;
    search->found = !sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&own))) &&
                    own.st_ino == search->w->ino && own.st_dev == search->w->dev;
    return !search->found;
  });
  return s.found;
}

bool put_inotify(FdTable* t, const Descriptor& d) {
  int queued = 0;
  sys::call(SYS_ioctl, d.fd, 0x541B /* FIONREAD */, sys::ptr(&queued));
  if (queued) add_warning("descriptor %d (inotify) has unread events; a restore drops them", d.fd);
  char line_buffer[8192];
  InfoLines lines(d.fd, line_buffer, sizeof(line_buffer));
  while (char* line = lines.next()) {
    if (!starts_with(line, "inotify ")) continue;
    InotifyWatch w{};
    w.index = static_cast<uint32_t>(d.object);
    w.watch = static_cast<int>(field(line, "wd:", true));
    w.mask = static_cast<uint32_t>(field(line, "mask:", true));
    w.ino = field(line, "ino:", true);
    uint64_t dev = field(line, "sdev:", true);
    w.dev = makedev(dev >> 20, dev & 0xfffff);
    bool leads_there = false;
    const char* path = watched_path(w.watch, w.dev, w.ino, &leads_there);
    if (path && !leads_there && !is_open(w))
      return t->c->refuse(
          "descriptor %d (inotify) watches what was %s and goes by a name in another folder now; "
          "watch it by that name",
          d.fd, path);
    if (!path)
      return t->c->refuse(
          "descriptor %d (inotify) watches something whose name is not known; close it first",
          d.fd);
    t->r->begin(kRecWatch);
    t->r->add(&w, sizeof(w));
    t->r->add_text(path);
    t->r->end();
  }
  return true;
}

}  // namespace gpuckpt
