// Pages that are sent to the writer before the stop, while the program runs: all that is tracked
// from now on (of a first snapshot nearly everything), or more written pages than a copy has room
// for.
//
// A page is write-protected first and read then, so that the stop finds a later change among the
// pages written meanwhile, and sends only the names of the rest (kRunSame): the writer knows what
// came last. It works in rounds like the copies of host_pages.h, which follow it: each sends what
// was written during the one before.
//
// Owner: the attempt. Threads: the I/O thread, no thread parked. Errors: false.
#pragma once

#include "snapshot/io/ring.h"
#include "snapshot/memory/pagemap.h"
#include "snapshot/memory/smaps.h"

namespace gpuckpt {

class PageStream {
 public:
  PageStream(Smaps* smaps, Pagemap* pagemap, Producer* out)
      : smaps_(smaps), pagemap_(pagemap), out_(out) {}

  // ON THE I/O THREAD, no thread parked. One round: sends all pages of what is protected and not
  // tracked, which is tracked from then on, and of tracked memory what was written; `expected`:
  // about so many bytes. False: the writer is gone, this kernel does not let us read, or the
  // program was `outrun`; what was sent is known all the same.
  bool round(uint64_t expected);

  uint64_t bytes = 0;    // sent, in all rounds
  bool outrun = false;   // the program writes faster than this can send: given up
  bool gives_up = true;  // else it goes on however fast that is

 private:
  bool send(const PageRegion*, size_t count);
  bool send_page(uint64_t at);
  bool outruns(uint64_t up_to, uint64_t sent, uint64_t expected);

  Smaps* smaps_;
  Pagemap* pagemap_;
  Producer* out_;
};

}  // namespace gpuckpt
