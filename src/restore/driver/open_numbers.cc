#include "restore/driver/open_numbers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include <memory>
#include <vector>

namespace gpuckpt::restore {
namespace {

// One more than the highest number can be; -1: not known.
int table_size() {
  std::unique_ptr<FILE, int (*)(FILE*)> status(fopen("/proc/self/status", "re"), fclose);
  char line[256];
  int size = -1;
  while (status && size < 0 && fgets(line, sizeof(line), status.get()))
    if (sscanf(line, "FDSize: %d", &size) != 1) size = -1;
  return size;
}

std::vector<int> listed() {
  std::vector<int> numbers;
  std::unique_ptr<DIR, int (*)(DIR*)> d(opendir("/proc/self/fd"), closedir);
  while (const dirent* e = d ? readdir(d.get()) : nullptr)
    if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d.get()))
      numbers.push_back(atoi(e->d_name));
  return numbers;
}

}  // namespace

// The kernel makes an inode for each entry of /proc/self/fd: in a job, where each process inherits
// descriptors for all others, that is most of the time before they run. To ask for a number takes
// a thirtieth, and tables are rarely much larger than what is open.
void each_open_number(const std::function<void(int)>& each) {
  constexpr int kSmall = 1 << 14;
  const int size = table_size();
  if (size < 0 || size > kSmall) {
    for (int fd : listed()) each(fd);
    return;
  }
  for (int fd = 0; fd < size; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) each(fd);
}

}  // namespace gpuckpt::restore
