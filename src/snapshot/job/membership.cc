#include "snapshot/job/membership.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <initializer_list>

#include "base/heap.h"
#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"
#include "gpuckpt/wire.h"
#include "snapshot/control/state.h"
#include "snapshot/job/job_name.h"

namespace gpuckpt {
namespace {

constexpr size_t kMostProcesses = 65536;

struct Table {
  Relative* all;
  size_t count;
};

// "ask" and "look" are short clones in a stop (copied_process.h, tracer.h). "lease" renews the
// lease of the job (tools/gpuckpt/process/job_lease.h); once it has lost the lease, it is a child
// that has ended and that the program must not be given back.
bool is_ours(const Relative& r) {
  for (const char* name :
       {"gpuckpt-copy", "gpuckpt-writer", "gpuckpt-ask", "gpuckpt-look", "gpuckpt-lease"})
    if (starts_with(r.name, name)) return true;
  return false;
}

void describe(const ProcStat& stat, int pid, Relative* out) {
  *out = {};
  out->pid = pid;
  out->ppid = stat.number(ProcStat::kParent);
  out->pgid = stat.number(ProcStat::kGroup);
  out->sid = stat.number(ProcStat::kSession);
  out->started = stat.field[ProcStat::kStartTime];
  out->state = stat.state;
  copy(out->name, sizeof(out->name), stat.name);
}

}  // namespace

bool look_at(int pid, Relative* out) {
  ProcStat stat;
  if (!read_stat_of(pid, &stat)) return false;
  describe(stat, pid, out);
  return true;
}

bool look_at_thread(int pid, int tid, Relative* out) {
  ProcStat stat;
  if (!read_stat_of_thread(pid, tid, &stat)) return false;
  describe(stat, tid, out);
  return true;
}

bool lives(int pid) {
  Relative r;
  return look_at(pid, &r) && r.state != 'Z' && r.state != 'X';
}

bool has_children() {
  char info[128];
  constexpr long kAny = WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT | __WALL;
  return sys::call(SYS_waitid, 0 /* P_ALL */, 0, sys::ptr(info), kAny, 0) != -10 /* ECHILD */;
}

// The library's file may have been replaced by another version since.
bool find_library(int pid, uint64_t* start) {
  char path[40];
  char text[4096 + 512];
  format(path, sizeof(path), "/proc/%d/maps", pid);
  LineReader maps(path, text, sizeof(text));
  while (char* line = maps.next()) {
    if (!ends_with(line, "/libgpuckpt.so") && !ends_with(line, "/libgpuckpt.so (deleted)"))
      continue;
    MapsLine first;
    *start = parse_maps_line(line, &first) ? first.start : 0;
    return true;
  }
  return false;
}

bool has_library(int pid) {
  uint64_t start;
  return find_library(pid, &start);
}

bool is_ending(int pid) {
  constexpr int kExiting = 4;  // PF_EXITING
  ProcStat stat;
  return read_stat_of(pid, &stat) && stat.number(ProcStat::kFlags) & kExiting;
}

bool listens(int pid) {
  return catches_signal(pid, wire::kWakeSignal, nullptr) && has_library(pid);
}

namespace {

// The highest ancestor that is reached without leaving processes that listen to the library's
// signal.
int climb(int pid) {
  Relative r;
  while (look_at(pid, &r) && r.ppid > 1 && listens(r.ppid)) pid = r.ppid;
  return pid;
}

// Lists every process of the pid namespace.
bool read_table(Region* memory, Table* t) {
  *memory = scratch_map(kMostProcesses * sizeof(Relative));
  if (!*memory) return false;
  *t = {reinterpret_cast<Relative*>(memory->data()), 0};
  return each_number_in("/proc", t, [](void* context, int pid) {
    Table* table = static_cast<Table*>(context);
    if (look_at(pid, &table->all[table->count])) ++table->count;
    return table->count < kMostProcesses;
  });
}

// A process that was found loses its parent in the table, so that it is not found twice.
struct Search {
  Table t;
  Relative* out;
  size_t room, found, done;

  void take(size_t i, bool orphan) {
    out[found] = t.all[i];
    out[found++].orphan = orphan;
    t.all[i].pid = 0;
  }
  void take_children_of(int parent) {
    for (size_t i = 0; i < t.count && found < room; ++i)
      if (t.all[i].pid && t.all[i].ppid == parent && !is_ours(t.all[i])) take(i, false);
  }
  void take_descendants() {
    for (; done < found && found < room; ++done) take_children_of(out[done].pid);
  }
};

size_t search(int root, Relative* out, size_t room, bool with_orphans) {
  Region memory{};
  Search s{{}, out, room, 0, 0};
  if (read_table(&memory, &s.t)) {
    for (size_t i = 0; i < s.t.count; ++i)
      if (s.t.all[i].pid == root) s.t.all[i].pid = 0;
    s.take_children_of(root);
    s.take_descendants();
    for (size_t i = 0; with_orphans && i < s.t.count && s.found < room; ++i) {
      const Relative& r = s.t.all[i];
      if (!r.pid || r.state == 'Z' || r.state == 'X' || is_ours(r) ||
          !has_job_name(r.pid, r.started))
        continue;
      s.take(i, true);
    }
    s.take_descendants();
  }
  scratch_unmap(&memory);
  return s.found;
}

}  // namespace

int find_root() {
  const int top = climb(library.pid), leader = leader_of_job();
  if (top == leader) return top;
  Relative r;
  if (look_at(leader, &r) && has_job_name(leader, r.started) && listens(leader))
    return climb(leader);
  if (!look_at(top, &r)) return top;
  Relative oldest = r;
  Region memory{};
  Table t{};
  read_table(&memory, &t);
  for (size_t i = 0; i < t.count; ++i) {
    const Relative& other = t.all[i];
    const bool older = other.started < oldest.started ||
                       (other.started == oldest.started && other.pid < oldest.pid);
    if (older && has_job_name(other.pid, other.started) && listens(other.pid)) oldest = other;
  }
  scratch_unmap(&memory);
  return oldest.pid == top ? top : climb(oldest.pid);
}

size_t find_descendants(int root, Relative* out, size_t room) {
  return search(root, out, room, false);
}
size_t find_job(int root, Relative* out, size_t room) { return search(root, out, room, true); }

size_t find_session(int session, Relative* out, size_t room) {
  Region memory{};
  Table t{};
  size_t found = 0;
  if (read_table(&memory, &t))
    for (size_t i = 0; i < t.count && found < room; ++i)
      if (t.all[i].sid == session && !is_ours(t.all[i])) out[found++] = t.all[i];
  scratch_unmap(&memory);
  return found;
}

bool has_job() {
  Relative one;
  return has_children() || (may_have_other_members() && find_job(library.pid, &one, 1));
}

}  // namespace gpuckpt
