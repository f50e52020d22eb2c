// Which pages were written since the last snapshot.
//
// Anonymous memory is registered with userfaultfd for asynchronous write protection (Linux 6.7; no
// privilege needed): the kernel lifts the protection of a page at its first write, without a
// process having to answer, and PAGEMAP_SCAN tells afterwards which pages are not protected any
// more. Writes by the kernel (read(2), /proc/self/mem) count as well. What a mapping loses by
// itself makes it untracked, never wrong: a new mapping at the same address, one that mremap moved,
// and a forked child's memory are not registered.
//
// Older kernels: soft-dirty (CONFIG_MEM_SOFT_DIRTY; Debian's and Ubuntu's kernels have it). Writing
// to /proc/self/clear_refs protects all memory of the process, and /proc/self/pagemap tells what
// was written since. Alone that is not enough: a page that mremap moves together with its page
// table (2 MiB at a time) comes without the bit (seen on Linux 6.1). So the memory is registered
// with a userfaultfd all the same, which protects nothing and is never asked: a mapping that still
// has its mark is the one it was. Protection of all memory is renewed at once, in the stop, so
// nothing can be copied early. Any process of the user may write to our clear_refs; a page of ours
// that we write to right after clearing shows it.
//
// "Base" is the snapshot that our knowledge refers to. It is given up as soon as protections were
// renewed, and there is a new one when the new snapshot is durable: a snapshot that fails in
// between makes the next one look at everything.
//
// Not tracked, and therefore read each time: files' private pages, memory of less than 256 KiB,
// memory that is mostly in huge pages (the first write would split them, and copying a process
// whose memory is in huge pages costs next to nothing), and everything where the kernel offers
// nothing. The writer then finds by content what did not change.
//
// A device writes past the processor's page tables, but only into memory that is pinned for it
// (pinned, managed and registered memory, which the device side names; the rest of what its driver
// uses is in no snapshot). What is pinned at a snapshot, or was at the base, counts as written.
// What was pinned and unpinned in between needs only this: the kernel takes pages that it pins for
// a device as written at that moment, and their protection is renewed only by us, at a snapshot. By
// then the gate is closed and no transfer is under way.
//
// Owner: one per process. Threads: as each function says. Errors: what cannot be tracked is read in
// full.
#pragma once

#include "base/heap.h"
#include "snapshot/memory/pagemap.h"
#include "snapshot/memory/smaps.h"

namespace gpuckpt {

enum class TrackMode : uint32_t { kContent, kUffd, kSoftDirty };

// Memory a device can write to, as whole pages.
class DeviceRanges {
 public:
  void clear() { count_ = 0, full_ = false; }
  void add(uint64_t start, uint64_t end);
  // Whether `at` is in one of them. *end becomes the address where the answer changes, at most what
  // it was.
  bool holds(uint64_t at, uint64_t* end) const;

 private:
  static constexpr size_t kRoom = 1024;
  Range range_[kRoom]{};
  size_t count_ = 0;
  bool full_ = false;  // too many to remember: everything
};

class Tracker {
 public:
  // From GPUCKPT_TRACK: auto, uffd, soft-dirty, content.
  void configure(const char* value);
  TrackMode mode() const { return mode_; }
  const char* mode_name() const;
  // GPUCKPT_TRACK=soft-dirty: kernels that scan do so for write protection by userfaultfd.
  bool by_words() const { return mode_ == TrackMode::kSoftDirty; }
  // Pages are protected one range at a time, also while the program runs.
  bool protects_ranges() const { return mode_ == TrackMode::kUffd; }

  // Whether unchanged pages can be taken from this snapshot.
  bool knows_since(const char* id) const;

  // ON THE COORDINATOR, no thread parked. Marks what is tracked since the base; with `use_base`
  // false nothing is. True: there is memory that should be registered.
  bool prepare(Smaps*, bool use_base);
  // PARKED, ON THE COORDINATOR. Registers it: whole mappings only, as they are at this moment. A
  // mapping of which a part is registered would be two to the kernel, and mremap refuses two.
  void register_memory(Smaps*);
  // The same at the end of the stop: what it registers is armed by the next snapshot, which reads
  // it all once more.
  void register_later(Smaps*);
  // ON THE I/O THREAD, no thread parked, afterwards: write-protects what is newly registered (all,
  // without base). Pages written after this are known to have been written.
  void arm(Smaps*, Pagemap*);
  // Gate closed, no thread parked: asks the device side what it can write to.
  void ask_device();
  // PARKED. The same for one address, of now and of the base.
  bool device_writes(uint64_t at, uint64_t* end) const;
  // Protections of tracked memory are renewed from here on.
  void give_up_base() { base_[0] = 0; }
  // ON THE I/O THREAD, PARKED, soft-dirty. False: another process cleared the bits, nothing is
  // known.
  bool bits_are_ours(Pagemap*) const;
  // ON THE I/O THREAD, PARKED, soft-dirty, when all has been asked that is to be asked: from here
  // on, writes count for the next snapshot.
  void renew();
  // The snapshot is durable.
  void set_base(const char* id);

  // Whether `fd` is the library's in the application's descriptor table.
  bool owns_fd(int fd) const { return fd >= 0 && fd == fd_ && alive(); }
  void forget_after_fork();     // in a forked child: the memory is not registered any more
  void forget_after_restore();  // in a restored process

  uint64_t armed_us = 0, armed_bytes = 0, tracked_bytes = 0;

 private:
  bool alive() const;  // fd_ is still the userfaultfd we opened
  bool open();
  long agree(int fd);
  long make();

  TrackMode mode_ = TrackMode::kContent;
  bool forced_ = false, asked_ = false;  // asked_: the kernel was, for the mode
  int fd_ = -1;
  uint64_t dev_ = 0, ino_ = 0;
  char base_[64] = "";
  DeviceRanges device_now_, device_at_base_;
  bool unarmed_ = false;  // memory was registered and not armed: the coming base would know nothing
};
extern Tracker tracker;

}  // namespace gpuckpt
