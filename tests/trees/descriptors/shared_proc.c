// A file of the kernel's that parent and child have in common after fork: the snapshot tells that a restore opens it for each.
#include "tree.h"
int main(void) {
  const int file = open("/proc/stat", O_RDONLY), own = open("/proc/stat", O_RDONLY);
  CHECK(file >= 0 && own >= 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    CHECK(close(own) == 0);
    const int another = open("/proc/stat", O_RDONLY);  // of which nothing is to be told
    while (access("go_on", F_OK) != 0) sleep_ms(5);
    CHECK(another == own && lseek(file, 77, SEEK_SET) == 77);
    _exit(5);
  }
  const int before = was_restored();
  sleep_ms(20);
  ready_and_wait();
  CHECK(wait_status(child) == 5);
  const long at = lseek(file, 0, SEEK_CUR);
  CHECK(at == 77 || (at == 0 && was_restored() != before) || before);
  CHECK(lseek(own, 0, SEEK_CUR) == 0);
  return survived();
}
