#include "snapshot/descriptors/descriptors.h"

#include <fcntl.h>

#include "base/file_time.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/syscall.h"
#include "base/text.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/memory/track.h"
#include "snapshot/process/limits.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr size_t kMaxDescriptors = 65536;

// Files can have names that end as the kernel marks those of removed ones.
bool is_at(const char* path, const struct stat& file) {
  struct stat st;
  return !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&st),
                                AT_SYMLINK_NOFOLLOW)) &&
         st.st_ino == file.st_ino && st.st_dev == file.st_dev;
}

bool read_facts(int fd, FdFacts* f) {
  char path[64];
  format(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
  long n = sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr(path), sys::ptr(f->path),
                     static_cast<long>(sizeof(f->path) - 1));
  if (n < 0 || sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&f->st)))) return false;
  f->path[n] = 0;
  f->deleted = n > 10 && equal(f->path + n - 10, " (deleted)") && !is_at(f->path, f->st);
  if (f->deleted) f->path[n - 10] = 0;
  format(path, sizeof(path), "/proc/thread-self/fdinfo/%d", fd);
  if (read_file(path, f->info, sizeof(f->info)) <= 0) f->info[0] = 0;
  return true;
}

bool has_path(const Descriptor& d) {
  return d.kind == kFdFile || d.kind == kFdDirectory || d.kind == kFdFifo || d.kind == kFdDevice ||
         d.kind == kFdTerminal || d.kind == kFdMemory || d.kind == kFdPath ||
         d.kind == kFdKernelFile || d.kind == kFdQueue;
}

bool classify(FdTable* t, Descriptor* d, FdFacts* f) {
  if (d->flags & O_PATH) {
    d->kind = kFdPath;
    if (f->deleted && S_ISREG(f->st.st_mode)) return capture_file(t, d, f);
    d->value[0] = f->deleted;
    if (f->deleted && S_ISDIR(f->st.st_mode)) put_attributes(t->r, d->fd, f->st);
    if (f->deleted && !S_ISDIR(f->st.st_mode))
      return t->c->refuse("descriptor %d names %s, which is deleted (O_PATH); close it", d->fd,
                          f->path);
    return true;
  }
  if (starts_with(f->path, "anon_inode:")) return capture_anonymous(t, d, *f, f->path + 11);
  switch (f->st.st_mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
      return capture_file(t, d, f);
    case S_IFIFO:
      return capture_pipe(t, d, *f);
    case S_IFCHR:
      return capture_character_device(t, d, *f);
    case S_IFSOCK:
      if (d->fd > 2) return capture_socket(t, d);
      d->kind = kFdInherit;
      d->value[0] = static_cast<uint64_t>(d->fd);
      return true;
    default:
      return t->c->refuse("descriptor %d (%s) is of a kind that cannot be put back; close it",
                          d->fd, f->path);
  }
}

}  // namespace

// kcmp tells, where it is allowed; containers often forbid it. Otherwise a flag of one description
// that is switched for a moment shows at the other number when both are the same. Everybody who
// could notice is parked.
bool FdTable::same_file(int a, int b) {
  if (kcmp_works) {
    long r = sys::call(SYS_kcmp, library.pid, library.pid, 0 /* KCMP_FILE */, a, b);
    if (!sys::failed(r)) return r == 0;
    kcmp_works = false;
  }
  long before = sys::call(SYS_fcntl, a, F_GETFL);
  if (before != sys::call(SYS_fcntl, b, F_GETFL) || (before & O_PATH)) return false;
  if (sys::failed(sys::call(SYS_fcntl, a, F_SETFL, before ^ O_NONBLOCK))) return false;
  long now = sys::call(SYS_fcntl, b, F_GETFL);
  sys::call(SYS_fcntl, a, F_SETFL, before);
  return now == (before ^ O_NONBLOCK);
}

bool FdTable::same_description(const Descriptor& a, const Descriptor& b) {
  return a.ino == b.ino && a.dev == b.dev && a.flags == b.flags && a.offset == b.offset &&
         same_file(a.fd, b.fd);
}

const Descriptor* FdTable::owner_of(int fd) {
  struct stat st;
  if (sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st)))) return nullptr;
  for (size_t i = 0; i < count; ++i)
    if (all[i].description == all[i].fd && all[i].ino == st.st_ino && all[i].dev == st.st_dev &&
        same_file(all[i].fd, fd))
      return &all[i];
  return nullptr;
}

bool capture_fd(FdTable* t, int fd, uint32_t extra) {
  static FdFacts f;
  if (device_plugin && device_plugin->driver_fd(fd)) return true;
  if (tracker.owns_fd(fd)) return true;
  if (!read_facts(fd, &f)) return true;
  if (starts_with(f.path, "/dev/nvidia")) {
    if (device_plugin && device_plugin->active()) return true;
    return t->c->refuse(
        "descriptor %d is %s, which the program opened without the CUDA driver that gpuckpt "
        "knows: what it holds on the GPU cannot be captured",
        fd, f.path);
  }
  if (t->count == kMaxDescriptors)
    return t->c->refuse("more than %lu descriptors are open", kMaxDescriptors);
  Descriptor* d = &t->all[t->count];
  __builtin_memset(d, 0, sizeof(*d));
  d->fd = fd;
  d->description = fd;
  d->object = -1;
  if (const char* s = info_line(f.info, "pos:")) d->offset = scan_dec(&s);
  d->flags = static_cast<uint32_t>(sys::call(SYS_fcntl, fd, F_GETFL));
  d->fd_flags = static_cast<uint32_t>(sys::call(SYS_fcntl, fd, F_GETFD)) | extra;
  d->ino = f.st.st_ino;
  d->dev = f.st.st_dev;
  d->size = static_cast<uint64_t>(f.st.st_size);
  d->mtime_ns = mtime_of(f.st);
  d->mode = f.st.st_mode;
  if (!classify(t, d, &f)) return false;

  for (size_t i = 0; i < t->count; ++i) {
    const Descriptor& first = t->all[i];
    if (first.kind != d->kind || first.description != first.fd || !t->same_description(first, *d))
      continue;
    d->description = first.description;
    d->object = first.object;
    break;
  }
  ++t->count;
  bool own = d->description == d->fd;
  if (d->kind == kFdEpoll && own) d->object = static_cast<int>(t->epolls++);
  if (d->kind == kFdInotify && own) d->object = static_cast<int>(t->inotifies++);
  if (own && !note_shared(t, *d)) return false;
  t->r->begin(kRecFd);
  t->r->add(d, sizeof(*d));
  t->r->add_text(has_path(*d) ? f.path : "");
  t->r->end();
  if (d->kind == kFdInotify && own && !put_inotify(t, *d)) return false;
  if (own && !(extra & kFdInFlight) && !put_owner(t, *d)) return false;
  return put_file_locks(t, *d, f);
}

static bool capture_own_descriptors(Capture*, Records*);

// Duplicates of descriptors that are on their way in messages, by which other processes of the job
// tell whether they have the same: open until all are captured.
static struct InFlight {
  static constexpr size_t kMost = 8192;
  int fd[kMost];
  size_t count;
  void add(int number) {
    if (count < kMost)
      fd[count++] = number;
    else
      sys::close(number);
  }
} in_flight;

void release_descriptors() {
  for (size_t i = 0; i < in_flight.count; ++i) sys::close(in_flight.fd[i]);
  in_flight.count = 0;
}

// The description as another process that was first with it has noted it; null: nobody has.
static const SharedJobState::Description* noted(const Descriptor& d) {
  const SharedJobState* b = job_barrier.shared_state();
  for (uint32_t i = 0; i < b->description_count; ++i) {
    const SharedJobState::Description& o = b->description[i];
    if (o.ino != d.ino || o.dev != d.dev || o.kind != d.kind || o.flags != d.flags ||
        o.offset != d.offset || o.pid == library.pid)
      continue;
    // Where kcmp is not allowed, what looks the same is taken to be the same.
    long r = sys::call(SYS_kcmp, library.pid, o.pid, 0 /* KCMP_FILE */, d.fd, o.fd);
    if (sys::failed(r) || r == 0) return &o;
  }
  return nullptr;
}

bool note_shared(FdTable* t, const Descriptor& d) {
  if (!job_barrier.active() || d.kind == kFdInherit || d.kind == kFdKernelFile ||
      d.kind == kFdPidfdSelf)
    return true;
  SharedJobState* b = job_barrier.shared_state();
  if (const SharedJobState::Description* o = noted(d)) {
    if (d.kind == kFdSocket) t->socket[d.object].elsewhere = true;
    t->r->put(kRecSame, SameDescription{d.description, o->member, o->fd, 0});
    return true;
  }
  if (b->description_count == SharedJobState::kMostDescriptions)
    return t->c->refuse("the processes of the job have too many descriptors");
  b->description[b->description_count++] = {
      d.ino, d.dev, d.offset, d.kind, d.flags, job_barrier.number(), library.pid, d.fd};
  return true;
}

bool note_watch(FdTable* t, const Descriptor& epoll, const EpollEntry& e, uint32_t nth) {
  SharedJobState* b = job_barrier.shared_state();
  const bool found = e.description >= 0;
  const SharedJobState::Description* set = noted(epoll);
  for (uint32_t i = 0; !set && i < b->description_count; ++i)
    if (b->description[i].pid == library.pid && b->description[i].fd == epoll.fd)
      set = &b->description[i];
  const uint32_t number = set ? static_cast<uint32_t>(set - b->description) : ~0u;
  for (uint32_t i = 0; i < b->watch_count; ++i) {
    SharedJobState::Watch& w = b->watch[i];
    if (w.set != number || w.fd != e.fd || w.nth != nth) continue;
    const bool first = found && !w.found;
    w.found |= found;
    return first;
  }
  if (b->watch_count == SharedJobState::kMostWatches)
    return t->c->refuse("the processes of the job watch too much by epoll");
  b->watch[b->watch_count++] = {number, e.fd, nth, found, library.pid, epoll.fd};
  return found;
}

bool note_end(FdTable* t, int fd, uint32_t have, uint64_t ino, uint64_t peer, bool needed,
              bool inherited) {
  SharedJobState* b = job_barrier.active() ? job_barrier.shared_state() : nullptr;
  if (!b) return false;
  if (b->end_count == SharedJobState::kMostEnds)
    return t->c->refuse("the processes of the job have too many pipes and sockets");
  b->end[b->end_count++] = {ino, peer, have, needed, inherited, library.pid, fd};
  return true;
}

// Device memory that several processes have stays inside the snapshot, or there is none. The owner
// captures what it holds.
static bool note_device_share(Capture* c, const DeviceShare& s) {
  const SharedJobState* b = job_barrier.active() ? job_barrier.shared_state() : nullptr;
  if (s.kind == DeviceShare::kGave) {
    bool inside = b && s.pid == library.leader && job_barrier.role() == JobBarrier::Role::kMember;
    for (uint32_t i = 0; b && i < b->relative_count && !inside; ++i)
      inside = b->relative[i].pid == s.pid;
    if (inside || sys::failed(sys::call(SYS_kill, s.pid, 0))) return true;
    return c->refuse(
        "cuIpcGetMemHandle: memory shared with process %d, which is not part of the snapshot",
        s.pid);
  }
  if (!b)
    return s.kind == DeviceShare::kOffers ||
           c->refuse("%s: memory of process %d, which is not part of the snapshot",
                     s.number & DeviceShare::kHandle ? "cuMemImportFromShareableHandle"
                                                     : "cuIpcOpenMemHandle",
                     s.pid);
  if (s.kind == DeviceShare::kTook && job_barrier.late()) {
    c->refuse("process %d has just opened memory of another one", library.pid);
    c->code = kExitTimeout;  // once more
    return false;
  }
  SharedJobState* shared = job_barrier.shared_state();
  if (shared->device_memory_count == SharedJobState::kMostDeviceMemory)
    return c->refuse("the processes of the job share too many pieces of device memory");
  const int owner = s.pid ? s.pid : library.pid;
  shared->device_memory[shared->device_memory_count++] = {library.pid, owner, s.number,
                                                          s.kind == DeviceShare::kOffers};
  return true;
}

static bool note_device_shares(Capture* c) {
  return !device_plugin || !device_plugin->shares ||
         device_plugin->shares(c, [](void* context, const DeviceShare& share) {
           return note_device_share(static_cast<Capture*>(context), share);
         });
}

// Shared descriptions are looked at by one process at a time.
static bool take_turn() {
  const uint64_t patience = sys::now_us() + 5000000;
  while (job_barrier.shared_state()->lock.exchange(1)) {
    if (sys::now_us() > patience) return false;
    sys::futex_wait(&job_barrier.shared_state()->lock, 1, 1000, true);
  }
  return true;
}
static void give_turn() {
  job_barrier.shared_state()->lock = 0;
  sys::futex_wake(&job_barrier.shared_state()->lock, 1, true);
}

bool capture_descriptors(Capture* c, Records* r) {
  const MoreDescriptors room;
  if (!job_barrier.active()) return note_device_shares(c) && capture_own_descriptors(c, r);
  if (!take_turn())
    return c->refuse("another process of the job does not come to an end with its descriptors");
  const bool ok = note_device_shares(c) && capture_own_descriptors(c, r);
  give_turn();
  return ok;
}

static bool capture_own_descriptors(Capture* c, Records* r) {
  Region memory = scratch_map(kMaxDescriptors * sizeof(Descriptor));
  if (!memory) return c->refuse("no memory for the table of descriptors");
  static FdTable t;
  __builtin_memset(&t, 0, sizeof(t));
  t.c = c;
  t.r = r;
  t.all = reinterpret_cast<Descriptor*>(memory.data());
  t.kcmp_works = true;
  t.drop_outside = library.config.drop_sockets;
  bool listed = each_number_in("/proc/thread-self/fd", &t, [](void* context, int fd) {
    FdTable* table = static_cast<FdTable*>(context);
    return capture_fd(table, fd) && !table->c->code;
  });
  if (!listed && !c->code) {
    char why[256];
    const long error = sys::open("/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!sys::failed(error)) sys::close(static_cast<int>(error));
    explain_failure(why, sizeof(why), "/proc/thread-self/fd cannot be listed", error);
    c->refuse("%s", why);
  }
  // Sockets first: what is on its way in them is more to look at.
  bool ok = !c->code && put_sockets(&t) && put_pipes(&t) && put_queues(&t) &&
            put_file_contents(&t) && put_epolls(&t) && put_terminals(&t);
  for (size_t i = 0; i < t.count; ++i)
    if (t.all[i].fd_flags & kFdInFlight) in_flight.add(t.all[i].fd);
  scratch_unmap(&memory);
  if (ok && r->full) return c->refuse("the description of the process does not fit into 96 MiB");
  return ok;
}

}  // namespace gpuckpt
