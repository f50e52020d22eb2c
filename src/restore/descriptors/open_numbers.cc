#include "restore/descriptors/open_numbers.h"

#include <fcntl.h>

#include <vector>

#include "base/procfs/proc.h"
#include "base/text/text.h"

namespace gpuckpt::restore {
namespace {

// One more than the highest possible number; 0: not known.
uint64_t table_size() {
  char status[4096];
  if (read_file("/proc/self/status", status, sizeof(status)) <= 0) return 0;
  const char* size = status_field(status, "FDSize:");
  return scan_dec(&size);
}

std::vector<int> listed() {
  std::vector<int> numbers;
  each_number_in("/proc/self/fd", &numbers, [](void* to, int fd) {
    static_cast<std::vector<int>*>(to)->push_back(fd);
    return true;
  });
  return numbers;
}

}  // namespace

// Tests numbers instead of reading /proc/self/fd, where the kernel makes an inode for each entry:
// in a job, where each process inherits descriptors for all others, that is most of the time before
// they run. A test takes a thirtieth of it, and tables are rarely much larger than the open
// numbers.
void each_open_number(const std::function<void(int)>& each) {
  constexpr uint64_t kSmall = 1 << 14;
  const uint64_t size = table_size();
  if (size == 0 || size > kSmall) {
    for (int fd : listed()) each(fd);
    return;
  }
  for (int fd = 0; fd < static_cast<int>(size); ++fd)
    if (fcntl(fd, F_GETFD) >= 0) each(fd);
}

}  // namespace gpuckpt::restore
