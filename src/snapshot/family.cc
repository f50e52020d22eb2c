#include "snapshot/family.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/heap.h"
#include "common/proc.h"
#include "common/syscall.h"
#include "common/text.h"
#include "gpuckpt/wire.h"

namespace gpuckpt {
namespace {

constexpr size_t kMostProcesses = 65536;

struct Table {
  Relative* all;
  size_t count;
};

bool is_ours(const Relative& r) {
  return starts_with(r.name, "gpuckpt-copy") || starts_with(r.name, "gpuckpt-writer");
}

}  // namespace

bool look_at(int pid, Relative* out) {
  char path[40], text[1024];
  format(path, sizeof(path), "/proc/%d/stat", pid);
  if (read_file(path, text, sizeof(text)) <= 0) return false;
  const char* open = text;
  while (*open && *open != '(') ++open;
  const char* close = open;
  for (const char* p = open; *p; ++p)
    if (*p == ')') close = p;
  if (!*open || !*close || !close[1]) return false;
  size_t n = static_cast<size_t>(close - open - 1);
  if (n > sizeof(out->name) - 1) n = sizeof(out->name) - 1;
  __builtin_memcpy(out->name, open + 1, n);
  out->name[n] = 0;
  out->pid = pid;
  out->state = close[2];
  const char* s = close + 4;
  for (int* to : {&out->ppid, &out->pgid, &out->sid}) {
    *to = static_cast<int>(scan_signed(&s));
    if (*s == ' ') ++s;
  }
  return true;
}

bool has_children() {
  char info[128];
  constexpr long kAny = WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT | __WALL;
  return sys::call(SYS_waitid, 0 /* P_ALL */, 0, sys::ptr(info), kAny, 0) != -10 /* ECHILD */;
}

bool listens(int pid) {
  char path[40];
  static char text[4096 + 512];
  format(path, sizeof(path), "/proc/%d/status", pid);
  if (read_file(path, text, sizeof(text)) <= 0) return false;
  const char* s = status_field(text, "SigCgt:");
  if (!(scan_hex(&s) >> (wire::kWakeSignal - 1) & 1)) return false;
  format(path, sizeof(path), "/proc/%d/maps", pid);
  LineReader maps(path, text, sizeof(text));
  while (char* line = maps.next()) {
    const char* end = line + length(line);
    constexpr size_t n = sizeof("/libgpuckpt.so") - 1;
    if (end - line > static_cast<long>(n) && equal(end - n, "/libgpuckpt.so")) return true;
  }
  return false;
}

int find_root(int pid) {
  Relative r;
  while (look_at(pid, &r) && r.ppid > 1 && listens(r.ppid)) pid = r.ppid;
  return pid;
}

size_t find_family(int root, Relative* out, size_t room) {
  Region memory = scratch_map(kMostProcesses * sizeof(Relative));
  if (!memory) return 0;
  Table t{reinterpret_cast<Relative*>(memory.data()), 0};
  each_number_in("/proc", &t, [](void* context, int pid) {
    Table* table = static_cast<Table*>(context);
    if (look_at(pid, &table->all[table->count])) ++table->count;
    return table->count < kMostProcesses;
  });
  size_t found = 0;
  for (size_t done = 0; done <= found && found < room; ++done) {
    const int parent = done ? out[done - 1].pid : root;
    for (size_t i = 0; i < t.count && found < room; ++i)
      if (t.all[i].ppid == parent && !is_ours(t.all[i])) out[found++] = t.all[i];
  }
  scratch_unmap(&memory);
  return found;
}

}  // namespace gpuckpt
