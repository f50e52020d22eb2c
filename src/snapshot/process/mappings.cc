#include "snapshot/process/mappings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/address.h"
#include "base/files/file_time.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/api/api.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/hard_link.h"
#include "snapshot/job/barrier.h"
#include "snapshot/memory/huge_pages.h"
#include "snapshot/memory/mapped_object.h"
#include "snapshot/memory/track.h"
#include "snapshot/process/aio.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {

using namespace process;

namespace {

struct KnownObject {
  uint64_t dev, ino;
  uint64_t size;  // of shared memory that has a name; else all ones
  int index;
  bool shared;
  bool unreachable;  // by its name: a mapped file that is stored
  // Of shared memory without a name that the process may not open: a mapping of it, where the last
  // one of it ends, and the bytes of all.
  uint64_t mapping, end, bytes;
  uint32_t mapping_flags;
};
constexpr size_t kMostObjects = sizeof(CaptureScratch::mapped_objects) / sizeof(KnownObject);

struct Mappings {
  Capture* c;
  Records* r;
  KnownObject* known;
  size_t known_count;
  Range own[160];
  size_t own_count;
  uint64_t vvar_start, vvar_end, vdso_start, vdso_end;
  uint32_t vdso_prot;
  int files, shared_objects;
};

KnownObject* find_object(Mappings* m, uint64_t dev, uint64_t ino, bool shared) {
  for (size_t i = 0; i < m->known_count; ++i) {
    KnownObject& k = m->known[i];
    if (k.dev == dev && k.ino == ino && k.shared == shared) return &k;
  }
  return nullptr;
}

KnownObject* new_object(Mappings* m, uint64_t dev, uint64_t ino, bool shared) {
  if (m->known_count == kMostObjects) return nullptr;
  KnownObject* k = &m->known[m->known_count++];
  *k = {};
  k->dev = dev, k->ino = ino, k->shared = shared;
  k->index = shared ? m->shared_objects++ : m->files++;
  return k;
}

// The mapped file as it is now by its name. One that the name does not lead to (it was unlinked, or
// is in a folder that this process may not enter) is stored, read through the mapping.
bool put_mapped_file(Mappings* m, const MapsLine& l, const char* path, int* index) {
  const uint64_t dev = l.device();
  if (KnownObject* k = find_object(m, dev, l.ino, false)) {
    *index = k->index;
    return true;
  }
  KnownObject* k = new_object(m, dev, l.ino, false);
  if (!k) return m->c->refuse("more than %lu different files are mapped", kMostObjects);
  *index = k->index;
  MappedFile f;
  __builtin_memset(&f, 0, sizeof(f));
  f.stored_space = -1;
  f.ino = l.ino;
  f.dev = dev;
  struct stat st;
  bool found =
      !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&st), 0)) &&
      st.st_ino == l.ino;
  if (found) {
    f.size = static_cast<uint64_t>(st.st_size);
    f.mtime_ns = mtime_of(st);
    f.mode = st.st_mode;
  }
  k->unreachable = !found;
  if (!found || m->c->embedded.active()) f.stored_space = k->index;
  m->r->begin(kRecFile);
  m->r->add(&f, sizeof(f));
  m->r->add_text(path);
  m->r->end();
  return true;
}

// What mbind said, if anything.
void put_policy(Records* r, uint64_t start, uint64_t end) {
  MemoryPolicy p;
  __builtin_memset(&p, 0, sizeof(p));
  p.start = start, p.end = end;
  int mode = 0;
  if (sys::failed(sys::call(SYS_get_mempolicy, sys::ptr(&mode), sys::ptr(p.nodes), 1024,
                            static_cast<long>(start), 2 /* MPOL_F_ADDR */)) ||
      !mode)
    return;
  p.mode = static_cast<uint32_t>(mode);
  r->put(kRecPolicy, p);
}

// --self-contained: this piece of a mapped file that has a name.
bool embed(Mappings* m, const char* path, const MapsLine& l, const Vma& v) {
  struct stat st;
  if (!m->c->embedded.active() ||
      sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&st), 0)) ||
      st.st_ino != l.ino)
    return true;
  return m->c->embedded.note(v.object, path, st, v.offset, v.end - v.start) ||
         m->c->refuse(
             "more pieces of files are mapped than a snapshot can store; take it without "
             "--self-contained");
}

// Private memory whose pages are to be sent.
bool add_range(Capture* c, const MapsLine& l, const Vma& v, uint64_t start, uint64_t end) {
  HostPages& h = c->pages;
  for (uint64_t at = start; at < end;) {
    // What a mapping has grown by is not tracked yet.
    uint64_t next = end;
    const bool tracked = v.kind == kVmaAnonymous && h.smaps.has(at, &next, kSmapsTracked);
    const bool device = tracked && tracker.device_writes(at, &next);
    if (h.range_count == h.range_room)
      return c->refuse("the process has more than %zu pieces of memory to store", h.range_room);
    PumpRange& range = h.ranges[h.range_count++];
    range = {};
    range.start = at, range.end = next;
    range.readable = l.read, range.file = v.kind == kVmaFile;
    range.tracked = tracked && !device;
    at = next;
  }
  return true;
}

template <size_t Room>
bool add_to(Range (&list)[Room], size_t* count, uint64_t start, uint64_t end) {
  if (*count && list[*count - 1].end == start) {
    list[*count - 1].end = end;
    return true;
  }
  if (*count == Room) return false;
  list[(*count)++] = {start, end};
  return true;
}

// An unlinked file that is mapped: its bytes. Where it cannot be opened, as far as they can be seen
// through private mappings: pages that the process changed are in kSpaceHost as well, so other
// mappings of the same file get what this one saw.
bool put_unlinked(Mappings* m, const MapsLine& l, const Vma& v, int index) {
  return MappedObject(l, nullptr, starts_with(l.name, "/memfd:"))
      .copy(m->c, v, wire::kSpaceFileBase + static_cast<uint64_t>(index), v.offset, v.start,
            v.end - v.start, false);
}

// Of shared memory that has no size of its own to be asked for, all that is mapped is there.
void describe_object(const MapsLine& l, const char* path, const MappedObject& object,
                     SharedObject* o, uint64_t* size) {
  struct stat st;
  shmid_ds segment;
  *size = ~0ull;
  if (o->kind == kSharedSegment &&
      !sys::failed(sys::call(SYS_shmctl, static_cast<long>(l.ino), IPC_STAT, sys::ptr(&segment)))) {
    o->size = segment.shm_segsz, o->mode = segment.shm_perm.mode & (SHM_DEST | 0777);
    o->owner = segment.shm_perm.uid, o->group = segment.shm_perm.gid;
  } else if (object.stat(&st) ||
             (!sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&st), 0)) &&
              st.st_ino == l.ino)) {
    *size = o->size = static_cast<uint64_t>(st.st_size), o->mode = st.st_mode;
    o->owner = st.st_uid, o->group = st.st_gid;
  }
}

constexpr char kSharedTitle[] = "[anon_shmem:";

uint32_t protection(const MapsLine& l) {
  return (l.read ? PROT_READ : 0u) | (l.write ? PROT_WRITE : 0u) | (l.exec ? PROT_EXEC : 0u);
}

// Shared memory that was mapped by a name that is gone. When it has another one, by which others
// may come to it, that becomes the path. What can be known of its other names depends on the
// rights.
enum class OtherName { kNone, kFound, kElsewhere };
OtherName find_other_name(const MapsLine& l, char* path, size_t room) {
  struct stat st;
  const bool known = MappedObject(l, nullptr, false).stat(&st);
  if (known && st.st_nlink == 0) return OtherName::kNone;
  if (!known) {
    __builtin_memset(&st, 0, sizeof(st));
    st.st_ino = l.ino, st.st_dev = makedev(l.dev_major, l.dev_minor);
  }
  if (find_hard_link(path, room, st, known ? LinkSearch::kFile : LinkSearch::kNumber))
    return OtherName::kFound;
  return known ? OtherName::kElsewhere : OtherName::kNone;
}

bool driver_is_loaded() { return device_plugin && device_plugin->active(); }

// One mapping on its way into the snapshot: `v` is what is known of it by now.
struct Emitted {
  Mappings* m;
  const MapsLine& l;
  uint32_t flags;  // VmaFlags and SmapsFlags
  Vma v;
  char path[4096];
  bool deleted;
  uint64_t dev;

  bool refuse(const char* why) { return m->c->refuse(why, path); }
};

// What no restore could make again. False: refused.
bool can_be_made_again(Emitted* e) {
  Capture* c = e->m->c;
  if (e->flags & kSmapsDevice)
    return e->refuse(
        "%s maps memory of a device, which a restore cannot map again: unmap it before a snapshot");
  if (e->flags & kSmapsKey)
    return c->refuse("the process uses memory protection keys (pkey_mprotect) on %lx-%lx",
                     e->v.start, e->v.end);
  if (e->flags & kSmapsMissing)
    return c->refuse("the process uses userfaultfd on %lx-%lx", e->v.start, e->v.end);
  if (starts_with(e->path, "anon_inode:"))
    return e->refuse("the process maps %s, which cannot be re-created");
  if (starts_with(e->path, "/secretmem"))
    return c->refuse(
        "the process maps secret memory (memfd_secret), which the kernel does not let be copied");
  return true;
}

uint32_t shared_kind(const char* path, bool named) {
  return named ? (starts_with(path, "/dev/shm/") ? kSharedShm : kSharedFile)
         : starts_with(path, "/memfd:") ? kSharedMemfd
         : starts_with(path, "/SYSV")   ? kSharedSegment
                                        : kSharedAnonymous;
}

// The object of a shared mapping, described when it is met first. Null: refused.
KnownObject* shared_object(Emitted* e, MappedObject& object, bool named) {
  Mappings* m = e->m;
  if (KnownObject* known = find_object(m, e->dev, e->l.ino, true)) return known;
  KnownObject* k = new_object(m, e->dev, e->l.ino, true);
  if (!k) {
    m->c->refuse("more than %lu shared objects are mapped", kMostObjects);
    return nullptr;
  }
  SharedObject o;
  __builtin_memset(&o, 0, sizeof(o));
  o.index = static_cast<uint32_t>(k->index);
  o.ino = e->l.ino, o.dev = e->dev;
  o.kind = shared_kind(e->path, named);
  o.mode = 0600;
  if (e->v.flags & kVmaHugetlb) o.huge_shift = e->v.flags >> kVmaHugeShift;
  describe_object(e->l, e->path, object, &o, &k->size);
  m->r->begin(kRecShared);
  m->r->add(&o, sizeof(o));
  m->r->add_text(e->path);
  m->r->end();
  return k;
}

bool emit_shared_memory(Emitted* e, bool memory) {
  Vma& v = e->v;
  const bool named = !memory && !e->deleted;
  MappedObject object(e->l, named ? e->path : nullptr, memory);
  KnownObject* k = shared_object(e, object, named);
  if (!k) return false;
  v.kind = kVmaShared;
  v.object = k->index;
  uint64_t bytes = v.end - v.start;
  // Behind the end of a file there is nothing to read.
  if (v.offset >= k->size)
    bytes = 0;
  else if (k->size - v.offset < bytes)
    bytes = page_up(k->size - v.offset);
  const uint64_t space = wire::kSpaceSharedBase + static_cast<uint64_t>(k->index);
  const bool anonymous = memory && shared_kind(e->path, named) == kSharedAnonymous;
  const bool nameless = anonymous || (memory && shared_kind(e->path, named) == kSharedMemfd);
  if (nameless && k->size == ~0ull && !(v.flags & kVmaHugetlb)) {
    k->mapping = v.start, k->mapping_flags = v.flags;
    k->bytes += bytes;
    if (v.offset + bytes > k->end) k->end = v.offset + bytes;
  }
  // A restore makes what has no name anew, of all processes' parts; a segment or a file that is
  // there gets what the first process has of it.
  const bool once =
      job_barrier.has_others() && !named && shared_kind(e->path, named) != kSharedSegment;
  return ((!bytes || object.copy(e->m->c, v, space, v.offset, v.start, bytes, once)) &&
          (!anonymous || k->size == ~0ull || object.copy_unmapped(e->m->c, space, k->size))) ||
         e->m->c->refuse("no memory to copy shared memory %s (%lu MiB) while stopped", e->path,
                         bytes >> 20);
}

bool is_looked_at(const Capture& c, uint64_t space, uint64_t end) {
  for (uint64_t at = 0, next = end; at < end; at = next, next = end)
    if (!c.looked_at(space, at, &next)) return false;
  return true;
}

// The first page of a mapping is not locked while this lives.
class UnlockedPage {
 public:
  UnlockedPage(uint64_t at, uint32_t flags) : at_(at), flags_(flags) {
    if (flags & kVmaLocked) sys::call(SYS_munlock, static_cast<long>(at), kPage);
  }
  ~UnlockedPage() {
    constexpr long kOnFault = 1;  // MLOCK_ONFAULT
    if (flags_ & kVmaLocked)
      sys::call(SYS_mlock2, static_cast<long>(at_), kPage,
                flags_ & kVmaLockedOnFault ? kOnFault : 0);
  }
  UnlockedPage(const UnlockedPage&) = delete;
  UnlockedPage& operator=(const UnlockedPage&) = delete;

 private:
  uint64_t at_;
  uint32_t flags_;
};

// Pages of anonymous shared memory that no mapping shows, after all mappings. The process may come
// to them again (remap_file_pages). False: refused.
bool put_hidden_pages(Mappings* m) {
  for (size_t i = 0; i < m->known_count; ++i) {
    const KnownObject& k = m->known[i];
    const uint64_t space = wire::kSpaceSharedBase + static_cast<uint64_t>(k.index);
    // Mapped as a whole and once, as nearly all are, it has none, or nothing tells of them.
    if (k.bytes == k.end && is_looked_at(*m->c, space, k.end)) continue;
    bool seen;
    // Another mapping of locked memory would be locked as well, and thereby filled.
    const UnlockedPage unlocked(k.mapping, k.mapping_flags);
    if (!MappedObject::copy_hidden(m->c, space, k.mapping, k.end, k.bytes, &seen))
      return m->c->refuse("no memory to copy shared memory (%lu MiB) while stopped", k.end >> 20);
    if (!seen)
      add_warning(
          "shared memory without a name, which is mapped at %lx, has pages that no mapping shows, "
          "and may not be opened here (CAP_CHECKPOINT_RESTORE): a restore does not have them",
          k.mapping);
  }
  return true;
}

// Returns false if the snapshot is refused.
bool put_unreachable(Emitted* e) {
  const KnownObject* k = find_object(e->m, e->dev, e->l.ino, false);
  return !k->unreachable || put_unlinked(e->m, e->l, e->v, k->index) ||
         e->refuse("no memory to copy %s, to which its name does not lead");
}

bool emit_shared(Emitted* e) {
  const MapsLine& l = e->l;
  // Shared anonymous memory goes by the name that it was given (PR_SET_VMA_ANON_NAME).
  const bool memory =
      starts_with(e->path, kSharedTitle) ||
      (e->deleted && (starts_with(e->path, "/memfd:") || starts_with(e->path, "/dev/zero") ||
                      starts_with(e->path, "/SYSV") || equal(e->path, kHugeAnonymous)));
  if (starts_with(e->path, "socket:"))
    return e->refuse("the process maps the ring of a packet socket");
  // What maps /dev/zero shared may write (that is memory), or not: then it is zeros for ever.
  const bool zeros = equal(e->path, "/dev/zero") && !l.write;
  if (starts_with(e->path, "/dev/") && !memory && !zeros && !starts_with(e->path, "/dev/shm/"))
    return e->refuse("the process maps the device %s");
  if (e->deleted && !memory && !find_object(e->m, e->dev, l.ino, true)) {
    const OtherName other = find_other_name(l, e->path, sizeof(e->path));
    if (other == OtherName::kElsewhere)
      return e->refuse(
          "the file that is mapped shared as %s lost this name and has others, in other folders; "
          "unmap it or name it again");
    e->deleted = other != OtherName::kFound;
  }
  if (memory || e->deleted || l.write) return emit_shared_memory(e, memory);
  e->v.kind = kVmaFileShared;
  return put_mapped_file(e->m, l, e->path, &e->v.object) && embed(e->m, e->path, l, e->v) &&
         put_unreachable(e);
}

bool emit_private_file(Emitted* e) {
  e->v.kind = kVmaFile;
  if (!put_mapped_file(e->m, e->l, e->path, &e->v.object) || !embed(e->m, e->path, e->l, e->v))
    return false;
  return put_unreachable(e);
}

void become_placeholder(Vma* v) {
  v->kind = kVmaPlaceholder;
  v->prot = 0;
}

// A newline in the name of a mapped file is \012 in /proc/self/maps, where nothing else is escaped:
// a name in which these four characters stand for themselves is the one that leads to the file.
void put_newlines_back(char* path, uint64_t ino) {
  constexpr char kNewline[] = "\\012";
  bool escaped = false;
  for (const char* p = path; *p && !escaped; ++p) escaped = starts_with(p, kNewline);
  struct stat st;
  if (!escaped || (!sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&st),
                                          AT_SYMLINK_NOFOLLOW)) &&
                   st.st_ino == ino))
    return;
  char* to = path;
  for (const char* p = path; *p; ++to) {
    const bool newline = starts_with(p, kNewline);
    *to = newline ? '\n' : *p;
    p += newline ? sizeof(kNewline) - 1 : 1;
  }
  *to = 0;
}

// Finds out what kind of mapping it is, and describes what it maps. False: refused.
bool emit_kind(Emitted* e, bool skip) {
  if (skip || ((e->flags & kSmapsDevice) && driver_is_loaded())) {
    become_placeholder(&e->v);
    return true;
  }
  if (!can_be_made_again(e)) return false;
  if (equal(e->l.name, kAioRing)) {
    become_placeholder(&e->v);
    return capture_aio(e->m->c, e->m->r, e->v.start, e->v.end);
  }
  if (e->l.shared && e->l.object) return emit_shared(e);
  if (e->l.object && !(e->deleted && equal(e->path, kHugeAnonymous))) return emit_private_file(e);
  e->v.kind = kVmaAnonymous;
  e->v.offset = 0;
  return true;
}

// Which pages of it are captured, and how. False: refused.
bool emit_pages(const Emitted& e) {
  Capture* c = e.m->c;
  const Vma& v = e.v;
  if (v.flags & kVmaHugetlb && !e.l.shared) {
    return capture_private_pages(c, v) &&
           ((e.flags & kVmaDontFork) ||
            add_to(c->keep_from_clone, &c->keep_from_clone_count, v.start, v.end) ||
            c->refuse("the process has more than %zu private mappings of huge pages: map fewer, "
                      "larger ones",
                      c->keep_from_clone_count));
  }
  // A clone would not have it (MADV_WIPEONFORK, which cannot be taken from it).
  if (v.flags & kVmaDroppable) return capture_private_pages(c, v);
  if (v.kind != kVmaAnonymous && v.kind != kVmaFile) return true;
  uint64_t at = v.start;
  Range out;
  for (; v.kind == kVmaAnonymous && e.flags & kVmaDontDump && next_excluded(at, v.end, &out);
       at = out.end)
    if (out.start > at && !add_range(c, e.l, v, at, out.start)) return false;
  if (at < v.end && !add_range(c, e.l, v, at, v.end)) return false;
  if ((e.flags & kVmaDontFork) && !add_to(c->dont_fork, &c->dont_fork_count, v.start, v.end))
    return c->refuse(
        "the process has more than %zu mappings with MADV_DONTFORK: advise fewer, larger ranges",
        c->dont_fork_count);
  if ((e.flags & kVmaWipeOnFork) &&
      !add_to(c->wipe_on_fork, &c->wipe_on_fork_count, v.start, v.end))
    return c->refuse(
        "the process has more than %zu mappings with MADV_WIPEONFORK: advise fewer, larger ranges",
        c->wipe_on_fork_count);
  return true;
}

// Guard pages of a shared mapping hide what the object has behind them: they are away while it is
// copied, when every thread that could notice is parked.
class LiftedGuards {
 public:
  LiftedGuards(HostPages* pages, uint64_t start, uint64_t end)
      : pages_(pages), first_(pages->guards.count) {
    pages_->find_guards(start, end);
    advise(kRemove);
  }
  ~LiftedGuards() { advise(kInstall); }
  LiftedGuards(const LiftedGuards&) = delete;
  LiftedGuards& operator=(const LiftedGuards&) = delete;

 private:
  static constexpr long kInstall = 102, kRemove = 103;  // MADV_GUARD_*
  void advise(long what) {
    for (uint32_t i = first_; i < pages_->guards.count; ++i) {
      const PageRegion& g = pages_->guards.at[i];
      sys::call(SYS_madvise, static_cast<long>(g.start), static_cast<long>(g.end - g.start), what);
    }
  }
  HostPages* pages_;
  uint32_t first_;
};

// `skip`: it is the driver's, and dies with the process.
bool emit(Mappings* m, const MapsLine& l, uint64_t start, uint64_t end, uint32_t flags, bool skip) {
  Emitted e{
      .m = m, .l = l, .flags = flags, .v = {}, .path = {}, .deleted = false, .dev = l.device()};
  e.v.start = start, e.v.end = end;
  e.v.offset = l.offset + (start - l.start);
  e.v.prot = protection(l);
  e.v.flags = flags & kVmaAllFlags;
  e.v.object = -1;
  if (flags & kSmapsHugetlb) e.v.flags |= kVmaHugetlb | (flags >> kSmapsHugeShift) << kVmaHugeShift;
  copy(e.path, sizeof(e.path), l.name);
  put_newlines_back(e.path, l.ino);
  e.deleted = ends_with(e.path, " (deleted)");
  if (e.deleted) e.path[length(e.path) - 10] = 0;
  {
    const bool shared = l.shared && l.object && !skip;
    const LiftedGuards guards(&m->c->pages, start, shared ? end : start);
    if (!emit_kind(&e, skip)) return false;
  }
  m->r->begin(kRecVma);
  m->r->add(&e.v, sizeof(e.v));
  m->r->add_text(l.object ? e.path : l.name);
  m->r->end();
  ++m->c->mappings;
  if (flags & kSmapsPolicy) put_policy(m->r, start, end);
  return emit_pages(e);
}

// The driver's memory and the program's can lie in one mapping.
bool emit(Mappings* m, const MapsLine& l, uint64_t start, uint64_t end, uint32_t flags) {
  for (uint64_t until; start < end; start = until) {
    until = end;
    const bool skip = device_plugin &&
                      device_plugin->classify(start, end, &until) == DevicePlugin::Mapping::kSkip;
    if (!emit(m, l, start, until, flags, skip)) return false;
  }
  return true;
}

}  // namespace

bool put_mappings(Capture* c, Records* r) {
  Mappings m{};
  m.c = c;
  m.r = r;
  m.known = reinterpret_cast<KnownObject*>(c->scratch->mapped_objects);

  LineReader lines("/proc/thread-self/maps", c->scratch->lines, sizeof(c->scratch->lines));
  bool ok = lines.ok() || c->refuse("/proc/self/maps cannot be read");
  uint64_t listed = 0;
  while (char* line = ok ? lines.next() : nullptr) {
    MapsLine l;
    if (!parse_maps_line(line, &l) || l.end <= listed) continue;
    // The file is read in pieces, and we map memory between them: when the kernel merges a guard
    // page of ours with the mapping before it, that mapping is listed once more.
    if (l.start < listed) {
      l.offset += listed - l.start;
      l.start = listed;
    }
    listed = l.end;
    if (starts_with(l.name, "[vvar")) {
      if (!m.vvar_start) m.vvar_start = l.start;
      m.vvar_end = l.end;
      continue;
    }
    if (equal(l.name, "[vdso]")) {
      m.vdso_start = l.start, m.vdso_end = l.end;
      m.vdso_prot = protection(l);
      continue;
    }
    if (equal(l.name, "[vsyscall]")) continue;
    if (ok && device_plugin && device_plugin->foreign(l))
      ok = c->refuse(
          "%s is a CUDA driver that the program loaded past gpuckpt (dlmopen, RTLD_DEEPBIND, a "
          "copy "
          "of the file): what it holds on the GPU cannot be captured; have the program open "
          "libcuda.so.1 by dlopen or link to it",
          l.name);
    if (l.object && !c->pages.knows(l.start) &&
        (ends_with(l.name, " (deleted)") || in_huge_pages(l.name)))
      c->pages.now.read();  // it came meanwhile, and may be of the huge page pool
    uint32_t flags = c->pages.flags(l.start);
    if (!c->pages.smaps.has_range(l.start, l.end)) flags |= kSmapsPolicy;  // it may have one now
    uint64_t at = l.start;
    m.own_count = scratch_ranges(m.own, 160);  // eager copies of this very pass appear on the way
    for (size_t i = 0; ok && i < m.own_count && at < l.end; ++i) {
      const Range& o = m.own[i];
      if (o.end <= at || o.start >= l.end) continue;
      if (o.start > at) ok = emit(&m, l, at, o.start, flags);
      at = o.end;
    }
    if (ok && at < l.end) ok = emit(&m, l, at, l.end, flags);
  }
  ok = ok && put_hidden_pages(&m);
  if (!ok) return false;
  Vdso v{m.vvar_start, m.vvar_end, m.vdso_start, m.vdso_end, m.vdso_prot, 0};
  r->begin(kRecVdso);
  r->add(&v, sizeof(v));
  r->add(reinterpret_cast<const void*>(m.vdso_start), m.vdso_end - m.vdso_start);
  r->end();
  return true;
}

}  // namespace gpuckpt
