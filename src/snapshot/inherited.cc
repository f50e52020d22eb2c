#include "snapshot/inherited.h"

#include <sys/stat.h>

#include "common/log.h"
#include "common/proc.h"
#include "common/syscall.h"
#include "common/text.h"
#include "snapshot/family.h"

namespace gpuckpt {
namespace {

constexpr uint32_t kMost = 64;  // more than any shell leaves open; what lies beyond is refused
struct Seen {
  uint64_t ino;
  bool warned;
} seen[kMost];
uint32_t count;

struct Child {
  int pid;
  uint64_t started;  // numbers are used again
} children[kMost];
uint32_t child_count;

uint64_t filters;

// The mode where the kernel does not count filters (before Linux 5.9).
uint64_t filters_in(const char* status) {
  const char* s = info_line(status, "Seccomp_filters:");
  if (!s) s = status_field(status, "Seccomp:");
  return scan_dec(&s);
}

bool note(void*, int fd) {
  struct stat st;
  if (fd <= 2 || sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st)))) return true;
  if ((S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) && count < kMost)
    seen[count++] = {st.st_ino, false};
  return true;
}

}  // namespace

void note_inherited_descriptors() { each_number_in("/proc/self/fd", nullptr, note); }

bool inherited(int fd, uint64_t ino, const char* what) {
  for (uint32_t i = 0; i < count; ++i) {
    if (seen[i].ino != ino) continue;
    if (what && !seen[i].warned)
      log_line(LogLevel::kWarn,
               "descriptor %d, which the program was started with, is a %s to another process: a "
               "restore finds it closed at the other end",
               fd, what);
    seen[i].warned |= what != nullptr;
    return true;
  }
  return false;
}

void note_inherited_filters() {
  char status[4096];
  filters =
      read_file("/proc/thread-self/status", status, sizeof(status)) > 0 ? filters_in(status) : 0;
}

bool has_own_filter(const char* status) { return filters_in(status) > filters; }

void note_inherited_children() {
  if (!has_children()) return;
  static Relative family[kMost];
  const size_t n = find_family(sys::getpid(), family, kMost);
  for (size_t i = 0; i < n; ++i)
    children[child_count++] = {family[i].pid, start_time_of(family[i].pid)};
}

bool inherited_child(int pid) {
  for (uint32_t i = 0; i < child_count; ++i)
    if (children[i].pid == pid) return start_time_of(pid) == children[i].started;
  return false;
}

}  // namespace gpuckpt
