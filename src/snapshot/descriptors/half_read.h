// Files whose text the kernel writes while it is read (/proc, control groups), of which the program
// has read a part. After a restore the text is another one: the byte at which the program goes on
// is in the middle of another line. Most programs have read all of it a moment later, so the
// attempt is given up for now; of one that stands still the user is told.
//
// Owner: the process; it lasts from one attempt to the next. Threads: PARKED, the coordinator.
// Errors: the Capture's failure.
#pragma once

#include "snapshot/descriptors/descriptors.h"

namespace gpuckpt {

class HalfRead {
 public:
  void begin_look() { met_ = false; }
  void end_look() { since_us_ = met_ ? since_us_ : 0; }  // when all descriptors have been looked at
  // Of a descriptor of kind kFdKernelFile on the file system of that type (statfs). Sets value[1].
  bool look_at(FdTable*, process::Descriptor*, const char* path, uint32_t file_system);

 private:
  uint64_t since_us_ = 0;  // when a look first met one; each look since has met one; 0: it did not
  bool met_ = false;       // in this look
};

extern HalfRead half_read;

}  // namespace gpuckpt
