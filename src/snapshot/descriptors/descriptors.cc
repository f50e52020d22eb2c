#include "snapshot/descriptors/descriptors.h"

#include <errno.h>
#include <fcntl.h>

#include <initializer_list>

#include "base/files/file_time.h"
#include "base/hash/fnv.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/half_read.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/comparison.h"
#include "snapshot/job/membership.h"
#include "snapshot/job/shared_lock.h"
#include "snapshot/memory/track.h"
#include "snapshot/process/limits.h"
#include "snapshot/process/sysv_ipc.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

// Files can have names that end as the kernel marks those of removed ones.
bool is_at(const char* path, const struct stat& file) {
  struct stat st;
  return !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&st),
                                AT_SYMLINK_NOFOLLOW)) &&
         st.st_ino == file.st_ino && st.st_dev == file.st_dev;
}

// 0, or the error.
long read_facts(ProcFolder* proc, int fd, FdFacts* f) {
  f->path[0] = f->info[0] = 0;
  f->deleted = false;
  if (const long r = sys::call(SYS_fstat, fd, sys::ptr(&f->st)); sys::failed(r)) return r;
  // Of a socket /proc tells nothing else; O_PATH opens the name of one.
  if (S_ISSOCK(f->st.st_mode) && !(sys::call(SYS_fcntl, fd, F_GETFL) & O_PATH)) return 0;
  char name[32];
  format(name, sizeof(name), "fd/%d", fd);
  const long n = proc->read_link(name, f->path, sizeof(f->path));
  if (n < 0) return n;
  f->deleted = n > 10 && equal(f->path + n - 10, " (deleted)") && !is_at(f->path, f->st);
  if (f->deleted) f->path[n - 10] = 0;
  format(name, sizeof(name), "fdinfo/%d", fd);
  if (proc->read(name, f->info, sizeof(f->info)) <= 0) f->info[0] = 0;
  return 0;
}

// fcntl(2)'s F_GETFL and F_GETFD: fdinfo shows both as one number.
void read_flags(const FdFacts& f, Descriptor* d) {
  const char* s = info_line(f.info, "flags:");
  if (!s) {
    d->flags = static_cast<uint32_t>(sys::call(SYS_fcntl, d->fd, F_GETFL));
    d->fd_flags = static_cast<uint32_t>(sys::call(SYS_fcntl, d->fd, F_GETFD));
    return;
  }
  const auto flags = static_cast<uint32_t>(scan_oct(&s));
  d->flags = flags & ~static_cast<uint32_t>(O_CLOEXEC);
  d->fd_flags = flags & O_CLOEXEC ? FD_CLOEXEC : 0;
}

bool has_path(const Descriptor& d) {
  return d.kind == kFdFile || d.kind == kFdDirectory || d.kind == kFdFifo || d.kind == kFdDevice ||
         d.kind == kFdTerminal || d.kind == kFdMemory || d.kind == kFdPath ||
         d.kind == kFdKernelFile || d.kind == kFdQueue;
}

// Would its name lead to something else? So it is with what lies in a mount that has no place (by
// open_tree, or unmounted with MNT_DETACH), that another mount hides, or in another mount
// namespace.
bool leads_elsewhere(const FdFacts& f) {
  struct stat st;
  return f.path[0] == '/' && !f.deleted &&
         !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(f.path), sys::ptr(&st),
                                AT_SYMLINK_NOFOLLOW)) &&
         (st.st_ino != f.st.st_ino || st.st_dev != f.st.st_dev);
}

// The owner of a pipe decides which users may open it by its name in /proc/PID/fd. Root's is
// what a restore by root makes.
bool put_object_owner(FdTable* t, const Descriptor& d, const struct stat& st) {
  if (d.kind != kFdPipe && d.kind != kFdSocket) return true;
  if (st.st_uid == 0 && st.st_gid == 0) return true;
  FileAttributes a;
  __builtin_memset(&a, 0, sizeof(a));
  a.file = {st.st_dev, st.st_ino};
  a.uid = st.st_uid, a.gid = st.st_gid, a.mode = st.st_mode;
  t->r->put(kRecAttributes, a);
  return true;
}

// Where a symbolic link without a name leads to. False: it cannot be read.
bool put_link_target(FdTable* t, const Descriptor& d, const struct stat& st) {
  char target[4097];
  const long n =
      sys::call(SYS_readlinkat, d.fd, sys::ptr(""), sys::ptr(target), sizeof(target) - 1);
  if (n <= 0) return false;
  target[n] = 0;
  const FileId id{st.st_dev, st.st_ino};
  t->r->begin(kRecLinkTarget);
  t->r->add(&id, sizeof(id));
  t->r->add_text(target);
  t->r->end();
  return true;
}

// A disk, or a part of one. Unlike of a file there is no telling whether it has changed since.
bool capture_block_device(FdTable* t, Descriptor* d, const FdFacts& f) {
  if (f.deleted)
    return t->c->refuse("descriptor %d is the block device %s, whose name is gone; close it first",
                        d->fd, f.path);
  d->kind = kFdDevice;
  d->value[0] = f.st.st_rdev;
  add_warning(
      "descriptor %d is the block device %s: a restore opens it again, and what the device holds "
      "is "
      "not part of the snapshot",
      d->fd, f.path);
  return true;
}

bool classify(FdTable* t, Descriptor* d, FdFacts* f) {
  const bool named = S_ISREG(f->st.st_mode) || S_ISDIR(f->st.st_mode) || (d->flags & O_PATH);
  if (named && !on_kernel_file_system(t, d->fd, f->st.st_dev) && leads_elsewhere(*f))
    return t->c->refuse(
        "descriptor %d goes by the name %s, which leads to something else (its mount has no place, "
        "is hidden by another one or belongs to another mount namespace); close it",
        d->fd, f->path);
  if (d->flags & O_PATH) {
    d->kind = kFdPath;
    if (f->deleted && S_ISREG(f->st.st_mode)) return capture_file(t, d, f);
    if (!f->deleted && on_kernel_file_system(t, d->fd, f->st.st_dev))
      return capture_kernel_file(t, d, f);
    d->value[0] = f->deleted;
    if (!f->deleted) return true;
    if (!S_ISDIR(f->st.st_mode) && !(S_ISLNK(f->st.st_mode) && put_link_target(t, *d, f->st)))
      return t->c->refuse("descriptor %d names %s, which is deleted (O_PATH); close it", d->fd,
                          f->path);
    put_attributes(t->c, t->r, d->fd, f->st);
    return true;
  }
  if (starts_with(f->path, "anon_inode:")) return capture_anonymous(t, d, *f, f->path + 11);
  switch (f->st.st_mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
      return capture_file(t, d, f);
    case S_IFIFO:
      return capture_pipe(t, d, *f) && put_object_owner(t, *d, f->st);
    case S_IFCHR:
      return capture_character_device(t, d, *f);
    case S_IFBLK:
      return capture_block_device(t, d, *f);
    case S_IFSOCK:
      if (d->fd > 2 || is_connection(d->fd))
        return capture_socket(t, d) && put_object_owner(t, *d, f->st);
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
// that is switched for a moment shows at the other number when both are the same. Every thread that
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

// kcmp's order has nothing to do with the numbers, so that the tree has depth by itself.
uint32_t FdTable::find_in_tree(uint32_t root, int fd, uint32_t** place) {
  *place = nullptr;
  for (uint32_t at = root; kcmp_works;) {
    const long r = sys::call(SYS_kcmp, library.pid, library.pid, 0 /* KCMP_FILE */, all[at].fd, fd);
    if (r == 0) return at;
    constexpr long kLess = 1, kGreater = 2;
    kcmp_works = r == kLess || r == kGreater;
    if (!kcmp_works) break;
    uint32_t* const next = r == kLess ? &branches[at].greater : &branches[at].less;
    if (!*next) {
      *place = next;
      break;
    }
    at = *next - 1;
  }
  return HashIndex::kNone;
}

uint32_t FdTable::find_or_add(const Descriptor& d) {
  const uint64_t hash = combined_hash(d.ino, d.dev);
  const uint32_t number = static_cast<uint32_t>(&d - all);
  const uint32_t root = by_inode.find(hash, [&](uint32_t k) {
    return all[k].ino == d.ino && all[k].dev == d.dev && all[k].kind == d.kind;
  });
  if (root == HashIndex::kNone) {
    by_inode.add(hash, number);
    return root;
  }
  uint32_t* place;
  const uint32_t found = find_in_tree(root, d.fd, &place);
  if (place) *place = number + 1;
  if (kcmp_works) return found;
  for (uint32_t k = 0; k < number; ++k)
    if (all[k].description == all[k].fd && all[k].kind == d.kind && same_description(all[k], d))
      return k;
  return HashIndex::kNone;
}

const Descriptor* FdTable::owner_of(int fd) {
  struct stat st;
  if (sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st)))) return nullptr;
  uint32_t found = HashIndex::kNone, *place;
  by_inode.find(combined_hash(st.st_ino, st.st_dev), [&](uint32_t k) {
    if (all[k].ino != st.st_ino || all[k].dev != st.st_dev) return false;
    found = find_in_tree(k, fd, &place);
    return found != HashIndex::kNone;
  });
  for (uint32_t k = 0; !kcmp_works && found == HashIndex::kNone && k < count; ++k)
    if (all[k].ino == st.st_ino && all[k].dev == st.st_dev && same_file(all[k].fd, fd)) found = k;
  return found == HashIndex::kNone ? nullptr : &all[found];
}

bool capture_fd(FdTable* t, int fd, uint32_t extra) {
  FdFacts f;
  if (t->proc.is(fd)) return true;
  if (device_plugin && device_plugin->driver_fd(fd)) return true;
  if (tracker.owns_fd(fd)) return true;
  const long error = read_facts(&t->proc, fd, &f);
  if (error == -EBADF) return true;  // the one that lists them
  if (error)
    return t->c->refuse(
        "descriptor %d cannot be looked at (error %ld), as a folder of a process that has ended; "
        "close it",
        fd, -error);
  if (starts_with(f.path, "/dev/nvidia")) {
    if (device_plugin && device_plugin->active()) return true;
    return t->c->refuse(
        "descriptor %d is %s, which the program opened without the CUDA driver that gpuckpt "
        "knows: what it holds on the GPU cannot be captured",
        fd, f.path);
  }
  if (t->count == FdTable::kMostDescriptors)
    return t->c->refuse("more than %u descriptors are open", FdTable::kMostDescriptors);
  Descriptor* d = &t->all[t->count];
  __builtin_memset(d, 0, sizeof(*d));
  d->fd = fd;
  d->description = fd;
  d->object = -1;
  if (const char* s = info_line(f.info, "pos:")) d->offset = scan_dec(&s);
  read_flags(f, d);
  d->fd_flags |= extra;
  d->ino = f.st.st_ino;
  d->dev = f.st.st_dev;
  d->size = static_cast<uint64_t>(f.st.st_size);
  d->mtime_ns = mtime_of(f.st);
  d->mode = f.st.st_mode;
  if (!classify(t, d, &f)) return false;

  const uint32_t first = t->find_or_add(*d);
  const bool own = first == HashIndex::kNone;
  if (!own) {
    d->description = t->all[first].description;
    d->object = t->all[first].object;
  }
  ++t->count;
  if (d->kind == kFdEpoll && own) d->object = static_cast<int>(t->epolls++);
  if (d->kind == kFdInotify && own) d->object = static_cast<int>(t->inotifies++);
  if (own && t->in_turn && !note_shared(t, *d)) return false;
  t->r->begin(kRecFd);
  t->r->add(d, sizeof(*d));
  t->r->add_text(has_path(*d) ? f.path : "");
  t->r->end();
  if (d->kind == kFdInotify && own && !put_inotify(t, *d)) return false;
  if (own && !(extra & kFdInFlight) && !put_owner(t, *d)) return false;
  return put_file_locks(t, *d, f);
}

static bool has_no_inode(const Descriptor& d) {
  return d.kind == kFdEventfd || d.kind == kFdEpoll || d.kind == kFdTimerfd ||
         d.kind == kFdSignalfd || d.kind == kFdInotify || d.kind == kFdPidfd ||
         d.kind == kFdPidfdGone;
}

// What fdinfo tells of a description, but for the time that a timer has left: the same for every
// process that has it. Of an eventfd that is its number, with kIsNumber: two different ones are two
// descriptions. Of others it can be the same by chance.
constexpr uint64_t kIsNumber = 1;
static uint64_t mark_of(const Descriptor& d) {
  if (!has_no_inode(d)) return 0;
  char buffer[8192];
  char path[64];
  format(path, sizeof(path), "/proc/thread-self/fdinfo/%d", d.fd);
  LineReader lines(path, buffer, sizeof(buffer));
  uint64_t hash = kFnvBasis;
  while (const char* line = lines.next()) {
    if (starts_with(line, "eventfd-id:")) return fnv(kFnvBasis, line, length(line)) | kIsNumber;
    if (!starts_with(line, "it_value:")) hash = fnv(hash, line, length(line));
  }
  return hash & ~kIsNumber;
}

static uint64_t hash_of(const Descriptor& d, uint64_t mark) {
  return combined_hash(d.ino, d.dev, mark & kIsNumber ? mark : uint64_t{0});
}

// Are two with the same mark the same? (Whether two pidfds of one process are makes no difference.)
static bool mark_is_proof(const Descriptor& d) {
  if (d.kind == kFdPidfd || d.kind == kFdPidfdGone) return true;
  char path[64], info[512];
  format(path, sizeof(path), "/proc/thread-self/fdinfo/%d", d.fd);
  return read_file(path, info, sizeof(info)) > 0 && info_line(info, "eventfd-id:");
}

// Of the job's descriptions, by hash_of().
static HashIndex index_of(SharedJobState* b) {
  return HashIndex(b->description_slot, SharedJobState::kDescriptionSlots);
}

// The description as another process that was first with it has noted it; null: none has. `mark`:
// its mark_of(). `doubt`: it may be that one, and no process here can tell.
static const SharedJobState::Description* noted(const Descriptor& d, uint64_t mark,
                                                bool* doubt = nullptr) {
  SharedJobState* b = job_barrier.shared_state();
  const uint32_t found = index_of(b).find(hash_of(d, mark), [&](uint32_t i) {
    const SharedJobState::Description& o = b->description[i];
    if (mark & kIsNumber && o.mark != mark) return false;
    if (o.ino != d.ino || o.dev != d.dev || o.kind != d.kind || o.flags != d.flags ||
        o.offset != d.offset || o.pid == library.pid)
      return false;
    const long r = compare_descriptors(d.fd, o.pid, o.fd);
    if (r == 0) return true;
    if (!sys::failed(r) || o.mark != mark || d.kind == kFdKernelFile) return false;
    // Where no process may call kcmp, files that look the same are taken to be the same.
    if (!mark || mark_is_proof(d)) return true;
    if (doubt) *doubt = true;
    return false;
  });
  return found == HashIndex::kNone ? nullptr : &b->description[found];
}

bool note_shared(FdTable* t, const Descriptor& d) {
  if (!job_barrier.active() || d.kind == kFdInherit || d.kind == kFdPidfdSelf ||
      (d.kind == kFdKernelFile && !S_ISREG(d.mode)))
    return true;
  SharedJobState* b = job_barrier.shared_state();
  const uint64_t mark = mark_of(d);
  bool doubt = false;
  const SharedJobState::Description* o = noted(d, mark, &doubt);
  if (!o && doubt)
    return t->c->refuse(
        "whether descriptor %d is one that another process of the job has as well could only be "
        "told by kcmp, which is forbidden here; allow it, or close the descriptor",
        d.fd);
  if (o && d.kind == kFdKernelFile) {
    add_warning(
        "descriptor %d, a file that the kernel writes (/proc, /sys), is one with descriptor %d of "
        "process %d: a restore opens it for each of them",
        d.fd, o->fd, o->pid);
    return true;
  }
  if (o) {
    if (d.kind == kFdSocket) t->socket[d.object].elsewhere = true;
    t->r->put(kRecSame, SameDescription{d.description, o->member, o->fd, 0});
    return true;
  }
  if (b->description_count == SharedJobState::kMostDescriptions)
    return t->c->refuse("the processes of the job have too many descriptors");
  index_of(b).add(hash_of(d, mark), b->description_count);
  b->description[b->description_count++] = {
      d.ino, d.dev, d.offset, d.kind, d.flags, job_barrier.number(), library.pid, d.fd, mark};
  return true;
}

bool note_watch(FdTable* t, const Descriptor& epoll, const EpollEntry& e, uint32_t nth) {
  SharedJobState* b = job_barrier.shared_state();
  const bool found = e.description >= 0;
  const SharedJobState::Description* set = noted(epoll, mark_of(epoll));
  for (uint32_t i = 0; !set && i < b->description_count; ++i)
    if (b->description[i].pid == library.pid && b->description[i].fd == epoll.fd)
      set = &b->description[i];
  const uint32_t number = set ? static_cast<uint32_t>(set - b->description) : ~0u;
  HashIndex known(b->watch_slot, SharedJobState::kWatchSlots);
  const uint64_t hash = combined_hash(number, e.fd, nth);
  const uint32_t i = known.find(hash, [&](uint32_t k) {
    return b->watch[k].set == number && b->watch[k].fd == e.fd && b->watch[k].nth == nth;
  });
  if (i != HashIndex::kNone) {
    const bool first = found && !b->watch[i].found;
    b->watch[i].found |= found;
    return first;
  }
  if (b->watch_count == SharedJobState::kMostWatches)
    return t->c->refuse("the processes of the job watch too much by epoll");
  known.add(hash, b->watch_count);
  b->watch[b->watch_count++] = {number, e.fd, nth, found, library.pid, epoll.fd};
  return found;
}

bool note_end(FdTable* t, int fd, uint32_t have, uint64_t ino, uint64_t peer, bool needed,
              bool inherited) {
  SharedJobState* b = job_barrier.active() ? job_barrier.shared_state() : nullptr;
  if (!b) return false;
  if (b->end_count == SharedJobState::kMostEnds)
    return t->c->refuse(
        "the processes of the job have more than %lu ends of pipes and Unix sockets; close some",
        SharedJobState::kMostEnds);
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
           c->refuse("%s: memory of process %d, which %s",
                     s.number & DeviceShare::kHandle ? "cuMemImportFromShareableHandle"
                                                     : "cuIpcOpenMemHandle",
                     s.pid, lives(s.pid) ? "is not part of the snapshot" : "has ended");
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

static bool note_device_shares(Capture* c, Records* r) {
  if (!device_plugin || !device_plugin->shares) return true;
  struct Notes {
    Capture* c;
    bool any;
  } notes{c, false};
  const bool ok = device_plugin->shares(&notes, [](void* context, const DeviceShare& share) {
    Notes* n = static_cast<Notes*>(context);
    n->any = true;
    return note_device_share(n->c, share);
  });
  if (ok && notes.any) put_mark(r, kRecSharesDevice);
  return ok;
}

void announce_turn() {
  if (!job_barrier.active()) return;
  SharedJobState* b = job_barrier.shared_state();
  ++(may_compare_all() ? b->strong : b->weak);
}

void skip_turn() {
  if (!job_barrier.active() || may_compare_all()) return;
  ++job_barrier.shared_state()->weak_done;
}

// Shared descriptions are looked at by one process at a time, and last by those that may compare
// them with every other process's. `round`: which of its turns it is.
static bool take_turn(uint32_t round) {
  SharedJobState* b = job_barrier.shared_state();
  uint64_t patience = sys::now_us() + 5000000;
  if (may_compare_all()) {
    while (b->weak_done < b->weak * round) {
      if (sys::now_us() > patience) return false;
      answer_comparisons(200);
    }
    patience = sys::now_us() + 5000000;
  }
  return take_shared(&b->lock, patience);
}
static void give_turn() {
  skip_turn();
  give_shared(&job_barrier.shared_state()->lock);
}

// Calls body(table) in this process's turn.
template <typename Body>
static bool in_turn(uint32_t round, Capture* c, Body body) {
  if (!job_barrier.active()) return body(c->fds);
  if (!take_turn(round))
    return c->refuse("another process of the job did not finish recording its descriptors in time");
  const bool ok = body(c->fds);
  give_turn();
  return ok;
}

// The tables lie in one piece of memory, each from a multiple of 64 on; without memory, this only
// adds up how much they take.
static uint64_t lay_out(FdTable* t, char* memory) {
  uint64_t used = 0;
  auto take = [&](uint64_t bytes) {
    char* at = memory ? memory + used : nullptr;
    used += (bytes + 63) & ~63ull;
    return at;
  };
  auto take_index = [&](uint32_t slots) {
    return HashIndex(reinterpret_cast<uint32_t*>(take(HashIndex::bytes_for(slots))), slots);
  };
  t->all = reinterpret_cast<Descriptor*>(take(FdTable::kMostDescriptors * sizeof(Descriptor)));
  t->by_inode = take_index(2 * FdTable::kMostDescriptors);
  t->branches = reinterpret_cast<FdTable::Branches*>(
      take(FdTable::kMostDescriptors * sizeof(FdTable::Branches)));
  t->socket = reinterpret_cast<FdTable::SocketSeen*>(
      take(FdTable::kMostSockets * sizeof(FdTable::SocketSeen)));
  t->pipe =
      reinterpret_cast<FdTable::PipeSeen*>(take(FdTable::kMostPipes * sizeof(FdTable::PipeSeen)));
  t->terminal = reinterpret_cast<FdTable::TerminalSeen*>(
      take(FdTable::kMostTerminals * sizeof(FdTable::TerminalSeen)));
  t->socket_by_inode = take_index(2 * FdTable::kMostSockets);
  t->listener_by_name = take_index(2 * FdTable::kMostSockets);
  t->own_connections = reinterpret_cast<ConnectionTable*>(take(sizeof(ConnectionTable)));
  return used;
}

constexpr uint64_t kTableBytes = (sizeof(FdTable) + 63) & ~63ull;

bool make_room_for_descriptors(Capture* c) {
  FdTable sizes;
  c->fd_memory = scratch_map(kTableBytes + lay_out(&sizes, nullptr));
  return static_cast<bool>(c->fd_memory);
}

static void begin_table(Capture* c, Records* r) {
  c->fds = new (c->fd_memory.data()) FdTable{};
  FdTable& t = *c->fds;
  t.c = c;
  t.r = r;
  t.outside = library.config.outside;
  t.drop_outside = t.outside == OutsideConnections::kDrop;
  lay_out(&t, c->fd_memory.data() + kTableBytes);
  t.connections =
      job_barrier.active() ? &job_barrier.shared_state()->connections : t.own_connections;
}

static bool list_all(Capture* c, FdTable* t) {
  half_read.begin_look();
  const bool listed = each_number_in("/proc/thread-self/fd", t, [](void* context, int fd) {
    FdTable* table = static_cast<FdTable*>(context);
    return capture_fd(table, fd) && !table->c->code;
  });
  if (listed && !c->code) half_read.end_look();
  if (listed || c->code) return !c->code;
  char why[256];
  const long error = sys::open("/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (!sys::failed(error)) sys::close(static_cast<int>(error));
  explain_failure(why, sizeof(why), "/proc/thread-self/fd cannot be listed", error);
  return c->refuse("%s", why);
}

static bool note_all(FdTable* t) {
  for (size_t i = 0; i < t->count; ++i)
    if (t->all[i].description == t->all[i].fd && !note_shared(t, t->all[i])) return false;
  return true;
}

// Lists the descriptors before this process's turn, where that changes nothing that another process
// could see: while the kernel compares descriptions.
static bool list_before_turn(Capture* c, FdTable* t, bool* listed) {
  constexpr long kAddressSpace = 1;  // KCMP_VM
  t->kcmp_works = sys::call(SYS_kcmp, library.pid, library.pid, kAddressSpace, 0, 0) == 0;
  *listed = job_barrier.active() && t->kcmp_works;
  if (!*listed || list_all(c, t)) return true;
  skip_turn();
  return false;
}

bool list_descriptors(Capture* c, Records* r) {
  const MoreDescriptors room;
  begin_table(c, r);
  FdTable* t = c->fds;
  t->proc.open();
  bool listed;
  const bool ok = list_before_turn(c, t, &listed) && in_turn(1, c, [&](FdTable*) {
                    t->in_turn = true;
                    return note_device_shares(c, r) && (listed ? note_all(t) : list_all(c, t)) &&
                           list_sockets(t);
                  });
  t->proc.close();
  return ok;
}

bool capture_descriptors(Capture* c, Records* r) {
  const MoreDescriptors room;
  const bool ok = in_turn(2, c, [](FdTable* t) {
    return put_sockets(t) && put_pipes(t) && put_queues(t) && put_file_contents(t) &&
           put_epolls(t) && put_terminals(t);
  });
  if (ok && !put_sysv_ipc(c, r)) return false;
  if (ok && r->full) return c->refuse("the description of the process does not fit into 96 MiB");
  return ok;
}

// Duplicates of descriptors that are on their way in messages are open until all processes of the
// job are captured, because others tell by them whether they have the same.
void release_descriptors(Capture* c) {
  if (!c->fds) return;
  FdTable& t = *c->fds;
  for (size_t i = 0; i < t.count; ++i)
    if (t.all[i].fd_flags & kFdInFlight) sys::close(t.all[i].fd);
  t.count = 0;
}

void forget_descriptors(Capture* c) {
  if (c->fds) scratch_unmap(&c->fds->options);
  c->fds = nullptr;
  scratch_unmap(&c->fd_memory);
}

}  // namespace gpuckpt
