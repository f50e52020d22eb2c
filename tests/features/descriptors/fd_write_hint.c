// What F_SET_RW_HINT said of a file with a name, of one without, and of a memfd. And a file that
// has lost its name cannot be given one (linkat), as before.
#include <sys/mman.h>
#include "feature.h"
#define SET_HINT 1036
#define GET_HINT 1035
static int make(int fd, uint64_t hint) {
  CHECK(fd >= 0);
  if (fcntl(fd, SET_HINT, &hint) != 0) absent("F_SET_RW_HINT");
  return fd;
}
static uint64_t hint_of(int fd) {
  uint64_t hint = 99;
  CHECK(fcntl(fd, GET_HINT, &hint) == 0);
  return hint;
}
int main(void) {
  const int named = make(open("named", O_CREAT | O_RDWR, 0600), 2), lost = make(open("lost", O_CREAT | O_RDWR, 0600), 3);
  const int memory = make(memfd_create("memory", 0), 5);
  CHECK(unlink("lost") == 0);
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", lost);
  ready_and_wait();
  CHECK(hint_of(named) == 2 && hint_of(lost) == 3 && hint_of(memory) == 5);
  CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "found", AT_SYMLINK_FOLLOW) == -1 && (errno == ENOENT || errno == EXDEV));
  return survived();
}
