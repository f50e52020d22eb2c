#include "restore/files/written_descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <memory>

namespace gpuckpt::restore {
namespace {

void read_fdinfo(int64_t pid, const char* number, WrittenDescriptor* d) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fdinfo/" + number;
  FILE* file = fopen(path.c_str(), "re");
  d->written = d->leased = false;
  if (!file) return;
  char line[128];
  unsigned flags = 0;
  while (fgets(line, sizeof(line), file))
    if (sscanf(line, "flags: %o", &flags) == 1)
      d->written = (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH);
    else if (strncmp(line, "lock:", 5) == 0 && strstr(line, " LEASE ") && !strstr(line, " READ "))
      d->leased = true;
  fclose(file);
}

}  // namespace

std::vector<WrittenDescriptor> written_descriptors(int64_t pid) {
  std::vector<WrittenDescriptor> out;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  std::unique_ptr<DIR, int (*)(DIR*)> all(opendir(folder.c_str()), closedir);
  while (dirent* entry = all ? readdir(all.get()) : nullptr) {
    WrittenDescriptor d;
    d.link = folder + "/" + entry->d_name;
    if (entry->d_name[0] == '.' || stat(d.link.c_str(), &d.st) != 0 || !S_ISREG(d.st.st_mode) ||
        !d.st.st_nlink)
      continue;
    read_fdinfo(pid, entry->d_name, &d);
    if (!d.written && !d.leased) continue;
    char path[PATH_MAX];
    const ssize_t n = readlink(d.link.c_str(), path, sizeof(path));
    if (n <= 0 || path[0] != '/') continue;
    d.path.assign(path, static_cast<size_t>(n));
    out.push_back(std::move(d));
  }
  return out;
}

}  // namespace gpuckpt::restore
