// Which pages were written since the last snapshot.
//
// Anonymous memory is registered with userfaultfd for asynchronous write protection (Linux 6.7; no
// privilege needed): the kernel lifts the protection of a page at its first write, without anybody
// having to answer, and PAGEMAP_SCAN tells afterwards which pages are not protected any more.
// Writes by the kernel (read(2), /proc/self/mem) count as well. What a mapping loses by itself
// makes it untracked, never wrong: a new mapping at the same address, one that mremap moved, and a
// forked child's memory are not registered.
//
// "Base" is the snapshot that our knowledge refers to. It is given up as soon as protections were
// renewed, and there is a new one when the new snapshot is durable: a snapshot that fails in
// between makes the next one look at everything.
//
// Not tracked, and therefore read each time: files' private pages, memory of less than 256 KiB,
// memory that is mostly in huge pages (the first write would split them, and copying a process
// whose memory is in huge pages costs next to nothing), memory a device may write to, and
// everything where the kernel offers nothing. The writer then finds by content what did not change.
#pragma once

#include "snapshot/pagemap.h"
#include "snapshot/smaps.h"

namespace gpuckpt {

enum class TrackMode : uint32_t { kContent = 0, kUffd = 1 };

class Tracker {
 public:
  // From GPUCKPT_TRACK: auto, uffd, content.
  void configure(const char* value);
  TrackMode mode() const { return mode_; }
  const char* mode_name() const { return mode_ == TrackMode::kUffd ? "uffd" : "content"; }

  // Can unchanged pages be taken from this snapshot?
  bool knows_since(const char* id) const;

  // ON THE COORDINATOR, nobody parked. Marks what is tracked since the base; with `use_base` false
  // nothing is. True: there is memory that should be registered.
  bool prepare(Smaps*, bool use_base);
  // PARKED, ON THE COORDINATOR. Registers it: whole mappings only, as they are at this moment. A
  // mapping of which a part is registered would be two to the kernel, and mremap refuses two.
  void register_memory(Smaps*);
  // ON THE COURIER, nobody parked, afterwards: write-protects what is newly registered (all,
  // without base). Pages written after this are known to have been written.
  void arm(Smaps*, Pagemap*);
  // Protections of tracked memory are renewed from here on.
  void give_up_base() { base_[0] = 0; }
  // The snapshot is durable.
  void set_base(const char* id);

  // Is `fd` ours in the application's descriptor table?
  bool owns_fd(int fd) const { return fd >= 0 && fd == fd_ && alive(); }
  void forget_after_fork();     // in a forked child: the memory is not registered any more
  void forget_after_restore();  // in a restored process

  uint64_t armed_us = 0, tracked_bytes = 0;

 private:
  bool alive() const;  // fd_ is still the userfaultfd we opened
  bool open();

  TrackMode mode_ = TrackMode::kContent;
  bool forced_ = false, tried_ = false;
  int fd_ = -1;
  uint64_t dev_ = 0, ino_ = 0;
  char base_[64] = "";
};
extern Tracker tracker;

}  // namespace gpuckpt
