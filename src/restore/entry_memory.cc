#include "restore/entry_memory.h"

#include "common/log.h"
#include "common/syscall.h"

namespace gpuckpt {

using namespace process;

bool restore_guards(const Span* guards, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (sys::failed(sys::call(SYS_madvise, static_cast<long>(guards[i].start),
                              static_cast<long>(guards[i].end - guards[i].start),
                              102 /* MADV_GUARD_INSTALL */)))
      return false;
  return true;
}

void restore_locked(const Vma& v) {
  if (!(v.flags & kVmaLocked) || v.kind == kVmaPlaceholder) return;
  // A guard page inside ends the reading in with an error, but the lock is there.
  long r = sys::call(SYS_mlock, static_cast<long>(v.start), static_cast<long>(v.end - v.start));
  if (r == -1 /* EPERM */ || r == -12 /* ENOMEM */ || r == -11)
    log_line(LogLevel::kWarn, "%lx-%lx cannot be locked in memory here (error %ld; ulimit -l)",
             v.start, v.end, -r);
}

void restore_policy(const MemoryPolicy& p) {
  long r = p.tid
               ? sys::call(SYS_set_mempolicy, p.mode, sys::ptr(p.nodes), 1024)
               : sys::call(SYS_mbind, static_cast<long>(p.start),
                           static_cast<long>(p.end - p.start), p.mode, sys::ptr(p.nodes), 1024, 0);
  if (!sys::failed(r)) return;
  if (p.tid)
    log_line(LogLevel::kWarn, "thread %d cannot have its NUMA policy here (error %ld)", p.tid, -r);
  else
    log_line(LogLevel::kWarn, "%lx-%lx cannot have its NUMA policy here (error %ld)", p.start,
             p.end, -r);
}

}  // namespace gpuckpt
