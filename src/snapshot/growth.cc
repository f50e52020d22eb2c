#include "snapshot/growth.h"

#include "common/proc.h"
#include "common/text.h"

namespace gpuckpt {
namespace {

constexpr uint64_t kNone = ~0ull;

// "Name:   123 kB" of `text`, in bytes.
uint64_t kilobytes(const char* text, const char* name) {
  const char* s = info_line(text, name);
  return s ? scan_dec(&s) * 1024 : kNone;
}

uint64_t number_in(const char* folder, const char* file) {
  char path[640], text[64];
  format(path, sizeof(path), "%s/%s", folder, file);
  const char* s = text;
  return read_file(path, text, sizeof(text)) > 0 && *s >= '0' && *s <= '9' ? scan_dec(&s) : kNone;
}

struct Room {
  uint64_t left = kNone, all = 0;
  bool tight() const { return left != kNone && left < all / 32; }
};

Room machine() {
  char text[2048];
  if (read_file("/proc/meminfo", text, sizeof(text)) <= 0) return {};
  return {kilobytes(text, "MemAvailable:"), kilobytes(text, "MemTotal:")};
}

// What the group holds of files can be had back, but for what is in use: half of it, as a guess.
Room group(const char* folder, const char* limit, const char* usage) {
  char path[640], text[4096];
  Room r;
  r.all = number_in(folder, limit);
  const uint64_t used = number_in(folder, usage);
  if (r.all == kNone || used == kNone || r.all > 1ull << 50) return {};
  format(path, sizeof(path), "%s/memory.stat", folder);
  uint64_t files = 0;
  if (read_file(path, text, sizeof(text)) > 0) {
    const char* s = status_field(text, "inactive_file");
    files = scan_dec(&s) / 2;
  }
  r.left = r.all > used ? r.all - used + files : files;
  return r;
}

// The memory group of this process by /proc/self/cgroup: "0::/path", or "5:memory:/path" in the old
// hierarchy. Inside a container its own group is the root of what is mounted.
bool group_is_tight() {
  static char buffer[4096];
  char folder[600];
  LineReader lines("/proc/self/cgroup", buffer, sizeof(buffer));
  while (char* line = lines.next()) {
    const bool unified = starts_with(line, "0::");
    const char* path = line;
    bool memory = unified;
    for (int colons = 0; *path && colons < 2; ++path) {
      memory |= starts_with(path, ":memory:");
      colons += *path == ':';
    }
    for (int inside = 1; memory && inside >= 0; --inside) {
      format(folder, sizeof(folder), unified ? "/sys/fs/cgroup%s" : "/sys/fs/cgroup/memory%s",
             inside ? path : "");
      if (unified ? group(folder, "memory.max", "memory.current").tight()
                  : group(folder, "memory.limit_in_bytes", "memory.usage_in_bytes").tight())
        return true;
    }
  }
  return false;
}

}  // namespace

bool growth_exceeds(int child, uint64_t limit) {
  if (machine().tight() || group_is_tight()) return true;
  if (!limit) return false;
  char path[64], text[2048];
  format(path, sizeof(path), "/proc/%d/smaps_rollup", child);
  if (read_file(path, text, sizeof(text)) <= 0) return false;
  const uint64_t own = kilobytes(text, "Private_Dirty:"), clean = kilobytes(text, "Private_Clean:");
  return own != kNone && own + (clean == kNone ? 0 : clean) > limit;
}

}  // namespace gpuckpt
