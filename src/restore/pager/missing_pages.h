// The pages that a restored program still lacks, and those of children that it forked since: which
// bytes of the snapshot belong there, and how they get there.
//
// Pages are put there by UFFDIO_COPY, for one that the program touched (serve()), for all in the
// background (fill()), or for an access of the kernel that would not wait (supply()). What the
// program does to missing pages meanwhile (unmap, move, discard, fork) arrives as events, and the
// kernel lets no call continue before its event was read.
//
// Owner: the pager's process. Threads: any; serve() runs on one of its own. Errors: fill() is false
// when the store cannot be read or memory cannot be written.
#pragma once

#include <linux/userfaultfd.h>
#include <sys/types.h>

#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "restore/memory/fill.h"
#include "store/snapshot_reader.h"

namespace gpuckpt::restore {

class MissingPages {
 public:
  // `kernel_waits`: the kernel's own accesses wait for a page as the program's do.
  MissingPages(const store::SnapshotReader& reader, std::vector<store::Extent> data,
               unsigned threads, bool kernel_waits)
      : reader_(reader), data_(std::move(data)), threads_(threads), kernel_waits_(kernel_waits) {}
  // `pagemap`: the process's, open for reading; needed for supply() alone.
  void add(int uffd, Fd pagemap, const std::vector<AddressRange>& ranges);

  // From now on the kernel alone supplies what is missing in [start, end).
  static void unregister(int uffd, uint64_t start, uint64_t end);

  // Handles touches and events for as long as the process lives. Ending closes all descriptors at
  // once: until then missing pages are served, in the program and in its children.
  [[noreturn]] void serve();
  // Returns when nothing is missing any more, or when all processes have ended; false: it failed.
  bool fill();
  // fill() has succeeded: what is still missing are holes, for which the kernel alone is enough.
  void release();
  // Puts the pages of [start, end) there that the first process lacks. False: it failed.
  bool supply(uint64_t start, uint64_t end);

 private:
  // One address space with missing pages: the program's, or that of a child that it forked since.
  struct Space {
    // By start: missing [start, end) has the snapshot's bytes at `from` and behind.
    struct Segment {
      uint64_t end, from;
    };
    int uffd;
    std::map<uint64_t, Segment> segments;
    bool filled = false;  // only holes are missing
    bool gone = false;    // the process ended, or runs another program

    const std::pair<const uint64_t, Segment>* find(uint64_t address) const;
    // Where the snapshot has the page at `address`, which is in `segment` (null: in none).
    static uint64_t source_of(const std::pair<const uint64_t, Segment>* segment, uint64_t address);
    // Removes [start, end) and returns it.
    std::map<uint64_t, Segment> cut(uint64_t start, uint64_t end);
  };
  struct Touch {
    int uffd;
    uint64_t address, from;
  };
  enum class Put { kDone, kBusy, kGone, kFailed };

  Put copy_in(int uffd, uint64_t to, const uint8_t* bytes, uint64_t length);
  Put copy_pages(int uffd, uint64_t to, const uint8_t* bytes, uint64_t length);
  bool place(uint64_t from, const uint8_t* bytes, uint64_t length);
  Put place_once(uint64_t from, const uint8_t* bytes, uint64_t length);
  void take_messages(Space*);
  void touched(int uffd, uint64_t address, uint64_t from);
  void event(Space*, const uffd_msg&);
  bool is_there(uint64_t address) const;

  const store::SnapshotReader& reader_;
  const std::vector<store::Extent> data_;
  const unsigned threads_;
  const bool kernel_waits_;
  Fd pagemap_;
  // Held while an event is read and noted, and while pages are looked up and copied in, so that no
  // copy uses a state from before an event.
  std::mutex mutex_;
  std::list<Space> spaces_;
  bool released_ = false;
  std::atomic<bool> failed_{false};
  std::vector<Touch> touches_;
};

}  // namespace gpuckpt::restore
