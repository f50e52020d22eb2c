// Regular files and folders, memfd and unlinked files with their contents, locks, files of /proc.

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <initializer_list>

#include "base/address.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/control/inherited.h"
#include "snapshot/descriptors/descriptors.h"
#include "snapshot/descriptors/half_read.h"
#include "snapshot/descriptors/hard_link.h"

namespace gpuckpt {

using namespace process;

namespace {

// "mnt:[4026531832]", when it is the process's, becomes the name by which it finds its own.
bool own_namespace(FdFacts* f) {
  size_t kind = 0;
  while (f->path[kind] && f->path[kind] != ':') ++kind;
  f->path[kind] = 0;
  char name[64];
  format(name, sizeof(name), "/proc/self/ns/%s", f->path);
  struct stat st;
  const bool own =
      !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(name), sys::ptr(&st), 0)) &&
      st.st_ino == f->st.st_ino && st.st_dev == f->st.st_dev;
  if (own) copy(f->path, sizeof(f->path), name);
  return own;
}

// The number of the process that "/proc/123/..." is about; 0: of none.
int subject_of(const char* path) {
  if (!starts_with(path, "/proc/")) return 0;
  const char* s = path + 6;
  const int pid = static_cast<int>(scan_dec(&s));
  return *s == '/' || !*s ? pid : 0;
}

// Has the process ended that a file or folder of /proc is about? Its name leads to nothing then, or
// to those of a process that has its number now.
bool is_of_ended_process(const FdFacts& f) {
  struct stat st;
  return subject_of(f.path) > 0 &&
         (sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(f.path), sys::ptr(&st),
                                AT_SYMLINK_NOFOLLOW)) ||
          st.st_ino != f.st.st_ino || st.st_dev != f.st.st_dev);
}

// Those that another ended process would have as well.
bool can_be_of_another(const char* path) {
  for (const char* s = path; *s; ++s)
    for (const char* kind : {"/fd", "/ns", "/map_files", "/net", "/cwd", "/root", "/exe"})
      if (starts_with(s, kind)) return false;
  return true;
}

constexpr long kGetWriteHint = 1035;  // F_GET_RW_HINT

void note_write_hint(Descriptor* d) {
  uint64_t hint = 0;
  if (!sys::failed(sys::call(SYS_fcntl, d->fd, kGetWriteHint, sys::ptr(&hint)))) d->value[5] = hint;
}

}  // namespace

// The type (statfs) of the file system of that device; 0: not known.
static uint32_t file_system_of(FdTable* t, int fd, uint64_t device) {
  constexpr uint32_t kKnown = sizeof(t->file_system) / sizeof(t->file_system[0]);
  for (uint32_t i = 0; i < t->file_systems && i < kKnown; ++i)
    if (t->file_system[i].device == device) return t->file_system[i].type;
  struct statfs fs;
  if (sys::failed(sys::call(SYS_fstatfs, fd, sys::ptr(&fs)))) return 0;
  const uint32_t type = static_cast<uint32_t>(fs.f_type);
  t->file_system[t->file_systems++ % kKnown] = {device, type};
  return type;
}

bool on_kernel_file_system(FdTable* t, int fd, uint64_t device) {
  switch (file_system_of(t, fd, device)) {
    case 0x9fa0:      // proc
    case 0x6e736673:  // nsfs
    case 0x62656572:  // sysfs
    case 0x64626720:  // debugfs
    case 0x74726163:  // tracefs
    case 0x63677270:  // cgroup2
    case 0x27e0eb:    // cgroup
    case 0x73636673:  // securityfs
      return true;
    default:
      return false;
  }
}

// What is written to such a file is a threshold that poll() waits for, as long as it is open.
bool is_pressure_trigger(const Descriptor& d, const char* path) {
  return (d.flags & O_ACCMODE) != O_RDONLY && !(d.flags & O_PATH) &&
         (starts_with(path, "/proc/pressure/") || ends_with(path, ".pressure"));
}

bool capture_kernel_file(FdTable* t, Descriptor* d, FdFacts* f) {
  struct statfs fs {};
  sys::call(SYS_fstatfs, d->fd, sys::ptr(&fs));
  if (static_cast<uint32_t>(fs.f_type) == 0x6e736673 /* nsfs */ && !own_namespace(f))
    return t->c->refuse("descriptor %d is a namespace (%s) that is not the process's own; close it",
                        d->fd, f->path);
  if (f->path[0] != '/')
    return t->c->refuse("descriptor %d (%s) is of a kind that cannot be put back; close it", d->fd,
                        f->path);
  if (is_pressure_trigger(*d, f->path))
    return t->c->refuse(
        "descriptor %d waits for pressure (%s, opened for writing), and the kernel does not show "
        "the threshold; close it",
        d->fd, f->path);
  d->kind = kFdKernelFile;
  if (static_cast<uint32_t>(fs.f_type) == PROC_SUPER_MAGIC && is_of_ended_process(*f)) {
    if (!can_be_of_another(f->path) || d->flags & O_PATH || d->fd_flags & kFdInFlight)
      return t->c->refuse(
          "descriptor %d (%s) is of a process that has ended, and cannot be put back; close it",
          d->fd, f->path);
    d->value[0] = static_cast<uint64_t>(subject_of(f->path));
  }
  return half_read.look_at(t, d, f->path, static_cast<uint32_t>(fs.f_type));
}

bool capture_file(FdTable* t, Descriptor* d, FdFacts* f) {
  const uint32_t type = file_system_of(t, d->fd, f->st.st_dev);
  if (S_ISREG(f->st.st_mode)) {
    if (type == 0x19800202) return capture_queue(t, d, *f);
    if (type == 0x5345434d)
      return t->c->refuse(
          "descriptor %d is secret memory (memfd_secret), which the kernel does not let be copied",
          d->fd);
  }
  // A copy under no name would be another file than the one that goes by the others.
  if (f->deleted && S_ISREG(f->st.st_mode) && f->st.st_nlink > 0 &&
      find_hard_link(f->path, sizeof(f->path), f->st, LinkSearch::kFile))
    f->deleted = false;
  if (f->deleted && S_ISREG(f->st.st_mode) && f->st.st_nlink > 0)
    return t->c->refuse(
        "the file behind descriptor %d lost the name %s and has others, in other folders; close it "
        "or name it again",
        d->fd, f->path);
  if (on_kernel_file_system(t, d->fd, f->st.st_dev)) return capture_kernel_file(t, d, f);
  if (f->path[0] != '/')
    return t->c->refuse("descriptor %d (%s) is of a kind that cannot be put back; close it", d->fd,
                        f->path);
  if (f->deleted && S_ISREG(f->st.st_mode))
    d->kind = kFdMemory;
  else
    d->kind = S_ISDIR(f->st.st_mode) ? kFdDirectory : kFdFile;
  if (d->kind == kFdDirectory) d->value[0] = f->deleted;
  if (d->kind == kFdMemory || (d->kind == kFdDirectory && f->deleted))
    put_attributes(t->c, t->r, d->fd, f->st);
  if (d->kind == kFdFile) d->value[0] = d->flags & O_APPEND && inherited_log(d->dev, d->ino);
  if (d->kind == kFdFile || d->kind == kFdMemory) note_write_hint(d);
  if (d->kind == kFdMemory) {
    long seals = sys::call(SYS_fcntl, d->fd, 1034 /* F_GET_SEALS */);
    d->value[0] = sys::failed(seals) ? 0 : static_cast<uint64_t>(seals);
    d->value[1] = starts_with(f->path, "/memfd:");
    struct statfs fs {};
    if (type == HUGETLBFS_MAGIC && !sys::failed(sys::call(SYS_fstatfs, d->fd, sys::ptr(&fs))))
      d->value[2] = static_cast<uint64_t>(__builtin_ctzll(static_cast<uint64_t>(fs.f_bsize)));
  }
  return true;
}

// Extended attributes of which only a security module decides stay behind: the file gets what the
// module gives a new one.
void put_attributes(Capture* c, Records* r, int fd, const struct stat& st) {
  char(&names)[65536] = c->scratch->attribute_names;
  char(&value)[65536] = c->scratch->attribute;
  FileAttributes a;
  __builtin_memset(&a, 0, sizeof(a));
  a.file = {st.st_dev, st.st_ino};
  a.uid = st.st_uid, a.gid = st.st_gid, a.mode = st.st_mode;
  a.access_seconds = st.st_atim.tv_sec, a.access_ns = st.st_atim.tv_nsec;
  a.change_seconds = st.st_mtim.tv_sec, a.change_ns = st.st_mtim.tv_nsec;
  char path[64];
  format(path, sizeof(path), "/proc/thread-self/fd/%d", fd);  // (O_PATH descriptors do not serve)
  const long listed =
      sys::call(SYS_listxattr, sys::ptr(path), sys::ptr(names), static_cast<long>(sizeof(names)));
  const char* end = names + (listed > 0 ? listed : 0);
  auto each = [&](auto use) {
    for (const char* name = names; name < end; name += length(name) + 1) {
      if (starts_with(name, "security.")) continue;
      const long n = sys::call(SYS_getxattr, sys::ptr(path), sys::ptr(name), sys::ptr(value),
                               static_cast<long>(sizeof(value)));
      if (n >= 0) use(name, static_cast<uint32_t>(n));
    }
  };
  each([&](const char*, uint32_t) { ++a.extended; });
  r->begin(kRecAttributes);
  r->add(&a, sizeof(a));
  each([&](const char* name, uint32_t bytes) {
    const ExtendedAttribute head{static_cast<uint32_t>(length(name)), bytes};
    r->add(&head, sizeof(head));
    r->add(name, head.name_bytes);
    r->add(value, bytes);
  });
  r->end();
}

// For SIGIO. Descriptors that were opened as O_PATH have no owner to ask for.
bool put_owner(FdTable* t, const Descriptor& d) {
  struct {
    int type, pid;
  } owner{};
  if (sys::failed(sys::call(SYS_fcntl, d.fd, 16 /* F_GETOWN_EX */, sys::ptr(&owner)))) return true;
  const long signal = sys::call(SYS_fcntl, d.fd, 11 /* F_GETSIG */);
  const uint32_t asynchronous = (d.flags & O_ASYNC) != 0;
  if (!owner.pid && signal <= 0 && !asynchronous) return true;
  struct stat st;
  if (owner.pid && !sys::failed(sys::call(SYS_fstat, d.fd, sys::ptr(&st))) && S_ISDIR(st.st_mode))
    return t->c->refuse(
        "descriptor %d is a folder that reports changes by a signal (F_NOTIFY), and the kernel "
        "does not show which changes; close it, or use inotify",
        d.fd);
  t->r->put(kRecOwner, DescriptorOwner{d.fd, owner.type, owner.pid, static_cast<int>(signal),
                                       asynchronous, 0});
  return true;
}

namespace {

// The contents of an unlinked file by a descriptor for reading. Holes are neither read nor stored.
bool put_contents(FdTable* t, const Descriptor& d, int from) {
  Capture* c = t->c;
  StoredContents stored{wire::kSpaceFileBase + 0x8000 + static_cast<uint64_t>(d.fd), 0};
  for (uint64_t at = 0; at < d.size;) {
    long data = sys::call(SYS_lseek, from, static_cast<long>(at), 3 /* SEEK_DATA */);
    if (data == -6 /* ENXIO: only a hole is left */) break;
    if (!sys::failed(data) && static_cast<uint64_t>(data) > at)
      at = page_down(static_cast<uint64_t>(data));
    long hole = sys::failed(data) ? data : sys::call(SYS_lseek, from, data, 4 /* SEEK_HOLE */);
    uint64_t end = sys::failed(hole) ? d.size : page_up(static_cast<uint64_t>(hole));
    if (end > d.size) end = d.size;
    EagerCopy* e = c->add_eager(stored.space, at, end - at);
    if (!e) return c->refuse("no memory to copy the unlinked file behind descriptor %d", d.fd);
    stored.bytes += e->length;
    for (const uint64_t start = at; at < end;) {
      long n = sys::pread(from, e->bytes + (at - start), end - at, at);
      if (n <= 0)
        return c->refuse("the unlinked file behind descriptor %d cannot be read (error %ld)", d.fd,
                         -n);
      at += static_cast<uint64_t>(n);
    }
  }
  if (stored.bytes) t->r->put(kRecContents, stored);
  return true;
}

}  // namespace

bool put_file_contents(FdTable* t) {
  for (size_t i = 0; i < t->count; ++i) {
    Descriptor& d = t->all[i];
    if (d.kind != kFdMemory || d.description != d.fd || !d.size) continue;
    bool seen = false;
    for (size_t j = 0; j < i; ++j)
      seen |= t->all[j].kind == kFdMemory && t->all[j].ino == d.ino && t->all[j].dev == d.dev;
    if (seen) continue;
    int from = d.fd;
    if ((d.flags & O_ACCMODE) == O_WRONLY || d.flags & O_PATH) {
      // Opening it would break a lease for writing, and the program would be told.
      const long lease = sys::call(SYS_fcntl, d.fd, 1025 /* F_GETLEASE */);
      char path[64];
      format(path, sizeof(path), "/proc/thread-self/fd/%d", d.fd);
      from = lease == F_WRLCK ? -1 : sys::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      if (from < 0)
        return t->c->refuse("the unlinked file behind descriptor %d cannot be read%s", d.fd,
                            lease == F_WRLCK ? ": it has a lease (F_SETLEASE)" : "");
    }
    const long flags = sys::call(SYS_fcntl, from, F_GETFL);
    sys::call(SYS_fcntl, from, F_SETFL, flags | O_NOATIME);  // (its owner may say so)
    const bool ok = put_contents(t, d, from);
    if (from != d.fd) {
      sys::close(from);
    } else {
      sys::call(SYS_fcntl, from, F_SETFL, flags);
      sys::call(SYS_lseek, from, static_cast<long>(d.offset), 0 /* SEEK_SET */);
    }
    if (!ok) return false;
  }
  return true;
}

// "lock:	1: FLOCK  ADVISORY  WRITE 123 fd:01:456 0 EOF"
bool put_file_locks(FdTable* t, const Descriptor& d, const FdFacts& f) {
  if (!info_line(f.info, "lock:")) return true;
  char buffer[1024];
  InfoLines lines(d.fd, buffer, sizeof(buffer));
  while (const char* line = lines.next()) {
    const char* s = info_line(line, "lock:");
    if (!s) continue;
    FileLock l{};
    l.fd = d.fd;
    auto word = [&] {
      while (*s == ' ') ++s;
      const char* at = s;
      while (*s && *s != ' ' && *s != '\n') ++s;
      return at;
    };
    word();  // number
    const char* kind = word();
    const char* state =
        word();  // ADVISORY; of a lease ACTIVE, or BREAKING while its holder is told
    const char* type = word();
    word(), word();  // pid, device and inode
    const char* start = word();
    const char* end = word();
    l.kind = starts_with(kind, "FLOCK")    ? kLockFlock
             : starts_with(kind, "POSIX")  ? kLockPosix
             : starts_with(kind, "OFDLCK") ? kLockOfd
             : starts_with(kind, "LEASE")  ? kLockLease + 0u
                                           : 0u;
    if (!l.kind)
      return t->c->refuse("descriptor %d (%s) has a lock of an unknown kind; release it", d.fd,
                          f.path);
    if (starts_with(state, "BREAKING"))
      return t->c->refuse_for_now("the lease on %s (descriptor %d) is about to be given up", f.path,
                                  d.fd);
    l.type = starts_with(type, "WRITE") ? F_WRLCK : F_RDLCK;
    l.start = scan_dec(&start);
    l.end = starts_with(end, "EOF") ? ~0ull : scan_dec(&end);
    const bool in_flight = d.fd_flags & kFdInFlight;
    if (in_flight && l.kind == kLockLease)
      return t->c->refuse("a file on its way in a socket (%s) has a lease; take it first", f.path);
    // Those of the description are shown by every duplicate.
    if ((l.kind == kLockPosix && !in_flight) || (l.kind != kLockPosix && d.description == d.fd))
      t->r->put(kRecFileLock, l);
  }
  return true;
}

}  // namespace gpuckpt
