#include "snapshot/control/inherited.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/environment.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "snapshot/calls/confinement.h"
#include "snapshot/calls/seccomp.h"
#include "snapshot/control/state.h"
#include "snapshot/job/barrier.h"
#include "snapshot/job/job_name.h"
#include "snapshot/job/membership.h"
#include "snapshot/process/warnings.h"

namespace gpuckpt {
namespace {

constexpr uint32_t kMost = 64;  // more than any shell leaves open; what lies beyond is refused
// What the process inherited is read once, when the library starts, and holds for the process's
// whole life.
uint64_t seen[kMost];  // inode numbers
uint32_t count;
uint64_t standard[3];  // of those that are pipes

struct Log {
  uint64_t dev, ino;
} logs[kMost];
uint32_t log_count;

struct Child {
  int pid;
  uint64_t started;  // numbers are used again
} children[kMost];
uint32_t child_count;

uint64_t outside_filters;  // of seccomp: of the job's start, or of the restore

Namespaces own;      // when the process was started, or restored
Namespaces outside;  // of the job's start, or of the restore

uint64_t pid_namespace;  // likewise

uint64_t this_pid_namespace() {
  struct stat st;
  const long r =
      sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr("/proc/thread-self/ns/pid"), sys::ptr(&st), 0);
  return sys::failed(r) ? 0 : st.st_ino;
}

constexpr char kStartedIn[] = "GPUCKPT_STARTED_IN=";
// Between the namespaces, the letters of confinement.h and the number of filters.
constexpr char kConfinedBy = ';';
constexpr size_t kNumberText = 20;
char started[sizeof(kStartedIn) + kNamespacesText + 1 + kConfinementText + 1 + kNumberText];

void write_started() {
  copy(started, sizeof(started), kStartedIn);
  write_namespaces(outside, started + sizeof(kStartedIn) - 1, kNamespacesText);
  char* end = started + length(started);
  *end = kConfinedBy;
  write_confinement(end + 1, kConfinementText);
  end += length(end);
  format(end, kNumberText + 2, "%c%lu", kConfinedBy, outside_filters);
}

void read_started(const char* text) {
  char names[kNamespacesText];
  copy(names, sizeof(names), text);
  for (char* s = names; *s; ++s)
    if (*s == kConfinedBy) *s = 0;
  read_namespaces(names, &outside);
  const char* s = text;
  while (*s && *s != kConfinedBy) ++s;
  if (!*s) return;
  read_confinement(++s);
  while (*s && *s != kConfinedBy) ++s;
  if (*s) outside_filters = scan_dec(&++s);
}

bool note(void*, int fd) {
  struct stat st;
  if (sys::failed(sys::call(SYS_fstat, fd, sys::ptr(&st)))) return true;
  // (What a child of the program was started with may be the program's own.)
  const long flags = sys::call(SYS_fcntl, fd, F_GETFL);
  if (S_ISREG(st.st_mode) && !sys::failed(flags) && flags & O_APPEND &&
      first_of_job() == library.pid && log_count < kMost)
    logs[log_count++] = {st.st_dev, st.st_ino};
  if (fd <= 2 && S_ISFIFO(st.st_mode)) standard[fd] = st.st_ino;
  if (fd > 2 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) && count < kMost)
    seen[count++] = st.st_ino;
  return true;
}

}  // namespace

void note_inherited_descriptors() { each_number_in("/proc/self/fd", nullptr, note); }

bool inherited_log(uint64_t dev, uint64_t ino) {
  for (uint32_t i = 0; i < log_count; ++i)
    if (logs[i].dev == dev && logs[i].ino == ino) return true;
  return false;
}

bool inherited(uint64_t ino) {
  for (uint32_t i = 0; i < count; ++i)
    if (seen[i] == ino) return true;
  return false;
}

int inherited_standard(uint64_t ino) {
  for (int fd = 2; fd >= 0; --fd)
    if (standard[fd] == ino) return fd;
  return -1;
}

void note_inherited_standard(const uint64_t (&inodes)[3]) {
  for (int fd = 0; fd < 3; ++fd) standard[fd] = inodes[fd];
}

void warn_of_inherited(int fd, const char* what, int pid, uint32_t others) {
  char holder[32] = "", more[64] = "";
  if (job_barrier.active()) format(holder, sizeof(holder), "process %d: ", pid);
  if (others) format(more, sizeof(more), " (which %u more of the job have)", others);
  add_job_warning(
      "%sdescriptor %d, which the program was started with, is a %s to another process%s: a "
      "restore finds it closed at the other end",
      holder, fd, what, more);
}

void note_inherited_filters() {
  note_filters_at_start();
  outside_filters = filters_at_start();
}

bool added_filters(const char* status) {
  return filters_in(status) > outside_filters + remembered_filters();
}

void note_inherited_namespaces(const Namespaces* restorer) {
  own = namespaces_of("thread-self");
  pid_namespace = this_pid_namespace();
  outside = restorer ? *restorer : own;
  if (!restorer)
    if (const char* before = environment_value("GPUCKPT_STARTED_IN")) read_started(before);
  write_started();
  if (!restorer) put_in_environment(started);
}

bool in_new_pid_namespace() { return this_pid_namespace() != pid_namespace; }

void note_confinement() { write_started(); }

char* started_in() { return started; }

bool changed_namespaces(char* text, size_t room) {
  const Namespaces now = still_in(own, "thread-self") ? own : namespaces_of("thread-self");
  uint32_t parts = difference(own, now);
  if (!parts && job_barrier.role() == JobBarrier::Role::kMember)
    parts = difference(now, job_barrier.shared_state()->leaders_namespaces);
  if (parts) name_namespaces(parts, text, room);
  return parts;
}

uint32_t foreign_parts(const Namespaces& asker) {
  // A restored process may be in namespaces that the restore made, and these do not count.
  const uint32_t moved = library.generation ? 0 : difference(own, outside);
  return (moved | difference(asker, library.generation ? outside : own)) & ~kPidNamespace;
}

void note_inherited_children() {
  if (!has_children()) return;
  Relative descendants[kMost];
  const size_t n = find_descendants(sys::getpid(), descendants, kMost);
  for (size_t i = 0; i < n; ++i)
    children[child_count++] = {descendants[i].pid, start_time_of(descendants[i].pid)};
}

bool inherited_child(int pid) {
  for (uint32_t i = 0; i < child_count; ++i)
    if (children[i].pid == pid) return start_time_of(pid) == children[i].started;
  return false;
}

}  // namespace gpuckpt
