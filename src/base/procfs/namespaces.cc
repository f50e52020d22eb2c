#include "base/procfs/namespaces.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/procfs/proc.h"
#include "base/syscall.h"
#include "base/text/text.h"

namespace gpuckpt {
namespace {

constexpr const char* kParts[kNamespaceParts][2] = {
    {"root", "root folder"},           {"ns/user", "user namespace"}, {"ns/mnt", "mount namespace"},
    {"ns/net", "network namespace"},   {"ns/ipc", "IPC namespace"},   {"ns/uts", "UTS namespace"},
    {"ns/cgroup", "cgroup namespace"}, {"ns/pid", "pid namespace"}};

}  // namespace

Namespaces namespaces_of(const char* process) {
  Namespaces out{};
  char path[64];
  format(path, sizeof(path), "/proc/%s", process);
  ProcFolder folder(path);
  folder.open();
  for (size_t i = 0; i < kNamespaceParts; ++i) {
    struct stat st;
    if (sys::failed(folder.look_at(kParts[i][0], &st))) continue;
    out.part[i][0] = st.st_dev;
    out.part[i][1] = st.st_ino;
  }
  folder.close();
  return out;
}

bool still_in(const Namespaces& before, const char* process) {
  char path[64], text[64];
  format(path, sizeof(path), "/proc/%s", process);
  ProcFolder folder(path);
  folder.open();
  struct stat root;
  bool same = !sys::failed(folder.look_at(kParts[0][0], &root)) &&
              before.part[0][0] == root.st_dev && before.part[0][1] == root.st_ino;
  for (size_t i = 1; same && i < kNamespaceParts; ++i) {
    // "net:[4026531840]": all are on one file system.
    same = folder.read_link(kParts[i][0], text, sizeof(text)) > 0;
    const char* s = text;
    while (*s && *s++ != '[') continue;
    same = same && scan_dec(&s) == before.part[i][1];
  }
  folder.close();
  return same;
}

uint32_t difference(const Namespaces& a, const Namespaces& b) {
  uint32_t out = 0;
  for (size_t i = 0; i < kNamespaceParts; ++i) {
    const uint64_t* x = a.part[i];
    const uint64_t* y = b.part[i];
    if (x[1] && y[1] && (x[0] != y[0] || x[1] != y[1])) out |= 1u << i;
  }
  return out;
}

void name_namespaces(uint32_t parts, char* to, size_t room) {
  Text text(to, room);
  for (size_t i = 0; i < kNamespaceParts; ++i) {
    if (!(parts >> i & 1)) continue;
    const bool last = !(parts >> i >> 1);
    text.add("%s%s", !text.used ? "" : last ? " and " : ", ", kParts[i][1]);
  }
}

void write_namespaces(const Namespaces& namespaces, char* to, size_t room) {
  Text text(to, room);
  for (const auto& part : namespaces.part) text.add("%lx.%lx,", part[0], part[1]);
}

bool read_namespaces(const char* s, Namespaces* out) {
  for (auto& part : out->part) {
    part[0] = scan_hex(&s);
    if (*s++ != '.') return false;
    part[1] = scan_hex(&s);
    if (*s++ != ',') return false;
  }
  return !*s;
}

namespace {

ClockOffsets kept_offsets{};

bool has_made_another() {
  struct stat own, childrens;
  return !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD, sys::ptr("/proc/self/ns/time"),
                                sys::ptr(&own), 0)) &&
         !sys::failed(sys::call(SYS_newfstatat, AT_FDCWD,
                                sys::ptr("/proc/self/ns/time_for_children"), sys::ptr(&childrens),
                                0)) &&
         own.st_ino != childrens.st_ino;
}

}  // namespace

void keep_clock_offsets() { kept_offsets = clock_offsets(); }

ClockOffsets clock_offsets() {
  if (has_made_another()) return kept_offsets;
  ClockOffsets out{};
  char text[256];
  const long n = read_file("/proc/self/timens_offsets", text, sizeof(text));
  for (const char* s = text; n > 0 && *s;) {
    int64_t* clock = starts_with(s, "monotonic")  ? &out.monotonic
                     : starts_with(s, "boottime") ? &out.boottime
                                                  : nullptr;
    while (*s && *s != ' ') ++s;
    while (*s == ' ') ++s;
    const int64_t seconds = scan_signed(&s);
    while (*s == ' ') ++s;
    if (clock) *clock = seconds * 1000000000 + scan_signed(&s);
    while (*s && *s != '\n') ++s;
    if (*s) ++s;
  }
  return out;
}

}  // namespace gpuckpt
