#include "snapshot/memory/mapped_object.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "base/address.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/job/copied_parts.h"
#include "snapshot/memory/own_memory.h"
#include "snapshot/memory/smaps.h"
#include "snapshot/park/shared_work.h"

namespace gpuckpt {

using namespace process;

namespace {

constexpr int kSeekData = 3, kSeekHole = 4;
constexpr long kNoMoreData = -6;  // ENXIO

bool swap_is_used() {
  char text[2048];
  if (read_file("/proc/meminfo", text, sizeof(text)) <= 0) return true;
  const char* total = status_field(text, "SwapTotal:");
  const char* free = status_field(text, "SwapFree:");
  return scan_dec(&total) != scan_dec(&free);
}

int open_by_name(const char* name, uint64_t ino) {
  const int fd = sys::open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
  struct stat st;
  if (fd < 0 || (!sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st))) && st.st_ino == ino &&
                 S_ISREG(st.st_mode)))
    return fd;
  sys::close(fd);
  return -1;
}

// A file that lost its name is in memory when the folder that it was in is, and is of the same
// file system.
bool folder_is_memory(const MapsLine& mapping) {
  char folder[4096];
  copy(folder, sizeof(folder), mapping.name);
  size_t slash = 0;
  for (size_t i = 0; folder[i]; ++i)
    if (folder[i] == '/') slash = i;
  folder[slash ? slash : 1] = 0;
  struct statfs fs;
  struct stat st;
  return folder[0] == '/' && !sys::failed(sys::call(SYS_statfs, sys::ptr(folder), sys::ptr(&fs))) &&
         static_cast<uint32_t>(fs.f_type) == TMPFS_MAGIC &&
         !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr(folder), sys::ptr(&st), 0)) &&
         major(st.st_dev) == mapping.dev_major && minor(st.st_dev) == mapping.dev_minor;
}

// Calls each(offset, bytes, there) for the runs of pages of [start, start + bytes) that are in
// memory, and that are not, until it returns false. Returns how far the kernel has told.
template <typename Each>
uint64_t each_resident_run(uint64_t start, uint64_t bytes, Each each) {
  constexpr uint64_t kPages = 16384;
  unsigned char resident[kPages];
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t pages = (bytes - at) / kPage < kPages ? (bytes - at) / kPage : kPages;
    if (sys::failed(sys::call(SYS_mincore, static_cast<long>(start + at),
                              static_cast<long>(pages * kPage), sys::ptr(resident))))
      return at;
    for (uint64_t i = 0, run; i < pages; i = run) {
      const bool there = resident[i] & 1;
      for (run = i + 1; run < pages && (resident[run] & 1) == there;) ++run;
      if (!each(at + i * kPage, (run - i) * kPage, there)) return at;
    }
    at += pages * kPage;
  }
  return bytes;
}

}  // namespace

MappedObject::MappedObject(const MapsLine& mapping, const char* name, bool memory)
    : mapping_(mapping), memory_(memory) {
  char link[80];
  format(link, sizeof(link), "/proc/self/map_files/%lx-%lx", mapping.start, mapping.end);
  fd_ = sys::open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd_ < 0 && name) fd_ = open_by_name(name, mapping.ino);
  struct statfs fs;
  if (fd_ < 0 && !memory_) memory_ = folder_is_memory(mapping);
  if (fd_ < 0 || sys::failed(sys::call(SYS_fstatfs, fd_, sys::ptr(&fs)))) return;
  huge_ = static_cast<uint32_t>(fs.f_type) == HUGETLBFS_MAGIC;
  memory_ = huge_ || static_cast<uint32_t>(fs.f_type) == TMPFS_MAGIC;
}

MappedObject::~MappedObject() {
  if (fd_ >= 0) sys::close(fd_);
}

bool MappedObject::stat(struct stat* st) const {
  return fd_ >= 0 && !sys::failed(sys::call(SYS_fstat, fd_, sys::ptr(st)));
}

// What cannot be read is beyond the end of the object, and counts as zeros. Shared memory is read
// by its descriptor, which leaves the process's page tables as they are.
bool MappedObject::copy_data(const Target& t, uint64_t offset, uint64_t end) {
  EagerCopy* e = t.capture->add_eager(t.space, offset, end - offset);
  if (!e) return false;
  if (fd_ < 0 || !memory_) {
    share_parts(offset, end, [&](uint64_t at, uint64_t stop) {
      copy_own_memory(e->bytes + (at - offset), reinterpret_cast<const void*>(at + t.delta),
                      stop - at);
    });
    return true;
  }
  share_parts(offset, end, [&](uint64_t at, uint64_t stop) {
    for (long n; at < stop; at += static_cast<uint64_t>(n)) {
      n = sys::pread(fd_, e->bytes + (at - offset), stop - at, at);
      if (n <= 0) break;
    }
  });
  // Bytes behind the end, in its last page, are in no read.
  struct stat st;
  if (!stat(&st)) return true;
  const uint64_t size = static_cast<uint64_t>(st.st_size), page = page_down(size);
  if (size % kPage && page >= offset && page < end)
    copy_own_memory(e->bytes + (page - offset), reinterpret_cast<const void*>(page + t.delta),
                    kPage);
  return true;
}

// As many pages as it is long. (Those that fallocate has added behind its end hide holes, which are
// read as zeros then.)
bool MappedObject::has_no_holes() const {
  constexpr uint64_t kBlock = 512;
  struct stat st;
  return memory_ && stat(&st) &&
         static_cast<uint64_t>(st.st_blocks) * kBlock >= static_cast<uint64_t>(st.st_size);
}

// The kernel looks for a hole one page after the other, which takes as long as the copy.
bool MappedObject::copy_by_descriptor(const Target& t, uint64_t offset, uint64_t end) {
  if (has_no_holes()) return copy_data(t, offset, end);
  for (uint64_t at = offset; at < end;) {
    long data = sys::call(SYS_lseek, fd_, static_cast<long>(at), kSeekData);
    if (data == kNoMoreData) return t.capture->add_hole(t.space, at, end - at);
    if (sys::failed(data)) return copy_data(t, at, end);
    const uint64_t begin = page_down(static_cast<uint64_t>(data));
    if (begin > at && !t.capture->add_hole(t.space, at, (begin < end ? begin : end) - at))
      return false;
    if (begin >= end) return true;
    const long hole = sys::call(SYS_lseek, fd_, data, kSeekHole);
    uint64_t stop = sys::failed(hole) ? end : page_up(static_cast<uint64_t>(hole));
    if (stop > end) stop = end;
    if (!copy_data(t, begin, stop)) return false;
    at = stop;
  }
  return true;
}

bool MappedObject::copy_resident(const Target& t, uint64_t offset, uint64_t end) {
  bool ok = true;
  const uint64_t told = each_resident_run(
      offset + t.delta, end - offset, [&](uint64_t at, uint64_t bytes, bool there) {
        at += offset;
        return ok = there ? copy_data(t, at, at + bytes) : t.capture->add_hole(t.space, at, bytes);
      });
  return ok && (offset + told == end || copy_data(t, offset + told, end));
}

// A huge page that was never used, and for which the pool has no page, cannot be read.
bool MappedObject::copy_huge_pages(const Target& t, uint64_t page, uint64_t offset, uint64_t end) {
  for (uint64_t at = offset; at < end; at += page)
    if (!copy_data(t, at, end - at < page ? end : at + page)) return false;
  return true;
}

bool MappedObject::copy_missing(Capture* c, const Vma& v, uint64_t space, uint64_t from,
                                uint64_t offset, uint64_t end) {
  const Target t{c, space, from - offset};
  const uint64_t bytes = end - offset;
  const bool readable = v.prot & PROT_READ;
  if (!readable)
    sys::call(SYS_mprotect, static_cast<long>(from), static_cast<long>(bytes), v.prot | PROT_READ);
  bool ok;
  if (v.flags & kVmaHugetlb)
    ok = copy_huge_pages(t, 1ull << (v.flags >> kVmaHugeShift), offset, end);
  else if (fd_ >= 0)
    ok = copy_by_descriptor(t, offset, end);
  else if (memory_ && (!swap_is_used() || !holds_swapped(mapping_.start, mapping_.end)))
    ok = copy_resident(t, offset, end);
  else
    ok = copy_data(t, offset, end);
  if (!readable) sys::call(SYS_mprotect, static_cast<long>(from), static_cast<long>(bytes), v.prot);
  return ok;
}

// A copy takes memory, which takes most of its time where it is not there yet. Each process has
// prepared as much as it expects to copy (Capture::expect_eager). False: it is worth nothing.
bool MappedObject::defer(Capture* c, const Vma& v, uint64_t space, uint64_t offset,
                         uint64_t end) const {
  constexpr uint64_t kWorthIt = 1 << 20;
  const uint64_t bytes = end - offset;
  if (!memory_ || bytes < kWorthIt || bytes <= c->eager_ready ||
      c->deferred_count == Capture::kDeferredRoom)
    return false;
  DeferredPart& part = c->deferred[c->deferred_count++];
  part = {mapping_, v, space, offset, end};
  part.mapping.name = "";
  return true;
}

bool MappedObject::copy_deferred(Capture* c) {
  for (size_t i = 0; i < c->deferred_count; ++i) {
    const DeferredPart& p = c->deferred[i];
    if (copied_by_another(p.mapping.device(), p.mapping.ino, p.offset, p.end)) continue;
    const uint64_t from = p.vma.start - p.vma.offset + p.offset;
    if (!MappedObject(p.mapping, nullptr, true)
             .copy_missing(c, p.vma, p.space, from, p.offset, p.end))
      return false;
  }
  return true;
}

bool MappedObject::copy(Capture* c, const Vma& v, uint64_t space, uint64_t offset, uint64_t from,
                        uint64_t bytes, bool once) {
  const uint64_t end = offset + bytes, delta = from - offset;
  const uint64_t dev = mapping_.device();
  // The processes of a job divide among them what all of them map; a restore writes whole pages.
  const uint64_t page = v.flags & kVmaHugetlb ? 1ull << (v.flags >> kVmaHugeShift) : kPage;
  const uint64_t part = page > kSharedPart ? page : kSharedPart;
  return c->look_at_rest(space, offset, end, [&](uint64_t at, uint64_t next) {
    for (uint64_t stop; at < next; at = stop) {
      stop = once && next - at > part ? (at + part) & ~(part - 1) : next;
      if (once && defer(c, v, space, at, stop)) continue;
      if (!(once && copied_by_another(dev, mapping_.ino, at, stop)) &&
          !copy_missing(c, v, space, at + delta, at, stop))
        return false;
    }
    return true;
  });
}

namespace {

// A mapping of an object from its beginning on, made from any shared mapping of it.
class Window {
 public:
  Window(uint64_t mapping, uint64_t bytes) : bytes_(bytes) {
    const long copy = sys::call(SYS_mremap, static_cast<long>(mapping), 0, static_cast<long>(bytes),
                                MREMAP_MAYMOVE);
    if (sys::failed(copy)) return;
    start = static_cast<uint64_t>(copy);
    if (sys::failed(sys::call(SYS_remap_file_pages, copy, static_cast<long>(bytes), 0, 0, 0)) ||
        sys::failed(sys::call(SYS_mprotect, copy, static_cast<long>(bytes), PROT_READ)))
      unmap();
  }
  ~Window() { unmap(); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  uint64_t start = 0;  // 0: it could not be made

 private:
  void unmap() {
    if (start) sys::munmap(start, bytes_);
    start = 0;
  }
  uint64_t bytes_;
};

// Up to where there are pages.
uint64_t present_bytes(uint64_t start, uint64_t bytes) {
  uint64_t present = 0;
  each_resident_run(start, bytes, [&](uint64_t at, uint64_t run, bool there) {
    if (there) present = at + run;
    return true;
  });
  return present;
}

}  // namespace

bool MappedObject::copy_hidden(Capture* c, uint64_t space, uint64_t mapping, uint64_t end,
                               uint64_t mapped, bool* seen) {
  constexpr uint64_t kMostBehind = 64 << 20;
  // Where pages are moved about, the last ones may be hidden as well: all may show the first.
  const uint64_t larger = end > mapped ? end : mapped;
  const uint64_t behind = larger < kMostBehind ? larger : kMostBehind;
  const Window window(mapping, end + behind);
  *seen = window.start != 0;
  if (!*seen) return true;
  MapsLine line{};
  line.start = window.start, line.end = window.start + end + behind;
  MappedObject object(line, nullptr, true);
  const Target target{c, space, window.start};
  const bool swapped = swap_is_used() && holds_swapped(line.start, line.end);
  const uint64_t all = end + present_bytes(window.start + end, behind);
  return c->look_at_rest(space, 0, all, [&](uint64_t at, uint64_t next) {
    // What is swapped out can only be told from what is not there by reading it.
    return swapped && at < end ? object.copy_data(target, at, next)
                               : object.copy_resident(target, at, next);
  });
}

bool MappedObject::copy_unmapped(Capture* c, uint64_t space, uint64_t size) {
  if (fd_ < 0 || !memory_ || huge_ || size % kPage) return true;
  return c->look_at_rest(space, 0, size, [&](uint64_t at, uint64_t next) {
    return copy_by_descriptor({c, space, 0}, at, next);
  });
}

}  // namespace gpuckpt
