#include "store/io/process_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "base/procfs/proc.h"

namespace gpuckpt::store {

namespace {

// The first line of a file of /proc, which one read returns whole.
std::string first_line(const char* path) {
  char text[4096];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));
  if (fd >= 0) close(fd);
  const std::string_view all(text, n < 0 ? 0 : static_cast<size_t>(n));
  return std::string(all.substr(0, all.find('\n')));
}

}  // namespace

// Read once: it does not change while this process lives.
const std::string& boot_id() {
  static const std::string id = first_line("/proc/sys/kernel/random/boot_id");
  return id;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Read once: it does not change while this process lives.
uint64_t pid_namespace() {
  static const uint64_t number = [] {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
  }();
  return number;
}

uint64_t start_time(int64_t pid) {
  ProcStat stat;
  if (!read_stat_of(static_cast<int>(pid), &stat) || stat.ended()) return 0;
  return gpuckpt::start_time(stat);
}

bool is_stopped(int64_t pid) {
  ProcStat stat;
  return read_stat_of(static_cast<int>(pid), &stat) && stat.state == 'T';
}

}  // namespace gpuckpt::store
