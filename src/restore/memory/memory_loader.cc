#include "restore/memory/memory_loader.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "base/procfs/proc.h"
#include "gpuckpt/wire.h"
#include "restore/files/removed_files.h"
#include "restore/ipc/ipc_numbers.h"
#include "restore/preflight/checks.h"
#include "restore/protocol/device_ring.h"
#include "store/io/printable.h"
#include "store/io/process_identity.h"

namespace gpuckpt::restore {

using namespace process;
using store::Extent;
using store::Status;

namespace {

Status os_error(const std::string& what) { return Status::Error(what + ": " + strerror(errno)); }

// Where the data extents of a space are in a memfd that holds them one after the other.
struct Layout {
  std::vector<Extent> extents;
  std::vector<uint64_t> offset;  // kZeros for zero extents
  uint64_t bytes = 0;
};

Layout lay_out(std::vector<Extent> extents) {
  Layout l;
  for (const Extent& e : extents) {
    l.offset.push_back(e.zero ? kZeros : l.bytes);
    if (!e.zero) l.bytes += (e.length + 4095) & ~4095ull;
  }
  l.extents = std::move(extents);
  return l;
}

Status write_fully(int fd, const uint8_t* from, uint64_t n, uint64_t at) {
  while (n) {
    ssize_t w = pwrite(fd, from, n, static_cast<off_t>(at));
    if (w <= 0) return os_error("no memory to hold the snapshot");
    from += w, at += static_cast<uint64_t>(w), n -= static_cast<uint64_t>(w);
  }
  return Status::Ok();
}

Status read_all(const store::SnapshotReader& reader, uint64_t space, unsigned threads,
                const store::SnapshotReader::Sink& sink,
                const store::SnapshotReader::Place& place = nullptr) {
  // An object without data (empty, or one hole) has no space.
  if (reader.extents(space).empty()) return Status::Ok();
  return reader.read_all(space, threads, sink, place);
}

// Copies a space's data extents into `fd`; `place` returns the offset of an address.
template <typename Place>
Status copy_space(const store::SnapshotReader& reader, uint64_t space, unsigned threads, int fd,
                  Place place) {
  std::atomic<bool> failed{false};
  Status status =
      read_all(reader, space, threads, [&](uint64_t address, std::span<const uint8_t> bytes) {
        // A piece may span several extents only if they touch, and touching data extents are one.
        if (!write_fully(fd, bytes.data(), bytes.size(), place(address)).ok()) failed = true;
        return !failed.load();
      });
  if (failed) return Status::Error("no memory to hold the snapshot");
  return status;
}

Status load_laid_out(const store::SnapshotReader& reader, uint64_t space, const Layout& l,
                     unsigned threads, int fd) {
  return copy_space(reader, space, threads, fd, [&](uint64_t address) {
    auto it = std::upper_bound(l.extents.begin(), l.extents.end(), address,
                               [](uint64_t a, const Extent& e) { return a < e.address; });
    size_t i = static_cast<size_t>(it - l.extents.begin()) - 1;
    return l.offset[i] + (address - l.extents[i].address);
  });
}

// The page size of a file in the huge page pool; 0: it is another one.
uint64_t huge_page_of(int fd) {
  struct statfs fs;
  return fstatfs(fd, &fs) == 0 && static_cast<uint32_t>(fs.f_type) == HUGETLBFS_MAGIC
             ? static_cast<uint64_t>(fs.f_bsize)
             : 0;
}

// Reads the contents of a space into `size` bytes of memory.
Status read_into(const store::SnapshotReader& reader, uint64_t space, unsigned threads, uint8_t* to,
                 uint64_t size) {
  return read_all(
      reader, space, threads,
      [&](uint64_t address, std::span<const uint8_t> bytes) {
        if (address < size && bytes.data() != to + address)
          memcpy(to + address, bytes.data(), std::min(bytes.size(), size - address));
        return true;
      },
      [&](uint64_t address, size_t length) {
        const bool fits = address <= size && length <= size - address;
        return fits ? std::span(to + address, length) : std::span<uint8_t>();
      });
}

// Loads a file of the huge page pool, which can be mapped but not written to. Its pages are
// allocated first: a write to a mapping would allocate them too, but kill this process when there
// are none.
Status load_huge(const store::SnapshotReader& reader, uint64_t space, unsigned threads, int fd,
                 uint64_t page) {
  struct stat st;
  if (fstat(fd, &st) != 0) return os_error("fstat");
  const uint64_t size = static_cast<uint64_t>(st.st_size);
  for (const Extent& e : reader.extents(space)) {
    const uint64_t start = e.address / page * page,
                   end = std::min((e.address + e.length + page - 1) / page * page, size);
    if (!e.zero && start < end &&
        fallocate(fd, 0, static_cast<off_t>(start), static_cast<off_t>(end - start)) != 0)
      return os_error("no huge pages to hold the program's");
  }
  void* to = size ? mmap(nullptr, size, PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0) : nullptr;
  if (to == MAP_FAILED) return os_error("the program's huge pages cannot be mapped");
  Status status = read_into(reader, space, threads, static_cast<uint8_t*>(to), size);
  if (size) munmap(to, size);
  return status;
}

// Loads a space whose addresses are offsets into an object that was empty before.
Status load_object(const store::SnapshotReader& reader, uint64_t space, unsigned threads, int fd) {
  if (const uint64_t page = huge_page_of(fd)) return load_huge(reader, space, threads, fd, page);
  return copy_space(reader, space, threads, fd, [](uint64_t address) { return address; });
}

// Loads the bytes that the last page of an object holds behind its end: no write can put them
// there, but a mapping shows them.
Status load_tail(const store::SnapshotReader& reader, uint64_t space, uint64_t size, int fd) {
  const uint64_t page = size & ~4095ull;
  uint8_t bytes[4096] = {};
  bool any = false;
  for (const Extent& e : reader.extents(space)) {
    const uint64_t end = std::min(e.address + e.length, page + 4096);
    if (e.zero || e.address > page || end <= size) continue;
    any = true;
    if (Status s = reader.read(space, page, {bytes, end - page}); !s.ok()) return s;
  }
  const uint8_t *tail = bytes + (size - page), *end = bytes + sizeof(bytes);
  if (!any || std::all_of(tail, end, [](uint8_t b) { return b == 0; })) return Status::Ok();
  void* to = mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(page));
  if (to == MAP_FAILED) return os_error("the end of the program's memory cannot be mapped");
  memcpy(static_cast<uint8_t*>(to) + (size - page), tail, static_cast<size_t>(end - tail));
  munmap(to, 4096);
  return Status::Ok();
}

// Loads an object of `size` bytes, of which the snapshot has whole pages.
Status load_sized(const store::SnapshotReader& reader, uint64_t space, uint64_t size,
                  unsigned threads, int fd) {
  if (Status s = load_object(reader, space, threads, fd); !s.ok()) return s;
  if (size % 4096 == 0 || huge_page_of(fd)) return Status::Ok();
  struct stat st;
  if (fstat(fd, &st) != 0 ||
      (static_cast<uint64_t>(st.st_size) != size && ftruncate(fd, static_cast<off_t>(size)) != 0))
    return os_error("ftruncate");
  return load_tail(reader, space, size, fd);
}

// The same for a file of `size` bytes that existed all the time: zeros must be written as well, and
// bytes beyond its end must not.
Status load_file(const store::SnapshotReader& reader, uint64_t space, uint64_t size,
                 unsigned threads, int fd) {
  static const std::vector<uint8_t> zeros(1 << 20);
  for (const Extent& e : reader.extents(space)) {
    const uint64_t end = std::min(e.address + e.length, size);
    if (!e.zero || e.address >= end) continue;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(e.address),
                  static_cast<off_t>(end - e.address)) == 0)
      continue;
    for (uint64_t at = e.address, n; at < end; at += n) {
      n = std::min<uint64_t>(end - at, zeros.size());
      if (Status s = write_fully(fd, zeros.data(), n, at); !s.ok()) return s;
    }
  }
  if (const uint64_t page = huge_page_of(fd)) return load_huge(reader, space, threads, fd, page);
  std::atomic<int> error{0};
  Status status =
      read_all(reader, space, threads, [&](uint64_t address, std::span<const uint8_t> bytes) {
        const uint64_t end = std::min(address + bytes.size(), size);
        if (address < end && !write_fully(fd, bytes.data(), end - address, address).ok())
          error = errno;
        return error == 0;
      });
  errno = error;
  return error ? os_error("cannot be written") : status;
}

// `huge_shift`: as in SharedObject.
Status make_memfd(const char* name, uint64_t bytes, Fd* out, uint64_t huge_shift = 0) {
  const uint64_t huge = huge_shift ? MFD_HUGETLB | huge_shift << kVmaHugeShift : 0;
  *out = Fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | static_cast<unsigned>(huge)));
  if (!*out || ftruncate(out->get(), static_cast<off_t>(bytes)) != 0)
    return os_error("cannot make a memory file");
  return Status::Ok();
}

// Memory as mmap makes it for MAP_SHARED | MAP_ANONYMOUS, with a descriptor, which only
// CAP_CHECKPOINT_RESTORE may open. None: a memfd is used instead.
Fd make_shared_memory(uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return Fd();
  char link[80];
  const auto start = reinterpret_cast<uintptr_t>(at);
  snprintf(link, sizeof(link), "/proc/self/map_files/%lx-%lx", start,
           start + ((bytes + 4095) & ~4095ul));
  Fd fd(open(link, O_RDWR | O_CLOEXEC));
  munmap(at, bytes);
  return fd;
}

// The name that a memfd had, without the prefix that /proc shows.
std::string memfd_name(const std::string& path, const char* otherwise) {
  return path.rfind("/memfd:", 0) == 0 ? path.substr(7) : otherwise;
}

// Restores the owner: processes of other users also open it by its name.
void own_as_before(int fd, const SharedObject& o, const std::string& path) {
  struct stat st;
  if (!give_owner(fd, o.owner, o.group) && fstat(fd, &st) == 0)
    store::say(
        "gpuckpt: warning: %s is gone, and made again for user %u and group %u, not %u and %u\n",
        path.c_str(), st.st_uid, st.st_gid, o.owner, o.group);
  (void)!fchmod(fd, o.mode & 0777);
}

// Opens the file that gets contents from the snapshot: only the file of exactly this name, never
// the target of a link; only shared memory is made anew.
Status open_shared_file(const SharedObject& o, const std::string& path, Fd* out) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  *out = Fd(open(path.c_str(), kFlags));
  if (!*out && errno == ENOENT && o.kind == kSharedShm) {
    *out = Fd(open(path.c_str(), kFlags | O_CREAT | O_EXCL, o.mode & 0777));
    if (*out) own_as_before(out->get(), o, path);
  }
  if (!*out)
    return Status::Incompatible(
        path + " is mapped shared by the program and cannot be opened: " + strerror(errno));
  struct stat st;
  char real[4096];
  ssize_t n = readlink(("/proc/self/fd/" + std::to_string(out->get())).c_str(), real, sizeof(real));
  if (fstat(out->get(), &st) != 0 || !S_ISREG(st.st_mode) || n < 0 ||
      path != std::string(real, static_cast<size_t>(n)))
    return Status::Incompatible(
        path + " is mapped shared by the program, and now is a link to something else or no file");
  return Status::Ok();
}

std::vector<void*> held_segments;
std::vector<int> made_segments;  // segments that stay when the program runs

uint64_t mapped_end(const Image& image, VmaKind kind, int object) {
  uint64_t end = 0;
  for (const auto& [v, path] : image.vmas)
    if (v.kind == kind && v.object == object) end = std::max(end, v.offset + (v.end - v.start));
  return end;
}

// Notes segments that a process has mapped in a way that shmat cannot repeat.
void note_pieces(const Image& image, SharedFiles* shared) {
  for (const auto& [v, path] : image.vmas) {
    if (v.kind != kVmaShared) continue;
    const SharedObject& o = image.shared[static_cast<size_t>(v.object)].first;
    const uint64_t page = v.flags & kVmaHugetlb ? 1ull << (v.flags >> kVmaHugeShift) : 4096;
    if (o.kind == kSharedSegment &&
        (v.offset || !o.size || v.end - v.start != (o.size + page - 1) / page * page))
      (*shared)[{o.dev, o.ino}].in_pieces = true;
  }
}

// An object can have a name for one process and none for another (libc makes named semaphores under
// a name that it then removes): the name counts for both.
}  // namespace

Status open_named(const Image& image, SharedFiles* shared) {
  note_pieces(image, shared);
  for (const auto& [o, path] : image.shared) {
    if ((o.kind != kSharedShm && o.kind != kSharedFile) || shared->count({o.dev, o.ino})) continue;
    Fd fd;
    if (Status s = open_shared_file(o, path, &fd); !s.ok()) return s;
    SharedFile& known = (*shared)[{o.dev, o.ino}];
    known.file = std::move(fd);
    known.named = true;
  }
  return Status::Ok();
}

namespace {

// Makes a segment in the place of one that is gone. It stays under its key, as the old one did;
// when the old one was removed already, the new one is removed with its last attachment (the
// restore's own lasts until let_segments_go). -1: it cannot be made.
int make_segment(const SharedObject& o, key_t key) {
  const bool removed = o.mode & SHM_DEST;
  const int access = static_cast<int>(o.mode & 0777) | 0600;
  // (No other process can find a removed one: it is not worth the time that its number may take.)
  int made = make_with_number(IpcKind::kSegment, static_cast<int>(o.ino), !removed, [&] {
    return shmget(removed ? IPC_PRIVATE : key, o.size, access | IPC_CREAT | IPC_EXCL);
  });
  const bool stays = made >= 0 && !removed;
  if (made < 0 && !removed) made = shmget(IPC_PRIVATE, o.size, access);
  if (made < 0) return -1;
  shmid_ds now{};
  if (shmctl(made, IPC_STAT, &now) == 0) {
    now.shm_perm.mode = static_cast<decltype(now.shm_perm.mode)>(o.mode & 0777);
    shmctl(made, IPC_SET, &now);
    // Set by a separate call: where the owner cannot be set the mode is kept.
    now.shm_perm.uid = o.owner, now.shm_perm.gid = o.group;
    shmctl(made, IPC_SET, &now);
  }
  void* held = shmat(made, nullptr, 0);
  if (stays) made_segments.push_back(made);
  if (!stays || held == reinterpret_cast<void*>(-1)) shmctl(made, IPC_RMID, nullptr);
  if (held == reinterpret_cast<void*>(-1)) return -1;
  held_segments.push_back(held);
  return made;
}

// The existing segment, or a new one in its place. None: plain memory is used instead.
std::optional<int> find_segment(const SharedObject& o, const std::string& path, const Head& head) {
  const int id = static_cast<int>(o.ino);
  const long key = path.size() > 5 ? strtol(path.c_str() + 5, nullptr, 16) : 0;
  shmid_ds now{};
  if (shmctl(id, IPC_STAT, &now) == 0 && now.shm_segsz == o.size &&
      static_cast<uint32_t>(now.shm_perm.__key) == static_cast<uint32_t>(key) &&
      (key || store::boot_id() == head.boot_id))  // (without a key none outlives a start)
    return id;
  if (o.huge_shift) return {};
  const int made = make_segment(o, static_cast<key_t>(key));
  if (made >= 0 && made != id)
    store::say(
        "gpuckpt: warning: the System V segment %d of process %d is gone, and has the number %d "
        "now: by the old one, which another segment has, the program does not find it\n",
        id, head.pid, made);
  return made < 0 ? std::optional<int>() : made;
}

Status load_segment(const store::SnapshotReader& reader, uint64_t space, unsigned threads, int id,
                    uint64_t size) {
  auto* to = static_cast<uint8_t*>(shmat(id, nullptr, 0));
  if (to == reinterpret_cast<uint8_t*>(-1))
    return os_error("System V segment " + std::to_string(id) + " cannot be attached");
  // Makes holes in shared memory where the kernel supports it: written zeros would be pages.
  for (const Extent& e : reader.extents(space)) {
    if (!e.zero || e.address >= size) continue;
    const uint64_t whole = (std::min(e.length, size - e.address) + 4095) & ~4095ull;
    if (madvise(to + e.address, whole, MADV_REMOVE) != 0)
      memset(to + e.address, 0, std::min(e.length, size - e.address));
  }
  Status status = read_into(reader, space, threads, to, size);
  shmdt(to);
  return status;
}

void note_there(const store::SnapshotReader& reader, uint64_t space, SharedFile* file) {
  const std::vector<Extent> extents = reader.extents(space);
  file->there.insert(file->there.end(), extents.begin(), extents.end());
}

// The end of shared memory whose size could not be asked for: that of its mappings, or of a page
// that none of them shows.
uint64_t seen_end(const Image& image, const store::SnapshotReader& reader, size_t object) {
  uint64_t end = mapped_end(image, kVmaShared, static_cast<int>(object));
  for (const Extent& e : reader.extents(wire::kSpaceSharedBase + object))
    end = std::max(end, e.address + e.length);
  return end;
}

Status load_shared(const Image& image, const store::SnapshotReader& reader, unsigned threads,
                   Memory* m, SharedFiles* shared) {
  for (size_t i = 0; i < image.shared.size(); ++i) {
    const auto& [o, path] = image.shared[i];
    Fd fd;
    uint64_t size = o.size ? o.size : seen_end(image, reader, i);
    if (o.kind == kSharedSegment && !(*shared)[{o.dev, o.ino}].in_pieces) {
      std::optional<int>& segment = (*shared)[{o.dev, o.ino}].segment;
      const bool known = segment.has_value();
      if (!known) segment = find_segment(o, path, image.head);
      if (segment) {
        if (!known)
          if (Status s =
                  load_segment(reader, wire::kSpaceSharedBase + i, threads, *segment, o.size);
              !s.ok())
            return s;
        m->segments[i] = *segment;
        m->shared.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
        continue;
      }
    }
    if (auto named = shared->find({o.dev, o.ino}); named != shared->end() && named->second.named) {
      fd = Fd(dup(named->second.file.get()));
      if (o.kind == kSharedShm || o.kind == kSharedFile) size = o.size;
      m->named.push_back({Fd(dup(fd.get())), path, wire::kSpaceSharedBase + i, size});
      m->shared.push_back(std::move(fd));
      continue;
    } else {
      // A descriptor of the same object knows its true size and contents.
      const Descriptor* d = nullptr;
      for (const auto& [candidate, p] : image.fds)
        if (candidate.kind == kFdMemory && candidate.ino == o.ino &&
            device_number(major(candidate.dev), minor(candidate.dev)) == o.dev)
          d = &candidate;
      const uint64_t exact = d ? d->size : o.size;
      if (exact) size = exact;
      auto known = shared->find({o.dev, o.ino});
      if (known != shared->end() && known->second.file) {
        fd = Fd(dup(known->second.file.get()));
        if (known->second.whole) {
          m->shared.push_back(std::move(fd));
          continue;
        }
        struct stat st;
        if (fstat(fd.get(), &st) == 0 && static_cast<uint64_t>(st.st_size) < size &&
            ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
          return os_error("ftruncate");
      } else {
        const bool anonymous = path == "/dev/zero" || path.starts_with("[anon_shmem:");
        if (anonymous && !o.huge_shift) fd = make_shared_memory(size);
        if (!fd)
          if (Status s =
                  make_memfd(memfd_name(path, "gpuckpt-shared").c_str(), size, &fd, o.huge_shift);
              !s.ok())
            return s;
        (*shared)[{o.dev, o.ino}].file = Fd(dup(fd.get()));
      }
    }
    const uint64_t space = wire::kSpaceSharedBase + i;
    if (Status s = load_sized(reader, space, size, threads, fd.get()); !s.ok()) return s;
    note_there(reader, space, &(*shared)[{o.dev, o.ino}]);
    m->shared.push_back(std::move(fd));
  }
  return Status::Ok();
}

// Adds what a process saw of a file by a private mapping, where the file has nothing yet: other
// mappings of it, also of other processes, are of other parts.
Status load_rest(const store::SnapshotReader& reader, uint64_t space, SharedFile* known) {
  const int fd = known->file.get();
  struct stat st;
  if (known->whole || huge_page_of(fd)) return Status::Ok();
  if (fstat(fd, &st) != 0) return os_error("fstat");
  auto size = static_cast<uint64_t>(st.st_size);
  for (const Extent& e : reader.extents(space)) {
    const uint64_t end = e.address + e.length;
    // The size that the file had is known only where it can be opened.
    if ((size + 4095) / 4096 * 4096 < end) {
      if (ftruncate(fd, static_cast<off_t>(end)) != 0) return os_error("ftruncate");
      size = end;
    }
    if (e.zero) continue;
    std::vector<uint8_t> page(4096);
    for (uint64_t at = e.address; at < end; at += page.size()) {
      if (std::any_of(known->there.begin(), known->there.end(), [&](const Extent& t) {
            return at >= t.address && at < t.address + t.length;
          }))
        continue;
      if (Status s = reader.read(space, at, page); !s.ok()) return s;
      if (Status s = write_fully(fd, page.data(), std::min<uint64_t>(page.size(), size - at), at);
          !s.ok())
        return s;
    }
  }
  note_there(reader, space, known);
  return Status::Ok();
}

constexpr uint32_t kSealExec = 0x20;  // F_SEAL_EXEC (Linux 6.3)

uint64_t mapped_device(const Descriptor& d) { return device_number(major(d.dev), minor(d.dev)); }

// Whether linkat could give the file a name: a file made by O_TMPFILE can get one, a file that lost
// its name cannot. (The kernel does not show whether O_EXCL, which forbids it, was given as well.)
bool can_be_named(const Image& image, const Descriptor& file) {
  constexpr uint32_t kMadeWithoutName = O_TMPFILE & ~O_DIRECTORY;
  return std::any_of(image.fds.begin(), image.fds.end(), [&](const auto& entry) {
    const Descriptor& d = entry.first;
    return d.kind == kFdMemory && d.ino == file.ino && d.dev == file.dev &&
           d.flags & kMadeWithoutName;
  });
}

// Makes a file without a name on the same disk as the old one. False: memory is used instead.
bool make_unnamed(const std::string& path, bool can_be_named, uint64_t device,
                  const store::SnapshotReader& reader, uint64_t space, unsigned threads, Fd* out) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return false;
  auto make_in = [&] {
    const int flags = O_TMPFILE | O_RDWR | O_CLOEXEC | (can_be_named ? 0 : O_EXCL);
    return Fd(open(path.substr(0, slash + 1).c_str(), flags, 0600));
  };
  Fd fd = make_in();
  // The folder may be gone as well: then one above it, on the same disk, is used.
  while (!fd && errno == ENOENT && slash) {
    slash = path.rfind('/', slash - 1);
    fd = make_in();
    struct stat st;
    if (fd && fstat(fd.get(), &st) == 0 && st.st_dev != device) return false;
  }
  if (!fd || !load_object(reader, space, threads, fd.get()).ok()) return false;
  *out = std::move(fd);
  return true;
}

Status load_unlinked(const Image& image, const store::SnapshotReader& reader, unsigned threads,
                     Memory* m, SharedFiles* shared) {
  std::map<std::pair<uint64_t, uint64_t>, int> made;  // file -> the first descriptor of it
  for (const auto& [d, path] : image.fds) {
    if (d.kind != kFdMemory || d.description != d.fd) continue;
    Fd fd;
    if (SharedFile& file = (*shared)[{mapped_device(d), d.ino}];
        d.value[1] && (d.flags & O_ACCMODE) == O_RDWR && !file.original_given) {
      file.original_given = true;
      m->original.insert(d.fd);
    }
    auto [first, fresh] = made.emplace(std::make_pair(d.dev, d.ino), d.fd);
    if (!fresh) {
      for (const auto& [number, file] : m->unlinked)
        if (number == first->second) fd = Fd(dup(file.get()));
      m->unlinked.emplace_back(d.fd, std::move(fd));
      continue;
    }
    SharedFile& known = (*shared)[{mapped_device(d), d.ino}];
    if (known.whole) {
      m->unlinked.emplace_back(d.fd, Fd(dup(known.file.get())));
      continue;
    }
    std::optional<size_t> mapped;  // index of the same object in Image::shared
    for (size_t i = 0; i < image.shared.size() && !fd; ++i)
      if (image.shared[i].first.ino == d.ino && image.shared[i].first.dev == mapped_device(d))
        fd = Fd(dup(m->shared[i].get())), mapped = i;
    if (!fd && known.file) fd = Fd(dup(known.file.get()));
    const uint64_t space = wire::kSpaceFileBase + 0x8000 + static_cast<uint64_t>(d.fd);
    const bool memory = d.value[1];
    if (fd || memory ||
        !make_unnamed(path, can_be_named(image, d), d.dev, reader, space, threads, &fd)) {
      if (!fd)
        if (Status s =
                make_memfd(memfd_name(path, "gpuckpt-file").c_str(), d.size, &fd, d.value[2]);
            !s.ok())
          return s;
      if (Status s = load_object(reader, space, threads, fd.get()); !s.ok()) return s;
    }
    if (ftruncate(fd.get(), static_cast<off_t>(d.size)) != 0) return os_error("ftruncate");
    if (mapped && d.size % 4096)
      if (Status s = load_tail(reader, wire::kSpaceSharedBase + *mapped, d.size, fd.get()); !s.ok())
        return s;
    // For an executable file this seal adds all seals against writing.
    if (d.value[0] & kSealExec && fchmod(fd.get(), d.mode & 07777) != 0) return os_error("fchmod");
    if (uint32_t seals = d.value[0] & kEarlySeals)
      if (fcntl(fd.get(), F_ADD_SEALS, seals) != 0) return os_error("F_ADD_SEALS");
    known.file = Fd(dup(fd.get()));
    known.whole = true;
    m->unlinked.emplace_back(d.fd, std::move(fd));
  }
  return Status::Ok();
}

// Opens a mapped file: the file itself when it is unchanged; otherwise what was stored of it, in
// the object that descriptors and shared mappings of the same file use.
Status open_mapped_file(const MappedFile& f, const std::string& path, uint64_t mapped_bytes,
                        const store::SnapshotReader& reader, unsigned threads, SharedFiles* shared,
                        Fd* out) {
  if (f.stored_space < 0 || is_unchanged(f, path)) {
    *out = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return *out ? Status::Ok()
                : Status::Incompatible(
                      path + " is mapped by the program and cannot be opened: " + strerror(errno));
  }
  SharedFile& known = (*shared)[{f.dev, f.ino}];
  const uint64_t space = wire::kSpaceFileBase + static_cast<uint64_t>(f.stored_space);
  if (f.dev && known.file) {
    *out = Fd(dup(known.file.get()));
    return load_rest(reader, space, &known);
  }
  if (Status s = make_memfd(memfd_name(path, "gpuckpt-unlinked").c_str(), mapped_bytes, out);
      !s.ok())
    return s;
  if (f.dev) known.file = Fd(dup(out->get()));
  note_there(reader, space, &known);
  return load_object(reader, space, threads, out->get());
}

Status load_files(const Image& image, const store::SnapshotReader& reader, unsigned threads,
                  Memory* m, SharedFiles* shared) {
  for (size_t i = 0; i < image.files.size(); ++i) {
    const auto& [f, path] = image.files[i];
    Fd fd;
    if (Status s = open_mapped_file(f, path, mapped_end(image, kVmaFile, static_cast<int>(i)),
                                    reader, threads, shared, &fd);
        !s.ok())
      return s;
    m->files.push_back(std::move(fd));
  }
  return Status::Ok();
}

// Opens files again with the rights of the program's mappings: the descriptor that a shared mapping
// is made with limits what mprotect may do later.
void open_with_rights(const Image& image, Memory* m) {
  for (const auto& [v, path] : image.vmas) {
    const size_t i = static_cast<size_t>(v.object);
    if (v.kind == kVmaFileShared && v.flags & kVmaMayWrite && !m->files_to_write.count(i)) {
      Fd fd(open(image.files[i].second.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
      if (!fd)
        store::say(
            "gpuckpt: warning: %s is mapped for reading, and the program cannot make the "
            "mapping writable any more: %s\n",
            path.c_str(), strerror(errno));
      else
        m->files_to_write.emplace(i, std::move(fd));
    }
    if (v.kind == kVmaShared && v.flags & kVmaNeverWrite && !m->shared_to_read.count(i)) {
      const std::string own = "/proc/self/fd/" + std::to_string(m->shared[i].get());
      if (Fd fd(open(own.c_str(), O_RDONLY | O_CLOEXEC)); fd)
        m->shared_to_read.emplace(i, std::move(fd));
    }
  }
}

}  // namespace

Status write_named_files(const store::SnapshotReader& reader, unsigned threads, Memory* m) {
  for (const Memory::Named& n : m->named) {
    struct stat st;
    if (fstat(n.file.get(), &st) == 0 && static_cast<uint64_t>(st.st_size) < n.size &&
        ftruncate(n.file.get(), static_cast<off_t>(n.size)) != 0)
      return os_error(n.path);
    if (Status s = load_file(reader, n.space, n.size, threads, n.file.get()); !s.ok())
      return s.in(n.path);
    if (n.size % 4096 && !huge_page_of(n.file.get()))
      if (Status s = load_tail(reader, n.space, n.size, n.file.get()); !s.ok()) return s.in(n.path);
  }
  m->named.clear();
  return Status::Ok();
}

void let_segments_go() {
  for (void* at : held_segments) shmdt(at);
  held_segments.clear();
  made_segments.clear();
}

void remove_segments() {
  for (int id : made_segments) shmctl(id, IPC_RMID, nullptr);
  let_segments_go();
}

Status load_pages(const store::SnapshotReader& reader, unsigned threads, Memory* m) {
  if (m->pages_loaded) return Status::Ok();
  Layout host = lay_out(reader.extents(wire::kSpaceHost));
  Status s = load_laid_out(reader, wire::kSpaceHost, host, threads, m->pages.get());
  m->pages_loaded = s.ok();
  return s;
}

Status plan_fills(const Image& image, const store::SnapshotReader& reader, Memory* m) {
  const Layout host = lay_out(reader.extents(wire::kSpaceHost));
  std::vector<const Vma*> filled;
  for (const auto& [v, path] : image.vmas)
    if (v.kind == kVmaAnonymous || v.kind == kVmaFile) filled.push_back(&v);
  std::sort(filled.begin(), filled.end(),
            [](const Vma* a, const Vma* b) { return a->start < b->start; });
  for (size_t i = 0; i < host.extents.size(); ++i) {
    const Extent& e = host.extents[i];
    uint64_t at = e.address;
    while (at < e.address + e.length) {
      auto it = std::upper_bound(filled.begin(), filled.end(), at,
                                 [](uint64_t a, const Vma* v) { return a < v->start; });
      if (it == filled.begin() || (*--it)->end <= at)
        return Status::Corruption("the snapshot holds memory where the program had none");
      uint64_t end = std::min(e.address + e.length, (*it)->end);
      // Anonymous memory is zero without being written.
      if (!e.zero || (*it)->kind == kVmaFile)
        m->fills.push_back({at, end - at, e.zero ? kZeros : host.offset[i] + (at - e.address)});
      at = end;
    }
  }
  return Status::Ok();
}

Status load_memory(const Image& image, const store::SnapshotReader& reader, unsigned threads,
                   Memory* m, SharedFiles* shared) {
  SharedFiles own;
  if (!shared) shared = &own;
  if (Status s = open_named(image, shared); !s.ok()) return s;
  const uint64_t bytes = lay_out(reader.extents(wire::kSpaceHost)).bytes;
  if (Status s = make_memfd("gpuckpt-pages", bytes, &m->pages); !s.ok()) return s;
  if (Status s = plan_fills(image, reader, m); !s.ok()) return s;

  if (Status s = load_shared(image, reader, threads, m, shared); !s.ok()) return s;
  if (Status s = load_unlinked(image, reader, threads, m, shared); !s.ok()) return s;
  if (Status s = load_files(image, reader, threads, m, shared); !s.ok()) return s;
  open_with_rights(image, m);

  bool device = false;
  for (uint64_t space : reader.spaces()) {
    if (space < wire::kSpaceDeviceBase) continue;
    device = true;
    for (const Extent& e : reader.extents(space))
      if (e.zero) m->extents.push_back({space, e.address, e.length});
  }
  if (device)
    if (Status s = make_memfd("gpuckpt-device", DeviceRing::kBytes, &m->device); !s.ok()) return s;
  std::vector<uint8_t> blob;
  if (reader.blob("device", &blob).ok()) m->blobs.emplace_back("device", std::move(blob));
  return Status::Ok();
}

}  // namespace gpuckpt::restore
