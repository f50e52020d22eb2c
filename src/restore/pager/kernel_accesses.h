// Which memory of a program the kernel reads or writes in a system call, known before the call
// begins.
//
// Where a userfaultfd does not serve the kernel (UFFD_USER_MODE_ONLY), a call that meets a missing
// page fails with EFAULT, or half of its work is done. So the pages are put there at the call's
// entry. A call that is not in the table here, or whose arguments are, waits until no page is
// missing: that is always right, and only slow.
//
// Owner: none. Threads: any. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuckpt::restore {

struct SystemCall {
  uint64_t number;
  uint64_t arguments[6];
  uint64_t stack;  // the thread's stack pointer
  int thread;      // its id
};

// The program's memory.
class ProgramMemory {
 public:
  virtual ~ProgramMemory() = default;
  // Puts all pages of the range there. What lies in no mapping is left out.
  virtual void supply(uint64_t address, uint64_t bytes) = 0;
  // supply(), and their contents; false: they cannot be read.
  virtual bool read(uint64_t address, void* to, size_t bytes) = 0;
};

enum class CallMay {
  kBegin,           // all that the kernel uses is there
  kBeginWhenThere,  // when no page of this process is missing
  kBeginWhenAllAre  // when no page of any process of the job is: it reaches into others
};
CallMay supply_for_call(const SystemCall&, ProgramMemory*);

// The call is interrupted by a tracer with EINTR, and would not continue by itself with the time
// that was left: it ends within a time that the program chose, or not before something happens.
bool ends_when_interrupted(const SystemCall&);
// Such a call ends by itself, by its time-out.
bool has_time_out(const SystemCall&);
// Its time-out is argument 3, an int of milliseconds.
bool has_time_out_in_ms(const SystemCall&);

}  // namespace gpuckpt::restore
