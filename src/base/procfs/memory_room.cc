#include "base/procfs/memory_room.h"

#include "base/procfs/proc.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kNone = ~0ull;

// "Name:   123 kB" of `text`, in bytes.
uint64_t kilobytes(const char* text, const char* name) {
  const char* s = info_line(text, name);
  return s ? scan_dec(&s) * 1024 : kNone;
}

uint64_t number_in(const char* folder, const char* file) {
  char path[700], text[64];
  format(path, sizeof(path), "%s/%s", folder, file);
  const char* s = text;
  return read_file(path, text, sizeof(text)) > 0 && *s >= '0' && *s <= '9' ? scan_dec(&s) : kNone;
}

// The group's page cache that no process has mapped and that is clean.
uint64_t reclaimable(const char* folder, bool unified) {
  char path[700], text[4096];
  format(path, sizeof(path), "%s/memory.stat", folder);
  if (read_file(path, text, sizeof(text)) <= 0) return 0;
  auto bytes = [&](const char* name, const char* old_name) {
    const char* s = status_field(text, unified ? name : old_name);
    return scan_dec(&s);
  };
  const uint64_t files = bytes("inactive_file ", "total_inactive_file ") +
                         bytes("active_file ", "total_active_file "),
                 in_use = bytes("file_mapped ", "total_mapped_file ") +
                          bytes("file_dirty ", "total_dirty ") +
                          bytes("file_writeback ", "total_writeback ");
  return files > in_use ? files - in_use : 0;
}

uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// How much more the group may have on disk. The old hierarchy limits memory and swap together.
uint64_t swap_of_group(const char* folder, bool unified, uint64_t all, uint64_t used) {
  const uint64_t most =
      number_in(folder, unified ? "memory.swap.max" : "memory.memsw.limit_in_bytes");
  const uint64_t now =
      number_in(folder, unified ? "memory.swap.current" : "memory.memsw.usage_in_bytes");
  if (most == kNone || now == kNone || most > 1ull << 50) return kNone;  // no limit of its own
  const uint64_t left = most > now ? most - now : 0, memory = all > used ? all - used : 0;
  return unified ? left : left > memory ? left - memory : 0;
}

void note_group(MemoryRoom* tightest, const char* folder, bool unified) {
  const uint64_t all = number_in(folder, unified ? "memory.max" : "memory.limit_in_bytes"),
                 used = number_in(folder, unified ? "memory.current" : "memory.usage_in_bytes");
  if (all == kNone || used == kNone || all > 1ull << 50) return;
  const uint64_t files = reclaimable(folder, unified);
  const uint64_t left = files + (all > used ? all - used : 0);
  if (left >= tightest->left) return;
  tightest->left = left, tightest->all = all;
  tightest->swap = least(tightest->swap, swap_of_group(folder, unified, all, used));
  copy(tightest->group, sizeof(tightest->group), folder);
}

// The group at `path` and all above it. Inside a container the path can be one of outside, and its
// own group is the root of what is mounted.
void note_groups(MemoryRoom* tightest, const char* mount, const char* path, bool unified) {
  char folder[640];
  format(folder, sizeof(folder), "%s%s", mount, path);
  for (const size_t root = length(mount);;) {
    note_group(tightest, folder, unified);
    size_t n = length(folder);
    if (n <= root) return;
    while (n > root && folder[n - 1] != '/') --n;
    folder[n > root ? n - 1 : root] = 0;
  }
}

}  // namespace

MemoryRoom machine_room() {
  MemoryRoom r;
  char text[2048];
  if (read_file("/proc/meminfo", text, sizeof(text)) <= 0) return r;
  const uint64_t left = kilobytes(text, "MemAvailable:"), all = kilobytes(text, "MemTotal:");
  const uint64_t swap = kilobytes(text, "SwapFree:");
  if (left != kNone && all != kNone) r.left = left, r.all = all;
  if (swap != kNone) r.swap = swap;
  return r;
}

// Lines "0::/path", or "5:memory:/path" in the old hierarchy.
MemoryRoom memory_room(const char* memberships, const char* mounts) {
  static char buffer[4096];
  MemoryRoom tightest = machine_room();
  LineReader lines(memberships, buffer, sizeof(buffer));
  while (char* line = lines.next()) {
    const bool unified = starts_with(line, "0::");
    const char* path = line;
    bool memory = unified;
    for (int colons = 0; *path && colons < 2; ++path) {
      memory |= starts_with(path, ":memory:") || starts_with(path, ",memory:") ||
                starts_with(path, ":memory,");
      colons += *path == ':';
    }
    char mount[128];
    format(mount, sizeof(mount), unified ? "%s" : "%s/memory", mounts);
    if (memory) note_groups(&tightest, mount, equal(path, "/") ? "" : path, unified);
  }
  return tightest;
}

}  // namespace gpuckpt
