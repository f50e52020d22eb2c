// The private pages of the process, as one snapshot sees them: which were written since the parent
// snapshot, which are gone, and, when that is the cheapest, a copy of them. Otherwise a
// copy-on-write child sends them from its own memory (host_pump.h).
//
// Most of a copy is made before any thread is parked ("early"): a page is write-protected first and
// copied then, so that the stop finds every page whose copy is not what it should be among those
// written meanwhile. What was written during one round is copied by the next one, as in the
// migration of a virtual machine, until so little is left that the stop may copy it, or a round
// gains nothing because the program writes as fast as we copy. What there is no room for, and what
// is tracked from now on, goes to the writer instead, in the same rounds (stream.h).
//
// Everything is allocated before any thread is parked.
//
// Owner: the Capture. Threads: as each function says. Errors: what cannot be copied or tracked is
// read by another way; start() returns false without memory.
#pragma once

#include "snapshot/io/ring.h"
#include "snapshot/memory/pagemap.h"
#include "snapshot/memory/smaps.h"

namespace gpuckpt {

// A piece of the address space to send. `tracked`: only its written pages, the rest is as in the
// parent. `resolved`: `written` says which pages there are (else the sending thread checks).
struct PumpRange {
  uint64_t start, end;
  bool readable, file, tracked, resolved;
  uint32_t written_begin, written_end;  // in HostPages::written
  uint32_t gone_begin, gone_end;        // in HostPages::gone: not there any more
};

struct PageList {
  Region memory;
  PageRegion* at = nullptr;
  uint32_t count = 0, room = 0;
  bool start(uint32_t entries);
  void finish();
};

// What one way of sending the process's pages is expected to cost.
struct CopyPlan {
  bool copy = false;   // copy; else clone
  uint64_t bytes = 0;  // expected to be copied while parked
  uint64_t copy_us = 0, clone_us = 0;
  uint64_t small_pages = 0;  // 4 KiB pages a clone has to describe again
};

class HostPages {
 public:
  Smaps smaps;
  Smaps now;  // read later, while all threads were parked or after memory was sent; empty when
              // `smaps` is all there is to know
  Pagemap pagemap;
  PumpRange* ranges = nullptr;
  size_t range_count = 0, range_room = 0;
  PageList written, gone, guards;
  PageList early;            // `categories`: where in `copy` its bytes are
  Region copy;               // room for a copy, touched already
  uint64_t early_bytes = 0;  // of it, in use before the stop
  uint32_t rounds = 0;       // in which they were copied
  uint64_t copied = 0;       // of it, in use in all: behind the early ones the pages of `written`
  bool has_copy = false;
  bool register_later = false;  // memory worth tracking is registered at the end of the stop
  uint64_t scan_us = 0, copy_us = 0, early_us = 0;
  uint64_t streamed_bytes = 0;  // sent before the stop
  uint32_t streamed_rounds = 0;
  CopyPlan plan;

  bool start();
  void finish();

  // PARKED. In a program that keeps memory from its children (MADV_DONTFORK, MADV_WIPEONFORK) what
  // it mapped since `smaps` was read could be such memory, which a clone would not have: reads the
  // flags again if there is any.
  void look_again();
  // Whether there was a mapping at `address` when the mappings were last read.
  bool knows(uint64_t address) const { return (now.empty() ? smaps : now).find(address); }
  // Flags of the mapping at `address`; 0 when it was not known in time.
  uint32_t flags(uint64_t address) const;

  // ON THE I/O THREAD, no thread parked: sends to the writer what the stop would take long for, if
  // that pays. Again: what was written since.
  void precopy(Producer* out);
  // ON THE I/O THREAD, no thread parked: copies what was written, if that pays, decides between
  // copying and cloning, and gets the memory for a copy.
  void make_plan(bool device_present);
  // PARKED. Finds the written pages of tracked ranges and protects them again; guard pages; and the
  // pages of small ranges that are not tracked.
  void find_written();
  // PARKED. Guard pages of memory that is not in a range: shared, or of files.
  void find_guards(uint64_t start, uint64_t end);
  // PARKED. Copies all pages; false: there are more than there is room for. Nothing is lost then.
  bool copy_pages();

  // What a resolved range consists of, by address: written(start, end), early(start, end, where)
  // with `where` in `copy`, and same(start, end); what is gone is left out, and so is what else an
  // untracked range has. Ends with false as soon as one of them returns false.
  template <typename Written, typename Early, typename Same>
  bool each_piece(const PumpRange&, Written written, Early early, Same same) const;

  // For memory that does not change meanwhile: whether a large untracked range has nothing in it
  // and need not be looked at page by page.
  static bool skip(const PumpRange& r, const Pagemap& by) {
    constexpr uint64_t kLarge = 1ull << 30;
    return by.by_words() && r.end - r.start >= kLarge && holds_nothing(r.start, r.end);
  }

  // After the stop, in bytes: of tracked ranges, what was written since the parent, and what not.
  void count(uint64_t* written, uint64_t* same) const;

 private:
  // Finding memory for a larger copy takes long; such pages are sent only after the stop.
  static constexpr uint64_t kLittle = 64ull << 20;
  Region range_memory;
  Range* tracked_ranges = nullptr;  // as many as `ranges`
  PageList fresh;                   // what the current round copies
  uint64_t populated = 0;           // of `copy`

  uint64_t count_written();
  void protect_written(PageList*);
  void merge_fresh();
  bool copy_fresh();
  bool copy_fresh_from(int memory);  // -1: by process_vm_readv
  // Bytes of memory that is read in the stop; `fresh`: that would be tracked if it were sent now.
  uint64_t untracked(uint64_t* fresh);
  uint64_t expect_clone();
  bool sending_pays(uint64_t fresh, uint64_t dirty) const;
  void send_rounds(Producer* out, uint64_t expected);
  bool take_early(uint64_t later_bytes);
  bool copy_round(uint64_t later_bytes);
  bool rounds_pay(uint64_t dirty, uint64_t all) const;
  bool make_room(uint64_t bytes, uint64_t spare);
  void populate(uint64_t bytes);
  uint32_t first_early(uint64_t address) const;  // that ends behind it
  bool find_changed();
  bool protect_little(uint32_t first);  // of `written`
  bool find_written(PumpRange*);
  bool resolve(PumpRange*);
  size_t resolve_neighbours(size_t first);
  bool resolve_together(size_t first, size_t end);
};

template <typename Written, typename Early, typename Same>
bool HostPages::each_piece(const PumpRange& r, Written on_written, Early on_early,
                           Same on_same) const {
  uint32_t w = r.written_begin, g = r.tracked ? r.gone_begin : r.gone_end;
  uint32_t e = r.tracked ? first_early(r.start) : early.count;
  for (uint64_t at = r.start, next; at < r.end; at = next) {
    while (g < r.gone_end && gone.at[g].end <= at) ++g;
    while (e < early.count && early.at[e].end <= at) ++e;
    next = r.end;
    if (w < r.written_end && written.at[w].start <= at) {
      next = written.at[w++].end;
      if (!on_written(at, next)) return false;
      continue;
    }
    if (w < r.written_end && written.at[w].start < next) next = written.at[w].start;
    if (g < r.gone_end && gone.at[g].start <= at) {
      if (gone.at[g].end < next) next = gone.at[g].end;
      continue;
    }
    if (g < r.gone_end && gone.at[g].start < next) next = gone.at[g].start;
    if (!r.tracked) continue;
    const PageRegion* copied = e < early.count ? &early.at[e] : nullptr;
    if (copied && copied->start <= at) {
      if (copied->end < next) next = copied->end;
      if (!on_early(at, next, copied->categories + (at - copied->start))) return false;
      continue;
    }
    if (copied && copied->start < next) next = copied->start;
    if (!on_same(at, next)) return false;
  }
  return true;
}

// What a clone and a copy of a page took the last time, for the next plan.
void learn_clone_cost(uint64_t us, uint64_t pages);
void learn_copy_cost(uint64_t us, uint64_t pages);

}  // namespace gpuckpt
