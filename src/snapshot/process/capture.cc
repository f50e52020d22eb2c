#include "snapshot/process/capture.h"

#include <cpuid.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include "base/address.h"
#include "base/file_time.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/syscall.h"
#include "base/text.h"
#include "gpuckpt/exit_codes.h"
#include "gpuckpt/wire.h"
#include "snapshot/api/api.h"
#include "snapshot/api/device_plugin.h"
#include "snapshot/control/inherited.h"
#include "snapshot/control/state.h"
#include "snapshot/descriptors/descriptors.h"
#include "snapshot/descriptors/hard_link.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/membership.h"
#include "snapshot/memory/huge_pages.h"
#include "snapshot/memory/mapped_object.h"
#include "snapshot/memory/track.h"
#include "snapshot/park/park.h"
#include "snapshot/process/aio.h"
#include "snapshot/process/process_state.h"
#include "snapshot/process/refused_state.h"

extern "C" void gpuckpt_restore_entry(void* plan) __attribute__((visibility("hidden")));

namespace gpuckpt {

using namespace process;

// --- records
// ---------------------------------------------------------------------------------------------------------

void* Records::begin(RecordType type, uint32_t count) {
  head_ = used_;
  RecordHead h{type, count, 0};
  add(&h, sizeof(h));
  return memory_.data() + used_;
}

void Records::add(const void* bytes, uint64_t n) {
  if (void* room = reserve(n)) __builtin_memcpy(room, bytes, n);
}

void* Records::reserve(uint64_t n) {
  if (memory_.bytes - used_ < n + 16) {
    full = true;
    return nullptr;
  }
  used_ += n;
  return memory_.data() + used_ - n;
}

void Records::add_text(const char* s) { add(s, length(s) + 1); }

void Records::end() {
  if (full) return;
  RecordHead* h = reinterpret_cast<RecordHead*>(memory_.data() + head_);
  h->bytes = used_ - head_ - sizeof(RecordHead);
  while (used_ & 7) memory_.data()[used_++] = 0;
}

void Records::end(uint32_t count) {
  if (!full) reinterpret_cast<RecordHead*>(memory_.data() + head_)->count = count;
  end();
}

// Many small pieces share a mapping; what is not used of it costs nothing.
EagerCopy* Capture::add_eager(uint64_t space, uint64_t address, uint64_t bytes) {
  constexpr uint64_t kChunk = 256 << 20, kHugePage = 2 << 20;
  const uint64_t whole = page_up(bytes);
  if (eager_count == kEagerRoom || whole > eager_left) return nullptr;
  if (!eager_chunks || eager_chunk[eager_chunks - 1].bytes - eager_used < whole) {
    if (eager_chunks == sizeof(eager_chunk) / sizeof(eager_chunk[0])) return nullptr;
    eager_chunk[eager_chunks] = scratch_map(whole > kChunk ? whole : kChunk);
    if (!eager_chunk[eager_chunks]) return nullptr;
    ++eager_chunks;
    eager_used = 0;
  }
  eager_left -= whole;
  EagerCopy* e = &eager[eager_count++];
  *e = {space, address, whole, eager_chunk[eager_chunks - 1].data() + eager_used};
  // It is filled while everybody stands: a fault for each page would take most of that time.
  if (whole >= kHugePage)
    sys::call(SYS_madvise, sys::ptr(e->bytes), static_cast<long>(whole), MADV_HUGEPAGE);
  eager_used += whole;
  return e;
}

bool Capture::add_hole(uint64_t space, uint64_t address, uint64_t bytes) {
  EagerCopy* last = eager_count ? &eager[eager_count - 1] : nullptr;
  if (last && last->space == space && !last->bytes && last->address + last->length == address) {
    last->length += bytes;
    return true;
  }
  if (eager_count == kEagerRoom) return false;
  eager[eager_count++] = {space, address, bytes, nullptr};
  return true;
}

bool Capture::looked_at(uint64_t space, uint64_t at, uint64_t* end) const {
  for (size_t i = 0; i < piece_count; ++i) {
    const SpacePiece& p = piece[i];
    if (p.space != space) continue;
    if (p.start <= at && at < p.end) {
      if (p.end < *end) *end = p.end;
      return true;
    }
    if (p.start > at && p.start < *end) *end = p.start;
  }
  return false;
}

bool Capture::note_looked_at(uint64_t space, uint64_t start, uint64_t end) {
  SpacePiece* last = piece_count ? &piece[piece_count - 1] : nullptr;
  if (last && last->space == space && last->end == start) {
    last->end = end;
    return true;
  }
  if (piece_count == kPieceRoom) return false;
  piece[piece_count++] = {space, start, end};
  return true;
}

namespace {

// --- small parts
// -------------------------------------------------------------------------------------------------------

void put_file(Records* r, RecordType type, const char* path) {
  char buffer[16384];
  int fd = sys::open(path, O_RDONLY | O_CLOEXEC);
  r->begin(type);
  for (long n; fd >= 0 && (n = sys::read(fd, buffer, sizeof(buffer))) > 0;) r->add(buffer, n);
  r->end();
  if (fd >= 0) sys::close(fd);
}

void put_link(Records* r, RecordType type, const char* link) {
  char path[4096 + 1];
  long n = sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr(link), sys::ptr(path), 4096);
  path[n > 0 ? n : 0] = 0;
  r->begin(type);
  r->add_text(path);
  r->end();
}

bool put_cwd(Capture* c, Records* r) {
  struct stat here, named;
  char path[4096 + 16];
  constexpr char kGone[] = " (deleted)";
  const long link =
      sys::call(SYS_readlinkat, AT_FDCWD, sys::ptr("/proc/thread-self/cwd"), sys::ptr(path), 4096);
  path[link > 0 ? link : 0] = 0;
  const long looked = sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr("."), sys::ptr(&here), 0);
  const bool found = !sys::failed(looked);
  const size_t tail = sizeof(kGone) - 1;
  const bool gone = found && here.st_nlink == 0 && path[0] == '/' && length(path) > tail &&
                    equal(path + length(path) - tail, kGone);
  if (gone) path[length(path) - tail] = 0;
  r->begin(kRecCwd);
  r->add_text(path);
  r->end();
  if (gone) {
    r->put(kRecCwdGone, FileId{here.st_dev, here.st_ino});
    const int fd = sys::open(".", O_PATH | O_CLOEXEC);
    put_attributes(c, r, fd, here);
    if (fd >= 0) sys::close(fd);
    return true;
  }
  long n = sys::call(SYS_getcwd, sys::ptr(path), sizeof(path));
  const bool reachable = n > 0 && path[0] == '/';
  const long known =
      found ? sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&named), 0) : looked;
  if (reachable && known == 0 && here.st_ino == named.st_ino) return true;
  // A process that has dropped its rights may stand in a folder into which it may not look. That
  // the folder is under its root folder is the kernel's word.
  if (reachable && known == -EACCES) return true;
  return c->refuse(
      "the working directory of the process cannot be reached from its root folder; have the "
      "program change to another one");
}

void put_terminal(Head* h) {
  ProcStat stat;
  if (h->sid != h->pid || !read_stat("/proc/thread-self/stat", &stat)) return;
  h->terminal = stat.pseudo_terminal();
  if (h->terminal) h->foreground = stat.number(ProcStat::kForeground);
}

// Newer than the headers of some machines this is built on.
constexpr int kGetMdwe = 66, kGetMemoryMerge = 68;

// Before Linux 6.3 nobody can be asked; one registration too many costs a little and breaks
// nothing.
constexpr int kMembarrierGetRegistrations = 1 << 9;
constexpr uint32_t kMembarrierAny = MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED |
                                    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED |
                                    MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;

constexpr long kSharedFiles = 2, kSharedPlace = 3;  // KCMP_*
bool share(int a, int b, long kind) { return sys::call(SYS_kcmp, a, b, kind, 0, 0) == 0; }

// What processes without common memory may have in common. `shares_place`: with its parent, to
// which a restore gives it. Those who share a working directory and have no such parent must be
// one.
bool check_sharing(Capture* c, const Head& h, bool* shares_place) {
  *shares_place = h.ppid && job_barrier.has_process(h.ppid) && share(h.ppid, h.pid, kSharedPlace);
  if (!job_barrier.active()) return true;
  const SharedJobState* b = job_barrier.shared_state();
  for (uint32_t i = 0; i < b->relative_count; ++i) {
    const SharedJobState::OtherProcess& other = b->relative[i];
    if (other.ended || other.pid == h.pid) continue;
    if (share(other.pid, h.pid, kSharedFiles))
      return c->refuse(
          "processes %d and %d of the job have their table of descriptors in common "
          "(clone(CLONE_FILES)), which a restore cannot give them",
          h.pid, other.pid);
    if (!*shares_place && share(other.pid, h.pid, kSharedPlace) &&
        !share(other.ppid, other.pid, kSharedPlace))
      return c->refuse(
          "processes %d and %d of the job have their working directory in common "
          "(clone(CLONE_FS)), and neither has it from its parent",
          h.pid, other.pid);
  }
  return true;
}

bool put_head(Capture* c, Records* r, bool device_present) {
  Head h;
  __builtin_memset(&h, 0, sizeof(h));
  h.magic = kFormatMagic;
  h.version = kFormatVersion;
  h.generation = library.generation;
  h.pid = library.pid;
  h.host_pid = library.host_pid;
  h.host_start_time = host_start_time();
  h.pgid = static_cast<int>(sys::call(SYS_getpgid, 0));
  h.sid = static_cast<int>(sys::call(SYS_getsid, 0));
  char text[4096];
  // Not /proc/self: a leader that ended by pthread_exit is a zombie without memory to look at.
  if (read_file("/proc/thread-self/status", text, sizeof(text)) <= 0)
    return c->refuse("/proc/self/status cannot be read; is /proc mounted?");
  const char* s = status_field(text, "Uid:");
  for (uint32_t& v : h.uid) v = static_cast<uint32_t>(scan_dec(&s)), s += *s == '\t';
  s = status_field(text, "Gid:");
  for (uint32_t& v : h.gid) v = static_cast<uint32_t>(scan_dec(&s)), s += *s == '\t';
  s = status_field(text, "Umask:");
  for (h.umask = 0; *s >= '0' && *s <= '7'; ++s)
    h.umask = h.umask * 8 + static_cast<uint32_t>(*s - '0');
  s = status_field(text, "Seccomp:");
  h.seccomp = static_cast<uint32_t>(scan_dec(&s));
  if (has_own_filter(text))
    return c->refuse(
        "the process has set a system call filter (seccomp), which cannot be read back");
  char moved[192];
  if (moved_place(moved, sizeof(moved)))
    return c->refuse("the process has changed its %s since it started", moved);
  if (!check_rare_process_state(c)) return false;
  s = status_field(text, "CapEff:");
  h.cap_effective = scan_hex(&s);
  if (!starts_with(status_field(text, "x86_Thread_features:"), "0") &&
      starts_with(status_field(text, "x86_Thread_features:"), "shstk"))
    return c->refuse(
        "the process uses shadow stacks (GLIBC_TUNABLES=glibc.cpu.x86_shstk=off turns them off)");
  h.personality = static_cast<uint32_t>(sys::call(SYS_personality, 0xffffffff));
  h.monotonic_us = sys::now_us(1);
  h.boottime_us = sys::now_us(7);
  h.realtime_us = sys::now_us(0);
  long n = read_file("/proc/sys/kernel/random/boot_id", h.boot_id, sizeof(h.boot_id));
  if (n > 0 && h.boot_id[n - 1] == '\n') h.boot_id[n - 1] = 0;
  struct utsname name;
  if (!sys::failed(sys::call(SYS_uname, sys::ptr(&name)))) {
    copy(h.kernel, sizeof(h.kernel), name.release);
    copy(h.host, sizeof(h.host), name.nodename);
  }
  h.rseq_offset = library.rseq_offset;
  h.rseq_size = library.rseq_size;
  h.dumpable = static_cast<int>(sys::call(SYS_prctl, PR_GET_DUMPABLE));
  h.restore_entry = reinterpret_cast<uint64_t>(&gpuckpt_restore_entry);
  h.restore_stack = restore_stack_top();
  h.device_present = device_present;
  h.ppid = job_barrier.active() ? static_cast<int>(sys::call(SYS_getppid)) : 0;
  if (h.ppid && job_barrier.has_process(h.ppid) && !check_exit_signal(c, h.pid)) return false;
  sys::call(SYS_prctl, PR_GET_CHILD_SUBREAPER, sys::ptr(&h.subreaper));
  h.thp_disable = static_cast<int>(sys::call(SYS_prctl, PR_GET_THP_DISABLE));
  auto state_of = [](long option, long argument) {
    const long value = sys::call(SYS_prctl, option, argument, 0, 0, 0);
    return sys::failed(value) ? 0 : static_cast<int>(value);
  };
  h.memory_failure = state_of(PR_MCE_KILL_GET, 0);
  h.memory_merge = state_of(kGetMemoryMerge, 0);
  h.deny_write_exec = state_of(kGetMdwe, 0);
  h.store_bypass = state_of(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS);
  h.indirect_branch = state_of(PR_GET_SPECULATION_CTRL, PR_SPEC_INDIRECT_BRANCH);
  n = read_file("/proc/self/coredump_filter", text, sizeof(text));
  s = text;
  h.coredump_filter = n > 0 ? static_cast<uint32_t>(scan_hex(&s)) : 0;
  const long registered = sys::call(SYS_membarrier, kMembarrierGetRegistrations, 0, 0);
  h.membarrier = sys::failed(registered) ? kMembarrierAny : static_cast<uint32_t>(registered);
  n = read_file("/proc/self/oom_score_adj", text, sizeof(text));
  s = text;
  h.oom_score_adj = n > 0 ? static_cast<int>(scan_signed(&s)) : 0;
  put_terminal(&h);
  r->put(kRecHead, h);
  if (h.sid > 0 && h.sid != h.pid && !lives(h.sid) && !job_barrier.has_process(h.sid)) {
    r->begin(kRecLeaderless);
    r->end();
  }

  bool shares_place;
  if (!check_sharing(c, h, &shares_place)) return false;
  if (shares_place) {
    r->begin(kRecSharesPlace);
    r->end();
  }

  uint32_t groups[1024];
  long count = sys::call(SYS_getgroups, 1024, sys::ptr(groups));
  r->begin(kRecGroups, count > 0 ? static_cast<uint32_t>(count) : 0);
  if (count > 0) r->add(groups, static_cast<uint64_t>(count) * 4);
  r->end();
  return true;
}

void put_mm(Records* r) {
  Mm mm;
  __builtin_memset(&mm, 0, sizeof(mm));
  if (ProcStat stat; read_stat("/proc/thread-self/stat", &stat)) {
    const auto& value = stat.field;
    mm.start_code = value[26], mm.end_code = value[27], mm.start_stack = value[28];
    mm.start_data = value[45], mm.end_data = value[46], mm.start_brk = value[47];
    mm.arg_start = value[48], mm.arg_end = value[49], mm.env_start = value[50],
    mm.env_end = value[51];
  }
  mm.brk = static_cast<uint64_t>(sys::call(SYS_brk, 0));
  r->put(kRecMm, mm);
}

uint64_t locked_kib() {
  char status[4096];
  if (read_file("/proc/thread-self/status", status, sizeof(status)) <= 0) return 0;
  const char* s = status_field(status, "VmLck:");
  while (*s == ' ') ++s;
  return scan_dec(&s);
}

// mlockall(MCL_FUTURE), of which nothing tells but a new mapping.
void put_future_locks(Records* r) {
  const uint64_t before = locked_kib();
  Region probe = scratch_map(4096);
  if (!probe) return;
  if (locked_kib() > before) {
    uint8_t present = 0;
    sys::call(SYS_mincore, static_cast<long>(probe.start), 4096, sys::ptr(&present));
    const uint32_t how = MCL_FUTURE | (present & 1 ? 0 : MCL_ONFAULT);
    r->put(kRecFutureLocks, how);
  }
  scratch_unmap(&probe);
}

void put_cpu(Records* r) {
  static const uint32_t leaves[][2] = {
      {0, 0},          {1, 0},          {7, 0},         {7, 1},          {0xd, 0},
      {0xd, 1},        {0xd, 2},        {0xd, 5},       {0xd, 6},        {0xd, 7},
      {0xd, 9},        {0xd, 17},       {0xd, 18},      {0x80000000, 0}, {0x80000001, 0},
      {0x80000002, 0}, {0x80000003, 0}, {0x80000004, 0}};
  constexpr uint32_t n = sizeof(leaves) / sizeof(leaves[0]);
  r->begin(kRecCpu, n + 1);
  for (const auto& l : leaves) {
    Cpuid c{l[0], l[1], 0, 0, 0, 0};
    __cpuid_count(c.leaf, c.subleaf, c.eax, c.ebx, c.ecx, c.edx);
    r->add(&c, sizeof(c));
  }
  // XCR0 under a number cpuid does not have.
  Cpuid x{0xffff0000, 0, 0, 0, 0, 0};
  asm("xgetbv" : "=a"(x.eax), "=d"(x.edx) : "c"(0));
  r->add(&x, sizeof(x));
  r->end();
}

// --- mappings
// ----------------------------------------------------------------------------------------------------------

struct KnownObject {
  uint64_t dev, ino;
  uint64_t size;  // of shared memory that has a name; else all ones
  int index;
  bool shared;
};

struct Mappings {
  Capture* c;
  Records* r;
  KnownObject* known;
  size_t known_count, known_room;
  Range own[160];
  size_t own_count;
  uint64_t vvar_start, vvar_end, vdso_start, vdso_end;
  uint32_t vdso_prot;
  int files, shared_objects;
};

bool ends_with(const char* s, const char* tail) {
  size_t n = length(s), t = length(tail);
  return n >= t && equal(s + n - t, tail);
}

KnownObject* find_object(Mappings* m, uint64_t dev, uint64_t ino, bool shared) {
  for (size_t i = 0; i < m->known_count; ++i) {
    KnownObject& k = m->known[i];
    if (k.dev == dev && k.ino == ino && k.shared == shared) return &k;
  }
  return nullptr;
}

KnownObject* new_object(Mappings* m, uint64_t dev, uint64_t ino, bool shared) {
  if (m->known_count == m->known_room) return nullptr;
  KnownObject* k = &m->known[m->known_count++];
  *k = {dev, ino, 0, shared ? m->shared_objects++ : m->files++, shared};
  return k;
}

// The mapped file as it is now by its name. An unlinked one is stored whole, read through the
// mapping.
bool put_mapped_file(Mappings* m, const MapsLine& l, const char* path, int* index) {
  uint64_t dev = (l.dev_major << 32) | l.dev_minor;
  if (KnownObject* k = find_object(m, dev, l.ino, false)) {
    *index = k->index;
    return true;
  }
  KnownObject* k = new_object(m, dev, l.ino, false);
  if (!k) return m->c->refuse("more than %lu different files are mapped", m->known_room);
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
  if (!found || m->c->embedded.active()) f.stored_space = k->index;
  m->r->begin(kRecFile);
  m->r->add(&f, sizeof(f));
  m->r->add_text(path);
  m->r->end();
  return true;
}

void put_policy(Records* r, uint64_t start, uint64_t end) {
  MemoryPolicy p;
  __builtin_memset(&p, 0, sizeof(p));
  p.start = start, p.end = end;
  int mode = 0;
  if (sys::failed(sys::call(SYS_get_mempolicy, sys::ptr(&mode), sys::ptr(p.nodes), 1024,
                            static_cast<long>(start), 2 /* MPOL_F_ADDR */)))
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
  const bool tracked = v.kind == kVmaAnonymous && h.smaps.all_have(start, end, kSmapsTracked);
  for (uint64_t at = start; at < end;) {
    uint64_t next = end;
    const bool device = tracked && tracker.device_writes(at, &next);
    if (h.range_count == h.range_room) return c->refuse("too many mappings");
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
            v.end - v.start);
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
  } else if (object.stat(&st) ||
             (!sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(path), sys::ptr(&st), 0)) &&
              st.st_ino == l.ino)) {
    *size = o->size = static_cast<uint64_t>(st.st_size), o->mode = st.st_mode;
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
  if (find_hard_link(path, room, st, known)) return OtherName::kFound;
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
  if (e->flags & kSmapsDevice) return e->refuse("%s maps device memory");
  if (e->flags & kSmapsKey)
    return c->refuse("the process uses memory protection keys (pkey_mprotect) on %lx-%lx",
                     e->v.start, e->v.end);
  if (e->flags & kSmapsMissing)
    return c->refuse("the process uses userfaultfd on %lx-%lx", e->v.start, e->v.end);
  if (starts_with(e->path, "anon_inode:"))
    return e->refuse("the process maps %s, which cannot be re-created");
  if (starts_with(e->path, "/secretmem"))
    return c->refuse("the process maps secret memory (memfd_secret), which nobody may read");
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
    m->c->refuse("more than %lu shared objects are mapped", m->known_room);
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
  const KnownObject* k = shared_object(e, object, named);
  if (!k) return false;
  v.kind = kVmaShared;
  v.object = k->index;
  uint64_t bytes = v.end - v.start;
  // Behind the end of a file there is nothing to read.
  if (v.offset >= k->size)
    bytes = 0;
  else if (k->size - v.offset < bytes)
    bytes = page_up(k->size - v.offset);
  return !bytes ||
         object.copy(e->m->c, v, wire::kSpaceSharedBase + static_cast<uint64_t>(k->index), v.offset,
                     v.start, bytes) ||
         e->m->c->refuse("no memory to copy shared memory %s (%lu MiB) while stopped", e->path,
                         bytes >> 20);
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
  if (starts_with(e->path, "/dev/") && !memory && !starts_with(e->path, "/dev/shm/"))
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
  return put_mapped_file(e->m, l, e->path, &e->v.object) && embed(e->m, e->path, l, e->v);
}

bool emit_private_file(Emitted* e) {
  e->v.kind = kVmaFile;
  if (!put_mapped_file(e->m, e->l, e->path, &e->v.object) || !embed(e->m, e->path, e->l, e->v))
    return false;
  const KnownObject* k = find_object(e->m, e->dev, e->l.ino, false);
  return !e->deleted || put_unlinked(e->m, e->l, e->v, k->index) ||
         e->refuse("no memory to copy the unlinked file %s");
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
            c->refuse("too many mappings of huge pages"));
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
    return c->refuse("too many mappings with MADV_DONTFORK");
  if ((e.flags & kVmaWipeOnFork) &&
      !add_to(c->wipe_on_fork, &c->wipe_on_fork_count, v.start, v.end))
    return c->refuse("too many mappings with MADV_WIPEONFORK");
  return true;
}

// `skip`: it is the driver's, and dies with the process.
bool emit(Mappings* m, const MapsLine& l, uint64_t start, uint64_t end, uint32_t flags, bool skip) {
  Emitted e{.m = m,
            .l = l,
            .flags = flags,
            .v = {},
            .path = {},
            .deleted = false,
            .dev = (l.dev_major << 32) | l.dev_minor};
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
  if (!emit_kind(&e, skip)) return false;
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

bool put_mappings(Capture* c, Records* r) {
  Region known = scratch_map(65536 * sizeof(KnownObject));
  if (!known) return c->refuse("no memory for the list of mapped files");
  Mappings m{};
  m.c = c;
  m.r = r;
  m.known = reinterpret_cast<KnownObject*>(known.data());
  m.known_room = 65536;

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
    if (l.object && c->pages.now.empty() && !c->pages.smaps.find(l.start) &&
        (ends_with(l.name, " (deleted)") || in_huge_pages(l.name)))
      c->pages.now.read();  // it came meanwhile, and may be of the huge page pool
    uint32_t flags = c->pages.flags(l.start);
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
  scratch_unmap(&known);
  if (!ok) return false;
  Vdso v{m.vvar_start, m.vvar_end, m.vdso_start, m.vdso_end, m.vdso_prot, 0};
  r->begin(kRecVdso);
  r->add(&v, sizeof(v));
  r->add(reinterpret_cast<const void*>(m.vdso_start), m.vdso_end - m.vdso_start);
  r->end();
  return true;
}

}  // namespace

// --- the whole
// -----------------------------------------------------------------------------------------------------------

bool capture_start(Capture* c, bool self_contained, uint64_t memory) {
  c->eager_left = memory;
  c->pages.pagemap.forget();
  c->record_memory = scratch_map(96ull << 20);
  c->eager_memory = scratch_map(Capture::kEagerRoom * sizeof(EagerCopy));
  c->eager = reinterpret_cast<EagerCopy*>(c->eager_memory.data());
  c->piece_memory = scratch_map(Capture::kPieceRoom * sizeof(SpacePiece));
  c->piece = reinterpret_cast<SpacePiece*>(c->piece_memory.data());
  c->scratch_memory = scratch_map(sizeof(CaptureScratch));
  c->scratch = reinterpret_cast<CaptureScratch*>(c->scratch_memory.data());
  if (!c->record_memory || !c->eager_memory || !c->piece_memory || !c->scratch_memory ||
      !c->pages.start() || (self_contained && !c->embedded.start()))
    return c->refuse("no address space for the snapshot's tables");
  return true;
}

bool capture_process(Capture* c, Records* r, bool device_present) {
  const uint64_t begin = sys::now_us();
  if (!put_head(c, r, device_present)) return false;
  put_mm(r);
  put_future_locks(r);
  put_file(r, kRecAuxv, "/proc/thread-self/auxv");
  put_file(r, kRecCommand, "/proc/thread-self/cmdline");
  put_link(r, kRecExe, "/proc/thread-self/exe");
  if (!put_cwd(c, r)) return false;
  put_cpu(r);
  if (!put_process_state(c, r)) return false;
  c->state_us = sys::now_us() - begin;
  if (!put_mappings(c, r)) return false;
  c->maps_us = sys::now_us() - begin - c->state_us;
  if (r->full) return c->refuse("the description of the process does not fit into 96 MiB");
  return true;
}

void put_guards(Capture* c, Records* r) {
  const PageList& list = c->pages.guards;
  if (!list.count) return;
  r->begin(kRecGuards, list.count);
  for (uint32_t i = 0; i < list.count; ++i) {
    Span s{list.at[i].start, list.at[i].end};
    r->add(&s, sizeof(s));
  }
  r->end();
}

bool clone_is_whole(const Capture& c, char* text, size_t room) {
  LineReader lines("/proc/thread-self/maps", c.scratch->lines, sizeof(c.scratch->lines));
  if (!lines.ok()) return true;  // as little to be seen as in the program
  MapsLine l;
  __builtin_memset(&l, 0, sizeof(l));
  const HostPages& h = c.pages;
  for (size_t i = 0; i < h.range_count; ++i)
    for (uint64_t at = h.ranges[i].start; at < h.ranges[i].end; at = l.end) {
      bool more = true;
      while (l.end <= at && more) {
        char* line = lines.next();
        more = line && parse_maps_line(line, &l);
      }
      if (more && l.start <= at) continue;
      format(text, room,
             "memory at %lx came with MADV_DONTFORK while the snapshot began; take it once more",
             at);
      return false;
    }
  return true;
}

bool capture_before_clone(Capture* c) {
  for (size_t i = 0; i < c->keep_from_clone_count; ++i)
    if (sys::failed(sys::call(
            SYS_madvise, static_cast<long>(c->keep_from_clone[i].start),
            static_cast<long>(c->keep_from_clone[i].end - c->keep_from_clone[i].start), 10)))
      return false;
  for (size_t i = 0; i < c->dont_fork_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->dont_fork[i].start),
              static_cast<long>(c->dont_fork[i].end - c->dont_fork[i].start), 11);
  for (size_t i = 0; i < c->wipe_on_fork_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->wipe_on_fork[i].start),
              static_cast<long>(c->wipe_on_fork[i].end - c->wipe_on_fork[i].start), 19);
  return true;
}

void capture_after_clone(Capture* c) {
  for (size_t i = 0; i < c->keep_from_clone_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->keep_from_clone[i].start),
              static_cast<long>(c->keep_from_clone[i].end - c->keep_from_clone[i].start), 11);
  for (size_t i = 0; i < c->dont_fork_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->dont_fork[i].start),
              static_cast<long>(c->dont_fork[i].end - c->dont_fork[i].start), 10);
  for (size_t i = 0; i < c->wipe_on_fork_count; ++i)
    sys::call(SYS_madvise, static_cast<long>(c->wipe_on_fork[i].start),
              static_cast<long>(c->wipe_on_fork[i].end - c->wipe_on_fork[i].start), 18);
}

void capture_finish(Capture* c) {
  scratch_unmap(&c->record_memory);
  c->pages.finish();
  c->embedded.finish();
  for (size_t i = 0; i < c->eager_chunks; ++i) scratch_unmap(&c->eager_chunk[i]);
  scratch_unmap(&c->eager_memory);
  scratch_unmap(&c->piece_memory);
  scratch_unmap(&c->scratch_memory);
  forget_descriptors(c);
  c->eager_count = c->eager_chunks = c->piece_count = 0;
}

}  // namespace gpuckpt
