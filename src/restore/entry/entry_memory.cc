#include "restore/entry/entry_memory.h"

#include "base/syscall.h"
#include "base/text/text.h"
#include "restore/entry/warnings.h"

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
  // A guard page inside makes the call fail while it reads pages in, but the range is locked.
  const long bytes = static_cast<long>(v.end - v.start);
  const long r = v.flags & kVmaLockedOnFault
                     ? sys::call(SYS_mlock2, static_cast<long>(v.start), bytes, 1 /* ONFAULT */)
                     : sys::call(SYS_mlock, static_cast<long>(v.start), bytes);
  if (r == -1 /* EPERM */ || r == -12 /* ENOMEM */ || r == -11)
    warn("%lx-%lx cannot be locked in memory here (error %ld; ulimit -l)", v.start, v.end, -r);
}

void restore_title(const Vma& v, const char* path) {
  constexpr int kSetVma = 0x53564d41;  // PR_SET_VMA, PR_SET_VMA_ANON_NAME is 0
  constexpr char kPrivate[] = "[anon:", kShared[] = "[anon_shmem:";
  const char* title = starts_with(path, kPrivate)  ? path + sizeof(kPrivate) - 1
                      : starts_with(path, kShared) ? path + sizeof(kShared) - 1
                                                   : nullptr;
  if (!title) return;
  char text[128];
  copy(text, sizeof(text), title);
  if (const size_t n = length(text); n && text[n - 1] == ']') text[n - 1] = 0;
  sys::call(SYS_prctl, kSetVma, 0, static_cast<long>(v.start), static_cast<long>(v.end - v.start),
            sys::ptr(text));
}

bool restore_seal(const Vma& v) {
  constexpr long kMseal = 462;
  return !(v.flags & kVmaSealed) || v.kind == kVmaPlaceholder ||
         !sys::failed(
             sys::call(kMseal, static_cast<long>(v.start), static_cast<long>(v.end - v.start), 0));
}

void restore_policy(const MemoryPolicy& p) {
  long r = p.tid
               ? sys::call(SYS_set_mempolicy, p.mode, sys::ptr(p.nodes), 1024)
               : sys::call(SYS_mbind, static_cast<long>(p.start),
                           static_cast<long>(p.end - p.start), p.mode, sys::ptr(p.nodes), 1024, 0);
  if (!sys::failed(r)) return;
  if (p.tid)
    warn("thread %d cannot have its NUMA policy here (error %ld)", p.tid, -r);
  else
    warn("%lx-%lx cannot have its NUMA policy here (error %ld)", p.start, p.end, -r);
}

}  // namespace gpuckpt
