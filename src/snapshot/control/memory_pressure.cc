#include "snapshot/control/memory_pressure.h"

#include "base/procfs/memory_room.h"
#include "base/procfs/proc.h"
#include "base/text/text.h"

namespace gpuckpt {

bool memory_pressure_exceeds(int child, uint64_t limit) {
  if (machine_room().tight() || memory_room().tight()) return true;
  if (!limit) return false;
  char path[64], text[2048];
  format(path, sizeof(path), "/proc/%d/smaps_rollup", child);
  if (read_file(path, text, sizeof(text)) <= 0) return false;
  auto own = [&](const char* name) {
    const char* s = status_field(text, name);
    return scan_dec(&s) * 1024;
  };
  return own("Private_Dirty:") + own("Private_Clean:") > limit;
}

}  // namespace gpuckpt
