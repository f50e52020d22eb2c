// The private pages of the process, as one snapshot sees them: which were written since the parent
// snapshot, which are gone, and, when that is the cheapest, a copy of them made while everybody is
// parked. Otherwise a copy-on-write child sends them from its own memory (pump.h).
//
// Everything is allocated before anybody is parked.
#pragma once

#include "snapshot/pagemap.h"
#include "snapshot/smaps.h"

namespace gpuckpt {

// A piece of the address space to send. `tracked`: only its written pages, the rest is as in the
// parent. `resolved`: `written` says which pages there are (else whoever sends it looks).
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

// What one way of getting the pages out of the process is expected to cost.
struct CopyPlan {
  bool copy = false;   // copy while parked; else clone
  uint64_t bytes = 0;  // expected to be copied
  uint64_t copy_us = 0, clone_us = 0;
  uint64_t small_pages = 0;  // 4 KiB pages a clone has to describe again
};

class HostPages {
 public:
  Smaps smaps;
  Smaps now;  // read while everybody was parked; empty when `smaps` is all there is to know
  Pagemap pagemap;
  PumpRange* ranges = nullptr;
  size_t range_count = 0, range_room = 0;
  PageList written, gone, guards;
  Region copy;          // room for a copy, touched already
  uint64_t copied = 0;  // bytes of it in use; the pages of `written` in order
  bool has_copy = false;
  bool register_later = false;  // memory worth tracking is registered at the end of the stop
  uint64_t written_bytes = 0, same_bytes = 0, scan_us = 0, copy_us = 0;
  CopyPlan plan;

  bool start();
  void finish();

  // PARKED. In a program that keeps memory from its children (MADV_DONTFORK, MADV_WIPEONFORK) what
  // it mapped since `smaps` was read could be such memory, which a clone would not have: reads the
  // flags again if there is any.
  void look_again();
  // Flags of the mapping at `address`; 0 when it was not known in time.
  uint32_t flags(uint64_t address) const;

  // ON THE COURIER, nobody parked: decides between copying and cloning, and gets the memory for a
  // copy.
  void make_plan(bool device_present);
  // PARKED. Finds the written pages of tracked ranges and protects them again; and guard pages.
  void find_written();
  // PARKED. Copies all pages; false: there are more than there is room for. Nothing is lost then.
  bool copy_pages();

 private:
  Region range_memory;
  bool find_written(PumpRange*);
  void find_guards(const PumpRange&);
  bool resolve(PumpRange*);
};

// What a clone and a copy of a page took the last time, for the next plan.
void learn_clone_cost(uint64_t us, uint64_t pages);
void learn_copy_cost(uint64_t us, uint64_t pages);

}  // namespace gpuckpt
